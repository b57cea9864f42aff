r"""The leader's problem at one total participation for any number of clients: solve for the few in doubt, price all the others.

At an optimum almost every client sits at 0 or at full, and almost every distance condition is either slack or belongs to a plain
volunteer; only about ``r`` shares lie between. So the interior-point method gets a working set of columns and rows. All
others are held where the last multipliers put them, and one pass over all clients prices them:

    cost_k - t      per unit of z_k: clients held at full that should leave, clients held at 0 that should come
    D_k - theta_k S     violated conditions, and clients wrongly held as volunteers

The worst violators join the working set (none leaves it: reselecting oscillates) until the gap between the point and the bound
that the multipliers prove for *all* clients is small enough, or a few rounds are over.

With very many clients a good share of them is in doubt at first, far more than a working set holds. Then samples come before
sifting (:func:`_narrow`): every client is put where the last prices say, and a sample of the doubtful ones, each representing many,
shows how all of them would move. The sample's part at the last prices is subtracted, so that the step vanishes exactly where
the prices are right for all clients: Newton's method with a second derivative from a sample. Plain sampling would not do, because
the mixture of n clients drawn at random is ``1 / n`` away from the ideal one, squared, and useful losses are smaller than that.

Whatever happens here, the multipliers are only ever used through the bound, which holds for any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...model import Array
from ..tolerances import SAFETY
from .interior_point import Columns, Constants, Goal, Rows, SlicePoint, solve_slice
from .knots import compact
from .payment_bound import BoundProblem
from .points import ArrayPoints

__all__ = ["Prices", "Restriction", "SliceAnswer", "sample", "solve_at"]

Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]

#: Up to this many clients all of them are in the working set, beyond that so many for each direction of the basis and a few more.
WHOLE, PER_DIRECTION, AT_LEAST = 300, 6, 200
SAMPLE = 2000
ROUNDS = 6
#: Samples of those in doubt before sifting, at most; how many times the working set each of them has, and how exactly it is solved.
LEVELS, BUNDLES, SAMPLED_TOLERANCE = 8, 4, 1e-7
#: Tolerance of the problem of all clients for the first prices if there are few, and of a first sample's if there are many.
GUESSED, FIRST_SAMPLED = 1e-3, 1e-5
#: Sifting begins with at most so many times the working set.
SIFTED = 3
#: Clients that are asked how far their prices moved.
PROBES = 2000
#: More values than this are not all sorted to find a quantile: those within so much of it in a sample are.
SORTED, WITHIN = 50_000, 0.05
#: Price of breaking a row, in units of the loss per squared distance.
PENALTY = 30.0


@dataclass(frozen=True, eq=False)
class Restriction:
    """Known facts in a box: paid clients (``e_k = 0``), clients at full, and ``D_k <= ceiling_k`` for points worth finding."""

    paid: Mask
    full: Mask
    ceiling: Array


@dataclass(frozen=True, eq=False)
class Prices:
    """Multipliers at one S; everything a bound needs, and what was computed with them for all clients."""

    total: float
    budget: float  # multiplier of the budget
    cap: float  # multiplier of the loss cap
    level: float  # t
    rows: Array  # P, all clients
    centre: Array  # a point of ``points``
    inner: Array  # <mu_k, c>
    pulled: Array  # <mu_k, sum_j P_j mu_j>
    square: float  # ||c||^2
    priced: bool = True  # False: only the centre means anything, or the prices are a sample's


@dataclass(frozen=True, eq=False)
class SliceAnswer:
    """Best point of the convex relaxation at S, multipliers, and the bound these prove at this S for all clients."""

    z: Array
    excess_unpaid: Array  # e_k
    prices: Prices
    value: float
    bound: float
    broken: float  # xi: by how much rows are broken
    rounds: int
    iterations: int


class Slice:
    """The data at one S, and passes over all clients."""

    def __init__(
        self,
        problem: BoundProblem,
        total: float,
        restriction: Restriction,
        penalty: float = PENALTY,
        held_back: float = 0.0,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        p = problem
        self.stop = stop
        self.problem, self.total, self.restriction, self.penalty = p, total, restriction, penalty
        self.cap = p.alpha / total
        self.wanted = p.theta * total  # against D_k
        self.shift = 0.5 * p.client_sampling / total
        self.pay = self.wanted - p.place.diagonal
        self.loss = p.noise / total if p.noise.any() else p.noise
        if p.loss_pull.any():
            self.loss = self.loss - 2.0 * p.loss_pull
        self.offset = self.shift - self.pay + held_back * self.wanted
        room = restriction.ceiling - self.wanted
        self.conditional = ~restriction.full & (room > 0)  # rows that can bind where better points are
        self.hulled = self.conditional & ~restriction.paid
        self.pay_constant = -self.shift
        self.loss_constant = p.loss_sampling / total

    # ---------------------------------------------------------------- pricing

    def distances(self, prices: Prices) -> Array:
        """``D_k - theta_k S`` at the prices' centre."""
        squares = np.maximum(self.problem.diagonal - 2.0 * prices.inner + prices.square, 0.0)
        return np.asarray(squares - self.wanted + self.shift)

    def price(
        self,
        budget: float,
        cap: float,
        rows: Array,
        centre: Array,
        *,
        inner: Array | None = None,
        square: float | None = None,
    ) -> tuple[Prices, Array, float]:
        """Multipliers completed, the advantage ``t - cost_k`` of every client, and the bound at this S."""
        p = self.problem
        inner = p.place.inner(centre) if inner is None else inner
        square = p.place.dot(centre, centre, inner) if square is None else square
        pulled = p.place.inner(p.place.combine(rows)) if rows.any() else np.zeros(len(rows))
        cost = self.cost(budget, cap, rows, inner, pulled)
        level = self._level(cost)
        prices = Prices(self.total, budget, cap, level, rows, centre, inner, pulled, square)
        advantage = level - cost
        return prices, advantage, self.bound(prices, advantage)

    def cost(self, budget: float, cap: float, rows: Array, inner: Array, pulled: Array) -> Array:
        """Coefficient of ``z_k`` in the Lagrangian."""
        p = self.problem
        loss, pay = p.loss_weight + cap, p.payment_weight + budget
        weight = loss + pay + float(rows.sum())
        beyond = np.where(self.hulled | self.restriction.full, np.maximum(rows - pay * self.cap, 0.0), 0.0)
        roof = np.maximum(self.restriction.ceiling - self.wanted, 0.0)
        return np.asarray(
            2.0 * (weight * inner - pulled) + pay * self.pay + loss * self.loss - beyond * roof / self.cap
        )

    def _level(self, cost: Array) -> float:
        """``t`` that maximises ``t - sum_k u_k (t - cost_k)_+``: the weighted quantile of the costs at 1."""
        free = ~self.restriction.full
        return filled_at(cost[free], self.cap[free], 1.0 - float(self.cap[~free].sum()))

    def bound(self, prices: Prices, advantage: Array) -> float:
        """Return the Lagrangian bound at this S."""
        p = self.problem
        loss, pay = p.loss_weight + prices.cap, p.payment_weight + prices.budget
        weight = loss + pay + float(prices.rows.sum())
        full = self.restriction.full
        out = prices.level - weight * prices.square + float(prices.rows @ self.offset)
        out += loss * self.loss_constant + pay * self.pay_constant + p.loss_weight * p.loss_constant
        out -= float(self.cap @ np.where(full, advantage, np.maximum(advantage, 0.0)))
        if np.isfinite(p.budget):
            out -= prices.budget * p.budget
        if np.isfinite(p.loss_cap):
            out -= prices.cap * (p.loss_cap - p.loss_constant)
        return float(out)

    # ---------------------------------------------------------------- the restricted program

    def solve(
        self, columns: Index, mass: Array, rows: Index, held: Array, counted: Array, tolerance: float
    ) -> SlicePoint:
        """Columns (each for clients of ``mass`` in all) and rows given; ``held`` is what all clients bring besides, and
        ``counted`` the weight with which their rows are counted into the payments besides."""
        p, cap, r = self.problem, self.cap, self.restriction
        points = p.place
        constants = Constants(
            mass=float(held.sum()),
            point=points.coordinates(points.combine(held)) if held.any() else np.zeros(points.rank),
            pay=float(held @ self.pay + counted @ self.offset) + self.pay_constant,
            loss=float(held @ self.loss) + self.loss_constant,
            square=float(counted.sum()),
            pull=points.coordinates(points.combine(counted)) if counted.any() else np.zeros(points.rank),
        )
        place = np.full(len(cap), -1, dtype=np.intp)
        place[columns] = np.arange(len(columns))
        among = place[rows]
        own = np.where(among >= 0, mass[among], cap[rows])  # what the row's client stands for
        # who is held at 0 has e_k = 0; who is held at full has no upper bound on it
        between = self.hulled[rows] & (among >= 0)
        alone = (among < 0) & (held[rows] > 0) & ~r.paid[rows]
        relief = np.where(r.full[rows] | alone | between, own, 0.0)
        hull = np.where(between, (r.ceiling[rows] - self.wanted[rows]) / own, np.inf)
        return solve_slice(
            Columns(points.rows(columns), mass, self.pay[columns], self.loss[columns]),
            Rows(points.rows(rows), self.offset[rows], relief, hull, np.where(between, among, -1)),
            constants,
            Goal(p.loss_weight, p.payment_weight, p.budget, p.loss_cap - p.loss_constant, self.penalty),
            tolerance=tolerance,
            stop=self.stop,
        )

    @property
    def out_of_time(self) -> bool:
        """Return True if the current answer must suffice."""
        return self.stop is not None and self.stop()


def solve_at(
    problem: BoundProblem,
    total: float,
    restriction: Restriction,
    *,
    guess: Prices | None = None,
    tolerance: float = 1e-8,
    enough: float = 0.0,
    stop_above: float = np.inf,
    penalty: float = PENALTY,
    held_back: float = 0.0,
    exact: bool = True,
    stop: Callable[[], bool] | None = None,
) -> SliceAnswer:
    """Solve at S to ``tolerance`` relative to the loss; stop sifting once value and bound are within ``enough``.

    ``stop_above`` is a bound that would do. ``held_back`` is a relative part of the thresholds ``theta_k S`` that the
    conditions leave unused, so that a profile made of the answer keeps them in spite of rounding. Multipliers are then still
    valid, a hair less sharp. Once ``stop`` says so, the answer is what there is. Unless the point has to be ``exact``, prices
    of very many clients may come with one that only samples reach.
    """
    slice_ = Slice(problem, total, restriction, penalty, held_back, stop)
    n = len(problem.alpha)
    working = AT_LEAST + PER_DIRECTION * problem.place.rank
    if n <= max(WHOLE, working):
        return _all_columns(slice_, tolerance)
    if (guess is None or not guess.priced) and n <= 2 * SAMPLE:
        guess = _all_columns(slice_, GUESSED).prices
    rough = guess is None or not guess.priced
    prices = guess if guess is not None and not rough else _sample_prices(slice_)
    iterations, doubt = 0, working
    if n > 10 * working and (rough or slice_.hulled.any()):
        answer, prices, doubt = _narrow(slice_, prices, rough, working, None if exact else enough, stop_above)
        if slice_.out_of_time or not exact:
            return answer
        iterations = answer.iterations
    sifted = _sift(slice_, prices, working, doubt, tolerance, enough, stop_above)
    return replace(sifted, iterations=sifted.iterations + iterations)


def _all_columns(slice_: Slice, tolerance: float) -> SliceAnswer:
    """Return every column; rows that cannot bind near better points come in only if they are broken."""
    restriction = slice_.restriction
    in_row = slice_.conditional | restriction.full
    columns = np.flatnonzero(~restriction.full)
    nobody = np.zeros(len(in_row), dtype=bool)
    iterations = rounds = 0
    while rounds < ROUNDS:
        rounds += 1
        answer, _ = _round(
            slice_, columns, slice_.cap[columns], np.flatnonzero(in_row), restriction.full, nobody, tolerance
        )
        iterations += answer.iterations
        broken = ~in_row & (slice_.distances(answer.prices) > answer.broken + SAFETY)
        if not broken.any() or slice_.out_of_time:
            break
        in_row |= broken
    return replace(answer, rounds=rounds, iterations=iterations)


def _round(
    slice_: Slice,
    columns: Index,
    mass: Array,
    rows: Index,
    at_full: Mask,
    volunteers: Mask,
    tolerance: float,
) -> tuple[SliceAnswer, Array]:
    """Return one interior-point solve, priced for all clients; with it what taking part a little more is worth to each of them."""
    problem, cap = slice_.problem, slice_.cap
    held, counted = np.where(at_full, cap, 0.0), np.where(volunteers, cap, 0.0)
    point = slice_.solve(columns, mass, rows, held, counted, tolerance)
    z = held
    z[columns] = point.z
    prices_rows = (problem.payment_weight + point.price) * counted
    prices_rows[rows] = point.row_price
    centre = problem.place.combine(z / z.sum())  # exactly a mixture, as certificates want it
    prices, advantage, bound = slice_.price(point.price, point.cap_price, prices_rows, centre)
    e = np.zeros(len(cap))
    e[rows] = point.e
    value = point.value + problem.loss_weight * problem.loss_constant
    return SliceAnswer(z, e, prices, value, bound, point.excess, 1, point.iterations), advantage


def _sift(
    slice_: Slice,
    guess: Prices,
    working: int,
    doubt: int,
    tolerance: float,
    enough: float,
    stop_above: float,
) -> SliceAnswer:
    """Solve for the ``doubt`` clients most in doubt at the guess, hold the others where it puts them; violators join and stay."""
    advantage, distances = _at_prices(slice_, guess)
    iterations = 0
    restriction, cap = slice_.restriction, slice_.cap
    fixed = restriction.full
    can_bind = slice_.conditional | fixed
    chosen = _enough_columns(_nearest(advantage, doubt, ~fixed), advantage, cap, fixed)
    at_full = fixed | (~chosen & (advantage > 0))
    in_row = _nearest(distances, working, can_bind)
    answer: SliceAnswer | None = None
    for round_ in range(1, ROUNDS + 1):
        # a client that is broken at 0 or between needs its column: e_k <= h_k z_k
        keen = slice_.hulled & (distances > 0)
        chosen = chosen | _largest(distances * cap, working, keen & ~chosen & ~at_full)
        at_full = at_full & (fixed | ~chosen)
        in_row = in_row | (chosen & keen)
        volunteers = at_full & ~restriction.paid & ~in_row & (distances > 0)
        columns = np.flatnonzero(chosen)
        new, advantage = _round(
            slice_, columns, cap[columns], np.flatnonzero(in_row), at_full, volunteers, tolerance
        )
        iterations += new.iterations
        distances = slice_.distances(new.prices)
        if answer is None or new.bound > answer.bound:
            answer = replace(new, rounds=round_, iterations=iterations)
        if new.value + slice_.penalty * new.broken - new.bound <= enough or new.bound >= stop_above:
            break
        if slice_.out_of_time:
            break
        wrong_column = ~chosen & ~fixed & (at_full != (advantage > 0))
        wrong_row = (
            ~in_row
            & (volunteers != (distances > new.broken))
            & ~(at_full & restriction.paid & (distances <= 0))
        )
        if not wrong_column.any() and not wrong_row.any():
            break
        chosen = chosen | _largest(np.abs(advantage) * cap, working, wrong_column)
        in_row = in_row | _largest(
            np.abs(distances) * np.where(volunteers, cap * new.prices.budget, 1.0), working, wrong_row
        )
    assert answer is not None
    return answer


def _at_prices(slice_: Slice, prices: Prices) -> tuple[Array, Array]:
    """Return each client's gain from a little more participation, and the excess of its distance over its threshold."""
    cost = slice_.cost(prices.budget, prices.cap, prices.rows, prices.inner, prices.pulled)
    return slice_._level(cost) - cost, slice_.distances(prices)


def _narrow(
    slice_: Slice, guess: Prices, rough: bool, working: int, enough: float | None, stop_above: float
) -> tuple[SliceAnswer, Prices, int]:
    """Return prices from samples of the doubtful clients, and their answer, until its bound is ``enough`` or few are doubtful.

    All clients are put where the last prices say, exactly. A sample of the doubtful ones then represents the movement of all: it
    enters the program, and what it brings at the last prices is taken out again. So a sample's error slows the steps down but is
    no error of what they lead to, as in Newton's method with a sampled second derivative. What is in doubt shrinks with the steps.
    """
    restriction, cap, problem = slice_.restriction, slice_.cap, slice_.problem
    n, fixed, penalty = len(cap), restriction.full, slice_.penalty
    can_bind = slice_.conditional | fixed
    rng = np.random.default_rng(n)
    probe = rng.integers(0, n, PROBES)
    advantage, distances = _at_prices(slice_, guess)
    doubt_column = doubt_row = n // (3 if rough else 10)
    best: SliceAnswer | None = None
    prices, iterations, last = guess, 0, -np.inf
    for level in range(1, LEVELS + 1):
        chosen = _nearest(advantage, doubt_column, ~fixed) | _nearest(distances, doubt_row, can_bind & ~fixed)
        chosen = _enough_columns(chosen, advantage, cap, fixed)
        columns, mass = _bundles(chosen, cap, BUNDLES * working, rng)
        rows = columns[can_bind[columns]]
        own = mass[can_bind[columns]]
        at_full = fixed | (advantage > 0)
        keen = at_full & ~restriction.paid & (distances > 0)
        held, counted = np.where(at_full, cap, 0.0), np.where(keen, cap, 0.0)
        held[columns] -= np.where(at_full[columns], mass, 0.0)
        counted[rows] -= np.where(keen[rows], own, 0.0)
        point = slice_.solve(columns, mass, rows, held, counted, SAMPLED_TOLERANCE)
        iterations += point.iterations
        z = held
        z[columns] += point.z
        centre = problem.place.combine(z / z.sum())
        inner, square = problem.place.inner(centre), problem.place.dot(centre, centre)
        before = advantage[probe], distances[probe]
        distances = problem.diagonal - 2.0 * inner + square - slice_.wanted + slice_.shift
        pay = problem.payment_weight + point.price
        volunteers = np.where(at_full & ~restriction.paid & (distances > 0), pay * cap, 0.0)
        prices, advantage, bound = slice_.price(
            point.price, point.cap_price, volunteers, centre, inner=inner, square=square
        )
        value = point.value + problem.loss_weight * problem.loss_constant
        if best is None or bound > best.bound:
            e = np.where(slice_.hulled | fixed, np.maximum(distances, 0.0), 0.0)
            at = compact(np.clip(z, 0.0, cap)), compact(e)
            best = SliceAnswer(*at, prices, value, bound, point.excess, level, iterations)
        if best.bound >= stop_above or slice_.out_of_time:
            break
        if enough is not None:
            if value + penalty * point.excess - best.bound <= enough:
                break
            if level > 2 and best.bound - last <= 0.1 * enough:
                break
        last = max(last, bound)
        # how far prices and distances still move says who remains in doubt
        moved = [
            _typical(after[probe] - old) for after, old in zip((advantage, distances), before, strict=True)
        ]
        doubt_column = int((np.abs(advantage) < moved[0]).sum())
        doubt_row = int((can_bind & (np.abs(distances) < moved[1])).sum())
        doubt_column, doubt_row = max(doubt_column, working), max(doubt_row, working)
        if max(doubt_column, doubt_row) <= SIFTED * working:
            break
    assert best is not None
    return replace(best, iterations=iterations), prices, min(doubt_column, SIFTED * working)


def filled_at(values: Array, weights: Array, wanted: float) -> float:
    """Return the value at which weights, added up in the order of the values, reach ``wanted``; the last one if they never do.

    >>> filled_at(np.array([3.0, 1.0, 2.0]), np.array([0.5, 0.25, 0.25]), 0.4)
    2.0
    """
    below = 0.0
    if len(values) > SORTED:
        # a sample tells between which values it lies; if that is right, only those between have to be sorted
        few = slice(None, None, len(values) // PROBES)
        order = np.argsort(values[few])
        filled = np.cumsum(weights[few][order])
        place = wanted / float(weights.sum()) * filled[-1]
        ends = np.searchsorted(filled, [place - WITHIN * filled[-1], place + WITHIN * filled[-1]])
        low, high = values[few][order[np.minimum(ends, len(order) - 1)]]
        under, inside = values < low, (values >= low) & (values <= high)
        before = float(weights[under].sum())
        if before < wanted <= before + float(weights[inside].sum()) and inside.any():
            values, weights, below = values[inside], weights[inside], before
    order = np.argsort(values, kind="stable")
    at = int(np.searchsorted(below + np.cumsum(weights[order]), wanted))
    return float(values[order[min(at, len(order) - 1)]])


def _typical(change: Array) -> float:
    return float(np.quantile(np.abs(change), 0.9))


def _bundles(chosen: Mask, cap: Array, count: int, rng: np.random.Generator) -> tuple[Index, Array]:
    """Some of the chosen clients, likelier the larger their cap, and how much of all caps each stands for."""
    members = rng.permutation(np.flatnonzero(chosen))
    filled = np.cumsum(cap[members])
    marks = filled[-1] * (np.arange(count) + rng.uniform()) / count
    picked, times = np.unique(
        members[np.minimum(np.searchsorted(filled, marks), len(members) - 1)], return_counts=True
    )
    return picked, times * (filled[-1] / count)


def _nearest(values: Array, count: int, among: Mask) -> Mask:
    """Return the ``count`` clients with values nearest to 0."""
    return _largest(-np.abs(values), count, among)


def _largest(values: Array, count: int, among: Mask) -> Mask:
    chosen = np.flatnonzero(among)
    if len(chosen) > count:
        chosen = chosen[np.argpartition(-values[chosen], count)[:count]]
    out = np.zeros(len(values), dtype=bool)
    out[chosen] = True
    return out


def _enough_columns(in_column: Mask, advantage: Array, cap: Array, full: Mask) -> Mask:
    """Add columns until those held at full leave between a tenth and nine tenths of the working columns' mass to be filled."""
    for _ in range(60):
        held = float(cap[full | (~in_column & (advantage > 0))].sum())
        room, needed = float(cap[in_column].sum()), 1.0 - held
        if 0.02 * room <= needed <= 0.98 * room:
            break
        short = (
            needed > 0.5 * room
        )  # then more columns that are held at 0 must come in, else some that are held at full
        among = ~in_column & ~full & ((advantage <= 0) if short else (advantage > 0))
        if not among.any():
            break
        in_column = in_column | _nearest(advantage, max(int(0.3 * in_column.sum()), 50), among)
    return in_column


def sample(problem: BoundProblem) -> tuple[Index, BoundProblem]:
    """Return a sample of the clients, likelier the more data they own, and the problem in which they represent all.

    Systematic sampling along a random order: a client that owns more than its share of a sample is in it for certain.
    """
    n = len(problem.alpha)
    rng = np.random.default_rng(n)
    order = rng.permutation(n)
    marks = (np.arange(SAMPLE) + rng.uniform()) / SAMPLE
    filled = np.cumsum(problem.alpha[order])
    hit = np.minimum(np.searchsorted(filled, marks * filled[-1]), n - 1)
    chosen, times = np.unique(order[hit], return_counts=True)
    return chosen, _sampled(problem, chosen, times / SAMPLE)


def _sample_prices(slice_: Slice) -> Prices:
    """Multipliers of the problem of a random sample."""
    problem, restriction = slice_.problem, slice_.restriction
    n = len(problem.alpha)
    chosen, small = sample(problem)
    few = Slice(small, slice_.total, _sampled_restriction(restriction, chosen), slice_.penalty)
    everyone = np.arange(len(chosen))
    full = few.restriction.full
    point = few.solve(
        everyone[~full],
        few.cap[~full],
        everyone[few.conditional | full],
        np.where(full, few.cap, 0.0),
        np.zeros(len(chosen)),
        FIRST_SAMPLED,
    )
    z = np.zeros(n)
    z[chosen[full]] = few.cap[full]
    z[chosen[~full]] = point.z
    rows = np.zeros(n)
    rows[chosen[few.conditional | full]] = point.row_price
    prices, _, _ = slice_.price(point.price, point.cap_price, rows, problem.place.combine(z))
    return prices


def _sampled(problem: BoundProblem, chosen: Index, alpha: Array) -> BoundProblem:
    return replace(
        problem,
        points=ArrayPoints(problem.place.rows(chosen)),
        alpha=alpha,
        theta=problem.theta[chosen],
        noise=problem.noise[chosen],
        reach=problem.reach[chosen],
        loss_pull=problem.loss_pull[chosen],
    )


def _sampled_restriction(restriction: Restriction, chosen: Index) -> Restriction:
    return Restriction(restriction.paid[chosen], restriction.full[chosen], restriction.ceiling[chosen])
