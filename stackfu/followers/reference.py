"""The path of :mod:`.path` in plain NumPy: slow, short, and without care for ties.

With the sets A (inside), C (at the cap) and Z (out) fixed, the profile with total s solves

    2 G_AA y_A + eta 1 = s diag(G)_A - s^2 w_A - 2 G_AC alpha_C,      sum y_A = s - sum alpha_C,

so y_A and eta are quadratic polynomials in s, and ``s^2 t(s) = s eta + y'Gy`` is a quartic. Written for
reading and for tests; it needs affinely independent embeddings and no two events at the same s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..model.geometry import Array

__all__ = ["Piece", "follow_slowly"]


@dataclass(frozen=True, eq=False)
class Piece:
    """The sets between two totals; y and ``s^2 t(s)`` as coefficients by powers of s; zeros of t."""

    top: float
    bottom: float
    inside: npt.NDArray[np.bool_]
    full: npt.NDArray[np.bool_]
    y: Array
    quartic: Array
    roots: tuple[float, ...]


def follow_slowly(gram: Array, alpha: Array, w: Array) -> list[Piece]:
    """Return all pieces from ``s = 1`` down to 0.

    >>> import numpy as np
    >>> pieces = follow_slowly(np.eye(2) / 2, np.array([0.5, 0.5]), np.array([2.0, 8.0]))
    >>> [round(root, 6) for piece in pieces for root in piece.roots]
    [0.055556]
    """
    N = len(alpha)
    inside, full = np.zeros(N, dtype=bool), np.ones(N, dtype=bool)
    pieces: list[Piece] = []
    top = 1.0
    while True:
        if not inside.any():  # the least willing of those at their caps comes in
            top = float(alpha[full].sum())
            gradient = top * np.diag(gram) - 2.0 * gram[:, full] @ alpha[full] - top**2 * w
            first = int(np.flatnonzero(full)[np.argmin(gradient[full])])
            full[first], inside[first] = False, True
        y, eta = _solve(gram, alpha, w, inside, full)
        inner = gram @ y
        multipliers = -2.0 * inner - np.outer(np.ones(N), eta)
        multipliers[:, 1] += np.diag(gram)
        multipliers[:, 2] -= w
        quartic = np.zeros(5)
        quartic[1:4] += eta
        for i in range(3):
            for j in range(3):
                quartic[i + j] += y[:, i] @ inner[:, j]
        # conditions that hold on the piece, as polynomials that must stay non-negative
        conditions = [(k, y[k]) for k in np.flatnonzero(inside)]
        conditions += [(k, np.array([alpha[k], 0.0, 0.0]) - y[k]) for k in np.flatnonzero(inside)]
        conditions += [(k, multipliers[k]) for k in np.flatnonzero(full)]
        conditions += [(k, -multipliers[k]) for k in np.flatnonzero(~inside & ~full)]
        bottom, event = max(((_last_root(c, top), k) for k, c in conditions), key=lambda pair: pair[0])
        roots = _real_roots(quartic)
        roots = roots[(roots > bottom) & (roots <= top)]
        pieces.append(Piece(top, bottom, inside.copy(), full.copy(), y, quartic, tuple(roots[::-1].tolist())))
        if bottom <= 0.0:
            return pieces
        if inside[event]:
            inside[event] = False
            share = np.polyval(y[event][::-1], bottom)
            full[event] = share > 0.5 * alpha[event]
        else:
            full[event], inside[event] = False, True
        top = bottom


def _solve(
    gram: Array, alpha: Array, w: Array, inside: npt.NDArray[np.bool_], full: npt.NDArray[np.bool_]
) -> tuple[Array, Array]:
    n = int(inside.sum())
    system = np.zeros((n + 1, n + 1))
    system[:n, :n] = 2.0 * gram[np.ix_(inside, inside)]
    system[:n, n] = system[n, :n] = 1.0
    right = np.zeros((n + 1, 3))
    right[:n, 0] = -2.0 * gram[np.ix_(inside, full)] @ alpha[full]
    right[:n, 1] = np.diag(gram)[inside]
    right[:n, 2] = -w[inside]
    right[n] = -alpha[full].sum(), 1.0, 0.0
    solution = np.linalg.solve(system, right)
    y = np.zeros((len(alpha), 3))
    y[full, 0] = alpha[full]
    y[inside] = solution[:n]
    return y, solution[n]


def _real_roots(coefficients: Array) -> Array:
    """Real roots, ascending; a polynomial that is a power of s times another one has no root at 0 here."""
    trimmed = np.trim_zeros(
        np.where(np.abs(coefficients) < 1e-13 * np.abs(coefficients).max(), 0.0, coefficients)
    )
    roots = np.roots(trimmed[::-1])
    return np.sort(roots[np.abs(roots.imag) < 1e-9 * np.maximum(np.abs(roots), 1e-9)].real)


def _last_root(coefficients: Array, top: float) -> float:
    """Return the largest zero below top of a condition, other than one at top itself; 0 if there is none."""
    roots = _real_roots(coefficients) if np.any(coefficients) else np.zeros(0)
    below = roots[(roots > 0.0) & (roots < top * (1.0 - 1e-9))]
    return float(below[-1]) if len(below) else 0.0
