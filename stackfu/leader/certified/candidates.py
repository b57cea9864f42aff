"""Feasible payments met by a search: profiles realised through their closed-form price, the best of them kept."""

from __future__ import annotations

import numpy as np

from ...game import StackelbergGame
from ...geometry import Array
from ...profile import Profile
from ..price import brackets, cheapest_payments
from .search import FIRMNESS, Candidate, Objective

__all__ = ["Candidates"]

#: Candidates kept beside the best one, so that a robust choice has something to choose from.
POOL = 50


class Candidates:
    """The incumbent, and what else was met."""

    def __init__(self, game: StackelbergGame, objective: Objective) -> None:
        self.game, self.objective = game, objective
        self.best: Candidate | None = None
        self.pool: list[Candidate] = []
        self._weight = objective.loss_weight if game.lam_v + game.lam_s > 0 else 0.0

    @property
    def value(self) -> float:
        """Objective of the incumbent, infinite without one."""
        return np.inf if self.best is None else self.best.value

    def offer(self, x: Array) -> bool:
        """Keep a profile, slightly repaired if need be, if payments induce it within the constraints."""
        return self._keep(self.realise(x))

    def offer_unpaid(self, x: Array) -> bool:
        """Keep an equilibrium that needs no payments, also where rounding would charge it some."""
        nothing = np.zeros(self.game.count)
        if self.game.residual(nothing, x) > 1e-12:
            return False
        return self._keep(self._candidate(self.game.profile(x), nothing))

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
        value = self._weight * loss + objective.payment_weight * spend
        return Candidate(profile.x, payments, spend, loss, value)

    def _keep(self, candidate: Candidate | None) -> bool:
        if candidate is None:
            return False
        better = candidate.value < self.value
        if better:
            self.best = candidate
        if self.game.count <= 1000:
            self.pool.append(candidate)
            if len(self.pool) > 2 * POOL:
                self.pool = sorted(self.pool, key=lambda c: c.value)[:POOL]
        return True
