"""The jitted core of :mod:`stackfu.followers.sweeps`: best responses one client after another, in place.

Client k faces ``S0 = S - y_k`` and ``q = ||T - S mu_k||^2`` with ``T = sum_i y_i mu_i`` (its own part of T
cancels), and answers with ``clip(R - S0, 0, alpha_k)``, ``2 w_k R^3 - a R - 2 q = 0`` (``R = (q / w_k)^(1/3)`` without a sampling
term); ``alpha_k`` stands for the most that it may bring. ``T`` or ``G y`` is kept up to date,
so a response costs O(D) or O(N). ``GameModel.best_response`` is the NumPy version.
"""

import numpy as np

from ..jit import njit
from ..model._geometry_kernels import add_row, positive_root, squared_gap


@njit(cache=True)
def respond(q, w, rest, cap, present, a=0.0):
    """Best response in y; without a sampling term a sole participant answers 0 and an indifferent one stays."""
    if a > 0.0:
        return min(max(positive_root(w, q if rest > 0.0 else 0.0, a) - rest, 0.0), cap) if w > 0.0 else cap
    if w > 0.0:
        return min(max(np.cbrt(q / w) - rest, 0.0), cap) if rest > 0.0 else 0.0
    if w < 0.0 or (q > 0.0 and rest > 0.0):
        return cap
    return present


@njit(cache=True)
def thin(a, total):
    """``a / (2 S)``, what a sampling term adds to every inclination."""
    return 0.5 * a / total if a > 0.0 else 0.0


@njit(cache=True)
def violation(g, y, cap):
    """Violation of the condition on ``g_k`` for its position in [0, cap]."""
    if y <= 0.0:
        return max(g, 0.0) if cap > 0.0 else 0.0
    if y >= cap:
        return max(-g, 0.0)
    return abs(g)


@njit(cache=True, inline="always")  # by numba: where LLVM decides, a sweep over features takes a tenth longer
def take_turn(q, total, active, w, cap, old, damping, a):
    """A client's turn: what the others bring, what it brings from now on, and how much what it brought so far was wrong."""
    rest = total - old if active - (old > 0.0) > 0 else 0.0
    wrong = violation(q / (total * total) + thin(a, total) - total * w, old, cap) if total > 0.0 else 0.0
    return rest, old + damping * (respond(q, w, rest, cap, old, a) - old), wrong


@njit(cache=True)
def sweep_gram(G, alpha, w, y, inner, order, damping, a=0.0):
    """The clients in ``order``, once each; ``inner`` gets G y.

    Returns (participants, largest violation met, largest move of x).
    """
    N = len(alpha)
    total, active = 0.0, 0
    for k in range(N):
        total += y[k]
        active += y[k] > 0.0
        inner[k] = 0.0
    for k in range(N):
        if y[k] != 0.0:
            for j in range(N):
                inner[j] += y[k] * G[k, j]
    square = 0.0
    for k in range(N):
        square += y[k] * inner[k]
    worst, moved = 0.0, 0.0
    for k in order:
        old = y[k]
        q = max(square - 2.0 * total * inner[k] + total * total * G[k, k], 0.0)
        rest, new, wrong = take_turn(q, total, active, w[k], alpha[k], old, damping, a)
        worst = max(worst, wrong)
        step = new - old
        if step == 0.0:
            continue
        moved = max(moved, abs(step) / alpha[k])
        square += step * (2.0 * inner[k] + step * G[k, k])
        active += int(new > 0.0) - int(old > 0.0)
        y[k] = new
        total = rest + new
        for j in range(N):
            inner[j] += step * G[k, j]
    return active, worst, moved


@njit(cache=True)
def sweep_features(features, rows, alpha, w, y, point, order, damping, a=0.0):
    """The clients in ``order``, once each; ``point`` is sum y mu before and after.

    Returns (participants, largest violation met, largest move of x).
    """
    total, active = 0.0, 0
    for k in range(len(alpha)):
        total += y[k]
        active += y[k] > 0.0
    worst, moved = 0.0, 0.0
    for k in order:
        old = y[k]
        q = squared_gap(features, rows[k], total, point)
        rest, new, wrong = take_turn(q, total, active, w[k], alpha[k], old, damping, a)
        worst = max(worst, wrong)
        step = new - old
        if step == 0.0:
            continue
        moved = max(moved, abs(step) / alpha[k])
        active += int(new > 0.0) - int(old > 0.0)
        y[k] = new
        total = rest + new
        add_row(features, rows[k], step, point)
    return active, worst, moved


@njit(cache=True)
def undecided(squares, total, w, y, alpha, among, drift, shift, out, a=0.0):
    """Clients that may respond differently while m stays within ``drift`` and S within ``shift`` of here.

    ``d_k`` changes by at most ``drift``, so ``g_k`` by at most ``drift (2 d_k + drift) + shift |w_k|`` (and what ``a / (2 S)``
    changes by); who is at a bound with a larger margin than that stays there. Returns (how many, largest violation among them).
    """
    count, worst, extra = 0, 0.0, 0.0
    if a > 0.0:
        extra = thin(a, total) * shift / (total - shift) if shift < total else np.inf
    for i in range(len(among)):
        k = among[i]
        g = squares[i] + thin(a, total) - total * w[k]
        v = violation(g, y[k], alpha[k])
        worst = max(worst, v)
        reach = drift * (2.0 * np.sqrt(squares[i]) + drift) + shift * abs(w[k]) + extra
        if v > 0.0 or abs(g) <= reach:  # whoever is inside has v = |g|
            out[count] = k
            count += 1
    return count, worst
