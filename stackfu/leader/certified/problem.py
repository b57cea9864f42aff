"""The leader's problem in normalised units, and the way back to the game's.

Squared distances are divided by ``scale``, the largest one; losses by the loss's weight times that; payments by ``2 lam scale``.
The origin is the point the server would like the mixture to be at, the weighted mean of the loss's targets (projected onto
the clients' span), so that the loss is ``||m||^2 + constant`` plus what few samples cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import nnls

from ...model import Array, GameModel, Objective
from ...results.certificate import Knot
from .bound import BoundProblem, Multipliers

__all__ = ["LeaderProblem"]

#: Directions in which the clients differ by less than this part of the largest squared distance are rounding errors of
#: their inner products and are left out of the solver's coordinates (checkers use the game's own numbers).
EIGENVALUE_ROUNDING = 1e-15

#: Part of the budget that is not planned for: room for the extra payments of clients at full, and for rounding.
HELD_BACK = 2e-9
#: Spend is a difference of costs and what drift is worth; its rounding error is this part of all costs.
SPEND_ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class LeaderProblem(BoundProblem):
    """The problem that bound and cone programmes see, with its units: normalised = game's / unit."""

    unit_square: float = 1.0  # squared distance
    unit_loss: float = 1.0  # the loss's weight times unit_square, or unit_spend if that is zero
    unit_spend: float = 1.0  # 2 lam unit_square
    ideal_point: Array | None = None  # where the origin lies, seen from mu_N

    @classmethod
    def of(cls, game: GameModel, objective: Objective) -> LeaderProblem:
        """Normalise a game's data."""
        geometry = game.geometry
        scale = geometry.scale
        values, vectors = np.linalg.eigh(geometry.gram / scale)
        keep = values > EIGENVALUE_ROUNDING * max(values[-1], 0.0) * len(values)
        roots = np.sqrt(values[keep])
        server, pull, square = game.loss_centre
        unit_spend = 2.0 * game.lam * scale
        unit_loss = server * scale if server > 0 else unit_spend
        target = (vectors[:, keep].T @ pull) / (roots * scale)
        noise = np.zeros(game.count)
        if objective.finite_sample and server > 0:
            noise = game.sampling_noise / (game.sizes.sum() * scale)
        # only the part of the ideal point within the clients' span has coordinates
        constant = square / scale - float(target @ target)
        return cls(
            alpha=game.alpha,
            theta=game.kappa / unit_spend,
            points=np.ascontiguousarray(vectors[:, keep] * roots - target),
            loss_square=1.0 if server > 0 else 0.0,
            loss_constant=max(constant, 0.0),
            noise=noise,
            loss_weight=objective.loss_weight if server > 0 else 0.0,
            payment_weight=objective.payment_weight * unit_spend / unit_loss,
            payment_unit=1.0,
            budget=objective.budget / unit_spend,
            loss_cap=objective.max_loss / unit_loss,
            floor=objective.min_total,
            reach=geometry.reach / scale,
            unit_square=scale,
            unit_loss=unit_loss,
            unit_spend=unit_spend,
            ideal_point=target,
        )

    def knot(self, y: Multipliers, mixture: Array) -> Knot:
        """Multipliers around the embedding of a mixture, in the game's units."""
        clients, support = np.flatnonzero(y.rows), np.flatnonzero(mixture)
        # certificates measure the level from mu_N, the origin here is the ideal point
        away = self.ideal_point
        assert away is not None
        nu = self.payment_unit * (y.objective * self.payment_weight + y.budget)
        level = y.level + 2.0 * float(away @ (y.pull - y.rows @ self.points)) + nu * float(away @ away)
        return Knot(
            total=y.total,
            objective=y.objective,
            budget=y.budget * self.unit_loss / self.unit_spend,
            loss_cap=y.loss_cap,
            level=level * self.unit_loss,
            clients=clients,
            rows=y.rows[clients] * (self.unit_loss / self.unit_square),
            support=support,
            centre=mixture[support],
        )

    @cached_property
    def usable_budget(self) -> float:
        """What the solver may plan to spend (in units of squared distance), so that rounding and firmness never overspend."""
        if not np.isfinite(self.budget):
            return np.inf
        return max(
            self.budget * (1.0 - HELD_BACK) - SPEND_ROUNDING * self.payment_unit * float(self.theta @ self.alpha), 0.0
        ) / self.payment_unit

    @cached_property
    def ideal(self) -> Array:
        """The mixture whose embedding is nearest to the server's ideal, whatever it costs (non-negative least squares)."""
        system = np.vstack([self.points.T, np.ones(len(self.points))])
        z, _ = nnls(system, np.append(np.zeros(self.points.shape[1]), 1.0))
        return np.asarray(z / z.sum())

    def squared_distances(self, z: Array) -> Array:
        """``d_k^2`` of a mixture."""
        m = z @ self.points
        return np.asarray(np.maximum(self.diagonal - 2.0 * self.points @ m + m @ m, 0.0))
