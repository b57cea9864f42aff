"""Measure what a mean embedding reveals, and what hiding it costs: the basis of the default privacy.

**Attack.** The attacker holds a pool of candidates, all members of a client's data among them, and the client's embedding
``mu``. With the candidates' features in the columns of F it solves

    min |F w - mu|^2   over   w >= 0

and takes a large weight for membership; the weights' class sums estimate the client's class mix. Reported are the area
under the curve (0.5 is guessing, 1 is certainty) and the total variation from the true class mix.

**Cost.** The game is solved with what the server sees, noise's bias taken off as the mechanism does, and the payments are
judged in the true game: the server loss at the equilibrium that they lead to, and what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import stackfu as sf
from stackfu_integration.arrays import FloatArray, IntArray
from stackfu_integration.flower.lab import load_federation
from stackfu_integration.flower.privacy import denoised_gram, gaussian_deviation
from stackfu_integration.ranks import separation

__all__ = [
    "Attack",
    "attack",
    "class_mix_error",
    "cost_of_noise",
    "features_of",
    "measure_privacy",
]


@dataclass(frozen=True)
class Attack:
    """Accuracy of telling members from others, and error of the class mix."""

    auc: float
    class_mix_error: float


def features_of(points: FloatArray, bandwidth: float, features: int, seed: int) -> FloatArray:
    """Return the random features of every point, one row each: their mean is the embedding."""
    return np.array([sf.client_features(point[None], bandwidth, features, seed) for point in points])


def class_mix_error(weights: FloatArray, labels: IntArray, truth: FloatArray) -> float:
    """Return the total variation between the class mix of the weights and the true one."""
    mix = np.bincount(labels, weights, minlength=len(truth))
    mix = mix / mix.sum() if mix.sum() > 0 else np.full(len(truth), 1.0 / len(truth))
    return float(0.5 * np.abs(mix - truth).sum())


def attack(embedding: FloatArray, pool: FloatArray) -> FloatArray:
    """Return the weights of the candidates with the rows of ``pool`` as features."""
    from scipy.optimize import nnls

    weights, _ = nnls(pool.T, embedding, maxiter=50 * pool.shape[0])
    return np.asarray(weights)


def cost_of_noise(
    means: FloatArray,
    deviations: FloatArray,
    sizes: FloatArray,
    removed: list[int],
    random: np.random.Generator,
) -> tuple[float, float]:
    """Return server loss and spend in the true game, of payments that were made from noisy embeddings."""
    settings: dict[str, Any] = {"removed": removed, "loss_constant": 10.0}
    truth = sf.StackelbergGame(sf.MeanEmbeddings.from_features(means), sizes, **settings)
    seen = means + deviations[:, None] * random.normal(size=means.shape)
    if deviations.any():
        gram, _ = denoised_gram(seen, deviations)
        game = sf.StackelbergGame(sf.MeanEmbeddings.from_gram(gram), sizes, **settings)
    else:
        game = truth
    budget = 0.5 * truth.full_participation_price
    payments = game.solve(budget, time_limit=20.0, finite_sample=True).payments
    reached = truth.equilibrium(payments)
    return float(reached.server_loss), float(reached.spend / budget)


def measure_privacy(
    epsilons: list[float | None],
    features: list[int],
    *,
    delta: float = 1e-5,
    draws: int = 3,
    pool: int = 600,
    cost: bool = True,
) -> list[Mapping[str, Any]]:
    """Attack the ten clients of the digits federation, for every epsilon and number of features.

    With ``cost`` the game is solved as well; without it, server loss and spend are not a number.
    """
    federation = load_federation({})
    points = [
        np.asarray(c.train.x.numpy(), dtype=np.float64).reshape(len(c.train), -1) for c in federation.clients
    ]
    labels = [np.asarray(c.train.y.numpy(), dtype=np.int64) for c in federation.clients]
    bandwidth = float(sf.median_bandwidth(points))
    every, label, owner = (
        np.vstack(points),
        np.concatenate(labels),
        np.repeat(np.arange(10), [len(p) for p in points]),
    )
    classes = int(label.max()) + 1
    results: list[Mapping[str, Any]] = []
    for count in features:
        mapped = features_of(every, bandwidth, count, 0)
        means = np.array([mapped[owner == k].mean(0) for k in range(10)])
        sizes = np.array([len(p) for p in points], dtype=np.float64)
        for epsilon in epsilons:
            deviations = np.array(
                [0.0 if epsilon is None else gaussian_deviation(epsilon, delta, int(n)) for n in sizes]
            )
            found: list[Attack] = []
            losses: list[tuple[float, float]] = []
            for draw in range(draws if epsilon is not None else 1):
                random = np.random.default_rng([draw, count])
                for k in range(10):
                    others = random.permutation(np.flatnonzero(owner != k))[
                        : max(pool - int(sizes[k]), int(sizes[k]))
                    ]
                    chosen = np.concatenate([np.flatnonzero(owner == k), others])
                    seen = means[k] + deviations[k] * random.normal(size=count)
                    weights, own = attack(seen, mapped[chosen]), owner[chosen] == k
                    truth = np.bincount(labels[k], minlength=classes) / sizes[k]
                    found.append(
                        Attack(
                            separation(weights[own], weights[~own]),
                            class_mix_error(weights, label[chosen], truth),
                        )
                    )
                if cost:
                    losses.append(cost_of_noise(means, deviations, sizes, [0, 1, 2], random))
            results.append(
                {
                    "epsilon": epsilon,
                    "delta": delta,
                    "features": count,
                    "auc_mean": float(np.mean([a.auc for a in found])),
                    "auc_worst": float(np.max([np.mean([a.auc for a in found[k::10]]) for k in range(10)])),
                    "class_mix_error": float(np.mean([a.class_mix_error for a in found])),
                    "server_loss": float(np.mean([loss for loss, _ in losses])) if losses else float("nan"),
                    "spend_of_budget": float(np.mean([spend for _, spend in losses]))
                    if losses
                    else float("nan"),
                    "clients": [int(n) for n in sizes],
                }
            )
    return results
