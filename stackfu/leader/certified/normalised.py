"""A game's leader problem in normalised units.

Squared distances are divided by ``scale``, the largest one; losses by ``(lam_v + lam_s) scale``; payments by ``2 lam scale``. Then a squared
distance, a loss and a payment are numbers of the same kind, and ``W = U = 1`` in :mod:`stackfu.leader.certified.bound`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...game import StackelbergGame
from ...geometry import Array, FeatureGeometry
from ...results.certificate import Knot
from .bound import BoundProblem, Multipliers
from .points import FeaturePoints, GramPoints, Points
from .search import Objective

__all__ = ["Normalised", "normalised"]


@dataclass(frozen=True, eq=False)
class Normalised:
    """The problem, and what its units are worth in the game's."""

    problem: BoundProblem
    scale: float
    loss: float
    payment: float

    def knot(self, y: Multipliers) -> Knot:
        """Multipliers in the game's units."""
        clients = np.flatnonzero(y.rows)
        centre = y.centre
        support = None
        points = self.problem.place
        if isinstance(points, FeaturePoints):
            centre = points.origin + centre * np.sqrt(self.scale)
        else:
            support = np.flatnonzero(centre)
            centre = centre[support]
        return Knot(
            total=y.total,
            objective=y.objective,
            budget=y.budget * self.loss / self.payment,
            loss_cap=y.loss_cap,
            level=y.level * self.loss,
            clients=clients.astype(np.int64),
            rows=y.rows[clients] * (self.loss / self.scale),
            support=None if support is None else support.astype(np.int64),
            centre=np.asarray(centre, dtype=np.float64),
        )


def normalised(game: StackelbergGame, objective: Objective) -> Normalised:
    """The leader's problem of a game."""
    geometry = game.geometry
    server = game.lam_v + game.lam_s
    share = game.lam_s / server if server > 0 else 0.0
    points: Points
    if isinstance(geometry, FeatureGeometry):
        points = FeaturePoints(geometry, share)
        shift = geometry.mean_original - geometry.mean_remaining
        square = float(shift @ shift)
    else:
        points = GramPoints(geometry, share)
        square = geometry.original[1]
    scale = points.scale
    payment = 2.0 * game.lam * scale
    loss = server * scale if server > 0 else payment
    noise: Array = np.zeros(game.count)
    if objective.finite_sample and server > 0:
        noise = np.asarray(game.sampling_noise / (game.sizes.sum() * scale))
    problem = BoundProblem(
        alpha=game.alpha,
        theta=game.kappa / payment,
        points=points,
        loss_square=1.0,
        loss_constant=share * (1.0 - share) * square / scale,
        noise=noise,
        loss_weight=objective.loss_weight if server > 0 else 0.0,
        payment_weight=objective.payment_weight * payment / loss,
        payment_unit=1.0,
        budget=objective.budget / payment,
        loss_cap=objective.loss_cap / loss,
        floor=objective.floor,
    )
    return Normalised(problem, scale, loss, payment)
