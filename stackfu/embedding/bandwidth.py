"""The median heuristic: sigma^2 = median of |a - b|^2 over all pairs of different samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding.samples import Samples, positive_number
from stackfu.errors import InputError

# Multiply-adds (pairs times coordinates) up to which the exact median takes about a second on two cores.
EXACT_LIMIT = 4_000_000_000
_GATHER_NUMBERS = 1 << 19


class Bandwidth(float):
    """A bandwidth sigma that knows how it was found.

    ``method`` is ``"exact"`` or ``"sampled"``, ``pairs`` the number of pairs of samples looked at, and
    ``interval`` holds the exact value with probability at least ``confidence``, whatever the distribution of
    the data (an exact value is its own interval, with confidence 1).
    """

    method: str
    interval: tuple[float, float]
    confidence: float
    pairs: int

    def __new__(
        cls, sigma: float, method: str, interval: tuple[float, float], confidence: float, pairs: int
    ) -> Bandwidth:
        self = super().__new__(cls, sigma)
        self.method, self.interval, self.confidence, self.pairs = method, interval, confidence, pairs
        return self

    def __getnewargs__(self) -> tuple[float, str, tuple[float, float], float, int]:
        return float(self), self.method, self.interval, self.confidence, self.pairs

    def __repr__(self) -> str:
        if self.method == "exact":
            return f"Bandwidth({float(self):.6g}, exact over {self.pairs} pairs)"
        low, high = self.interval
        return (
            f"Bandwidth({float(self):.6g}, sampled from {self.pairs} pairs, "
            f"in [{low:.6g}, {high:.6g}] with confidence {self.confidence:g})"
        )

    __str__ = __repr__


def median_bandwidth(
    samples: Sequence[Any],
    method: Literal["auto", "exact", "sampled"] = "auto",
    *,
    pairs: int = 200_000,
    confidence: float = 0.99,
    seed: int = 0,
) -> Bandwidth:
    """Return sigma, where sigma^2 is the median squared distance over all pairs of different samples.

    ``"exact"`` looks at every pair without storing them. ``"sampled"`` draws ``pairs`` pairs with replacement
    and brackets the exact value between two order statistics, which needs no assumption about the data:

        P(d_(l) <= median <= d_(u)) >= confidence    with l, u from the binomial distribution (pairs, 1/2).

    ``"auto"`` is exact while that takes about a second and sampled beyond; the result says which.

    >>> import numpy as np
    >>> median_bandwidth([np.array([[0.0], [1.0]]), np.array([[3.0]])])
    Bandwidth(2, exact over 3 pairs)
    """
    checked = Samples.check(samples)
    if method not in ("auto", "exact", "sampled"):
        raise InputError("method", 'must be "auto", "exact" or "sampled"', value=repr(method))
    if isinstance(pairs, bool) or not isinstance(pairs, (int, np.integer)) or pairs < 1:
        raise InputError("pairs", "must be a positive whole number", value=repr(pairs))
    if not 0 < positive_number(confidence, "confidence") < 1:
        raise InputError("confidence", "must lie between 0 and 1", value=confidence)
    return median_of(checked, method, int(pairs), float(confidence), seed)


def median_of(
    samples: Samples, method: str = "auto", pairs: int = 200_000, confidence: float = 0.99, seed: int = 0
) -> Bandwidth:
    """Do the work of :func:`median_bandwidth` for samples that were checked before."""
    if samples.n < 2:
        raise InputError("samples", "a single sample has no distances to take the median of; pass bandwidth=<number>")
    if method == "auto":
        work = samples.n * (samples.n - 1) // 2 * samples.dimension
        method = "exact" if work <= EXACT_LIMIT else "sampled"
    found = _exact(samples) if method == "exact" else _sampled(samples, pairs, confidence, seed)
    if found == 0:
        raise InputError(
            "samples",
            "the median distance between samples is 0 (at least half of all pairs coincide), so it sets no scale; "
            "pass bandwidth=<number> or drop the duplicates",
        )
    return found


def _exact(samples: Samples) -> Bandwidth:
    from scipy.spatial.distance import pdist

    stacked = samples.tile(0, samples.n, 1.0, np.empty((samples.n, samples.dimension)))
    squared = pdist(stacked, "sqeuclidean")
    sigma = float(np.sqrt(np.median(squared)))
    return Bandwidth(sigma, "exact", (sigma, sigma), 1.0, len(squared))


def _sampled(samples: Samples, pairs: int, confidence: float, seed: int) -> Bandwidth:
    from scipy.stats import binom

    squared = np.sort(_squared_distances_of_random_pairs(samples, pairs, seed))
    # P(fewer than l of the draws lie below the median) and P(fewer than l above) are each at most the tail.
    tail = (1 - confidence) / 2
    below = int(binom.ppf(tail, pairs, 0.5))
    while below > 0 and binom.cdf(below - 1, pairs, 0.5) > tail:
        below -= 1
    low = float(np.sqrt(squared[below - 1])) if below > 0 else 0.0
    high = float(np.sqrt(squared[pairs - below])) if below > 0 else float("inf")
    sigma = float(np.sqrt(np.median(squared)))
    return Bandwidth(sigma, "sampled", (low, high), confidence, pairs)


def _squared_distances_of_random_pairs(samples: Samples, pairs: int, seed: int) -> NDArray[np.float64]:
    random = np.random.default_rng(seed)
    first = random.integers(samples.n, size=pairs)
    second = random.integers(samples.n - 1, size=pairs)
    second += second >= first  # uniform over the samples that are not the first
    squared = np.empty(pairs)
    step = max(1, _GATHER_NUMBERS // samples.dimension)
    for start in range(0, pairs, step):
        part = slice(start, start + step)
        difference = samples.rows(first[part]) - samples.rows(second[part])
        squared[part] = np.einsum("nd,nd->n", difference, difference)
    return squared
