"""A game's leader problem in normalised units, with points that need no N x N matrix and no copy of the features.

The units are those of :class:`~stackfu.leader.certified.payment_problem.LeaderProblem`; only the clients' coordinates are
replaced by :class:`~stackfu.leader.certified.points.Points`.
"""

from __future__ import annotations

import numpy as np

from ...judging.bound_check import is_large
from ...model import Array, FeatureGeometry, GameModel, Objective
from ...results.certificate import Knot
from ..tolerances import TINY
from .payment_bound import Multipliers
from .payment_problem import LeaderProblem
from .points import FeaturePoints, GramPoints, Points

__all__ = ["certificate_knot", "normalised"]


def normalised(game: GameModel, objective: Objective) -> LeaderProblem:
    """Return the leader's problem of a game of any size."""
    geometry = game.geometry
    weight, pull, mean_square = game.loss_centre
    points: Points
    if isinstance(geometry, FeatureGeometry):
        origin = _ideal_row(game, geometry)
        points = FeaturePoints(geometry, origin)
    else:
        points = GramPoints(geometry, pull, _ideal_square(game))
    scale = points.scale
    unit_spend = 2.0 * game.lam * scale
    unit_loss = weight * scale if weight > 0 else unit_spend
    noise: Array = np.zeros(game.count)
    if objective.finite_sample and weight > 0:
        noise = np.asarray(game.sampling_noise / (game.sizes.sum() * scale))
    return LeaderProblem(
        alpha=game.alpha,
        theta=game.kappa / unit_spend,
        points=points,
        loss_square=1.0,
        loss_constant=max(mean_square / scale - points.away_square, 0.0),
        noise=noise,
        loss_weight=objective.loss_weight if weight > 0 else 0.0,
        payment_weight=objective.payment_weight * unit_spend / unit_loss,
        payment_unit=1.0,
        budget=objective.budget / unit_spend,
        loss_cap=objective.max_loss / unit_loss,
        floor=objective.min_total,
        loss_sampling=game.sampling / scale if weight > 0 else 0.0,
        client_sampling=game.sampling / scale,
        unit_square=scale,
        unit_loss=unit_loss,
        unit_spend=unit_spend,
        tells_large_clients=not is_large(game),
    )


def _ideal_row(game: GameModel, geometry: FeatureGeometry) -> Array:
    """Return the weighted mean of the loss's targets, as a feature row."""
    loss = game.loss
    row: Array = np.zeros(geometry.features.shape[1])
    for weight, target in zip(loss.weights, loss.targets, strict=True):
        if target.kind == "remaining" or loss.weight == 0:
            at = geometry.mean_remaining
        elif target.kind == "original":
            at = geometry.mean_original
        elif target.kind == "mixture":
            at = geometry.row_of_original(np.array(target.values))
        else:
            at = np.array(target.values)
        row = row + (weight / loss.weight if loss.weight else 1.0 / len(loss.weights)) * at
    return row


def _ideal_square(game: GameModel) -> float:
    """``||t - mu_N||^2`` of the weighted mean t of the loss's targets, from the polarisation of their mean squared distances."""
    loss, geometry = game.loss, game.geometry
    if loss.weight == 0:
        return 0.0
    shares = np.zeros(len(game.all_sizes))
    for weight, target in zip(loss.weights, loss.targets, strict=True):
        part = weight / loss.weight
        if target.kind == "remaining":
            shares[game.remaining] += part * game.alpha
        elif target.kind == "original":
            shares += part * game.all_sizes / game.all_sizes.sum()
        elif target.kind == "mixture":
            shares += part * np.array(target.values)
        else:  # feature rows: the origin only has to be near the ideal, and the mean of the others is
            return (
                float(geometry.mixture_of_original(shares / max(shares.sum(), TINY))[1])
                if shares.any()
                else 0.0
            )
    return float(geometry.mixture_of_original(shares)[1])


def certificate_knot(problem: LeaderProblem, y: Multipliers) -> Knot:
    """Multipliers in the game's units; certificates measure the level from mu_N, the origin here is the ideal point."""
    points = problem.place
    clients = np.flatnonzero(y.rows)
    nu = problem.payment_unit * (y.objective * problem.payment_weight + y.budget)
    mixed = points.away(points.combine(y.rows)) if len(clients) else 0.0
    level = y.level + 2.0 * (points.away(y.pull) - mixed) + nu * points.away_square
    support = None
    if isinstance(points, FeaturePoints):
        centre = points.origin + y.centre * np.sqrt(points.scale)
    else:
        support = np.flatnonzero(y.centre).astype(np.int64)
        centre = y.centre[support]
    return Knot(
        total=y.total,
        objective=y.objective,
        budget=y.budget * problem.unit_loss / problem.unit_spend,
        loss_cap=y.loss_cap,
        level=level * problem.unit_loss,
        clients=clients.astype(np.int64),
        rows=np.asarray(y.rows[clients], dtype=np.float64) * (problem.unit_loss / problem.unit_square),
        support=support,
        centre=np.asarray(centre, dtype=np.float64),
    )
