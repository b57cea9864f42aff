r"""The leader's optimum for any number of clients: best-first search over boxes of total participation and volunteers.

A node is an interval of S and a few decided clients. It is bounded by multipliers that are *affine in S between two solved totals*
(:mod:`.payment_bound`), so most nodes cost no solve, only passes over the clients. What fails to be closed is,
whichever is to blame:

width           the multipliers are good in the middle of the interval: it is halved
multipliers     they are not: the convex program is solved there (:mod:`stackfu.leader.certified.sifting`), and the
interval halved at the new knot
the hull        the program itself is too weak there: the client with the largest ``(u_k - z_k) e_k u_k`` is decided,
first "paid", then "volunteer"

Each bound also says how far from its centre a better mixture can be, which narrows every client's distance (steps of a leaf),
and with it the hull. Profiles come from local search (:mod:`stackfu.leader.local_search`): at first from the start profiles,
later from solved programs, each time after twice as many solves if the last time led to nothing.

The tree that results is the certificate: every leaf keeps the steps that closed it, so nothing has to be believed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ConvergenceError, InfeasibleError
from ...jit import clock
from ...judging.gaps import Gap, gap_at
from ...model import Array, GameModel, Objective
from ...results import Status
from ...results.certificate import LeaderCertificate
from ..bound import Problem
from ..local_search import LocalSearch
from ..tolerances import BROKEN, GENEROUS, ONE_TOTAL, ROUNDING, SAFETY, SMALLEST_TOTAL
from .boxes import Boxes, Node, Step, Verdict, recipe_of
from .candidates import Candidate, Candidates
from .certificate_builder import CertificateBuilder, Deadline
from .interior_point import Columns, Constants, Goal, Rows, solve_slice
from .knots import Knots
from .memory import trim_heap
from .normalised import normalised
from .payment_bound import MANY, Between, BoundProblem, Classes, Multipliers
from .points import FeaturePoints
from .sifting import Prices, Restriction, SliceAnswer, sample, solve_at
from .small_search import Run

__all__ = ["Refutation", "refute", "search_large"]

Mask = npt.NDArray[np.bool_]

#: The program is not solved beyond this S: there is no room between the caps and full participation.
NEARLY_ALL = 1.0 - 1e-7
#: Shares of the time that is left that local search may take at first, and each time it begins again.
EXPLORING, IMPROVING = 0.15, 0.05
#: Above this many clients local search begins with a sample of them.
SAMPLED_BEYOND = 20_000
#: Price of a broken row while there is no incumbent to measure it by.
PENALTY = 30.0
#: Part of the gap that the search closes itself.
GAP_TO_CLOSE = 0.98


def _kept_back(gap: Gap) -> Gap:
    """Return a slightly narrower gap: the rest is left to the checker, which rounds against the claim."""
    return lambda value: GAP_TO_CLOSE * gap_at(gap, value)


class _Search:
    def __init__(
        self, game: GameModel, objective: Objective, gap: Gap, time_limit: float, goal: float = np.inf
    ) -> None:
        self.began = clock()
        self.out_of_time = Deadline(self.began + time_limit)
        self.game, self.objective = game, objective
        self.problem = normalised(game, objective)
        self.unit = self.problem.unit_loss
        self.goal = goal / self.unit  # what is to be proved or reached, if it is not the best there is
        self.candidates = Candidates(game, objective, self.problem)
        self.asked_gap = _kept_back(gap)
        self.knots = Knots(self.problem)
        self.knots.add(self._without_prices())
        self.local: LocalSearch | None = None
        self.local_until = np.inf
        self.boxes = Boxes(self.problem, self.knots, self.out_of_time)
        self.builder = CertificateBuilder(game, objective, self.boxes, self.out_of_time)
        self.solves = 0
        self.patience, self.patient_until = 1, 0
        self.recent: dict[Node, tuple[Any, Verdict]] = {}
        self.origin = np.ones(game.count)

    def _without_prices(self) -> Multipliers:
        """The knot that only says that a better mixture is nearer to the ideal than the incumbent's.

        Its centre is the ideal itself, or in Gram games, where a certificate can only name mixtures, the mixture nearest to it.
        """
        p, n = self.problem, self.game.count
        nobody = np.zeros(n)
        if isinstance(p.place, FeaturePoints):
            return Multipliers.of(p, 1.0, 1.0, 0.0, 0.0, 0.0, nobody, p.place.combine(nobody))
        rank = p.place.rank
        nearest = solve_slice(
            Columns(p.place.rows(np.arange(n)), np.ones(n), nobody, nobody),
            Rows(np.zeros((0, rank)), *(np.zeros(0),) * 3, np.zeros(0, dtype=np.intp)),
            Constants(0.0, np.zeros(rank), 0.0, 0.0, 0.0, np.zeros(rank)),
            Goal(1.0, 0.0, np.inf, np.inf, 1.0),
        ).z
        centre = p.place.combine(nearest / nearest.sum())
        weight = p.loss_weight + p.payment_weight
        level = 2.0 * weight * float(p.place.inner(centre).min())
        return Multipliers.of(p, 1.0, 1.0, 0.0, 0.0, level, nobody, centre)

    @property
    def gap(self) -> float:
        """Return the gap to close at the best profile, in normalised units."""
        return gap_at(self.asked_gap, self.candidates.value) / self.unit

    @property
    def target(self) -> float:
        """A node with a bound of at least this needs no more work."""
        return min(self.candidates.value / self.unit - self.gap, self.goal)

    @property
    def reached(self) -> bool:
        """True if the goal is reached."""
        return bool(np.isfinite(self.goal)) and self.upper <= self.goal

    @cached_property
    def worst(self) -> float:
        """No feasible profile has a larger objective: the loss at its cap or at the furthest client, every cost paid."""
        p = self.problem
        loss = float(p.diagonal.max()) + p.loss_constant
        if p.noise.any() or p.loss_sampling:
            loss += (float(p.noise.max()) + p.loss_sampling) / max(p.floor, SMALLEST_TOTAL)
        spend = min(p.budget, float(p.theta @ p.alpha))
        return (p.loss_weight * min(loss, p.loss_cap) + p.payment_weight * spend) * (1.0 + GENEROUS)

    @property
    def penalty(self) -> float:
        """Price of a broken row: far above what a unit of squared distance is worth, not so far that it spoils the multipliers."""
        return 100.0 * self.upper if 0.0 < self.upper < np.inf else PENALTY

    @property
    def upper(self) -> float:
        """The incumbent's value."""
        return self.candidates.value / self.unit

    # ---------------------------------------------------------------- bounds

    def examine(self, node: Node) -> Verdict:
        """The verdict on a node, which is not worked out again for those just looked at."""
        known = self.recent.get(node)
        if known is not None and known[0] == (self.target, node.first, node.second, node.plan):
            return known[1]
        verdict = self.boxes.judge(node, node.low, node.high, self.target, node.plan, node.ends)
        verdict.classes = None  # which nobody asks for again
        self.recent[node] = (self.target, node.first, node.second, node.plan), verdict
        node.helped = verdict.steps
        if verdict.bound >= node.bound:
            node.bound, node.steps = verdict.bound, verdict.steps
        return verdict

    # ---------------------------------------------------------------- solving

    def solve(
        self, total: float, classes: Classes, guess: Multipliers | Between | None, factor: float = 1.0
    ) -> tuple[int, SliceAnswer]:
        """Solve at S under what is known; the new knot's number and the answer."""
        answer = solve_at(
            self.problem,
            total,
            Restriction(classes.paid, classes.volunteer, classes.ceiling),
            guess=None if guess is None else self._prices(guess),
            enough=0.02 * max(self.gap, 1e-9 * self.upper if np.isfinite(self.upper) else 0.0),
            stop_above=self.target + 0.2 * (abs(self.upper) + self.gap)
            if np.isfinite(self.upper)
            else np.inf,
            penalty=factor * self.penalty,
            exact=False,
            stop=self.out_of_time,
        )
        self.solves += 1
        y = answer.prices
        return self.knots.add(_known(self.problem, y)), answer

    def _prices(self, y: Multipliers | Between) -> Prices:
        along = y.along
        inner = along / y.weight
        centre = y.pull / y.weight
        return Prices(
            y.total, y.budget, y.loss_cap, y.level, y.rows, centre, inner, along - y.slope,
            self.problem.place.dot(centre, centre, inner),
        )  # fmt: skip

    def propose(self, total: float, answer: SliceAnswer) -> bool:
        """Start a local search from a relaxed point; True if the incumbent improved.

        Each search that leads to nothing makes the next one wait twice as long.
        """
        if self.local is None or answer.value >= self.upper - 0.1 * self.gap or answer.broken > 1e-3:
            return False
        if self.solves < self.patient_until:
            return False
        before = self.candidates.value
        now = clock()
        self.local_until = now + IMPROVING * max(self.out_of_time.until - self.out_of_time.reserve - now, 0.0)
        x, y = np.clip(answer.z * (total / self.problem.alpha), 0.0, 1.0), answer.prices
        self.local.improve(x, self.local.known(x, y.budget, y.cap, y.rows))
        self.patience = 1 if self.candidates.value < before else 2 * self.patience
        self.patient_until = self.solves + self.patience
        return self.candidates.value < before

    def start_from(self, profiles: Iterable[Array]) -> None:
        """Offer some profiles, none of which is kept but the best, and the first for want of any."""
        for number, x in enumerate(profiles):
            if number == 0:
                self.origin = x
            self.candidates.offer_start(x)
        if self.candidates.best is not None:
            self.origin = self.candidates.best.x

    def explore(self) -> Iterator[None]:
        """Search locally from the first profile and from full participation, above a size first for a sample of clients; stop at
        each end on the way.
        """
        p = self.problem
        now = clock()
        self.local_until = now + EXPLORING * max(self.out_of_time.until - self.out_of_time.reserve - now, 0.0)

        def late() -> bool:
            return clock() > self.local_until or self.reached

        loss = self.game.loss_of(self.game.profile(self.origin), self.objective.finite_sample) / self.unit
        self.local = LocalSearch(_plain(p), self.candidates.offer, late, loss)
        if self.game.count > SAMPLED_BEYOND:
            chosen, few = sample(p)
            self.local.explore_sample(self.origin, chosen, _plain(few))
            return
        for x in (self.origin, np.ones(self.game.count)):
            if not late():
                self.local.explore(x)
                yield

    # ---------------------------------------------------------------- nodes

    def expand(self, node: Node) -> None:
        """Work on a node that is not closed; its children, if any, are examined by the caller."""
        if node.low <= 0.0:
            self._from_zero(node)
            return
        verdict = self.examine(node)
        if verdict.bound >= self.target:
            return
        ends = node.ends
        recipe = recipe_of(verdict.trail)
        middle = (
            0.5 * (node.low + node.high)
            if node.high < 4.0 * node.low
            else float(np.sqrt(node.low * node.high))
        )
        lacking = self.target - verdict.bound
        at = middle
        if (
            not ends and self.candidates.best is not None
        ):  # begin where the incumbent is: everything is sharpest there
            total = float(self.problem.alpha @ self.candidates.best.x)
            if node.low < total < min(node.high, NEARLY_ALL):
                at = total
        if ends:
            # where on the interval are the multipliers worst? If they are good everywhere, its width is to blame
            places = (node.low, middle, node.high)
            there = [
                self.boxes.judge(node, s, s, self.target, recipe, ends, 0 if recipe else 1).bound
                for s in places
            ]
            worst = int(np.argmin(there))
            # with very many clients a solve costs no more than looking at a box, but far from a proof it tells little
            near = self.game.count >= MANY and lacking < 0.5 * self.upper
            good = self.target - (0.0 if near else 0.2 * lacking)
            if there[worst] >= good and not self._tiny(node):
                node.helped = verdict.trail  # with these steps they were found good
                node.split(middle, None)
                return
            if worst != 1 and there[1] >= good and places[worst] not in node.solved:
                at = places[worst]
        known = self.boxes.judge(node, at, at, self.target, recipe, ends, 1)
        if known.classes is None and node.high not in node.solved:  # the middle holds nothing, the end may
            at, known = node.high, self.boxes.judge(node, node.high, node.high, self.target, recipe, ends, 1)
        if known.classes is None:
            node.helped = known.steps  # what refutes the middle refutes what is near enough to it
            node.split(middle, None)
            return
        if at > NEARLY_ALL or self._forced(at, known.classes):
            knot = self._all_held(at, known.classes)
            recipe = recipe_of((*known.trail, (knot, knot)))
            node.solved.append(at)
            if at == node.high:
                node.second, node.plan = knot, recipe
            else:
                node.split(at, knot)
            return
        knot, answer = self.solve(at, known.classes, self.boxes.at(ends[0], at) if ends else None)
        if answer.broken > BROKEN and answer.bound < self.target:
            knot, answer = self.solve(at, known.classes, self.knots[knot], 100.0)
        known.classes = None  # local search needs room
        self.propose(at, answer)
        trail = (*known.trail, (knot, knot))
        recipe = recipe_of(trail)
        solved = self.boxes.judge(node, at, at, self.target, recipe, (), 1)
        if solved.bound < self.target <= answer.bound and len(recipe) < len(trail) - 1:
            # solved for what the whole trail tells, the multipliers are good: what was left out tells some of it
            recipe = tuple(pair for pair in trail if pair != (0, 0))
            solved = self.boxes.judge(node, at, at, self.target, recipe, (), 1)
        missing = self.target - solved.bound
        node.solved.append(at)
        exact = answer.value - answer.bound <= 0.3 * missing
        if missing > 0.3 * lacking and exact:
            client = self._doubtful(at, answer, solved.classes)
            if client is not None:
                node.decide(client, recipe)
                return
        if at == node.low:
            node.first, node.plan = knot, recipe
        elif at == node.high:
            node.second, node.plan = knot, recipe
        else:
            node.split(at if node.low < at < node.high else middle, knot)
            if missing <= 0.0 and self.game.count < MANY:
                self._try_on_halves(node, recipe)

    def _try_on_halves(self, node: Node, recipe: tuple[Step, ...]) -> None:
        """Steps that refuted the point between two halves refute what is near enough to it: theirs, where they prove more."""
        for half in node.children:
            before, plan = self.examine(half).bound, half.plan
            if before < self.target:
                half.plan = recipe
                if self.examine(half).bound <= before:
                    half.plan = plan

    def _forced(self, total: float, classes: Classes) -> bool:
        """Return True if the clients at full already bring all of S."""
        return float(self.problem.alpha[classes.volunteer].sum()) > total * NEARLY_ALL

    def _all_held(self, total: float, classes: Classes) -> int:
        """Return the knot at a total that leaves no choice: all clients are where they must be."""
        p = self.problem
        brought = p.alpha if total > NEARLY_ALL else np.where(classes.volunteer, p.alpha, 0.0)
        centre = p.place.combine(brought / brought.sum())
        y = Multipliers.of(p, total, 1.0, 0.0, 0.0, 0.0, np.zeros(self.game.count), centre)
        return self.knots.add(y.at_best_level(p, classes))

    @staticmethod
    def _tiny(node: Node) -> bool:
        return node.high - node.low <= ONE_TOTAL * node.high

    def _doubtful(self, total: float, answer: SliceAnswer, classes: Classes | None) -> int | None:
        """Return the client with the largest violation of its hull."""
        if classes is None:
            return None
        cap = self.problem.alpha / total
        open_ = ~classes.paid & ~classes.volunteer
        score = np.where(open_, (cap - answer.z) * answer.excess_unpaid * cap, 0.0)
        k = int(np.argmax(score))
        return k if score[k] > 0 else None

    def _from_zero(self, node: Node) -> None:
        """Cut off ``(0, b]``: some clients own more than b, so they cannot be at full, and their data are too
        different for all of them to be content with so little participation.

        With ``P = p w`` on those clients (w their shares) and c their mean, ``g = const + p (sum_k w_k ||mu_k - c||^2 - b sum_k
        w_k theta_k)``, which is positive for b small and p large enough.
        """
        p, n = self.problem, self.game.count
        goal = self.target if np.isfinite(self.target) else self.worst
        best = (0.0, np.zeros(n), 0.0)
        for some in self._apart():
            w = np.zeros(n)
            w[some] = 1.0 / len(some)
            mean = p.place.combine(w)
            spread = float(w @ p.diagonal) - p.place.dot(mean, mean)
            if spread > ROUNDING:
                best = max(
                    best,
                    (
                        0.5 * min(spread / float(w @ p.theta), float(p.alpha[some].min()), node.high),
                        w,
                        spread,
                    ),
                    key=lambda b: b[0],
                )
        at, w, spread = best
        if at <= 0.0:
            raise ConvergenceError(
                "the clients' data are too alike to tell how little participation is too little"
            )
        mean = p.place.combine(w)
        gain = spread - at * float(w @ p.theta)
        weight = p.loss_weight + p.payment_weight
        pay = p.payment_weight
        level = float((2.0 * weight * p.place.inner(mean) - pay * p.diagonal).min())
        missing = goal - p.loss_weight * p.loss_constant - level + weight * p.place.dot(mean, mean)
        price = 2.0 * max(missing, 0.0) / gain + SAFETY
        node.second = self.knots.add(Multipliers.of(p, at, 1.0, 0.0, 0.0, level, price * w, mean))
        node.split(at, node.second)
        node.children[0].first, node.children[1].first = node.second, 0
        node.children[1].second = 0

    def _apart(self) -> list[Array]:
        """Pairs of clients that own much and differ: the largest, and whoever is furthest from it, among all or among those
        that own much.
        """
        p = self.problem
        largest = int(np.argmax(p.alpha))
        only = np.zeros(self.game.count)
        only[largest] = 1.0
        distances = p.place.squared_distances(p.place.combine(only))
        others = [
            np.argmax(distances),
            np.argmax(distances * p.alpha),
            np.argmax(np.minimum(distances, p.alpha * float(p.theta.max()))),
        ]
        return [np.array([largest, int(k)]) for k in others if k != largest]


def _plain(p: BoundProblem) -> Problem:
    """Return the problem as local search sees it."""
    return Problem(
        p.alpha, p.theta, p.place, p.budget, p.loss_cap, p.floor, p.loss_square, p.loss_constant, p.loss_pull, p.noise,
        p.loss_sampling, p.client_sampling, p.loss_weight, p.payment_weight,
    )  # fmt: skip


def _known(problem: Any, y: Prices) -> Multipliers:
    """Multipliers from prices, without another pass over the points."""
    weight = problem.loss_weight + y.cap + problem.payment_weight + y.budget + float(y.rows.sum())
    along = weight * y.inner
    return Multipliers(
        y.total, 1.0, y.budget, y.cap, y.level, y.rows, weight, weight * y.centre, along, along - y.pulled
    )


def search_large(
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
    """Best-first search until the absolute ``gap`` (in the objective's units), the time or the nodes are used up.

    ``later`` gives further profiles to start from, which are asked for after local search.
    """
    search = _Search(game, objective, gap, time_limit)
    with _one_thread() as threads:
        search.builder.threads = threads
        return _run(search, max_nodes, starts, later, callback)


@dataclass(eq=False)
class _Explored:
    """End of a search."""

    root: Node
    status: Status = Status.CERTIFIED
    bound: float = -np.inf
    nodes: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


def _run(
    search: _Search,
    max_nodes: int,
    starts: Iterable[Array],
    later: Callable[[], Iterable[Array]] | None,
    callback: Callable[[dict[str, Any]], None] | None,
) -> Run:
    found = _explore(search, max_nodes, starts, callback, later)
    best = search.candidates.best
    if best is None:
        if found.status is Status.CERTIFIED:
            raise InfeasibleError(
                "no payments satisfy the constraints: every box of total participation was refuted"
            )
        raise ConvergenceError(
            f"no feasible payments were found, and none were proved impossible ({found.status.name.lower()})"
        )
    unit = search.unit
    certificate, verdict = search.builder.certificate(found.root, found.bound * unit, search.gap * unit)
    return Run(
        best=best,
        bound=-np.inf if certificate is None else certificate.lower,
        history=tuple(found.history),
        status=found.status,
        nodes=found.nodes,
        pool=tuple(search.candidates.pool),
        certificate=certificate,
        verdict=verdict,
    )


def _explore(
    search: _Search,
    max_nodes: int,
    starts: Iterable[Array],
    callback: Callable[[dict[str, Any]], None] | None,
    later: Callable[[], Iterable[Array]] | None = None,
) -> _Explored:
    objective, unit = search.objective, search.unit
    search.start_from(starts)
    root = Node(objective.min_total, 1.0, 0, 0, ())
    out = _Explored(root)
    heap: list[tuple[float, int, Node]] = [(-np.inf, 0, root)]
    current: list[Node] = []  # taken off the heap, and not back on it
    expanding: Node | None = None
    closed = np.inf

    def lower() -> float:
        return min(heap[0][0] if heap else np.inf, *(n.bound for n in current), closed, search.upper)

    def report(node: Node) -> None:
        record = {
            "node": out.nodes,
            "interval": (float(node.low), float(node.high)),
            "lower": lower() * unit,
            "upper": search.candidates.value,
            "solves": search.solves,
            "seconds": clock() - search.began,
        }
        out.history.append(record)
        if callback is not None:
            callback(record)

    try:
        search.examine(root)  # a bound from the first moment on, however weak
        heap[0] = (root.bound, 0, root)
        for _ in search.explore():
            report(root)
        for x in later() if later is not None and not search.out_of_time() else ():
            search.candidates.offer(x)
        if search.builder.prepare(-search.worst * unit):
            search.builder.leaf_steps += search.builder.to_check(root)
        else:  # no bound that cannot be checked in time
            root.bound = -np.inf
            heap[0] = (root.bound, 0, root)
        while heap and max(heap[0][0], 0.0) < search.target and not search.reached:  # no objective is below 0
            if search.out_of_time():
                out.status = Status.TIME_LIMIT
                break
            if out.nodes >= max_nodes:
                out.status = Status.MAX_ITERATIONS
                break
            expanding = node = heap[0][2]
            current = [node]
            heapq.heappop(heap)
            before = search.builder.to_check(node)
            search.expand(node)
            search.recent.clear()
            trim_heap(search.game.count)
            out.nodes += 1
            children = node.children or [node]
            for child in children:
                search.examine(child)
            current, expanding = children, None
            search.builder.leaf_steps += sum(map(search.builder.to_check, children)) - before
            search.builder.keep_reserve()
            for child in children:
                if child.bound < search.target:
                    heapq.heappush(heap, (child.bound, out.nodes * 2 + len(heap), child))
                else:  # balls were taken for points below the target: no more is proved
                    closed = min(closed, search.target)
            current = []
            report(node)
    except KeyboardInterrupt:
        out.status = Status.INTERRUPTED
        if expanding is not None:
            expanding.close_up()
    out.bound = lower()
    search.recent.clear()
    search.local = None  # it knows the search: without the circle both go at once
    return out


@dataclass(frozen=True, eq=False)
class Refutation:
    """Whether any payments bring the objective to a goal: the best ones met, or a tree whose multipliers show that none do."""

    best: Candidate | None
    tree: LeaderCertificate | None
    status: Status
    nodes: int


def refute(
    game: GameModel,
    objective: Objective,
    goal: float,
    *,
    gap: Gap,
    time_limit: float,
    max_nodes: int,
    starts: Iterable[Array],
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Refutation:
    """Search until payments reach the goal or every box is shown to hold none, which the caller has the judge look at."""
    with _one_thread() as threads:
        search = _Search(game, objective, gap, time_limit, goal)
        search.builder.threads = threads
        found = _explore(search, max_nodes, starts, callback)
        ruled_out = found.status is Status.CERTIFIED and found.bound >= search.goal and not search.reached
        tree = search.builder.tree(found.root, goal) if ruled_out else None
        return Refutation(search.candidates.best, tree, found.status, found.nodes)


@contextmanager
def _one_thread() -> Iterator[int | None]:
    """One thread for products of matrices while a search runs; how many there were before."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas") as pinned:
        yield pinned.get_original_num_threads()["blas"]
