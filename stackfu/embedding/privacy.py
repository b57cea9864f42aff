"""Noise on class counts: how much makes a release differentially private.

The number n of a client's samples is public; what must not show is any one sample. Replacing one moves a sample from
one class to another: two counts change by 1 each, so counts have an l1 sensitivity of 2 and an l2 sensitivity of
sqrt(2), whatever the number of classes. Then

- Laplace noise of scale ``2 / epsilon`` on every count is epsilon-differentially private (density ``e^(-|t| /
  scale)``);
- Gaussian noise of deviation sigma is (epsilon, delta)-differentially private exactly when, with s = sqrt(2),

      Phi(s / 2 sigma - epsilon sigma / s) - e^epsilon Phi(-s / 2 sigma - epsilon sigma / s) <= delta

  (Balle and Wang, Improving the Gaussian Mechanism, 2018). :func:`gaussian_deviation` solves that for any sensitivity.

Noisy counts are rounded to whole numbers, which hides the low bits that floating-point noise leaves (Mironov, On
Significance of the Least Significant Bits, 2012). True counts are non-negative and sum to n, so noisy ones are then
projected to the nearest such point: a function of the release alone, which costs no privacy, and brings it nearer to
the truth, because the truth is such a point.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stackfu.embedding.labels import check_counts
from stackfu.embedding.samples import positive_number
from stackfu.errors import InputError

COUNT_SENSITIVITY_L1 = 2.0
COUNT_SENSITIVITY_L2 = math.sqrt(2.0)
#: The logarithm of the noise is known to this: no digit of the noise that matters depends on it.
_NOISE_ROUNDING = 1e-13

FloatArray = NDArray[np.float64]


def laplace_scale(epsilon: float, sensitivity: float = COUNT_SENSITIVITY_L1) -> float:
    """Return the scale of Laplace noise that makes a release epsilon-private, by default one of class counts.

        scale = sensitivity / epsilon,      variance 2 scale^2

    >>> laplace_scale(0.5)
    4.0
    """
    return positive_number(sensitivity, "sensitivity") / positive_number(epsilon, "epsilon")


def gaussian_deviation(epsilon: float, delta: float, sensitivity: float = COUNT_SENSITIVITY_L2) -> float:
    """Return the smallest deviation of Gaussian noise that makes a release (epsilon, delta)-private.

    >>> round(gaussian_deviation(1.0, 1e-5), 4)
    5.2759
    """
    positive_number(epsilon, "epsilon")
    positive_number(sensitivity, "sensitivity")
    if not 0 < positive_number(delta, "delta") < 1:
        raise InputError("delta", "must be between 0 and 1", value=delta)
    from scipy.optimize import brentq  # a client without noise need not wait for it

    # Delta falls from 1 to 0 as the noise grows: step outwards until it changes sides.
    low = high = 0.0
    while _spent_delta(math.exp(low), epsilon) <= delta:
        low -= 1.0
    while _spent_delta(math.exp(high), epsilon) > delta:
        high += 1.0
    log_ratio = brentq(lambda t: _spent_delta(math.exp(t), epsilon) - delta, low, high, xtol=_NOISE_ROUNDING)
    return float(math.exp(log_ratio) * sensitivity)


def _spent_delta(ratio: float, epsilon: float) -> float:
    """Return delta at ``sigma = ratio * sensitivity``."""
    from scipy.special import log_ndtr

    a, b = 1.0 / (2.0 * ratio), epsilon * ratio
    return float(np.exp(log_ndtr(a - b)) - np.exp(epsilon + log_ndtr(-a - b)))


def class_feature_sensitivity(size: int) -> float:
    """Return the l2 sensitivity of a client's mean features without class weights: ``2 / n``.

    One of n unit vectors is replaced. :func:`stackfu.client_features` returns such vectors for labels too, because
    noise added before the server divides class y by ``sqrt(pi_y)`` is smaller than noise that covers the rarest
    class.

    >>> class_feature_sensitivity(100)
    0.02
    """
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise InputError("size", "must be a whole number of at least 1", value=repr(size))
    return 2.0 / int(size)


def noisy_counts(
    counts: ArrayLike, epsilon: float, delta: float | None = None, rng: np.random.Generator | None = None
) -> FloatArray:
    """Return one client's class counts with noise: Laplace, or Gaussian if there is a ``delta``.

    The result is non-negative and sums to the number of samples, which is taken to be public. Without ``rng`` the
    noise comes from the operating system. Asking again spends epsilon again.

    >>> import numpy as np
    >>> noisy_counts([30, 0, 10], epsilon=1.0, rng=np.random.default_rng(0)).round(1)
    array([32.7,  0.7,  6.7])
    """
    exact = check_counts(np.atleast_2d(np.asarray(counts)))[0]
    random = np.random.default_rng() if rng is None else rng
    if delta is None:
        noise = random.laplace(scale=laplace_scale(epsilon), size=exact.shape)
    else:
        noise = random.normal(scale=gaussian_deviation(epsilon, delta), size=exact.shape)
    return nearest_counts(np.rint(exact + noise), float(exact.sum()))


def nearest_counts(noisy: FloatArray, total: float) -> FloatArray:
    """Return the nearest non-negative vector with this sum: ``max(0, noisy - t)`` for the one t that gives it.

    >>> nearest_counts(np.array([5.0, -1.0, 2.0]), 6.0)
    array([4.5, 0. , 1.5])
    """
    falling = np.sort(noisy)[::-1]
    shifts = (np.cumsum(falling) - total) / np.arange(1, len(noisy) + 1)
    kept = int(np.flatnonzero(falling > shifts)[-1])
    return np.asarray(np.maximum(noisy - shifts[kept], 0.0))
