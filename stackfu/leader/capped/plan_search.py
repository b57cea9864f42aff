"""The best plan with a certificate: branch and bound over total participation, shares and eagerness.

Regions of plans (:mod:`.capped_bound`) are bounded by multipliers that a cone programme at one total proposes
(:mod:`.plan_programme`), and cut where the relaxation errs most: the interval of totals, a free rider's share, or the sign and
size of its eagerness ``D_k - theta_k S``. Every region also proposes a plan, improved by local search (:mod:`.plans`). What is
left behind is the tree with its multipliers, a :class:`~stackfu.results.plan_certificate.PlanCertificate`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from ...jit import clock
from ...judging.gaps import Gap, gap_at
from ...model import Array
from ...results import Status
from ...results.plan_certificate import Cut, PlanCertificate, PlanKnot, PlanNode
from ..tolerances import EIGENVALUE_ROUNDING, ONE_TOTAL, SAFETY, SMALLEST_TOTAL
from .capped_bound import (
    Multipliers,
    Region,
    at_best_level,
    ball,
    eagerness,
    is_empty,
    margin,
    restricted,
    root_region,
)
from .columns import relaxed_columns
from .plan_problem import PlanProblem
from .plan_programme import BUDGET_PENALTY, Answer, relaxed
from .plans import Plans

__all__ = ["Run", "search"]

#: Programmes solved in one region at most; each one gives a smaller ball.
ROUNDS_IN_A_REGION = 4
#: Another programme is worth its time if the ball took off this share of what was uncertain.
ANOTHER_ROUND = 0.05
#: A ball is kept if it leaves less than this share of what was uncertain.
NARROWED = 0.98
#: Reduction of a bound before it is claimed, relative to the objective: the checker rounds outwards.
CLAIM = 1e-9
#: The least objective that this is relative to, in normalised units: below, what rounds is the squared distances themselves.
FAINT = 1e-3
#: Losses and payments are never negative: a bound that needs no proof.
NEVER_BELOW = 0.0
#: Programmes that break the budget by more than this are solved again with a steeper price.
BROKEN_BUDGET = 1e-9
#: Totals are cut where their interval costs the bound this many times what the worst product does: cuts of a share last.
TOTALS_FIRST = 2.0
#: Intervals of totals with a larger ratio of their ends are cut at their geometric mean.
WIDE = 4.0
#: Cost of a leaf for the checker of a certificate with very many clients, in evaluations of the bound.
PASSES_TO_JUDGE = 20.0


@dataclass(frozen=True, eq=False)
class Run:
    """Outcome in the game's units."""

    bound: float
    status: Status
    nodes: int
    certificate: PlanCertificate
    history: tuple[dict[str, Any], ...]


@dataclass(eq=False)
class _Node:
    region: Region  # as narrowed so far
    bound: float
    entered: Region = field(init=False)  # as it was cut
    steps: list[int] = field(default_factory=list)  # knots that raised the bound or narrowed the region
    narrowing: list[int] = field(default_factory=list)  # those that narrowed it
    best: int | None = None  # the knot that gave the bound
    cut: Cut | None = None
    children: tuple[_Node, ...] = ()
    answer: Answer | None = None
    asked: int = -1  # the knot of that answer

    def __post_init__(self) -> None:
        self.entered = self.region


class _Search:
    def __init__(
        self, problem: PlanProblem, plans: Plans, gap: Gap, until: float, judged: bool = False
    ) -> None:
        self.problem, self.plans, self.asked_gap = problem, plans, gap
        self.until, self.judged = until, judged
        self.passing, self.leaves = 0.0, 1
        self.knots: list[Multipliers] = []
        # regions between two local searches, doubled by each one that found nothing, and those still to wait for
        self.pause = self.waiting = 0

    @property
    def gap(self) -> float:
        """The gap to close at the best plan (normalised)."""
        return gap_at(self.asked_gap, self.plans.target)

    @property
    def target(self) -> float:
        """Regions with at least this bound are closed."""
        return self.plans.target - self.gap

    @property
    def deadline(self) -> float:
        """When the search has to end: what it leaves behind will be judged before its time is over."""
        judging = PASSES_TO_JUDGE * self.passing * (self.leaves + 1) if self.judged else 0.0
        return self.until - judging

    # ------------------------------------------------------------ bounding

    def use(self, node: _Node, number: int) -> None:
        """Use a knot on a node: raise its bound, narrow its region."""
        p, knot = self.problem, self.knots[number]
        began = clock()
        least, weight, centre = margin(p, node.region, knot, 0.0)
        self.passing = max(clock() - began, 0.8 * self.passing)
        if not np.isfinite(least):
            return
        if knot.objective > 0.0:
            reached = least / knot.objective
        else:  # it speaks of the constraints alone: either there is no plan here, or there is a ball
            reached = np.inf if least >= 0.0 else -np.inf
        room = least - knot.objective * self.target if knot.objective > 0.0 else least
        smaller = ball(p, node.region, room, weight, centre) if np.isfinite(room) else node.region
        narrowed = _spread(smaller) < NARROWED * _spread(node.region)
        if reached > node.bound:
            node.bound, node.best = reached, number
        elif not narrowed:
            return  # nothing that the checker should spend its time on
        node.steps.append(number)
        if narrowed:
            node.region = smaller
            node.narrowing.append(number)

    def bound(self, node: _Node, inherited: list[int]) -> None:
        """Bound a region: the parent's multipliers first, then programmes of its own while they help."""
        p = self.problem
        if is_empty(p, node.region):
            node.bound = np.inf
            return
        for number in dict.fromkeys(inherited):
            self.use(node, number)
        for attempt in range(ROUNDS_IN_A_REGION):
            if node.bound >= self.target or clock() > self.deadline:
                return
            if is_empty(p, node.region):
                node.bound = np.inf
                return
            total = self.place(node, attempt)
            spread = _spread(node.region)
            answer = self.programme(node.region, total)
            self.knots.append(at_best_level(p, node.region, answer.multipliers))
            node.answer, node.asked = answer, len(self.knots) - 1
            self.use(node, node.asked)
            if attempt == 0:
                self.propose(answer)
            if _spread(node.region) > (1.0 - ANOTHER_ROUND) * spread:
                return

    def programme(self, region: Region, total: float) -> Answer:
        """The relaxation at one total.

        Where the spend is minimised under a cap on the loss, the loss is minimised under the spend to beat instead: it is the
        same question, but the loss curves around its best mixture, and so its multipliers give balls.
        """
        p, size = self.problem, self.plans.size
        few = None
        if p.sampled is not None:
            few, p = p.sampled.rows, p.sampled.problem
            region = restricted(region, few)
        turned = p.loss_weight == 0.0 and np.isfinite(p.loss_cap) and np.isfinite(self.target)
        if turned:
            spend = max(min(self.target / p.payment_weight, p.budget), 0.0)
            p = replace(p, loss_weight=1.0, payment_weight=0.0, budget=spend, loss_cap=np.inf)
        if p.large:
            answer = relaxed_columns(p, region, total, self.deadline)
            if answer.slack > BROKEN_BUDGET:
                answer = relaxed_columns(p, region, total, self.deadline, 1e3 * BUDGET_PENALTY)
            if few is not None:  # a mixture of the sample is no mixture of all clients
                nobody = np.zeros(self.problem.count)
                answer = replace(answer, z=nobody[:0], multipliers=replace(answer.multipliers, rows=nobody))
        else:
            answer = relaxed(p, region, total, size)
            if answer.slack > BROKEN_BUDGET:
                answer = relaxed(p, region, total, size, 1e4 * BUDGET_PENALTY)
        if turned:
            y = answer.multipliers
            back = replace(y, objective=y.budget / self.problem.payment_weight, budget=0.0, loss_cap=1.0)
            answer = replace(answer, multipliers=back)
        return answer

    def place(self, node: _Node, attempt: int) -> float:
        """The total at which the next programme is solved: the middle, then where the bound was least."""
        region = node.region
        if attempt == 0 or not self.knots or not node.steps:
            return 0.5 * (region.low + region.high)
        ends = [
            margin(self.problem, replace(region, low=s, high=s), self.knots[node.steps[-1]], 0.0)[0]
            for s in (region.low, region.high)
        ]
        return region.low if ends[0] <= ends[1] else region.high

    def propose(self, answer: Answer) -> None:
        """A region's plan."""
        p, plans = self.problem, self.plans
        if not len(answer.z):
            return
        plans.deadline = self.deadline
        before = plans.target
        if p.spend(answer.z, answer.total) <= p.budget:
            plans.offer_mixture(answer.z, answer.total)
        elif answer.value < before and self.waiting > 0 and plans.best is not None:
            self.waiting -= 1
        elif answer.value < before:
            plans.improve(np.clip(answer.z * (answer.total / p.alpha), 0.0, 1.0))
            self.pause = 0 if plans.target < before else 2 * self.pause + 1
            self.waiting = self.pause

    # ------------------------------------------------------------ cutting

    def cut(self, node: _Node) -> Cut:
        """The cut that takes off most of the relaxation's error."""
        p, region, answer = self.problem, node.region, node.answer
        # what an interval of 1/S costs the bound depends on the ratio of its ends, and beyond a ratio of 4 nothing is left
        wide = region.high > WIDE * region.low
        middle = np.sqrt(region.low * region.high) if wide else 0.5 * (region.low + region.high)
        halves = Cut("total", -1, float(middle))
        if answer is None or p.large:
            return halves
        z, total = answer.z, answer.total
        raw = p.stakes(z, total) - p.theta * total
        low, high = eagerness(p, region)
        price = answer.multipliers.budget + answer.multipliers.objective * p.payment_weight
        direct = min(answer.multipliers.direct, price)
        errors = (price - direct) * (z * np.maximum(raw, 0.0) - answer.products)
        errors += direct * (z * np.maximum(-raw, 0.0) - answer.prices)
        if answer.multipliers.keep is not None:
            errors += answer.multipliers.keep * (z * (p.theta * total + np.minimum(raw, 0.0)) - answer.drawn)
        most = np.minimum(region.most, p.alpha / region.low)
        # no more than a product can err on what is left of its factors: a programme that breaks the budget tells no errors
        errors = np.minimum(errors, 2.0 * price * (most - region.least) * np.maximum(high - low, 0.0))
        k = int(np.argmax(errors))
        error = float(errors[k])
        several = region.high - region.low > ONE_TOTAL * region.high
        if several and (error <= EIGENVALUE_ROUNDING or self.loose(node) >= TOTALS_FIRST * error):
            return halves
        share_width = (most[k] - region.least[k]) / min(p.alpha[k] / region.low, 1.0)
        if share_width >= (high[k] - low[k]) / p.reach[k]:
            return Cut("share", k, _between(region.least[k], most[k], z[k]))
        if low[k] < 0.0 < high[k] and min(-low[k], high[k]) > 0.1 * (high[k] - low[k]):
            return Cut("eager", k, 0.0)
        return Cut("eager", k, _between(low[k], high[k], float(raw[k])))

    def loose(self, node: _Node) -> float:
        """Return the loss of a node's own programme through the interval of totals."""
        p, region, knot = self.problem, node.region, self.knots[node.asked]
        total = cast("Answer", node.answer).total
        at_one = margin(p, replace(region, low=total, high=total), knot, 0.0)[0]
        return max(at_one - margin(p, region, knot, 0.0)[0], 0.0)

    def halves(self, node: _Node, cut: Cut) -> tuple[Region, Region]:
        """The two sides of a cut."""
        region, k = node.region, cut.client
        if cut.axis == "total":
            return replace(region, high=cut.at), replace(region, low=cut.at)
        names = ("least", "most") if cut.axis == "share" else ("cut_low", "cut_high")
        below, above = np.array(getattr(region, names[1])), np.array(getattr(region, names[0]))
        below[k], above[k] = cut.at, cut.at
        ends: tuple[dict[str, Any], dict[str, Any]] = ({names[1]: below}, {names[0]: above})
        return replace(region, **ends[0]), replace(region, **ends[1])


def _between(low: float, high: float, value: float) -> float:
    """A place inside an interval, halfway between its middle and a value."""
    inner = low + np.array([0.1, 0.9]) * (high - low)
    return float(0.5 * np.clip(value, *inner) + 0.25 * (low + high))


def _spread(region: Region) -> float:
    return float((region.far - region.near).sum())


def search(
    problem: PlanProblem,
    plans: Plans,
    *,
    gap: Gap,
    reference: float,
    time_limit: float,
    max_nodes: int,
    totals: tuple[float, float] = (0.0, 1.0),
    judged: bool = False,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Branch and bound until the ``gap`` (normalised), the time or the nodes are used up; plans are in ``plans``.

    ``totals`` restricts total participation. ``judged``: the time that checking the certificate takes is part of the limit.
    """
    began = clock()
    state = _Search(problem, plans, gap, began + time_limit, judged)
    least = max(_least_total(problem, plans.target), totals[0])
    root = _Node(root_region(problem, least, totals[1]), -np.inf)
    state.knots += _nearest(problem)
    always = range(len(state.knots), len(state.knots) + len(keeping := _keeping(problem)))
    state.knots += keeping
    status, counter = Status.CERTIFIED, 0
    history: list[dict[str, Any]] = []
    heap: list[tuple[float, int, _Node]] = []
    closed = np.inf
    try:
        state.bound(root, list(range(len(state.knots))))
        heap.append((root.bound, 0, root))
        while heap and max(heap[0][0], NEVER_BELOW) < state.target:
            if clock() > state.deadline:
                status = Status.TIME_LIMIT
                break
            if counter >= max_nodes:
                status = Status.MAX_ITERATIONS
                break
            node = heap[0][2]
            cut = state.cut(node)
            children = tuple(_Node(region, -np.inf) for region in state.halves(node, cut))
            for child in children:
                best = [] if node.best is None else [node.best]
                state.bound(child, [*node.steps[-1:], *best, *always])
            # only now: an interrupt before this line leaves the node as it was
            heapq.heappop(heap)
            node.cut, node.children = cut, children
            state.leaves += 1
            for child in children:
                counter += 1
                if child.bound < state.target:
                    heapq.heappush(heap, (child.bound, counter, child))
                else:
                    closed = min(closed, child.bound)
            record = {
                "node": counter,
                "interval": (node.region.low, node.region.high),
                "cut": cut.axis,
                "lower": min(heap[0][0] if heap else np.inf, closed, plans.target) * problem.unit_loss,
                "upper": plans.target * problem.unit_loss,
                "seconds": clock() - began,
            }
            history.append(record)
            if callback is not None:
                callback(record)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    # balls were drawn for plans better than the target, so nothing above it is shown
    reached = min(max(_least_bound(root), NEVER_BELOW), state.target)
    if reached <= NEVER_BELOW:  # every plan keeps this bound, and it is claimed without a tree
        certificate = _certificate(problem, state.knots, _Node(root.region, NEVER_BELOW), least, reached)
        return Run(reached * problem.unit_loss, status, counter, certificate, tuple(history))
    lower = reached - CLAIM * min(reference, max(abs(plans.target), FAINT))
    _thin(problem, state.knots, root, reached)
    certificate = _certificate(problem, state.knots, root, least, lower)
    return Run(lower * problem.unit_loss, status, counter, certificate, tuple(history))


def _least_total(problem: PlanProblem, target: float) -> float:
    """The least total that plans better than the target can have."""
    least = problem.floor
    if problem.least_sampling > 0.0:
        limits = [problem.loss_cap]
        if problem.loss_weight > 0.0:
            limits.append(target / problem.loss_weight)
        room = min(limits) - problem.loss_constant
        if np.isfinite(room):  # none at all: not even all of the data would do
            least = max(least, problem.least_sampling / room * (1.0 - SAFETY)) if room > 0.0 else 1.0
    return float(min(max(least, SMALLEST_TOTAL), 1.0))


def _nearest(problem: PlanProblem) -> list[Multipliers]:
    """Multipliers that say: nobody pays the server, and the mixture lies near the one that is best whatever it costs, by the
    objective and by the loss cap."""
    p = problem
    level = 2.0 * p.loss_square * float((p.points @ (p.ideal @ p.points)).min())
    nobody, all_of_it = (
        np.zeros(p.count),
        2.0 * p.payment_weight,
    )  # the price of the spend at most counts, however units round
    plain = Multipliers(1.0, 1.0, 0.0, 0.0, p.loss_weight * level, all_of_it, nobody, None, p.ideal)
    if not np.isfinite(p.loss_cap):
        return [plain]
    return [plain, replace(plain, objective=0.0, loss_cap=1.0, level=level, direct=0.0)]


def _keeping(problem: PlanProblem) -> list[Multipliers]:
    """Multipliers that say: keeping those who can leave costs what they have outside and what drift and thin data take from
    them, whatever they bring. At small totals, where programmes are badly scaled, nothing else is needed."""
    p = problem
    leavers = np.zeros(p.count) if p.outside is None else np.isfinite(p.outside).astype(np.float64)
    if not leavers.any():
        return []
    mixture = leavers / leavers.sum()
    plain = Multipliers(1.0, 0.0, 0.0, 0.0, 0.0, 1.0, np.zeros(p.count), leavers, mixture)
    found = [replace(plain, budget=1.0)] if np.isfinite(p.budget) else []
    if p.payment_weight > 0.0:
        found.append(replace(plain, objective=1.0 / p.payment_weight))
    return found


def _least_bound(node: _Node) -> float:
    stack, least = [node], np.inf
    while stack:
        at = stack.pop()
        if at.children:
            stack.extend(at.children)
        else:
            least = min(least, at.bound)
    return float(least)


def _thin(problem: PlanProblem, knots: list[Multipliers], root: _Node, reached: float) -> None:
    """Leave out what the bound does not need: subtrees of regions that it closes, and knots other than the one that does.

    A region that was cut needs the knots that narrowed it, because what was shown about its parts rests on them.
    """
    stack = [root]
    while stack:
        node = stack.pop()
        best = None if node.best is None else knots[node.best]
        if best is not None and best.objective > 0.0:
            alone = margin(problem, node.entered, best, 0.0)[0] / best.objective
            if alone >= reached:
                node.steps, node.cut, node.children = [cast("int", node.best)], None, ()
                continue
        needed = {*node.narrowing, *(() if node.children else (node.best,))}
        node.steps = [number for number in node.steps if number in needed]
        stack.extend(node.children)


def _certificate(
    problem: PlanProblem, knots: list[Multipliers], root: _Node, least: float, lower: float
) -> PlanCertificate:
    """The tree in preorder, with the knots it uses, in the game's units."""
    numbers = {
        0: 0
    }  # the plain knot comes first: it also says how good mixtures can be at totals below the least one
    nodes: list[PlanNode] = []
    stack = [root]
    square = problem.unit_square
    while stack:
        node = stack.pop()
        steps = tuple(numbers.setdefault(s, len(numbers)) for s in dict.fromkeys(node.steps))
        cut = node.cut
        if cut is not None and cut.axis == "eager":
            cut = Cut(cut.axis, cut.client, cut.at * square)
        nodes.append(PlanNode(steps, cut))
        stack.extend(reversed(node.children))
    per_square = problem.unit_loss / square
    used = tuple(
        PlanKnot(
            objective=y.objective,
            budget=y.budget * problem.unit_loss / problem.unit_spend,
            loss_cap=y.loss_cap,
            level=_level_from_mean(problem, y) * problem.unit_loss,
            direct=y.direct * per_square,
            rows=_sparse(y.rows * per_square),
            keep=_sparse(np.zeros(0) if y.keep is None else y.keep * per_square),
            centre=_centre(problem, y),
        )
        for y in (knots[i] for i in numbers)
    )
    return PlanCertificate(lower * problem.unit_loss, least, used, tuple(nodes))


def _level_from_mean(p: PlanProblem, y: Multipliers) -> float:
    """The level t with ``mu_N`` as the origin instead of the server's ideal point o.

    t = t' + 2 <o, T c - M> - (2 ell W + nu_1) ||o||^2
    """
    ell = y.objective * p.loss_weight + y.loss_cap
    nu = max(y.objective * p.payment_weight + y.budget - y.direct, 0.0)
    pulls = y.rows if y.keep is None else y.rows + 0.5 * y.keep
    weight = ell * p.loss_square + nu + float(pulls.sum())
    centre = y.centre if y.mixture is None else y.mixture @ p.points
    assert centre is not None
    mixed = pulls @ p.points + float(pulls.sum()) * p.target
    along = p.target @ (weight * (centre + p.target) - mixed)
    return y.level + 2.0 * float(along) - (2.0 * ell * p.loss_square + nu) * float(p.target @ p.target)


def _centre(p: PlanProblem, y: Multipliers) -> tuple[Any, Any]:
    """The centre as weights of clients, or, where there are very many, as a point of feature space seen from ``mu_N``."""
    if y.mixture is not None:
        return _sparse(y.mixture)
    assert y.centre is not None
    if p.coordinates_are_features:
        return None, (y.centre + p.target) * np.sqrt(p.unit_square)
    return _sparse(p.ideal + p.weights_of(y.centre - p.ideal @ p.points))


def _sparse(values: Array) -> tuple[Any, Any]:
    places = np.flatnonzero(values)
    return places.astype(np.int64), np.asarray(values[places], dtype=np.float64)
