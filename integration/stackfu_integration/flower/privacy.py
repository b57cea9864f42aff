"""Noise on a client's mean embedding: how much, and what it does to distances.

A mean of n unit vectors moves by at most ``s = 2 / n`` when one sample is replaced. Gaussian noise of
standard deviation sigma in each of its D coordinates makes the release (epsilon, delta)-differentially private
exactly when

    Phi(s / 2 sigma - epsilon sigma / s) - e^epsilon Phi(-s / 2 sigma - epsilon sigma / s) <= delta

(Balle and Wang, Improving the Gaussian Mechanism, 2018). Inner products of different clients stay unbiased;
squared norms grow by ``D sigma^2`` on average, and hence

    E |a + e_a - b - e_b|^2 = |a - b|^2 + D (sigma_a^2 + sigma_b^2),

which :func:`unbiased_gram` takes back.

The bandwidth is the median distance in the data. :func:`private_median` pairs the samples, so that one sample is in one
pair, and draws from a public grid of values with probability proportional to ``exp(-epsilon |rank - half| / 2)``:
replacing a sample moves every rank by at most one (the exponential mechanism; McSherry and Talwar, 2007).
"""

from __future__ import annotations

import hashlib
import hmac
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stackfu.embedding.privacy import class_feature_sensitivity
from stackfu.embedding.privacy import gaussian_deviation as deviation_of
from stackfu.errors import InputError
from stackfu_integration.arrays import FloatArray

__all__ = [
    "DISTANCES",
    "add_noise",
    "denoised_gram",
    "gaussian_deviation",
    "largest_honest_norm",
    "nearest_gram",
    "noise_generator",
    "private_median",
    "unbiased_gram",
]

DISTANCES = np.logspace(-3, 4, 561)  # what private_median chooses from: steps of 3%


def gaussian_deviation(epsilon: float, delta: float, size: int) -> float:
    """Return the smallest noise that makes a mean of ``size`` unit vectors (epsilon, delta)-private.

    Neighbouring data sets differ in one sample's value; the number of samples is public.

    >>> round(gaussian_deviation(1.0, 1e-5, 100), 4)
    0.0746
    """
    return deviation_of(epsilon, delta, class_feature_sensitivity(size))


def add_noise(mean: FloatArray, deviation: float, key: bytes | None, *context: Any) -> FloatArray:
    """Add noise of standard deviation ``deviation``; the same key and context give the same noise.

    Asking twice for one release must not average the noise away, so it is drawn from a keyed hash of
    everything that was asked (``context``) and of the noiseless answer itself. Without a key it comes from
    the operating system.
    """
    if deviation == 0.0:
        return mean
    if key is None:
        return mean + deviation * np.random.default_rng().normal(size=mean.shape)
    generator = noise_generator(key, *context, np.ascontiguousarray(mean).tobytes())
    return mean + deviation * generator.normal(size=mean.shape)


def noise_generator(key: bytes, *context: Any) -> np.random.Generator:
    """Return random numbers that only the owner of the key knows, the same ones for the same context."""
    return np.random.default_rng(
        int.from_bytes(hmac.new(key, repr(context).encode(), hashlib.sha256).digest(), "big")
    )


def private_median(points: FloatArray, epsilon: float, generator: np.random.Generator) -> float:
    """Return the median distance between samples, epsilon-differentially private.

    >>> points = np.random.default_rng(0).normal(size=(400, 3))
    >>> 1.0 < private_median(points, 1.0, np.random.default_rng(1)) < 4.0
    True
    """
    if not epsilon > 0:
        raise InputError("epsilon", "must be positive", value=epsilon)
    order = np.random.default_rng(0).permutation(
        len(points)
    )  # public: which sample meets which says nothing of them
    half = len(points) // 2
    distances = np.linalg.norm(points[order[:half]] - points[order[half : 2 * half]], axis=1)
    rank = np.searchsorted(np.sort(distances), DISTANCES)
    score = -0.5 * epsilon * np.abs(rank - half / 2.0)
    chance = np.exp(score - score.max())
    return float(generator.choice(DISTANCES, p=chance / chance.sum()))


def largest_honest_norm(deviation: float, features: int) -> float:
    """Norm that an honest release exceeds with a probability below 2e-8.

    >>> largest_honest_norm(0.0, 256)
    1.000000001
    """
    return 1.0 + 1e-9 + deviation * (math.sqrt(features) + 6.0)


def unbiased_gram(features: ArrayLike, deviations: ArrayLike) -> FloatArray:
    """Return the inner products of mean embeddings from noisy ones, without the noise's bias.

        G_ij = f_i . f_j - (D sigma_i^2 if i = j)

    It may fail to be positive semidefinite; :func:`nearest_gram` mends that.

    >>> unbiased_gram([[1.1, 0.0], [0.0, 1.0]], [0.1, 0.0]).round(6)
    array([[1.19, 0.  ],
           [0.  , 1.  ]])
    """
    rows = np.asarray(features, dtype=np.float64)
    gram: FloatArray = rows @ rows.T
    gram[np.diag_indices_from(gram)] -= rows.shape[1] * np.asarray(deviations, dtype=np.float64) ** 2
    return gram


def nearest_gram(gram: FloatArray) -> tuple[FloatArray, float]:
    """Return the nearest positive semidefinite matrix and the Frobenius distance to it."""
    values, vectors = np.linalg.eigh(gram)
    nearest = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return (nearest + nearest.T) / 2.0, float(np.sqrt((np.minimum(values, 0.0) ** 2).sum()))


def denoised_gram(features: ArrayLike, deviations: ArrayLike) -> tuple[FloatArray, float]:
    """Return inner products that embeddings can have, near those of noisy ones, and how far they were moved for it.

    The noise's bias is taken off the diagonal, the nearest positive semidefinite matrix is taken, and vectors that are
    longer than 1 are shortened to it: a mean of unit vectors is never longer.
    """
    rough = unbiased_gram(features, deviations)
    gram, _ = nearest_gram(rough)
    scale = 1.0 / np.sqrt(np.maximum(np.diag(gram), 1.0))
    gram = gram * scale[:, None] * scale
    return gram, float(np.linalg.norm(gram - rough))
