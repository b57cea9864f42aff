"""Rules that choose linear prices; the clients answer with their equilibrium."""

from __future__ import annotations

import numpy as np

from stackfu.followers import find_equilibrium
from stackfu.leader.mechanisms import Proposal
from stackfu.leader.playing import play, play_with_proofs, same_play
from stackfu.leader.uniform import LAST_DIGITS, best_price
from stackfu.model import Array, GameModel, frozen

__all__ = ["price_per_sample", "unpaid"]


def unpaid(game: GameModel, budget: float) -> Array:
    """Return zero payments."""
    return np.zeros(game.count)


def price_per_sample(game: GameModel, budget: float) -> Proposal:
    """Pay one price for every sample: the largest with an equilibrium within the budget."""
    return _scaled(game, budget, game.sizes / game.sizes.sum())


def _scaled(game: GameModel, budget: float, shape: Array) -> Proposal:
    """Offer ``price * shape``, with the largest price that has an equilibrium within the budget."""
    for player in (play, play_with_proofs):
        price, tried, message, history = best_price(game, budget, 1e-6, 200, player, shape)
        payments = frozen(price * shape)
        found = find_equilibrium(game, payments)
        if same_play(game, payments, tried, found.profile) and found.spend <= budget * (1.0 + LAST_DIGITS):
            break
    return Proposal(found, message=message, history=history)
