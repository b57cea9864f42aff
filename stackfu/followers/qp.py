"""One equilibrium by bisection over the total participation, with a convex QP solver at every step.

The slow and independent counterpart of :mod:`.path`: at a fixed total s a general interior-point solver
(Clarabel) finds the profile and its level t(s), to which a sampling term adds ``a / (2 s)``; it is negative where everybody brings
all it may unless that is an equilibrium, and positive near 0, so bisection closes in on an equilibrium. Newton's method on the
clients strictly inside finishes it.
"""

from __future__ import annotations

import numpy as np

from ..model import Array, GameModel, frozen
from .newton import newton_polish
from .solver_tolerances import BISECTED, BISECTED_BRACKET, QP, QP_SNAP

__all__ = ["bisect_total", "level_profile"]

#: Programmes are divided by their largest number, or by this where all are zero.
ANY_SIZE = 1e-300


def level_profile(gram: Array, alpha: Array, w: Array, s: float) -> tuple[Array, float]:
    """Return the profile with total s that meets the equilibrium conditions up to a common level, and that level.

    ``z = y / s`` maximises ``diag(G).z - z'Gz - s w.z`` over ``sum z = 1``, ``0 <= z <= alpha / s``; the
    level is its multiplier of ``sum z = 1`` plus ``z'Gz``. Accurate to about 1e-9.

    >>> import numpy as np
    >>> y, level = level_profile(np.eye(2), np.array([0.5, 0.5]), np.array([1.0, 1.0]), 0.5)
    >>> y.round(6), round(level, 6)
    (array([0.25, 0.25]), 0.0)
    """
    import clarabel
    from scipy import sparse

    N = len(alpha)
    size = max(float(np.abs(gram).max()), float(np.abs(s * w).max()), ANY_SIZE)
    quadratic = sparse.csc_matrix(np.triu(2.0 * gram / size))
    linear = (s * w - np.diag(gram)) / size
    identity = sparse.identity(N, format="csc")
    conditions = sparse.vstack([sparse.csc_matrix(np.ones((1, N))), identity, -identity], format="csc")
    limits = np.concatenate([[1.0], alpha / s, np.zeros(N)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = QP
    settings.max_iter = 200
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * N)]
    solution = clarabel.DefaultSolver(quadratic, linear, conditions, limits, cones, settings).solve()
    z = np.clip(np.array(solution.x), 0.0, alpha / s)
    return s * z, float(size * solution.z[0] + z @ gram @ z)


def bisect_total(
    game: GameModel, payments: Array, steps: int = 60, caps: Array | None = None
) -> tuple[Array, int]:
    """Participation at an equilibrium, and the number of QPs solved; the caller checks the residual."""
    most = game.no_caps if caps is None else caps
    bound, w = game.alpha * most, game.reluctance(payments)
    who = np.flatnonzero(bound > 0)
    gram = game.geometry.gram[np.ix_(who, who)]
    at_caps = game.inclination(payments, most)
    if np.all(at_caps[who] >= 0):
        return frozen(most), 0
    low, high = 0.0, 1.0 if caps is None else float(bound.sum())  # t > 0 near low, t < 0 at high
    best = np.array(most)
    best_residual = np.inf
    solved = 0
    while solved < steps:
        solved += 1
        s = 0.5 * (low + high) if low > 0.0 else 0.1 * high
        y = np.zeros(game.count)
        y[who], level = level_profile(gram, bound[who], w[who], s)
        if level + 0.5 * game.sampling / s > 0.0:
            low = s
        else:
            high = s
        x = _finish(game, w, y, most)
        if x is not None:
            residual = game.residual(payments, x, caps)
            if residual < best_residual:
                best, best_residual = x, residual
        if best_residual <= BISECTED or high - low <= BISECTED_BRACKET * high:
            break
    return frozen(best), solved


def _finish(game: GameModel, w: Array, y: Array, caps: Array) -> Array | None:
    """Round to the bounds what is within the QP solver's accuracy of them, and solve for the rest."""
    alpha = game.alpha * caps
    slack = QP_SNAP * np.minimum(alpha, y.sum())
    y = np.where(y <= slack, 0.0, np.where(y >= alpha - slack, alpha, y))
    if not np.any(y > 0):
        return None
    polished = newton_polish(game, w, y, bound=alpha)
    if polished is None:
        return None
    return np.where(polished >= alpha, caps, np.minimum(polished / game.alpha, caps))
