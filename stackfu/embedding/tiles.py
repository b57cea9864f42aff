"""Every pair of rows of a stack once, in square tiles: for kernels that come as a whole matrix at a time.

A tile function is given two ranges of rows and returns sums over them, one entry per pair of the clients that own the
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding.samples import Stack

Progress = Callable[[int, int], None]
Range = tuple[int, int]
TileSums = Callable[[Range, Range], NDArray[np.float64]]


def sum_over_pairs(
    stack: Stack, rows: int, tile_sums: TileSums, progress: Progress | None = None
) -> NDArray[np.float64]:
    """Return sums over all ordered pairs of rows, one entry per pair of clients, for a symmetric kernel."""
    ranges = [(start, min(start + rows, stack.n)) for start in range(0, stack.n, rows)]
    totals = np.zeros((len(stack), len(stack)))
    done, work = 0, len(ranges) * (len(ranges) + 1) // 2
    for i, left in enumerate(ranges):
        for right in ranges[i:]:
            sums = tile_sums(left, right)
            mine, theirs = stack.clients(*left), stack.clients(*right)
            # A client that reaches into the right tile meets its other rows in both orders.
            if left != right and theirs.start == mine.stop - 1:
                sums[-1, 0] *= 2
            totals[mine, theirs] += sums
            done += 1
            if progress is not None:
                progress(done, work)
    upper = np.triu(totals)
    return np.asarray(upper + np.triu(upper, 1).T)


def first_rows(stack: Stack, rows: Range) -> NDArray[np.int64]:
    """Return the first row of each client within a range of rows."""
    owners = stack.clients(*rows)
    begin = stack.starts[owners] - rows[0]
    begin[0] = 0
    return begin


def sum_blocks(
    matrix: NDArray[Any], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sums over the blocks of a matrix that begin in these rows and columns.

    >>> sum_blocks(np.ones((3, 2)), np.array([0, 1]), np.array([0]))
    array([[2.],
           [4.]])
    """
    by_rows = np.add.reduceat(matrix, left, axis=0, dtype=np.float64)
    return np.asarray(np.add.reduceat(by_rows, right, axis=1))
