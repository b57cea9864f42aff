"""Boxes of total participation with decided clients: the tree that a search grows, which becomes the certificate's.

What is known about a box is a list of steps, pairs of knots. Each gives multipliers that are affine in S, a bound, and a ball that
narrows every client's distance for the next step (:mod:`stackfu.leader.certified.payment_bound`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...model import Array
from ...results.certificate import Decide, Split
from ...results.certificate import Node as CertificateNode
from .knots import Knots
from .payment_bound import Between, Classes, Multipliers, ball, box_margin, classify, interpolate
from .payment_problem import LeaderProblem

__all__ = ["Boxes", "Node", "Step", "Verdict", "recipe_of"]

Mask = npt.NDArray[np.bool_]
Step = tuple[int, int]

#: Steps that narrow the distances before a node is given up.
STEPS = 4
#: Steps that are handed down to the children.
RECIPE = 8


@dataclass(eq=False)
class Node:
    """An interval of S, some decided clients, and what is known about it."""

    low: float
    high: float
    first: int  # knots below and above; 0 is the one without prices
    second: int
    plan: tuple[Step, ...]  # steps that helped the parent
    paid: tuple[int, ...] = ()
    full: tuple[int, ...] = ()
    bound: float = -np.inf
    steps: tuple[Step, ...] = ((0, 0),)  # that prove the bound, perhaps the parent's
    helped: tuple[Step, ...] = ((0, 0),)  # the best ones on this very box, for its children to begin with
    cut: CertificateNode | None = None
    solved: list[float] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)

    def close_up(self) -> None:
        """Make the node a leaf again: unexplored children prove nothing."""
        self.cut, self.children = None, []

    @property
    def ends(self) -> list[Step]:
        """The knots at the ends: both, or either alone."""
        both = [(self.first, self.second), (self.first, self.first), (self.second, self.second)]
        return list(dict.fromkeys(pair for pair in both if 0 not in pair))

    def split(self, at: float, knot: int | None) -> None:
        """Two halves, with the knot between them, if there is one."""
        recipe = recipe_of(self.helped)
        # what proves the parent's bound proves it on a part of its box
        known = (self.paid, self.full, self.bound, self.steps)
        left = Node(self.low, at, self.first, self.second, recipe, *known)
        right = Node(at, self.high, self.first, self.second, recipe, *known)
        if knot is not None:
            left.second, right.first = knot, knot
        self.cut, self.children = Split(at), [left, right]

    def decide(self, client: int, recipe: tuple[Step, ...]) -> None:
        """The client is paid, or it is a volunteer."""
        ends, known = (self.low, self.high, self.first, self.second, recipe), (self.bound, self.steps)
        no = Node(*ends, (*self.paid, client), self.full, *known)
        yes = Node(*ends, self.paid, (*self.full, client), *known)
        self.cut, self.children = Decide(client), [no, yes]


@dataclass(eq=False)
class Verdict:
    """Result of steps on a box: a bound, the steps behind it, and the known facts about the clients after them."""

    bound: float
    steps: tuple[Step, ...]
    classes: Classes | None  # None: the box is empty
    trail: tuple[Step, ...]  # all steps that led to the classes


def recipe_of(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps worth repeating; if there are many, each once, the latest few."""
    priced = [pair for pair in steps if pair != (0, 0)]
    if len(priced) > RECIPE:
        priced = [pair for i, pair in enumerate(priced) if pair not in priced[i + 1 :]]
    return tuple(priced[-RECIPE:])


class Boxes:
    """Bounds from multipliers on boxes."""

    def __init__(self, problem: LeaderProblem, knots: Knots, out_of_time: Callable[[], bool]) -> None:
        self.problem, self.knots, self.out_of_time = problem, knots, out_of_time

    def masks(self, node: Node) -> tuple[Mask, Mask]:
        """Return the clients decided to be paid, and those decided to be volunteers."""
        paid, full = (
            np.zeros(len(self.problem.alpha), dtype=bool),
            np.zeros(len(self.problem.alpha), dtype=bool),
        )
        paid[list(node.paid)] = True
        full[list(node.full)] = True
        return paid, full

    def judge(
        self,
        node: Node,
        low: float,
        high: float,
        goal: float,
        recipe: Sequence[Step],
        others: Sequence[Step] = (),
        steps: int = STEPS,
    ) -> Verdict:
        """The best bound on a box. Each step's ball narrows the distances for the next one: first the recipe, then whatever is
        best.
        """
        p = self.problem
        if not np.isfinite(
            goal
        ):  # nothing to compare with yet: any finite value will do for the bound, none for balls
            return self._judge_at_once(node, low, high, (*recipe, *others), 0.0)
        if low <= 0.0:
            return self._judge_at_once(node, low, high, (*recipe, *others), goal)
        paid, full = self.masks(node)
        near: Array | None = None
        far: Array | None = None
        taken: list[Step] = []
        best, kept, last = -np.inf, 0, -np.inf
        ordered = [(0, 0), *recipe]
        choice = list(dict.fromkeys((*recipe, *others)))
        for step in range(len(ordered) + steps):
            classes = classify(p, low, high, paid, full, near, far)
            if classes is None:
                return Verdict(np.inf, (*taken, taken[-1]) if taken else ((0, 0),), None, ())
            trial = [ordered[step]] if step < len(ordered) else choice
            if not trial:
                break
            tried = []
            for pair in trial:
                found = box_margin(p, low, high, self.at(pair, low), self.at(pair, high), classes, goal)
                tried.append((found, pair))
                if found >= 0:
                    break
            margin, chosen = max(tried)
            if step >= len(ordered):  # what was far behind stays behind
                choice = [pair for _, pair in sorted(tried, reverse=True)[:2]]
            taken.append(chosen)
            if margin > best:
                best, kept = margin, len(taken)
            if margin >= 0:
                return Verdict(goal + margin, tuple(taken), classes, tuple(taken))
            if (step >= len(ordered) and margin <= 0.95 * last) or self.out_of_time():
                break
            last = best
            if np.isfinite(margin):
                reach = ball(p, self.at(chosen, low), self.at(chosen, high), margin, near, far)
                assert reach is not None
                near, far = reach
        classes = classify(p, low, high, paid, full, near, far)
        if classes is None:
            return Verdict(np.inf, (*taken, taken[-1]), None, ())
        return Verdict(goal + best, tuple(taken[:kept]), classes, tuple(taken))

    def _judge_at_once(
        self, node: Node, low: float, high: float, pairs: Sequence[Step], goal: float
    ) -> Verdict:
        """Return the same in one step: from S = 0, where there are no balls, and without anything to compare with."""
        paid, full = self.masks(node)
        classes = classify(self.problem, low, high, paid, full)
        if classes is None:
            return Verdict(np.inf, ((0, 0),), None, ())
        found = [
            (
                box_margin(self.problem, low, high, self.at(pair, low), self.at(pair, high), classes, goal),
                pair,
            )
            for pair in ((0, 0), *pairs)
        ]
        margin, pair = max(found)
        return Verdict(goal + margin, (pair,), classes, (pair,))

    def at(self, pair: Step, total: float) -> Multipliers | Between:
        """Return the multipliers of a step at S."""
        return interpolate(self.knots[pair[0]], self.knots[pair[1]], total)

    def prove(self, node: Node, steps: Sequence[Step], lower: float) -> bool:
        """Return True if these steps, one after the other, refute everything below ``lower``."""
        p, (paid, full) = self.problem, self.masks(node)
        near: Array | None = None
        far: Array | None = None
        for pair in steps:
            classes = classify(p, node.low, node.high, paid, full, near, far)
            if classes is None:
                return True
            ends = self.at(pair, node.low), self.at(pair, node.high)
            margin = box_margin(p, node.low, node.high, *ends, classes, lower)
            if margin >= 0:
                return True
            reach = ball(p, *ends, margin, near, far) if np.isfinite(margin) else None
            if reach is None:
                return False
            near, far = reach
        return False
