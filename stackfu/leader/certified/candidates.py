"""Profiles that payments induce within the constraints: what a relaxed point is turned into, and what is kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...judging.stakes import NEGLIGIBLE, check_stakes
from ...model import Array, GameModel, Objective, Profile
from ...model.price import brackets, cheapest_payments
from ..tolerances import LIMIT_ROUNDING, ROUNDING, SNAP
from .payment_problem import LeaderProblem

__all__ = ["Candidate", "Candidates"]

#: Payment beyond indifference for a client at full, relative to its cost: it stays at full for certain.
FIRMNESS = 1e-10
#: All such extra payments together stay below this part of the budget.
FIRMNESS_OF_BUDGET = 1e-9
#: A bracket may be this far below zero, relative to the client's cost, for a client that is not at full: rounding.
INDUCIBLE = 1e-12
#: A larger violation than this is not a cone solver's inaccuracy, and not repaired.
REPAIRABLE = 1e-4
#: The least by which a profile grows where that makes room: two units in the last place.
LEAST_GROWTH = 4e-16
#: Values that differ by less than this part of the largest squared distance's are the same, and the cheaper profile is the better.
UNRESOLVED = 1e-16
#: Up to this many clients all feasible profiles met are kept, for a robust choice among them.
POOLED = 1000
#: Largest violation, relative to a client's own terms, at which an unpaid profile counts as an equilibrium without further proof.
UNPAID_RESIDUAL = 1e-12


@dataclass(frozen=True, eq=False)
class Candidate:
    """A profile that payments induce within the constraints."""

    x: Array
    payments: Array
    spend: float
    loss: float
    value: float


class Candidates:
    """Feasible profiles met on the way, the best first in ``best``."""

    def __init__(self, game: GameModel, objective: Objective, problem: LeaderProblem) -> None:
        self.game, self.objective, self.problem = game, objective, problem
        self.best: Candidate | None = None
        self._least = np.inf  # value met
        self.pool: list[Candidate] = []

    @property
    def value(self) -> float:
        """Objective of the best profile, infinite without one."""
        return np.inf if self.best is None else self.best.value

    def realise(self, x: Array) -> Candidate | None:
        """Return the cost and yield of a profile, or None if it breaks a constraint; tiny violations are repaired."""
        game = self.game
        for _ in range(6):
            x = np.clip(x, 0.0, 1.0)
            x = np.where(x < SNAP * x.max(), 0.0, np.where(x > 1.0 - SNAP, 1.0, x))
            if not x.any():
                return None
            profile = game.profile(x)
            # shares below full must not want more for free: a slightly larger S makes room (d^2 / S falls)
            shortfall = np.where(profile.x < 1, -brackets(game, profile) / game.costs, 0.0)
            excess = float(shortfall.max())
            if excess <= INDUCIBLE:
                break
            if excess > REPAIRABLE:
                return None
            x = x * (1.0 + max(1.5 * excess, LEAST_GROWTH))
        else:
            return None
        payments = cheapest_payments(game, profile)
        # the cheapest payments leave a paid client at full exactly indifferent; a hair more keeps it there for certain
        extra = min(FIRMNESS, FIRMNESS_OF_BUDGET * self.objective.budget / float(game.costs.sum()))
        firm = np.where((profile.x == 1) & (payments > 0), payments + extra * game.costs, payments)
        return self._candidate(profile, firm) or self._candidate(profile, payments)

    def _candidate(self, profile: Profile, payments: Array) -> Candidate | None:
        """Return a profile with payments that induce it, unless it breaks a constraint."""
        game, objective = self.game, self.objective
        if profile.total < objective.min_total * (1.0 - LIMIT_ROUNDING):
            return None
        spend = float(payments @ profile.x)
        if spend > objective.budget * (1.0 + LIMIT_ROUNDING):
            return None
        loss = game.loss_of(profile, objective.finite_sample)
        if loss > objective.max_loss * (1.0 + LIMIT_ROUNDING):
            return None
        weight = objective.loss_weight if self.problem.loss_weight else 0.0
        return Candidate(profile.x, payments, spend, loss, weight * loss + objective.payment_weight * spend)

    def offer(self, x: Array) -> bool:
        """Keep the profile if it is feasible; whether it is."""
        return self._keep(self.realise(x))

    def offer_start(self, x: Array) -> bool:
        """Keep a profile that a search begins with, paid or as an equilibrium that needs no payments; whether it is feasible."""
        return self.offer(x) or self.offer_unpaid(x)

    def offer_unpaid(self, x: Array) -> bool:
        """Keep an equilibrium that needs no payments, also where rounding would charge it some."""
        nothing = np.zeros(self.game.count)
        small = self.game.residual(nothing, x) <= UNPAID_RESIDUAL
        if not small and not check_stakes(self.game, nothing, x).max() <= NEGLIGIBLE:
            return False
        return self._keep(self._candidate(self.game.profile(x), nothing))

    def _keep(self, candidate: Candidate | None) -> bool:
        if candidate is None:
            return False
        if self.game.count <= POOLED:
            self.pool.append(candidate)
        alike = UNRESOLVED * self.problem.unit_loss
        if (
            self.best is None
            or candidate.value < self._least - alike
            or (candidate.value <= self._least + alike and candidate.spend < self.best.spend)
        ):
            self.best = candidate
        self._least = min(self._least, candidate.value)
        return True

    def blend(self, start: Array) -> None:
        """Move from a feasible profile's mixture towards the ideal one as far as the budget goes; cheap at any size.

        A mixture without volunteers needs ``S >= d_k^2 / theta_k`` for everyone, and costs least at the smallest such S.
        """
        p = self.problem
        low, high = 0.0, 1.0
        origin = self.game.profile(start).mixture
        ideal = np.where(p.ideal > ROUNDING, p.ideal, 0.0)
        for step in range(30):
            share = 1.0 if step == 0 else 0.5 * (low + high)
            z = (1.0 - share) * origin + share * ideal
            # the least S with d_k^2 + a / (2 S) <= theta_k S for everyone
            d2, a = p.squared_distances(z), p.client_sampling
            least = float(((d2 + np.sqrt(d2 * d2 + 2.0 * a * p.theta)) / (2.0 * p.theta)).max())
            total = max(least * (1 + ROUNDING), self.objective.min_total)
            fits = total * float((z / p.alpha).max()) <= 1.0 and self.offer(total * z / p.alpha)
            if fits and step == 0:
                return
            low, high = (share, high) if fits else (low, share)
