"""The checker of lower bounds for capped offers: does this certificate prove that no plan has an objective below ``lower``?

Independent of every solver, and rigorous: the formulas of ``docs/theory/offers.md`` ("The bound") evaluated on outward-rounded
enclosures (:mod:`.numbers`) of the game's own numbers (:mod:`.space`). The origin is ``mu_N``, so the loss is ``W ||m||^2 - 2
<m, pull> + const``.

The tree is walked from its root, all plans with ``S in [least, 1]``. At every node the named knots are used one after the
other: each shows that no better plan is left, or narrows the bounds of ``d_k^2`` for what follows. A region counts as empty
only if its bounds contradict each other beyond rounding. Totals below ``least`` are ruled out by the floor or by the sampling
term of the loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import VerificationError
from ..model import Array, GameModel, Objective
from ..results.certificate import Knot
from ..results.plan_certificate import Cut, PlanCertificate
from .numbers import IntervalArithmetic, Intervals
from .space import Centre, Space

__all__ = ["PlanVerdict", "check_plan_bound"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PlanVerdict:
    """Result of a check: ``passed``, the proved bound, and the first failing leaf as a sentence."""

    passed: bool
    lower: float
    leaves: int
    message: str

    def __bool__(self) -> bool:
        return self.passed


def check_plan_bound(
    game: GameModel,
    goal: Objective,
    certificate: PlanCertificate,
    outside: Array | None = None,
    totals: tuple[float, float] = (0.0, 1.0),
) -> PlanVerdict:
    """Check every node; returns a verdict rather than raising: ``lower`` is the certificate's if everything holds, else ``-inf``.

    ``totals`` restricts the claim to plans with a total in this interval.
    """
    arithmetic = IntervalArithmetic()
    with arithmetic.context():
        try:
            return _Checker(game, goal, certificate, outside, totals, arithmetic).check()
        except VerificationError as error:
            return PlanVerdict(False, -math.inf, 0, str(error))


def _up(x: Any) -> Any:
    return np.nextafter(x, np.inf)


def _down(x: Any) -> Any:
    return np.nextafter(x, -np.inf)


@dataclass(frozen=True, eq=False)
class _Region:
    low: float
    high: float
    least: Floats
    most: Floats
    near: Floats
    far: Floats
    cut_low: Floats
    cut_high: Floats


@dataclass(frozen=True, eq=False)
class _Products:
    """A knot with its enclosed products."""

    omega: float
    beta: float
    gamma: float
    level: float
    ell: Intervals
    nu: Intervals  # nu_1
    direct: Intervals  # nu_2
    rows: Floats  # P
    keep: Floats  # X
    weight: Intervals  # T
    centre: Centre
    square: Intervals  # ||c||^2
    slope: Intervals  # <mu_k, T c - M>


class _Checker:
    def __init__(
        self,
        game: GameModel,
        goal: Objective,
        certificate: PlanCertificate,
        outside: Array | None,
        totals: tuple[float, float],
        numbers: IntervalArithmetic,
    ) -> None:
        if not math.isfinite(certificate.lower):
            raise VerificationError("the claimed lower bound is not a finite number")
        self.numbers, self.goal, self.certificate, self.outside = numbers, goal, certificate, outside
        self.space = space = Space(game, goal, numbers)
        self.count, self.totals = space.count, totals
        if game.loss.sampling and not goal.finite_sample:
            raise VerificationError("a loss with its own sampling term is checked with finite_sample only")
        of = numbers.of
        owned = numbers.total(of(game.sizes))
        self.client_sampling = of(game.sampling_constant) / (of(game.loss_constant) * owned)
        self.loss_sampling = space.square_weight * self.client_sampling
        if outside is not None and outside.shape != (self.count,):
            raise VerificationError("there is not one outside utility per client")
        self._known: dict[int, _Products] = {}

    # ------------------------------------------------------------ the tree

    def check(self) -> PlanVerdict:
        """Walk the tree; it covers everything because every cut hands both sides on.

        A bound of 0 needs no tree: losses and payments are never negative.
        """
        if self.certificate.lower <= 0.0 <= min(self.goal.loss_weight, self.goal.payment_weight):
            return PlanVerdict(True, self.certificate.lower, 0, "no plan has an objective below 0")
        self._small_totals()
        n, certificate = self.count, self.certificate
        root = _Region(
            float(certificate.least),
            float(self.totals[1]),
            np.zeros(n),
            np.ones(n),
            np.zeros(n),
            np.asarray(self.space.reach, dtype=np.float64),
            np.full(n, -np.inf),
            np.full(n, np.inf),
        )
        nodes = iter(certificate.nodes)
        stack, leaves = [root], 0
        while stack:
            region = stack.pop()
            node = next(nodes, None)
            if node is None:
                raise VerificationError("the tree ends before everything is covered")
            closed, region, reached = self._use(region, node.steps)
            if node.cut is not None:
                # a closed node may still be cut: its children are then walked for nothing
                stack.extend(reversed(self._sides(region, node.cut)))
                continue
            if not closed:
                where = f"S in [{region.low:.9g}, {region.high:.9g}]"
                return PlanVerdict(
                    False,
                    -math.inf,
                    leaves,
                    f"leaf {leaves}, {where}: its multipliers prove {reached:.3g}, not 0",
                )
            leaves += 1
        if next(nodes, None) is not None:
            raise VerificationError("the tree goes on after everything is covered")
        lower = certificate.lower
        return PlanVerdict(
            True, lower, leaves, f"no plan has an objective below {lower:.12g} ({leaves} leaves)"
        )

    def _small_totals(self) -> None:
        """Totals below ``least`` break the floor, or cannot be better than ``lower``, or break the cap on the loss."""
        goal, numbers, least = self.goal, self.numbers, float(self.certificate.least)
        if not 0.0 < least <= 1.0:
            raise VerificationError(f"the tree starts at a total of {least!r}")
        if least <= goal.min_total or least <= self.totals[0]:
            return
        # loss >= W dist^2 + (A' + min noise) / S, and the least distance is not negative
        sampling = float(numbers.low(self.loss_sampling)) + float(np.min(numbers.low(self.space.noise)))
        if sampling > 0.0:
            # sum_j w_j ||m - t_j||^2 >= sum_j w_j ||t_j - t||^2 with t their mean
            spread = float(numbers.low(self._spread_of_targets()))
            below = _down(_down(_down(sampling / least) + max(spread, 0.0)))
            if goal.payment_weight >= 0.0 and _down(goal.loss_weight * below) >= self.certificate.lower:
                return
            if below > goal.max_loss:
                return
        keeping = self._keeping_costs(least)
        if keeping > goal.budget or _down(goal.payment_weight * keeping) >= self.certificate.lower:
            return
        raise VerificationError(f"totals below {least:.9g} are not ruled out")

    def _keeping_costs(self, total: float) -> float:
        """Return the least cost of keeping all clients at a total or below it: ``sum_k (lam a / S + o_k)_+``."""
        if self.outside is None:
            return 0.0
        numbers, can_leave = self.numbers, np.isfinite(self.outside)
        drift = 0.5 * self.space.unit * self.client_sampling / numbers.of(total)
        each = numbers.positive(drift + numbers.of(self.outside[can_leave]))
        return float(numbers.low(numbers.total(each)))

    def _spread_of_targets(self) -> Any:
        """Return a lower bound of the loss over all mixtures, whatever they cost: from knot 0, if it is one of the plain kind."""
        if not self.certificate.knots:
            return self.numbers.of(0.0)
        knot = self.certificate.knots[0]
        if knot.budget or knot.loss_cap or len(knot.rows[0]) or len(knot.keep[0]) or not knot.objective > 0:
            return self.numbers.of(0.0)
        p, numbers, space = self._knot(0), self.numbers, self.space
        # loss >= W (2 <m, c> - ||c||^2) - 2 <m, pull> + const over the simplex
        weight = space.square_weight
        gain = 2.0 * (weight * p.centre.inner - space.target_pull)
        lowest = float(np.min(numbers.low(gain)))
        size = _up(_up(1.0 + p.centre.size) ** 2)
        return lowest - weight * p.square + space.loss_constant - weight * numbers.of(space.defect) * size

    def _sides(self, region: _Region, cut: Cut) -> list[_Region]:
        at, k = cut.at, cut.client
        if not math.isfinite(at):
            raise VerificationError("a cut is not at a finite number")
        if cut.axis == "total":
            if not region.low <= at <= region.high:
                raise VerificationError(f"a cut at {at!r} lies outside [{region.low!r}, {region.high!r}]")
            return [replace(region, high=at), replace(region, low=at)]
        if not 0 <= k < self.count:
            raise VerificationError(f"the tree cuts at client {k}, who does not exist")
        names = ("least", "most") if cut.axis == "share" else ("cut_low", "cut_high")
        above, below = getattr(region, names[0]).copy(), getattr(region, names[1]).copy()
        above[k], below[k] = max(above[k], at), min(below[k], at)
        return [replace(region, **{names[1]: below}), replace(region, **{names[0]: above})]

    # ------------------------------------------------------------ one region

    def _use(self, region: _Region, steps: tuple[int, ...]) -> tuple[bool, _Region, float]:
        """Return whether the knots close the region, the rest of it, and the value reached by the last one."""
        reached = -math.inf
        if self._is_empty(region):
            return True, region, math.inf
        for number in steps:
            p = self._knot(number)
            reached = self._margin(region, p)
            if reached >= 0.0:
                return True, region, reached
            region = self._ball(region, p, reached)
            if self._is_empty(region):
                return True, region, math.inf
        return False, region, reached

    def _eagerness(self, region: _Region) -> tuple[Floats, Floats]:
        """Bounds of ``D_k - theta_k S``."""
        numbers, theta = self.numbers, self.space.theta
        half = 0.5 * self.client_sampling
        of = numbers.of
        low = numbers.low(of(region.near) + half / of(region.high) - theta * region.high)
        high = numbers.high(of(region.far) + half / of(region.low) - theta * region.low)
        return np.maximum(low, region.cut_low), np.minimum(high, region.cut_high)

    def _is_empty(self, region: _Region) -> bool:
        numbers = self.numbers
        most = np.minimum(region.most, numbers.high(self.space.alpha / numbers.of(region.low)))
        low, high = self._eagerness(region)
        return bool(
            region.low > region.high
            or (low > high).any()
            or (region.near > region.far).any()
            or (region.least > most).any()
            or float(numbers.low(numbers.total(numbers.of(region.least)))) > 1.0
            or float(numbers.high(numbers.total(numbers.of(most)))) < 1.0
        )

    def _knot(self, index: int) -> _Products:
        if not 0 <= index < len(self.certificate.knots):
            raise VerificationError(f"there is no knot {index}")
        if index in self._known:
            return self._known[index]
        numbers, space, goal = self.numbers, self.space, self.goal
        knot = self.certificate.knots[index]
        values = (knot.objective, knot.budget, knot.loss_cap, knot.level, knot.direct)
        if not all(map(math.isfinite, values)):
            raise VerificationError(f"knot {index} holds numbers that are not finite")
        if min(knot.objective, knot.budget, knot.loss_cap, knot.direct) < 0.0:
            raise VerificationError(f"knot {index} has a negative multiplier")
        if (knot.budget > 0.0 and math.isinf(goal.budget)) or (
            knot.loss_cap > 0.0 and math.isinf(goal.max_loss)
        ):
            raise VerificationError(f"knot {index} has a multiplier for a constraint that there is not")
        rows, keep = (self._dense(index, part) for part in (knot.rows, knot.keep))
        if knot.centre[0] is not None:
            self._dense(index, knot.centre)
        elif not np.isfinite(knot.centre[1]).all():
            raise VerificationError(f"knot {index} holds numbers that are not finite")
        of = numbers.of
        ell = of(knot.objective) * of(goal.loss_weight) + of(knot.loss_cap)
        price = space.unit * (of(knot.objective) * of(goal.payment_weight) + of(knot.budget))
        direct = of(max(min(knot.direct, float(numbers.low(price))), 0.0))
        nu = numbers.positive(price - direct)
        # a retention multiplier may not exceed the price of the spend, nor count for who cannot leave
        allowed = np.zeros(self.count) if self.outside is None else np.isfinite(self.outside).astype(float)
        keep = np.clip(keep, 0.0, max(float(numbers.low(price)), 0.0)) * allowed
        pulls = (
            rows + 0.5 * keep
        )  # rounded: any number is as good, as long as the same one is used for M and T
        keep = 2.0 * (pulls - rows)
        keep = np.where(keep > 0.0, keep, 0.0)
        pulls_exact = of(rows) + 0.5 * of(keep)
        weight = numbers.positive(ell * space.square_weight + nu)  # a weight of exactly 0 is allowed
        if pulls.any():
            weight = weight + numbers.total(pulls_exact)
        centre = space.centre(_as_knot(knot.centre, space))
        places = np.flatnonzero((rows != 0.0) | (keep != 0.0))
        mixed = space.mixed(places, rows[places])
        if keep.any():
            mixed = mixed + 0.5 * space.mixed(places, keep[places])
        self._known[index] = _Products(
            knot.objective,
            knot.budget,
            knot.loss_cap,
            knot.level,
            ell,
            nu,
            direct,
            rows,
            keep,
            weight,
            centre,
            space.cross(centre, centre),
            weight * centre.inner - mixed,
        )
        return self._known[index]

    def _dense(self, index: int, part: tuple[Any, Any]) -> Floats:
        who, what = np.asarray(part[0]), np.asarray(part[1], dtype=np.float64)
        if len(who) != len(what) or len(np.unique(who)) != len(who) or not np.isfinite(what).all():
            raise VerificationError(f"knot {index} does not fit its clients")
        if len(who) and not (int(who.min()) >= 0 and int(who.max()) < self.count):
            raise VerificationError(f"knot {index} names a client who does not exist")
        out = np.zeros(self.count)
        out[who] = what
        return out

    # ------------------------------------------------------------ the bound

    def _margin(self, region: _Region, p: _Products) -> float:
        """Return a lower bound of g on the region."""
        numbers, space = self.numbers, self.space
        if not float(numbers.low(p.weight)) >= 0.0:
            return -math.inf
        low, high = self._eagerness(region)
        high = np.maximum(low, high)
        places = (low, np.clip(0.0, low, high), high)
        capped = numbers.low(space.alpha / numbers.of(region.high)) < region.most
        ends = (region.low, region.high)
        corners = [self._corners(region, p, s, places, capped, exact=False) for s in ends]
        exact = np.zeros(self.count, dtype=np.bool_)
        if (
            p.keep.any()
        ):  # both ways to count what clients stand to lose are valid; each client's better one is used
            others = [self._corners(region, p, s, places, capped, exact=True) for s in ends]
            exact = others[0].min(axis=(0, 1)) + others[1].min(axis=(0, 1)) > (
                corners[0].min(axis=(0, 1)) + corners[1].min(axis=(0, 1))
            )
            corners = [np.where(exact, new, old) for new, old in zip(others, corners, strict=True)]
        values = [self._sum_at(p, s, all_) for s, all_ in zip(ends, corners, strict=True)]
        # what is nowhere the least corner may fall below its chord as far as it lies above the least one
        spare = np.minimum(*(np.maximum(_down(all_ - all_.min(axis=(0, 1))), 0.0) for all_ in corners))
        dev = self._deviation(region, p, places, capped, spare, exact)
        return float(_down(min(values) - dev))

    def _corners(
        self, region: _Region, p: _Products, s: float, places: Any, capped: Any, *, exact: bool
    ) -> Floats:
        """Lower bounds of what clients add at a total: either end of every share, three places of every eagerness.

        With outside options a share is counted with ``min(D_k, theta_k S) = theta_k S - (-f_k)_+``, or with its least value.
        """
        numbers, space, of = self.numbers, self.space, self.numbers.of
        total = of(s)
        psi = p.level - 2.0 * p.slope + 2.0 * (p.ell * space.target_pull)
        psi = psi - p.nu * (space.theta * total - space.diagonal) - p.ell * space.noise / total
        direct = p.direct
        if p.keep.any():
            psi = psi - of(p.keep) * (space.theta * total if exact else self._drawn(region, total))
            direct = direct - of(p.keep) if exact else direct
        upper = numbers.where(capped, space.alpha / total, of(region.most))
        # both ends of every share, and the three places of every eagerness, at once
        z = Intervals(
            np.stack([region.least, upper.low])[:, None], np.stack([region.least, upper.high])[:, None]
        )
        f = of(np.stack(places)[None])
        per_share = numbers.where(f.low > 0.0, p.nu * f, -(direct * f)) - psi
        return np.asarray(numbers.low(z * per_share - p.rows * f))

    def _sum_at(self, p: _Products, s: float, corners: Floats) -> float:
        """Return a lower bound of g at a total, of which clients add the least of their corners."""
        numbers, space, of = self.numbers, self.space, self.numbers.of
        total = of(s)
        half = 0.5 * self.client_sampling / total
        constant = p.ell * (space.loss_constant + self.loss_sampling / total) - p.nu * half
        constant = constant + numbers.total(of(p.rows) * (space.diagonal + half - space.theta * total))
        if p.keep.any() and self.outside is not None:
            o = of(np.where(np.isfinite(self.outside), self.outside, 0.0)) / space.unit
            constant = constant + numbers.total(of(p.keep) * (0.5 * space.diagonal + half + o))
        constant = constant - of(p.omega) * of(self.certificate.lower)
        if math.isfinite(self.goal.budget):
            constant = constant - of(p.beta) * of(self.goal.budget)
        if math.isfinite(self.goal.max_loss):
            constant = constant - of(p.gamma) * of(self.goal.max_loss)
        # inner products of a Gram matrix are those of vectors up to a defect: ||m - c||^2 >= -defect (1 + |weights|)^2
        size = _up(_up(1.0 + p.centre.size) ** 2)
        constant = constant + p.level - p.weight * (p.square + of(space.defect) * size)
        return float(numbers.low(constant + numbers.total(of(corners.min(axis=(0, 1))))))

    def _drawn(self, region: _Region, total: Intervals) -> Intervals:
        """``min(D_k^-, theta_k S)``."""
        numbers = self.numbers
        least = numbers.of(region.near) + 0.5 * self.client_sampling / numbers.of(region.high)
        here = self.space.theta * total
        return Intervals(np.minimum(least.low, here.low), np.minimum(least.high, here.high))

    def _deviation(
        self, region: _Region, p: _Products, places: Any, capped: Any, spare: Floats, exact: Any
    ) -> float:
        """An upper bound of how far g lies below its chord; ``spare``: how far corners lie above the least one at both ends."""
        numbers, space, of = self.numbers, self.space, self.numbers.of
        if region.high <= region.low:
            return 0.0
        a0, b0 = of(region.low), of(region.high)
        gap = 1.0 / numbers.root(a0) - 1.0 / numbers.root(b0)
        of_v = gap * gap
        of_v2 = 0.75 * (b0 - a0) * (b0 - a0) / (a0 * a0 * a0 * a0)
        at_least = p.ell * space.noise * of(region.least) * of_v
        at_most = p.ell * space.noise * of(region.most) * of_v
        f = np.stack(places)
        direct = p.direct - of(np.where(exact, p.keep, 0.0))
        eager = p.nu * of(np.maximum(f, 0.0)) + direct * of(np.maximum(-f, 0.0))
        per_v = 2.0 * p.slope - 2.0 * (p.ell * space.target_pull) - p.level - p.nu * space.diagonal + eager
        if p.keep.any():
            held = of(np.where(exact, 0.0, p.keep))  # the others' part, keep alpha theta, does not move
            per_v = per_v + held * (of(region.near) + 0.5 * self.client_sampling / b0)
        moving = numbers.positive(space.alpha * per_v) * of_v + p.ell * space.alpha * space.noise * of_v2
        falls = numbers.maximum(
            numbers.positive(at_least - of(spare[0])),
            numbers.positive(numbers.where(capped, moving, at_most) - of(spare[1])),
        )
        clients = of(numbers.high(falls).max(axis=0))
        common = p.ell * self.loss_sampling + 0.5 * self.client_sampling * (
            numbers.total(of(p.rows)) + numbers.total(of(p.keep)) - p.nu
        )
        return float(numbers.high(numbers.total(clients) + numbers.positive(common) * of_v))

    def _ball(self, region: _Region, p: _Products, reached: float) -> _Region:
        """Bounds of ``d_k^2`` from ``T ||m - c||^2 < -g``."""
        numbers, space, of = self.numbers, self.space, self.numbers.of
        if not (math.isfinite(reached) and float(numbers.low(p.weight)) > 0.0):
            return region
        size = _up(_up(1.0 + p.centre.size) ** 2)
        room = of(-reached) / p.weight + 2.0 * of(space.defect) * size
        radius = numbers.root(room)
        squares = space.diagonal - 2.0 * p.centre.inner + p.square
        squares = Intervals(squares.low, squares.high + 2.0 * _up(space.defect * size))
        gaps = numbers.root(numbers.positive(squares))
        inner = numbers.positive(gaps - numbers.high(radius))
        outer = gaps + numbers.high(radius)
        # distances of vectors that the inner products stand for only up to the defect
        slack = _up(4.0 * space.defect * size)
        return replace(
            region,
            near=np.maximum(region.near, np.maximum(_down(numbers.low(inner * inner) - slack), 0.0)),
            far=np.minimum(region.far, _up(numbers.high(outer * outer) + slack)),
        )


def _as_knot(centre: tuple[Any, Any], space: Space) -> Knot:
    nobody = np.zeros(0, dtype=np.int64)
    if centre[0] is None:
        if space.kind != "features" or len(centre[1]) != len(space._origin):
            raise VerificationError("a centre in feature space does not fit the game")
        # any point serves: the bound holds for each
        support, values = None, np.asarray(centre[1]) + space._origin
    else:
        support, values = np.asarray(centre[0], dtype=np.int64), np.asarray(centre[1])
    return Knot(1.0, 0.0, 0.0, 0.0, 0.0, nobody, np.zeros(0), support, values)
