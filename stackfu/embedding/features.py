"""Random Fourier features: mean embeddings in O(n d D), computed where the data lives.

With frequencies ``w_1 .. w_{D/2}`` drawn from the spectrum of the RBF kernel, N(0, I / sigma^2),

    phi(x) = sqrt(2 / D) (cos w_1.x, .., cos w_{D/2}.x, sin w_1.x, .., sin w_{D/2}.x),   |phi(x)| = 1,

has ``E <phi(a), phi(b)> = k(a, b)``. The frequencies come in blocks of d orthogonal directions, which keeps
the estimate unbiased and lowers its variance (Yu et al., Orthogonal Random Features, 2016). The error of an
inner product of two mean embeddings has standard deviation at most ``sqrt(1 / D)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding.parallel import in_order
from stackfu.embedding.samples import Array
from stackfu.errors import InputError

_TILE_NUMBERS = 1 << 17  # 1 MB of float64 a tile


def mean_features(
    arrays: Iterable[Array], scaled_frequencies: Iterable[NDArray[np.float64]]
) -> Iterator[NDArray[np.float64]]:
    """Yield the mean of ``phi`` over the rows of each array, with frequencies of its own, a tile at a time on all cores."""
    from threadpoolctl import threadpool_limits

    def tiles() -> Iterator[_Tile]:
        for array, frequencies in zip(arrays, scaled_frequencies, strict=True):
            rows = max(1, _TILE_NUMBERS // frequencies.shape[1])
            for start in range(0, len(array), rows):
                yield _Tile(array[start : start + rows], frequencies, start, len(array))

    def sums(tile: _Tile) -> tuple[_Tile, NDArray[np.float64]]:
        with np.errstate(over="ignore", invalid="ignore"):  # in this thread; the caller looks at the result
            angles = np.asarray(tile.rows, dtype=np.float64) @ tile.frequencies
            return tile, np.concatenate([np.cos(angles).sum(axis=0), np.sin(angles, out=angles).sum(axis=0)])

    total = np.zeros(0)
    with threadpool_limits(1, user_api="blas"):  # the tiles are the parallel layer
        for tile, part in in_order(sums, tiles()):
            total = part if tile.start == 0 else total + part
            if tile.start + len(tile.rows) == tile.length:
                yield total / (tile.length * np.sqrt(tile.frequencies.shape[1]))


class _Tile(NamedTuple):
    rows: Array
    frequencies: NDArray[np.float64]
    start: int
    length: int


@lru_cache(maxsize=8)
def frequencies(dimension: int, features: int, seed: int) -> NDArray[np.float64]:
    """Return the (d, D/2) frequencies of bandwidth 1, the same on every machine and in every version.

    Only the raw bits of the Philox generator are used, because numpy keeps their stream stable; they become
    normal numbers through the inverse normal distribution function.
    """
    from scipy.special import ndtri

    half = features // 2
    blocks = -(-half // dimension)
    bits = np.random.Philox(key=seed).random_raw(2 * blocks * dimension * dimension)
    normal = ndtri(((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
    gaussian, for_lengths = normal.reshape(2, blocks, dimension, dimension)
    q, r = np.linalg.qr(gaussian)
    # The sign of R's diagonal is up to the LAPACK in use; with a positive one Q is unique (and Haar
    # distributed).
    q *= np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]
    q *= np.linalg.norm(for_lengths, axis=1)[:, None, :]
    directions = np.ascontiguousarray(np.concatenate(list(q), axis=1)[:, :half])
    directions.flags.writeable = False
    return directions


def dealt_out(features: int, classes: int) -> list[slice]:
    """Return which of D features belong to each of K classes: pairs of cosine and sine, as equally as can be.

    >>> dealt_out(10, 2)
    [slice(0, 6, None), slice(6, 10, None)]
    """
    if features < 2 * classes:
        raise InputError(
            "features", f"must be at least 2 per class ({2 * classes} for {classes} classes)", value=features
        )
    pairs, more = divmod(features // 2, classes)
    stops = np.cumsum([2 * (pairs + (k < more)) for k in range(classes)]).tolist()
    return [slice(start, stop) for start, stop in zip([0, *stops[:-1]], stops, strict=True)]


def check_features(features: int) -> int:
    """Return the number of features, refusing what is not a positive even integer."""
    if isinstance(features, bool) or not isinstance(features, (int, np.integer)):
        raise InputError(
            "features", "must be an even whole number (cosine and sine pairs)", value=repr(features)
        )
    if features < 2 or features % 2:
        raise InputError("features", "must be even and at least 2 (cosine and sine pairs)", value=features)
    return int(features)


def check_seed(seed: int) -> int:
    """Return the seed, refusing what is not a whole number in 0 .. 2^64 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
        raise InputError("seed", "must be a whole number from 0 to 2^64 - 1", value=repr(seed))
    return int(seed)
