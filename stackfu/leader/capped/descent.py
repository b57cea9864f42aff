"""Local search in all clients' amounts at once, for as many clients as there are: an augmented Lagrangian with L-BFGS-B.

Convex steps at one total (:mod:`.plans`) improve the mixture and the total in turn; here both move together. A step is a few
passes over the clients. With ``z = y / S`` and the clients that are paid, ``theta_k S > D_k``,

    dF/dy_k = (F_z_k - z . F_z) / S + F_S
    loss:   F_z = 2 W <mu_k, m> + noise_k v,                              F_S = -(noise . z + A') v^2
    spend:  F_z = (theta_k S - D_k)_+ - 2 <mu_k, sum_paid z_j (m - mu_j)>,  F_S = sum_paid z_j (theta_j + a v^2 / 2)

Retention is not part of it.

Where clients are very many, a sample of them (:meth:`.problem.PlanProblem.sampled`) is searched first. What it finds is a
mixture, a total and the prices of the limits, and by these everybody is asked: who brings data at a gain to the server brings
all of it (:func:`everybody`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from ...model import Array
from ..tolerances import ROUNDING, TINY
from .problem import PlanProblem

__all__ = ["Prices", "affordable", "descend", "everybody"]

#: Rounds of multipliers, steps in each, and the first price of a broken constraint, beside the objective.
MULTIPLIER_ROUNDS, STEPS_IN_A_ROUND, FIRST_PENALTY = 12, 100, 10.0
#: Constraints that are broken by more than this part of their limit after a round cost twice as much in the next.
MET = 1e-4
#: Rounds end when the objective of what is offered changes by less than this part.
SETTLED_OBJECTIVE = 1e-7
#: Participation is kept above this: the mixture of nobody's data is undefined.
SOMEBODY = 1e-12


@dataclass(frozen=True, eq=False)
class _Point:
    """A plan with what its gradients need."""

    z: Array
    total: float
    m: Array
    gaps: Array  # ||m - mu_k||^2
    loss: float
    spend: float


def _point(p: PlanProblem, x: Array) -> _Point:
    y = p.alpha * x
    total = float(y.sum())
    z = y / total
    m = z @ p.points
    gaps = np.maximum(p.diagonal - 2.0 * (p.points @ m) + float(m @ m), 0.0)
    loss = p.loss_square * float(m @ m) + p.loss_constant + (float(p.noise @ z) + p.loss_sampling) / total
    return _Point(z, total, m, gaps, loss, _spend(p, z, gaps, total))


def _spend(p: PlanProblem, z: Array, gaps: Array, total: float) -> float:
    return float(z @ np.maximum(p.theta * total - gaps - 0.5 * p.client_sampling / total, 0.0))


def _gradients(p: PlanProblem, at: _Point) -> tuple[Array, Array]:
    """Of loss and spend in the participation x."""
    of_loss, of_spend = _slopes(p, at, p)
    return p.alpha * of_loss, p.alpha * of_spend


def _slopes(p: PlanProblem, at: _Point, clients: PlanProblem) -> tuple[Array, Array]:
    """Of loss and spend in the amounts y of clients, who need not be those that the plan is made of."""
    v, z, m = 1.0 / at.total, at.z, at.m
    half = 0.5 * p.client_sampling * v
    price = p.theta * at.total - at.gaps - half
    paid = np.where(price > 0.0, z, 0.0)
    pull = float(paid.sum()) * m - paid @ p.points
    along = clients.points @ np.stack([m, pull], axis=1)
    if clients is not p:
        gaps = np.maximum(clients.diagonal - 2.0 * along[:, 0] + float(m @ m), 0.0)
        price = clients.theta * at.total - gaps - half
    # what the mixture as a whole has of each: z . F_z
    noise = float(p.noise @ z)
    mixed_loss = 2.0 * p.loss_square * float(m @ m) + v * noise
    mixed_spend = at.spend - 2.0 * float(m @ pull)
    of_loss = 2.0 * p.loss_square * along[:, 0] + v * clients.noise
    of_spend = np.maximum(price, 0.0) - 2.0 * along[:, 1]
    by_total = -(noise + p.loss_sampling) * v * v
    spend_by_total = float(paid @ p.theta) + half * v * float(paid.sum())
    return v * (of_loss - mixed_loss) + by_total, v * (of_spend - mixed_spend) + spend_by_total


@dataclass(frozen=True, eq=False)
class Prices:
    """Where a search ended: a participation, and what budget, floor and cap on the loss are worth there."""

    x: Array
    limits: Array
    unit: float  # of the objective that the limits are priced in


def descend(
    problem: PlanProblem,
    start: Array,
    offer: Callable[[Array], bool],
    late: Callable[[], bool],
    known: Prices | None = None,
) -> Prices | None:
    """Improve a participation, offering what is met on the way, until it is late or nothing improves.

    Prices of the limits that are known from an earlier search are where this one starts.
    """
    p = problem
    x = np.clip(start, SOMEBODY, 1.0)
    limits = _limits(p)
    if p.outside is not None or limits is None:
        return known
    if known is None:
        first = _point(p, x)
        unit = max(abs(p.loss_weight * first.loss + p.payment_weight * first.spend), TINY)
        known = Prices(x, np.zeros(3), unit)
    multipliers, unit = known.limits, known.unit
    penalty, before = FIRST_PENALTY, np.inf

    def lagrangian(x: Array) -> tuple[float, Array]:
        at = _point(p, np.maximum(x, SOMEBODY))
        of_loss, of_spend = _gradients(p, at)
        pushed = np.maximum(multipliers + penalty * _broken(at, limits), 0.0)
        value = (p.loss_weight * at.loss + p.payment_weight * at.spend) / unit
        value += float((pushed**2 - multipliers**2).sum()) / (2.0 * penalty)
        on_loss = p.loss_weight / unit + pushed[2] * limits[2]
        on_spend = p.payment_weight / unit + pushed[0] * limits[0]
        return value, on_loss * of_loss + on_spend * of_spend - pushed[1] * limits[1] * p.alpha

    def stop(_: Array) -> None:
        if late():
            raise StopIteration

    bounds = np.stack([np.zeros(p.count), np.ones(p.count)], axis=1)
    for _ in range(MULTIPLIER_ROUNDS):
        if late():
            break
        found = minimize(
            lagrangian,
            x,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": STEPS_IN_A_ROUND},
            callback=stop,
        )
        x = np.clip(np.asarray(found.x), SOMEBODY, 1.0)
        at = _point(p, x)
        broken = _broken(at, limits)
        multipliers = np.maximum(multipliers + penalty * broken, 0.0)
        if broken.max() > MET:
            penalty *= 2.0
        offer(x)
        offer(affordable(p, x, at) * x)
        value = p.loss_weight * at.loss + p.payment_weight * at.spend
        if broken.max() <= MET and abs(value - before) <= SETTLED_OBJECTIVE * abs(value) + ROUNDING:
            break
        before = value
    return Prices(x, multipliers, unit)


def everybody(problem: PlanProblem, sample: PlanProblem, found: Prices) -> Array:
    """What every client brings at the mixture, the total and the prices that a sample of them led to: all or nothing."""
    limits = _limits(problem)
    assert limits is not None
    of_loss, of_spend = _slopes(sample, _point(sample, found.x), problem)
    worth = np.array(limits) * found.limits
    slope = (sample.loss_weight / found.unit + worth[2]) * of_loss
    slope += (sample.payment_weight / found.unit + worth[0]) * of_spend - worth[1]
    return np.where(slope < 0.0, 1.0, SOMEBODY)


def _limits(p: PlanProblem) -> tuple[float, float, float] | None:
    """One over budget, floor and cap on the loss, 0 where there is none; None where one is too small to divide by."""
    found = []
    for limit, there_is in (
        (p.budget, np.isfinite(p.budget)),
        (p.floor, p.floor > 0.0),
        (p.loss_cap, np.isfinite(p.loss_cap)),
    ):
        if there_is and not limit > ROUNDING:
            return None
        found.append(1.0 / limit if there_is else 0.0)
    return found[0], found[1], found[2]


def _broken(at: _Point, limits: tuple[float, float, float]) -> Array:
    """By which part of itself each limit is exceeded; negative where it is kept."""
    there_is = np.array(limits) > 0.0
    by = np.array([at.spend * limits[0] - 1.0, 1.0 - at.total * limits[1], at.loss * limits[2] - 1.0])
    return np.where(there_is, by, -1.0)


def affordable(p: PlanProblem, x: Array, at: _Point | None = None) -> float:
    """The part of everybody's amount that the budget pays for; the mixture stays what it is."""
    at = _point(p, x) if at is None else at
    low, high = 0.0, 1.0
    for _ in range(40):
        share = 0.5 * (low + high)
        fits = _spend(p, at.z, at.gaps, share * at.total) <= p.budget
        low, high = (share, high) if fits else (low, share)
    return low
