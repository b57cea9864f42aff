"""Branch and bound over total participation and volunteers, with a certificate.

Each box ``[a, b]`` of total participation has multipliers at both ends, from the convex problem at those totals
(:mod:`~stackfu.leader.certified.payment_programme`); the bound on the box follows in closed form
(:mod:`~stackfu.leader.certified.payment_bound`). The box with the least bound is worked on next: its interval is split where
the bound is least, or an undecided client is decided both ways, whichever explains more of the error. Every solved
total also proposes a profile, played back through the closed-form price. The boxes form the tree of the certificate.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ConvergenceError, InfeasibleError
from ...jit import clock
from ...judging.bound_check import BoundVerdict, check_bound
from ...judging.gaps import Gap
from ...model import Array, GameModel, Objective
from ...results import Status
from ...results.certificate import Decide, Knot, LeaderCertificate, Leaf, Node, Split
from ..tolerances import ROUNDING, SMALLEST_TOTAL
from .candidates import Candidate
from .claims import accepted
from .payment_bound import Classes, ball, box_margin, classify, interpolate
from .payment_programme import PointAnswer, answer_at, companion
from .totals import NARROWEST, Totals

__all__ = ["Run", "search"]

FREE, PAID, VOLUNTEER = 0, 1, 2
Decisions = npt.NDArray[np.int8]
Pair = tuple[PointAnswer, PointAnswer]

#: Steps of the ball argument kept along a branch of the tree: older ones hardly add anything.
MOST_BALLS = 6
#: Steps of the ball argument that a box tries on its own, and the part of the gap that makes another one worth it.
FURTHER_BALLS = 3
ANOTHER_BALL = 1e-3
#: Boxes within this factor of the settled optimum's total try its prices.
SAME_REGION = 1.5
#: Totals this close to the best one, relative to it, are not worth a box of their own.
CLOSEST = 1e-4
#: A search that is not done after this many boxes, or this part of its time, asks for further profiles to start from.
SOON_NODES = 100
SOON = 0.2
#: Part of its time after which a search has its present result checked once, to learn the time of a check.
PROBE = 0.1
#: Largest harmless distance of the final claim below the found bound: part of the gap, which is not closed quite
#: (:data:`stackfu.leader.certified.totals.CLOSED_PART`).
CLAIM_RESERVE = 9e-4
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
    refreshed: Classes | None = None  # what was known when the ends were last solved for this box
    value: float = -np.inf  # proved lower bound, normalised
    seen: tuple[float, PointAnswer | None] | None = None  # target and settled optimum that it was proved with
    steps: tuple[Pair, ...] = ()
    classes: Classes | None = None
    trail: tuple[Pair, ...] = ()  # the steps whose balls led to the classes
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


class Search(Totals):
    """The tree of boxes over what is known at single totals."""

    def __init__(
        self, game: GameModel, objective: Objective, gap: Gap = 0.0, time_limit: float = np.inf
    ) -> None:
        super().__init__(game, objective, gap, time_limit)
        self.open = OpenBoxes()
        self.aside: list[Box] = []  # too small to divide
        self.current: Box | None = None
        self._companions: dict[tuple[int, float], PointAnswer | None] = {}
        self.root: Box | None = None

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
            improved = reached > value + ANOTHER_BALL * self.gap
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
        box.value, box.steps, box.classes, box.trail = value, proof, classes, tuple(steps)

    def companions(self, box: Box) -> list[Pair]:
        """Return the settled optimum's prices at both ends of a box nearby."""
        near = self.settled
        if (
            near is None
            or box.low <= 0.0
            or not box.low <= SAME_REGION * near.total <= SAME_REGION**2 * box.high
        ):
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
        balls = box.trail[-MOST_BALLS:]
        first = Box(low, at, box.decided, (box.ends[0], middle), balls)
        second = Box(at, high, box.decided, (middle, box.ends[1]), balls)
        return first, second

    def decide(self, box: Box, client: int) -> tuple[Box, ...]:
        box.node = Decide(client)
        out = []
        for verdict in (PAID, VOLUNTEER):
            decided = box.decided.copy()
            decided[client] = verdict
            out.append(Box(box.low, box.high, decided, box.ends, box.trail[-MOST_BALLS:]))
        return tuple(out)

    def stale(self, box: Box) -> bool:
        """Return True if more is known in this box than when its ends were solved."""
        known = box.classes
        assert known is not None
        if box.refreshed is not None and box.refreshed.agrees(known):
            return False
        box.refreshed = known
        return not all(end.classes.agrees(known) for end in box.ends)

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
        before = (box.value, box.steps, box.ends, box.balls, box.classes, box.seen, box.trail)
        box.balls = box.trail  # the new multipliers are for what these tell
        box.ends = (answers[0] or box.ends[0], answers[1] or box.ends[1])
        self.evaluate(box)
        if box.value < before[0]:
            box.value, box.steps, box.ends, box.balls, box.classes, box.seen, box.trail = before

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
        """Return the least bound of all boxes: open, set aside, and the one that is being worked on."""
        current = -np.inf if self.root is None else np.inf if self.current is None else self.current.value
        return min(self.open.lower(), min((b.value for b in self.aside), default=np.inf), current)

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
        claim = LeaderCertificate(lower, tuple(knots), tuple(nodes))
        check = partial(check_bound, self.game, self.objective, arithmetic="intervals")
        return accepted(check, claim, CLAIM_RESERVE * self.gap * self.problem.unit_loss)


def search(
    game: GameModel,
    objective: Objective,
    *,
    gap: Gap,
    time_limit: float,
    max_nodes: int,
    starts: Iterable[Array] = (),
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
        if found.offer_start(x) and objective.loss_weight:
            found.blend(x)
    history: list[dict[str, Any]] = []
    status = Status.CERTIFIED
    nodes = 0
    judging = 0.0  # seconds per box that the judge will take at the end, which are part of the limit
    try:
        state.roots()
        while max(state.open.lower(), 0.0) < state.target:  # no objective is below 0
            elapsed = clock() - began
            if later is not None and (
                nodes >= SOON_NODES or elapsed > SOON * time_limit or nodes >= max_nodes
            ):
                for x in later():
                    found.offer(x)
                later = None
                state.settle()
                continue
            if clock() + judging * nodes > state.deadline:
                status = Status.TIME_LIMIT
                break
            if not judging and nodes and elapsed > PROBE * time_limit:
                before = clock()
                state.certificate(min(state.lower(), state.incumbent) * unit)
                judging = (clock() - before) / nodes
                continue
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
