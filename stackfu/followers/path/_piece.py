"""One piece of the path: its polynomials, its checks, and the change of sets that ends it.

All quantities are in units of the largest squared distance. Around a total ``s0`` the path is written in
the relative step down ``u = 1 - s / s0`` and in ``z = y / s0``, so that nothing gets small when ``s`` does:

    maximise  (1-u) diag(G).z - z'Gz - (1-u)^2 s0 w.z    over   sum z = 1-u,   0 <= z <= alpha / s0

For fixed sets A (inside), C (at the cap) and Z (out) the solution and its multipliers are quadratic
polynomials in ``u``; rows of three coefficients hold them. The arrays that all functions share:

==========  ===========================================================================================
G alpha w   inner products, most that is taken and reluctance, in units of the largest squared distance; read only
status      OUT, INSIDE or FULL per client
order n L   the list of those inside, their number, and their Cholesky factor (:mod:`._factor`)
z rho eta   coefficients in u: of z and of the multipliers ``rho = gradient - eta`` per client, and of eta
level       coefficients in u of ``(1-u)^2 t(u)``
a           the sampling term: every ``g_k``, and so t, is ``a / (2 s)`` larger, the path itself the same
==========  ===========================================================================================

They are passed one by one: unpacking tuples of arrays costs more than a small piece takes to solve.
"""

from collections import namedtuple

import numpy as np

from ...jit import njit
from ..solver_tolerances import LONG_STEP, PATIENCE, STEADY, TIGHT, TINY, TOGETHER
from ._factor import append, drop, solve, solve_four
from ._polynomials import NEVER, first_violation

OUT, INSIDE, FULL = -1, 0, 1
#: A condition that is broken already is worse than any that is about to be.
BEYOND_HARM = 1e300
(_FIRST, _FIRST_MORE, _LOOSER), (_SECOND, _SECOND_MORE, _LOOSEST) = PATIENCE

#: The end of a piece: its u, the client (-1: none), and which of its bounds (0: lower, 1: upper) if it is inside.
Event = namedtuple("Event", "reach client side")


@njit(cache=True, allocates=False)
def count_full(status):
    """Return the number of clients at their caps."""
    full = 0
    for place in status:
        if place == FULL:
            full += 1
    return full


# -------------------------------------------------------------------- solve the piece


@njit(cache=True, allocates=False)
def expand(G, alpha, w, s0, status, order, n, L, z, rho, eta, level, b, a=0.0):
    """Fill in the polynomials of the piece below ``s0``; ``b`` is room for right-hand sides.

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
            part = alpha[c] / s0
            z[0, c] = part
            room -= part
            for k in range(N):
                rho[0, k] -= 2.0 * part * G[c, k]
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
        solve_four(L, n, b)
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
    if a > 0.0:  # (1-u)^2 a / (2 s)
        level[0] += 0.5 * a / s0
        level[1] -= 0.5 * a / s0
    return largest


@njit(cache=True, allocates=False)
def violation_at(G, alpha, w, s0, u, status, z, eta, inner):
    """Largest violation of the optimality conditions at u, from G itself, not from the expansion of rho.

    ``inner`` is room for a number per client.
    """
    N = len(alpha)
    scale = 1.0
    worst = 0.0
    total = 0.0
    level = eta[0] + u * (eta[1] + u * eta[2])
    left = 1.0 - u
    for k in range(N):
        inner[k] = 0.0
    for k in range(N):
        point = z[0, k] + u * (z[1, k] + u * z[2, k])
        total += point
        worst = max(worst, -point, point - alpha[k] / s0)
        if status[k] == INSIDE:
            scale = max(scale, abs(s0 * w[k]))
        if status[k] != OUT:
            for j in range(N):
                inner[j] += point * G[k, j]
    worst = max(worst, abs(total - left))
    for k in range(N):
        r = left * G[k, k] - 2.0 * inner[k] - left * left * s0 * w[k] - level
        size = max(scale, abs(left * left * s0 * w[k]))
        if status[k] == INSIDE:
            worst = max(worst, abs(r) / size)
        elif status[k] == OUT:
            worst = max(worst, r / size)
        else:
            worst = max(worst, -r / size)
    return worst / scale


# -------------------------------------------------------------------- next event


@njit(cache=True, allocates=False)
def random_number(state):
    """The next of a fixed sequence of random numbers (xorshift)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return x


@njit(cache=True, allocates=False)
def next_event(alpha, w, s0, status, z, rho, size, full, idle, random):
    """Return the end of the piece, and the client with the failing condition.

    ``idle`` counts the changes since s last moved. Several clients may want to change at once: the worst goes first, if that goes
    round in circles they go by number, and if that does too at random; and what is taken for a reason to move must be larger.
    """
    N = len(alpha)
    slope, bend = 1.0, 1.0  # fast movements come with as much more rounding
    for k in range(N):
        slope += abs(z[1, k])
        bend += abs(z[2, k])
    by_number = idle >= _FIRST * N + _FIRST_MORE
    at_random = idle > _SECOND * N + _SECOND_MORE
    loose = TINY
    if by_number:
        loose *= _LOOSER if idle < _SECOND * N + _SECOND_MORE else _LOOSEST
    reach, client, side = NEVER, -1, 0
    worst, eager = 0.0, 0
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
                    reach, client, side = u, k, which
                continue
            eager += 1
            harm = -c1 / tiny if c0 >= -tiny else BEYOND_HARM
            take = reach > 0.0
            if not take and not by_number:
                take = harm > worst
            elif not take and at_random:
                take = random_number(random) % np.uint64(eager) == np.uint64(0)
            if take:
                reach, client, side, worst = 0.0, k, which, harm
    return Event(reach, client, side)


# -------------------------------------------------------------------- change the sets


@njit(cache=True, allocates=False)
def room(rate, value, cap):
    """Return the distance that ``value`` may move at ``rate`` before it leaves [0, cap]."""
    if rate > STEADY:
        return max(cap - value, 0.0) / rate
    if rate < -STEADY:
        return max(value, 0.0) / -rate
    return np.inf


@njit(cache=True, forceinline=True, allocates=False)
def leave(status, order, n, L, event):
    """A client inside reaches one of its bounds; returns how many are left inside."""
    for i in range(n):
        if order[i] == event.client:
            drop(L, order, n, i)
            break
    status[event.client] = OUT if event.side == 0 else FULL
    return n - 1


@njit(cache=True, allocates=False)
def enter(G, k, status, order, n, L, floor, col):
    """A client at a bound comes in; returns how many are inside then, n if it depends affinely on those who are."""
    for j in range(n):
        col[j] = G[order[j], k] + 1.0
    if not append(L, n, col, G[k, k] + 1.0, floor):
        return n
    order[n] = k
    status[k] = INSIDE
    return n + 1


@njit(cache=True, forceinline=True, allocates=False)
def exchange(G, alpha, k, s0, status, order, n, L, z, b, col):
    """A client that depends affinely on those inside comes in for one of them; returns how many are inside, -1 if that fails.

    Weight is shifted along the dependence, which changes neither S nor m, until a client reaches a bound: that one leaves. If it is
    the client itself, it has only changed from one bound to the other. ``col`` holds its inner products.
    """
    for j in range(n):
        b[0, j] = -col[j]
    solve(L, n, b, np.int64(1))
    direction = 1.0 if status[k] == OUT else -1.0
    limit = alpha[k] / s0
    for j in range(n):
        limit = min(limit, room(direction * b[0, j], z[0, order[j]], alpha[order[j]] / s0))
    leaver, strongest = np.int64(-1), 0.0
    for j in range(n):
        rate = direction * b[0, j]
        if room(rate, z[0, order[j]], alpha[order[j]] / s0) <= limit + TOGETHER and abs(rate) > strongest:
            leaver, strongest = j, abs(rate)
    if leaver < 0:
        status[k] = FULL if status[k] == OUT else OUT
        return n
    status[order[leaver]] = FULL if direction * b[0, leaver] > 0.0 else OUT
    drop(L, order, n, leaver)
    return n if enter(G, k, status, order, n - 1, L, 0.0, col) == n else -1


@njit(cache=True, forceinline=True, allocates=False)
def change(G, alpha, event, s0, status, order, n, L, z, b, col, floor):
    """Let the event's client change its place; returns how many are inside then, -1 if that fails."""
    k = event.client
    if status[k] == INSIDE:
        return leave(status, order, n, L, event)
    more = enter(G, k, status, order, n, L, floor, col)
    return more if more > n else exchange(G, alpha, k, s0, status, order, n, L, z, b, col)


# -------------------------------------------------------------------- at a zero of t


@njit(cache=True)
def polish(G, alpha, w, s, status, order, L, z, rho, eta, level, b, y, a=0.0):
    """Newton steps on t(s) = 0 with the sets fixed; fills y and returns s."""
    N = len(alpha)
    n = np.int64(0)
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
    for k in range(N):  # a profile, for the checkers to refuse, where the level below is no number
        y[k] = 0.0 if status[k] == OUT else (alpha[k] if status[k] == FULL else 0.5 * alpha[k])
    best = np.inf
    answer = s
    for _ in range(6):
        expand(G, alpha, w, s, status, order, n, L, z, rho, eta, level, b, a)
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
        if abs(step) > LONG_STEP or step == 0.0:
            break
        s = s * (1.0 - step)
    return answer


@njit(cache=True)
def tight_bounds(G, w, y, status, a=0.0):
    """Number of clients at a bound with g_k = 0 within rounding."""
    N = len(y)
    total, inner = 0.0, np.zeros(N)
    for k in range(N):
        total += y[k]
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
        if a > 0.0:
            g += 0.5 * a / total
        if status[k] != INSIDE and abs(g) <= TIGHT * max(1.0, abs(total * w[k])):
            count += 1
    return count
