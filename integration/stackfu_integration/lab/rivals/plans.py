"""Rules that choose a plan: which clients bring how much. The plan is posted as capped offers.

A plan that follows a path ``x(t)``, ``t`` from 0 to 1, along which every client brings more and more, is taken as far as the
budget allows: the last ``t`` at which the cheapest capped offers for ``x(t)`` (:func:`stackfu.model.offers.capped_offers`)
cost no more than the budget.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stackfu.errors import InfeasibleError
from stackfu.leader.capped.capped_offers import plan_equilibrium, value_of
from stackfu.model import Array, GameModel, Objective, frozen
from stackfu.model.offers import Offers, capped_offers
from stackfu.results import Solution, Status

__all__ = ["auction", "cheapest_first", "random_clients", "reverse_auction", "reward_pool", "same_share"]

#: Points of a path that are tried before the last affordable one is refined. The price of a plan need not increase along it.
POINTS = 256
#: Halvings of the interval behind the last affordable point: to the last digit of a share.
HALVINGS = 40


def same_share(game: GameModel, budget: float) -> Solution:
    """Let every client bring the same share of its data, as large as the budget allows."""
    return _along(game, budget, lambda t: np.full(game.count, t), "same-share")


def random_clients(game: GameModel, budget: float, *, seed: int = 0) -> Solution:
    """Take whole clients in random order until the budget is spent, and a part of the last one.

    The order is drawn from the seed and the clients' sizes: another one in every federation, the same at every budget.
    """
    order = np.random.default_rng([seed, *game.all_sizes.astype(np.int64).tolist()]).permutation(game.count)
    return _along(game, budget, _one_by_one(game, order), "random-clients")


def cheapest_first(game: GameModel, budget: float) -> Solution:
    """Take whole clients by cost per sample until the budget is spent, and a part of the last one.

    Clients with equal costs per sample follow by total cost, the cheapest first.
    """
    order = np.lexsort((game.costs, game.costs / game.sizes))
    return _along(game, budget, _one_by_one(game, order), "cheapest-first")


def auction(bids: ArrayLike, amounts: ArrayLike, budget: float) -> tuple[NDArray[np.bool_], Array]:
    """Return who wins and what the winners are paid: the proportional-share auction of Singer (2010).

    In the order of bids per sample the ``k`` first win, with the largest ``k`` for which ``b_k <= n_k B / (n_1 + ... + n_k)``.
    A winner is paid ``n_i min(B / (n_1 + ... + n_k), b_{k+1} / n_{k+1})``, the largest bid with which it would still have won.
    Bidding the true cost is therefore a dominant strategy, no client is paid less than its bid, and the budget is kept.

    >>> auction([1.0, 2.0, 9.0], [1.0, 1.0, 1.0], 6.0)
    (array([ True,  True, False]), array([3., 3., 0.]))
    """
    bid, amount = np.asarray(bids, dtype=np.float64), np.asarray(amounts, dtype=np.float64)
    order = np.argsort(bid / amount, kind="stable")
    together = np.cumsum(amount[order])
    enough = bid[order] <= amount[order] * budget / together
    winners = int(np.argmin(enough)) if not enough.all() else len(order)
    won, paid = np.zeros(len(bid), dtype=np.bool_), np.zeros(len(bid))
    if winners:
        rate = budget / together[winners - 1]
        if winners < len(order):
            rate = min(rate, bid[order[winners]] / amount[order[winners]])
        won[order[:winners]] = True
        paid[won] = rate * amount[won]
    return won, np.asarray(paid)


def reverse_auction(game: GameModel, budget: float) -> Solution:
    """Buy all data of the winners of a truthful auction (:func:`auction`); clients bid their costs."""
    won, paid = auction(game.costs, game.sizes, budget)
    return _posted(game, budget, won.astype(np.float64), paid, "reverse-auction")


def reward_pool(game: GameModel, budget: float) -> Solution:
    """Share the budget by data brought, among clients that join while their part exceeds their cost.

    The client level of Lin et al. (WWW 2024), "Incentive and Dynamic Client Selection for Federated Unlearning": clients
    imitate those who gain more, so that a client's participation grows while its part of the pool, ``B n_k / sum_j n_j x_j``,
    exceeds its cost. With one pool these dynamics rest where the price of a sample, ``B`` over the data brought, is above the
    cost per sample of those who bring everything, below that of those who bring nothing, and equal to that of a client in
    between. The authors' second level, a learned choice among clusters of servers, has no counterpart with one server.
    """
    rate = game.costs / game.sizes
    order = np.argsort(rate, kind="stable")
    x, held = np.zeros(game.count), 0.0
    for level in np.unique(rate):
        ties = order[rate[order] == level]
        amount = float(game.sizes[ties].sum())
        room = budget / level - held  # data at which the pool pays just this cost per sample
        share = min(max(room / amount, 0.0), 1.0)
        x[ties] = share
        held += share * amount
        if share < 1.0:
            break
    price = budget / held
    return _posted(game, budget, x, np.where(x > 0, price * game.sizes, 0.0), "reward-pool")


# ------------------------------------------------------------------------------------------------ from plans to offers


def _one_by_one(game: GameModel, order: NDArray[np.intp]) -> Callable[[float], Array]:
    """Return the path on which clients join in this order, ``t`` being the part of all data."""
    size = game.sizes[order] / game.sizes.sum()
    before = np.concatenate([[0.0], np.cumsum(size)[:-1]])

    def at(t: float) -> Array:
        x = np.zeros(game.count)
        x[order] = np.clip((t - before) / size, 0.0, 1.0)
        return x

    return at


def _along(game: GameModel, budget: float, path: Callable[[float], Array], name: str) -> Solution:
    """Follow a path as far as the budget allows."""

    def offered(t: float) -> Offers:
        return capped_offers(game, game.profile(path(t)))

    grid = np.linspace(0.0, 1.0, POINTS + 1)[1:]
    reached = 0.0
    for t in grid[::-1]:
        if offered(float(t)).most <= budget:
            reached = float(t)
            break
    low, high = reached, min(reached + 1.0 / POINTS, 1.0)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if middle > 0 and offered(middle).most <= budget else (low, middle)
    if low == 0.0:
        raise InfeasibleError(f"{name}: the budget {budget:g} buys no data")
    offers = offered(low)
    return _solution(game, budget, offers, name)


def _posted(game: GameModel, budget: float, x: Array, prices: Array, name: str) -> Solution:
    """Post given prices for given amounts."""
    if not x.any():
        raise InfeasibleError(f"{name}: the budget {budget:g} buys no data")
    offers = Offers("capped", frozen(prices), frozen(x), frozen(np.zeros(game.count)))
    return _solution(game, budget, offers, name)


def _solution(game: GameModel, budget: float, offers: Offers, name: str) -> Solution:
    goal = Objective(budget=budget)
    return Solution(
        game=game,
        budget=budget,
        payments=offers.prices,
        equilibrium=plan_equilibrium(game, offers),
        status=Status.CONVERGED,
        method=name,
        objective=value_of(game, goal, offers),
        lower_bound=-np.inf,
        goal=goal,
        posted=offers,
    )
