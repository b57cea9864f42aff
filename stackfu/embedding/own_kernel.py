"""A kernel of the user's own: a function of two arrays of samples that returns the matrix of all k(a, b).

    G_ij = mean over a in client i, b in client j of k(a, b)

The function is called with tiles of rows, arrays or (for tensors that live elsewhere) tensors on their device, never
with all of them at once. What it returns is believed only as far as it can be: shape, finite values, symmetry of the
tiles on the diagonal, and inner products that some vectors have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding.samples import Stack, is_tensor
from stackfu.embedding.tiles import Progress, Range, first_rows, sum_blocks, sum_over_pairs
from stackfu.errors import InputError

Kernel = Callable[[Any, Any], Any]

# A tile of float64 values takes 8 MB.
_TILE_ROWS = 1024
_ASYMMETRY = 1e-6  # relative; float32 kernels round


def mean_kernel(
    samples: Any, kernel: Kernel, progress: Progress | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the matrix of mean ``k(a, b)``, and the mean of ``k(a, a)`` over each client."""
    own = np.zeros(len(samples))

    def sums(left: Range, right: Range) -> NDArray[np.float64]:
        a = samples.tile(*left)
        values = _values(samples, kernel, a, a if left == right else samples.tile(*right), left, right)
        begin = first_rows(samples, left)
        if left == right:
            _refuse_asymmetry(values)
            own[samples.clients(*left)] += np.add.reduceat(np.diagonal(values).astype(np.float64), begin)
        return sum_blocks(values, begin, first_rows(samples, right))

    sizes = np.diff(samples.starts).astype(np.float64)
    totals = sum_over_pairs(samples, _TILE_ROWS, sums, progress)
    return totals / np.multiply.outer(sizes, sizes), own / sizes


def _values(samples: Stack, kernel: Kernel, a: Any, b: Any, left: Range, right: Range) -> NDArray[Any]:
    found = kernel(a, b)
    if is_tensor(found):
        found = found.detach().double().cpu().numpy()
    try:
        values = np.asarray(found)
        if values.dtype.kind not in "fiub":
            raise TypeError
    except (TypeError, ValueError):
        raise InputError("kernel", "must return a matrix of numbers", value=type(found).__name__) from None
    if values.shape != (len(a), len(b)):
        raise InputError(
            "kernel",
            f"must return k(X, Y) of shape {(len(a), len(b))} for {len(a)} and {len(b)} samples",
            value=values.shape,
        )
    if not np.isfinite(values).all():
        i, j = (int(k) for k in np.argwhere(~np.isfinite(values))[0])
        clients = [
            samples.clients(start + row, start + row + 1).start
            for start, row in ((left[0], i), (right[0], j))
        ]
        raise InputError(
            "kernel",
            f"is not a finite number for a sample of client {samples.name(clients[1])}",
            client=samples.name(clients[0]),
            value=values[i, j],
        )
    return values


def _refuse_asymmetry(values: NDArray[Any]) -> None:
    skew = np.abs(values - values.T)
    i, j = (int(k) for k in np.unravel_index(int(skew.argmax()), skew.shape))
    if skew[i, j] > _ASYMMETRY * float(np.abs(values).max()):
        raise InputError(
            "kernel", f"is not symmetric: k(a, b) = {values[i, j]:.6g} and k(b, a) = {values[j, i]:.6g}"
        )
