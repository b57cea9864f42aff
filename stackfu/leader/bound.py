r"""One lower bound for linear payments and capped offers, on any part of the search space. Plain floats.

With ``v = 1/S``, shares z, ``m = sum_k z_k mu_k``, ``D_k = ||m - mu_k||^2 + a v / 2`` and the *eagerness* ``f_k = D_k - theta_k S``

    minimise    w_loss loss + w_pay spend
    loss        = W ||m||^2 - 2 pull.z + constant + v noise.z + v A
    spend       = sum_k z_k (-f_k)_+                                   [+ what keeps clients who could leave]
    subject to  spend <= B,  loss <= cap,  S >= floor,  sum z = 1,  0 <= z_k <= alpha_k v,

and, for linear payments, a client with ``f_k > 0`` takes part fully. A :class:`Region` holds an interval of S and bounds of every
``z_k``, ``d_k^2`` and ``f_k``. Any :class:`Multipliers` at two totals bound the objective on it: :func:`bound`. What they leave
open is a ball, which narrows the region: :func:`narrowed`. The inequality is derived in ``docs/theory/leader.md``, "One bound for
both kinds of offers"; claims are checked by :mod:`stackfu.judging`, which shares no code with this module.

>>> from stackfu.leader.certified.points import ArrayPoints
>>> points = ArrayPoints(np.array([[0.0], [1.0]]))
>>> problem = Problem(np.array([0.5, 0.5]), np.array([0.4, 0.4]), points, budget=0.01, constant=0.1)
>>> y = Multipliers.of(problem, 0.5, 1.0, 0.0, 0.0, 0.0, np.zeros(1), np.zeros(1))
>>> found = bound(problem, Region.whole(problem, 0.4, 0.6), y, y, 0.0)
>>> round(found.margin, 3)                                             # the loss is at least its constant
0.1
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _bound_kernels as kernels
from .certified.points import Points
from .tolerances import ROUNDING

__all__ = ["Bound", "Multipliers", "Problem", "Region", "at_best_level", "bound", "client_terms", "narrowed"]

Array = npt.NDArray[np.float64]
Axis = Literal["total", "share", "eager"]


def _one(value: float) -> Array:
    return np.full(1, value)


@dataclass(frozen=True, eq=False)
class Problem:
    """The leader's problem in normalised units; arrays have an entry per client, or a single one for all.

    Parameters
    ----------
    alpha, theta
        Shares of the data, and costs per share in units of squared distance.
    points
        The clients' embeddings, from any origin.
    budget, loss_cap, floor
        Limits of spend, loss and total; infinite, infinite and 0 where there are none.
    square, constant, pull, noise, loss_sampling
        The loss: W, its constant, ``W <mu_k, ideal point>``, what few samples of a client cost, and A.
    client_sampling
        a: clients see ``d_k^2 + a / (2 S)``.
    loss_weight, payment_weight
        Weights of loss and spend in the objective.
    capped
        Whether a client that takes part unpaid may bring less than all of its data: capped offers.
    outside
        Outside utility of each client, ``-inf`` for clients that cannot leave; None: no client can.
    """

    alpha: Array
    theta: Array
    points: Points
    budget: float = np.inf
    loss_cap: float = np.inf
    floor: float = 0.0
    square: float = 1.0
    constant: float = 0.0
    pull: Array = field(default_factory=lambda: _one(0.0))
    noise: Array = field(default_factory=lambda: _one(0.0))
    loss_sampling: float = 0.0
    client_sampling: float = 0.0
    loss_weight: float = 1.0
    payment_weight: float = 0.0
    capped: bool = False
    outside: Array | None = None

    @property
    def count(self) -> int:
        """Return the number of clients."""
        return len(self.alpha)

    @cached_property
    def reach(self) -> Array:
        """Return upper bounds of ``d_k^2`` over all mixtures."""
        roots = np.sqrt(self.points.diagonal)
        return np.asarray((roots + roots.max()) ** 2)

    @cached_property
    def stays(self) -> Array:
        """Return what clients have outside, 0 for clients who cannot leave."""
        return _one(0.0) if self.outside is None else np.where(np.isfinite(self.outside), self.outside, 0.0)

    def loss_price(self, y: Multipliers) -> float:
        """Return ell, the weight of the loss under some multipliers."""
        return y.objective * self.loss_weight + y.loss_cap

    def spend_price(self, y: Multipliers) -> float:
        """Return nu, the weight of the spend under some multipliers."""
        return y.objective * self.payment_weight + y.budget


@dataclass(frozen=True, eq=False)
class Region:
    """A part of the search space; arrays have an entry per client, or a single one for all clients.

    For linear payments a client with ``cut_low >= 0`` is a volunteer, which takes part fully; one with ``cut_high <= 0`` is paid.
    """

    low: float
    high: float
    least: Array  # bounds of z_k
    most: Array
    near: Array  # bounds of d_k^2, for points that are better than the target
    far: Array
    cut_low: Array  # bounds of the eagerness f_k; the lower one holds strictly
    cut_high: Array

    @classmethod
    def whole(cls, problem: Problem, low: float, high: float = 1.0) -> Region:
        """Return everything with a total in [low, high]."""
        return cls(
            low, high, _one(0.0), _one(1.0), _one(0.0), problem.reach, _one(-np.inf), _one(np.inf)
        )  # fmt: skip

    def between(self, low: float, high: float) -> Region:
        """Return the part with a total in [low, high]."""
        return replace(self, low=low, high=high)

    def halves(self, axis: Axis, client: int, at: float, count: int) -> tuple[Region, Region]:
        """Return the parts below and above a cut of the total, of a client's share, or of its eagerness."""
        if axis == "total":
            return replace(self, high=at), replace(self, low=at)
        if axis == "share":
            below, above = _lowered(self.most, client, at, count), -_lowered(-self.least, client, -at, count)
            return replace(self, most=below), replace(self, least=above)
        below, above = (
            _lowered(self.cut_high, client, at, count),
            -_lowered(-self.cut_low, client, -at, count),
        )
        return replace(self, cut_high=below), replace(self, cut_low=above)


def _lowered(values: Array, client: int, at: float, count: int) -> Array:
    out = np.array(np.broadcast_to(values, count))
    out[client] = min(out[client], at)
    return out


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Multipliers at one total with the products that the bound needs, all of them linear in the multipliers."""

    total: float
    objective: float  # omega
    budget: float  # beta
    loss_cap: float  # gamma
    level: float  # t
    direct: float  # nu_2: the part of the spend's price that counts the spend client by client
    rows: Array  # P, of any sign; a single zero if all are 0
    keep: Array  # X, of clients who could leave; a single zero if all are 0
    weight: float  # T
    pull: Array  # T c, a point
    along: Array  # <mu_k, T c>
    slope: Array  # <mu_k, T c - M>
    square: float  # ||T c||^2
    mixture: Array | None = None  # weights whose embedding is c, if it was given as a mixture

    @classmethod
    def of(
        cls,
        problem: Problem,
        total: float,
        objective: float,
        budget: float,
        loss_cap: float,
        level: float,
        rows: Array,
        centre: Array,
        direct: float = 0.0,
        keep: Array | None = None,
        mixture: Array | None = None,
    ) -> Multipliers:
        """Return multipliers with their products: two passes over the points, one if there are no rows.

        ``centre`` is a point as ``problem.points.combine`` makes it. Prices beyond what is allowed are clipped.
        """
        ell = objective * problem.loss_weight + loss_cap
        nu = objective * problem.payment_weight + budget
        direct = min(max(direct, 0.0), nu)
        kept, none = _one(0.0), True
        if keep is not None and problem.outside is not None and np.any(keep):
            kept, none = np.where(np.isfinite(problem.outside), np.clip(keep, 0.0, nu), 0.0), False
        charged = bool(np.any(rows))
        rows = np.asarray(rows, dtype=np.float64) if charged else _one(0.0)
        pulls = rows + 0.5 * kept
        weight = ell * problem.square + nu - direct + (float(pulls.sum()) if charged or not none else 0.0)
        points = problem.points
        pull = weight * centre
        along = points.inner(pull)
        slope = along if none and not charged else along - points.inner(points.combine(pulls))
        square = points.dot(pull, pull, None if points.has_coordinates else along)
        return cls(
            total, objective, budget, loss_cap, level, direct, rows, kept, weight, pull, along, slope, square, mixture
        )  # fmt: skip

    @property
    def centre(self) -> Array:
        """Return c."""
        return self.pull / self.weight


@dataclass(frozen=True, eq=False)
class Bound:
    """Result of multipliers on a region: no point of it has an objective below ``lower`` if ``margin >= 0``.

    With a multiplier ``objective = 1`` the region's own bound is ``lower + margin``. Where the region is empty the margin is
    ``inf``, and ``-inf`` where nothing is proved.
    """

    margin: float
    ends: tuple[float, float] = (-np.inf, -np.inf)  # g at both ends
    bend: float = 0.0  # g is at least its chord and s (1 - s) times this
    segment: Any = None  # where the centres lie


class _Segment(NamedTuple):
    """The centres of a region: shares of two knots in T and in c, at both ends."""

    first: Multipliers
    second: Multipliers
    weights: tuple[float, float]
    parts: tuple[float, float]
    between: float  # squared distance of the knots' centres

    def squares(self) -> tuple[float, float]:
        """Return ``||c||^2`` at both ends."""
        one, two = (y.square / y.weight**2 for y in (self.first, self.second))
        first, second = ((1.0 - p) * one + p * two - p * (1.0 - p) * self.between for p in self.parts)
        return first, second


def bound(problem: Problem, region: Region, first: Multipliers, second: Multipliers, lower: float) -> Bound:
    """Return what the multipliers on the line through two knots prove on a region: one pass over the clients.

    Multipliers are affine in S between the ends of the region, where they are those of the knots' line, held constant beyond it.
    A region from total 0 needs twice the same knot.
    """
    if region.low <= 0.0:
        return _from_zero(problem, region, first, lower) if first is second else Bound(-np.inf)
    p, pair, ends = problem, (first, second), (region.low, region.high)
    span = second.total - first.total
    shares = [
        min(max((s - first.total) / span, 0.0), 1.0) if span and first is not second else 0.0 for s in ends
    ]
    parts = (1.0 - shares[0], shares[0], 1.0 - shares[1], shares[1])

    def mixed(values: tuple[float, float]) -> tuple[float, float]:
        low, high = (values[0] + share * (values[1] - values[0]) for share in shares)
        return low, high

    weights = mixed((first.weight, second.weight))
    if not min(first.weight, second.weight) > 0.0:
        return Bound(-np.inf)
    omega, beta, gamma, level, nu2 = (
        mixed((getattr(first, name), getattr(second, name)))
        for name in ("objective", "budget", "loss_cap", "level", "direct")
    )
    ell = mixed((p.loss_price(first), p.loss_price(second)))
    nu = mixed((p.spend_price(first), p.spend_price(second)))
    nu1 = nu[0] - nu2[0], nu[1] - nu2[1]
    between = 0.0 if first is second else _apart(p, first, second)
    segment = _Segment(first, second, weights, _parts(pair, shares), between)
    pulled = [
        (1.0 - share) * first.square / first.weight + share * second.square / second.weight
        - (1.0 - part) * part * weight * between
        for share, part, weight in zip(shares, segment.parts, weights, strict=True)
    ]  # fmt: skip
    a, b = ends
    h, half = b - a, 0.5 * p.client_sampling
    best = None
    for apart in (True, False) if float(p.alpha.max()) > b else (True,):
        sums, sign = kernels.client_sums(
            p.capped, apart, p.alpha, p.theta, p.points.diagonal, p.noise, p.pull, p.stays,
            region.least, region.most, region.near, region.far, region.cut_low, region.cut_high,
            first.rows, second.rows, first.keep, second.keep, first.slope, second.slope,
            float(a), float(b), half, parts, level, nu1, nu2, ell, ROUNDING,
        )  # fmt: skip
        if sign <= 0:
            return Bound(np.inf if sign == 0 else -np.inf)
        scattered = [
            ell[i] * p.loss_sampling + half * (sums[kernels.ROWS + i] + sums[kernels.KEEPS + i] - nu1[i])
            for i in range(2)
        ]
        g = []
        for i, s in enumerate(ends):
            value = ell[i] * p.constant - omega[i] * lower + level[i] - pulled[i] + scattered[i] / s
            value += sums[kernels.FAR_FROM_COST + i] + sums[kernels.STAYS + i] + sums[kernels.LEAST + i]
            value -= beta[i] * p.budget if beta[i] else 0.0
            value -= gamma[i] * p.loss_cap if gamma[i] else 0.0
            g.append(float(value))
        late = h * (b * scattered[0] - a * scattered[1]) / (a * b)
        bend = min(sums[kernels.BEND] - late / a, sums[kernels.BEND + 1] - late / b)
        move = segment.parts[1] - segment.parts[0]
        bend += h * sums[kernels.DRIFT] + min(weights) * move * move * between
        margin = parabola_minimum(g[0], g[1], bend)
        found = Bound(-np.inf if np.isnan(margin) else margin, (g[0], g[1]), float(bend), segment)
        if best is None or found.margin > best.margin:
            best = found
    assert best is not None
    return best


def _parts(pair: tuple[Multipliers, Multipliers], shares: list[float]) -> tuple[float, float]:
    """Return the second knot's part of the centre at both ends."""
    out = [
        share * pair[1].weight / ((1.0 - share) * pair[0].weight + share * pair[1].weight) for share in shares
    ]
    return out[0], out[1]


def _apart(p: Problem, first: Multipliers, second: Multipliers) -> float:
    """Return ``||c - c'||^2`` of two knots."""
    difference = first.pull / first.weight - second.pull / second.weight
    along = None
    if not p.points.has_coordinates:
        along = first.along / first.weight - second.along / second.weight
    return max(p.points.dot(difference, difference, along), 0.0)


def _from_zero(p: Problem, region: Region, y: Multipliers, lower: float) -> Bound:
    """Return the bound on ``(0, high]`` with constant multipliers and ``z_k <= 1`` for the caps."""
    b, half = region.high, 0.5 * p.client_sampling
    ell, nu = p.loss_price(y), p.spend_price(y)
    nu1 = nu - y.direct
    rows, keep, diagonal = y.rows, y.keep, p.points.diagonal
    every = keep.sum() if p.capped else rows.sum()
    scattered = ell * p.loss_sampling + half * (every - nu1)
    if not y.weight > 0.0 or (rows < 0.0).any() or scattered < 0.0 or (keep > y.direct).any():
        return Bound(-np.inf)
    psi = y.level - 2.0 * y.slope + 2.0 * ell * p.pull + nu1 * diagonal - (ell / b) * p.noise
    terms = rows * (diagonal - p.theta * b) + keep * (0.5 * diagonal + p.stays)
    if p.capped:  # -P f is least where f is largest, with or without a share; its part P a v / 2 is met by the same term of g
        terms = terms - np.where(rows > 0.0, rows * region.far, 0.0)
    else:  # a free rider is full: f_k = f_k z_k S / alpha_k
        excess = np.where(region.cut_high <= 0.0, 0.0, np.maximum(rows - p.alpha * nu1 / b, 0.0))
        psi = psi + np.where(excess > 0.0, excess * (region.far * b + half) / p.alpha, 0.0)
    value = ell * p.constant - y.objective * lower + y.level - y.square / y.weight + scattered / b
    value -= y.budget * p.budget if y.budget else 0.0
    value -= y.loss_cap * p.loss_cap if y.loss_cap else 0.0
    margin = float(value + terms.sum() - max(float(psi.max()), 0.0))
    segment = _Segment(y, y, (y.weight, y.weight), (0.0, 0.0), 0.0)
    return Bound(-np.inf if np.isnan(margin) else margin, (margin, margin), 0.0, segment)


def parabola_minimum(left: float, right: float, bend: float) -> float:
    """Return the least value of ``(1 - x) left + x right + x (1 - x) bend`` on [0, 1]."""
    least = min(left, right)
    if bend >= 0.0 or abs(right - left) >= -bend:
        return least
    return least - (bend + abs(right - left)) ** 2 / (-4.0 * bend)


def narrowed(problem: Problem, region: Region, found: Bound) -> Region:
    """Return the region with the bounds of ``d_k^2`` that ``T ||m - c(S)||^2 < -g`` gives; one pass over the clients."""
    if not np.isfinite(found.margin) or found.segment is None:
        return region
    segment: _Segment = found.segment
    first, second = segment.first, segment.second
    radius = np.sqrt(max(-found.margin, 0.0) / min(segment.weights))
    one, two = 1.0 / first.weight, 1.0 / second.weight
    low, high = segment.parts
    near, far = kernels.distances_in_ball(
        problem.points.diagonal,
        first.along,
        second.along,
        ((1.0 - low) * one, low * two, (1.0 - high) * one, high * two),
        segment.squares(),
        abs(high - low) * np.sqrt(segment.between),
        float(radius),
        region.near,
        region.far,
    )
    return replace(region, near=near, far=far)


def client_terms(problem: Problem, region: Region, y: Multipliers) -> tuple[Array, Array]:
    """Return the least term of every client at ``y.total`` with either end of its share, and the ends; (2, N) each.

    Terms are without the level: add ``-y.level * share``. What a point ``(z, f)`` of the relaxation has more than its least
    term tells where the bound errs: ``z (nu_1 f_+ + (nu_2 - X) (-f)_+) - P f - psi z``.
    """
    p = problem
    terms, shares = kernels.client_terms(
        p.capped, p.alpha, p.theta, p.points.diagonal, p.noise, p.pull,
        region.least, region.most, region.near, region.far, region.cut_low, region.cut_high,
        y.rows, y.keep, y.slope, float(y.total), 0.5 * p.client_sampling,
        p.spend_price(y) - y.direct, y.direct, p.loss_price(y), ROUNDING,
    )  # fmt: skip
    return np.asarray(terms), np.asarray(shares)


def at_best_level(problem: Problem, region: Region, y: Multipliers) -> Multipliers:
    """Return the multipliers with the level t that makes the bound at ``y.total`` largest.

    ``t + sum_k min(term at l_k - t l_k, term at h_k - t h_k)`` is concave in t, and largest where the chosen shares add up to 1.
    """
    (at_least, at_most), (least, most) = client_terms(problem, region, y)
    fixed = ~np.isfinite(at_least)  # clients that must be full
    width = np.where(fixed, 0.0, most - least)
    free = np.flatnonzero(width > 0.0)
    if not len(free):
        return y
    breaks = (at_most[free] - at_least[free]) / width[free]
    order = np.argsort(breaks, kind="stable")
    filled = float(np.where(fixed, most, least).sum()) + np.cumsum(width[free][order])
    last = min(int(np.searchsorted(filled, 1.0 - ROUNDING)), len(order) - 1)
    return replace(y, level=float(breaks[order[last]]))
