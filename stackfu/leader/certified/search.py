"""Payments with a certificate: global optimum by branch and bound over total participation.

u_server depends on the mixture z alone, and for fixed total S and fixed volunteers the leader's problem is a small
second-order cone program (:mod:`stackfu.leader.relaxation`). What is left is one number, S in (0, 1], and for each client
at most one yes or no: is it a volunteer? Nodes are boxes of these. Each node is bounded from below by a cone program whose
error falls with the square of the width in S; each node also proposes a point, which is played back exactly through the
closed-form price of its profile. The incumbent starts at the equilibrium that arises without payments.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ConvergenceError, InfeasibleError
from ...game import StackelbergGame
from ...geometry import Array
from ...profile import Profile
from ...result import Status
from ..price import brackets, cheapest_payments
from ..relaxation import FREE, PAID, VOLUNTEER, Kind, LeaderProblem, Relaxation, RelaxedPoint

#: Boxes narrower than this, relative to their S, are bounded by the tilted program.
NARROW = 1e-6

#: What a client at full is paid beyond indifference, relative to its cost.
FIRMNESS = 1e-10

__all__ = ["Candidate", "Objective", "Run", "certified"]

#: Relative part of the budget held back in the cone programs, so that rounding never overspends.
SHRINKS = (1e-9, 1e-7, 1e-5)


@dataclass(frozen=True)
class Objective:
    """What the leader minimises: ``loss_weight * loss + payment_weight * payment``, and its constraints."""

    budget: float
    payment_weight: float = 0.0
    loss_weight: float = 1.0
    loss_cap: float = np.inf
    finite_sample: bool = False
    floor: float = 0.0  # least total participation S


@dataclass(frozen=True, eq=False)
class Candidate:
    """A profile that payments induce within the constraints."""

    x: Array
    payments: Array
    spend: float
    loss: float
    value: float


@dataclass(frozen=True, eq=False)
class Run:
    """Outcome of a branch and bound run, in the game's units; ``pool`` are the feasible profiles met on the way."""

    best: Candidate
    bound: float
    shadow_price: float
    history: tuple[dict[str, Any], ...]
    status: Status
    nodes: int
    pool: tuple[Candidate, ...]


@dataclass(eq=False)
class _Node:
    bound: float
    low: float
    high: float
    decided: npt.NDArray[np.int8]
    point: RelaxedPoint


class _Search:
    """State of one branch and bound run; works in normalised units inside, in the game's units outside."""

    def __init__(
        self, game: StackelbergGame, objective: Objective, gap: float = 0.0, time_limit: float = np.inf
    ) -> None:
        self.deadline = time.perf_counter() + time_limit
        self.game, self.objective = game, objective
        self.problem = LeaderProblem.of(
            game,
            budget=objective.budget,
            loss_cap=objective.loss_cap,
            loss_weight=objective.loss_weight,
            payment_weight=objective.payment_weight,
            finite_sample=objective.finite_sample,
        )
        self._programs: dict[tuple[Kind, int, bytes], Relaxation] = {}
        self.best: Candidate | None = None
        self.pool: list[Candidate] = []
        # inaccuracy of a bound that is not worth another try
        self.resolution = 0.1 * gap / self.problem.unit_loss

    def program(self, kind: Kind, decided: npt.NDArray[np.int8], shift: int = 0) -> Relaxation:
        """The cone program for a set of volunteers, built once; ``shift`` tries another scaling."""
        volunteers = decided == VOLUNTEER
        exponent = min(max(self._exponent() + shift, -5), 0)
        key = (kind, exponent, volunteers.tobytes())
        if key not in self._programs:
            if len(self._programs) >= 64:
                self._programs.pop(next(iter(self._programs)))
            self._programs[key] = Relaxation(
                self.problem, kind, 4.0**exponent, volunteers, max(self.deadline - time.perf_counter(), 1.0)
            )
        return self._programs[key]

    def _exponent(self) -> int:
        """``||m||`` at the incumbent as a power of 4: the scale at which the cone programs are well conditioned."""
        if self.best is None:
            return -2
        tau = self.best.loss / self.problem.unit_loss - self.problem.constant
        return round(math.log(max(tau, 1e-12)) / math.log(16.0))

    def bound(self, low: float, high: float, decided: npt.NDArray[np.int8], enough: float) -> RelaxedPoint:
        """Lower bound on a box; an inaccurate answer is tried again at other scalings, each of whose bounds is valid."""
        kind: Kind = "wide" if high - low > NARROW * high else "narrow"
        point: RelaxedPoint | None = None
        for shift, penalty in ((0, 1.0), (1, 30.0), (2, 1e3), (-2, 30.0)):
            other = self.program(kind, decided, shift).solve(low, high, decided, penalty=penalty)
            if point is None:
                point = other
            else:
                better = other if other.slack < point.slack or not np.isfinite(point.total) else point
                point = replace(better, bound=max(point.bound, other.bound))
            settled = (point.slack <= self.resolution and other.solved) or point.bound >= enough
            if settled or time.perf_counter() > self.deadline:
                break
        assert point is not None
        return point

    # ------------------------------------------------------------ points

    def value(self, loss: float, spend: float) -> float:
        weight = self.objective.loss_weight if self.problem.loss_weight else 0.0
        return weight * loss + self.objective.payment_weight * spend

    def realise(self, x: Array) -> Candidate | None:
        """What a profile costs and yields, or None if it breaks a constraint; tiny violations are repaired."""
        game = self.game
        for _ in range(6):
            x = np.clip(x, 0.0, 1.0)
            x = np.where(x < 1e-9 * x.max(), 0.0, np.where(x > 1.0 - 1e-9, 1.0, x))
            if not x.any():
                return None
            profile = game.profile(x)
            # shares below full must not want more for free: a slightly larger S makes room (d^2 / S falls)
            shortfall = np.where(profile.x < 1, -brackets(game, profile) / game.costs, 0.0)
            excess = float(shortfall.max())
            if excess <= 1e-12:
                break
            if excess > 1e-4:
                return None
            x = x * (1.0 + max(1.5 * excess, 4e-16))
        else:
            return None
        payments = cheapest_payments(game, profile)
        # the cheapest payments leave a paid client at full exactly indifferent; a hair more keeps it there for certain
        payments = np.where((profile.x == 1) & (payments > 0), payments + FIRMNESS * game.costs, payments)
        return self._candidate(profile, payments)

    def _candidate(self, profile: Profile, payments: Array) -> Candidate | None:
        """A profile with payments that induce it, unless it breaks a constraint."""
        game, objective = self.game, self.objective
        if profile.total < objective.floor * (1.0 - 1e-12):
            return None
        spend = float(payments @ profile.x)
        if spend > objective.budget * (1.0 + 1e-12):
            return None
        loss = game.server_loss(profile.x)
        if objective.finite_sample:
            loss += game.finite_sample_penalty(profile.x)
        if loss > objective.loss_cap * (1.0 + 1e-12):
            return None
        return Candidate(profile.x, payments, spend, loss, self.value(loss, spend))

    def offer(self, x: Array) -> bool:
        """Keep the profile if it beats the incumbent."""
        return self._keep(self.realise(x))

    def offer_unpaid(self, x: Array) -> bool:
        """Keep an equilibrium that needs no payments, also where rounding would charge it some."""
        nothing = np.zeros(self.game.count)
        if self.game.residual(nothing, x) > 1e-12:
            return False
        return self._keep(self._candidate(self.game.profile(x), nothing))

    def _keep(self, candidate: Candidate | None) -> bool:
        if candidate is None:
            return False
        self.pool.append(candidate)
        if self.best is None or candidate.value < self.best.value:
            self.best = candidate
        return True

    def blend(self, start: Array) -> None:
        """Move from a feasible profile's mixture towards the ideal one as far as the budget goes; cheap at any size.

        A mixture without volunteers needs ``S >= d_k^2 / theta_k`` for everyone, and costs least at the smallest such S.
        """
        p = self.problem
        low, high = 0.0, 1.0
        origin = self.game.profile(start).mixture
        ideal = np.where(p.ideal > 1e-12, p.ideal, 0.0)
        for step in range(30):
            share = 1.0 if step == 0 else 0.5 * (low + high)
            z = (1.0 - share) * origin + share * ideal
            total = max(float((p.squared_distances(z) / p.theta).max()) * (1 + 1e-12), self.objective.floor)
            fits = total * float((z / p.alpha).max()) <= 1.0 and self.offer(total * z / p.alpha)
            if fits and step == 0:
                return
            low, high = (share, high) if fits else (low, share)

    def propose(self, node: _Node) -> None:
        """Turn a node's relaxed point into feasible profiles: fix its S, guess its volunteers, solve exactly."""
        z, total = node.point.z, node.point.total
        if not np.isfinite(total) or total <= 0:
            return
        self.offer(total * z / self.problem.alpha)
        previous: npt.NDArray[np.int8] | None = None
        for _ in range(3):
            guess = node.decided.copy()
            free = guess == FREE
            keen = self.problem.squared_distances(z) >= self.problem.theta * total * (1 - 1e-9)
            capped = total * z >= self.problem.alpha * (1 - 1e-5)
            guess[free] = np.where((keen & capped)[free], VOLUNTEER, PAID)
            if previous is not None and np.array_equal(previous, guess):
                return
            previous = guess
            for shrink in SHRINKS:
                exact = self.program("point", guess).solve(total, total, guess, shrink=shrink)
                if not exact.solved or not np.isfinite(exact.total):
                    return
                if self.offer(total * exact.z / self.problem.alpha):
                    break
            z = exact.z

    def shadow_price(self) -> float:
        """What one more unit of budget is worth: the budget's multiplier near the incumbent, its volunteers decided.

        S must be free to follow the budget, so the multiplier is that of a small box around the incumbent's S.
        """
        if self.best is None or not np.isfinite(self.objective.budget):
            return 0.0
        if self.best.spend < self.objective.budget * (1.0 - 1e-4):
            return 0.0
        x, paid = self.best.x, self.best.payments
        decided = np.where((x == 1) & (paid == 0), VOLUNTEER, PAID).astype(np.int8)
        total = float(self.game.alpha @ x)
        low = max(total - 1e-3, self.objective.floor, float(self.problem.alpha[decided == VOLUNTEER].sum()))
        point = self.program("wide", decided).solve(low, min(total + 1e-3, 1.0), decided, penalty=30.0)
        return point.budget_price * self.problem.unit_loss / self.problem.unit_payment

    # ------------------------------------------------------------ nodes

    def node(
        self, low: float, high: float, decided: npt.NDArray[np.int8], parent: float, enough: float = np.inf
    ) -> _Node:
        """Bound a box; what cannot be a volunteer there is decided first."""
        p = self.problem
        decided = decided.copy()
        decided[(decided == FREE) & ((p.theta * low > p.reach) | (p.alpha > high))] = PAID
        forced = float(p.alpha[decided == VOLUNTEER].sum())
        if forced > high:
            return _Node(np.inf, low, high, decided, RelaxedPoint(np.inf, p.alpha, 1.0, 0.0, 0.0, False))
        low = max(low, forced)
        point = self.bound(low, high, decided, enough)
        return _Node(max(point.bound, parent), low, high, decided, point)

    def split(self, node: _Node) -> list[tuple[float, float, npt.NDArray[np.int8]]]:
        """Children of a node: halves of S, or one client decided both ways, whichever explains more of the error."""
        p, point = self.problem, node.point
        middle = 0.5 * (node.low + node.high)
        if np.isfinite(point.total):
            free = node.decided == FREE
            if free.any():
                excess = p.squared_distances(point.z) - p.theta * point.total
                short = point.total * point.z < p.alpha * (1 - 1e-6)
                score = np.where(free & (excess > 0), excess * (point.z + short), 0.0)
                k = int(np.argmax(score))
                if score[k] > max(point.spread, 1e-12) or node.high - node.low < 1e-7 * node.high:
                    if score[k] <= 0:
                        k = int(np.flatnonzero(free)[0])
                    children = []
                    for verdict in (PAID, VOLUNTEER):
                        decided = node.decided.copy()
                        decided[k] = verdict
                        children.append((node.low, node.high, decided))
                    return children
            inner = node.low + np.array([0.15, 0.85]) * (node.high - node.low)
            middle = float(np.clip(point.total, *inner))
        return [(node.low, middle, node.decided), (middle, node.high, node.decided)]


def certified(
    game: StackelbergGame,
    objective: Objective,
    *,
    gap: float,
    time_limit: float,
    max_nodes: int,
    starts: tuple[Array, ...] = (),
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Branch and bound until the absolute ``gap`` (in the objective's units), the time or the nodes are used up."""
    began = time.perf_counter()
    search = _Search(game, objective, gap, time_limit)
    unit = search.problem.unit_loss
    nearest = search.problem.nearest_loss * unit
    if game.lam_v + game.lam_s > 0 and nearest > objective.loss_cap * (1 + 1e-9):
        raise InfeasibleError(
            f"a loss of at most {objective.loss_cap:g} is out of reach whatever the budget: no mixture of the remaining "
            f"clients' data has a loss below {nearest:.6g}"
        )
    for x in starts:
        if (search.offer(x) or search.offer_unpaid(x)) and objective.loss_weight:
            search.blend(x)
    history: list[dict[str, Any]] = []
    status = Status.CERTIFIED
    heap: list[tuple[float, int, _Node]] = []
    counter = 0
    closed_bound = np.inf  # least bound among the nodes set aside: within the gap, or too small to split
    current_bound = (
        search.problem.least_loss
    )  # of the box being worked on, in no list: an interrupt must not lose it

    def lower() -> float:
        best = np.inf if search.best is None else search.best.value
        return min([heap[0][0] * unit if heap else np.inf, closed_bound * unit, current_bound * unit, best])

    def target() -> float:
        return np.inf if search.best is None else (search.best.value - gap) / unit

    try:
        if search.best is not None and search.problem.least_loss * unit >= search.best.value - gap:
            bound = min(search.problem.least_loss * unit, search.best.value)
            return Run(search.best, bound, search.shadow_price(), (), status, 0, tuple(search.pool))
        root = search.node(objective.floor, 1.0, np.zeros(game.count, dtype=np.int8), -np.inf, target())
        heapq.heappush(heap, (root.bound, counter, root))
        current_bound = np.inf
        search.propose(root)
        while heap and heap[0][0] < target():
            elapsed = time.perf_counter() - began
            if elapsed > time_limit:
                status = Status.TIME_LIMIT
                break
            if counter >= max_nodes:
                status = Status.MAX_ITERATIONS
                break
            current_bound = heap[0][0]
            _, _, node = heapq.heappop(heap)
            if node.high - node.low < 1e-9 * node.high and not (node.decided == FREE).any():
                closed_bound, current_bound = min(closed_bound, node.bound), np.inf
                continue
            for low, high, decided in search.split(node):
                child = search.node(low, high, decided, node.bound, target())
                counter += 1
                if child.bound < target():
                    heapq.heappush(heap, (child.bound, counter, child))
                    search.propose(child)
                else:
                    closed_bound = min(closed_bound, child.bound)
            current_bound = np.inf
            record = {
                "node": counter,
                "interval": (node.low, node.high),
                "undecided": int((node.decided == FREE).sum()),
                "lower": lower(),
                "upper": np.inf if search.best is None else search.best.value,
                "seconds": time.perf_counter() - began,
            }
            history.append(record)
            if callback is not None:
                callback(record)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    if search.best is None:
        if status is Status.CERTIFIED and not heap and closed_bound == np.inf:
            raise InfeasibleError(
                "no payments satisfy the constraints: every box of total participation was refuted"
            )
        why = (
            "rounding hides the answer"
            if status is Status.CERTIFIED
            else status.name.lower().replace("_", " ")
        )
        raise ConvergenceError(f"no feasible payments were found, and none were proved impossible ({why})")
    bound = min(lower(), search.best.value)
    return Run(search.best, bound, search.shadow_price(), tuple(history), status, counter, tuple(search.pool))
