"""The median heuristic: sigma^2 = median of |a - b|^2 over all pairs of different samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding.clients import check_samples, split_by_client
from stackfu.embedding.gram import pack
from stackfu.embedding.parallel import in_order
from stackfu.embedding.samples import Samples, Stack, positive_number
from stackfu.errors import InputError

# Multiply-adds (pairs times coordinates) up to which the exact median takes about a second on two cores.
EXACT_LIMIT = 4_000_000_000
_GATHER_NUMBERS = 1 << 19
_BINS = 1 << 12
_LISTED_BY_A_TILE = 1 << 12
#: Probability that a bracket drawn from a sample misses the median.
_ODDS = 1e-6
#: Bounds on squared distances are moved outward by this part: far more than the rounding of a sum of squares.
_SAFETY = 1e-9


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

    def __new__(  # noqa: D102
        cls, sigma: float, method: str, interval: tuple[float, float], confidence: float, pairs: int
    ) -> Bandwidth:
        self = super().__new__(cls, sigma)
        self.method, self.interval, self.confidence, self.pairs = method, interval, confidence, pairs
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Bandwidth, (float(self), self.method, self.interval, self.confidence, self.pairs)

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
    samples: Sequence[Any] | Mapping[Any, Any],
    method: Literal["auto", "exact", "sampled"] = "auto",
    *,
    pairs: int = 200_000,
    confidence: float = 0.99,
    seed: int = 0,
    client: str = "client",
) -> Bandwidth:
    """Return sigma, where sigma^2 is the median squared distance over all pairs of different samples.

    ``"exact"`` looks at every pair without storing them. ``"sampled"`` draws ``pairs`` pairs with replacement
    and brackets the exact value between two order statistics, which needs no assumption about the data:

        P(d_(l) <= median <= d_(u)) >= confidence    with l, u from the binomial distribution (pairs, 1/2).

    ``"auto"`` is exact while that takes about a second and sampled beyond; the result says which. Samples come
    as in :meth:`MeanEmbeddings.from_samples <stackfu.MeanEmbeddings.from_samples>`.

    Parameters
    ----------
    samples : sequence, mapping or table
        Samples of all clients.
    method : {"auto", "exact", "sampled"}
        Computation of the median.
    pairs : int
        Number of drawn pairs of ``"sampled"``.
    confidence : float
        Probability that the bracket of ``"sampled"`` holds the median.
    seed : int
        Seed of the drawn pairs.
    client : str
        Client column of a table.

    Returns
    -------
    Bandwidth
        Sigma, its bracket, and the method used.

    Examples
    --------
    >>> import numpy as np
    >>> median_bandwidth([np.array([[0.0], [1.0]]), np.array([[3.0]])])
    Bandwidth(2, exact over 3 pairs)
    """
    entries, _, names = split_by_client(samples, None, client, None)
    checked = check_samples(entries, names=names)
    if method not in ("auto", "exact", "sampled"):
        raise InputError("method", 'must be "auto", "exact" or "sampled"', value=repr(method))
    if isinstance(pairs, bool) or not isinstance(pairs, (int, np.integer)) or pairs < 1:
        raise InputError("pairs", "must be a positive whole number", value=repr(pairs))
    if not 0 < positive_number(confidence, "confidence") < 1:
        raise InputError("confidence", "must lie between 0 and 1", value=confidence)
    return median_of(checked, method, int(pairs), float(confidence), seed)


def median_of(
    samples: Stack, method: str = "auto", pairs: int = 200_000, confidence: float = 0.99, seed: int = 0
) -> Bandwidth:
    """Do the work of :func:`median_bandwidth` for samples that were checked before."""
    if samples.n < 2:
        raise InputError(
            "samples", "a single sample has no distances to take the median of; pass bandwidth=<number>"
        )
    if method == "auto":
        work = samples.n * (samples.n - 1) // 2 * samples.dimension
        method = "exact" if work <= EXACT_LIMIT else "sampled"
    found = _exact(samples) if method == "exact" else _sampled(samples, pairs, confidence, seed)
    if float(found) == 0.0:
        raise InputError(
            "samples",
            "the median distance between samples is 0 (half or more of pairs coincide): it sets no scale; "
            "pass bandwidth=<number> or drop the duplicates",
        )
    if float(found) ** 2 < np.finfo(np.float64).tiny:
        raise InputError(
            "samples",
            "are so close together that squared distances underflow; rescale the data",
            value=float(found),
        )
    return found


def _exact(samples: Stack) -> Bandwidth:
    """Count all squared distances into ever finer bins around the middle ones until those can be listed."""
    pairs = samples.n * (samples.n - 1) // 2
    ranks = np.array([(pairs - 1) // 2, pairs // 2])
    low, high = _likely_bracket(samples)
    everything = False
    while True:
        width = max((high - low) / _BINS, float(np.finfo(float).tiny))
        below, bins, found = _count(samples, low, width)
        inside = ranks - below
        if inside[0] < 0 or inside[1] >= bins.sum():  # rare: the random pairs misjudged where the middle lies
            assert not everything
            low, high, everything = 0.0, _above_all_distances(samples), True
            continue
        if bins.sum() == len(found):
            middle = np.partition(found, inside)[inside]
            break
        first, last = np.searchsorted(np.cumsum(bins), inside, side="right")
        edges = low + width * np.array([first, last + 1])
        # Counting divides by the width, so an edge may be off by rounding: take one more float.
        narrower = (
            max(low, float(np.nextafter(edges[0], -1.0))),
            min(high, float(np.nextafter(edges[1], np.inf))),
        )
        if narrower == (low, high):  # no floats left between the edges: one value, repeated
            middle = np.array([low, low])
            break
        low, high = narrower
    sigma = float(np.sqrt(middle.mean()))
    return Bandwidth(sigma, "exact", (sigma, sigma), 1.0, pairs)


def _count(samples: Stack, low: float, width: float) -> tuple[int, NDArray[np.int64], NDArray[np.float64]]:
    """Return how many squared distances lie below ``low``, a histogram from there on, and the values in it.

    The list of values is shorter than the histogram says if there are too many of them.
    """
    if not isinstance(samples, Samples):
        from stackfu.embedding.on_device import count_distances

        return count_distances(samples, low, width, _BINS, _LISTED_BY_A_TILE)
    from stackfu.embedding import _kernels

    n, d = samples.n, samples.dimension
    double = np.dtype(np.float64)
    # Groups of the two widths over the same rows; differences are formed, so no digits cancel.
    left = pack(samples, 0, n, _kernels.ROWS, 1.0, double, direct=True)
    right = pack(samples, 0, n, _kernels.COLUMNS, 1.0, double, direct=True)
    step = max(1, len(left.values) // 256)

    def count(start: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        bins = np.zeros(_BINS + 2, dtype=np.int64)
        found = np.empty(_LISTED_BY_A_TILE)
        kept = _kernels.count_distances(
            left.values, left.halves, right.values, right.halves, d, n,
            start, min(start + step, len(left.values)), low, width, bins, found, 0,
        )  # fmt: skip
        return bins, found[:kept]

    parts = list(in_order(count, range(0, len(left.values), step)))
    bins = np.sum([b for b, _ in parts], axis=0)
    listed = np.concatenate([f for _, f in parts])
    return int(bins[0]), bins[1:-1], listed


def _likely_bracket(samples: Stack) -> tuple[float, float]:
    """Bounds that hold the median squared distance, except with odds of one in a million."""
    low, high = _sampled(samples, 20_000, 1 - _ODDS, seed=0).interval
    return low**2 * (1 - _SAFETY), high**2 * (1 + _SAFETY) + np.finfo(float).tiny


def _above_all_distances(samples: Stack) -> float:
    """Return a number above every squared distance."""
    return 4.0 * samples.dimension * samples.largest_deviation() ** 2 * (1 + _SAFETY) + np.finfo(float).tiny


def _sampled(samples: Stack, pairs: int, confidence: float, seed: int) -> Bandwidth:
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


def _squared_distances_of_random_pairs(samples: Stack, pairs: int, seed: int) -> NDArray[np.float64]:
    random = np.random.default_rng(seed)
    first = random.integers(samples.n, size=pairs)
    second = random.integers(samples.n - 1, size=pairs)
    second += second >= first  # uniform over the samples that are not the first
    squared = np.empty(pairs)
    step = max(1, _GATHER_NUMBERS // samples.dimension)
    for start in range(0, pairs, step):
        part = slice(start, start + step)
        squared[part] = samples.squared_distances(first[part], second[part])
    return squared
