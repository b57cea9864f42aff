"""Jitted passes over feature rows; the NumPy versions are next to the calls in :mod:`stackfu.judging.rows`.

Sums may be reordered and products contracted: the error bounds of the callers hold for every order.
"""

import numpy as np
from numba import prange

from ..jit import njit

REORDER = {"reassoc", "contract"}


@njit(cache=True, fastmath=REORDER)
def _square(features, row, origin):
    acc = 0.0
    for d in range(len(origin)):
        gap = np.float64(features[row, d]) - origin[d]
        acc += gap * gap
    return acc


@njit(cache=True, fastmath=REORDER)
def _along(features, row, origin, point):
    acc = 0.0
    for d in range(len(origin)):
        acc += (np.float64(features[row, d]) - origin[d]) * point[d]
    return acc


@njit(cache=True, fastmath={"contract"})
def _add(features, row, origin, weight, onto):
    for d in range(len(origin)):
        onto[d] += weight * (np.float64(features[row, d]) - origin[d])


@njit(cache=True, parallel=True)
def squares(features, rows, origin):
    """``||features[rows_k] - origin||^2`` for every k."""
    out = np.empty(len(rows))
    for k in prange(len(rows)):
        out[k] = _square(features, rows[k], origin)
    return out


@njit(cache=True, parallel=True)
def inner(features, rows, origin, point):
    """``<features[rows_k] - origin, point>`` for every k."""
    out = np.empty(len(rows))
    for k in prange(len(rows)):
        out[k] = _along(features, rows[k], origin, point)
    return out


@njit(cache=True)
def combine(features, rows, origin, weights, block):
    """``sum_k weights_k (features[rows_k] - origin)``, block by block. One thread: memory is the limit."""
    out, acc = np.zeros(len(origin)), np.empty(len(origin))
    for start in range(0, len(rows), block):
        acc[:] = 0.0
        for k in range(start, min(start + block, len(rows))):
            if weights[k] != 0.0:
                _add(features, rows[k], origin, weights[k], acc)
        out += acc
    return out
