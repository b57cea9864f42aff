"""Compiled arithmetic of :mod:`stackfu.judging.stakes`."""

import numpy as np

from ..jit import njit


@njit(cache=True, allocates=False)
def reluctances(costs, weights, p, eager, smallest, out):
    """``w_k`` into ``out``, not below ``-eager``; whether payments and reluctances are numbers between ``smallest`` and one over
    it, or 0 or less."""
    most, largest = 0.0, 0.0
    for k in range(len(p)):
        w = (costs[k] - p[k]) / weights[k]
        most, largest = max(most, p[k]), max(largest, abs(w))
        out[k] = max(w, -eager)
    return (most == 0.0 or most >= smallest) and most <= 1.0 / smallest and largest <= 1.0 / smallest


@njit(cache=True, allocates=False)
def total(alpha, x, caps):
    """Return the total of a profile, 0 if it is above the caps."""
    out, allowed = 0.0, True
    for k in range(len(x)):
        allowed = allowed and x[k] <= caps[k]
        out += alpha[k] * x[k]
    return out if allowed else 0.0


@njit(cache=True)
def slopes(distances, error, alpha, costs, p, x, lam, a, few):
    """``dU_k/dx_k`` of every client, how far rounding may have put it off, and ``d_k^2`` at least, as rows.

    Squared distances are off by a relative ``few`` and by ``error``; every sum of non-negative numbers by ``few`` as well.
    """
    N = len(alpha)
    out, spread, loose = np.empty((3, N)), np.zeros(N), np.zeros(N)
    total = 0.0
    for i in range(N):
        total += alpha[i] * x[i]
    for i in range(N):
        z = alpha[i] * x[i] / total
        if z > 0.0:
            for k in range(N):
                spread[k] += z * distances[i, k]
                loose[k] += z * error[i, k]
    joint, joint_loose = 0.0, 0.0
    for i in range(N):
        z = alpha[i] * x[i] / total
        joint += z * spread[i]
        joint_loose += z * loose[i]
    for k in range(N):
        square = max(spread[k] - 0.5 * joint, 0.0)
        off = few * (spread[k] + 0.5 * joint) + (loose[k] + 0.5 * joint_loose)
        pull = 2.0 * lam * alpha[k] * square / total
        thin = lam * alpha[k] * a / total**2
        out[0, k] = (p[k] - costs[k]) + pull + thin
        out[1, k] = 2.0 * lam * alpha[k] * off / total + 8.0 * few * (abs(p[k] - costs[k]) + pull + thin)
        out[2, k] = max(square - off, 0.0)
    return out


@njit(cache=True, allocates=False)
def gains(slope, doubt, drift, costs, p, x, caps, lam, few, out):
    """Compute upper bounds on every client's gain relative to its stakes, from its slope."""
    for k in range(len(x)):
        more, less = max(slope[k] + doubt[k], 0.0) * (caps[k] - x[k]), max(doubt[k] - slope[k], 0.0) * x[k]
        stakes = max(max(costs[k], p[k]), lam * drift[k]) * (1.0 - 8.0 * few)
        out[k] = max(more, less) * (1.0 + 8.0 * few) / stakes
        if not (np.isfinite(slope[k]) and np.isfinite(doubt[k])):
            out[k] = np.inf


@njit(cache=True)
def stakes(distances, error, alpha, costs, weights, p, x, caps, lam, a, few, smallest, out):
    """The same from all distances; nothing where numbers under these payments, or the profile's total, leave the range."""
    if total(alpha, x, caps) >= smallest and reluctances(costs, weights, p, 0.0, smallest, out):
        slope, doubt, drift = slopes(distances, error, alpha, costs, p, x, lam, a, few)
        gains(slope, doubt, drift, costs, p, x, caps, lam, few, out)
    else:
        out[:] = np.inf
