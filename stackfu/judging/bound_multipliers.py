"""The multipliers that a lower bound is made of: knots as a certificate stores them, and lines between two of them.

Between two knots all multipliers are mixed with the same weights, and so is the pull ``T c``: what is needed of a line follows from
the products of its knots. :mod:`.bound_formula` says what they prove.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import VerificationError
from ..model import Objective
from ..results.certificate import Knot
from .space import Centre, Space

__all__ = ["End", "Knots", "Multipliers"]

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Knots:
    """Knots with their enclosed products: columns, and matrices over clients."""

    total: Floats
    omega: Floats
    beta: Floats
    gamma: Floats
    level: Floats
    rows: Floats
    rows_total: Any  # sum of P
    least_row: Floats  # smallest P_k
    inner: Any  # <mu_k, c>
    mixed: Any  # <mu_k, M>
    square: Any  # ||c||^2
    weight: Any  # T
    size: Floats  # of the weights that c is made of
    centres: list[Centre]

    def rows_of(self, at: Any) -> Knots:
        """Some of them, in any order."""
        picked = {field.name: getattr(self, field.name)[at] for field in fields(self)[:-1]}
        return Knots(**picked, centres=[self.centres[i] for i in at])


@dataclass(frozen=True, eq=False)
class End:
    """Multipliers at one end of every box, on the line through two knots."""

    numbers: Any
    first: Knots
    second: Knots
    rest: Floats  # shares of the knots
    share: Floats
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

    @property
    def rows(self) -> Any:
        """``P``."""
        return mix(self.numbers, self.rest, self.share, self.first.rows, self.second.rows)

    @property
    def slope(self) -> Any:
        """``<mu_k, T c - M>``."""
        a, b = (k.weight * k.inner - k.mixed for k in (self.first, self.second))
        return mix(self.numbers, self.rest, self.share, a, b)

    def negative(self, volunteer: Mask) -> Iterator[tuple[int, int]]:
        """Return the boxes in which a client that is no volunteer may have a negative multiplier, and the first such client."""
        first, second, share = self.first, self.second, self.share
        if first.least_row.min() >= 0.0 and second.least_row.min() >= 0.0:
            return
        least = np.where(
            share == 0.0, first.rows, np.where(share == 1.0, second.rows, np.minimum(first.rows, second.rows))
        )
        suspect = (least < 0.0) & ~volunteer
        if suspect.any():
            suspect &= ~(np.asarray(self.numbers.low(self.rows)) >= 0.0)
            for i in np.flatnonzero(suspect.any(axis=1)):
                yield int(i), int(np.flatnonzero(suspect[i])[0])


def mix(numbers: Any, rest: Floats, share: Floats, a: Any, b: Any) -> Any:
    """Between two knots; at a knot, what it says and nothing else."""
    a, b = numbers.of(a), numbers.of(b)
    if share.size == 1 and share.item() in (0.0, 1.0):
        return b if share.item() else a
    mixed = a * numbers.of(rest) + b * numbers.of(share)
    if share.size == 1:
        return mixed
    return numbers.where(share == 0.0, a, numbers.where(share == 1.0, b, mixed))


class Multipliers:
    """Knots of a certificate, and lines between them, in whatever arithmetic the space has."""

    def __init__(self, space: Space, goal: Objective, stored: Sequence[Knot]) -> None:
        self.space, self.goal, self.stored = space, goal, stored
        self.numbers, self.clients = space.numbers, space.count
        self._checked: set[int] = set()

    def _check(self, index: int) -> None:
        """Refuse a knot that does not fit the game or has a multiplier of wrong sign."""
        if not 0 <= index < len(self.stored):
            raise VerificationError(f"there is no knot {index}")
        goal, knot = self.goal, self.stored[index]
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

    def knots(self, indices: list[int]) -> Knots:
        """Knots of these numbers, checked when they are first asked for, with their products."""
        for index in indices:
            if index not in self._checked:
                self._check(index)
                self._checked.add(index)
        numbers, space = self.numbers, self.space
        knots = [self.stored[i] for i in indices]
        total, omega, beta, gamma, level = (
            np.array([[getattr(knot, name)] for knot in knots])
            for name in ("total", "objective", "budget", "loss_cap", "level")
        )
        rows = np.zeros((len(knots), self.clients))
        for i, knot in enumerate(knots):
            rows[i, knot.clients] = knot.rows
        products = space.products(knots)
        ell, nu = self.weights(*(numbers.of(x) for x in (omega, beta, gamma)))
        rows_total = numbers.total(numbers.of(rows))
        weight = ell * space.square_weight + nu + rows_total
        inner, mixed, square = (
            numbers.stack(part)
            for part in ([c.inner for c, _, _ in products], *zip(*(p[1:] for p in products), strict=True))
        )
        centres = [c for c, _, _ in products]
        size = np.array([[c.size] for c in centres])
        least_row = rows.min(axis=1, keepdims=True)
        return Knots(
            total, omega, beta, gamma, level, rows, rows_total, least_row, inner, mixed, square, weight, size, centres
        )  # fmt: skip

    def weights(self, omega: Any, beta: Any, gamma: Any) -> tuple[Any, Any]:
        """ell, the weight of the loss, and nu, the weight of the spend per squared distance."""
        goal = self.goal
        return omega * goal.loss_weight + gamma, self.space.unit * (omega * goal.payment_weight + beta)

    def between(self, first: Knots, second: Knots, same: Mask) -> Any:
        """``||c_i - c_j||^2``, exactly 0 between a knot and itself."""
        inner = self.space.crosses(first.centres, second.centres)
        return self.numbers.where(same, self.numbers.of(0.0), first.square + second.square - 2.0 * inner)

    def end(self, total: Floats, first: Knots, second: Knots, same: Mask, between: Any) -> End:
        """Multipliers at ``total`` on the line through two knots, not beyond them."""
        numbers = self.numbers
        span = second.total - first.total
        level = same | (span == 0.0)
        share = np.clip((total - first.total) / np.where(level, 1.0, span), 0.0, 1.0)
        share = np.where(level | np.isnan(share), 0.0, share)
        rest = 1.0 - share  # any non-negative weights will do, so the rounding of this one does not matter
        zero = numbers.of(np.zeros(share.shape))

        def between_knots(a: Any, b: Any) -> Any:
            return mix(numbers, rest, share, a, b)

        one, two = between_knots(first.weight, zero), between_knots(zero, second.weight)
        weight = between_knots(first.weight, second.weight)
        inside = (share > 0.0) & (share < 1.0)
        part = numbers.where(inside, two / (one + two), numbers.of(share))
        # ||w||^2 / T = (T_1 ||c_1||^2 + T_2 ||c_2||^2) - T_1 T_2 / T ||c_1 - c_2||^2
        square = between_knots(first.weight * first.square, second.weight * second.square)
        square = numbers.where(inside, square - one * part * between, square)
        return End(
            numbers,
            first,
            second,
            rest,
            share,
            between_knots(first.omega, second.omega),
            between_knots(first.beta, second.beta),
            between_knots(first.gamma, second.gamma),
            between_knots(first.level, second.level),
            between_knots(first.rows_total, second.rows_total),
            one,
            two,
            weight,
            part,
            square,
        )
