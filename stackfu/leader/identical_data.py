"""The case of remaining clients with equal data: there is no drift, so participation is bought at cost.

Without a sampling constant the clients see the same at any mixture. Unpaid, every client waits for another and none
takes part; a client that is paid its cost is indifferent, so any share is an equilibrium. The most data for the money is a
fractional knapsack: cheapest cost per sample first.

With one (``a > 0``) every client also gains by more data in all. At total S a client that takes part is paid
``(kappa_k - lam a / S^2)_+`` per unit, and who would take part for nothing must do so fully: those are the cheapest, so filling up
from the cheapest on is still the cheapest way to any total that is not below that of the unpaid equilibrium.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.optimize import minimize_scalar

from ..errors import InfeasibleError, InputError
from ..followers import find_equilibrium
from ..jit import clock
from ..judging.bound_check import check_bound
from ..model import Array, GameModel, Limits, Objective, frozen
from ..results import Equilibrium, Solution, Status, Uniqueness
from ..results.certificate import Knot, LeaderCertificate, Leaf, Node, Split
from .certified.claims import accepted
from .tolerances import LIMIT_ROUNDING, OVERSPENT, ROUNDING, SAFETY, SNAP

__all__ = ["buy_data", "prove"]

#: Totals at which the knapsack's multipliers are written down on each side of the optimum, and the nearest of them.
PIECES = 200
FINEST = 1e-5
#: Number of totals compared if money counts and more data help all clients.
TOTALS_COMPARED = 400


def buy_data(game: GameModel, goal: Objective, limits: Limits) -> Solution:
    """Return the largest total participation the budget buys, cheapest clients first; no more than is asked for if money counts.

    What it says about itself is not judged yet.
    """
    began = clock()
    if goal.payment_weight and not game.sampling and (goal.min_total == 0 or goal.finite_sample):
        raise InputError(
            "payment_weight",
            "the remaining clients' data are all alike, so less data is always the better buy and nobody's is best; "
            "set a floor (min_total) without finite_sample, or a budget without payment_weight",
            value=goal.payment_weight,
        )
    x = _with_sampling(game, goal) if game.sampling else _at_cost(game, goal)
    payments = game.payments_for(x) if game.sampling else np.where(x > 0, game.costs, 0.0)
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
    if game.sampling:
        equilibrium = _the_one(game, equilibrium)
    loss = game.loss_of(equilibrium.profile, goal.finite_sample)
    if loss > goal.max_loss * (1.0 + LIMIT_ROUNDING):
        raise InfeasibleError(
            f"a loss of at most {goal.max_loss:g} is out of reach: the remaining clients' data are all alike, and the most that "
            f"budget {goal.budget:g} buys has loss {loss:.6g}"
        )
    objective = goal.value(loss, equilibrium.spend)
    return Solution(
        game=game,
        budget=goal.budget,
        payments=frozen(payments),
        equilibrium=equilibrium,
        status=Status.CERTIFIED,
        method="certified",
        objective=objective,
        lower_bound=-np.inf,
        message="all remaining data are alike: the budget buys data, cheapest first",
        goal=goal,
        limits=limits,
        seconds=clock() - began,
        certificate=prove(game, goal, x, objective),
    )


def _at_cost(game: GameModel, goal: Objective) -> Array:
    """Return the knapsack: whole clients from the cheapest on, and a part of the one at which money or need ends."""
    x = np.zeros(game.count)
    left, wanted = goal.budget, goal.min_total if goal.payment_weight else 1.0
    for k in np.argsort(game.kappa, kind="stable"):
        x[k] = min(_part(left, game.costs[k]), _part(wanted, game.alpha[k]))
        left -= x[k] * game.costs[k]
        wanted -= x[k] * game.alpha[k]
        if left <= 0 or wanted <= 0:
            break
    total = float(game.alpha @ x)
    if total <= 0 or total < goal.min_total * (1.0 - LIMIT_ROUNDING):
        raise _too_small(game, goal)
    return x


def _part(there: float, needed: float) -> float:
    """Return the available part of the needed amount, at most 1; a budget of 1e300 does not overflow."""
    return 1.0 if there >= needed else float(there / needed)


def _too_small(game: GameModel, goal: Objective) -> InfeasibleError:
    needed = f"total participation {goal.min_total:g}" if goal.min_total > 0 else "anybody's participation"
    return InfeasibleError(
        f"budget {goal.budget:g} does not buy {needed}: the remaining clients' data are all alike, so nobody takes part "
        f"below its cost (cheapest {game.costs.min():g} per unit)"
    )


def _with_sampling(game: GameModel, goal: Objective) -> Array:
    """The best total between the least that is asked for and the most that the budget buys, filled up from the cheapest on."""
    order = np.argsort(game.kappa, kind="stable")
    kappa, alpha = game.kappa[order], game.alpha[order]
    before = np.cumsum(alpha) - alpha
    unpaid = find_equilibrium(game, game.no_payments)

    def brought(total: float) -> Array:
        return np.asarray(np.clip(total - before, 0.0, alpha))

    def spend(total: float) -> float:
        price = np.maximum(kappa - game.lam * game.sampling / total**2, 0.0)
        return float(price @ brought(total))

    least = max(unpaid.total, goal.min_total)
    falling = game.loss.weight * game.sampling  # the loss is a constant and this over the total
    if goal.finite_sample:
        falling += game.loss.weight * float(game.sampling_noise.mean()) / float(game.sizes.sum())
    if np.isfinite(goal.max_loss) and falling > 0:
        constant = game.loss_of(unpaid.profile, goal.finite_sample) - falling / unpaid.total
        room = goal.max_loss - constant
        least = max(least, falling / room if room > 0 else np.inf)
    # totals that the loss cap asks for are known to the last digits of a difference
    if least > 1.0 + SAFETY or spend(min(least, 1.0)) > goal.budget * (1.0 + LIMIT_ROUNDING):
        wanted = f"a loss of at most {goal.max_loss:g}" if np.isfinite(goal.max_loss) else ""
        floor = f"total participation {goal.min_total:g}" if goal.min_total > 0 else ""
        raise InfeasibleError(
            f"budget {goal.budget:g} does not buy {' and '.join(filter(None, (floor, wanted)))}: the remaining clients' data are "
            f"all alike, and that takes {spend(min(least, 1.0)):.6g}"
        )
    low = least = min(least, 1.0)
    high = 1.0
    if spend(high) > goal.budget:
        while (middle := 0.5 * (low + high)) not in (low, high):
            low, high = (middle, high) if spend(middle) <= goal.budget else (low, middle)
        high = low
    total = high
    if goal.payment_weight and least < high:
        total = _least(lambda s: goal.value(falling / s, spend(s)), least, high)
    if total <= unpaid.total:
        return unpaid.participation
    x = np.zeros(game.count)
    x[order] = np.minimum(brought(total) / alpha, 1.0)
    return x


def _least(value: Callable[[float], float], low: float, high: float) -> float:
    """Return the argument with the least value: the best of a grid, then golden section around it."""
    grid = np.linspace(low, high, TOTALS_COMPARED)
    values = [value(float(s)) for s in grid]
    best = int(np.argmin(values))
    around = (float(grid[max(best - 1, 0)]), float(grid[min(best + 1, TOTALS_COMPARED - 1)]))
    found = minimize_scalar(value, bounds=around, method="bounded", options={"xatol": ROUNDING})
    return float(found.x) if found.fun < values[best] else float(grid[best])


def _the_one(game: GameModel, meant: Equilibrium) -> Equilibrium:
    """Return the intended equilibrium with the solver's knowledge about the number of equilibria."""
    found = find_equilibrium(game, meant.payments)
    if float(np.abs(found.participation - meant.participation).max()) <= SNAP:
        return found
    return replace(meant, uniqueness=found.uniqueness, reason=found.reason)


def prove(game: GameModel, goal: Objective, x: Array, objective: float) -> LeaderCertificate | None:
    """Multipliers for the knapsack: a price of the budget, and at every total the marginal client's price as the level.

    With a sampling term the loss falls as ``noise / S`` and the spend rises with the marginal client's ``kappa``, or with
    ``kappa - lam a / S^2 + 2 lam a Y / S^3`` if those who are paid bring Y; they balance at the largest total that the budget buys
    if the budget is worth the ratio of both slopes.
    """
    order = np.argsort(game.kappa, kind="stable")
    ends = np.cumsum(game.alpha[order])
    total, spend = (
        float(game.alpha @ x),
        float(game.payments_for(x) @ x) if game.sampling else float(game.costs @ x),
    )
    noise = np.zeros(game.count)
    if goal.finite_sample:
        noise = goal.loss_weight * game.loss.weight * game.sampling_noise / float(game.sizes.sum())

    def marginal(s: float) -> int:
        return int(order[min(int(np.searchsorted(ends, s * (1.0 - ROUNDING))), game.count - 1)])

    beta = 0.0
    thin = game.lam * game.sampling
    falling = float(noise.mean()) + goal.loss_weight * game.loss.weight * game.sampling
    if falling > 0 and spend > goal.budget * (1.0 - OVERSPENT) and total < 1.0:
        paid = float((game.alpha * x)[game.kappa > thin / total**2].sum())
        slope = game.kappa[marginal(total)] - thin / total**2 + 2.0 * thin * paid / total**3
        beta = max(falling / (total**2 * float(slope)) - goal.payment_weight, 0.0)

    def knot(s: float, price: float) -> Knot:
        k = marginal(s)
        level = (price + goal.payment_weight) * game.kappa[k] * s + noise[k] / s
        # who takes part unpaid does not pay for the others: its row takes the negative price back
        free = np.flatnonzero(game.kappa < thin / s**2) if thin else np.zeros(0, dtype=np.int64)
        rows = 2.0 * game.lam * (price + goal.payment_weight) * game.alpha[free]
        return Knot(s, 1.0, price, 0.0, float(level), free, rows, np.arange(game.count), game.alpha)

    # below this total the cheapest client would take part more for nothing, so that there is nothing to bound
    least = 0.99 * float(np.sqrt(thin / game.kappa.min())) if thin else np.inf
    first = max(goal.min_total, min(float(ends[0]), total, least))
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
    check = partial(check_bound, game, goal, arithmetic="intervals")
    held = accepted(check, LeaderCertificate(objective, tuple(knots), tuple(tree)))
    return None if held is None else held[0]
