"""Clients under offers with caps, and with a sampling term: sequential best responses until nobody moves.

Under capped offers whose prices meet the plan's brackets there is one equilibrium, the plan (``docs/theory/offers.md``).
Where prices were meant for other
costs, or somebody has left, clients settle elsewhere; this follows them there. It finds one equilibrium and proves nothing
about others.
"""

from __future__ import annotations

import numpy as np

from ..errors import ConvergenceError, NoEquilibriumError
from ..model import Array, GameModel, frozen
from ..model.responses import best_responses

__all__ = ["settle"]

#: Rounds of best responses before giving up.
MOST_ROUNDS = 2000
#: Clients count as settled when nobody moves by more than this share of its cap.
STILL = 1e-12


def settle(game: GameModel, prices: Array, caps: Array, start: Array | None = None) -> Array:
    """The participation that sequential best responses reach from ``start`` (default: the caps)."""
    w = (game.costs - prices) / (2.0 * game.lam * game.alpha)
    upper = game.alpha * caps
    x = np.array(caps if start is None else np.minimum(start, caps), dtype=np.float64)
    if not x.any():
        raise NoEquilibriumError("nobody is allowed to take part")
    able = np.flatnonzero(caps > 0)
    damping = 1.0
    for round_ in range(MOST_ROUNDS):
        moved = 0.0
        for k in able:
            wanted = float(best_responses(upper, w, game.profile(x), game.sampling)[k])
            following = caps[k] if wanted >= upper[k] else wanted / game.alpha[k]
            following = x[k] + damping * (following - x[k])
            moved = max(moved, abs(following - x[k]) / caps[k])
            x[k] = min(following, caps[k])
            if not x.any():
                raise NoEquilibriumError("everybody waits for somebody else: nobody takes part")
        if moved <= STILL:
            return frozen(x)
        if round_ == MOST_ROUNDS // 4:
            damping = 0.5  # best responses that go round in a circle settle when clients move half the way
    if moved <= 1e-7:
        return frozen(x)
    raise ConvergenceError(f"best responses did not settle: somebody still moves by {moved:.1e} of its cap")
