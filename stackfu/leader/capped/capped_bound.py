r"""The bound for capped offers: any multipliers, on any region of plans. Plain floats; the formulas are in
``docs/theory/offers.md``.

A region is ``S in [low, high]``, ``l_k <= z_k <= h_k``, bounds of ``d_k^2`` that hold for every plan better than the target, and
cuts of ``D_k - theta_k S``. Whatever the multipliers, every plan of the region with an objective below ``lower`` satisfies

    0 > g + T ||m - c||^2

so ``g >= 0`` shows that there is none, and ``g < 0`` gives a ball. What is claimed is checked again, rigorously and by its
own code, in
:mod:`stackfu.judging.plan`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...model import Array
from .plan_problem import PlanProblem

__all__ = [
    "Multipliers",
    "Region",
    "at_best_level",
    "ball",
    "eagerness",
    "is_empty",
    "margin",
    "restricted",
    "root_region",
]

Mask = npt.NDArray[np.bool_]

#: Regions that are empty by less than this are not called empty: that is rounding.
EMPTY = 1e-9
#: T is called positive if it is more than this part of what it is summed up from: what is less, the checker may see as negative.
CANCELLED = 1e-12


@dataclass(frozen=True, eq=False)
class Region:
    """A set of plans."""

    low: float
    high: float
    least: Array  # l_k
    most: Array  # h_k
    near: Array  # lower bounds of d_k^2
    far: Array  # upper bounds of d_k^2
    cut_low: Array  # lower bounds of D_k - theta_k S
    cut_high: Array  # upper bounds of D_k - theta_k S


def root_region(problem: PlanProblem, low: float, high: float = 1.0) -> Region:
    """All plans with a total in [low, high]."""
    n = problem.count
    return Region(
        low,
        high,
        np.zeros(n),
        np.ones(n),
        np.zeros(n),
        np.array(problem.reach),
        np.full(n, -np.inf),
        np.full(n, np.inf),
    )


def restricted(region: Region, clients: npt.NDArray[np.int64]) -> Region:
    """Return the part of a region that concerns some of the clients."""
    return Region(
        region.low,
        region.high,
        region.least[clients],
        region.most[clients],
        region.near[clients],
        region.far[clients],
        region.cut_low[clients],
        region.cut_high[clients],
    )


def eagerness(problem: PlanProblem, region: Region) -> tuple[Array, Array]:
    """Bounds of ``D_k - theta_k S`` on the region."""
    a = 0.5 * problem.client_sampling
    low = np.maximum(region.near + a / region.high - problem.theta * region.high, region.cut_low)
    high = np.minimum(region.far + a / region.low - problem.theta * region.low, region.cut_high)
    return low, high


def is_empty(problem: PlanProblem, region: Region) -> bool:
    """Return True if the region obviously holds no plan."""
    low, high = eagerness(problem, region)
    most = np.minimum(region.most, problem.alpha / region.low)
    return bool(
        region.low > region.high
        or region.least.sum() > 1.0 + EMPTY
        or most.sum() < 1.0 - EMPTY
        or (region.least > most + EMPTY).any()
        or (low > high + EMPTY).any()
        or (region.near > region.far + EMPTY).any()
    )


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Multipliers and a mixture with the centre as embedding; they need not be good."""

    total: float  # S they were found at
    objective: float
    budget: float
    loss_cap: float
    level: float
    direct: float  # nu_2: the part of the spend's price that counts the spend client by client
    rows: Array  # P, any sign
    keep: Array | None  # X; None: zero
    mixture: Array | None  # weights with the centre as embedding
    centre: Array | None = None  # the centre itself, in the coordinates of the points, where it is no mixture


@dataclass(frozen=True, eq=False)
class _Products:
    ell: float
    nu: float  # nu_1: price of the spend, counted by the variance
    direct: float  # nu_2: price of the spend, counted client by client
    keep: Array
    weight: float
    centre: Array
    slope: Array


def _products(p: PlanProblem, y: Multipliers) -> _Products:
    ell = y.objective * p.loss_weight + y.loss_cap
    price = y.objective * p.payment_weight + y.budget
    direct = min(max(y.direct, 0.0), price)
    nu = price - direct
    keep = np.zeros(p.count)
    if y.keep is not None and p.outside is not None:
        keep = np.where(np.isfinite(p.outside), np.clip(y.keep, 0.0, price), 0.0)
    pulls = y.rows + 0.5 * keep
    weight = ell * p.loss_square + nu + float(pulls.sum())
    centre = y.centre if y.mixture is None else y.mixture @ p.points
    assert centre is not None
    slope = p.points @ (weight * centre - pulls @ p.points)
    return _Products(ell, nu, direct, keep, weight, centre, slope)


def _direct(u: _Products, told: Mask) -> Array | float:
    """Return the coefficient of reluctance: nu_2, minus X for clients with stakes determined by f."""
    return u.direct - np.where(told, u.keep, 0.0) if told.any() else u.direct


def _eager_part(u: _Products, direct: Array | float, rows: Array, z: Array, places: Array) -> Array:
    """``z (nu_1 f_+ + direct (-f)_+) - P f`` at the places f where it can be least."""
    return np.asarray(z * np.where(places > 0.0, u.nu * places, -direct * places) - rows * places)


def _stakes(p: PlanProblem, region: Region, total: float, told: Mask) -> Array:
    """What a share is counted with in what keeps its client: ``theta S``, of which f takes the rest, or the least of
    ``min(D_k, theta S)``."""
    least = region.near + 0.5 * p.client_sampling / region.high
    return np.where(told, p.theta * total, np.minimum(least, p.theta * total))


def _places(problem: PlanProblem, region: Region) -> Array:
    """The ends of every eagerness on a region, and 0 where it lies between them."""
    low, high = eagerness(problem, region)
    high = np.maximum(low, high)
    return np.stack([low, np.clip(0.0, low, high), high])


def margin(problem: PlanProblem, region: Region, y: Multipliers, lower: float) -> tuple[float, float, Array]:
    """The least ``g`` on the region, ``T``, and the centre; ``-inf`` where T is negative."""
    p = problem
    u = _products(p, y)
    if not u.weight >= CANCELLED * float(np.abs(y.rows).sum()):
        return -np.inf, u.weight, u.centre
    places = _places(p, region)
    a0, b0 = region.low, region.high
    capped = p.alpha / b0 < region.most  # the cap alpha_k / S is the tighter one somewhere
    told = np.zeros(p.count, dtype=bool)
    ends = [_corners(p, region, y, u, places, s, capped, told) for s in (a0, b0)]
    if u.keep.any():  # stakes can be counted in two ways: for every client the one that proves more
        other = [_corners(p, region, y, u, places, s, capped, ~told) for s in (a0, b0)]
        told = sum(at.min(axis=(0, 1)) for at in other) > sum(at.min(axis=(0, 1)) for at in ends)
        ends = [np.where(told, new, old) for new, old in zip(other, ends, strict=True)]
    leasts = [at.min(axis=(0, 1)) for at in ends]
    spare = np.minimum(*(at - least for at, least in zip(ends, leasts, strict=True)))
    values = [
        _constant(p, y, u, 1.0 / s, s, lower) + float(least.sum())
        for s, least in zip((a0, b0), leasts, strict=True)
    ]
    return min(values) - _deviation(p, region, y, u, places, capped, spare, told), u.weight, u.centre


def _corners(
    p: PlanProblem,
    region: Region,
    y: Multipliers,
    u: _Products,
    places: Array,
    total: float,
    capped: Mask,
    told: Mask,
) -> Array:
    """Return every client's terms at a total: at either end of its share, at three values of its eagerness."""
    v = 1.0 / total
    psi = y.level - 2.0 * u.slope - u.nu * (p.theta * total - p.diagonal) - u.ell * v * p.noise
    if u.keep.any():
        psi = psi - u.keep * _stakes(p, region, total, told)
    shares = (region.least, np.where(capped, p.alpha * v, region.most))
    direct = _direct(u, told)
    return np.stack([_eager_part(u, direct, y.rows, z, places) - psi * z for z in shares])


def at_best_level(problem: PlanProblem, region: Region, y: Multipliers) -> Multipliers:
    """The same multipliers with the level t that makes the bound at ``y.total`` largest.

    ``t + sum_k min(at l_k, at h_k)`` is concave and piecewise linear in t: largest where the shares that are chosen add up to 1.
    """
    p, s = problem, y.total
    u = _products(p, y)
    places = _places(p, region)
    told = np.zeros(p.count, dtype=bool)
    if u.keep.any():
        here, nowhere = replace(region, low=s, high=s), np.zeros(p.count, dtype=bool)
        held, free = (
            _corners(p, here, y, u, places, s, nowhere, way).min(axis=(0, 1)) for way in (told, ~told)
        )
        told = free > held
    base = -2.0 * u.slope - u.nu * (p.theta * s - p.diagonal) - (u.ell / s) * p.noise
    base = base - u.keep * _stakes(p, region, s, told)
    most = np.maximum(np.minimum(region.most, p.alpha / s), region.least)
    width = most - region.least
    free = width > 0.0
    if not free.any():
        return y
    direct = _direct(u, told)
    rise = _eager_part(u, direct, y.rows, most, places).min(axis=0) - base * most
    rise = rise - (_eager_part(u, direct, y.rows, region.least, places).min(axis=0) - base * region.least)
    breaks = rise[free] / width[free]
    order = np.argsort(breaks, kind="stable")
    filled = region.least.sum() + np.cumsum(width[free][order])
    place = min(int(np.searchsorted(filled, 1.0)), len(order) - 1)
    return replace(y, level=float(breaks[order[place]]))


def _constant(p: PlanProblem, y: Multipliers, u: _Products, v: float, s: float, lower: float) -> float:
    half = 0.5 * p.client_sampling * v
    out = u.ell * (p.loss_constant + v * p.loss_sampling) - u.nu * half
    out += float(y.rows @ (p.diagonal + half - p.theta * s))
    if p.outside is not None and u.keep.any():
        out += float(u.keep @ (0.5 * p.diagonal + half + np.where(np.isfinite(p.outside), p.outside, 0.0)))
    out -= y.objective * lower
    if y.budget:
        out -= y.budget * p.budget
    if y.loss_cap:
        out -= y.loss_cap * p.loss_cap
    return float(out + y.level - u.weight * float(u.centre @ u.centre))


def _deviation(
    p: PlanProblem,
    region: Region,
    y: Multipliers,
    u: _Products,
    places: Array,
    capped: Mask,
    spare: Array,
    told: Mask,
) -> float:
    """Return the largest distance of ``g`` below its chord on [low, high]; second order in the width.

    ``spare`` is how far the corners of every client lie above the least one at both ends: so far they may fall for free.
    """
    a0, b0 = region.low, region.high
    width = b0 - a0
    if width <= 0.0:
        return 0.0
    of_v = (a0**-0.5 - b0**-0.5) ** 2  # of 1 / S
    of_v2 = 0.75 * width**2 / a0**4  # of 1 / S^2, at most
    at_least, at_most = u.ell * p.noise * region.least * of_v, u.ell * p.noise * region.most * of_v
    # z = alpha v: -psi z has the terms -alpha v (level - 2 slope + nu_1 diag) and ell alpha noise v^2; the spend per
    # share is eager; the part of retention is constant, keep alpha theta, or keep alpha v min(dmin, theta S), which is
    # at most keep alpha v dmin beyond what is concave
    direct = _direct(u, told)
    eager = u.nu * np.maximum(places, 0.0) + direct * np.maximum(-places, 0.0)
    per_v = p.alpha * (2.0 * u.slope - y.level - u.nu * p.diagonal + eager)
    if u.keep.any():
        held = np.where(told, 0.0, region.near + 0.5 * p.client_sampling / b0)
        per_v = per_v + p.alpha * u.keep * held
    moving = np.maximum(per_v, 0.0) * of_v + u.ell * p.alpha * p.noise * of_v2
    at_most = np.where(capped, moving, at_most)
    clients = np.maximum(np.maximum(at_least - spare[0], at_most - spare[1]), 0.0).max(axis=0)
    common = u.ell * p.loss_sampling + 0.5 * p.client_sampling * (
        float(y.rows.sum()) + float(u.keep.sum()) - u.nu
    )
    return float(float(clients.sum()) + max(common, 0.0) * of_v)


def ball(problem: PlanProblem, region: Region, least: float, weight: float, centre: Array) -> Region:
    """The region with the bounds of ``d_k^2`` that ``T ||m - c||^2 < -g`` gives."""
    if not weight > 0.0 or not np.isfinite(least):
        return region
    radius = np.sqrt(max(-least, 0.0) / weight)
    gaps = problem.points - centre
    to_centre = np.sqrt(np.einsum("ij,ij->i", gaps, gaps))
    return replace(
        region,
        near=np.maximum(region.near, np.maximum(to_centre - radius, 0.0) ** 2),
        far=np.minimum(region.far, (to_centre + radius) ** 2),
    )
