"""The leader's problem in normalised units, and the way back to the game's.

Squared distances are divided by ``scale``, the largest one; losses by the loss's weight times that; payments by ``2 lam scale``.
The origin is the mixture that is nearest to the point the server would like to be at, the weighted mean of the loss's targets: if
that can be mixed the loss is ``||m||^2 + constant``, else it has a linear term as well; what few samples cost comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.optimize import nnls

from ...model import Array, GameModel, Objective
from ...results.certificate import Knot
from ..tolerances import EIGENVALUE_ROUNDING
from .payment_bound import BoundProblem, Multipliers

__all__ = ["LeaderProblem"]

#: An ideal point this near to a mixture (squared, in units of the largest squared distance) can be mixed.
REACHED = 1e-20
#: Part of the budget that is not planned for: room for the extra payments of clients at full, and for rounding.
HELD_BACK = 2e-9
#: Rounding error of the spend, relative to the costs of those who take part, and the part of the budget that is left to it at most.
SPEND_ROUNDING = 1e-15
HELD_BACK_AT_MOST = 1e-6


@dataclass(frozen=True, eq=False)
class LeaderProblem(BoundProblem):
    """The problem that bound and cone programmes see, with its units: normalised = game's / unit."""

    unit_square: float = 1.0  # squared distance
    unit_loss: float = 1.0  # the loss's weight times unit_square, or unit_spend if that is zero
    unit_spend: float = 1.0  # 2 lam unit_square
    ideal: Array = field(
        default_factory=lambda: np.zeros(0)
    )  # mixture nearest to the server's ideal point, whatever it costs
    origin: Array = field(default_factory=lambda: np.zeros(0))  # where that is, seen from mu_N
    away: Array = field(default_factory=lambda: np.zeros(0))  # from there to the ideal point itself

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
        rows = vectors[:, keep] * roots
        target = (vectors[:, keep].T @ pull) / (roots * scale)
        ideal = nearest_mixture(rows, target)
        origin = ideal @ rows
        away = target - origin
        if float(away @ away) <= REACHED:
            origin, away = target, np.zeros(len(target))
        weight = 1.0 if server > 0 else 0.0
        noise = np.zeros(game.count)
        if objective.finite_sample and server > 0:
            noise = game.sampling_noise / (game.sizes.sum() * scale)
        # loss / (server scale) = ||m||^2 - 2 <m, away> + ||away||^2 + what is out of the clients' span
        constant = max(square / scale - float(target @ target), 0.0) + float(away @ away)
        return cls(
            alpha=game.alpha,
            theta=game.kappa / unit_spend,
            points=np.ascontiguousarray(rows - origin),
            loss_square=weight,
            loss_constant=constant if server > 0 else 0.0,
            loss_pull=weight * ((rows - origin) @ away),
            noise=noise,
            loss_weight=objective.loss_weight if server > 0 else 0.0,
            payment_weight=objective.payment_weight * unit_spend / unit_loss,
            payment_unit=1.0,
            budget=objective.budget / unit_spend,
            loss_cap=objective.max_loss / unit_loss,
            floor=objective.min_total,
            loss_sampling=weight * game.sampling / scale,
            client_sampling=game.sampling / scale,
            reach=geometry.reach / scale,
            unit_square=scale,
            unit_loss=unit_loss,
            unit_spend=unit_spend,
            ideal=ideal,
            origin=origin,
            away=away,
        )

    def knot(self, y: Multipliers, mixture: Array) -> Knot:
        """Multipliers around the embedding of a mixture, in the game's units."""
        clients, support = np.flatnonzero(y.rows), np.flatnonzero(mixture)
        # certificates measure the level from mu_N
        nu = self.payment_unit * (y.objective * self.payment_weight + y.budget)
        ell = y.objective * self.loss_weight + y.loss_cap
        b = self.origin
        level = (
            y.level
            + nu * float(b @ b)
            + 2.0 * float(b @ (y.pull - y.rows @ self.points - ell * self.loss_square * self.away))
        )
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

    def usable_budget(self, total: float) -> float:
        """Return the usable budget at S (in units of squared distance), so that rounding and firmness never overspend."""
        room = self.budget / self.payment_unit
        return room * (1.0 - HELD_BACK) - min(self.spend_rounding * total, HELD_BACK_AT_MOST * room)

    @cached_property
    def spend_rounding(self) -> float:
        """Rounding error of the spend per unit of S: it is a difference of costs and what drift is worth."""
        return SPEND_ROUNDING * float(self.theta @ self.alpha)

    @cached_property
    def gram(self) -> Array:
        """Inner products of all clients, for small games."""
        return np.asarray(self.points @ self.points.T)

    @cached_property
    def nearest_loss(self) -> float:
        """Least loss of distances over all mixtures, whatever they cost.

        For any m, ``2 min_k <mu_k - ideal, m - ideal> - ||m - ideal||^2`` is a lower bound of the squared distance over the
        clients' hull, sharp at the nearest point. What rounding may have added is taken off: distances far below the clients'
        own are differences of large numbers.
        """
        rows = self.points - self.away
        m = self.ideal @ rows
        nearest = max(2.0 * float((rows @ m).min()) - float(m @ m), 0.0)
        beyond = float(self.away @ self.away)
        terms = 16.0 * (sum(self.points.shape) + 4) * float(np.finfo(float).eps)
        largest = float(self.diagonal.max()) + beyond
        rounding = terms * (self.loss_square * largest + abs(self.loss_constant))
        return float(self.loss_square * (nearest - beyond) + self.loss_constant - rounding)

    def squared_distances(self, z: Array) -> Array:
        """``d_k^2`` of a mixture."""
        m = z @ self.points
        return np.asarray(np.maximum(self.diagonal - 2.0 * self.points @ m + m @ m, 0.0))


def nearest_mixture(rows: Array, target: Array) -> Array:
    """The mixture of rows nearest to a point (non-negative least squares, the sum weighted so that it is 1 nearly exactly)."""
    weight = 100.0 * (1.0 + float(np.abs(target).max(initial=0.0)))
    system = np.vstack([(rows - target).T, np.full(len(rows), weight)])
    z, _ = nnls(system, np.append(np.zeros(rows.shape[1]), weight))
    return np.asarray(z / z.sum())
