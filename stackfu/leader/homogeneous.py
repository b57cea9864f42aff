"""Remaining clients whose data are all alike: drift is no concern, so participation is bought at cost.

The server's loss is the same whatever the mixture. Without payments everybody waits for somebody else and nobody takes
part; a client that is paid its cost is indifferent, so any share is an equilibrium. The most data for the money is a
fractional knapsack: cheapest cost per sample first.
"""

from __future__ import annotations

import time

import numpy as np

from ..errors import InfeasibleError, InputError
from ..model import GameModel, Limits, Objective, frozen
from ..results import Equilibrium, Solution, Status, Uniqueness

__all__ = ["buy_data"]


def buy_data(game: GameModel, goal: Objective, limits: Limits) -> Solution:
    """The largest total participation the budget buys, cheapest clients first; no more than the floor if money counts."""
    began = time.perf_counter()
    budget, floor = goal.budget, goal.min_total
    if goal.payment_weight and (floor == 0 or goal.finite_sample):
        raise InputError(
            "payment_weight",
            "the remaining clients' data are all alike, so less data is always the better buy and nobody's is best; "
            "set a floor (min_total) without finite_sample, or a budget without payment_weight",
            value=goal.payment_weight,
        )
    x = np.zeros(game.count)
    left, wanted = budget, floor if goal.payment_weight else 1.0
    for k in np.argsort(game.kappa, kind="stable"):
        x[k] = min(1.0, left / game.costs[k], wanted / game.alpha[k])
        left -= x[k] * game.costs[k]
        wanted -= x[k] * game.alpha[k]
        if left <= 0 or wanted <= 0:
            break
    total = float(game.alpha @ x)
    if total <= 0 or total < floor * (1.0 - 1e-12):
        needed = f"total participation {floor:g}" if floor > 0 else "anybody's participation"
        raise InfeasibleError(
            f"budget {budget:g} does not buy {needed}: the remaining clients' data are all alike, so nobody takes part "
            f"below its cost (cheapest {game.costs.min():g} per unit)"
        )
    payments = np.where(x > 0, game.costs, 0.0)
    residual = game.residual(payments, x)
    equilibrium = Equilibrium(
        game=game,
        payments=frozen(payments),
        participation=frozen(x),
        status=Status.CERTIFIED,
        uniqueness=Uniqueness.CONTINUUM,
        reason="clients paid exactly their cost are indifferent when all data are alike",
        method="homogeneous",
        regret=game.regret(payments, x),
        residual=residual,
    )
    loss = game.loss_of(equilibrium.profile, goal.finite_sample)
    if loss > goal.max_loss * (1.0 + 1e-12):
        raise InfeasibleError(
            f"a loss of at most {goal.max_loss:g} is out of reach: the remaining clients' data are all alike, and the most that "
            f"budget {budget:g} buys has loss {loss:.6g}"
        )
    objective = goal.value(loss, equilibrium.spend)
    return Solution(
        game=game,
        budget=budget,
        payments=frozen(payments),
        equilibrium=equilibrium,
        status=Status.CERTIFIED,
        method="certified",
        objective=objective,
        lower_bound=objective,
        shadow_price=0.0,
        message="all remaining data are alike: the loss does not depend on payments; the budget buys data at cost",
        goal=goal,
        limits=limits,
        seconds=time.perf_counter() - began,
    )
