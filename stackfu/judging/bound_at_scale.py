"""The checker of lower bounds for very many clients: one pass over them per step of a leaf, in intervals, features never copied.

The formula is that of :class:`.bound_formula.Checker`, box by box. Only the sums over clients (:mod:`._bound_check_kernels`) and
the enclosure of the game (:mod:`.large_space`) differ. Clients that own more than a box's largest total keep
their caps ``z_k <= alpha_k / S``: this loses a little on boxes of very small totals, nothing elsewhere.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import VerificationError
from ..model import GameModel, Objective
from ..results.certificate import LeaderCertificate
from .bound_formula import Checker, Known, Step, Sums, Weights, verdict_on
from .bound_multipliers import End, Knots
from .bound_verdict import BoundVerdict
from .cover import Box, boxes_of
from .large_space import LargeSpace
from .numbers import IntervalArithmetic, Intervals

__all__ = ["ScaleChecker"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
#: Number of knots with stored products: up to this many clients in all, and at least a few (a leaf needs two at a time).
MOST_KEPT, FEWEST_KEPT = 4_000_000, 4


class ScaleChecker:
    """The game read once, for any number of certificates."""

    def __init__(self, game: GameModel, goal: Objective) -> None:
        self.numbers, self.goal = IntervalArithmetic(), goal
        self.unreadable = ""
        self._streams: _Streams | None = None
        with self.numbers.context():
            try:
                self.space = LargeSpace(game, goal, self.numbers)
            except VerificationError as error:
                self.unreadable = str(error)

    def check(self, certificate: LeaderCertificate) -> BoundVerdict:
        """Check every leaf up to the first that fails: ``lower`` is ``certificate.lower`` if everything holds, else ``-inf``."""
        if self.unreadable:
            return BoundVerdict(False, -math.inf, 0, -math.inf, self.unreadable)
        with self.numbers.context():
            streams = self._streams
            if streams is None or streams.certificate.knots is not certificate.knots:
                streams = self._streams = _Streams(self.space, self.goal, certificate)
            streams.certificate = certificate
            try:
                boxes = boxes_of(self.space.count, self.goal.min_total, certificate)
                return verdict_on(certificate, ((box, streams.judge([box])[0]) for box in boxes))
            except VerificationError as error:
                return BoundVerdict(False, -math.inf, 0, -math.inf, str(error))


class _Streams(Checker):
    """The sums over clients in compiled passes, one box at a time."""

    def __init__(self, space: LargeSpace, goal: Objective, certificate: LeaderCertificate) -> None:
        super().__init__(space, goal, certificate)
        self._kept: OrderedDict[int, Knots] = OrderedDict()
        self._most_kept = max(FEWEST_KEPT, MOST_KEPT // self.clients)

    def load(self, boxes: list[Box]) -> Callable[[list[int]], Knots]:
        """Return a function that gives the knot of one number, read when it is first asked for."""

        def one(numbers: list[int]) -> Knots:
            (index,) = numbers
            if index not in self._kept:
                self._kept[index] = self.multipliers.knots([index])
            self._kept.move_to_end(index)
            knot = self._kept[index]
            while len(self._kept) > self._most_kept:
                self._kept.popitem(last=False)
            return knot

        return one

    def classify(
        self, low: Floats, high: Floats, paid: Mask, volunteer: Mask, near: Floats, far: Floats
    ) -> tuple[Known, Mask]:
        """Return the same by one compiled pass over the clients."""
        from ._bound_check_kernels import classify

        n, space, a, b = self.numbers, self.space, low.item(), high.item()
        more = less = 0.0
        if space.has_sampling:
            half = 0.5 * space.client_sampling
            less = n.low(half / n.of(b)).item()
            more = n.high(half / n.of(a)).item() if a > 0.0 else math.inf
        now_paid, now_volunteer, ceiling, owned, empty = classify(
            a,
            b,
            more,
            less,
            *map(_arrays, (space.alpha, space.theta)),
            paid[0],
            volunteer[0],
            near[0],
            far[0],
        )
        nobody = np.zeros(now_paid.shape, dtype=bool)  # keeps its cap, however much it owns
        known = Known(*(x[None, :] for x in (now_paid, now_volunteer, ceiling, nobody)))
        return known, np.array([empty or owned > b])

    def client_sums(self, at: Weights, ends: list[End], known: Known) -> Sums:
        """Return the same sums by one compiled pass over the clients."""
        from ._bound_check_kernels import client_sums

        space, nu, ell = self.space, at.nu, at.ell
        box = (*at.totals, at.h, *at.unpaid, at.h * (nu[1] - nu[0]), at.most, at.least)
        weights = [
            (end.one, end.two, end.level, nu[i], ell[i], ell[i] / at.totals[i]) for i, end in enumerate(ends)
        ]
        scalars = _pairs((*box, *weights[0], *weights[1]))
        sums, usable = np.zeros((6, 2)), bool(np.isfinite(scalars).all())
        if usable:
            first, second = ends[0].first, ends[0].second
            sums, usable = client_sums(
                scalars[: len(box)],
                np.ascontiguousarray(scalars[len(box) :].reshape(2, -1, 2)),
                np.array([(end.rest[0, 0], end.share[0, 0]) for end in ends]),
                _arrays(space.alpha, space.theta, space.diagonal, space.target_pull, space.noise),
                (first.rows[0], second.rows[0]),
                _arrays(first.inner[0], second.inner[0], first.mixed[0], second.mixed[0]),
                known.paid[0],
                known.volunteer[0],
                known.ceiling[0],
            )
        found = [Intervals([[low]], [[high]]) for low, high in sums]
        nothing = self.numbers.of(0.0)
        return Sums(
            found[:2], found[2], found[3:5], found[5], [nothing, nothing], nothing, np.array([[not usable]])
        )

    def ball(self, step: Step, rows: Any, near: Floats, far: Floats) -> tuple[Floats, Floats]:
        """Return the same bounds by one compiled pass over the clients."""
        from ._bound_check_kernels import distances_in_ball

        n, space = self.numbers, self.space
        first, second, ends, between = step.first, step.second, step.ends, step.between
        lightest = -n.maximum(-ends[0].weight, -ends[1].weight)
        radius = n.root(n.of(-step.margin) / lightest)
        squares = [
            (1.0 - end.part) * first.square + end.part * second.square - (1.0 - end.part) * end.part * between
            for end in ends
        ]
        move = ends[1].part - ends[0].part
        apart = n.of(0.0) if step.same[0, 0] else n.root(n.positive(move * move * between))
        lower, upper = distances_in_ball(
            np.array(
                [_pairs((1.0 - e.part, e.part, square)) for e, square in zip(ends, squares, strict=True)]
            ),
            float(np.nextafter(0.5 * n.high(apart).item(), np.inf)),
            n.high(radius).item(),
            0.0,
            _arrays(space.diagonal, first.inner[0], second.inner[0]),
            near[0],
            far[0],
        )
        return np.asarray(lower)[None, :], np.asarray(upper)[None, :]


def _pairs(scalars: Sequence[Any]) -> Floats:
    """Return the ends of some intervals, (n, 2)."""
    return np.array([(x.low.item(), x.high.item()) for x in scalars])


def _arrays(*many: Any) -> tuple[Floats, ...]:
    """Return the ends of arrays of intervals, lower and upper in turn."""
    return tuple(np.ascontiguousarray(end) for x in many for end in (x.low, x.high))
