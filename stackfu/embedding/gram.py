"""All block means of the kernel matrix, a tile at a time.

    C_ij = mean over a in client i, b in client j of 1 - k(a, b),    G = 1 - C,

where ``k(a, b) = 2^(-|a - b|^2 / 2)`` after the samples were centred and divided by ``sigma sqrt(ln 2)``.
Summing ``1 - k`` in place of ``k`` costs nothing and keeps the digits of the distances
``|mu_i - mu_j|^2 = 2 C_ij - C_ii - C_jj`` when the bandwidth is large.

Squared distances come from inner products, ``|a|^2 + |b|^2 - 2 a.b``, which costs ``G_ij`` an error of at
most a small multiple of ``u (E_i + E_j)``: u the unit roundoff and E_i the mean of ``|a - centre|^2 /
sigma^2`` over client i (about 1/2 with the median bandwidth). So the arithmetic is chosen from the E_i:
float32 for float32 samples while the error stays far below 1e-6, else float64; and where float64 could not
promise 1e-12, differences ``a - b`` are formed coordinate by coordinate: their error does not grow with the
spread of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding.parallel import in_order
from stackfu.embedding.samples import Array, Samples
from stackfu.embedding.tiles import Progress

Arithmetic = Literal["auto", "double"]

# Largest mean of |a - centre|^2 / sigma^2 over a client for which inner products are accurate enough.
SPREAD_FOR_SINGLE = 2.0
SPREAD_FOR_DOUBLE = {"float32": 1e6, "float64": 500.0}
_LEFT_ROWS = 512
# Strips cut the square of a tile with itself: narrow ones waste less below the diagonal, wide ones cost fewer
# calls. A multiple of the columns of a register block.
_STRIP_ROWS = 64
_STRIP_NUMBERS = 16 << 10
_LEFT_BYTES = 1 << 20  # a left tile stays in the second-level cache
_RIGHT_BYTES = 16 << 20
# Rows that only fill a group up: 2 to this power is 0 in either precision.
_PADDING = -1e30


def mean_complements(
    samples: Samples, sigma: float, arithmetic: Arithmetic = "auto", progress: Progress | None = None
) -> NDArray[np.float64]:
    """Return the (M, M) matrix C of mean ``1 - k``, in the arithmetic that its accuracy needs."""
    real, direct = choose_arithmetic(samples, sigma, arithmetic)
    return means_of_sums(sum_over_tiles(samples, sigma, real, direct, progress), samples.starts)


def mean_complements_of_blocks(
    blocks: Iterable[Samples], sigma: float, arithmetic: Arithmetic = "auto"
) -> Iterator[NDArray[np.float64]]:
    """Yield the matrix C of each block of samples in turn; pairs of different blocks are not looked at.

    The tiles of all blocks share the cores, so that many small blocks take no longer than a few large ones.
    """
    starts: list[NDArray[np.int64]] = []

    def jobs() -> Iterator[_Job]:
        for block in blocks:
            starts.append(block.starts)
            yield from _jobs(block, sigma, *choose_arithmetic(block, sigma, arithmetic))

    for done, totals in enumerate(_sums(jobs())):
        yield means_of_sums(totals, starts[done])


def means_of_sums(totals: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the symmetric matrix of means of ``1 - k`` from sums in the upper triangle."""
    upper = np.triu(totals)
    sizes = np.diff(starts).astype(np.float64)
    C = (upper + np.triu(upper, 1).T) / np.multiply.outer(sizes, sizes)
    return np.asarray(np.clip(C, 0.0, 1.0))


def choose_arithmetic(
    samples: Any, sigma: float, arithmetic: Arithmetic, single: bool = True
) -> tuple[np.dtype[Any], bool]:
    """Return the floating-point type to compute in, and whether to form differences.

    ``single`` says whether float32 arithmetic is to be had at all.
    """
    spread = float(np.max(samples.mean_squares(sigma)))
    if samples.dtype == np.float32 and arithmetic == "auto" and single and spread <= SPREAD_FOR_SINGLE:
        return np.dtype(np.float32), False
    accuracy = samples.dtype.name if arithmetic == "auto" else "float64"
    return np.dtype(np.float64), not spread <= SPREAD_FOR_DOUBLE[accuracy]


@dataclass(frozen=True)
class Packed:
    """Rows ``start : stop`` of the stack in the layout of the kernels: groups of ``width`` rows.

    A run is a stretch of rows that starts a group of its own.
    """

    start: int
    stop: int
    values: Array  # (groups, d, width)
    halves: Array  # (groups, width): -|a|^2 / 2, or 0 where differences are formed
    counts: NDArray[np.float64]  # (groups,): rows that are samples and not padding
    run_starts: NDArray[np.int64]  # first group of each run, and the number of groups
    run_rows: NDArray[np.int64]  # first row of each run


def pack(
    samples: Samples,
    start: int,
    stop: int,
    width: int,
    scale: float,
    real: np.dtype[Any],
    *,
    direct: bool,
    strip: int = 0,
) -> Packed:
    """Centre, scale and regroup rows; with ``strip`` a run begins at every client and every ``strip`` rows.

    Rows compared by differences are not centred, because centring would round off their differences.
    """
    from stackfu.embedding._kernels import pack_rows

    origin, scale = (np.zeros(samples.dimension), 1.0) if direct else (samples.centre, scale)
    cuts = np.array([start])
    if strip:
        cuts = np.union1d(samples.starts[samples.clients(start, stop)][1:], np.arange(start, stop, strip))
    lengths = np.diff(cuts, append=stop)
    groups = -(-lengths // width)
    run_starts = np.concatenate([[0], np.cumsum(groups)]).astype(np.int64)
    total = int(run_starts[-1])
    values = np.empty((total, samples.dimension, width), dtype=real)
    values[run_starts[1:] - 1] = 0.0  # only the last group of a run may have padding
    halves = np.full((total, width), _PADDING, dtype=real)
    counts = np.full(total, float(width))
    counts[run_starts[1:] - 1] -= groups * width - lengths
    for run, (first, length) in enumerate(zip(cuts.tolist(), lengths.tolist(), strict=True)):
        for offset, rows in samples.pieces(first, first + length):
            place = int(run_starts[run]) * width + offset
            pack_rows(rows, origin, scale, place, not direct, values, halves)
    return Packed(start, stop, values, halves, counts, run_starts, cuts)


def sum_over_tiles(
    samples: Samples, sigma: float, real: np.dtype[Any], direct: bool, progress: Progress | None = None
) -> NDArray[np.float64]:
    """Return sums of ``1 - k`` over all ordered pairs, one entry per pair of clients, upper triangle only."""
    return next(_sums(_jobs(samples, sigma, real, direct), progress))


@dataclass(frozen=True)
class _Job:
    """One tile against one panel, and how many of those its block is made of."""

    clients: int
    work: int
    run: Callable[[], list[Sums]]


def _jobs(samples: Samples, sigma: float, real: np.dtype[Any], direct: bool) -> Iterator[_Job]:
    """Left tiles of some hundred rows meet right panels of some megabytes, from a tile's own first row on."""
    from stackfu.embedding._kernels import COLUMNS

    # Differences give the whole squared distance, inner products half of it.
    scale = float(np.sqrt((0.5 if direct else 1.0) / np.log(2))) / sigma
    row_bytes = samples.dimension * real.itemsize
    strip = _STRIP_ROWS * min(4, max(1, _STRIP_NUMBERS // samples.dimension // _STRIP_ROWS))
    height = strip * max(1, min(_LEFT_ROWS, _LEFT_BYTES // row_bytes) // strip)
    width = height * max(1, _RIGHT_BYTES // (row_bytes * height))
    panels = range(0, samples.n, width)
    work = sum(-(-min(samples.n, start + width) // height) for start in panels)
    for start in panels:
        stop = min(samples.n, start + width)
        panel = pack(samples, start, stop, COLUMNS, scale, real, direct=direct)
        for row in range(0, stop, height):
            yield _Job(
                len(samples), work, partial(_tile_sums, samples, panel, height, strip, scale, direct, row)
            )


def _sums(jobs: Iterable[_Job], progress: Progress | None = None) -> Iterator[NDArray[np.float64]]:
    """Run the jobs on all cores, and yield the totals of each block as it is complete."""
    done, totals = 0, np.zeros((0, 0))
    for job, results in in_order(lambda job: (job, job.run()), jobs):
        if done == 0:
            totals = np.zeros((job.clients, job.clients))
        for place, sums in results:
            totals[place] += sums
        done += 1
        if progress is not None:
            progress(done, job.work)
        if done == job.work:
            yield totals
            done = 0


Sums = tuple[tuple[slice, slice], NDArray[np.float64]]


def _tile_sums(
    samples: Samples, panel: Packed, height: int, strip: int, scale: float, direct: bool, row: int
) -> list[Sums]:
    """Sums of the rows of one tile with those columns of a panel that do not come before them."""
    from stackfu.embedding._kernels import ROWS

    stop = min(samples.n, row + height)
    tile = pack(samples, row, stop, ROWS, scale, panel.values.dtype, direct=direct, strip=strip)
    against = partial(_rectangle_sums, samples, panel, scale, direct, tile)
    results = []
    if row >= panel.start:  # the square of the tile with itself
        for start in range(row, stop, strip):
            end = min(stop, start + strip)
            results.append(against(start, end, start, end))
            if end < stop:
                results.append(against(start, end, end, stop))
    if stop < panel.stop:
        results.append(against(row, stop, max(stop, panel.start), panel.stop))
    return results


def _rectangle_sums(
    samples: Samples,
    panel: Packed,
    scale: float,
    direct: bool,
    tile: Packed,
    start: int,
    stop: int,
    begin: int,
    end: int,
) -> Sums:
    """Return sums of the rows ``start : stop`` of a tile with the columns ``begin : end``, and the owners of the rows."""
    from stackfu.embedding._kernels import COLUMNS, sum_complements

    mine, theirs = samples.clients(start, stop), samples.clients(begin, end)
    sums = np.zeros((mine.stop - mine.start, theirs.stop - theirs.start))
    first, last = np.searchsorted(tile.run_rows, [start, stop])
    owners = np.searchsorted(samples.starts, tile.run_rows[first:last], side="right") - 1 - mine.start
    q_start, q_stop = (begin - panel.start) // COLUMNS, -(-(end - panel.start) // COLUMNS)
    sum_complements(
        tile.values, tile.halves, tile.counts, tile.run_starts[first : last + 1], owners,
        panel.values, panel.halves, samples.dimension, q_start, q_stop, panel.start, samples.starts,
        theirs.start, direct, scale, sums,
    )  # fmt: skip
    if begin >= stop and theirs.start == mine.stop - 1:
        sums[-1, 0] *= 2  # a client that reaches beyond the rows meets its other rows in both orders
    return (mine, theirs), sums
