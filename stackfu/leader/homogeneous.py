"""Remaining clients whose data are all alike: drift is no concern, so participation is bought at cost.

The server's loss is the same whatever the mixture. Without payments everybody waits for somebody else and nobody takes
part; a client that is paid its cost is indifferent, so any share is an equilibrium. The most data for the money is a
fractional knapsack: cheapest cost per sample first.
"""

from __future__ import annotations

import time

import numpy as np

from ..errors import InfeasibleError, InputError
from ..model import Array, GameModel, Limits, Objective, frozen
from ..results import Equilibrium, Solution, Status, Uniqueness
from ..results.certificate import Knot, LeaderCertificate, Leaf, Node, Split
from .certified.claims import accepted
from .tolerances import LIMIT_ROUNDING, OVERSPENT, ROUNDING

__all__ = ["buy_data", "prove"]

#: Totals at which the knapsack's multipliers are written down on each side of the optimum, and the nearest of them.
PIECES = 200
FINEST = 1e-5
#: Rounding of squared norms: what a loss of distances between clients that coincide may come out as.
COINCIDING = 1e-14


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
    if total <= 0 or total < floor * (1.0 - LIMIT_ROUNDING):
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
    if loss > goal.max_loss * (1.0 + LIMIT_ROUNDING):
        raise InfeasibleError(
            f"a loss of at most {goal.max_loss:g} is out of reach: the remaining clients' data are all alike, and the most that "
            f"budget {budget:g} buys has loss {loss:.6g}"
        )
    objective = goal.value(loss, equilibrium.spend)
    certificate = prove(game, goal, x, objective)
    status = Status.CONVERGED
    if certificate is not None:
        # squared distances of clients that cannot be told apart are rounding errors, and so is a gap of their size
        within = limits.gap * abs(objective) + game.loss.weight * COINCIDING * float(
            game.embeddings.squared_norms.max()
        )
        status = Status.CERTIFIED if objective - certificate.lower <= within else Status.GAP_OPEN
    return Solution(
        game=game,
        budget=budget,
        payments=frozen(payments),
        equilibrium=equilibrium,
        status=status,
        method="certified",
        objective=objective,
        lower_bound=-np.inf if certificate is None else certificate.lower,
        message="all remaining data are alike: the loss does not depend on payments; the budget buys data at cost",
        goal=goal,
        limits=limits,
        seconds=time.perf_counter() - began,
        certificate=certificate,
    )


def prove(game: GameModel, goal: Objective, x: Array, objective: float) -> LeaderCertificate | None:
    """Multipliers for the knapsack: a price of the budget, and at every total the marginal client's price as the level.

    With the sampling term the loss falls as ``noise / S`` and the spend rises with slope ``kappa`` of the marginal client;
    they balance at the largest total that the budget buys if the budget is worth ``noise / (S^2 kappa)``.
    """
    order = np.argsort(game.kappa, kind="stable")
    ends = np.cumsum(game.alpha[order])
    total, spend = float(game.alpha @ x), float(game.costs @ x)
    noise = np.zeros(game.count)
    if goal.finite_sample:
        noise = goal.loss_weight * game.loss.weight * game.sampling_noise / float(game.sizes.sum())

    def marginal(s: float) -> int:
        return int(order[min(int(np.searchsorted(ends, s * (1.0 - ROUNDING))), game.count - 1)])

    beta = 0.0
    if goal.finite_sample and spend > goal.budget * (1.0 - OVERSPENT) and total < 1.0:
        beta = float(noise.mean() / (total**2 * game.kappa[marginal(total)]))

    def knot(s: float, price: float) -> Knot:
        k = marginal(s)
        level = (price + goal.payment_weight) * game.kappa[k] * s + noise[k] / s
        nobody = np.zeros(0, dtype=np.int64)
        return Knot(s, 1.0, price, 0.0, float(level), nobody, np.zeros(0), np.arange(game.count), game.alpha)

    first = max(goal.min_total, min(float(ends[0]), total))
    # the bound is of second order in the pieces' widths, so they may grow with the distance from the optimum
    away = np.geomspace(FINEST, 1.0, PIECES)
    inside = [
        s for s in (*ends, total, *total * (1.0 - away), *total * (1.0 + away / total)) if first < s < 1.0
    ]
    points = sorted({goal.min_total or first, *inside, 1.0})
    knots = [knot(s, beta) for s in points]
    leaves: list[Leaf] = [Leaf(((i, i + 1),)) for i in range(len(points) - 1)] or [Leaf(((0, 0),))]
    tree: list[Node] = []
    if goal.min_total == 0.0:
        knots.append(knot(points[0], 0.0))
        tree += [Split(points[0]), Leaf(((len(knots) - 1, len(knots) - 1),))] if points[0] < 1.0 else []
        leaves = leaves if points[0] < 1.0 else [Leaf(((len(knots) - 1, len(knots) - 1),))]
    for leaf, end in zip(leaves, points[1:], strict=False):
        tree += [Split(end), leaf] if end < 1.0 else []
    tree.append(leaves[-1])
    held = accepted(game, goal, LeaderCertificate(objective, tuple(knots), tuple(tree)))
    return None if held is None else held[0]
