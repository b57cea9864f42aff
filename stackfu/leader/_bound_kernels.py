"""Passes over the clients for the bound of :mod:`.bound`: sums on an interval of totals, terms at one total, balls.

Arrays over clients may have one entry, which then counts for every client. One thread: a pass takes milliseconds even over a
million clients, and threads of so short a pass wait for each other longer than they work.
"""

import numpy as np

from ..jit import njit

#: Places of the sums that :func:`client_sums` returns; pairs are at the lower and at the upper end.
LEAST, BEND, FAR_FROM_COST, STAYS, ROWS, KEEPS, DRIFT, SUMS = 0, 2, 4, 6, 8, 10, 12, 13


@njit(cache=True, error_model="numpy")
def _own(array, k):
    """Return the entry of client k, or the only one."""
    return array[k] if len(array) > 1 else array[0]


@njit(cache=True, error_model="numpy")
def _line(low, high, a, b):
    """Return ``h x_0`` and ``h x_1`` of the affine function ``x_0 + x_1 S`` with these values at a and b."""
    return b * low - a * high, high - low


@njit(cache=True, error_model="numpy")
def _known(k, capped, alpha, theta, least, most, near, far, cut_low, cut_high, a, b, half, rounding):
    """Return the ends of the eagerness as ``f_0 + f_1 / S + f_2 S``, the share's ends, and which alternatives are left.

    The last entries: paid is excluded, unpaid is excluded, the upper bound of the share is ``alpha / S``, and nothing is left.
    """
    room = 1.0 + rounding
    z_least, z_most = _own(least, k), _own(most, k)
    closest, furthest = _own(near, k), _own(far, k)
    c_low, c_high = _own(cut_low, k), _own(cut_high, k)
    low_a, low_b = closest + half / a - theta * a, closest + half / b - theta * b
    high_a, high_b = furthest + half / a - theta * a, furthest + half / b - theta * b
    f_low = (c_low, 0.0, 0.0) if 2.0 * c_low > low_a + low_b else (closest, half, -theta)
    f_high = (c_high, 0.0, 0.0) if 2.0 * c_high < high_a + high_b else (furthest, half, -theta)
    # conclusions that hang on the last digits are not drawn
    no_paid = c_low >= 0.0 or closest + half / b > room * theta * b
    no_eager = c_high <= 0.0 or (furthest + half / a) * room <= theta * a
    if not capped and (alpha > room * b * z_most or alpha * room < z_least * a):  # it cannot be full
        no_eager = True
    slack = rounding * (abs(low_a) + abs(high_a) + theta * b)
    empty = (
        (no_paid and no_eager)
        or closest > furthest + slack
        or c_low > c_high + slack
        or c_low > high_a + slack
        or low_b > c_high + slack
        or z_least > min(z_most, alpha / a) + rounding
    )
    return f_low, f_high, z_least, z_most, no_paid, no_eager, alpha < z_most * b, empty


@njit(cache=True, error_model="numpy")
def _corner(f, z_low, z_high, moving, alpha, N, psi, P, lines, box):
    """Return values at both ends of ``z (N f - psi) - P f``, and its bends ``-h^2 [a, b, S]`` at S = a and at S = b.

    ``f`` is ``f_0 + f_1 / S + f_2 S``; the share z is ``alpha / S`` if it is ``moving``, else constant.
    """
    a, b, h, over_a, over_b, two_a, two_b = box
    f0, f1, f2 = f
    N0, N1 = _line(N[0], N[1], a, b)
    P0, P1, A0, Q1, L0, L1, theta, noise = lines
    f_low, f_high = f0 + f1 / a + f2 * a, f0 + f1 / b + f2 * b
    low = z_low * (N[0] * f_low - psi[0]) - P[0] * f_low
    high = z_high * (N[1] * f_high - psi[1]) - P[1] * f_high
    square, minus, minus_two = -P1 * f2, -P0 * f1, 0.0  # coefficients of S^2, 1/S, 1/S^2, times h
    if moving:
        minus += alpha * (N0 * f0 + N1 * f1 - A0 + noise * L1)
        minus_two = alpha * (N0 * f1 + noise * L0)
    else:
        square += z_low * (N1 * f2 + Q1 * theta)
        minus += z_low * (N0 * f1 + noise * L0)
    # concave in 1/S, so that both ends bound it from below; a negative multiple of 1/S^2 counts with its least
    late = two_a if minus_two > 0.0 else two_b
    bend_a = -h * (square + minus * over_a + minus_two * late)
    bend_b = -h * (square + minus * over_b + minus_two * two_b)
    return low, high, bend_a, bend_b


@njit(cache=True, error_model="numpy")
def client_sums(
    capped, apart, alpha, theta, diagonal, noise, pull, outside,
    least, most, near, far, cut_low, cut_high,
    rows_first, rows_second, keep_first, keep_second, slope_first, slope_second,
    low, high, half, parts, level, nu1, nu2, ell, rounding,
):  # fmt: skip
    """Return what all clients add to the bound on ``[low, high]``, and a sign.

    The sums: the least functions; their bends; ``P.(diag - theta S)``; ``X.(diag / 2 + outside)``; the sums of P and X; and
    ``(P_high - P_low).theta``. Unless ``apart``, clients who own more than ``high`` count together, with one share in all. The
    sign is 1; 0 where nothing is feasible; -1 where nothing is proved.
    """
    one_low, two_low, one_high, two_high = parts
    a, b = low, high
    h = b - a
    box = (
        a, b, h, 1.0 / (a * b * a), 1.0 / (a * b * b),
        (a + 2.0 * b) / (a * a * a * b * b), (2.0 * a + b) / (a * a * b * b * b),
    )  # fmt: skip
    L0, L1 = _line(ell[0], ell[1], a, b)
    out = np.zeros(SUMS)
    values = np.empty((8, 4))
    room = 1.0 + rounding
    top_low = top_high = top_bend_a = top_bend_b = 0.0
    owned = shares_least = shares_most = 0.0
    zero = (0.0, 0.0, 0.0)
    for k in range(len(alpha)):
        al, th, dg, eta, lift = alpha[k], theta[k], diagonal[k], _own(noise, k), 2.0 * _own(pull, k)
        first, second = _own(rows_first, k), _own(rows_second, k)
        P = (one_low * first + two_low * second, one_high * first + two_high * second)
        first, second = _own(keep_first, k), _own(keep_second, k)
        X = (one_low * first + two_low * second, one_high * first + two_high * second)
        slope_low = one_low * slope_first[k] + two_low * slope_second[k]
        slope_high = one_high * slope_first[k] + two_high * slope_second[k]
        A_low = level[0] - 2.0 * slope_low + ell[0] * lift + nu1[0] * dg
        A_high = level[1] - 2.0 * slope_high + ell[1] * lift + nu1[1] * dg
        psi = (
            A_low - (nu1[0] + X[0]) * th * a - ell[0] * eta / a,
            A_high - (nu1[1] + X[1]) * th * b - ell[1] * eta / b,
        )
        P0, P1 = _line(P[0], P[1], a, b)
        Q1 = nu1[1] - nu1[0] + X[1] - X[0]
        lines = (P0, P1, b * A_low - a * A_high, Q1, L0, L1, th, eta)
        plain = P[0] == 0.0 and P[1] == 0.0
        if not plain:
            out[FAR_FROM_COST] += P[0] * (dg - th * a)
            out[FAR_FROM_COST + 1] += P[1] * (dg - th * b)
            out[ROWS] += P[0]
            out[ROWS + 1] += P[1]
            out[DRIFT] += P1 * th
        if X[0] != 0.0 or X[1] != 0.0:
            stays = 0.5 * dg + _own(outside, k)
            out[STAYS] += X[0] * stays
            out[STAYS + 1] += X[1] * stays
            out[KEEPS] += X[0]
            out[KEEPS + 1] += X[1]

        f_low, f_high, z_least, z_most, no_paid, no_eager, tight, empty = _known(
            k, capped, al, th, least, most, near, far, cut_low, cut_high, a, b, half, rounding
        )
        if empty:
            return out, 0
        shares_least += z_least
        shares_most += min(z_most, al / a)
        if no_paid and not capped:
            owned += al
        u_low, u_high = (al / a, al / b) if tight else (z_most, z_most)
        # all who own more than the total bring no more than one share together
        together = not apart and not tight and z_least == 0.0 and al > room * b and (capped or not no_paid)
        if together:
            u_low = u_high = 1.0
        n = 0
        for eager in range(2):
            if no_eager if eager else no_paid:
                continue
            if eager:
                N = nu1
                ends = (f_low if no_paid else zero, f_high)
                only_first, only_second = plain, capped and not no_paid  # f = 0 is there already
                if only_first and only_second:
                    continue
                if not only_first and not np.isfinite(f_high[0]):
                    return out, -1  # without a ceiling nobody can be charged for being far away
            else:
                N = (X[0] - nu2[0], X[1] - nu2[1])
                ends = (f_low, f_high if no_eager and f_high[0] < np.inf and _end(f_high, a) <= 0.0 else zero)
                only_first, only_second = False, plain and N[0] <= 0.0 and N[1] <= 0.0
            for place in range(2):
                if (place == 0 and only_second) or (place == 1 and only_first):
                    continue
                f = ends[place]
                if eager and not capped:
                    values[n] = _corner(f, al / a, al / b, True, al, N, psi, P, lines, box)
                    n += 1
                    continue
                values[n] = _corner(f, z_least, z_least, False, al, N, psi, P, lines, box)
                n += 1
                if together:
                    full = _corner(f, u_low, u_high, tight, al, N, psi, P, lines, box)
                    share = values[n - 1]
                    q_low, q_high = full[0] - share[0], full[1] - share[1]
                    root = np.sqrt(max(q_low, 0.0)) + np.sqrt(max(q_high, 0.0))
                    top_low, top_high = min(top_low, q_low), min(top_high, q_high)
                    top_bend_a = min(top_bend_a, full[2] - share[2] + root * root)
                    top_bend_b = min(top_bend_b, full[3] - share[3] + root * root)
                elif u_low > z_least:
                    values[n] = _corner(f, u_low, u_high, tight, al, N, psi, P, lines, box)
                    n += 1
        least_low = least_high = np.inf
        for i in range(n):
            least_low, least_high = min(least_low, values[i, 0]), min(least_high, values[i, 1])
        bend_a = bend_b = np.inf
        for i in range(n):
            # (1 - s) x + s y >= s (1 - s) (sqrt x + sqrt y)^2: what lies above the least at the ends
            root = np.sqrt(values[i, 0] - least_low) + np.sqrt(values[i, 1] - least_high)
            bend_a = min(bend_a, values[i, 2] + root * root)
            bend_b = min(bend_b, values[i, 3] + root * root)
        out[LEAST] += least_low
        out[LEAST + 1] += least_high
        out[BEND] += bend_a
        out[BEND + 1] += bend_b
    out[LEAST] += top_low
    out[LEAST + 1] += top_high
    out[BEND] += top_bend_a
    out[BEND + 1] += top_bend_b
    fits = owned <= room * b and shares_least <= room and shares_most >= 1.0 - rounding
    return out, 1 if fits else 0


@njit(cache=True, error_model="numpy")
def _end(f, s):
    return f[0] + f[1] / s + f[2] * s


@njit(cache=True, error_model="numpy")
def client_terms(
    capped, alpha, theta, diagonal, noise, pull, least, most, near, far, cut_low, cut_high,
    rows, keep, slope, total, half, nu1, nu2, ell, rounding,
):  # fmt: skip
    """Return every client's least term at one total with either end of its share, without the level, and both ends."""
    n, s = len(alpha), total
    terms, shares = np.full((2, n), np.inf), np.zeros((2, n))
    for k in range(n):
        al, th, P, X = alpha[k], theta[k], _own(rows, k), _own(keep, k)
        psi = -2.0 * slope[k] + 2.0 * ell * _own(pull, k) + nu1 * diagonal[k] - (nu1 + X) * th * s
        psi -= ell * _own(noise, k) / s
        f_low, f_high, z_least, z_most, no_paid, no_eager, _, _ = _known(
            k, capped, al, th, least, most, near, far, cut_low, cut_high, s, s, half, rounding
        )
        upper = max(min(z_most, al / s), z_least)
        shares[0, k], shares[1, k] = z_least, upper
        below, above = _end(f_low, s), _end(f_high, s)
        for eager in range(2):
            if no_eager if eager else no_paid:
                continue
            N = nu1 if eager else X - nu2
            first, second = (max(below, 0.0), above) if eager else (below, min(above, 0.0))
            for place in range(2):
                f = first if place == 0 else second
                if not np.isfinite(f):
                    if P != 0.0:
                        terms[0, k] = terms[1, k] = -np.inf
                    continue
                if capped or not eager:
                    terms[0, k] = min(terms[0, k], z_least * (N * f - psi) - P * f)
                terms[1, k] = min(terms[1, k], upper * (N * f - psi) - P * f)
    return terms, shares


@njit(cache=True, error_model="numpy")
def distances_in_ball(diagonal, along_first, along_second, coefficients, squares, apart, radius, near, far):
    """Return ``near`` and ``far`` narrowed to the squared distances of points within ``radius`` of a segment between two centres.

    ``coefficients`` are what the knots' ``<mu_k, T c>`` are multiplied with to give ``<mu_k, c>`` at either end.
    """
    one_low, two_low, one_high, two_high = coefficients
    n = len(diagonal)
    least, most = np.empty(n), np.empty(n)
    for k in range(n):
        first, second = along_first[k], along_second[k]
        low = np.sqrt(max(diagonal[k] + squares[0] - 2.0 * (one_low * first + two_low * second), 0.0))
        high = np.sqrt(max(diagonal[k] + squares[1] - 2.0 * (one_high * first + two_high * second), 0.0))
        most[k] = min(_own(far, k), (max(low, high) + radius) ** 2)
        least[k] = max(_own(near, k), max(0.5 * (low + high - apart) - radius, 0.0) ** 2)
    return least, most
