"""Prices in proportion to what the clients' data contribute: payments by Shapley value or by leave-one-out value.

Client k is offered ``t * max(phi_k, 0)`` for all of its data, with its value ``phi_k`` of the server's loss
(:mod:`stackfu.values`) and the largest rate t found whose equilibrium stays within the budget.
"""

from __future__ import annotations

import numpy as np

from ..followers import find_equilibrium
from ..model import Array, GameModel, frozen
from ..results import Status
from ..values import values_of_clients
from .mechanisms import Proposal
from .playing import play, play_with_proofs, same_play
from .uniform import LAST_DIGITS, best_price

__all__ = ["by_leave_one_out", "by_shapley_value"]


def by_shapley_value(game: GameModel, budget: float) -> Proposal:
    """Prices in proportion to the Shapley values of the clients' data, as high as the budget allows."""
    return _in_proportion(game, budget, values_of_clients(game).shapley)


def by_leave_one_out(game: GameModel, budget: float) -> Proposal:
    """Prices in proportion to what the server loses without each client's data, as high as the budget allows."""
    return _in_proportion(game, budget, values_of_clients(game).leave_one_out)


def _in_proportion(game: GameModel, budget: float, values: Array) -> Proposal:
    """Return the largest prices found, in proportion to the positive values, that stay within the budget."""
    shape, note = np.maximum(values, 0.0), ""
    if not shape.any():
        shape, note = game.alpha, "; no client has a positive value, so every sample is offered the same"
    shape = shape / shape.sum()
    for player in (play, play_with_proofs):
        rate, tried, message, history = best_price(game, budget, player=player, shape=shape)
        payments = frozen(rate * shape)
        reached = find_equilibrium(game, payments)
        if same_play(game, payments, tried, reached.profile) and reached.spend <= budget * (
            1.0 + LAST_DIGITS
        ):
            break
    return Proposal(reached, Status.CONVERGED, f"{message}{note}", history)
