"""The path's main loop, compiled; a NumPy version for readers is in :mod:`stackfu.followers.reference`.

The curve (s, t) is traced from (1, -inf) down to s = 0, one piece after another: solve the piece, find the event that
ends it, record the zeros of t on it, let the event's client change its place. With no client inside, the curve is vertical.
"""

import numpy as np

from ...jit import njit
from ..solver_tolerances import BOTTOM, GIVE_UP, LONG_PIECE, TINY
from ._chain import leave_trace, smallest_total
from ._piece import (
    FULL,
    Event,
    change,
    count_full,
    enter,
    expand,
    next_event,
    polish,
    tight_bounds,
    violation_at,
)
from ._zeros import FOUND, note, record_zeros

__all__ = ["DONE", "NO_ROOM", "STUCK", "follow", "smallest_total"]

DONE, STUCK, NO_ROOM = 0, 1, 2
_GIVE_UP, _GIVE_UP_MORE = GIVE_UP


#: At most this many zeros are recorded before the next look at the room for them: two per stop, six stops per piece.
ZEROS_AT_ONCE = 12


@njit(cache=True, allocates=False)
def write(row, top, bottom, above, below, inside, full, violation, jump):
    """Fill in a piece's row: the columns of :data:`stackfu.followers.path.curve.COLUMNS`."""
    row[0], row[1], row[2], row[3] = top, bottom, above, below
    row[4], row[5], row[6], row[7] = inside, full, violation, jump


@njit(cache=True, allocates=False)
def least_willing(status, rho):
    """Return the client at its cap that comes in first if no client is inside, -1 if none is at its cap either."""
    pick = -1
    for k in range(len(status)):
        if status[k] == FULL and (pick < 0 or rho[0, k] < rho[0, pick]):
            pick = k
    return pick


@njit(cache=True, allocates=False)
def owned_by_full(alpha, status):
    """The total of those at their caps."""
    total = 0.0
    for k in range(len(alpha)):
        if status[k] == FULL:
            total += alpha[k]
    return total


@njit(cache=True, allocates=False)
def worst_check(pieces, rows):
    """The largest violation or jump of any piece; infinite if one is not a number."""
    worst = 0.0
    for i in range(rows):
        for check in (6, 7):
            value = pieces[i, check]
            worst = np.inf if np.isnan(value) else max(worst, value)
    return worst


@njit(cache=True, allocates=False)
def limited(event, full):
    """The event, or the end of what one expansion serves for; and whether that is s = 0."""
    if full == 0 and event.reach >= 1.0 - BOTTOM:
        return Event(1.0, -1, 0), True
    if event.reach > LONG_PIECE:
        return Event(LONG_PIECE, -1, 0), False
    return event, False


@njit(cache=True, allocates=False)
def move_down(z, reach):
    """z at the lower end of the piece, in units of the new s0: what an exchange starts from."""
    for k in range(z.shape[1]):
        z[0, k] = (z[0, k] + reach * (z[1, k] + reach * z[2, k])) / (1.0 - reach)


@njit(cache=True)
def follow(
    G, alpha, w, floor, pieces, root_s, root_y, root_status, root_kind, root_tight, chain, shares, highest, lowest, tops, a, checked
):  # fmt: skip
    """Trace (s, t), then polish its zeros; ``root_tight`` counts the clients at a bound that are indifferent there.

    ``chain`` gets the profiles between the totals ``highest`` and ``lowest``, as parts of ``shares`` up to ``tops``; an empty one
    is left alone. ``checked`` asks for the violation in the middle of every piece, which is 0 otherwise.
    Returns (code, number of pieces, number of zeros, number of profiles, worst violation or jump of any piece).
    """
    N = len(alpha)
    status, order, L = np.ones(N, dtype=np.int8), np.empty(N, dtype=np.int64), np.zeros((N + 1, N + 1))
    z, rho, eta, level = np.empty((3, N)), np.empty((3, N)), np.empty(3), np.empty(5)
    b, col, work = np.empty((4, N + 1)), np.empty(N + 1), np.empty((6, 6))
    inner = np.empty(N)
    state, zone_s, zone_status = np.array([-1.0, np.inf, 0.0]), np.empty(3), np.empty((3, N), dtype=np.int8)
    random = np.full(1, 88172645463325252, dtype=np.uint64)
    s0, t_before, code = 1.0, -np.inf, DONE
    # inside, pieces, profiles, changes since s last moved; a plain 0 would have every function below compiled for it as well
    n = rows = links = idle = np.int64(0)
    while True:
        if rows + 1 >= len(pieces) or state[FOUND] + ZEROS_AT_ONCE > len(root_s):
            code = NO_ROOM
            break
        if n == 0:  # the curve is vertical: the least willing client at its cap comes in
            s0, full = owned_by_full(alpha, status), count_full(status)
            if full == 0:
                code = STUCK
                break
            expand(G, alpha, w, s0, status, order, n, L, z, rho, eta, level, b, a)
            pick = least_willing(status, rho)
            top = rho[0, pick] + level[0]
            size = max(1.0, abs(s0 * w[pick]), 0.5 * a / s0)
            write(pieces[rows], s0, s0, t_before, top, n, full, 0.0, max(t_before - top, 0.0) / size)
            note(top, TINY * size, s0, status, s0, state, zone_s, zone_status, root_s, root_status, root_kind)
            rows, t_before = rows + 1, top
            n = enter(G, pick, status, order, n, L, -np.inf, col)
        size = max(1.0, expand(G, alpha, w, s0, status, order, n, L, z, rho, eta, level, b, a))
        full = count_full(status)
        event, last = limited(next_event(alpha, w, s0, status, z, rho, size, full, idle, random), full)
        if event.reach > 0.0:
            idle = 0
            above, height = level[0], max(size, 0.5 * a / s0)
            below = record_zeros(
                level, s0, event.reach, full, height, status, work, state, zone_s, zone_status, root_s, root_status, root_kind,
                a > 0.0
            )  # fmt: skip
            violation = (
                violation_at(G, alpha, w, s0, 0.5 * event.reach, status, z, eta, inner) if checked else 0.0
            )
            jump = abs(above - t_before) / height
            write(pieces[rows], s0, s0 * (1.0 - event.reach), above, below, n, full, violation, jump)
            rows, t_before = rows + 1, below
            if len(chain) > 0:
                links = leave_trace(chain, links, z, s0, shares, tops, status, event.reach, highest, lowest)
            if last:
                break
            move_down(z, event.reach)
            s0 *= 1.0 - event.reach
        else:
            idle += 1
        if event.client >= 0:
            n = change(G, alpha, event, s0, status, order, n, L, z, b, col, floor)
        if links < 0:
            code = NO_ROOM
            break
        if n < 0 or idle > _GIVE_UP * N + _GIVE_UP_MORE:
            code = STUCK
            break
    for i in range(int(state[FOUND])):
        here = root_status[i]
        root_s[i] = polish(G, alpha, w, root_s[i], here, order, L, z, rho, eta, level, b, root_y[i], a)
        root_tight[i] = tight_bounds(G, w, root_y[i], here, a)
    if links < 0:
        code = NO_ROOM
    return code, rows, int(state[FOUND]), links, worst_check(pieces, rows)
