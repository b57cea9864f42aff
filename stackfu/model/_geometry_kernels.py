"""Jitted passes over feature rows (no row is copied), and the judgement of a point from inner products.

The NumPy versions are next to the calls in :mod:`stackfu.geometry` and :mod:`stackfu.game`.
"""

import numpy as np
from numba import prange

from ..jit import njit

REORDER = {"reassoc", "contract", "nsz", "arcp"}
PARTS = 64
#: As in :mod:`.responses`.
LAST_BIT = 1e-16


@njit(cache=True, fastmath=REORDER, allocates=False)
def squared_gap(features, row, factor, point):
    """``||point - factor * features[row]||^2``."""
    acc = 0.0
    for d in range(len(point)):
        gap = point[d] - factor * np.float64(features[row, d])
        acc += gap * gap
    return acc


@njit(cache=True, fastmath=REORDER, allocates=False)
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


@njit(cache=True, allocates=False)
def positive_root(w, q, a):
    """The positive R with ``2 w R^3 - a R - 2 q = 0``, for ``w > 0``; Newton's method from above."""
    r = q / w
    if a == 0.0:
        return np.cbrt(r)
    p = a / (2.0 * w)
    root = np.cbrt(r) + np.sqrt(p)
    for _ in range(60):
        after = root - (root * root * root - p * root - r) / (3.0 * root * root - p)
        if not after < root * (1.0 - LAST_BIT):
            break
        root = max(after, 0.0)
    return root


@njit(cache=True)
def drifts(gram, z):
    """Squared distances of every client to the mixture z, from inner products."""
    N = len(z)
    inner, out = np.zeros(N), np.empty(N)
    for i in range(N):
        if z[i] > 0.0:
            for k in range(N):
                inner[k] += z[i] * gram[i, k]
    square = 0.0
    for k in range(N):
        square += inner[k] * z[k]
    for k in range(N):
        d2 = gram[k, k] - 2.0 * inner[k] + square
        if z[k] > 0.5:  # hardly different from its own embedding: from what the others bring
            d2 = 0.0
            for i in range(N):
                if i != k and z[i] > 0.0:
                    for j in range(N):
                        if j != k and z[j] > 0.0:
                            d2 += z[i] * z[j] * (gram[i, j] - gram[i, k] - gram[j, k] + gram[k, k])
        out[k] = max(d2, 0.0)
    return out


@njit(cache=True, fastmath=REORDER, allocates=False)
def gap_between(features, row, origin, point):
    """``||point - (features[row] - origin)||^2``."""
    acc = 0.0
    for d in range(len(point)):
        gap = point[d] - (np.float64(features[row, d]) - origin[d])
        acc += gap * gap
    return acc


@njit(cache=True)
def drifts_of_rows(features, rows, origin, z):
    """Return the same from feature rows, by differences: a client's distance is not rounded away against those of far clients.

    Rows are taken from ``origin``, so that what all of them share is not rounded either.
    """
    N, D = len(rows), features.shape[1]
    out, m = np.empty(N), np.zeros(D)
    for i in range(N):
        if z[i] > 0.0:
            for d in range(D):
                m[d] += z[i] * (np.float64(features[rows[i], d]) - origin[d])
    for k in range(N):
        if z[k] <= 0.5:
            out[k] = gap_between(features, rows[k], origin, m)
            continue
        out[k] = 0.0
        for d in range(D):
            gap = 0.0
            for i in range(N):
                gap += z[i] * (np.float64(features[rows[i], d]) - np.float64(features[rows[k], d]))
            out[k] += gap * gap
    return out


@njit(cache=True)
def judge(drift, alpha, caps, costs, payments, weights, x, a):
    """Largest violation of an equilibrium condition relative to the client's own terms, and largest gain divided by lam.

    ``weights`` are ``2 lam alpha_k``, which make money a reluctance.
    """
    N = len(alpha)
    y = np.empty(N)
    total, active = 0.0, 0
    for k in range(N):
        y[k] = alpha[k] * x[k]
        total += y[k]
        active += y[k] > 0.0
    if total * total == 0.0:  # too little to be squared
        return np.inf, np.inf
    violation, gain = 0.0, 0.0
    for k in range(N):
        d2, rest = drift[k], total - y[k]
        if y[k] > 0.5 * total:  # nearly all of it: the others are added up, not left over
            rest = 0.0
            for i in range(N):
                if i != k:
                    rest += y[i]
        pull = d2 + a / (2.0 * total) if a > 0.0 else d2
        w, price = (costs[k] - payments[k]) / weights[k], max(costs[k], payments[k]) / weights[k]
        g = pull - total * w
        wrong = max(g if x[k] < caps[k] else 0.0, -g if x[k] > 0.0 else 0.0)
        if wrong > 0.0:
            violation = max(violation, wrong / max(pull, total * price))
        if active == 0 or (active == 1 and y[k] > 0.0):  # facing nobody
            rest, d2 = 0.0, 0.0
        bound = alpha[k] * caps[k]
        if w > 0.0:
            response = min(max(positive_root(w, total * total * d2, a) - rest, 0.0), bound)
        else:
            response = bound if w < 0.0 or d2 > 0.0 or a > 0.0 else y[k]
        step = response - y[k]
        after = total + step
        if after <= 0.0 and (d2 > 0.0 or a > 0.0):
            return np.inf, np.inf
        saved = d2 / after * (1.0 + total / after) if d2 > 0.0 else 0.0
        if a > 0.0:
            saved += a / total / after
        gain = max(gain, step * (saved - 2.0 * w))
    return violation, gain
