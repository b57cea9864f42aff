"""Jitted passes over feature rows; the NumPy versions are next to the calls in :mod:`stackfu.leader.certified.points`."""

import numpy as np
from numba import prange

from ...jit import njit

REORDER = {"reassoc", "contract", "nsz", "arcp"}


@njit(cache=True, fastmath=REORDER)
def _along(features, row, origin, direction):
    acc = 0.0
    for d in range(len(direction)):
        acc += (np.float64(features[row, d]) - origin[d]) * direction[d]
    return acc


@njit(cache=True, parallel=True)
def inner(features, rows, origin, direction):
    """``<features[rows_k] - origin, direction>`` for every k."""
    out = np.empty(len(rows))
    for k in prange(len(rows)):
        out[k] = _along(features, rows[k], origin, direction)
    return out
