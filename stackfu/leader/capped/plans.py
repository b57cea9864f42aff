"""Plans: what a mixture and a total cost and yield in the game itself, and the best one met so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...jit import clock
from ...model import Array, GameModel, Objective
from ...model.offers import capped_offers, firmness
from ..tolerances import COARSE_SNAP, LIMIT_ROUNDING, ROUNDING, SNAP
from .columns import linearised_columns
from .descent import Prices, affordable, descend, everybody
from .problem import PlanProblem
from .programme import linearised

__all__ = ["Plan", "Plans"]

#: Shares that sum to 1 up to this are a mixture that a cone solver left behind; others are no proposal.
NO_MIXTURE = 1e-6
#: Cone programmes are scaled by the squared norm of the best mixture, kept above this part of the largest squared distance.
SMALLEST_SCALE = 1e-6
#: Least total of a plan that a local search looks at, and of its first looks: below them plans are priced, not improved.
LEAST_PLAN, FIRST_TOTAL = 1e-6, 1e-3
#: Shares this near to 0 or 1 are tried there, the widest edge first: a plan that is as good with fewer fractions is the better one.
EDGES = (1e-3, 1e-5, 1e-7)
#: Clients in the samples by which a search among very many begins.
SAMPLES = (2_000, 10_000)
#: Steps of a local search end when no share moves by more than this.
STILL = 1e-8


@dataclass(frozen=True, eq=False)
class Plan:
    """A profile with its cheapest capped offers."""

    x: Array
    prices: Array
    retainers: Array
    spend: float
    loss: float
    value: float


class Plans:
    """Plans within the constraints; ``best`` is the best one so far."""

    def __init__(self, game: GameModel, goal: Objective, problem: PlanProblem, outside: Array | None) -> None:
        self.game, self.goal, self.problem, self.outside = game, goal, problem, outside
        self.best: Plan | None = None
        self.known: Prices | None = None  # what the last search in all amounts found the limits to be worth
        self.deadline = np.inf  # of local search, on the clock of :func:`stackfu.jit.clock`

    @property
    def late(self) -> bool:
        """Whether local search has had its time."""
        return clock() > self.deadline

    @property
    def target(self) -> float:
        """The value to beat, in normalised units."""
        return np.inf if self.best is None else self.best.value / self.problem.unit_loss

    @property
    def size(self) -> float:
        """``||m||^2`` at the best plan: the scale at which cone programmes are well conditioned."""
        if self.best is None:
            return 0.05
        m = self.mixture(self.best)[0] @ self.problem.points
        return float(np.clip(m @ m, SMALLEST_SCALE, 1.0))

    def mixture(self, plan: Plan) -> tuple[Array, float]:
        """A plan's mixture and total."""
        y = self.game.alpha * plan.x
        return y / y.sum(), float(y.sum())

    # ------------------------------------------------------------ keeping

    def price(self, x: Array) -> Plan | None:
        """The plan with its offers, or None if it breaks a constraint."""
        if not x.any():
            return None
        game, goal = self.game, self.goal
        profile = game.profile(x)
        if profile.total < goal.min_total * (1.0 - LIMIT_ROUNDING):
            return None
        offers = capped_offers(game, profile, self.outside)
        spend = offers.most
        if spend > goal.budget * (1.0 + LIMIT_ROUNDING):
            return None
        loss = game.loss_of(profile, goal.finite_sample)
        if loss > goal.max_loss * (1.0 + LIMIT_ROUNDING):
            return None
        return Plan(profile.x, offers.prices, offers.retainers, spend, loss, goal.value(loss, spend))

    def offer(self, x: Array) -> bool:
        """Keep the profile if it is feasible and better; whether it is feasible."""
        x = np.clip(x, 0.0, 1.0)
        x = np.where(x < SNAP * x.max(), 0.0, np.where(x > 1.0 - SNAP, 1.0, x))
        # a hair less data costs less by more than the hair that posted prices add to the least ones
        plan = self.price(x) or self.price((1.0 - 2.0 * firmness(self.game.count)) * x)
        if plan is None:
            return False
        if self.best is None or plan.value < self.best.value:
            self.best = plan
        return True

    def offer_mixture(self, z: Array, total: float) -> bool:
        """Keep a mixture at a total; cheap to call when it is no improvement."""
        p = self.problem
        z = np.minimum(z, p.alpha / total)
        if not np.isfinite(z).all() or abs(z.sum() - 1.0) > NO_MIXTURE:
            return False
        if p.value(z, total) >= self.target or p.spend(z, total) > p.budget * (1.0 + COARSE_SNAP):
            return False
        return self.offer(total * z / p.alpha)

    # ------------------------------------------------------------ local search

    def settle(self, z: Array, total: float, steps: int = 4) -> Array:
        """Sequential convex steps at one total: linearise the products, solve, go as far as the budget allows."""
        p = self.problem
        for _ in range(steps):
            if self.late:
                break
            if p.large:
                ahead = linearised_columns(p, z, total, self.deadline).z
            else:
                ahead = linearised(p, z, total, self.size).z
            if p.spend(ahead, total) > p.budget and p.spend(z, total) <= p.budget:
                ahead = self._as_far_as_paid(z, ahead, total)
            moved = float(np.abs(ahead - z).max())
            z = ahead
            self.offer_mixture(z, total)
            if moved < STILL:
                break
        return z

    def _as_far_as_paid(self, start: Array, end: Array, total: float) -> Array:
        spend = self.problem.spend_between(start, end, total)
        low, high = 0.0, 1.0
        for _ in range(40):
            share = 0.5 * (low + high)
            fits = spend(share) <= self.problem.budget
            low, high = (share, high) if fits else (low, share)
        return np.asarray(start + low * (end - start))

    def polish(self, evaluations: int = 24) -> None:
        """Search along the total around the best plan, settling at every value tried."""
        if self.best is None:
            return
        p = self.problem
        z, total = self.mixture(self.best)
        floor = max(p.floor, LEAST_PLAN)
        width = 0.1 * total
        for _ in range(evaluations // 2):
            if self.late:
                break
            before = self.target
            for trial in (total - width, total + width):
                trial = float(np.clip(trial, floor, 1.0))
                start = np.minimum(z, p.alpha / trial)
                self.settle(start / start.sum(), trial, 3)
            assert self.best is not None
            z, total = self.mixture(self.best)
            if self.target >= before - ROUNDING * abs(before):
                width *= 0.35
            if width < COARSE_SNAP * total:
                break

    def descend(self) -> None:
        """All amounts at once, from the best plan."""
        if self.best is not None:
            self.known = descend(self.problem, self.best.x, self.offer, lambda: self.late, self.known)

    def explore(self, starts: tuple[Array, ...]) -> None:
        """All amounts at once, from each start; with very many clients a sample of them goes first."""
        p = self.problem
        for x in starts:
            self.offer(x)
        if p.sampled is not None:
            self._by_samples(starts[0])
            self.descend()
            return
        for x in starts:
            descend(p, x, self.offer, lambda: self.late)

    def _by_samples(self, start: Array) -> None:
        """A search in the amounts of few clients, then of more; what the last one finds, everybody is asked for."""
        p = self.problem
        x, known = start, None
        last: PlanProblem | None = None
        for size in (s for s in SAMPLES if s < p.count):
            rows, few = p.sample(size)
            x = start[rows] if last is None or known is None else everybody(few, last, known)
            known, last = descend(few, x, lambda _: True, lambda: self.late, known), few
        if last is None or known is None:
            return
        x = everybody(p, last, known)
        self.offer(x)
        self.offer(affordable(p, x) * x)
        self.known = known

    def tidy(self) -> None:
        """Leave out who brings next to nothing and raise who brings next to everything, if the plan stays as good."""
        if self.best is None:
            return
        x = self.best.x
        for edge in EDGES:
            plan = self.price(np.where(x < edge, 0.0, np.where(x > 1.0 - edge, 1.0, x)))
            if plan is not None and plan.value <= self.best.value:
                self.best = plan
                return

    def begin(self, starts: tuple[Array, ...]) -> None:
        """Feasible plans to start from: those given, the ideal mixture, and what settles along a few totals."""
        p = self.problem
        for x in starts:
            self.offer(x)
        if p.large:
            self.descend()
        floor = max(p.floor, FIRST_TOTAL)
        # the largest totals first: with time for a few only, those that use the data
        for total in np.geomspace(floor, 1.0, 6 if p.large else 10)[::-1]:
            for mixture in (p.ideal, p.alpha):
                z = np.minimum(mixture, p.alpha / total)
                z = z / z.sum() if z.sum() < 1.0 else z
                if (z <= p.alpha / total * (1.0 + ROUNDING)).all():
                    self.offer_mixture(z, float(total))
            self.settle(p.alpha, float(total), 3)
        self.polish(10 if p.large else 24)
        if p.large:
            self.descend()
