"""Equilibrium under offers with caps: sequential best responses until no client moves.

Under capped offers with prices at the plan's brackets there is one equilibrium, the plan (``docs/theory/offers.md``).
If prices were computed for other costs, or a client has left, clients settle elsewhere; this follows them there. It finds one
equilibrium and proves nothing about others (:func:`stackfu.followers.enumerate_equilibria` does).
"""

from __future__ import annotations

import numpy as np

from ..errors import ConvergenceError, NoEquilibriumError
from ..model import Array, GameModel, frozen
from .running import running_mixture
from .solver_tolerances import UNMOVED

__all__ = ["settle"]

#: Rounds of best responses before giving up.
MOST_ROUNDS = 2000
#: Best responses have not settled while a client moves by more than this part of its cap.
UNSETTLED = 1e-7


def settle(game: GameModel, prices: Array, caps: Array, start: Array | None = None) -> Array:
    """Return the participation that sequential best responses reach from ``start`` (default: the caps)."""
    bound = game.alpha * caps
    y = np.array(bound if start is None else np.minimum(game.alpha * start, bound))
    if not y.any():
        raise NoEquilibriumError("nobody is allowed to take part")
    running = running_mixture(game, game.reluctance_under(np.asarray(prices, dtype=np.float64)), bound)
    able = np.flatnonzero(caps > 0)
    damping, moved = 1.0, np.inf
    for round_ in range(MOST_ROUNDS):
        running.refresh(y)
        participants, _, moved = running.sweep(y, able, damping)
        if participants == 0:
            raise NoEquilibriumError("everybody waits for somebody else: nobody takes part")
        if moved <= UNMOVED:
            break
        if round_ == MOST_ROUNDS // 4:
            damping = 0.5  # best responses that go round in a circle settle when clients move half the way
    if moved > UNSETTLED:
        raise ConvergenceError(
            f"best responses did not settle: somebody still moves by {moved:.1e} of its cap"
        )
    return frozen(np.where(y >= bound, caps, np.minimum(y / game.alpha, caps)))
