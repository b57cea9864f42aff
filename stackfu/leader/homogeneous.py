"""Remaining clients whose data are all alike: drift is no concern, so participation is bought at cost.

The server's loss is the same whatever the mixture. Without payments everybody waits for somebody else and nobody takes
part; a client that is paid its cost is indifferent, so any share is an equilibrium. The most data for the money is a
fractional knapsack: cheapest cost per sample first.
"""

from __future__ import annotations

import time

import numpy as np

from ..errors import InfeasibleError
from ..game import StackelbergGame
from ..geometry import frozen
from ..result import Equilibrium, Solution, Status, Uniqueness

__all__ = ["buy_data"]


def buy_data(game: StackelbergGame, budget: float, floor: float, finite_sample: bool) -> Solution:
    """The largest total participation the budget buys, cheapest clients first."""
    began = time.perf_counter()
    x = np.zeros(game.count)
    left = budget
    for k in np.argsort(game.kappa, kind="stable"):
        x[k] = min(1.0, left / game.costs[k])
        left -= x[k] * game.costs[k]
        if left <= 0:
            break
    total = float(game.alpha @ x)
    if total <= 0 or total < floor:
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
    loss = equilibrium.server_loss + (game.finite_sample_penalty(x) if finite_sample else 0.0)
    return Solution(
        game=game,
        budget=budget,
        payments=frozen(payments),
        equilibrium=equilibrium,
        status=Status.CERTIFIED,
        method="certified",
        objective=loss,
        lower_bound=loss,
        shadow_price=0.0,
        message="all remaining data are alike: the loss does not depend on payments; the budget buys data at cost",
        options={"finite_sample": finite_sample, "min_total": floor},
        seconds=time.perf_counter() - began,
    )
