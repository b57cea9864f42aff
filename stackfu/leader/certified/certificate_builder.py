"""Builds certificates within the time limit: the cost of a check, the time reserved for it, and a claim lowered until accepted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...jit import clock
from ...judging.bound_at_scale import ScaleChecker
from ...judging.bound_check import BoundVerdict, check_bound, is_large
from ...judging.inner_products import ALL_PAIRS, InnerProducts
from ...judging.space import held_products
from ...model import GameModel, Objective
from ...results.certificate import LeaderCertificate, Leaf, Split
from ...results.certificate import Node as CertificateNode
from ...threads import factoring
from .boxes import Boxes, Node, Step
from .claims import accepted
from .memory import trim_heap
from .normalised import certificate_knot

__all__ = ["CertificateBuilder", "Deadline"]

#: Safety margin subtracted from the claimed bound, and the largest harmless one: parts of the gap that was closed.
MODESTY, RESERVE = 0.005, 0.015
#: Expected cost of a check, relative to the measured one.
CAUTION = 1.3
#: Number of clients in a timed factorisation, which predicts the time for all.
TIMED = 1000
#: A check is timed up to so many times, as long as that takes no longer than so many seconds.
REPEATS, BRIEF = 4, 0.03
#: Steps of a leaf that are tried instead of all of its steps.
SHORT = 4


class Deadline:
    """Deadline of a search; the remaining time is reserved for checking the certificate."""

    def __init__(self, until: float) -> None:
        self.until, self.reserve = until, 0.0

    def __call__(self) -> bool:
        """Return True once the deadline has passed."""
        return clock() > self.until - self.reserve


class CertificateBuilder:
    """Builds and checks the certificates of one search, and reserves the time for it."""

    def __init__(self, game: GameModel, objective: Objective, boxes: Boxes, out_of_time: Deadline) -> None:
        self.game, self.objective, self.boxes, self.out_of_time = game, objective, boxes, out_of_time
        self.large = is_large(game)
        self.threads: int | None = None  # that may factor inner products; None: as many as may work now
        self.leaf_steps = 0
        self.checker: ScaleChecker | None = None
        self.products: InnerProducts | None = None  # held, so that the judge does not read them again
        self.step_cost = self.knot_cost = self.reading_cost = 0.0

    def prepare(self, easy: float) -> bool:
        """Read the game into the checker, and measure what a knot and a step of a leaf cost to check; False: no time for that.

        ``easy`` is any claim that is easily proved.
        """
        problem, began = self.boxes.problem, clock()
        problem.place.inner(problem.place.combine(problem.alpha))
        if max(10.0 * (clock() - began), self._reading_takes()) > self.out_of_time.until - clock():
            self.out_of_time.reserve = np.inf
            return False
        began = clock()
        self._read()
        reading = clock() - began
        middle = 0.5 * (self.objective.min_total + 1.0)
        leaf = Leaf(((0, 0),))
        knots = (certificate_knot(problem, self.boxes.knots[0]),)
        one_leaf = self._seconds(LeaderCertificate(easy, knots, (leaf,)))
        two_leaves = 0.0
        if middle < 1.0:
            two_leaves = self._seconds(LeaderCertificate(easy, knots, (Split(middle), leaf, leaf)))
        few = self.large  # then the game is read once and for all, and knots are dear
        self.step_cost = two_leaves if few else max(two_leaves - one_leaf, 0.0)
        self.knot_cost = max(one_leaf - 0.5 * two_leaves, 0.0) if few else 0.0
        self.reading_cost = reading if few else one_leaf
        if self.products is not None:  # every knot takes passes over all of them
            self.knot_cost = one_leaf
        if few:  # the search needs the room more
            self.checker = None
            trim_heap(self.game.count)
        self.keep_reserve()
        return True

    def _seconds(self, claim: LeaderCertificate) -> float:
        """Return the least time that a check takes; one that was interrupted for a moment must not look dear."""
        least, began = np.inf, clock()
        for _ in range(REPEATS):
            start = clock()
            self.check(claim)
            least = min(least, clock() - start)
            if clock() - began > BRIEF:
                break
        return least

    def _reading_takes(self) -> float:
        """Seconds that the judge needs to factor many clients' inner products, from what those of a few take."""
        if self.large or self.game.count <= ALL_PAIRS:
            return 0.0
        few = np.eye(TIMED)
        began = clock()
        with factoring(self.game.count, self.threads):
            np.linalg.cholesky(few)
        return CAUTION * (clock() - began) * (self.game.count / TIMED) ** 3

    def _read(self) -> None:
        """The game as the checker knows it, where reading it takes long."""
        trim_heap(self.game.count)
        if self.large:
            self.checker = ScaleChecker(self.game, self.objective)
            trim_heap(self.game.count)
        elif self.game.count > ALL_PAIRS and self.products is None:
            with factoring(self.game.count, self.threads):
                self.products = held_products(self.game, self.objective)

    def check(self, claim: LeaderCertificate) -> BoundVerdict:
        """Return the checker's verdict on a certificate."""
        if self.checker is None:
            return check_bound(self.game, self.objective, claim, "intervals")
        return self.checker.check(claim)

    def keep_reserve(self) -> None:
        """Time to be left for the checker: every step of a leaf once, every knot once, and something for a second claim."""
        self.out_of_time.reserve = CAUTION * (
            self.reading_cost + self.leaf_steps * self.step_cost + len(self.boxes.knots) * self.knot_cost
        )

    def to_check(self, node: Node) -> int:
        """Return the expected number of a leaf's steps that the checker uses; few are left of many, see :meth:`_fewest_steps`."""
        return min(len(node.steps), SHORT) if self.large else len(node.steps)

    def _fewest_steps(self, node: Node, lower: float) -> tuple[Step, ...]:
        """Return the last few of a leaf's steps if they prove as much as all: each costs the judge ten times what it costs here."""
        if not self.large or node.low <= 0.0:
            return node.steps
        for count in range(1, min(len(node.steps), SHORT + 1)):
            if self.boxes.prove(node, node.steps[-count:], lower):
                return node.steps[-count:]
        return node.steps

    def certificate(
        self, root: Node, lower: float, gap: float
    ) -> tuple[LeaderCertificate | None, BoundVerdict | None]:
        """Return the tree as a certificate, its claim lowered until the judge accepts it, and the judge's verdict.

        ``lower`` was found, ``gap`` is what it may be away from the incumbent.
        """
        if not np.isfinite(lower):
            return None, None
        # sums are rounded differently here and there
        claim = replace(self.tree(root, lower), lower=lower - MODESTY * gap)
        self._read()
        return accepted(self.check, claim, RESERVE * gap) or (None, None)

    def tree(self, root: Node, lower: float) -> LeaderCertificate:
        """Return the tree in preorder with the knots it uses; the search ends here, and its knots with it."""
        problem, unit = self.boxes.problem, self.boxes.problem.unit_loss
        used: dict[int, int] = {}
        tree: list[CertificateNode] = []
        stack = [root]
        while stack:
            node = stack.pop()
            if node.cut is not None:
                tree.append(node.cut)
                stack.extend(reversed(node.children))
                continue
            steps = []
            for pair in self._fewest_steps(node, lower / unit):
                for knot in pair:
                    used.setdefault(knot, len(used))
                steps.append((used[pair[0]], used[pair[1]]))
            tree.append(Leaf(tuple(steps)))
        knots = tuple(certificate_knot(problem, self.boxes.knots.without_products(i)) for i in used)
        self.boxes.knots.clear()  # the checker needs room
        return LeaderCertificate(lower, knots, tuple(tree))
