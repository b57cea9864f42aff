"""Jitted passes over feature rows for :class:`stackfu.geometry.FeatureGeometry`; no row is copied.

The NumPy versions, in blocks of rows, stand beside the calls in :mod:`stackfu.geometry`.
"""

import numpy as np
from numba import njit, prange

REORDER = {"reassoc", "contract", "nsz", "arcp"}
PARTS = 64


@njit(cache=True, fastmath=REORDER)
def squared_gap(features, row, factor, point):
    """``||point - factor * features[row]||^2``."""
    acc = 0.0
    for d in range(len(point)):
        gap = point[d] - factor * np.float64(features[row, d])
        acc += gap * gap
    return acc


@njit(cache=True, fastmath=REORDER)
def add_row(features, row, factor, point):
    """``point += factor * features[row]``."""
    for d in range(len(point)):
        point[d] += factor * np.float64(features[row, d])


@njit(cache=True)
def combine(features, rows, weights):
    """``sum_k weights_k features[rows_k]`` in float64, part by part to keep rounding small.

    One thread: memory is the limit, and threads that write small accumulators slow each other down.
    """
    N, D = len(rows), features.shape[1]
    out, acc = np.zeros(D), np.empty(D)
    for part in range(PARTS):
        acc[:] = 0.0
        for k in range(part * N // PARTS, (part + 1) * N // PARTS):
            if weights[k] != 0.0:
                add_row(features, rows[k], weights[k], acc)
        out += acc
    return out


@njit(cache=True, parallel=True)
def squared_distances(features, rows, point):
    """``||features[rows_k] - point||^2`` for every k, from differences."""
    out = np.empty(len(rows))
    for k in prange(len(rows)):
        out[k] = squared_gap(features, rows[k], 1.0, point)
    return out
