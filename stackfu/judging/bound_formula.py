"""The inequality that lower bounds rest on, written once: the formulas of ``docs/theory/leader.md`` ("One bound for everything").

For every leaf of a certificate's tree, on its interval ``[a, b]`` of total participation and with what the tree has decided about
clients:

1. Multipliers at both ends by interpolation between two knots, then affine in S (:mod:`.bound_multipliers`). Signs are checked,
   nothing else is required of them.
2. Who can be a volunteer, who must be one, and an upper bound of every ``D_k``, from the interval, the decisions and
   the balls of earlier steps.
3. ``g`` at both ends and its curvature; if ``min g >= 0`` no feasible point of the box has an objective below
   ``lower``. If the step is not the last one, points below ``lower`` lie in the ball ``||m - c(S)||^2 <= -g / T``,
   which bounds their distances ``d_k`` from both sides.

Leaves are looked at many at a time: numbers that belong to a leaf are columns ``(leaves, 1)``, those that belong to its clients
matrices ``(leaves, clients)``. :class:`Checker` works on whatever encloses the game's numbers: intervals or balls (:mod:`.numbers`,
:mod:`.space`). For very many clients :mod:`.bound_at_scale` replaces what runs over clients, :meth:`Checker.classify`,
:meth:`Checker.client_sums` and :meth:`Checker.ball`, by compiled passes, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..model import Objective
from ..results.certificate import LeaderCertificate
from .bound_multipliers import End, Knots, Multipliers
from .bound_verdict import BoundVerdict, parabola
from .cover import Box
from .space import Space

__all__ = ["Checker", "Known", "Step", "Sums", "Weights", "verdict_on"]

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: More than a few roundings of floats that are multiplied, added and rooted outside of the arithmetic can take away.
UPWARD = 1.0 + 1e-9


def verdict_on(
    certificate: LeaderCertificate, judged: Iterable[tuple[Box, tuple[float, str]]]
) -> BoundVerdict:
    """Return the first leaf that fails, or that all of them hold; no leaf is asked for after one that fails."""
    leaves, least = 0, math.inf
    for box, (margin, why) in judged:
        least = min(least, margin)
        if why:
            message = f"leaf {leaves} on [{box.low:.9g}, {box.high:.9g}]: {why}"
            return BoundVerdict(False, -math.inf, leaves, least, message, leaves)
        leaves += 1
    message = f"no payments have an objective below {certificate.lower:.12g} ({leaves} leaves)"
    return BoundVerdict(True, certificate.lower, leaves, least, message)


@dataclass(frozen=True, eq=False)
class Known:
    """Known facts about the clients of every box."""

    paid: Mask
    volunteer: Mask
    ceiling: Floats  # upper bounds of D_k
    wide: Mask  # owns at least the box's largest total: its share may be anything up to 1

    def rows_of(self, at: Any) -> Known:
        """Return the facts about some of the boxes."""
        return Known(*(_some(x, at) for x in (self.paid, self.volunteer, self.ceiling, self.wide)))


class Weights(NamedTuple):
    """Numbers of a box that every client's terms need; pairs are at its lower and upper end."""

    totals: tuple[Any, Any]
    h: Any
    ell: list[Any]
    nu: list[Any]
    unpaid: list[Any]  # an affine function below nu(S) / S
    most: Any  # most and least tilt of the noise
    least: Any


class Sums(NamedTuple):
    """Sums over clients; pairs are at the lower and upper end of a box."""

    brought: list[Any]  # Y
    curve: Any  # its curvature
    held: list[Any]  # P.(diag - theta S)
    drift: Any  # (P_b - P_a).theta
    top: list[Any]  # what those bring at most who own more than the total
    top_bend: Any
    helpless: Mask  # a charged client has no bound on D_k: nothing is proved


class Checker:
    """The bound on many boxes at a time, whatever the arithmetic of the space."""

    def __init__(self, space: Space, goal: Objective, certificate: LeaderCertificate) -> None:
        self.space, self.goal, self.certificate = space, goal, certificate
        self.numbers = numbers = space.numbers
        self.clients = space.count
        self.multipliers = Multipliers(space, goal, certificate.knots)
        self.alpha_low = numbers.low(space.alpha)
        self.theta_low, self.theta_high = numbers.low(space.theta), numbers.high(space.theta)

    # ------------------------------------------------------------ leaves, step by step

    def judge(self, boxes: list[Box]) -> list[tuple[float, str]]:
        """Return every leaf's steps in order: a step closes the leaf, or its ball helps the next one."""
        count = len(boxes)
        low, high = (np.array([[getattr(box, name)] for box in boxes]) for name in ("low", "high"))
        paid, volunteer = (np.stack([getattr(box, name) for box in boxes]) for name in ("paid", "volunteer"))
        near = np.zeros((count, self.clients))
        far = np.asarray(self.space.reach)[None, :]
        far = far if count == 1 else np.repeat(far, count, axis=0)
        results: list[tuple[float, str] | None] = [
            None if box.leaf.steps else (-math.inf, "it has no multipliers") for box in boxes
        ]
        knots = self.load(boxes)
        number = 0
        while True:
            at = np.array([i for i in range(count) if results[i] is None], dtype=np.intp)
            if not len(at):
                return [result for result in results if result is not None]
            known, empty = self.classify(*(_some(x, at) for x in (low, high, paid, volunteer, near, far)))
            pairs = np.array([boxes[i].leaf.steps[number] for i in at])
            for where in (low[at, 0] <= 0.0, low[at, 0] > 0.0):
                some = np.flatnonzero(where & ~empty)
                if not len(some):
                    continue
                here = at[some]
                same = pairs[some, :1] == pairs[some, 1:]
                first, second = (knots(pairs[some, side].tolist()) for side in range(2))
                held = known.rows_of(some)
                if low[here[0], 0] <= 0.0:
                    for i, result in zip(here, self._from_zero(high[here], first, same, held), strict=True):
                        results[i] = result
                    continue
                step = self._step(low[here], high[here], first, second, same, held)
                for row, i in enumerate(here):
                    margin = float(step.margin[row, 0])
                    if step.wrong[row]:
                        results[i] = (-math.inf, step.wrong[row])
                    elif margin > 0.0 or (margin == 0.0 and step.certain[row, 0]):
                        results[i] = (margin, "")
                    elif number + 1 == len(boxes[i].leaf.steps):
                        results[i] = (margin, f"its multipliers prove {margin:.3g}, not 0")
                    elif not math.isfinite(margin):
                        results[i] = (margin, "a step that proves nothing gives no ball")
                left = np.array([row for row, i in enumerate(here) if results[i] is None], dtype=np.intp)
                if len(left):
                    at_left = here[left]
                    closer = self.ball(step, left, _some(near, at_left), _some(far, at_left))
                    if len(at_left) == count:
                        near, far = closer
                    else:
                        near[at_left], far[at_left] = closer
            for i in at[empty]:
                results[i] = (math.inf, "")
            number += 1

    def _step(self, low: Floats, high: Floats, first: Knots, second: Knots, same: Mask, known: Known) -> Step:
        between = self.multipliers.between(first, second, same)
        ends = [self.multipliers.end(s, first, second, same, between) for s in (low, high)]
        size = np.maximum(first.size, second.size)
        wrong = self._signs(ends, known)
        margin, certain = self._margin(low, high, ends, known, between, size)
        return Step(low, first, second, ends, between, same, size, margin, certain, wrong)

    def load(self, boxes: list[Box]) -> Callable[[list[int]], Knots]:
        """Return a function that gives some of the knots that the boxes use, by their numbers."""
        used = sorted({k for box in boxes for pair in box.leaf.steps for k in pair})
        knots, place = self.multipliers.knots(used) if used else None, {k: i for i, k in enumerate(used)}

        def some(numbers: list[int]) -> Knots:
            assert knots is not None
            return knots.rows_of([place[k] for k in numbers])

        return some

    # ------------------------------------------------------------ what is known about clients

    def classify(
        self, low: Floats, high: Floats, paid: Mask, volunteer: Mask, near: Floats, far: Floats
    ) -> tuple[Known, Mask]:
        """Paid, volunteers and upper bounds of ``D_k``, and which boxes contradict themselves: they are empty."""
        numbers = self.numbers
        ceiling, least = far, near
        if self.space.has_sampling:
            half = 0.5 * self.space.client_sampling
            least = np.nextafter(least + np.asarray(numbers.low(half / numbers.of(high))), -np.inf)
            below = np.where(low > 0.0, low, 1.0)
            most = np.where(low > 0.0, np.asarray(numbers.high(half / numbers.of(below))), np.inf)
            ceiling = np.nextafter(ceiling + most, np.inf)
        too_far = least > np.nextafter(self.theta_high * high, np.inf)
        near_enough = ceiling <= np.nextafter(self.theta_low * low, -np.inf)
        large = self.alpha_low > high
        empty = np.asarray((too_far & (paid | near_enough | large)).any(axis=1))
        empty |= (volunteer & large).any(axis=1)
        now = volunteer | too_far
        if now.any():
            owned = numbers.total(numbers.where(now, self.space.alpha, numbers.of(0.0)))
            empty |= (np.asarray(numbers.low(owned)) > high)[:, 0]
        return Known((paid | large | near_enough) & ~now, now, ceiling, large & ~now), empty

    def _signs(self, ends: list[End], known: Known) -> list[str]:
        """Return the errors in the multipliers of each box, as sentences."""
        wrong = [""] * len(known.paid)
        for end in ends:
            for i, who in end.negative(known.volunteer):
                wrong[i] = f"client {who} has a negative multiplier and is no volunteer"
            for i in np.flatnonzero(np.asarray(self.numbers.low(end.weight))[:, 0] <= 0.0).tolist():
                wrong[i] = "the weight T of ||m||^2 is not positive"
        return wrong

    # ------------------------------------------------------------ the bound

    def _constant(self, end: End, ell: Any) -> Any:
        goal, numbers = self.goal, self.numbers
        value = ell * self.space.loss_constant - end.omega * self.certificate.lower
        if math.isfinite(goal.budget):
            value = value - end.beta * numbers.of(goal.budget)
        if math.isfinite(goal.max_loss):
            value = value - end.gamma * numbers.of(goal.max_loss)
        return value

    def _margin(
        self, low: Floats, high: Floats, ends: list[End], known: Known, between: Any, size: Floats
    ) -> tuple[Floats, Mask]:
        """Lower bounds of ``g`` on ``[low, high]``, and whether the objective has a positive weight at both ends."""
        n, space = self.numbers, self.space
        totals = a, b = n.of(low), n.of(high)
        h = b - a
        weights = [self.multipliers.weights(e.omega, e.beta, e.gamma) for e in ends]
        ell, nu = [w[0] for w in weights], [w[1] for w in weights]
        # an affine function below nu(S) / S: the chord where that is concave, else the tangent in the middle
        bend = n.positive(h * (b * nu[0] - a * nu[1])) / ((a + b) * (a + b))
        unpaid = [(nu[i] - bend) / totals[i] for i in range(2)]
        tilt = h * (b * ell[0] - a * ell[1]) / (a * b)
        tilts = (tilt / a, tilt / b)
        most, least = n.maximum(*tilts), -n.maximum(-tilts[0], -tilts[1])
        sums = self.client_sums(Weights(totals, h, ell, nu, unpaid, most, least), ends, known)
        scattered = [self._scattered(ends[i], ell[i], nu[i]) for i in range(2)]
        g = [
            self._constant(ends[i], ell[i])
            + ends[i].level
            - ends[i].pull_square
            + sums.held[i]
            + (scattered[i] - sums.brought[i]) / s
            - sums.top[i]
            for i, s in enumerate(totals)
        ]
        step = ends[1].part - ends[0].part
        lightest = -n.maximum(-ends[0].weight, -ends[1].weight)
        heaviest = n.maximum(ends[0].weight, ends[1].weight)
        # T_a T_b / T(S) lies between the lighter and the heavier end; a Gram matrix may make the square negative by rounding
        apart = step * step * between
        apart = apart if space.defect else n.positive(apart)
        apart = apart * n.where(np.asarray(n.low(apart)) >= 0.0, lightest, heaviest)
        late = [b * (sums.brought[0] - scattered[0]), a * (sums.brought[1] - scattered[1])]
        late = h * (late[0] - late[1]) / (a * b) - sums.curve
        late = -n.maximum(-late / a, -late / b)
        delta = apart + h * sums.drift + late - sums.top_bend
        value = parabola(*(np.asarray(n.low(x)) for x in (*g, delta)))
        certain = np.minimum(n.low(ends[0].omega), n.low(ends[1].omega)) > 0.0
        lost = self.fuzz(self.longest(low), size)
        return np.where(sums.helpless, -np.inf, self._less(value, heaviest, lost)), np.asarray(certain)

    def client_sums(self, at: Weights, ends: list[End], known: Known) -> Sums:
        """Return every client's part of ``g``, added up; :mod:`._bound_check_kernels` holds the same for one box in one pass."""
        n, space = self.numbers, self.space
        paid, volunteer, ceiling, wide = known.paid, known.volunteer, known.ceiling, known.wide
        alpha, theta, diagonal, noise = space.alpha, space.theta, space.diagonal, space.noise
        totals, h, ell, nu, zero = at.totals, at.h, at.ell, at.nu, n.of(0.0)
        rows = [end.rows for end in ends]
        excess = [n.where(paid, zero, n.positive(rows[i] - alpha * at.unpaid[i])) for i in range(2)]
        charged = (np.asarray(n.high(excess[0])) > 0.0) | (np.asarray(n.high(excess[1])) > 0.0)
        helpless = np.asarray((charged & ~np.isfinite(ceiling)).any(axis=1, keepdims=True))
        roof = n.maximum(n.of(np.where(charged & np.isfinite(ceiling), ceiling, 0.0)), theta * totals[1])
        hull = [s * (roof - theta * s) for s in totals]
        psi = [
            ends[i].level
            - 2.0 * ends[i].slope
            + 2.0 * ell[i] * space.target_pull
            - nu[i] * (theta * s - diagonal)
            - (ell[i] / s) * noise
            + excess[i] * hull[i] / alpha
            for i, s in enumerate(totals)
        ]
        # psi(S) = chord + sigma (1 - sigma) bump(S), with bump between dent and bump
        swing = h * (nu[1] - nu[0]) * theta - (excess[1] - excess[0]) * (hull[1] - hull[0]) / alpha
        arch = theta * h * h / alpha
        bump = swing + at.most * noise + arch * n.maximum(*excess)
        dent = swing + at.least * noise - arch * n.maximum(-excess[0], -excess[1])
        lowest = np.minimum(n.low(psi[0]), n.low(psi[1]))
        surely = volunteer | (lowest + np.nextafter(0.25 * np.minimum(n.low(dent), 0.0), -np.inf) > 0.0)
        highest = np.maximum(n.high(psi[0]), n.high(psi[1]))
        never = ~volunteer & (highest + np.nextafter(0.25 * np.maximum(n.high(bump), 0.0), np.inf) < 0.0)
        curve = n.total(alpha * n.where(never | wide, zero, n.where(surely, bump, n.positive(bump))))
        gains = [n.where(volunteer, x, n.positive(x)) for x in psi]
        return Sums(
            [n.total(alpha * n.where(wide, zero, x)) for x in gains],
            curve,
            [n.total(rows[i] * (diagonal - theta * s)) for i, s in enumerate(totals)],
            n.total((rows[1] - rows[0]) * theta),
            # a client that owns more than the total brings any share up to 1, and all of them together no more than 1
            [n.of(_largest(n.high(x), wide)) for x in gains],
            n.of(_largest(n.high(n.positive(bump)), wide & ~never)),
            helpless,
        )

    def _scattered(self, end: End, ell: Any, nu: Any) -> Any:
        """``N = ell A + a (sum P - nu) / 2``, exactly 0 where nothing depends on 1/S alone."""
        n, space = self.numbers, self.space
        if not self.space.has_sampling:
            return n.of(0.0)
        return ell * space.sampling + 0.5 * space.client_sampling * (end.rows_total - nu)

    def _less(self, value: Floats, weight: Any, fuzz: Floats) -> Floats:
        """``value`` minus what ``T ||m - c||^2`` may be below 0 because the inner products are rounded."""
        if not self.space.defect:
            return value
        lost = np.nextafter(np.asarray(self.numbers.high(weight)) * fuzz, np.inf)
        return np.asarray(np.nextafter(value - lost, -np.inf))

    def fuzz(self, one: Floats | float, other: Floats | float) -> Floats:
        """Above ``defect ||x - y||^2`` for weights x and y of these Euclidean lengths at most."""
        return np.asarray(self.space.defect * (one + other) ** 2 * UPWARD)

    def longest(self, low: Floats) -> Floats:
        """Above the length of all shares z at totals from ``low`` on: ``||z||^2 <= max z_k sum z_k``, ``z_k <= alpha_k / low``."""
        most = float(np.max(self.numbers.high(self.space.alpha)))
        return np.sqrt(np.minimum(most / low, 1.0)) * UPWARD

    def _from_zero(self, high: Floats, knots: Knots, constant: Mask, known: Known) -> list[tuple[float, str]]:
        """Return the bound on ``(0, high]`` with constant multipliers and ``z_k <= 1`` for the caps."""
        n, space = self.numbers, self.space
        end = self.multipliers.end(
            high, knots, knots, np.ones(high.shape, dtype=bool), n.of(np.zeros(high.shape))
        )
        ell, nu = self.multipliers.weights(end.omega, end.beta, end.gamma)
        b, rows = n.of(high), end.rows
        scattered = self._scattered(end, ell, nu)
        bad = (knots.rows < 0.0).any(axis=1, keepdims=True) | (np.asarray(n.low(end.weight)) <= 0.0)
        if space.has_sampling:
            bad |= np.asarray(n.low(scattered)) < 0.0
        # nu >= 0, so that nothing is charged where a multiplier is exactly 0; rounding must not say otherwise, since D_k has no
        # bound near 0 where samples matter
        free = known.paid | (knots.rows == 0.0)
        excess = n.where(free, n.of(0.0), n.positive(rows - space.alpha * (nu / b)))
        charged = np.asarray(n.high(excess)) > 0.0
        bad |= (charged & ~np.isfinite(known.ceiling)).any(axis=1, keepdims=True)
        roof = n.maximum(
            n.of(np.where(charged & np.isfinite(known.ceiling), known.ceiling, 0.0)), space.theta * b
        )
        psi = (
            end.level
            - 2.0 * end.slope
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
        worst = np.maximum(np.asarray(n.high(psi)).max(axis=1, keepdims=True), 0.0)
        margin = np.nextafter(np.asarray(n.low(value)) - worst, -np.inf)
        margin = np.where(bad, -np.inf, self._less(margin, end.weight, self.fuzz(1.0, knots.size)))
        certain = np.asarray(n.low(end.omega)) > 0.0
        out = []
        for row in range(len(high)):
            here, why = float(margin[row, 0]), ""
            if not (here > 0.0 or (here == 0.0 and certain[row, 0])):
                why = f"its multipliers prove {here:.3g}, not 0"
            if not constant[row, 0]:
                here, why = -math.inf, "an interval from 0 needs constant multipliers"
            out.append((here, why))
        return out

    def ball(self, step: Step, rows: Any, near: Floats, far: Floats) -> tuple[Floats, Floats]:
        """Bounds of ``d_k^2`` narrowed to the points of the box below ``lower``: ``T ||m - c(S)||^2 < -g`` with c(S) between the
        ends' centres; for some rows of a step."""
        n, space = self.numbers, self.space
        first, second, between = step.first, step.second, step.between[rows]
        weights, parts = [end.weight[rows] for end in step.ends], [end.part[rows] for end in step.ends]
        lightest = -n.maximum(-weights[0], -weights[1])
        # where inner products are not those of vectors to the last digit, distances are taken in K + defect I, which is a metric
        size, share = step.size[rows], self.longest(step.low[rows])
        of_mixtures, of_centres = n.of(self.fuzz(share, size)), n.of(self.fuzz(size, size))
        to_client, from_client = n.of(self.fuzz(1.0, size)), n.of(self.fuzz(1.0, share))
        radius = n.root(n.of(-step.margin[rows]) / lightest + of_mixtures)
        above, below = [], []
        for part in parts:
            rest = 1.0 - part
            inner = rest * first.inner[rows] + part * second.inner[rows]
            square = rest * first.square[rows] + part * second.square[rows] - rest * part * between
            gap = n.positive(space.diagonal - 2.0 * inner + square)
            above.append(n.root(gap + to_client))
            below.append(n.root(gap))
        furthest = n.maximum(above[0], above[1])
        # c(S) lies on the segment between the ends' centres
        move = parts[1] - parts[0]
        apart = n.root(n.positive(move * move * between) + of_centres)
        closest = n.where(step.same[rows], below[0], n.positive(0.5 * (below[0] + below[1] - apart)))
        most, left = furthest + radius, n.positive(closest - radius)
        return np.maximum(near, n.low(left * left - from_client)), np.minimum(far, n.high(most * most))


@dataclass(frozen=True, eq=False)
class Step:
    """One step of many leaves: what it was made of, its margins, and what is wrong with its multipliers."""

    low: Floats
    first: Knots
    second: Knots
    ends: list[End]
    between: Any
    same: Mask
    size: Floats
    margin: Floats
    certain: Mask
    wrong: list[str]


def _some(rows: Any, at: Any) -> Any:
    """Rows at increasing places; all of them without a copy."""
    return rows if len(at) == len(rows) else rows[at]


def _largest(values: Any, among: Mask) -> Floats:
    """Return the largest of some entries of each row, at least 0."""
    return np.asarray(np.where(among, np.asarray(values), 0.0).max(axis=1, keepdims=True, initial=0.0))
