"""The jitted core of :mod:`stackfu.followers.path`; a NumPy version for readers is in :mod:`.reference`.

All quantities are in units of the largest squared distance. Around a total ``s0`` the path is written in
the relative step down ``u = 1 - s / s0`` and in ``z = y / s0``, so that nothing gets small when ``s`` does:

    maximise  (1-u) diag(G).z - z'Gz - (1-u)^2 s0 w.z    over   sum z = 1-u,   0 <= z <= alpha / s0

For fixed sets A (inside), C (at the cap) and Z (out) the solution and its multipliers are quadratic
polynomials in ``u``; rows of three coefficients hold them. ``G + 1 1'`` in place of ``G`` changes the
objective by a constant and is positive definite on every affinely independent A, so A lives as a Cholesky
factor that grows and shrinks by one row.
"""

import numpy as np

from ..jit import njit

OUT, INSIDE, FULL = -1, 0, 1
CROSSING, TOUCHING, FLAT = 0, 1, 2
DONE, STUCK, NO_ROOM = 0, 1, 2

# a condition or its slope within TINY of zero (relative to the terms it is made of) counts as zero
TINY = 1e-13
# a client at a bound with |g_k| up to this (relative) is taken for indifferent
TIGHT = 1e-11


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
def drop(L, order, n, i):
    """Take the i-th of those inside out of the factor and of their list."""
    remove(L, n, i)
    for j in range(i, n - 1):
        order[j] = order[j + 1]


@njit(cache=True)
def room(rate, value, cap):
    """How far ``value`` may move at ``rate`` before it leaves [0, cap]."""
    if rate > 1e-10:
        return max(cap - value, 0.0) / rate
    if rate < -1e-10:
        return max(value, 0.0) / -rate
    return np.inf


@njit(cache=True)
def solve(L, n, b):
    """Solve ``L L' x = b`` in place, ``b`` of shape (m, n): every row is a right-hand side."""
    for r in range(b.shape[0]):
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


@njit(cache=True)
def expand(G, alpha, w, s0, status, order, n, L, z, rho, eta, level, b):
    """Coefficients in u of z, of the multipliers rho = gradient - eta, of eta, and of (1-u)^2 t(u).

    Returns the largest |s0 w_k| inside, the size of the terms that cancel.
    """
    N = len(alpha)
    for i in range(3):
        for k in range(N):
            z[i, k] = 0.0
            rho[i, k] = 0.0
    room = 1.0
    for c in range(N):
        if status[c] == FULL:
            a = alpha[c] / s0
            z[0, c] = a
            room -= a
            for k in range(N):
                rho[0, k] -= 2.0 * a * G[c, k]
    for k in range(N):
        v = s0 * w[k]
        rho[0, k] += G[k, k] - v
        rho[1, k] += 2.0 * v - G[k, k]
        rho[2, k] -= v
    for i in range(3):
        eta[i] = 0.0
        for j in range(n):
            b[i, j] = rho[i, order[j]]
    largest = 0.0
    if n > 0:
        for j in range(n):
            b[3, j] = 1.0
            largest = max(largest, abs(s0 * w[order[j]]))
        solve(L, n, b[:, :n])
        ones = 0.0
        for j in range(n):
            ones += b[3, j]
        for i in range(3):
            total = room if i == 0 else (-1.0 if i == 1 else 0.0)
            acc = -2.0 * total
            for j in range(n):
                acc += b[i, j]
            shifted = acc / ones
            eta[i] = shifted + 2.0 * total
            for j in range(n):
                k = order[j]
                zk = 0.5 * (b[i, j] - shifted * b[3, j])
                z[i, k] = zk
                for q in range(N):
                    rho[i, q] -= 2.0 * zk * G[k, q]
            for q in range(N):
                rho[i, q] -= eta[i]
    # 2 Gz = diagonal part - rho - eta; z'Gz from it
    for i in range(5):
        level[i] = 0.0
    for k in range(N):
        v = s0 * w[k]
        g0 = 0.5 * (G[k, k] - v - rho[0, k] - eta[0])
        g1 = 0.5 * (2.0 * v - G[k, k] - rho[1, k] - eta[1])
        g2 = 0.5 * (-v - rho[2, k] - eta[2])
        level[0] += z[0, k] * g0
        level[1] += z[0, k] * g1 + z[1, k] * g0
        level[2] += z[0, k] * g2 + z[1, k] * g1 + z[2, k] * g0
        level[3] += z[1, k] * g2 + z[2, k] * g1
        level[4] += z[2, k] * g2
    level[0] += eta[0]
    level[1] += eta[1] - eta[0]
    level[2] += eta[2] - eta[1]
    level[3] -= eta[2]
    return largest


@njit(cache=True)
def first_violation(c0, c1, c2, tiny, tiny1, tiny2):
    """Smallest u >= 0 just after which c0 + c1 u + c2 u^2 >= 0 fails; 2.0 if never before u = 2."""
    if c0 > tiny:
        if c2 == 0.0 or abs(c2) < 1e-300:
            return -c0 / c1 if c1 < 0.0 else 2.0
        disc = c1 * c1 - 4.0 * c0 * c2
        if disc <= 0.0:
            return 2.0
        q = -0.5 * (c1 + np.sqrt(disc)) if c1 >= 0.0 else -0.5 * (c1 - np.sqrt(disc))
        best = 2.0
        r1 = q / c2
        if r1 > 0.0:
            best = min(best, r1)
        if q != 0.0:
            r2 = c0 / q
            if r2 > 0.0:
                best = min(best, r2)
        return best
    if c1 < -tiny1:
        return 0.0
    if c1 <= tiny1:
        return 0.0 if c2 < -tiny2 else 2.0
    return -c1 / c2 if c2 < 0.0 else 2.0


@njit(cache=True)
def evaluate(p, degree, u):
    """The polynomial with coefficients ``p`` at u."""
    acc = p[degree]
    for i in range(degree - 1, -1, -1):
        acc = acc * u + p[i]
    return acc


@njit(cache=True)
def bracketed_root(p, degree, lo, hi):
    """The root of a polynomial that changes sign once in [lo, hi], by bisection and secant steps."""
    flo, fhi = evaluate(p, degree, lo), evaluate(p, degree, hi)
    if flo == 0.0:
        return lo
    if fhi == 0.0:
        return hi
    for step in range(200):
        mid = 0.5 * (lo + hi)
        if step % 3 != 2:
            guess = lo - flo * (hi - lo) / (fhi - flo)
            if lo < guess < hi:
                mid = guess
        if not lo < mid < hi:
            break
        f = evaluate(p, degree, mid)
        if f == 0.0:
            return mid
        if (f > 0.0) == (flo > 0.0):
            lo, flo = mid, f
        else:
            hi, fhi = mid, f
        if hi - lo <= 1e-17 + 4e-16 * abs(hi):
            break
    return lo if abs(flo) < abs(fhi) else hi


@njit(cache=True)
def roots_between(p, degree, lo, hi, out):
    """Roots of a polynomial in the open interval where it changes sign, ascending; returns their number.

    Found degree by degree: between consecutive roots of the derivative a polynomial is monotone.
    """
    derivative = np.empty(degree + 1)
    # coefficients of the derivatives, highest first, are rebuilt from p each time: degree is at most 4
    stops = np.empty(degree + 2)
    found = np.empty(degree + 1)
    count = 0
    for d in range(1, degree + 1):
        # the (degree - d)-th derivative has degree d
        order = degree - d
        for i in range(d + 1):
            factor = 1.0
            for q in range(order):
                factor *= i + order - q
            derivative[i] = p[i + order] * factor
        stops[0] = lo
        for i in range(count):
            stops[i + 1] = found[i]
        stops[count + 1] = hi
        fresh = 0
        for i in range(count + 1):
            a, b = stops[i], stops[i + 1]
            fa, fb = evaluate(derivative, d, a), evaluate(derivative, d, b)
            if a < b and (fa > 0.0) != (fb > 0.0):
                out[fresh] = bracketed_root(derivative, d, a, b)
                fresh += 1
        count = fresh
        for i in range(count):
            found[i] = out[i]
    return count


@njit(cache=True)
def keeps_sign(p, degree, hi, tiny):
    """Whether all Bernstein coefficients on [0, hi] have the same definite sign: then p has no root there."""
    sign = 0
    power = np.empty(degree + 1)
    scale = 1.0
    for i in range(degree + 1):
        power[i] = p[i] * scale
        scale *= hi
    for i in range(degree + 1):
        acc = 0.0
        for j in range(i + 1):
            # binom(i, j) / binom(degree, j)
            ratio = 1.0
            for q in range(j):
                ratio *= (i - q) / (degree - q)
            acc += ratio * power[j]
        if abs(acc) <= tiny:
            return False
        s = 1 if acc > 0.0 else -1
        if sign == 0:
            sign = s
        elif sign != s:
            return False
    return True


@njit(cache=True)
def polish(G, alpha, w, s, status, order, L, z, rho, eta, level, b, y):
    """Newton steps on t(s) = 0 with the sets fixed; fills y and returns (s, largest |t| left)."""
    N = len(alpha)
    n = 0
    for k in range(N):
        if status[k] == INSIDE:
            order[n] = k
            n += 1
    if n == 0:
        total = 0.0
        for k in range(N):
            y[k] = alpha[k] if status[k] == FULL else 0.0
            total += y[k]
        return total
    col = np.empty(n)
    for i in range(n):
        k = order[i]
        for j in range(i):
            col[j] = G[order[j], k] + 1.0
        append(L, i, col, G[k, k] + 1.0, -np.inf)
    best = np.inf
    answer = s
    for _ in range(6):
        expand(G, alpha, w, s, status, order, n, L, z, rho, eta, level, b)
        if abs(level[0]) < best:
            best = abs(level[0])
            answer = s
            for k in range(N):
                y[k] = alpha[k] if status[k] == FULL else min(max(s * z[0, k], 0.0), alpha[k])
        else:
            break
        slope = level[1] + 2.0 * level[0]
        if slope == 0.0:
            break
        step = -level[0] / slope
        if abs(step) > 1e-3 or step == 0.0:
            break
        s = s * (1.0 - step)
    return answer


@njit(cache=True)
def tight_bounds(G, w, y, status):
    """Number of clients at a bound with g_k = 0 within rounding."""
    N = len(y)
    total = y.sum()
    inner = np.zeros(N)
    for k in range(N):
        if y[k] > 0.0:
            for j in range(N):
                inner[j] += G[k, j] * (y[k] / total)
    square = 0.0
    for k in range(N):
        square += inner[k] * (y[k] / total)
    count = 0
    for k in range(N):
        g = G[k, k] - 2.0 * inner[k] + square - total * w[k]
        if status[k] != INSIDE and abs(g) <= TIGHT * max(1.0, abs(total * w[k])):
            count += 1
    return count


@njit(cache=True)
def violation_at(G, alpha, w, s0, u, status, z, eta):
    """Largest violation of the optimality conditions at u, from G itself, not from the expansion of rho."""
    N = len(alpha)
    scale = 1.0
    worst = 0.0
    total = 0.0
    level = eta[0] + u * (eta[1] + u * eta[2])
    left = 1.0 - u
    point = np.empty(N)
    for k in range(N):
        point[k] = z[0, k] + u * (z[1, k] + u * z[2, k])
        total += point[k]
        worst = max(worst, -point[k], point[k] - alpha[k] / s0)
        if status[k] == INSIDE:
            scale = max(scale, abs(s0 * w[k]))
    worst = max(worst, abs(total - left))
    for k in range(N):
        inner = 0.0
        for j in range(N):
            inner += G[k, j] * point[j]
        r = left * G[k, k] - 2.0 * inner - left * left * s0 * w[k] - level
        size = max(scale, abs(left * left * s0 * w[k]))
        if status[k] == INSIDE:
            worst = max(worst, abs(r) / size)
        elif status[k] == OUT:
            worst = max(worst, r / size)
        else:
            worst = max(worst, -r / size)
    return worst / scale


@njit(cache=True)
def note(
    value,
    tiny,
    s,
    status,
    sign,
    zone_s,
    zone_status,
    zone_value,
    s_crossing,
    roots,
    root_s,
    root_status,
    root_kind,
):
    """Take the next stop of the curve (s, t) into account; returns (sign of t, closest to zero, roots).

    While t is zero within rounding the stops are only collected in a zone (top, closest to zero, bottom);
    the next definite sign tells whether the curve crossed zero there, only touched it, or stayed on it for
    a while. Without a zone, a change of sign means a crossing at ``s_crossing``, between the stop before
    and this one.
    """
    if abs(value) <= tiny:
        if zone_value == np.inf:
            zone_s[0] = s
            zone_status[0] = status
        if abs(value) < zone_value:
            zone_value = abs(value)
            zone_s[1] = s
            zone_status[1] = status
        zone_s[2] = s
        zone_status[2] = status
        return sign, zone_value, roots
    now = 1 if value > 0.0 else -1
    if zone_value < np.inf:
        if zone_s[0] - zone_s[2] > 1e-9 * zone_s[0]:
            for end in (0, 2):
                root_s[roots] = zone_s[end]
                root_status[roots] = zone_status[end]
                root_kind[roots] = FLAT
                roots += 1
        else:
            root_s[roots] = zone_s[1]
            root_status[roots] = zone_status[1]
            root_kind[roots] = CROSSING if now != sign else TOUCHING
            roots += 1
    elif now != sign:
        root_s[roots] = s_crossing
        root_status[roots] = status
        root_kind[roots] = CROSSING
        roots += 1
    return now, np.inf, roots


@njit(cache=True)
def follow(G, alpha, w, floor, pieces, root_s, root_y, root_status, root_kind, root_tight):
    """Trace (s, t) from (1, -inf) down to s = 0 and record where t = 0.

    ``pieces`` gets a row a piece: s at its upper and lower end, t there, number inside, number at the cap,
    violation of the optimality conditions at its middle, jump of t against the piece before. ``root_tight``
    counts the clients at a bound that are indifferent between moving off it and not. Returns (code, pieces,
    roots, worst violation or jump of any piece).
    """
    N = len(alpha)
    status = np.ones(N, dtype=np.int8)
    order = np.empty(N, dtype=np.int64)
    L = np.zeros((N + 1, N + 1))
    z = np.empty((3, N))
    rho = np.empty((3, N))
    eta = np.empty(3)
    level = np.empty(5)
    quadratic = np.empty(3)
    derivative = np.empty(4)
    b = np.empty((4, N + 1))
    col = np.empty(N + 1)
    stops = np.empty(6)
    zone_s = np.empty(3)
    zone_status = np.empty((3, N), dtype=np.int8)
    zone_value = np.inf
    n, n_pieces, n_roots = 0, 0, 0
    sign = -1  # the curve comes from t = -inf
    s0 = 1.0
    t_before = -np.inf
    idle = 0  # pivots since s last moved
    noise = np.uint64(88172645463325252)
    code = DONE

    while True:
        if n_pieces >= len(pieces) or n_roots + 6 > len(root_s):
            code = NO_ROOM
            break
        # ---- nobody inside: the curve is vertical here; the least willing client at its cap comes in next
        if n == 0:
            s0 = 0.0
            full = 0
            for k in range(N):
                if status[k] == FULL:
                    s0 += alpha[k]
                    full += 1
            if full == 0:
                code = STUCK
                break
            expand(G, alpha, w, s0, status, order, 0, L, z, rho, eta, level, b)
            pick = -1
            for k in range(N):
                if status[k] == FULL and (pick < 0 or rho[0, k] < rho[0, pick]):
                    pick = k
            top = rho[0, pick] + level[0]
            row = pieces[n_pieces]
            row[0], row[1], row[2], row[3], row[4], row[5] = s0, s0, t_before, top, 0, full
            row[6], row[7] = 0.0, max(t_before - top, 0.0) / max(1.0, abs(s0 * w[pick]))
            n_pieces += 1
            tiny = TINY * max(1.0, abs(s0 * w[pick]))
            sign, zone_value, n_roots = note(
                top,
                tiny,
                s0,
                status,
                sign,
                zone_s,
                zone_status,
                zone_value,
                s0,
                n_roots,
                root_s,
                root_status,
                root_kind,
            )
            t_before = top
            status[pick] = INSIDE
            order[0] = pick
            L[0, 0] = np.sqrt(G[pick, pick] + 1.0)
            n = 1

        # ---- the piece with these sets: how far down does it reach, and what ends it?
        size = max(1.0, expand(G, alpha, w, s0, status, order, n, L, z, rho, eta, level, b))
        full = 0
        slope, bend = 1.0, 1.0  # fast movements come with as much more rounding
        for k in range(N):
            if status[k] == FULL:
                full += 1
            slope += abs(z[1, k])
            bend += abs(z[2, k])
        # going round in circles means that rounding is taken for a reason to move: be less sensitive
        loose = TINY if idle < 3 * N + 10 else (1e2 * TINY if idle < 8 * N + 40 else 1e4 * TINY)
        reach = 2.0
        event, side, worst, eager = -1, 0, 0.0, 0
        for k in range(N):
            for which in range(2 if status[k] == INSIDE else 1):
                if status[k] == INSIDE:
                    tiny = loose * size
                    if which == 0:
                        c0, c1, c2 = z[0, k], z[1, k], z[2, k]
                    else:
                        c0, c1, c2 = alpha[k] / s0 - z[0, k], -z[1, k], -z[2, k]
                else:
                    f = 1.0 if status[k] == FULL else -1.0
                    tiny = loose * max(size, abs(s0 * w[k]))
                    c0, c1, c2 = f * rho[0, k], f * rho[1, k], f * rho[2, k]
                if full == 0 and which == 0:  # the condition is (1-u) times a linear one
                    c1, c2 = c1 + c0, 0.0
                u = first_violation(c0, c1, c2, tiny, tiny * slope, tiny * bend)
                if u > 0.0:
                    if u < reach:
                        reach, event, side = u, k, which
                    continue
                # several may want to change at once: the worst first, if that goes round in circles by
                # number, and if that does too at random
                eager += 1
                harm = -c1 / tiny if c0 >= -tiny else 1e300
                take = reach > 0.0
                if not take and idle < 3 * N + 10:
                    take = harm > worst
                elif not take and idle > 8 * N + 40:
                    noise ^= noise << np.uint64(13)
                    noise ^= noise >> np.uint64(7)
                    noise ^= noise << np.uint64(17)
                    take = noise % np.uint64(eager) == np.uint64(0)
                if take:
                    reach, event, side, worst = 0.0, k, which, harm
        last = full == 0 and reach >= 1.0 - 1e-12
        if last:
            reach = 1.0
        elif reach > 0.75:  # expand anew before 1 - u gets small
            reach, event = 0.75, -1

        # ---- zeros of t along the piece
        if reach > 0.0:
            idle = 0
            degree = 4
            poly = level
            if full == 0:  # (1-u)^2 divides out: t itself is a quadratic polynomial
                quadratic[0] = level[0]
                quadratic[1] = level[1] + 2.0 * level[0]
                quadratic[2] = level[2] + 2.0 * quadratic[1] - level[0]
                degree = 2
                poly = quadratic
            tiny = TINY * size
            count = 0
            if not keeps_sign(poly, degree, reach, tiny):
                for i in range(degree):
                    derivative[i] = (i + 1) * poly[i + 1]
                count = roots_between(derivative, degree - 1, 0.0, reach, stops[1:])
            stops[0] = 0.0
            stops[count + 1] = reach
            value = level[0]
            for i in range(count + 2):
                u = stops[i]
                value = evaluate(poly, degree, u)
                if degree == 4:
                    value /= (1.0 - u) ** 2
                crossing = s0 * (1.0 - u)
                if i > 0 and zone_value == np.inf and abs(value) > tiny and (value > 0.0) != (sign > 0):
                    crossing = s0 * (1.0 - bracketed_root(poly, degree, stops[i - 1], u))
                sign, zone_value, n_roots = note(
                    value, tiny, s0 * (1.0 - u), status, sign, zone_s, zone_status, zone_value, crossing,
                    n_roots, root_s, root_status, root_kind,
                )  # fmt: skip
            row = pieces[n_pieces]
            row[0], row[1], row[2], row[3] = s0, s0 * (1.0 - reach), level[0], value
            row[4], row[5] = n, full
            row[6] = violation_at(G, alpha, w, s0, 0.5 * reach, status, z, eta)
            row[7] = abs(level[0] - t_before) / size
            n_pieces += 1
            t_before = value
            if last:
                break
            for k in range(N):  # z at the lower end, in units of the new s0
                z[0, k] = (z[0, k] + reach * (z[1, k] + reach * z[2, k])) / (1.0 - reach)
            s0 *= 1.0 - reach
        else:
            idle += 1
            if idle > 40 * N + 200:
                code = STUCK
                break

        # ---- change the sets
        if event < 0:
            continue
        if status[event] == INSIDE:
            for i in range(n):
                if order[i] == event:
                    drop(L, order, n, i)
                    break
            n -= 1
            status[event] = OUT if side == 0 else FULL
            continue
        for j in range(n):
            col[j] = G[order[j], event] + 1.0
        if append(L, n, col, G[event, event] + 1.0, floor):
            order[n] = event
            n += 1
            status[event] = INSIDE
            continue
        # the client depends affinely on those inside: shift weight along the dependence, which changes
        # neither S nor m, until somebody reaches a bound, and exchange the two
        for j in range(n):
            b[0, j] = -col[j]
        solve(L, n, b[:1, :n])
        direction = 1.0 if status[event] == OUT else -1.0
        limit = alpha[event] / s0
        for j in range(n):
            limit = min(limit, room(direction * b[0, j], z[0, order[j]], alpha[order[j]] / s0))
        leaver, strongest = -1, 0.0
        for j in range(n):
            rate = direction * b[0, j]
            if room(rate, z[0, order[j]], alpha[order[j]] / s0) <= limit + 1e-13 and abs(rate) > strongest:
                leaver, strongest = j, abs(rate)
        if leaver < 0:
            status[event] = FULL if status[event] == OUT else OUT
            continue
        status[order[leaver]] = FULL if direction * b[0, leaver] > 0.0 else OUT
        drop(L, order, n, leaver)
        n -= 1
        for j in range(n):
            col[j] = G[order[j], event] + 1.0
        if not append(L, n, col, G[event, event] + 1.0, 0.0):
            code = STUCK
            break
        order[n] = event
        n += 1
        status[event] = INSIDE

    for i in range(n_roots):
        root_s[i] = polish(G, alpha, w, root_s[i], root_status[i], order, L, z, rho, eta, level, b, root_y[i])
        root_tight[i] = tight_bounds(G, w, root_y[i], root_status[i])
    worst = 0.0
    for i in range(n_pieces):
        for column in (6, 7):
            value = pieces[i, column]
            worst = np.inf if np.isnan(value) else max(worst, value)
    return code, n_pieces, n_roots, worst
