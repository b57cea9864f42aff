"""Branch and bound over total participation and volunteers, with a certificate.

Each box ``[a, b]`` of total participation has multipliers at both ends, from the convex problem at those totals
(:mod:`~stackfu.leader.certified.programme`); the bound on the box follows in closed form
(:mod:`~stackfu.leader.certified.bound`). The box with the least bound is worked on next: its interval is split where
the bound is least, or an undecided client is decided both ways, whichever explains more of the error. Every solved
total also proposes a profile, played back through the closed-form price. The boxes form the tree of the certificate.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ConvergenceError, InfeasibleError
from ...jit import clock
from ...judging.bound import BoundVerdict
from ...model import Array, GameModel, Objective
from ...results import Status
from ...results.certificate import Decide, Knot, LeaderCertificate, Leaf, Node, Split
from ..tolerances import GENEROUS, ROUNDING, SAFETY, SMALLEST_TOTAL
from .bound import Classes, ball, box_margin, classify, interpolate
from .candidates import Candidate, Candidates
from .claims import accepted
from .problem import LeaderProblem
from .programme import HELD, PointAnswer, PointProgramme, answer_at, companion, optimum, warm

__all__ = ["Run", "search"]

FREE, PAID, VOLUNTEER = 0, 1, 2
Decisions = npt.NDArray[np.int8]
Pair = tuple[PointAnswer, PointAnswer]

#: Part of the distance rows and of the loss cap held back at solved points, so that rounding never breaks them.
SHRINK = 1e-11
#: Prices of breaking a row, in normalised loss. The first at which the rows hold, or at which the bound is beyond what matters, is
#: enough: small multipliers interpolate better.
PENALTIES = (1.0, 30.0, 1e3, 3e4)
#: A box narrower than this, relative to its S, is not split further.
NARROWEST = 1e-10
#: Steps of the ball argument kept along a branch of the tree: older ones hardly add anything.
MOST_BALLS = 2
#: Steps of the ball argument that a box tries on its own, and the part of the gap that makes another one worth it.
FURTHER_BALLS = 3
WORTHWHILE = 1e-3
#: Boxes within this factor of the settled optimum's total try its prices.
NEARBY = 1.5
#: Totals this close to the best one, relative to it, are not worth a box of their own.
CLOSEST = 1e-4
#: Ratio of neighbouring totals that are solved first.
GRID_STEP = 1.25
#: Totals beside the best one that show what changes there, relative to it.
ASIDE = 0.02
#: Part of the budget that is spent where the budget binds.
NEARLY_ALL = 1.0 - 1e-3
#: Steps of the golden section around the best profile found on that grid.
GOLDEN_STEPS = 12
#: A bracket below this part of its upper end is one total: the value is flat there to second order.
ONE_BRACKET = 1e-6
#: How full a keen client must be to be taken for a volunteer, in turn.
FULL_ENOUGH = (1.0 - 1e-5, 0.5, 0.0)
#: The gap that is closed, beside the one asked for: rounding must not spoil the last digit.
WITHIN = 0.999
#: Budgets above one that leaves no room, relative to what those who take part would cost: the first, the last, and their ratio.
EXTRA_FIRST, EXTRA_LAST, EXTRA_STEP = 1e-2, 1e-15, 0.25
#: A search that is not done after this many boxes, or this part of its time, asks for further profiles to start from.
SOON_NODES = 100
SOON = 0.2
#: Relative rounding of the least loss over all mixtures.
NEAREST_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Run:
    """Outcome of a branch and bound run, in the game's units; ``pool`` are the feasible profiles met on the way."""

    best: Candidate
    bound: float
    history: tuple[dict[str, Any], ...]
    status: Status
    nodes: int
    pool: tuple[Candidate, ...]
    certificate: LeaderCertificate | None = None
    verdict: BoundVerdict | None = None  # what the judge says about the certificate


@dataclass(eq=False)
class Box:
    """A part of the search space, its multipliers, and what they prove."""

    low: float
    high: float
    decided: Decisions
    ends: Pair
    balls: tuple[Pair, ...] = ()
    refreshed: bool = False  # the ends were solved for what is known here
    value: float = -np.inf  # proved lower bound, normalised
    seen: tuple[float, PointAnswer | None] | None = (
        None  # the target and the settled optimum that it was proved with
    )
    steps: tuple[Pair, ...] = ()
    classes: Classes | None = None
    node: Node | None = None
    children: tuple[Box, ...] = ()


class OpenBoxes:
    """Boxes that still matter, least bound first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Box]] = []
        self._count = 0

    def push(self, box: Box) -> None:
        self._count += 1
        heapq.heappush(self._heap, (box.value, self._count, box))

    def pop(self) -> Box:
        return heapq.heappop(self._heap)[2]

    def lower(self) -> float:
        """Least bound of an open box."""
        return self._heap[0][0] if self._heap else np.inf

    def __len__(self) -> int:
        return len(self._heap)


class Search:
    """State of one run, in normalised units."""

    def __init__(
        self, game: GameModel, objective: Objective, gap: float = 0.0, time_limit: float = np.inf
    ) -> None:
        self.deadline = clock() + time_limit
        self.game, self.objective = game, objective
        self.problem = LeaderProblem.of(game, objective)
        self.gap = WITHIN * gap / self.problem.unit_loss
        self.found = Candidates(game, objective, self.problem)
        self._programmes: dict[Any, PointProgramme] = {}
        self.solves = self.warm = 0
        self.open = OpenBoxes()
        self.aside: list[Box] = []  # too small to divide
        self.current: Box | None = None
        self._settled_for: Candidate | None = None
        self._guessed: dict[
            bytes, tuple[float, float]
        ] = {}  # volunteers that were tried, and between which totals
        self._companions: dict[tuple[int, float], PointAnswer | None] = {}
        self.settled: PointAnswer | None = None  # a local optimum, with multipliers that do not change with S
        self.root: Box | None = None

    # ------------------------------------------------------------ values

    @property
    def incumbent(self) -> float:
        """Value of the best profile; without one, a value that no feasible profile exceeds."""
        if self.found.best is not None:
            return self.found.best.value / self.problem.unit_loss
        return self.worst

    @cached_property
    def worst(self) -> float:
        """No feasible profile has a larger objective: the loss at its cap or at the furthest client, every cost paid."""
        p = self.problem
        loss = (
            p.loss_square * float(p.diagonal.max()) + 2.0 * float(np.abs(p.loss_pull).max()) + p.loss_constant
        )
        if p.noise.any() or p.loss_sampling:
            loss += (float(p.noise.max()) + p.loss_sampling) / max(p.floor, SMALLEST_TOTAL)
        spend = min(p.budget, p.payment_unit * float(p.theta @ p.alpha))
        return (p.loss_weight * min(loss, p.loss_cap) + p.payment_weight * spend) * (1.0 + GENEROUS)

    @cached_property
    def least(self) -> PointAnswer:
        """Multipliers that prove no more than the least loss of all mixtures, at any total."""
        p = self.problem
        nobody = np.zeros(len(p.alpha), dtype=bool)
        known = Classes(~nobody, nobody, p.reach)
        plain = answer_at(p, known, 1.0, p.ideal, np.zeros(len(p.alpha)), 0.0, 0.0)
        y = plain.multipliers
        lowest = (
            2.0 * (y.slope - p.loss_weight * p.loss_pull) - p.payment_weight * p.payment_unit * p.diagonal
        )
        return replace(plain, multipliers=replace(y, level=float(lowest.min())))

    @property
    def target(self) -> float:
        """A box whose bound reaches this is closed."""
        return self.incumbent - self.gap if self.found.best is not None else self.worst

    # ------------------------------------------------------------ points

    def solve(self, total: float, classes: Classes, near: PointAnswer | None = None) -> PointAnswer | None:
        """The relaxation at one total, with what a box knows about the clients; from an answer nearby if that works."""
        if not np.isfinite(classes.ceiling).all():  # the box reaches down to 0, this point does not
            here = self.problem.reach + 0.5 * self.problem.client_sampling / total
            classes = replace(classes, ceiling=np.minimum(classes.ceiling, here))
        if near is not None and near.excess <= HELD:
            answer = warm(self.problem, classes, near, total, SHRINK)
            if answer is not None:
                self.warm += 1
                return answer
        best: PointAnswer | None = None
        for penalty in PENALTIES:
            if clock() > self.deadline:
                break
            answer = self._programme(classes, penalty).solve(total)
            self.solves += 1
            if answer is not None and (best is None or answer.bound > best.bound):
                best = answer
            if best is not None and (best.excess <= HELD or best.bound > self.target):
                break
        return best

    def _programme(self, classes: Classes, penalty: float) -> PointProgramme:
        """The cone programme for what is known, built once."""
        exponent = self._exponent()
        key = (exponent, penalty, classes.paid.tobytes(), classes.volunteer.tobytes())
        programme = self._programmes.get(key)
        free = ~(classes.paid | classes.volunteer)
        if programme is None or np.any(classes.ceiling[free] < 0.99 * programme.classes.ceiling[free]):
            if len(self._programmes) >= 64:
                self._programmes.pop(next(iter(self._programmes)))
            programme = PointProgramme(self.problem, classes, 4.0**exponent, penalty, SHRINK, self.deadline)
            self._programmes[key] = programme
        return programme

    def _exponent(self) -> int:
        """``||m||`` at the incumbent as a power of 4: the scale at which the cone programmes are well conditioned."""
        best = self.found.best
        if best is None:
            return -2
        m = self.game.profile(best.x).mixture @ self.problem.points
        tau = float(m @ m)
        return min(max(round(math.log(max(tau, ROUNDING)) / math.log(16.0)), -5), 0)

    def propose(self, answer: PointAnswer, classes: Classes) -> None:
        """Turn a relaxed point into feasible profiles: as it is, and with its volunteers guessed."""
        p, total, z = self.problem, answer.total, answer.z
        if answer.value > self.target or answer.excess > HELD:
            return
        if self.found.offer(total * z / p.alpha) or not answer.split.any():
            return
        keen = ~classes.paid & (
            p.squared_distances(z) + 0.5 * p.client_sampling / total >= p.theta * total * (1 - SAFETY)
        )
        tried: set[bytes] = set()
        for share in FULL_ENOUGH:
            volunteer = classes.volunteer | (keen & (total * z >= share * p.alpha))
            if volunteer.tobytes() in tried or float(p.alpha[volunteer].sum()) > total:
                continue
            tried.add(volunteer.tobytes())
            low, high = self._guessed.get(volunteer.tobytes(), (np.inf, 0.0))
            if low <= total <= high:
                return
            known = Classes(~volunteer, volunteer, classes.ceiling)
            guess = self.solve(total, known, answer)
            if guess is None or guess.excess > HELD or not self.found.offer(total * guess.z / p.alpha):
                continue
            # the same volunteers at their best total: other totals nearby need not be tried any more
            settled = optimum(p, known, guess, SHRINK)
            if settled is not None and self.found.offer(settled.total * settled.z / p.alpha):
                span = (low, high, total, settled.total)
                self._guessed[volunteer.tobytes()] = (min(span), max(span))
            return

    def settle(self) -> None:
        """After a new incumbent: its local optimum over S."""
        best = self.found.best
        if best is not None and best is not self._settled_for:
            self.refine()
            self._settled_for = self.found.best

    # ------------------------------------------------------------ boxes

    def evaluate(self, box: Box) -> None:
        """The best bound that the box's multipliers prove, with the steps that prove it."""
        p, target = self.problem, self.target
        box.seen = (target, self.settled)
        near = far = None
        steps: list[Pair] = []
        inherited = list(box.balls)
        low, high = box.ends
        own = [*self.companions(box), (low, high)]
        own += [] if low is high else [(low, low), (high, high)]
        own.append((self.least, self.least))
        if box.low <= 0.0:  # constant multipliers, and no balls
            own, inherited = [pair for pair in own if pair[0] is pair[1]], []
        proof: tuple[Pair, ...] = (box.ends,)
        value, classes = -np.inf, box.classes
        for attempt in range(len(inherited) + FURTHER_BALLS):
            classes = classify(p, box.low, box.high, box.decided == PAID, box.decided == VOLUNTEER, near, far)
            if classes is None:
                value, proof = (np.inf if near is None else target), (*steps, box.ends)
                break
            pairs = inherited[attempt : attempt + 1] or own
            margin, pair, at = -np.inf, pairs[0], None
            for i, j in pairs:
                ends = (
                    interpolate(i.multipliers, j.multipliers, box.low),
                    interpolate(i.multipliers, j.multipliers, box.high),
                )
                here = box_margin(p, box.low, box.high, *ends, classes, target)
                if here > margin or at is None:
                    margin, pair, at = here, (i, j), ends
                if margin >= self.gap:  # the incumbent itself; more cannot be asked for
                    break
            assert at is not None
            # with a ball behind it a positive margin proves the target and no more
            reached = target + margin if near is None or margin < 0 else target
            improved = reached > value + WORTHWHILE * self.gap
            if reached > value:
                value, proof = reached, (*steps, pair)
            if margin >= 0 or box.low <= 0 or (attempt >= len(inherited) and not improved):
                break
            if not np.isfinite(margin):  # nothing proved, no ball either
                continue
            bounds = ball(p, *at, margin)
            assert bounds is not None
            near = bounds[0] if near is None else np.maximum(near, bounds[0])
            far = bounds[1] if far is None else np.minimum(far, bounds[1])
            steps.append(pair)
        box.value, box.steps, box.classes = value, proof, classes

    def companions(self, box: Box) -> list[Pair]:
        """The settled optimum's prices at both ends of a box nearby."""
        near = self.settled
        if near is None or box.low <= 0.0 or not box.low <= NEARBY * near.total <= NEARBY**2 * box.high:
            return []
        pair = []
        for total in (box.low, box.high):
            key = (id(near), total)
            if total != near.total and key not in self._companions:
                self._companions[key] = companion(self.problem, near.classes, near, total)
            found = near if total == near.total else self._companions[key]
            if found is None:
                return []
            pair.append(found)
        return [(pair[0], pair[1])]

    def split_total(self, box: Box) -> tuple[Box, ...]:
        low, high = box.low, box.high
        assert box.classes is not None
        middle = self.at_best(low, high, box.classes)
        if middle is None:
            at = 0.5 * (low + high)
            middle = self.solve(at, box.classes, min(box.ends, key=lambda end: abs(end.total - at)))
            if middle is None:
                return ()
            self.propose(middle, box.classes)
        at = middle.total
        box.node = Split(at)
        balls = box.steps[-MOST_BALLS:]
        first = Box(low, at, box.decided, (box.ends[0], middle), balls)
        second = Box(at, high, box.decided, (middle, box.ends[1]), balls)
        return first, second

    def decide(self, box: Box, client: int) -> tuple[Box, ...]:
        box.node = Decide(client)
        out = []
        for verdict in (PAID, VOLUNTEER):
            decided = box.decided.copy()
            decided[client] = verdict
            out.append(Box(box.low, box.high, decided, box.ends, box.steps[-MOST_BALLS:]))
        return tuple(out)

    def stale(self, box: Box) -> bool:
        """Whether more is known in this box than when its ends were solved."""
        known = box.classes
        assert known is not None
        if box.refreshed:
            return False
        box.refreshed = True
        return any(
            (end.classes.paid != known.paid).any() or (end.classes.volunteer != known.volunteer).any()
            for end in box.ends
        )

    def refresh(self, box: Box) -> None:
        """Solve both ends again for what is known in this box."""
        assert box.classes is not None
        upper = self.solve(box.high, box.classes, box.ends[1])
        # a box from 0 has constant multipliers
        lower = self.solve(box.low, box.classes, box.ends[0]) if box.low > 0.0 else upper
        answers = (lower, upper)
        for answer in answers:
            if answer is not None:
                self.propose(answer, box.classes)
        before = (box.value, box.steps, box.ends, box.balls, box.classes, box.seen)
        box.balls = box.steps[:-1][-MOST_BALLS:]
        box.ends = (answers[0] or box.ends[0], answers[1] or box.ends[1])
        self.evaluate(box)
        if box.value < before[0]:
            box.value, box.steps, box.ends, box.balls, box.classes, box.seen = before

    def branch(self, box: Box) -> tuple[Box, ...]:
        """Children of a box: S split, or a client decided."""
        p, target = self.problem, self.target
        assert box.classes is not None
        free = ~(box.classes.paid | box.classes.volunteer)
        wide = box.high - box.low > NARROWEST * box.high and box.high > SMALLEST_TOTAL
        if free.any():
            ends = [
                target + box_margin(p, s, s, y.multipliers, y.multipliers, box.classes, target)
                for s, y in zip((box.low, box.high), box.ends, strict=True)
            ]
            score = np.where(free, np.maximum(box.ends[0].split, box.ends[1].split), 0.0)
            k = int(np.argmax(score))
            if score[k] > ROUNDING and (not wide or target - min(ends) > min(ends) - box.value):
                return self.decide(box, k)
        return self.split_total(box) if wide else ()

    def explore(self, classes: Classes) -> list[PointAnswer]:
        """Solve at totals from the smallest that may matter up to 1, each proposing profiles; descending totals."""
        floor, best = self.objective.min_total, self.found.best
        middle = float(self.game.alpha @ best.x) if best is not None else 0.5
        grid = [middle * GRID_STEP**j for j in range(-2, 40)]
        totals = sorted({s for s in grid if max(floor, 0.0) < s < 0.97} | {1.0}, reverse=True)
        answers: list[PointAnswer] = []
        for total in totals:
            if clock() > self.deadline:
                break
            answer = self.solve(total, classes, answers[-1] if answers else None)
            if answer is not None:
                self.propose(answer, classes)
                answers.append(answer)
        self.settle()
        return answers

    def refine(self) -> None:
        """Move the incumbent's total to where, with its volunteers, the value is least (golden section)."""
        best = self.found.best
        if best is None:
            return
        p = self.problem
        volunteer = (best.x == 1.0) & (best.payments == 0.0)
        classes = Classes(~volunteer, volunteer, p.reach)
        at = float(self.game.alpha @ best.x)
        least = max(self.objective.min_total, float(p.alpha[volunteer].sum()))
        solved: list[PointAnswer] = []

        def value(total: float) -> float:
            close = min(solved, key=lambda a: abs(a.total - total), default=None)
            answer = self.solve(total, classes, close)
            if answer is None or answer.excess > HELD:
                return np.inf
            solved.append(answer)
            self.found.offer(total * answer.z / p.alpha)
            return answer.value

        def settled() -> bool:
            """Newton's method with S free, from the best answer; at a kink with the active sets of both sides."""
            if not solved:
                return False
            least = min(solved, key=lambda a: a.value)
            starts = [least]
            for side in (-1.0, 1.0):
                others = [a for a in solved if side * (a.total - least.total) > 0.0]
                if others and least.active is not None:
                    other = min(others, key=lambda a: abs(a.total - least.total))
                    if other.active is not None:
                        starts += [
                            replace(least, active=least.active.joined(other.active, free=free))
                            for free in (False, True)
                        ]
            for start, shrink in [(start, shrink) for shrink in (SHRINK, 0.0) for start in starts]:
                answer = optimum(p, classes, start, shrink)
                if answer is None or not self.found.offer(answer.total * answer.z / p.alpha):
                    continue
                if answer.value <= self.incumbent + self.gap:
                    self.settled = answer
                    return True
            return False

        value(at)
        if settled():
            return
        for side in (1.0 - ASIDE, 1.0 + ASIDE):
            if least < side * at < 1.0:
                value(side * at)
        if settled() or (
            best.spend >= NEARLY_ALL * self.objective.budget and self.settle_from_above(classes, at)
        ):
            return
        low, high = max(at / GRID_STEP, least), min(at * GRID_STEP, 1.0)
        golden = 0.6180339887498949
        left, right = high - golden * (high - low), low + golden * (high - low)
        at_left, at_right = value(left), value(right)
        for _ in range(GOLDEN_STEPS):
            if clock() > self.deadline or high - low <= ONE_BRACKET * high:
                return
            if at_left <= at_right:
                high, right, at_right = right, left, at_left
                left = high - golden * (high - low)
                at_left = value(left)
            else:
                low, left, at_left = left, right, at_right
                right = low + golden * (high - low)
                at_right = value(right)
        settled()

    def settle_from_above(self, classes: Classes, at: float) -> bool:
        """The settled optimum where the budget leaves no room: the limit of budgets that do, from above.

        Where hardly anything can be bought, the budget's price may be unbounded: the loss falls as the root of what may be spent.
        Any multipliers bound it, and those of a budget that is larger by ``extra`` bound it as closely as the loss at that budget.
        """
        p, best = self.problem, self.found.best
        if best is None or not np.isfinite(p.budget):
            return False
        worth = at * float(
            p.theta @ (p.alpha * best.x / at)
        )  # what the clients who take part would cost, at most
        near: PointAnswer | None = None
        extra = EXTRA_FIRST * worth
        while extra >= EXTRA_LAST * worth and clock() < self.deadline:
            roomy = replace(p, budget=p.budget + extra * p.payment_unit)
            if near is None:
                radius = 4.0 ** self._exponent()
                rough = PointProgramme(roomy, classes, radius, PENALTIES[1], 0.0, self.deadline).solve(at)
                starts = [] if rough is None else [rough, *_spending(rough)]
            else:
                price = near.multipliers.budget / math.sqrt(EXTRA_STEP)
                starts = [replace(near, multipliers=replace(near.multipliers, budget=price))]
            found = next((a for a in (optimum(roomy, classes, start, 0.0) for start in starts) if a), None)
            if found is None:
                return False
            y = found.multipliers
            here = answer_at(
                p, classes, found.total, found.z, y.rows, y.budget, y.loss_cap, 0.0, found.active
            )
            if here.bound >= self.target:
                self.settled = here
                return True
            near, extra = found, EXTRA_STEP * extra
        return False

    def at_best(self, low: float, high: float, classes: Classes) -> PointAnswer | None:
        """The settled optimum if its total lies inside an interval and agrees with what is known there."""
        answer = self.settled
        if answer is None or not low * (1.0 + NARROWEST) < answer.total < high * (1.0 - NARROWEST):
            return None
        if (classes.paid & answer.classes.volunteer).any() or (
            classes.volunteer & ~answer.classes.volunteer
        ).any():
            return None
        return answer

    def roots(self) -> None:
        """The whole space, cut into boxes that shrink towards small totals until the rest is proved empty."""
        p, floor = self.problem, self.objective.min_total
        nothing = np.zeros(len(p.alpha), dtype=np.int8)
        undecided = nothing.astype(bool)
        classes = classify(p, floor, 1.0, undecided, undecided)
        assert classes is not None
        # where the best mixture of all is within reach, nothing has to be searched
        whole = Box(floor, 1.0, nothing, (self.least, self.least))
        self.evaluate(whole)
        if self.found.best is not None and whole.value >= self.target:
            self.root = whole
            self.open.push(whole)
            return
        answers = self.explore(classes) or [replace(self.least, total=1.0)]
        best = self.found.best
        if best is not None:
            own = float(self.game.alpha @ best.x)
            answer = None
            if floor < own < 1.0:
                answer = self.solve(own, classes, min(answers, key=lambda a: abs(a.total - own)))
            settled = self.at_best(floor, 1.0, classes)
            if settled is not None and (answer is None or answer.value >= settled.value - self.gap):
                answer = settled
            if answer is not None:
                at = answer.total
                apart = [a for a in answers if abs(a.total - at) > CLOSEST * at or a.total == 1.0]
                answers = sorted([*apart, answer], key=lambda a: -a.total)
        boxes = [
            Box(below.total, above.total, nothing, (below, above))
            for above, below in pairwise(answers)
            if below.total < above.total
        ]
        s, a = answers[-1].total, answers[-1]
        while True:
            if floor > 0 and 0.5 * s <= floor:
                if floor < s:
                    lower = self.solve(floor, classes, a) or a
                    self.propose(lower, classes)
                    boxes.append(Box(floor, s, nothing, (lower, a)))
                elif not boxes:
                    boxes.append(Box(s, s, nothing, (a, a)))
                break
            rest = Box(0.0, s, nothing, (a, a))
            if floor == 0.0:
                self.evaluate(rest)
                if rest.value >= self.target or s < SMALLEST_TOTAL or clock() > self.deadline:
                    boxes.append(rest)
                    break
            lower = self.solve(0.5 * s, classes, a) or a
            self.propose(lower, classes)
            boxes.append(Box(0.5 * s, s, nothing, (lower, a)))
            s, a = 0.5 * s, lower
        root = boxes[-1]
        for box in reversed(boxes[:-1]):  # nest the splits: (root | box)
            parent = Box(root.low, box.high, nothing, box.ends, node=Split(box.low), children=(root, box))
            root = parent
        for box in boxes:
            self.evaluate(box)
            self.open.push(box)
        self.root = root

    def work_on(self, box: Box) -> None:
        """Improve a box's bound: look again, solve its ends again, or divide it; what cannot be improved is set aside."""
        if box.seen != (self.target, self.settled):  # otherwise a second look sees what the first one saw
            self.evaluate(box)
        if box.value >= self.target or box.classes is None:
            self.open.push(box)
        elif self.stale(box):
            self.refresh(box)
            self.open.push(box)
        else:
            children = self.branch(box)
            if not children:
                self.aside.append(box)
                return
            for child in children:
                self.evaluate(child)
            box.children = children
            for child in children:
                self.open.push(child)

    def lower(self) -> float:
        """The least bound of all boxes: open, set aside, and the one that is being worked on."""
        current = -np.inf if self.root is None else np.inf if self.current is None else self.current.value
        return min(self.open.lower(), min((b.value for b in self.aside), default=np.inf), current)

    # ------------------------------------------------------------ certificate

    def certificate(self, lower: float) -> tuple[LeaderCertificate, BoundVerdict] | None:
        """The tree of boxes with the knots that its leaves use, its claim lowered until the judge accepts it; and the verdict."""
        if self.root is None or not np.isfinite(lower):
            return None
        numbers: dict[int, int] = {}
        knots: list[Knot] = []
        nodes: list[Node] = []
        stack = [self.root]

        def number(answer: PointAnswer) -> int:
            if id(answer) not in numbers:
                numbers[id(answer)] = len(knots)
                knots.append(self.problem.knot(answer.multipliers, answer.z / answer.z.sum()))
            return numbers[id(answer)]

        while stack:
            box = stack.pop()
            if box.children:
                assert box.node is not None
                nodes.append(box.node)
                stack += box.children[::-1]
            else:
                nodes.append(Leaf(tuple((number(i), number(j)) for i, j in box.steps)))
        return accepted(self.game, self.objective, LeaderCertificate(lower, tuple(knots), tuple(nodes)))


def _spending(answer: PointAnswer) -> list[PointAnswer]:
    """The same answer with the guess that the budget is spent, as it is and with one tight row fewer."""
    guess = answer.active
    if guess is None:
        return []
    guesses = [guess.but(budget=True)]
    rows = np.where(guess.tight, np.abs(answer.multipliers.rows), np.inf)
    if guess.tight.any():
        guesses.append(guess.but(budget=True, loose=int(np.argmin(rows))))
    return [replace(answer, active=active) for active in guesses]


def search(
    game: GameModel,
    objective: Objective,
    *,
    gap: float,
    time_limit: float,
    max_nodes: int,
    starts: tuple[Array, ...] = (),
    later: Callable[[], Iterable[Array]] | None = None,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Branch and bound until the absolute ``gap`` (in the objective's units), the time or the nodes are used up.

    ``later`` gives further profiles to start from; they are asked for once the search has shown that it is not done at once.
    """
    began = clock()
    state = Search(game, objective, gap, time_limit)
    found, unit = state.found, state.problem.unit_loss
    nearest = state.problem.nearest_loss * unit
    if game.loss.weight > 0 and nearest > objective.max_loss * (1.0 + NEAREST_ROUNDING):
        raise InfeasibleError(
            f"a loss of at most {objective.max_loss:g} is out of reach whatever the budget: no mixture of the remaining "
            f"clients' data has a loss below {nearest:.6g}"
        )
    for x in starts:
        if (found.offer(x) or found.offer_unpaid(x)) and objective.loss_weight:
            found.blend(x)
    history: list[dict[str, Any]] = []
    status = Status.CERTIFIED
    nodes = 0
    try:
        state.roots()
        while state.open.lower() < state.target:
            elapsed = clock() - began
            if later is not None and (
                nodes >= SOON_NODES or elapsed > SOON * time_limit or nodes >= max_nodes
            ):
                for x in later():
                    found.offer(x)
                later = None
                state.settle()
                continue
            if clock() > state.deadline:
                status = Status.TIME_LIMIT
                break
            if nodes >= max_nodes:
                status = Status.MAX_ITERATIONS
                break
            box = state.open.pop()
            state.current = box
            nodes += 1
            state.work_on(box)
            state.current = None
            state.settle()
            record = {
                "node": nodes,
                "interval": (box.low, box.high),
                "undecided": int((box.decided == FREE).sum()),
                # what was proved stays proved, though the tree that proves it may have changed
                "lower": max(
                    min(state.lower(), state.incumbent) * unit, history[-1]["lower"] if history else -np.inf
                ),
                "upper": np.inf if found.best is None else found.best.value,
                "seconds": clock() - began,
            }
            history.append(record)
            if callback is not None:
                callback(record)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    lower = min(state.lower(), state.incumbent)
    if found.best is None:
        if status is Status.CERTIFIED and lower >= state.worst:
            raise InfeasibleError(
                "no payments satisfy the constraints: every box of total participation was refuted"
            )
        why = (
            "rounding hides the answer"
            if status is Status.CERTIFIED
            else status.name.lower().replace("_", " ")
        )
        raise ConvergenceError(f"no feasible payments were found, and none were proved impossible ({why})")
    certificate, verdict = state.certificate(lower * unit) or (None, None)
    return Run(
        found.best,
        -np.inf if certificate is None else certificate.lower,
        tuple(history),
        status,
        nodes,
        tuple(found.pool),
        certificate,
        verdict,
    )
