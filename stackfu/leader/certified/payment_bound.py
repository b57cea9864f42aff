r"""Lower bounds: any multipliers at the ends of an interval of S give one on that interval. Plain floats.

With ``v = 1/S``, ``d_k^2 = ||m - mu_k||^2``, ``D_k = d_k^2 + a v / 2``, ``theta_k = c_k / (2 lam alpha_k)`` the leader solves

    minimise    F = w_loss loss + w_pay spend
    loss        = W ||m||^2 - 2 pull.z + constant + v noise.z + v A        from any origin; pull = 0 if that is the ideal point
    spend / U   = S theta.z - diag.z + ||m||^2 - a v / 2 + v sum_k alpha_k e_k,      U = 2 lam,   e_k = (D_k - theta_k S)_+
    subject to  spend <= B,  loss <= cap,  S >= floor,  sum z = 1,  0 <= z_k <= alpha_k v,
                e_k = 0 (paid)  or  z_k = alpha_k v (volunteer).

At one S, with multipliers omega (objective), beta, gamma, t, P, a centre c, any upper bounds ``R_k >= max(D_k, theta_k S)`` and

    ell = omega w_loss + gamma,   nu = U (omega w_pay + beta),   T = ell W + nu + sum P,   M = sum_k P_k mu_k,
    pi_k = (P_k - alpha_k nu v)_+ (0 for paid clients),   N = ell A + a (sum P - nu) / 2,
    psi_k = t - 2 <mu_k, T c - M> + 2 ell pull_k - nu (theta_k S - diag_k) - ell v noise_k + pi_k S (R_k - theta_k S) / alpha_k,
    Y = sum_{volunteers} alpha_k psi_k + sum_{others} alpha_k (psi_k)_+

every feasible point with ``F < L`` satisfies ``0 > g + T ||m - c||^2``, where

    g = ell constant - omega L - beta B - gamma cap + t - T ||c||^2 + P.(diag - theta S) + v (N - Y).

So ``g >= 0`` shows that there is none. On ``[a, b]`` with ``h = b - a`` and ``S = a + sigma h`` take omega, beta, gamma, t, P and
``T c`` affine in S. Then

    g(S) >= (1 - sigma) g_a + sigma g_b + sigma (1 - sigma) Delta

with a curvature Delta of order h^2 in closed form (see ``docs/theory/leader.md``), so the bound on a box is the smaller end, or the
vertex of a parabola. Clients who own more than b have ``z_k <= 1`` rather than the cap, and all of them together no more than 1: in
place of ``v alpha_k (psi_k)_+`` the largest of their ``(psi_k)_+`` counts, once. On ``(0, b]`` the caps ``z_k <= alpha_k v`` are
replaced by ``z_k <= 1`` and the multipliers are constant.

Solvers use this module to search; what they claim is checked by :mod:`stackfu.judging` with its own, rigorous evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...results.certificate import Knot
from ..tolerances import ROUNDING
from . import _payment_bound_kernels as kernels
from .points import ArrayPoints, Points

__all__ = [
    "BoundProblem",
    "Classes",
    "Multipliers",
    "Prices",
    "ball",
    "box_margin",
    "classify",
    "interpolate",
]

Array = npt.NDArray[np.float64]

#: From this many clients on passes over them are compiled.
MANY = 20_000
Mask = npt.NDArray[np.bool_]


def _nothing() -> Array:
    return np.zeros(0)


@dataclass(frozen=True, eq=False)
class BoundProblem:
    """Data of the bound, in any consistent units and from any origin."""

    alpha: Array
    theta: Array  # c_k / (2 lam alpha_k), in units of squared distance
    points: Any  # Points: the clients seen from the ideal point; an array (N, r) is rows of coordinates
    loss_square: float  # W: weight of ||m||^2 in the loss
    loss_constant: float
    noise: Array  # coefficient of z_k / S in the loss, not negative
    loss_weight: float  # of the loss in the objective
    payment_weight: float  # of the spend in the objective
    payment_unit: float  # U = 2 lam: spend per squared distance
    budget: float  # may be inf
    loss_cap: float  # may be inf
    floor: float = 0.0
    loss_sampling: float = 0.0  # A: coefficient of 1 / S in the loss
    client_sampling: float = 0.0  # a: clients see d_k^2 + a / S
    #: Upper bounds of ``d_k^2``; by default from the two largest norms.
    reach: Array = field(default_factory=_nothing)
    #: ``W <mu_k, ideal point>``; by default 0: the ideal point is the origin.
    loss_pull: Array = field(default_factory=_nothing)
    #: True if ``z_k <= 1`` counts for clients that own more than a box's largest total; a bound checked without it
    #: must not rely on it.
    tells_large_clients: bool = True

    def __post_init__(self) -> None:
        if not len(self.loss_pull):
            object.__setattr__(self, "loss_pull", np.zeros(len(self.alpha)))
        if not len(self.reach):
            roots = np.sqrt(self.diagonal)
            object.__setattr__(self, "reach", (roots + roots.max()) ** 2)

    @cached_property
    def place(self) -> Points:
        """The points, whatever they were given as."""
        return self.points if isinstance(self.points, Points) else ArrayPoints(self.points)

    @cached_property
    def diagonal(self) -> Array:
        """``||mu_k||^2``."""
        return self.place.diagonal

    def multipliers(self, knot: Knot) -> Multipliers:
        """A knot in the coordinates of ``points``; its centre must be a mixture of clients or already in these coordinates."""
        rows = np.zeros(len(self.alpha))
        rows[knot.clients] = knot.rows
        if knot.support is None:
            centre = np.asarray(knot.centre, dtype=np.float64)
        else:
            weights = np.zeros(len(self.alpha))
            weights[knot.support] = knot.centre
            centre = self.place.combine(weights)
        return Multipliers.of(
            self, knot.total, knot.objective, knot.budget, knot.loss_cap, knot.level, rows, centre
        )


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Multipliers at one S with the products that the bound needs; everything here is linear in the multipliers."""

    total: float
    objective: float
    budget: float
    loss_cap: float
    level: float
    rows: Array  # P
    weight: float  # T
    pull: Array  # w = T c, a point
    along: Array  # <mu_k, T c>, (N,)
    slope: Array  # <mu_k, T c - M>, (N,)

    @classmethod
    def of(
        cls,
        problem: BoundProblem,
        total: float,
        objective: float,
        budget: float,
        loss_cap: float,
        level: float,
        rows: Array,
        centre: Array,
    ) -> Multipliers:
        """Multipliers with centre c in the coordinates of ``problem.points``; O(N r)."""
        ell = objective * problem.loss_weight + loss_cap
        nu = problem.payment_unit * (objective * problem.payment_weight + budget)
        weight = ell * problem.loss_square + nu + float(rows.sum())
        pull = weight * centre
        along = problem.place.inner(pull)
        slope = along - problem.place.inner(problem.place.combine(rows)) if rows.any() else along
        return cls(total, objective, budget, loss_cap, level, rows, weight, pull, along, slope)

    @property
    def centre(self) -> Array:
        """c."""
        return self.pull / self.weight

    @cached_property
    def pull_square(self) -> float:
        """The sum of the squared coordinates of ``T c``, computed once: a knot serves many boxes."""
        return float(self.pull @ self.pull)

    @property
    def knots(self) -> tuple[Multipliers, Multipliers]:
        """The multipliers that these lie between: themselves."""
        return self, self

    share = 0.0

    def at_best_level(self, problem: BoundProblem, classes: Classes) -> Multipliers:
        """Return the same multipliers with the level t that makes the bound at ``total`` largest.

        ``t - v sum_k alpha_k (t - q_k)_+`` is concave in t and largest at the weighted quantile of q where the caps add up to 1.
        """
        p, s = problem, self.total
        nu = p.payment_unit * (self.objective * p.payment_weight + self.budget)
        ell = self.objective * p.loss_weight + self.loss_cap
        excess = np.where(classes.paid, 0.0, np.maximum(self.rows - p.alpha * nu / s, 0.0))
        roof = np.maximum(np.where(np.isfinite(classes.ceiling), classes.ceiling, 0.0), p.theta * s)
        q = (
            2.0 * (self.slope - ell * p.loss_pull)
            + nu * (p.theta * s - p.diagonal)
            + (ell / s) * p.noise
            - excess * s * (roof - p.theta * s) / p.alpha
        )
        left = s - float(p.alpha[classes.volunteer].sum())
        others = np.flatnonzero(~classes.volunteer)
        if not len(others):
            return replace(self, level=float(q.max()))
        order = others[np.argsort(q[others])]
        filled = np.cumsum(p.alpha[order])
        last = min(int(np.searchsorted(filled, left * (1.0 - ROUNDING))), len(order) - 1)
        return replace(self, level=float(q[order[last]]))


@dataclass(frozen=True, eq=False)
class Between:
    """Multipliers between two knots, in place of ``Multipliers``; arrays over clients are made on request."""

    knots: tuple[Multipliers, Multipliers]
    share: float  # of the second knot
    total: float

    def _mixed(self, name: str) -> Any:
        first, second = self.knots
        return (1.0 - self.share) * getattr(first, name) + self.share * getattr(second, name)

    @cached_property
    def objective(self) -> float:
        return float(self._mixed("objective"))

    @cached_property
    def budget(self) -> float:
        return float(self._mixed("budget"))

    @cached_property
    def loss_cap(self) -> float:
        return float(self._mixed("loss_cap"))

    @cached_property
    def level(self) -> float:
        return float(self._mixed("level"))

    @cached_property
    def weight(self) -> float:
        return float(self._mixed("weight"))

    @cached_property
    def rows(self) -> Array:
        return np.asarray(self._mixed("rows"))

    @cached_property
    def pull(self) -> Array:
        return np.asarray(self._mixed("pull"))

    @cached_property
    def pull_square(self) -> float:
        return float(self.pull @ self.pull)

    @cached_property
    def along(self) -> Array:
        return np.asarray(self._mixed("along"))

    @cached_property
    def slope(self) -> Array:
        return np.asarray(self._mixed("slope"))


Prices = Multipliers | Between


def interpolate(first: Multipliers, second: Multipliers, total: float) -> Prices:
    """Multipliers at ``total`` on the line through two knots, not beyond them."""
    if first is second or second.total == first.total:
        return first
    share = min(max((total - first.total) / (second.total - first.total), 0.0), 1.0)
    if share in (0.0, 1.0):
        return second if share else first
    return Between((first, second), share, total)


def _parts(at_low: Prices, at_high: Prices) -> tuple[Any, Any, tuple[float, float, float, float]]:
    """Return two knots that both ends lie between, and their shares at the lower and at the upper end."""
    pair: tuple[Prices, Prices] = (at_low, at_high)
    if isinstance(at_low, Between) or isinstance(at_high, Between):
        wide = (at_low if isinstance(at_low, Between) else at_high).knots
        shares = [_share_in(y, wide) for y in (at_low, at_high)]
        if shares[0] is not None and shares[1] is not None:
            return *wide, (1.0 - shares[0], shares[0], 1.0 - shares[1], shares[1])
    return *pair, (1.0, 0.0, 0.0, 1.0)


def _share_in(y: Prices, pair: tuple[Prices, Prices]) -> float | None:
    """Return the weight of the second of a pair in y, None if y does not lie between the two."""
    if isinstance(y, Between):
        return y.share if y.knots[0] is pair[0] and y.knots[1] is pair[1] else None
    return 0.0 if y is pair[0] else 1.0 if y is pair[1] else None


@dataclass(frozen=True, eq=False)
class Classes:
    """Facts about every client in a box: paid (``e_k = 0``), volunteer (full, ``D_k >= theta_k S``), and ``D_k <= high_k``."""

    paid: Mask
    volunteer: Mask
    ceiling: Array  # upper bounds of D_k on the box

    def agrees(self, other: Classes) -> bool:
        """Return True if the same clients are decided in the same way."""
        return np.array_equal(self.paid, other.paid) and np.array_equal(self.volunteer, other.volunteer)


def classify(
    problem: BoundProblem,
    low: float,
    high: float,
    paid: Mask,
    volunteer: Mask,
    near: Array | None = None,
    far: Array | None = None,
) -> Classes | None:
    """What is decided, and what follows: who brings more than S cannot be at full; who is near enough is paid; who is too far
    for it is a volunteer. ``near`` and ``far`` are bounds of ``d_k^2``. None: the volunteers own more than S, the box is empty."""
    extra = 0.5 * problem.client_sampling
    if len(problem.alpha) >= MANY:
        *known, owned, empty = kernels.classify_many(
            problem.alpha,
            problem.theta,
            problem.reach,
            paid,
            volunteer,
            np.zeros(len(problem.alpha)) if near is None else near,
            problem.reach if far is None else far,
            extra / low if low > 0 else (np.inf if extra else 0.0),
            extra / high,
            low,
            high,
            1.0 + ROUNDING,
        )
        return None if empty or owned > (1.0 + ROUNDING) * high else Classes(*known)
    ceiling = (problem.reach if far is None else np.minimum(far, problem.reach)) + (
        extra / low if low > 0 else (np.inf if extra else 0.0)
    )
    least = (0.0 if near is None else near) + extra / high
    # conclusions that hang on the last digits are not drawn
    room = 1.0 + ROUNDING
    too_far, near_enough = least > room * problem.theta * high, ceiling * room <= problem.theta * low
    large = problem.alpha > room * high
    if (too_far & (paid | near_enough | large)).any() or (volunteer & large).any():
        return None
    now_volunteer = volunteer | too_far
    if problem.alpha[now_volunteer].sum() > room * high:
        return None
    now_paid = (paid | large | near_enough) & ~now_volunteer
    return Classes(now_paid, now_volunteer, ceiling)


def squared(problem: BoundProblem, y: Prices) -> float:
    """``||T c||^2``."""
    if isinstance(problem.place, ArrayPoints):
        return y.pull_square
    return problem.place.dot(y.pull, y.pull, _along(problem, y))


def _along(problem: BoundProblem, y: Prices) -> Array | None:
    """``<mu_k, T c>`` where inner products of points need it."""
    return None if problem.place.has_coordinates else y.along


def distance(problem: BoundProblem, first: Prices, second: Prices) -> float:
    """``||c - c'||``."""
    if first is second:
        return 0.0
    difference = first.pull / first.weight - second.pull / second.weight
    along = None
    if not problem.place.has_coordinates:
        along = first.along / first.weight - second.along / second.weight
    return float(np.sqrt(max(problem.place.dot(difference, difference, along), 0.0)))


def box_margin(
    problem: BoundProblem,
    low: float,
    high: float,
    at_low: Prices,
    at_high: Prices,
    classes: Classes,
    lower: float,
) -> float:
    """``min g`` on the box; not negative: no feasible point has an objective below ``lower``.

    With ``objective = 1`` at both ends the box's own bound is ``lower + margin``.
    """
    if low <= 0.0:
        return _margin_from_zero(problem, high, at_high, classes, lower)
    p, h = problem, high - low
    at_ends = (at_low, at_high)
    nu = [p.payment_unit * (y.objective * p.payment_weight + y.budget) for y in at_ends]
    ell = [y.objective * p.loss_weight + y.loss_cap for y in at_ends]
    if min(at_low.weight, at_high.weight) <= 0.0:
        return -np.inf
    first, second, parts = _parts(at_low, at_high)
    arguments = (
        p.alpha,
        p.theta,
        p.diagonal,
        p.noise,
        p.loss_pull,
        classes.paid,
        classes.volunteer,
        classes.ceiling,
        first.rows,
        second.rows,
        first.slope,
        second.slope,
        float(low),
        float(high),
        parts,
        at_low.level,
        nu[0],
        ell[0],
        at_high.level,
        nu[1],
        ell[1],
    )
    *sums, usable = kernels.client_sums(p.tells_large_clients, *arguments)
    if not usable:
        return -np.inf
    brought, curve, held, drift, rows = sums[0:2], sums[2], sums[3:5], sums[5], sums[6:8]
    top, top_bend = sums[8:10], sums[10]
    scattered = [ell[i] * p.loss_sampling + 0.5 * p.client_sampling * (rows[i] - nu[i]) for i in range(2)]
    ends = [
        _constant(p, y, ell[i], lower)
        + y.level
        - squared(p, y) / y.weight
        + held[i]
        + (scattered[i] - brought[i]) / s
        - top[i]
        for i, (y, s) in enumerate(zip(at_ends, (low, high), strict=True))
    ]
    apart = min(at_low.weight, at_high.weight) * distance(p, at_low, at_high) ** 2
    late = h * (high * (brought[0] - scattered[0]) - low * (brought[1] - scattered[1])) / (low * high) - curve
    least = parabola_minimum(ends[0], ends[1], apart + drift + min(late / low, late / high) - top_bend)
    return -np.inf if np.isnan(least) else least  # numbers too large or too small for floats prove nothing


def _constant(p: BoundProblem, y: Prices, ell: float, lower: float) -> float:
    total = ell * p.loss_constant - y.objective * lower
    if y.budget:
        total -= y.budget * p.budget
    if y.loss_cap:
        total -= y.loss_cap * p.loss_cap
    return total


def _margin_from_zero(p: BoundProblem, high: float, y: Prices, classes: Classes, lower: float) -> float:
    """Return the bound on ``(0, high]`` with constant multipliers and ``z_k <= 1`` for the caps."""
    nu = p.payment_unit * (y.objective * p.payment_weight + y.budget)
    ell = y.objective * p.loss_weight + y.loss_cap
    scattered = ell * p.loss_sampling + 0.5 * p.client_sampling * (float(y.rows.sum()) - nu)
    if y.weight <= 0.0 or (y.rows < 0.0).any() or scattered < 0.0:
        return -np.inf
    excess = np.where(classes.paid, 0.0, np.maximum(y.rows - p.alpha * nu / high, 0.0))
    roof = np.maximum(classes.ceiling, p.theta * high)
    if not np.isfinite(roof[excess > 0]).all():
        return -np.inf
    roof = np.where(np.isfinite(roof), roof, 0.0)
    psi = (
        y.level
        - 2.0 * (y.slope - ell * p.loss_pull)
        + nu * p.diagonal
        - (ell / high) * p.noise
        + excess * roof * high / p.alpha
    )
    return (
        _constant(p, y, ell, lower)
        + y.level
        - squared(p, y) / y.weight
        + float(y.rows @ (p.diagonal - p.theta * high))
        + scattered / high
        - max(float(psi.max()), 0.0)
    )


def parabola_minimum(left: float, right: float, bend: float) -> float:
    """Least value of ``(1 - x) left + x right + x (1 - x) bend`` on [0, 1]."""
    least = min(left, right)
    if bend >= 0.0 or abs(right - left) >= -bend:
        return least
    return least - (bend + abs(right - left)) ** 2 / (-4.0 * bend)


def ball(
    problem: BoundProblem,
    at_low: Prices,
    at_high: Prices,
    margin: float,
    near: Array | None = None,
    far: Array | None = None,
) -> tuple[Array, Array] | None:
    """Bounds of every ``d_k^2`` at points with an objective below ``lower``, given the box's margin; None: no such points.

    ``T ||m - c(S)||^2 < -g`` with c(S) between the centres of both ends. ``near`` and ``far`` are bounds known already.
    """
    if margin >= 0.0:
        return None
    weight = min(at_low.weight, at_high.weight)
    radius = float(np.sqrt(-margin / weight)) if weight > 0.0 else np.inf
    apart = distance(problem, at_low, at_high)
    squares = [squared(problem, y) / y.weight / y.weight for y in (at_low, at_high)]
    if len(problem.alpha) >= MANY:
        first, second, (a, b, c, d) = _parts(at_low, at_high)
        least, most = kernels.ball_of_many(
            problem.diagonal,
            first.along,
            second.along,
            (a / at_low.weight, b / at_low.weight, c / at_high.weight, d / at_high.weight),
            (squares[0], squares[1]),
            apart,
            radius,
            np.zeros(len(problem.alpha)) if near is None else near,
            problem.reach if far is None else far,
        )
        return np.asarray(least), np.asarray(most)
    gaps = [
        np.sqrt(np.maximum(problem.diagonal + square - 2.0 * y.along / y.weight, 0.0))
        for y, square in zip((at_low, at_high), squares, strict=True)
    ]
    most = (np.maximum(*gaps) + radius) ** 2
    least = np.maximum(0.5 * (gaps[0] + gaps[1] - apart) - radius, 0.0) ** 2
    return (
        least if near is None else np.maximum(near, least),
        most if far is None else np.minimum(far, most),
    )
