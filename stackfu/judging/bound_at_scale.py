"""The checker of lower bounds for very many clients: one pass over them per step of a leaf, in intervals, features never copied.

The same inequality as in :mod:`.bound` on the same certificates, box by box, evaluated by :mod:`._bound_kernels` on what
:mod:`.large_space` encloses. Clients who own more than a box's largest total keep their caps ``z_k <= alpha_k / S``: a little is
given away on boxes of very small totals, nothing elsewhere.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import VerificationError
from ..model import GameModel, Objective
from ..results.certificate import LeaderCertificate
from .bound_verdict import BoundVerdict, parabola
from .cover import Box, boxes_of
from .large_space import LargeSpace
from .numbers import IntervalArithmetic
from .space import Centre

__all__ = ["ScaleChecker"]

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
#: Knots whose products are kept: as many as have this many clients in all, and at least a few (a leaf needs two at a time).
MOST_KEPT, FEWEST_KEPT = 4_000_000, 4


@dataclass(frozen=True, eq=False)
class _Products:
    """A knot with its enclosed products."""

    total: float
    objective: float
    budget: float
    loss_cap: float
    level: float
    rows: Floats
    centre: Centre
    mixed: Any  # <mu_k, M>
    square: Any  # ||c||^2
    weight: Any  # T
    rows_total: Any  # sum of P
    least_row: float  # smallest P_k


@dataclass(frozen=True, eq=False)
class _End:
    """Multipliers at one end of a box: ``rest`` and ``share`` of two knots."""

    first: _Products
    second: _Products
    rest: float
    share: float
    omega: Any
    beta: Any
    gamma: Any
    level: Any
    rows_total: Any  # sum of P
    one: Any  # the parts of either knot in T
    two: Any
    weight: Any  # T
    part: Any  # share of the second knot's centre in c
    pull_square: Any  # ||T c||^2 / T


class ScaleChecker:
    """The game read once, for any number of certificates."""

    certificate: LeaderCertificate

    def __init__(self, game: GameModel, goal: Objective) -> None:
        self.numbers: Any = IntervalArithmetic()
        self.goal = goal
        self.unreadable = ""
        self._products: OrderedDict[int, _Products] = OrderedDict()
        self._crossed: dict[tuple[int, int], Any] = {}
        with self.numbers.context():
            try:
                self.space = LargeSpace(game, goal, self.numbers)
            except VerificationError as error:
                self.unreadable = str(error)
                return
            low, high = self.numbers.low, self.numbers.high
            self.clients = self.space.count
            self.kept = max(FEWEST_KEPT, MOST_KEPT // self.clients)
            self.alpha_low, self.alpha_high = low(self.space.alpha), high(self.space.alpha)
            self.theta_low, self.theta_high = low(self.space.theta), high(self.space.theta)

    def check(self, certificate: LeaderCertificate) -> BoundVerdict:
        """Check every leaf: ``lower`` is ``certificate.lower`` if everything holds, else ``-inf``."""
        if self.unreadable:
            return BoundVerdict(False, -math.inf, 0, -math.inf, self.unreadable)
        before = getattr(self, "certificate", None)
        if before is None or before.knots is not certificate.knots:
            self._products.clear()
            self._crossed.clear()
        self.certificate = certificate
        with self.numbers.context():
            try:
                return self._check()
            except VerificationError as error:
                return BoundVerdict(False, -math.inf, 0, -math.inf, str(error))

    # ------------------------------------------------------------ the tree

    def _check(self) -> BoundVerdict:
        """Leaf by leaf, up to the first that fails."""
        leaves, least = 0, math.inf
        for box in boxes_of(self.clients, self.goal.min_total, self.certificate):
            margin, why = self._leaf(box)
            least = min(least, margin)
            if why:
                message = f"leaf {leaves} on [{box.low:.9g}, {box.high:.9g}]: {why}"
                return BoundVerdict(False, -math.inf, leaves, margin, message, leaves)
            leaves += 1
        lower = self.certificate.lower
        message = f"no payments have an objective below {lower:.12g} ({leaves} leaves)"
        return BoundVerdict(True, lower, leaves, least, message)

    # ------------------------------------------------------------ one leaf

    def _leaf(self, box: Box) -> tuple[float, str]:
        leaf, low, high, paid, volunteer = box.leaf, box.low, box.high, box.paid, box.volunteer
        near, far = np.zeros(self.clients), np.asarray(self.space.reach)
        margin = -math.inf
        for number, (i, j) in enumerate(leaf.steps):
            known = self._classify(low, high, paid, volunteer, near, far)
            if known is None:
                return math.inf, ""
            first, second = self._knot(i), self._knot(j)
            if low <= 0.0:
                if i != j:
                    return -math.inf, "an interval from 0 needs constant multipliers"
                margin, certain = self._margin_from_zero(high, first, known)
                if margin > 0.0 or (margin == 0.0 and certain):
                    return margin, ""
                return margin, f"its multipliers prove {margin:.3g}, not 0"
            ends = [self._end(s, first, second, i, j) for s in (low, high)]
            bad = self._signs(ends, known)
            if bad:
                return -math.inf, bad
            margin, certain = self._margin(low, high, ends, known, self._between(first, second, i, j))
            if margin > 0.0 or (margin == 0.0 and certain):
                return margin, ""
            if number + 1 < len(leaf.steps):
                if not math.isfinite(margin):
                    return margin, "a step that proves nothing gives no ball"
                near, far = self._ball(ends, margin, first, second, i, j, near, far)
        return margin, f"its multipliers prove {margin:.3g}, not 0"

    def _knot(self, index: int) -> _Products:
        if not 0 <= index < len(self.certificate.knots):
            raise VerificationError(f"there is no knot {index}")
        if index in self._products:
            self._products.move_to_end(index)
        else:
            numbers, space, goal = self.numbers, self.space, self.goal
            knot = self.certificate.knots[index]
            values = (knot.total, knot.objective, knot.budget, knot.loss_cap, knot.level)
            arrays = (knot.rows, knot.centre)
            if not (all(map(math.isfinite, values)) and all(np.isfinite(a).all() for a in arrays)):
                raise VerificationError(f"knot {index} holds numbers that are not finite")
            if min(knot.objective, knot.budget, knot.loss_cap) < 0.0:
                raise VerificationError(f"knot {index} has a negative multiplier")
            if (knot.budget > 0.0 and math.isinf(goal.budget)) or (
                knot.loss_cap > 0.0 and math.isinf(goal.max_loss)
            ):
                raise VerificationError(f"knot {index} has a multiplier for a constraint that there is not")
            for who, what in ((knot.clients, knot.rows), (knot.support, knot.centre)):
                if who is None:
                    continue
                if len(who) != len(what) or len(np.unique(who)) != len(who):
                    raise VerificationError(f"knot {index} does not fit its clients")
                if len(who) and not (int(who.min()) >= 0 and int(who.max()) < self.clients):
                    raise VerificationError(f"knot {index} names a client who does not exist")
            rows = np.zeros(self.clients)
            rows[knot.clients] = knot.rows
            centre = space.centre(knot)
            ell, nu = self._weights(
                numbers.of(knot.objective), numbers.of(knot.budget), numbers.of(knot.loss_cap)
            )
            rows_total = numbers.total(numbers.of(rows))
            self._products[index] = _Products(
                *values,
                rows,
                centre,
                space.mixed(knot.clients, knot.rows),
                space.cross(centre, centre),
                ell * space.square_weight + nu + rows_total,
                rows_total,
                float(rows.min(initial=0.0)),
            )
            while len(self._products) > self.kept:
                self._products.popitem(last=False)
        return self._products[index]

    def _weights(self, omega: Any, beta: Any, gamma: Any) -> tuple[Any, Any]:
        """ell, the weight of the loss, and nu, the weight of the spend per squared distance."""
        goal = self.goal
        return omega * goal.loss_weight + gamma, self.space.unit * (omega * goal.payment_weight + beta)

    def _between(self, first: _Products, second: _Products, i: int, j: int) -> Any:
        """``||c_i - c_j||^2``."""
        if i == j:
            return self.numbers.of(0.0)
        key = (min(i, j), max(i, j))
        if key not in self._crossed:
            inner = self.space.cross(first.centre, second.centre)
            self._crossed[key] = first.square + second.square - 2.0 * inner
        return self._crossed[key]

    def _end(self, total: float, first: _Products, second: _Products, i: int, j: int) -> _End:
        """Multipliers at ``total`` on the line through two knots, not beyond them."""
        numbers = self.numbers
        share = 0.0
        if i != j and second.total != first.total:
            share = min(max((total - first.total) / (second.total - first.total), 0.0), 1.0)
            if math.isnan(share):
                share = 0.0
        rest = 1.0 - share  # any non-negative weights will do, so the rounding of this one does not matter
        zero = numbers.of(0.0)
        one, two = first.weight * rest if rest else zero, second.weight * share if share else zero
        if share in (0.0, 1.0):
            knot = second if share else first
            weight, part, square = knot.weight, numbers.of(share), knot.weight * knot.square
            one, two = (zero, weight) if share else (weight, zero)
        else:
            weight = one + two
            part = two / weight
            # ||w||^2 / T = (T_1 ||c_1||^2 + T_2 ||c_2||^2) - T_1 T_2 / T ||c_1 - c_2||^2
            square = (
                one * first.square + two * second.square - one * part * self._between(first, second, i, j)
            )

        def mix(a: Any, b: Any) -> Any:
            if share in (0.0, 1.0):
                return numbers.of(b if share else a)
            return numbers.of(a) * rest + numbers.of(b) * share

        return _End(
            first,
            second,
            rest,
            share,
            mix(first.objective, second.objective),
            mix(first.budget, second.budget),
            mix(first.loss_cap, second.loss_cap),
            mix(first.level, second.level),
            mix(first.rows_total, second.rows_total),
            one,
            two,
            weight,
            part,
            square,
        )

    # ------------------------------------------------------------ what is known about clients

    def _classify(
        self, low: float, high: float, paid: Mask, volunteer: Mask, near: Floats, far: Floats
    ) -> tuple[Mask, Mask, Floats] | None:
        """Paid, volunteers and upper bounds of ``D_k``; None if that contradicts itself: the box is empty."""
        numbers = self.numbers
        ceiling = np.asarray(far, dtype=np.float64)
        least = np.asarray(near, dtype=np.float64)
        if self.space.has_sampling:
            half = 0.5 * self.space.client_sampling
            least = np.nextafter(least + float(numbers.low(half / numbers.of(high))), -np.inf)
            most = float(numbers.high(half / numbers.of(low))) if low > 0.0 else math.inf
            ceiling = np.nextafter(ceiling + most, np.inf)
        too_far = least > np.nextafter(self.theta_high * high, np.inf)
        near_enough = ceiling <= np.nextafter(self.theta_low * low, -np.inf)
        large = self.alpha_low > high
        if (too_far & (paid | near_enough | large)).any() or (volunteer & large).any():
            return None
        now = volunteer | too_far
        if (
            now.any()
            and float(numbers.low(numbers.total(numbers.where(now, self.space.alpha, numbers.of(0.0)))))
            > high
        ):
            return None
        return (paid | large | near_enough) & ~now, now, ceiling

    def _signs(self, ends: list[_End], known: Any) -> str:
        _, volunteer, _ = known
        for end in ends:
            if float(self.numbers.low(end.weight)) <= 0.0:
                return "the weight T of ||m||^2 is not positive"
            for knot, part in ((end.first, end.rest), (end.second, end.share)):
                wrong = (knot.rows < 0.0) & ~volunteer if part and knot.least_row < 0.0 else None
                if wrong is not None and wrong.any():
                    return f"client {int(np.flatnonzero(wrong)[0])} has a negative multiplier and is no volunteer"
        return ""

    # ------------------------------------------------------------ the bound

    def _constant(self, end: _End, ell: Any) -> Any:
        goal, numbers = self.goal, self.numbers
        value = ell * self.space.loss_constant - end.omega * self.certificate.lower
        if math.isfinite(goal.budget):
            value = value - end.beta * numbers.of(goal.budget)
        if math.isfinite(goal.max_loss):
            value = value - end.gamma * numbers.of(goal.max_loss)
        return value

    def _margin(
        self, low: float, high: float, ends: list[_End], known: Any, between: Any
    ) -> tuple[float, bool]:
        """A lower bound of ``g`` on ``[low, high]``, and whether the objective has a positive weight at both ends."""
        n = self.numbers
        a, b = n.of(low), n.of(high)
        h = b - a
        totals = (a, b)
        weights = [self._weights(e.omega, e.beta, e.gamma) for e in ends]
        ell, nu = [w[0] for w in weights], [w[1] for w in weights]
        # an affine function below nu(S) / S: the chord where that is concave, else the tangent in the middle
        bend = n.positive(h * (b * nu[0] - a * nu[1])) / ((a + b) * (a + b))
        unpaid = [(nu[i] - bend) / totals[i] for i in range(2)]
        tilt = h * (b * ell[0] - a * ell[1]) / (a * b)
        tilts = (tilt / a, tilt / b)
        most, least = n.maximum(*tilts), -n.maximum(-tilts[0], -tilts[1])
        found = self._client_sums(totals, h, ends, known, ell, nu, unpaid, most, least)
        if found is None:
            return -math.inf, False
        brought, curve, held, drift = found
        scattered = [self._scattered(ends[i], ell[i], nu[i]) for i in range(2)]
        g = [
            self._constant(ends[i], ell[i])
            + ends[i].level
            - ends[i].pull_square
            + held[i]
            + (scattered[i] - brought[i]) / s
            for i, s in enumerate(totals)
        ]
        step = ends[1].part - ends[0].part
        lightest = -n.maximum(-ends[0].weight, -ends[1].weight)
        # T_a T_b / T(S) lies between the lighter and the heavier end, and a square is not negative
        apart = n.positive(step * step * between) * lightest
        late = h * (b * (brought[0] - scattered[0]) - a * (brought[1] - scattered[1])) / (a * b) - curve
        late = -n.maximum(-late / a, -late / b)
        delta = apart + h * drift + late
        value = float(parabola(*(np.asarray(n.low(x)) for x in (*g, delta))))
        certain = min(float(n.low(e.omega)) for e in ends) > 0.0
        return value, certain

    def _client_sums(
        self,
        totals: Any,
        h: Any,
        ends: list[_End],
        known: Any,
        ell: Any,
        nu: Any,
        unpaid: Any,
        most: Any,
        least: Any,
    ) -> tuple[list[Any], Any, list[Any], Any] | None:
        """``Y`` at both ends, its curvature, ``P.(diag - theta S)`` at both ends, ``(P_b - P_a).theta``; None: no proof."""
        from ._bound_kernels import client_sums

        space, zero = self.space, self.numbers.of(0.0)
        box = (*totals, h, *unpaid, h * (nu[1] - nu[0]), most, least)
        weights = [
            (end.one, end.two, end.level, nu[i], ell[i], ell[i] / totals[i]) for i, end in enumerate(ends)
        ]
        scalars = [*box, *weights[0], *weights[1]]
        if not all(np.isfinite(x.low) and np.isfinite(x.high) for x in scalars):
            return None
        first, second = ends[0].first, ends[0].second
        sums, usable = client_sums(
            _pairs(box),
            np.array([_pairs(weight) for weight in weights]),
            np.array([(end.rest, end.share) for end in ends]),
            _arrays(space.alpha, space.theta, space.diagonal, space.target_pull, space.noise),
            (first.rows, second.rows),
            _arrays(first.centre.inner, second.centre.inner, first.mixed, second.mixed),
            *known,
        )
        if not usable:
            return None
        found = [type(zero)(low, high) for low, high in sums]
        return found[0:2], found[2], found[3:5], found[5]

    def _scattered(self, end: _End, ell: Any, nu: Any) -> Any:
        """``N = ell A + a (sum P - nu) / 2``, exactly 0 where nothing depends on 1/S alone."""
        n, space = self.numbers, self.space
        if not self.space.has_sampling:
            return n.of(0.0)
        return ell * space.sampling + 0.5 * space.client_sampling * (end.rows_total - nu)

    def _margin_from_zero(self, high: float, knot: _Products, known: Any) -> tuple[float, bool]:
        """A lower bound of ``g`` on ``(0, high]`` with constant multipliers and ``z_k <= 1`` for the caps."""
        n, space = self.numbers, self.space
        paid, _, ceiling = known
        end = self._end(high, knot, knot, 0, 0)
        rows, slope = n.of(knot.rows), knot.weight * knot.centre.inner - knot.mixed
        ell, nu = self._weights(end.omega, end.beta, end.gamma)
        b = n.of(high)
        rows_low = np.asarray(knot.rows)
        scattered = self._scattered(end, ell, nu)
        if (rows_low < 0.0).any() or float(n.low(end.weight)) <= 0.0:
            return -math.inf, False
        if self.space.has_sampling and float(n.low(scattered)) < 0.0:
            return -math.inf, False
        # nu >= 0, so that nothing is charged where a multiplier is exactly 0, whatever rounding says
        free = paid | (rows_low == 0.0)
        excess = n.where(free, n.of(0.0), n.positive(rows - space.alpha * (nu / b)))
        charged = np.asarray(n.high(excess)) > 0.0
        if not np.isfinite(ceiling[charged]).all():
            return -math.inf, False
        roof = n.maximum(n.of(np.where(charged, ceiling, 0.0)), space.theta * b)
        psi = (
            end.level
            - 2.0 * slope
            + 2.0 * ell * space.target_pull
            + nu * space.diagonal
            - (ell / b) * space.noise
            + excess * roof * b / space.alpha
        )
        value = (
            self._constant(end, ell)
            + end.level
            - end.pull_square
            + n.total(rows * (space.diagonal - space.theta * b))
            + n.positive(scattered) / b
        )
        worst = max(float(np.max(n.high(psi))), 0.0)
        margin = float(np.nextafter(float(n.low(value)) - worst, -np.inf))
        return margin, float(n.low(end.omega)) > 0.0

    def _ball(
        self,
        ends: list[_End],
        margin: float,
        first: _Products,
        second: _Products,
        i: int,
        j: int,
        near: Floats,
        far: Floats,
    ) -> tuple[Floats, Floats]:
        """Bounds of ``d_k^2`` of every point of the box below ``lower``: ``T ||m - c(S)||^2 < -g`` with c(S) between the
        ends' centres."""
        n, space = self.numbers, self.space
        lightest = -n.maximum(-ends[0].weight, -ends[1].weight)
        radius = n.root(n.of(-margin) / lightest)
        between = self._between(first, second, i, j)
        squares = [
            (1.0 - end.part) * first.square + end.part * second.square - (1.0 - end.part) * end.part * between
            for end in ends
        ]
        step = ends[1].part - ends[0].part
        apart = n.root(n.positive(step * step * between)) if i != j else n.of(0.0)
        from ._bound_kernels import distances_in_ball

        lower, upper = distances_in_ball(
            np.array(
                [_pairs((1.0 - e.part, e.part, square)) for e, square in zip(ends, squares, strict=True)]
            ),
            float(np.nextafter(0.5 * float(n.high(apart)), np.inf)),
            float(n.high(radius)),
            0.0,
            _arrays(space.diagonal, first.centre.inner, second.centre.inner),
            near,
            far,
        )
        return np.asarray(lower), np.asarray(upper)


def _pairs(scalars: Sequence[Any]) -> Floats:
    """The ends of some intervals, (n, 2)."""
    return np.array([(float(x.low), float(x.high)) for x in scalars])


def _arrays(*many: Any) -> tuple[Floats, ...]:
    """The ends of arrays of intervals, lower and upper in turn."""
    return tuple(np.ascontiguousarray(end) for x in many for end in (x.low, x.high))
