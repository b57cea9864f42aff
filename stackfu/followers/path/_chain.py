"""Chain of participation profiles along the whole curve, recorded for the checker.

Consecutive triples are the Bernstein control points of the participation along a piece, which is a quadratic curve;
neighbours share their ends. A piece whose middle control point leaves [0, 1] is cut into shorter ones
(see :mod:`stackfu.judging.completeness`).
"""

import numpy as np

from ...jit import njit
from ._piece import FULL, INSIDE

#: A piece is halved until there are so many parts at most; what is then still outside is cut off.
MOST_PARTS = 2**8
#: Ends of neighbouring pieces that differ by more than this differ by more than rounding.
APART = 1e-11
#: A control point may leave [0, 1] by this much: rounding.
ROUNDING = 1e-12


@njit(cache=True, allocates=False)
def share(z, k, s0, alpha, u):
    """Participation of a client inside at u."""
    return (z[0, k] + u * (z[1, k] + u * z[2, k])) * s0 / alpha[k]


@njit(cache=True, allocates=False)
def control(z, k, s0, alpha, p, q):
    """The middle control point of its participation between u = p and q."""
    slope = z[1, k] + 2.0 * p * z[2, k]
    return (z[0, k] + p * (z[1, k] + p * z[2, k]) + 0.5 * (q - p) * slope) * s0 / alpha[k]


@njit(cache=True, allocates=False)
def allowed(z, s0, alpha, tops, status, p, q):
    """Return True if the middle control point between u = p and q is a profile; ``tops`` are the caps on participation."""
    for k in range(len(alpha)):
        if status[k] == INSIDE:
            x = control(z, k, s0, alpha, p, q)
            if x < -ROUNDING or x > tops[k] + ROUNDING:
                return False
    return True


@njit(cache=True, allocates=False)
def place(row, z, s0, alpha, tops, status, p, q, middle):
    """A profile at u = q, or the middle control point between p and q."""
    for k in range(len(alpha)):
        if status[k] == INSIDE:
            x = control(z, k, s0, alpha, p, q) if middle else share(z, k, s0, alpha, q)
            row[k] = min(max(x, 0.0), tops[k])
        else:
            row[k] = tops[k] if status[k] == FULL else 0.0


@njit(cache=True, allocates=False)
def extend(chain, rows, z, s0, alpha, tops, status, start, reach):
    """Append the piece between u = start and reach; returns the number of profiles then, -1 if there is no room."""
    i, parts = 0, 1  # the i-th of so many equal parts
    while True:
        p = start + (reach - start) * (i / parts)
        q = start + (reach - start) * ((i + 1) / parts) if i + 1 < parts else reach
        if parts < MOST_PARTS and not allowed(z, s0, alpha, tops, status, p, q):
            i, parts = 2 * i, 2 * parts
            continue
        if rows + 2 > len(chain):
            return -1
        place(chain[rows], z, s0, alpha, tops, status, p, q, True)
        place(chain[rows + 1], z, s0, alpha, tops, status, p, q, False)
        rows += 2
        i += 1
        while parts > 1 and i % 2 == 0:
            i, parts = i // 2, parts // 2
        if i == parts:
            break
    return rows


@njit(cache=True, allocates=False)
def connect(chain, rows, z, s0, alpha, tops, status, start):
    """A straight piece from the last profile to where this one starts, if clients have exchanged places (S and m stay)."""
    if rows + 2 > len(chain):
        return -1
    last, middle, first = chain[rows - 1], chain[rows], chain[rows + 1]
    place(first, z, s0, alpha, tops, status, 0.0, start, False)
    apart = 0.0
    for k in range(len(alpha)):
        apart = max(apart, abs(first[k] - last[k]))
        middle[k] = 0.5 * (first[k] + last[k])
    return rows + 2 if apart > APART else rows


@njit(cache=True, allocates=False)
def leave_trace(chain, rows, z, s0, alpha, tops, status, reach, highest, lowest):
    """Append what lies of a piece between two totals; returns the number of profiles then, -1 if there is no room."""
    start = 0.0 if s0 <= highest else 1.0 - highest / s0
    end = min(reach, 1.0 - lowest / s0)
    if start >= end or rows < 0:
        return rows
    if rows == 0:
        place(chain[0], z, s0, alpha, tops, status, 0.0, start, False)
        rows = 1
    else:
        rows = connect(chain, rows, z, s0, alpha, tops, status, start)
        if rows < 0:
            return rows
    return extend(chain, rows, z, s0, alpha, tops, status, start, end)


@njit(cache=True, allocates=False)
def smallest_total(apart, w, shares, caps, a, short):
    """The largest total at which two clients, or with a sampling term one, surely want more and may bring as much; 0 if none.

    Squared distances up to ``short`` say nothing.
    """
    found = 0.0
    for i in range(len(w)):
        root, most = np.sqrt(max(w[i], 0.0)), shares[i] * caps[i]
        for j in range(i):
            if apart[i, j] > short:
                both = root + np.sqrt(max(w[j], 0.0))
                least = min(most, shares[j] * caps[j])
                found = max(found, least if both == 0.0 else min(least, apart[i, j] / (both * both)))
        if a > 0.0:
            found = max(found, most if root == 0.0 else min(most, np.sqrt(0.5 * a) / root))
    return found
