"""Best responses of clients, distance of a profile from an equilibrium, and gains from deviating.

In the variables of :mod:`stackfu.model.profile`, with ``w_k = (c_k - p_k) / (2 lam alpha_k)``, ``q_k = S^2 d_k^2`` (which does not
depend on ``y_k``) and the sampling term ``a = A / (C n_N)``, client k's utility ``(p_k - c_k) x_k - lam (d_k^2 + a / S)`` has slope

    d U_k / d y_k = (2 lam / S) g_k,        g_k = d_k^2 + a / (2 S) - S w_k

and with ``R = S0_k + y_k`` its best response solves ``2 w_k R^3 - a R - 2 q_k = 0`` within its bounds. ``bound_k`` is the most
that is taken from client k: ``alpha_k``, or ``cap_k alpha_k`` under an offer that says how much. ``a = 0`` is the paper, whose
formulas are evaluated as they stand there.
"""

from __future__ import annotations

import numpy as np

from .geometry import Array
from .profile import Profile

__all__ = ["best_responses", "inclinations", "positive_root", "regrets", "violations"]

#: Newton's method has arrived when a step is below this part of where it is: less than the last bit.
LAST_BIT = 1e-16


def inclinations(w: Array, profile: Profile, a: float = 0.0) -> Array:
    """``g_k = d_k^2 + a / (2 S) - S w_k``: positive where a client would rather take part more."""
    g = profile.to_clients - profile.total * w
    return g if a == 0.0 else g + a / (2.0 * profile.total)


def positive_root(w: Array, q: Array, a: float) -> Array:
    """Return the positive R with ``2 w R^3 - a R - 2 q = 0``, for ``w > 0``; the cube root of ``q / w`` where ``a = 0``.

    ``R^3 - p R - r`` with ``p = a / (2 w)``, ``r = q / w`` is convex for ``R > 0`` and not negative at ``r^(1/3) + p^(1/2)``, so
    Newton's method comes down to the root from there without overshooting.

    >>> float(positive_root(np.array([1.0]), np.array([6.0]), 4.0)[0])  # 8 - 2 * 2 - 6 < 0 < 27 - 2 * 3 - 6
    2.179981...
    """
    r = q / w
    if a == 0.0:
        return np.cbrt(r)
    p = a / (2.0 * w)
    root = np.cbrt(r) + np.sqrt(p)
    for _ in range(60):
        slope = 3.0 * root**2 - p
        after = root - (root**3 - p * root - r) / slope
        if np.all(after >= root * (1.0 - LAST_BIT)):
            break
        root = np.minimum(root, np.maximum(after, 0.0))
    return np.asarray(root)


def best_responses(bound: Array, w: Array, profile: Profile, a: float = 0.0) -> Array:
    """Best responses in y: ``clip(R_k - S0_k, 0, bound_k)``, and the exceptions where ``w_k <= 0``."""
    q = profile.total**2 * profile.to_clients
    rest = profile.others
    if w.min() > 0 and rest.min() > 0:  # the usual case, without the exceptions below
        return np.minimum(np.maximum(positive_root(w, q, a) - rest, 0.0), bound)
    # for a sole participant, the mixture is its own data at any participation
    q = np.where(rest > 0, q, 0.0)
    positive = np.where(w > 0, w, 1.0)
    inner = positive_root(positive, np.where(w > 0, q, 0.0), a) - rest
    response = np.clip(inner, 0.0, bound)
    eager = (w < 0) | ((w == 0) & ((q > 0) | (a > 0)))
    response = np.where(eager, bound, response)
    return np.where((w == 0) & (q == 0) & (a == 0), profile.y, response)


def violations(w: Array, prices: Array, profile: Profile, a: float = 0.0, caps: Array | float = 1.0) -> Array:
    """Return every client's violation of its equilibrium condition, relative to its own terms.

    ``g_k > 0`` is a violation unless the client takes part as much as it may, ``g_k < 0`` unless it stays out. What is added up is
    ``d_k^2 + a / (2 S)`` and ``S`` times cost and payment, each over ``2 lam alpha_k``; ``prices`` are the larger of those two. So
    a client that is a million times smaller or closer than others counts as much as they do, and one that is paid its cost is
    not asked for digits that neither cost nor payment has.
    """
    own = profile.total * w
    pull = profile.to_clients if a == 0.0 else profile.to_clients + a / (2.0 * profile.total)
    g = pull - own
    wrong = np.maximum(np.where(profile.x < caps, g, 0.0), np.where(profile.x > 0, -g, 0.0))
    return np.asarray(
        np.where(wrong > 0, wrong / np.maximum(np.maximum(pull, profile.total * prices), 5e-324), 0.0)
    )


def regrets(bound: Array, w: Array, lam: float, profile: Profile, a: float = 0.0) -> Array:
    """Return every client's gain from its best response, never negative."""
    step = best_responses(bound, w, profile, a) - profile.y
    after = profile.total + step
    if profile.others.min() > 0:
        saved = profile.to_clients / after * (1.0 + profile.total / after)
    else:  # a sole participant sees no drift, and after may be 0
        d2 = np.where(profile.others > 0, profile.to_clients, 0.0)
        positive = np.where(d2 > 0, after, 1.0)
        saved = d2 / positive * (1.0 + profile.total / positive)
    if a > 0.0:  # a sole participant never wants to leave: after > 0
        saved = saved + a / profile.total / after
    return np.maximum(lam * step * (saved - 2.0 * w), 0.0)
