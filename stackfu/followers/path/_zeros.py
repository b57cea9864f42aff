"""Zeros of the curve (s, t): crossings, touches, and intervals of zeros."""

import numpy as np

from ...jit import njit
from ..solver_tolerances import TINY, WIDE_ZONE
from ._polynomials import bracketed_root, evaluate, keeps_sign, roots_between

# numbers of a type, not literals: those would have functions compiled for each of them
CROSSING, TOUCHING, FLAT = np.int64(0), np.int64(1), np.int64(2)
TOP, CLOSEST, BOTTOM = np.int64(0), np.int64(1), np.int64(2)

#: Contents of ``state``: the sign of t at the last stop where it had one, the smallest |t| of the open zone (infinite without an
#: open zone), and the number of zeros found.
SIGN, ZONE, FOUND = 0, 1, 2


@njit(cache=True, allocates=False)
def add(state, root_s, root_status, root_kind, s, status, kind):
    """Record a zero."""
    i = int(state[FOUND])
    root_s[i] = s
    root_kind[i] = kind
    for k in range(len(status)):
        root_status[i, k] = status[k]
    state[FOUND] = i + 1


@njit(cache=True, allocates=False)
def remember(zone_s, zone_status, which, s, status):
    """Keep a stop of the zone."""
    zone_s[which] = s
    for k in range(len(status)):
        zone_status[which, k] = status[k]


@njit(cache=True, allocates=False)
def note(value, tiny, s, status, crossing, state, zone_s, zone_status, root_s, root_status, root_kind):
    """Take the next stop of the curve (s, t) into account.

    While t is zero within rounding the stops are only collected in a zone (its top, where t is closest to zero, its bottom); the
    next definite sign tells whether the curve crossed zero there, only touched it, or stayed on it for a while. Without a zone, a
    change of sign means a zero at ``crossing``, between the stop before and this one.
    """
    if abs(value) <= tiny:
        if state[ZONE] == np.inf:
            remember(zone_s, zone_status, TOP, s, status)
        if abs(value) < state[ZONE]:
            state[ZONE] = abs(value)
            remember(zone_s, zone_status, CLOSEST, s, status)
        remember(zone_s, zone_status, BOTTOM, s, status)
        return
    now = 1.0 if value > 0.0 else -1.0
    if state[ZONE] < np.inf:
        if zone_s[TOP] - zone_s[BOTTOM] > WIDE_ZONE * zone_s[TOP]:
            for end in (TOP, BOTTOM):
                add(state, root_s, root_status, root_kind, zone_s[end], zone_status[end], FLAT)
        else:
            kind = CROSSING if now != state[SIGN] else TOUCHING
            add(state, root_s, root_status, root_kind, zone_s[CLOSEST], zone_status[CLOSEST], kind)
    elif now != state[SIGN]:
        add(state, root_s, root_status, root_kind, crossing, status, CROSSING)
    state[SIGN] = now
    state[ZONE] = np.inf


@njit(cache=True, allocates=False)
def value_at(poly, degree, u):
    """Return t at u from the coefficients of ``(1-u)^2 t``, ``(1-u) t`` or t, of degree 4, 3 or 2."""
    value = evaluate(poly, degree, u)
    if degree == 4:
        return value / ((1.0 - u) * (1.0 - u))
    if degree == 3:
        return np.inf if u >= 1.0 else value / (1.0 - u)
    return value


@njit(cache=True, allocates=False)
def record_zeros(
    level, s0, reach, full, size, status, work, state, zone_s, zone_status, root_s, root_status, root_kind, thin=False
):  # fmt: skip
    """Zeros of t between ``s0`` and ``s0 (1 - reach)``, from the coefficients of ``(1-u)^2 t``; returns t at the lower end.

    ``thin`` says that t contains a sampling term, which grows as ``1 / s``; ``work`` is room for six rows of six numbers.
    """
    poly, derivative, stops = work[0], work[1], work[2]
    degree = 4
    for i in range(5):
        poly[i] = level[i]
    if full == 0 and thin:  # 1-u divides out once
        degree = 3
        for i in range(1, 4):
            poly[i] += poly[i - 1]
        poly[4] = 0.0
    elif full == 0:  # (1-u)^2 divides out: t itself is a quadratic polynomial
        degree = 2
        poly[0] = level[0]
        poly[1] = level[1] + 2.0 * level[0]
        poly[2] = level[2] + 2.0 * poly[1] - level[0]
        poly[3] = poly[4] = 0.0
    tiny = TINY * size
    # between its ends and its stationary points the polynomial is monotone
    count = 0
    if keeps_sign(poly, reach, tiny):
        if state[ZONE] == np.inf and (poly[0] > 0.0) == (
            state[SIGN] > 0.0
        ):  # as before, and nothing to record
            return value_at(poly, degree, reach)
    else:
        for i in range(degree):
            derivative[i] = (i + 1) * poly[i + 1]
        count = roots_between(derivative, degree - 1, 0.0, reach, stops[1:], work[3:])
    stops[0] = 0.0
    stops[count + 1] = reach
    value = level[0]
    for i in range(count + 2):
        u = stops[i]
        value = value_at(poly, degree, u)
        crossing = s0 * (1.0 - u)
        changes = abs(value) > tiny and (value > 0.0) != (state[SIGN] > 0.0)
        if i > 0 and state[ZONE] == np.inf and changes:
            crossing = s0 * (1.0 - bracketed_root(poly, degree, stops[i - 1], u))
        note(
            value,
            tiny,
            s0 * (1.0 - u),
            status,
            crossing,
            state,
            zone_s,
            zone_status,
            root_s,
            root_status,
            root_kind,
        )
    return value
