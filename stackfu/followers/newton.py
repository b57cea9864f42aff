"""Newton's method for the clients strictly between their bounds, with all others fixed.

``g_k = d_k^2 + a / (2 S) - S w_k = 0`` for these clients is a square system with

    d g_k / d y_j = -2 <mu_k - m, mu_j - m> / S - w_k - a / (2 S^2) .
"""

from __future__ import annotations

import numpy as np

from ..model import Array, GameModel
from .solver_tolerances import OVERSHOOT

__all__ = ["newton_polish"]

#: It is tried up to this many clients inside.
LARGEST_SYSTEM = 2000


def newton_polish(
    game: GameModel,
    w: Array,
    y: Array,
    point: Array | None = None,
    steps: int = 12,
    bound: Array | None = None,
) -> Array | None:
    """Solve ``g_k = 0`` for the clients strictly inside, the others fixed; None if that leaves what they may bring.

    ``point`` is ``sum y mu``, if it is known (features only); ``bound`` the most that everybody may bring, by default alpha.
    """
    alpha, a = game.alpha if bound is None else bound, game.sampling
    inside = np.flatnonzero((y > 0) & (y < alpha))
    if len(inside) == 0:
        return np.array(y)
    if len(inside) > LARGEST_SYSTEM:
        return None
    held: Array = np.array(y)
    held[inside] = 0.0
    share, caps, weight = y[inside], alpha[inside], w[inside]
    rest = float(held.sum())
    surroundings = game.geometry.around(inside, held, point, share)
    smallest, best = np.inf, share
    for _ in range(steps):
        total = rest + share.sum()
        if total <= 0.0:
            return None
        products = surroundings.products(share, total)
        g = np.diag(products) - total * weight
        if a > 0.0:
            g = g + 0.5 * a / total
        size = float(np.abs(g).max())
        if not np.isfinite(size) or size >= smallest:
            break
        smallest, best = size, share
        jacobian = -2.0 * products / total - weight[:, None]
        if a > 0.0:
            jacobian = jacobian - 0.5 * a / total**2
        share = share - np.linalg.lstsq(jacobian, g, rcond=None)[0]
    if np.any(best < -OVERSHOOT * caps) or np.any(best > caps * (1.0 + OVERSHOOT)):
        return None
    held[inside] = np.clip(best, 0.0, caps)
    return held
