"""Rules that choose linear prices; the clients answer with their equilibrium."""

from __future__ import annotations

import math

import numpy as np

from stackfu.errors import InputError
from stackfu.followers import find_equilibrium
from stackfu.leader.mechanisms import Proposal
from stackfu.leader.playing import play, play_with_proofs, same_play
from stackfu.leader.uniform import LAST_DIGITS, best_price
from stackfu.model import Array, GameModel, frozen

__all__ = ["MOST_CLIENTS", "price_per_sample", "shapley", "shapley_values", "unpaid"]

#: Exact Shapley values look at every coalition.
MOST_CLIENTS = 16


def unpaid(game: GameModel, budget: float) -> Array:
    """Pay nobody."""
    return np.zeros(game.count)


def price_per_sample(game: GameModel, budget: float) -> Proposal:
    """Pay one price for every sample: the largest whose equilibrium stays within the budget."""
    return _scaled(game, budget, game.sizes / game.sizes.sum())


def shapley(game: GameModel, budget: float) -> Proposal:
    """Pay in proportion to positive Shapley values (:func:`shapley_values`), as much as the budget allows."""
    values = np.maximum(shapley_values(game), 0.0)
    if not values.any():
        values = np.ones(game.count)
    return _scaled(game, budget, values / values.sum())


def shapley_values(game: GameModel) -> Array:
    """Return the Shapley value of every remaining client, exactly.

    A coalition T is worth the loss that it saves against the worst client alone,

        v(T) = max_k L({k}) - L(T),    v({}) = 0,

    where every member brings all of its data and L is the server's loss, the sampling term included. The values sum to what
    all clients together are worth.

    >>> from stackfu.demo import digits_game
    >>> values = shapley_values(digits_game(sampling_constant=30.0))
    >>> values.shape, bool(values.sum() > 0)
    ((7,), True)
    """
    n = game.count
    if n > MOST_CLIENTS:
        raise InputError("clients", f"exact Shapley values are computed for at most {MOST_CLIENTS}", value=n)
    members = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    loss = np.full(2**n, np.inf)
    for coalition in range(1, 2**n):
        loss[coalition] = game.loss_of(game.profile(members[coalition].astype(np.float64)))
    worth = np.zeros(2**n)
    worth[1:] = loss[2 ** np.arange(n)].max() - loss[1:]
    size = members.sum(axis=1)
    weight = np.array([math.factorial(s) * math.factorial(n - s - 1) / math.factorial(n) for s in range(n)])
    values = np.zeros(n)
    for k in range(n):
        without = np.flatnonzero(members[:, k] == 0)
        values[k] = float((weight[size[without]] * (worth[without + 2**k] - worth[without])).sum())
    return values


def _scaled(game: GameModel, budget: float, shape: Array) -> Proposal:
    """Offer ``price * shape``, with the largest price whose equilibrium stays within the budget."""
    for player in (play, play_with_proofs):
        price, tried, message, history = best_price(game, budget, 1e-6, 200, player, shape)
        payments = frozen(price * shape)
        found = find_equilibrium(game, payments)
        if same_play(game, payments, tried, found.profile) and found.spend <= budget * (1.0 + LAST_DIGITS):
            break
    return Proposal(found, message=message, history=history)
