"""The checker's sums over clients in intervals, in one pass: :class:`stackfu.judging.bound_formula.Checker`'s, once more.

A number is a pair (low, high). A float operation is off by half a unit in the last place, relative ``2^-53``, or by what underflow
takes; every result here is moved outward by four times that and by the most that underflow can take. Overflow and NaN anywhere in
a client's terms end the pass with ``False``: nothing is proved. Sums are taken in blocks, each outward too.
"""

import numpy as np
from numba import prange

from ..jit import njit
from .check_tolerances import UNDERFLOW

WIDE = 2.0**-51
SUMMED_AT_ONCE = 1024


@njit(cache=True)
def _out(low, high):
    return low - (abs(low) * WIDE + UNDERFLOW), high + (abs(high) * WIDE + UNDERFLOW)


@njit(cache=True)
def _add(a, b):
    return _out(a[0] + b[0], a[1] + b[1])


@njit(cache=True)
def _sub(a, b):
    return _out(a[0] - b[1], a[1] - b[0])


@njit(cache=True)
def _mul(a, b):
    if (a[0] == 0.0 and a[1] == 0.0) or (b[0] == 0.0 and b[1] == 0.0):
        return 0.0, 0.0
    p, q, r, s = a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]
    return _out(min(min(p, q), min(r, s)), max(max(p, q), max(r, s)))


@njit(cache=True)
def _over(a, b):
    """``a / b`` for ``b > 0``."""
    low = a[0] / b[1] if a[0] >= 0.0 else a[0] / b[0]
    high = a[1] / b[0] if a[1] >= 0.0 else a[1] / b[1]
    return _out(low, high)


@njit(cache=True)
def _neg(a):
    return -a[1], -a[0]


@njit(cache=True)
def _max(a, b):
    return max(a[0], b[0]), max(a[1], b[1])


@njit(cache=True)
def _positive(a):
    return max(a[0], 0.0), max(a[1], 0.0)


@njit(cache=True)
def _finite(a):
    return np.isfinite(a[0]) and np.isfinite(a[1])


@njit(cache=True)
def _at(arrays, i, k):
    """Entry k of the i-th pair of arrays."""
    return arrays[2 * i][k], arrays[2 * i + 1][k]


@njit(cache=True)
def _pair(values, i):
    return values[i, 0], values[i, 1]


@njit(cache=True)
def _exact(x):
    return x, x


@njit(cache=True)
def _psi(s, end, parts, theta, diagonal, pull, noise, inner, mixed, charge):
    """Return the contribution of a unit of z_k at the total s, and ``theta_k S - diag_k``."""
    one, two, level = _pair(end, 0), _pair(end, 1), _pair(end, 2)
    nu, ell, late = _pair(end, 3), _pair(end, 4), _pair(end, 5)
    rest, share = _exact(parts[0]), _exact(parts[1])
    slope = _add(_mul(one, inner[0]), _mul(two, inner[1]))
    slope = _sub(slope, _add(_mul(rest, mixed[0]), _mul(share, mixed[1])))
    slope = _sub(slope, _mul(ell, pull))
    away = _sub(_mul(theta, s), diagonal)
    value = _sub(level, (2.0 * slope[0], 2.0 * slope[1]))
    value = _sub(_sub(value, _mul(nu, away)), _mul(late, noise))
    return _add(value, charge), away


@njit(cache=True)
def _client(k, box, ends, parts, clients, rows, knots, paid, volunteer, ceiling):
    """One client's part of every sum that :func:`client_sums` lists, and whether all of it is finite."""
    low, high, h, unpaid_low = _pair(box, 0), _pair(box, 1), _pair(box, 2), _pair(box, 3)
    unpaid_high, rise, most, least = _pair(box, 4), _pair(box, 5), _pair(box, 6), _pair(box, 7)
    alpha, theta, diagonal = _at(clients, 0, k), _at(clients, 1, k), _at(clients, 2, k)
    pull, noise = _at(clients, 3, k), _at(clients, 4, k)
    inner, mixed = (_at(knots, 0, k), _at(knots, 1, k)), (_at(knots, 2, k), _at(knots, 3, k))
    is_paid, is_volunteer, roof = paid[k], volunteer[k], ceiling[k]
    usable = alpha[0] > 0.0 and _finite(alpha) and _finite(theta) and _finite(diagonal)
    usable = usable and _finite(pull) and _finite(noise) and _finite(inner[0]) and _finite(inner[1])
    usable = usable and _finite(mixed[0]) and _finite(mixed[1])
    first, second = _exact(rows[0][k]), _exact(rows[1][k])
    P_low = _add(_mul(first, _exact(parts[0][0])), _mul(second, _exact(parts[0][1])))
    P_high = _add(_mul(first, _exact(parts[1][0])), _mul(second, _exact(parts[1][1])))
    excess_low = excess_high = hull_low = hull_high = charge_low = charge_high = (0.0, 0.0)
    if not is_paid:
        excess_low = _positive(_sub(P_low, _mul(alpha, unpaid_low)))
        excess_high = _positive(_sub(P_high, _mul(alpha, unpaid_high)))
        if excess_low[1] > 0.0 or excess_high[1] > 0.0:
            usable = usable and np.isfinite(roof)
            top = _max(_exact(roof), _mul(theta, high))
            hull_low = _mul(low, _sub(top, _mul(theta, low)))
            hull_high = _mul(high, _sub(top, _mul(theta, high)))
            charge_low = _over(_mul(excess_low, hull_low), alpha)
            charge_high = _over(_mul(excess_high, hull_high), alpha)
    psi_low, away_low = _psi(low, ends[0], parts[0], theta, diagonal, pull, noise, inner, mixed, charge_low)
    psi_high, away_high = _psi(
        high, ends[1], parts[1], theta, diagonal, pull, noise, inner, mixed, charge_high
    )
    # psi(S) = chord + sigma (1 - sigma) bump(S), with bump between dent and bump
    swing = _mul(rise, theta)
    bent = _mul(_sub(excess_high, excess_low), _sub(hull_high, hull_low))
    swing = _sub(swing, _over(bent, alpha))
    arch = _over(_mul(theta, _mul(h, h)), alpha)
    bump = _add(_add(swing, _mul(most, noise)), _mul(arch, _max(excess_low, excess_high)))
    dent = _sub(_add(swing, _mul(least, noise)), _mul(arch, _max(_neg(excess_low), _neg(excess_high))))
    held_low, held_high = _neg(_mul(P_low, away_low)), _neg(_mul(P_high, away_high))
    drift = _mul(_sub(P_high, P_low), theta)
    usable = (
        usable and _finite(excess_low) and _finite(excess_high) and _finite(hull_low) and _finite(hull_high)
    )
    usable = usable and _finite(away_low) and _finite(away_high) and _finite(arch)
    usable = usable and _finite(psi_low) and _finite(psi_high) and _finite(bump) and _finite(dent)
    usable = usable and _finite(held_low) and _finite(held_high) and _finite(drift)
    curve = bump
    if not is_volunteer:
        lowest, highest = min(psi_low[0], psi_high[0]), max(psi_low[1], psi_high[1])
        surely = _add(_exact(lowest), _exact(0.25 * min(dent[0], 0.0)))[0] > 0.0
        never = _add(_exact(highest), _exact(0.25 * max(bump[1], 0.0)))[1] < 0.0
        psi_low, psi_high = _positive(psi_low), _positive(psi_high)
        if never:
            curve = (0.0, 0.0)
        elif not surely:
            curve = _positive(bump)
    return (
        _mul(alpha, psi_low),
        _mul(alpha, psi_high),
        _mul(alpha, curve),
        held_low,
        held_high,
        drift,
        usable,
    )


@njit(cache=True)
def _block_sums(start, stop, box, ends, parts, clients, rows, knots, paid, volunteer, ceiling, out):
    """The sums over some clients, written to ``out``, and whether they mean anything."""
    fine = True
    s0 = s1 = s2 = s3 = s4 = s5 = (0.0, 0.0)
    for k in range(start, stop):
        t0, t1, t2, t3, t4, t5, usable = _client(
            k, box, ends, parts, clients, rows, knots, paid, volunteer, ceiling
        )
        fine = fine and usable
        s0, s1, s2 = _add(s0, t0), _add(s1, t1), _add(s2, t2)
        s3, s4, s5 = _add(s3, t3), _add(s4, t4), _add(s5, t5)
    out[0, 0], out[0, 1] = s0
    out[1, 0], out[1, 1] = s1
    out[2, 0], out[2, 1] = s2
    out[3, 0], out[3, 1] = s3
    out[4, 0], out[4, 1] = s4
    out[5, 0], out[5, 1] = s5
    return fine


@njit(cache=True, parallel=True)
def client_sums(box, ends, parts, clients, rows, knots, paid, volunteer, ceiling):
    """``Y`` at both ends, its curvature, ``P.(diag - theta S)`` at both ends, and ``(P_b - P_a).theta``, as pairs.

    box      pairs a, b, h, an affine function below ``nu / S`` at a and b, ``h (nu_b - nu_a)``, most and least tilt of the noise
    ends     at a and at b: pairs ``T_1, T_2`` of the knots' centres, t, nu, ell, ``ell / S``
    parts    at a and at b: the two knots' shares, exact
    clients  arrays, lower and upper ends in turn, of alpha, theta, diagonal, target pull and noise
    rows     P at either knot, exact
    knots    arrays of ``<mu_k, c>`` of either knot, then ``<mu_k, M>`` of either
    """
    n = len(paid)
    blocks = (n + SUMMED_AT_ONCE - 1) // SUMMED_AT_ONCE
    sums = np.zeros((blocks, 6, 2))
    fine = np.ones(blocks, dtype=np.bool_)
    for block in prange(blocks):
        stop = min((block + 1) * SUMMED_AT_ONCE, n)
        fine[block] = _block_sums(
            block * SUMMED_AT_ONCE,
            stop,
            box,
            ends,
            parts,
            clients,
            rows,
            knots,
            paid,
            volunteer,
            ceiling,
            sums[block],
        )
    return _totals(sums), fine.all()


@njit(cache=True)
def _totals(sums):
    out = np.zeros((6, 2))
    for i in range(6):
        total = (0.0, 0.0)
        for block in range(len(sums)):
            total = _add(total, (sums[block, i, 0], sums[block, i, 1]))
        out[i, 0], out[i, 1] = total
    return out


@njit(cache=True, parallel=True)
def classify(low, high, more, less, alpha, theta, paid, volunteer, near, far):
    """Classify clients as paid or volunteers, with upper bounds of ``D_k``, the volunteers' least total, and contradictions.

    ``alpha`` and ``theta`` are pairs of arrays, lower and upper ends; ``D_k`` lies between ``less`` and ``more`` above the squared
    distance.
    """
    n = len(paid)
    blocks = (n + SUMMED_AT_ONCE - 1) // SUMMED_AT_ONCE
    owned, empty = np.zeros((blocks, 2)), np.zeros(blocks, dtype=np.bool_)
    now_paid, now_volunteer = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_)
    ceiling = np.empty(n)
    for block in prange(blocks):
        total = (0.0, 0.0)
        for k in range(block * SUMMED_AT_ONCE, min((block + 1) * SUMMED_AT_ONCE, n)):
            ceiling[k] = far[k] if more == 0.0 else _out(0.0, far[k] + more)[1]
            least = near[k] if less == 0.0 else _out(near[k] + less, 0.0)[0]
            too_far = least > _out(0.0, theta[1][k] * high)[1]
            near_enough = ceiling[k] <= _out(theta[0][k] * low, 0.0)[0]
            large = alpha[0][k] > high
            if (too_far and (paid[k] or near_enough or large)) or (volunteer[k] and large):
                empty[block] = True
            now_volunteer[k] = volunteer[k] or too_far
            now_paid[k] = (paid[k] or large or near_enough) and not now_volunteer[k]
            if now_volunteer[k]:
                total = _add(total, (alpha[0][k], alpha[1][k]))
        owned[block, 0], owned[block, 1] = total
    total = (0.0, 0.0)
    for block in range(blocks):
        total = _add(total, (owned[block, 0], owned[block, 1]))
    return now_paid, now_volunteer, ceiling, total[0], empty.any()


@njit(cache=True)
def _distance(k, ends, between, radius, fuzz, clients):
    """Lower and upper end of one client's squared distance to the points of the ball."""
    own, first, second = _at(clients, 0, k), _at(clients, 1, k), _at(clients, 2, k)
    usable = _finite(own) and _finite(first) and _finite(second)
    furthest, closest = 0.0, 0.0
    for i in range(2):
        along = _add(_mul(_pair(ends[i], 0), first), _mul(_pair(ends[i], 1), second))
        usable = usable and _finite(along)
        gap = _positive(_add(_sub(own, (2.0 * along[0], 2.0 * along[1])), _pair(ends[i], 2)))
        above, below = np.sqrt(_out(0.0, gap[1] + fuzz)[1]), np.sqrt(gap[0])
        furthest = max(furthest, _out(0.0, above)[1])
        closest = _out(closest + 0.5 * _out(below, 0.0)[0], 0.0)[0]
    if not usable:
        return 0.0, np.inf
    most = _out(0.0, furthest + radius)[1]
    left = max(_out(_out(closest - between, 0.0)[0] - radius, 0.0)[0], 0.0)
    return _out(_out(left * left, 0.0)[0] - fuzz, 0.0)[0], _out(0.0, most * most)[1]


@njit(cache=True, parallel=True)
def distances_in_ball(ends, between, radius, fuzz, clients, near, far):
    """``near`` and ``far`` narrowed to the squared distances that points of the ball around the segment of centres have.

    ends     at a and at b: the shares of the two knots' centres and the square of their mixture, pairs
    between  upper bound of half the distance between the ends' centres; ``fuzz`` of what inner products may be off
    clients  arrays, lower and upper ends in turn, of diagonal and ``<mu_k, c>`` of either knot
    """
    lower, upper = np.empty(len(near)), np.empty(len(near))
    for k in prange(len(near)):
        least, most = _distance(k, ends, between, radius, fuzz, clients)
        lower[k] = max(near[k], least)
        upper[k] = min(far[k], most)
    return lower, upper
