"""What a client wants: best responses, how far a profile is from an equilibrium, and what deviating would gain.

In the variables of :mod:`stackfu.model.profile`, with ``w_k = (c_k - p_k) / (2 lam alpha_k)`` and ``q_k = S^2 d_k^2`` (which
does not depend on ``y_k``), client k's utility has slope ``(2 lam / S) g_k``, ``g_k = d_k^2 - S w_k``. Every function is a line
or two of the theory chapter.
"""

from __future__ import annotations

import numpy as np

from .geometry import Array
from .profile import Profile

__all__ = ["best_responses", "inclinations", "regrets", "violation"]


def inclinations(w: Array, profile: Profile) -> Array:
    """``g_k = d_k^2 - S w_k``: positive where a client would rather take part more."""
    return profile.to_clients - profile.total * w


def best_responses(alpha: Array, w: Array, profile: Profile) -> Array:
    """Best responses in y: ``clip((q_k / w_k)^(1/3) - S0_k, 0, alpha_k)``, and the exceptions where ``w_k <= 0``."""
    q = profile.total**2 * profile.to_clients
    rest = profile.others
    if w.min() > 0 and rest.min() > 0:  # the usual case, without the exceptions below
        return np.minimum(np.maximum(np.cbrt(q / w) - rest, 0.0), alpha)
    # facing nobody, the mixture is the client's own data whatever it brings
    q = np.where(rest > 0, q, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.cbrt(np.where(w > 0, q / np.where(w > 0, w, 1.0), 0.0)) - rest
    response = np.clip(inner, 0.0, alpha)
    eager = (w < 0) | ((w == 0) & (q > 0))
    response = np.where(eager, alpha, response)
    return np.where((w == 0) & (q == 0), profile.y, response)


def violation(w: Array, profile: Profile) -> float:
    """Largest violation of the equilibrium conditions, in units of squared distance.

    ``g_k > 0`` is a violation unless the client takes part fully, ``g_k < 0`` unless it stays out.
    """
    g = inclinations(w, profile)
    low = np.where(profile.x < 1, g, 0.0).max()
    high = np.where(profile.x > 0, g, 0.0).min()
    return max(float(low), -float(high), 0.0)


def regrets(alpha: Array, w: Array, lam: float, profile: Profile) -> Array:
    """What every client could gain by its best response, never negative."""
    step = best_responses(alpha, w, profile) - profile.y
    after = profile.total + step
    if profile.others.min() > 0:
        saved = profile.to_clients * (after + profile.total) / after**2
    else:  # facing nobody, a client sees no drift, and after may be 0
        d2 = np.where(profile.others > 0, profile.to_clients, 0.0)
        saved = d2 * (after + profile.total) / np.where(d2 > 0, after, 1.0) ** 2
    return np.maximum(lam * step * (saved - 2.0 * w), 0.0)
