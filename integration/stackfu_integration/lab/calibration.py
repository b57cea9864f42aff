"""Measure the loss constant C: how much loss a squared embedding distance costs.

The model's premise is ``f_i(w_j) - f_i(w_i) <= C ||mu_i - mu_j||^2`` for models ``w_i`` fitted to client i's
data. Every pair of clients gives one point of that relation; C is the slope of the regression line through
the origin.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from stackfu.errors import ConvergenceError
from stackfu.game import StackelbergGame
from stackfu_integration.lab.federation.local import client_seed, local_train
from stackfu_integration.lab.federation.trained import Trained
from stackfu_integration.lab.models.classifier import write_weights

__all__ = ["Calibration", "calibrate", "fit_through_origin"]

_LOCAL_FIT = 41  # seed stream


@dataclass(frozen=True)
class Calibration:
    """Slope, how much of the variation it explains, and the smallest constant that bounds every pair."""

    constant: float
    r_squared: float
    rank_correlation: float
    bound: float
    pairs: int

    def as_dict(self) -> dict[str, float]:
        """Plain numbers."""
        return asdict(self)


def fit_through_origin(distances: np.ndarray[Any, Any], losses: np.ndarray[Any, Any]) -> Calibration:
    """Regress loss differences on squared distances.

    >>> fit_through_origin(np.array([1.0, 2.0]), np.array([3.0, 6.0])).constant
    3.0
    """
    from scipy.stats import spearmanr

    slope = float(distances @ losses / (distances @ distances))
    around_mean = float(((losses - losses.mean()) ** 2).sum())
    left = float(((losses - slope * distances) ** 2).sum())
    positive = distances > 1e-12
    return Calibration(
        constant=slope,
        r_squared=1.0 - left / around_mean if around_mean > 0 else float(left == 0),
        rank_correlation=float(spearmanr(distances, losses).statistic),
        bound=float((losses[positive] / distances[positive]).max()),
        pairs=len(losses),
    )


def calibrate(trained: Trained, game: StackelbergGame, epochs: float = 5.0, seed: int = 0) -> Calibration:
    """Fit every client's model from the trained one and compare all pairs on the clients' training data.

    Fits that diverge are left out.
    """
    federation = trained.federation
    model = federation.model(trained.seed)
    settings = replace(trained.settings, epochs=epochs)
    count = len(federation.clients)
    losses = np.zeros((count, count))  # losses[j, i]: model of client j on the data of client i
    for j, client in enumerate(federation.clients):
        write_weights(model, trained.final)
        local_train(
            model, client.train, client_seed(seed, j, 0, _LOCAL_FIT), settings, device=federation.device
        )
        with torch.no_grad():
            for i, other in enumerate(federation.clients):
                scores = torch.cat(
                    [model(x.to(federation.device)).float().cpu() for x in other.train.x.split(512)]
                )
                losses[j, i] = float(functional.cross_entropy(scores.double(), other.train.y))
    # a local fit that diverged says nothing about distances
    sound = np.asarray(np.isfinite(losses).all(axis=1))
    if sound.sum() < 2:
        raise ConvergenceError(
            f"local training diverged for {count - sound.sum()} of {count} clients; lower the learning rate"
        )
    pairs = ~np.eye(count, dtype=bool) & sound[:, None] & sound[None, :]
    with np.errstate(invalid="ignore"):
        excess = losses - np.diag(losses)[None, :]
    squared = np.asarray(game.embeddings.distances()) ** 2
    return fit_through_origin(squared[pairs], excess[pairs])
