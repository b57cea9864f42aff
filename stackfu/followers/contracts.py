"""Equilibrium under contracts: each client in turn accepts or rejects, until none changes its mind.

Who accepts brings all that its contract says, for its transfer; who rejects brings what is best for it unpaid. There may be
other outcomes, and best responses may go round in a circle: :func:`stackfu.leader.acceptance.acceptance` tries all of them.
"""

from __future__ import annotations

import numpy as np

from ..model import Array, GameModel
from ..model.offers import utilities_of
from ..model.responses import best_responses
from .solver_tolerances import UNMOVED

__all__ = ["settle_contracts"]

#: Rounds of best responses before giving up.
MOST_ACCEPTANCES = 60
#: A client that loses less than this part of its stakes by accepting is indifferent, and accepts.
TIE = 1e-9


def settle_contracts(game: GameModel, plan: Array, transfers: Array, x: Array) -> Array | None:
    """Return the limit of sequential best responses to contracts from a participation; None: no limit."""
    w = game.costs / game.drift_weight
    x = np.array(x)
    for _ in range(MOST_ACCEPTANCES):
        moved = 0.0
        for k in np.flatnonzero(plan):
            if not x.any():
                return None
            profile = game.profile(x)
            away = np.array(x)
            away[k] = best_responses(game.alpha * plan, w, profile, game.sampling)[k] / game.alpha[k]
            into = np.array(x)
            into[k] = plan[k]
            accepts = utilities_of(game, transfers, game.profile(into))[k]
            rejects = (
                utilities_of(game, np.zeros(game.count), game.profile(away))[k] if away.any() else -np.inf
            )
            stakes = game.costs[k] + transfers[k] + game.lam * profile.to_clients[k]
            following = into if accepts >= rejects - TIE * stakes else away
            moved = max(moved, abs(following[k] - x[k]))
            x = following
        if moved <= UNMOVED:
            return x
    return None
