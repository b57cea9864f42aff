"""Confidence intervals, for measures and reports alike; needs no torch."""

from __future__ import annotations

import numpy as np

__all__ = ["mean_interval", "rate_interval"]


def mean_interval(values: list[float], level: float = 0.95) -> tuple[float, float]:
    """Mean and half-width of Student's confidence interval over seeds; one value has no half-width (NaN).

    >>> mean, half = mean_interval([1.0, 2.0, 3.0])
    >>> round(mean, 3), round(half, 3)
    (2.0, 2.484)
    """
    from scipy.stats import t

    sample = np.asarray(values, dtype=float)
    if len(sample) < 2:
        return float(sample.mean()), float("nan")
    half = t.ppf(0.5 + level / 2, len(sample) - 1) * sample.std(ddof=1) / np.sqrt(len(sample))
    return float(sample.mean()), float(half)


def rate_interval(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a rate.

    >>> low, high = rate_interval(0, 100)
    >>> low, round(high, 4)
    (0.0, 0.0362)
    """
    from scipy.stats import beta

    tail = (1.0 - level) / 2.0
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.ppf(1.0 - tail, hits + 1, trials - hits))
    return low, high
