"""Plans: what a mixture and a total cost and yield in the game itself, and the best one met so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...jit import clock
from ...model import Array, GameModel, Objective
from ...model.offers import capped_offers, firmness
from ..bound import Problem
from ..certified.points import ArrayPoints
from ..local_search import LocalSearch
from ..tolerances import COARSE_SNAP, LIMIT_ROUNDING, ROUNDING, SNAP
from .plan_problem import PlanProblem

__all__ = ["Plan", "Plans"]

#: Shares that sum to 1 up to this are a mixture that a cone solver left behind; others are no proposal.
NO_MIXTURE = 1e-6
#: Cone programmes are scaled by the squared norm of the best mixture, kept above this part of the largest squared distance.
SMALLEST_SCALE = 1e-6
#: Least total of a plan that a local search looks at, and of its first looks: below them plans are priced, not improved.
LEAST_PLAN, FIRST_TOTAL = 1e-6, 1e-3
#: Shares this near to 0 or 1 are tried there, the widest edge first: a plan that is as good with fewer fractions is the better one.
EDGES = (1e-3, 1e-5, 1e-7)
#: Clients in the sample by which a search among very many begins.
SAMPLED_FIRST = 2_000


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
        self._local: LocalSearch | None = None
        self.deadline = np.inf  # of local search, on the clock of :func:`stackfu.jit.clock`

    @property
    def late(self) -> bool:
        """Return True once the time of the local search is over."""
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

    def _search(self, x: Array) -> LocalSearch:
        """Return the local search; its unit is the loss of the first plan that it is asked for."""
        if self._local is None:
            p = self.problem
            y = np.maximum(p.alpha * x, LEAST_PLAN * p.alpha)
            total = float(y.sum())
            self._local = LocalSearch(_plain(p), self.offer, lambda: self.late, p.loss(y / total, total))
        return self._local

    def improve(self, x: Array) -> None:
        """Search from a plan."""
        self._search(x).improve(x)

    def begin(self, starts: tuple[Array, ...]) -> None:
        """Find plans from those given and from the ideal mixture at a few totals; with very many clients from a sample first."""
        p = self.problem
        for x in starts:
            self.offer(x)
        for total in np.geomspace(max(p.floor, FIRST_TOTAL), 1.0, 6 if p.large else 10)[::-1]:
            for mixture in (p.ideal, p.alpha):
                z = np.minimum(mixture, p.alpha / total)
                z = z / z.sum() if z.sum() < 1.0 else z
                if (z <= p.alpha / total * (1.0 + ROUNDING)).all():
                    self.offer_mixture(z, float(total))
        if p.sampled is not None and p.outside is None:
            self._search(starts[0]).explore_sample(starts[0], *_sample(p))
            return
        for x in starts:
            if not self.late:
                self._search(x).explore(x)

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


def _sample(p: PlanProblem) -> tuple[npt.NDArray[np.int64], Problem]:
    rows, few = p.sample(min(SAMPLED_FIRST, p.count))
    return rows, _plain(few)


def _plain(p: PlanProblem) -> Problem:
    """Return the problem as local search sees it."""
    return Problem(
        p.alpha, p.theta, ArrayPoints(p.points), p.budget, p.loss_cap, p.floor, p.loss_square, p.loss_constant,
        np.zeros(1), p.noise, p.loss_sampling, p.client_sampling, p.loss_weight, p.payment_weight, True, p.outside,
    )  # fmt: skip
