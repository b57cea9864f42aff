"""A Cholesky factor that grows and shrinks by one row: the clients inside, as the path keeps them.

``G + 1 1'`` in place of the inner products G changes the level problem by a constant and is positive definite on every
affinely independent set, so a pivot that vanishes shows an affine dependence.
"""

import numpy as np

from ...jit import njit


@njit(cache=True, allocates=False)
def append(L, n, col, square, floor):
    """Add a row for a client with inner products ``col`` to the factor; False if it depends on the others."""
    for i in range(n):
        acc = col[i]
        for j in range(i):
            acc -= L[i, j] * L[n, j]
        L[n, i] = acc / L[i, i]
        square -= L[n, i] * L[n, i]
    if square <= floor:
        return False
    L[n, n] = np.sqrt(square)
    return True


@njit(cache=True, allocates=False)
def remove(L, n, gone):
    """Drop row ``gone`` from the factor of n rows by plane rotations."""
    for i in range(gone, n - 1):
        for j in range(i + 2):
            L[i, j] = L[i + 1, j]
    for i in range(gone, n - 1):
        a, b = L[i, i], L[i, i + 1]
        r = np.hypot(a, b)
        c, s = a / r, b / r
        L[i, i] = r
        for row in range(i + 1, n - 1):
            p, q = L[row, i], L[row, i + 1]
            L[row, i] = c * p + s * q
            L[row, i + 1] = c * q - s * p


@njit(cache=True, allocates=False)
def drop(L, order, n, i):
    """Take the i-th of those inside out of the factor and of their list."""
    remove(L, n, i)
    for j in range(i, n - 1):
        order[j] = order[j + 1]


@njit(cache=True, allocates=False)
def solve(L, n, b, rows):
    """Solve ``L L' x = b`` in place: the first n numbers of every one of the first rows of ``b`` are a right-hand side."""
    for r in range(rows):
        x = b[r]
        for i in range(n):
            acc = x[i]
            for j in range(i):
                acc -= L[i, j] * x[j]
            x[i] = acc / L[i, i]
        for i in range(n - 1, -1, -1):
            x[i] /= L[i, i]
            for j in range(i):
                x[j] -= L[i, j] * x[i]


@njit(cache=True, allocates=False)
def solve_four(L, n, b):
    """:func:`solve` for the four rows of ``b`` together: the sums of one row do not wait for each other."""
    for i in range(n):
        r, s, t, u = b[0, i], b[1, i], b[2, i], b[3, i]
        for j in range(i):
            v = L[i, j]
            r -= v * b[0, j]
            s -= v * b[1, j]
            t -= v * b[2, j]
            u -= v * b[3, j]
        v = 1.0 / L[i, i]
        b[0, i], b[1, i], b[2, i], b[3, i] = r * v, s * v, t * v, u * v
    for i in range(n - 1, -1, -1):
        v = 1.0 / L[i, i]
        r, s, t, u = b[0, i] * v, b[1, i] * v, b[2, i] * v, b[3, i] * v
        b[0, i], b[1, i], b[2, i], b[3, i] = r, s, t, u
        for j in range(i):
            v = L[i, j]
            b[0, j] -= v * r
            b[1, j] -= v * s
            b[2, j] -= v * t
            b[3, j] -= v * u
