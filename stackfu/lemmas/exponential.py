"""The paper's loss model on the smallest data set that a game knows: which client a datum comes from.

The outcomes are the original clients, with the game's own inner products as kernel, ``k(i, j) = <mu_i,
mu_j>``. A mixture of clients is a distribution over outcomes with the mixture of the mu_i as kernel mean embedding,
so every distance of the game is a distance between two such distributions. The models are

    P_w(i) = exp(<w, mu_i> - A(w)),      A(w) = log sum_i exp <w, mu_i>,

fitted by minimising the regularised loss ``J(w; D) = A(w) - <w, mu_D> + (reg / 2) ||w||^2``.
"""

from __future__ import annotations

import numpy as np

from ..game import StackelbergGame
from ..model.geometry import Array
from .statement import factor

__all__ = ["ClientFamily"]


class ClientFamily:
    """Exponential family over the original clients of a game.

    The regularisation is ``1 / (2 C)``, for which the corrected loss bound has exactly the game's constant C.
    """

    def __init__(self, game: StackelbergGame) -> None:
        self.points = factor(np.asarray(game.embeddings.gram))
        self.reg = 1.0 / (2.0 * game.loss_constant)

    def mean(self, weights: Array) -> Array:
        """Kernel mean embedding of a distribution over clients."""
        return np.asarray(weights @ self.points)

    def log_partition(self, w: Array) -> float:
        """``A(w)``."""
        scores = self.points @ w
        top = float(scores.max())
        return top + float(np.log(np.exp(scores - top).sum()))

    def fit(self, weights: Array) -> Array:
        """Return the minimiser of the regularised loss, by Newton's method with step halving."""
        mean = self.mean(weights)
        w = np.zeros(self.points.shape[1])
        identity = self.reg * np.eye(len(w))
        for _ in range(200):
            scores = self.points @ w
            chance = np.exp(scores - scores.max())
            chance /= chance.sum()
            centre = chance @ self.points
            slope = centre - mean + self.reg * w
            curvature = (self.points.T * chance) @ self.points - np.outer(centre, centre) + identity
            step = np.linalg.solve(curvature, slope)
            size, now = 1.0, self.regularised(w, weights)
            while self.regularised(w - size * step, weights) > now + 1e-15 and size > 1e-12:
                size *= 0.5
            w = w - size * step
            if np.abs(size * step).max() <= 1e-15 * (1.0 + np.abs(w).max()):
                break
        return w

    def loss(self, w: Array, weights: Array) -> float:
        """``-E log P_w``, the loss of a model on a distribution."""
        return self.log_partition(w) - float(w @ self.mean(weights))

    def regularised(self, w: Array, weights: Array) -> float:
        """``J(w; D)``, the loss with the regulariser that training adds."""
        return self.loss(w, weights) + 0.5 * self.reg * float(w @ w)

    def squared_distance(self, first: Array, second: Array) -> float:
        """``||mu_1 - mu_2||^2``."""
        gap = self.mean(first) - self.mean(second)
        return float(gap @ gap)
