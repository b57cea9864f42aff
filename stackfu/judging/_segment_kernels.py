"""Compiled arithmetic of :mod:`stackfu.judging.completeness`: values with proved error bounds.

First a chain's ends (:func:`ends`), then what it decides segment by segment (:func:`walk`), then what may be where it decides
nothing (:func:`settle`).

Every number here is a sum of products of non-negative numbers, or a difference of two such sums, so its error is at most ``rho``
times the sum of their sizes; ``rho`` covers all roundings from the stored binary numbers on. Arrays are passed one by one: in
tuples they would have to be taken apart again, which costs up to a twentieth of the time (what is found: :mod:`.findings`).
"""

import numpy as np

from ..jit import njit
from .check_tolerances import FACTOR_UNDERFLOW, TINY
from .findings import (
    ABOVE,
    BELOW,
    CLOSED,
    IMPOSSIBLE,
    MISCOUNTED,
    NEXT_TO_NOBODY,
    NOBODY,
    NOWHERE,
    OPEN_ABOVE,
    OPEN_BELOW,
    SETTLED,
    SINGULAR,
    TOO_FAR_APART,
    TOO_MANY,
    TOO_WIDE,
    UNDECIDED,
)

#: Sums of numbers that are not negative may be taken in any order: their errors are bounded for all of them.
ANY_ORDER = {"reassoc", "contract"}
#: Around an equilibrium a piece is cut out; the deciding quantity at its ends is this many times the uncertainty.
CLEAR = 4.0
#: A level below this part of those at the ends is zero enough to cut around: the cut is as wide as what is in doubt.
NO_LEVEL = 1e-13


@njit(cache=True, fastmath=ANY_ORDER, allocates=False)
def weigh(chain, alpha, matrix, out):
    """Write ``M y`` of every profile's amounts into ``out``, for a symmetric matrix; all numbers are not negative."""
    for j in range(len(chain)):
        for k in range(len(alpha)):
            out[j, k] = 0.0
        for i in range(len(alpha)):
            y = alpha[i] * chain[j, i]
            if y > 0.0:
                for k in range(len(alpha)):
                    out[j, k] += y * matrix[i, k]


@njit(cache=True, allocates=False)
def dot(a, b):
    """Sum of products."""
    out = 0.0
    for i in range(len(a)):
        out += a[i] * b[i]
    return out


@njit(cache=True, allocates=False)
def raise_two(a, b, c):
    """Bernstein coefficients of degree 6 of a quadratic."""
    return (
        a,
        (2.0 * a + b) * (1.0 / 3.0),
        (6.0 * a + 8.0 * b + c) * (1.0 / 15.0),
        (a + 3.0 * b + c) * 0.2,
        (a + 8.0 * b + 6.0 * c) * (1.0 / 15.0),
        (b + 2.0 * c) * (1.0 / 3.0),
        c,
    )


@njit(cache=True, allocates=False)
def raise_four(a, b, c, d, e):
    """Bernstein coefficients of degree 6 of a polynomial of degree 4."""
    return (
        a,
        (a + 2.0 * b) * (1.0 / 3.0),
        (a + 8.0 * b + 6.0 * c) * (1.0 / 15.0),
        (b + 3.0 * c + d) * 0.2,
        (6.0 * c + 8.0 * d + e) * (1.0 / 15.0),
        (2.0 * d + e) * (1.0 / 3.0),
        e,
    )


@njit(cache=True, allocates=False)
def cubed(a, b, c):
    """Bernstein coefficients of degree 6 of the cube of a quadratic."""
    return (
        a * a * a,
        a * a * b,
        (a * a * c + 4.0 * a * b * b) * 0.2,
        (3.0 * a * b * c + 2.0 * b * b * b) * 0.2,
        (a * c * c + 4.0 * b * b * c) * 0.2,
        b * c * c,
        c * c * c,
    )


@njit(cache=True, allocates=False)
def most_inside(y, bound):
    """Return the client furthest from both its bounds over the three control profiles, NOBODY if none is inside."""
    best, room = NOBODY, 0.0
    for k in range(y.shape[1]):
        here = 0.0
        for j in range(3):
            here += min(y[j, k], bound[k] - y[j, k])
        if here > room:
            best, room = k, here
    return best


@njit(cache=True, fastmath=ANY_ORDER, allocates=False)
def joints(y, d):
    """Return ``y^i' D y^j`` for the pairs aa, ab, ac, bb, bc, cc of the three control profiles."""
    aa = ab = ac = bb = bc = cc = 0.0
    for k in range(y.shape[1]):
        a, b, c = d[0, k], d[1, k], d[2, k]
        aa += y[0, k] * a
        ab += y[0, k] * b
        ac += y[0, k] * c
        bb += y[1, k] * b
        bc += y[1, k] * c
        cc += y[2, k] * c
    return aa, ab, ac, bb, bc, cc


@njit(cache=True, fastmath=ANY_ORDER, allocates=False, forceinline=True)
def squares(a, b, c, s, joint, sign):
    """Return Bernstein coefficients of degree 6 of ``s^2 d_k^2`` from a client's ``D y`` in the three control profiles.

    ``<V_k^i, V_k^j> = (s_j (D y^i)_k + s_i (D y^j)_k - y^i' D y^j) / 2``; the size of its terms for ``sign = 1``.
    """
    aa, ab = s[0] * a + sign * 0.5 * joint[0], 0.5 * (s[1] * a + s[0] * b + sign * joint[1])
    ac, bb = 0.5 * (s[2] * a + s[0] * c + sign * joint[2]), s[1] * b + sign * 0.5 * joint[3]
    bc, cc = 0.5 * (s[2] * b + s[1] * c + sign * joint[4]), s[2] * c + sign * 0.5 * joint[5]
    return raise_four(aa, ab, (ac + 2.0 * bb) * (1.0 / 3.0), bc, cc)


@njit(cache=True, fastmath=ANY_ORDER, allocates=False)
def bounds_along(k, s, d, z, joint, joint_size, own, a, rho, cube, line, low, high):
    """Bounds of ``s^2 g_k`` along a segment by Bernstein coefficients of degree 6, lower and upper."""
    value = squares(d[0, k], d[1, k], d[2, k], s, joint, -1.0)
    size = squares(z[0, k], z[1, k], z[2, k], s, joint_size, 1.0)
    for i in range(7):
        here = value[i] - own * cube[i] + 0.5 * a * line[i]
        error = rho * (size[i] + abs(own) * cube[i] + 0.5 * a * line[i])
        low[i], high[i] = here - error, here + error


@njit(cache=True, fastmath=ANY_ORDER, allocates=False)
def radius(y, s, d, z, w, bound, a, rho, defect, edge, least, most, drift):
    """A bound on ``||m~ - m||`` for every equilibrium whose total the segment passes: ``sqrt(gap / 2 + 2 defect)``.

    ``y, s, d, z`` hold the three control profiles: amounts, totals, ``D y`` and its size. Bounds of ``s^2 g_k`` along the segment
    go into ``least`` and ``most``, an upper bound of ``s^2 d_k^2`` into ``drift``, and bounds of the level's coefficients into
    ``edge``. Returns the radius (infinite unless all values are numbers), its part from rounding alone on a segment
    that is short enough, and the client whose level was taken.
    """
    level = most_inside(y, bound)
    s0, s1, s2 = s[0], s[1], s[2]
    totals = (s0, s1, s2)
    joint, joint_size = joints(y, d), joints(y, z)
    cube, line = cubed(s0, s1, s2), raise_two(s0, s1, s2)
    low, high = edge[0], edge[1]
    if level != NOBODY:
        bounds_along(level, totals, d, z, joint, joint_size, w[level], a, rho, cube, line, low, high)
    else:
        for i in range(7):
            low[i] = high[i] = 0.0
    lows = low[0], low[1], low[2], low[3], low[4], low[5], low[6]
    highs = high[0], high[1], high[2], high[3], high[4], high[5], high[6]
    smallest = min(s0, min(s1, s2)) * (1.0 - rho)
    largest = max(s0, max(s1, s2)) * (1.0 + rho)
    gap = noise = everything = 0.0
    for k in range(len(bound)):
        value = squares(d[0, k], d[1, k], d[2, k], totals, joint, -1.0)
        size = squares(z[0, k], z[1, k], z[2, k], totals, joint_size, 1.0)
        own = w[k]
        more = less = error = far = 0.0
        lowest, highest = np.inf, -np.inf
        for i in range(7):
            here = value[i] - own * cube[i] + 0.5 * a * line[i]
            doubt = rho * (size[i] + abs(own) * cube[i] + 0.5 * a * line[i])
            lowest, highest = min(lowest, here - doubt), max(highest, here + doubt)
            more = max(more, here + doubt - lows[i])
            less = max(less, highs[i] - here + doubt)
            error = max(error, 2.0 * doubt + (highs[i] - lows[i]))
            far = max(far, value[i] + rho * size[i])
            everything += abs(here) + doubt
        least[k], most[k], drift[k] = lowest, highest, far
        fewest = min(y[0, k], min(y[1, k], y[2, k]))
        amount = max(y[0, k], max(y[1, k], y[2, k]))
        room = max(min(bound[k], largest) - fewest * (1.0 - rho), 0.0)  # nobody brings more than the total
        if k != level:
            gap += max(more * room, less * amount)
            noise += error * max(room if more > 0.0 else 0.0, amount if less > 0.0 else 0.0)
    if not np.isfinite(everything):
        return np.inf, np.inf, np.int64(NOBODY)
    scale = (1.0 + rho) * (1.0 + rho) / (smallest * smallest * smallest)
    r = np.sqrt(0.5 * gap * scale * (1.0 + rho) + 2.0 * defect) * (1.0 + rho)
    return r, np.sqrt(0.5 * noise * scale + 2.0 * defect), level


@njit(cache=True, allocates=False)
def decide(y, s, d, z, w, bound, a, rho, defect, edge, least, most, drift, place):
    """Decide if an equilibrium can have a total on the segment; ``place`` gives each client's position there (-1, 0, 1).

    With the mixture within r of the candidate's, ``s^2 g_k`` moves by at most ``s^2 (r^2 + 2 r d_k)``. Who wants more brings all it
    may, who wants less brings nothing: the total lies between what the first bring and what all but the second bring. Returns
    (verdict, r, the client whose level was taken, how much of that rounding leaves in doubt); it is NOBODY's if all are at bounds.
    """
    N = len(bound)
    r, least_r, level = radius(y, s, d, z, w, bound, a, rho, defect, edge, least, most, drift)
    if r == np.inf:
        for k in range(N):
            place[k] = 0
        return UNDECIDED, np.inf, np.int64(NOBODY), np.inf
    top = max(s[0], max(s[1], s[2])) * (1.0 + rho)
    bottom = min(s[0], min(s[1], s[2])) * (1.0 - rho)
    eager, willing = 0.0, 0.0
    square, double, extra = top * (r * r + 4.0 * defect), 2.0 * r, 2.0 * defect * top * top
    for k in range(N):
        move = top * (square + double * np.sqrt(drift[k] + extra))
        move *= 1.0 + 16.0 * rho
        wants_more, wants_less = least[k] > move, most[k] < -move
        place[k] = 1 if wants_more else (-1 if wants_less else 0)
        eager += bound[k] if wants_more else 0.0
        willing += 0.0 if wants_less else bound[k]
    if eager * (1.0 - rho) > top:
        return ABOVE, r, level, 0.0
    if willing * (1.0 + rho) < bottom:
        return BELOW, r, level, 0.0
    return UNDECIDED, r, level, 0.0 if level == NOBODY else bottom * 2.0 * least_r * np.sqrt(drift[level])


@njit(cache=True, allocates=False)
def changes(edge):
    """Return the largest change of the level along a segment, from its bounds."""
    least, most = np.inf, -np.inf
    for i in range(7):
        least, most = min(least, edge[0, i]), max(most, edge[1, i])
    return most - least


@njit(cache=True, allocates=False)
def vanishes(edge, work):
    """Return the position of the level's zero along a segment, and its slope there; -1 if it has the same sign at both ends."""
    left, right = 0.0, 1.0
    at_left, at_right = edge[0, 0] + edge[1, 0], edge[0, 6] + edge[1, 6]
    if not at_left * at_right < 0.0:
        return -1.0, 0.0
    small = NO_LEVEL * (abs(at_left) + abs(at_right))
    t = slope = 0.0
    for _ in range(40):  # secants; an end that stays is given half its weight
        t = (left * at_right - right * at_left) / (at_right - at_left)
        for i in range(7):
            work[i] = edge[0, i] + edge[1, i]
        for degree in range(6, 0, -1):
            slope = 3.0 * (work[1] - work[0])  # the sum of both bounds is twice the level
            for i in range(degree):
                work[i] += t * (work[i + 1] - work[i])
        if abs(work[0]) <= small:
            break
        if work[0] * at_right < 0.0:
            left, at_left, at_right = t, work[0], 0.5 * at_right
        else:
            right, at_right, at_left = t, work[0], 0.5 * at_left
    return t, slope


@njit(cache=True, allocates=False)
def corner(y, j, bound):
    """Return True if all clients are at a bound in a control profile."""
    inside = 0
    for k in range(len(bound)):
        inside += 0.0 < y[j, k] < bound[k]
    return inside == 0


@njit(cache=True, allocates=False)
def where_to_cut(y, s, bound, edge, level, doubt, rho, work):
    """Two places along a segment, and whether an equilibrium is suspected between them, or before the first and after the second.

    It can be where the level vanishes, or at an end with all clients at a bound: its total is that of the clients that want more.
    """
    if level == NOBODY:
        return 0.0, 1.0, False
    t, slope = vanishes(edge, work)
    if t >= 0.0:
        room = CLEAR * (doubt + edge[1, 0] - edge[0, 0]) / max(abs(slope), TINY)
        return (t - room, t + room, True) if t - room > 0.0 and t + room < 1.0 else (0.0, 1.0, False)
    first = CLEAR * 4.0 * rho * s[0] / max(abs(s[1] - s[0]), TINY) if corner(y, 0, bound) else 0.0
    last = CLEAR * 4.0 * rho * s[2] / max(abs(s[2] - s[1]), TINY) if corner(y, 2, bound) else 0.0
    return (first, 1.0 - last, False) if first + last < 0.5 else (0.0, 1.0, False)


@njit(cache=True, allocates=False)
def between(a, b, t):
    """The part t of the way from a to b, both not negative: exact if they are the same, else off by three roundings."""
    return a if a == b else (1.0 - t) * a + t * b


@njit(cache=True, allocates=False)
def cut(stack, totals, h, t):
    """The segment at h becomes what comes after t, and what comes before is put above it."""
    for i in range(stack.shape[1]):
        for k in range(stack.shape[3]):
            a, b, c = stack[h, i, 0, k], stack[h, i, 1, k], stack[h, i, 2, k]
            first, last = between(a, b, t), between(b, c, t)
            middle = between(first, last, t)
            stack[h + 1, i, 0, k], stack[h + 1, i, 1, k], stack[h + 1, i, 2, k] = a, first, middle
            stack[h, i, 0, k], stack[h, i, 1, k] = middle, last
    first, last = between(totals[h, 0], totals[h, 1], t), between(totals[h, 1], totals[h, 2], t)
    middle = between(first, last, t)
    totals[h + 1, 0], totals[h + 1, 1], totals[h + 1, 2] = totals[h, 0], first, middle
    totals[h, 0], totals[h, 1] = middle, last


@njit(cache=True, allocates=False)
def begin(stack, totals, chain, alpha, spread, own, even, first):
    """Put the segment of the chain that begins with profile ``first`` on the empty stack.

    ``spread`` is ``D y`` of every profile. What a distance may be off beyond rounding, over rho, is at most ``even`` and the sum of
    its two clients' entries of ``own``, which is empty if all of them are 0.
    """
    for j in range(3):
        total = off = 0.0
        for k in range(len(alpha)):
            y = alpha[k] * chain[first + j, k]
            stack[0, 0, j, k] = chain[first + j, k]
            stack[0, 1, j, k] = y
            stack[0, 2, j, k] = spread[first + j, k]
            total += y
        for k in range(len(own)):
            off += own[k] * stack[0, 1, j, k]
        off += even * total
        for k in range(len(alpha)):
            stack[0, 3, j, k] = spread[first + j, k] + off + (own[k] * total if len(own) > 0 else 0.0)
        totals[0, j] = total


@njit(cache=True, allocates=False)
def walk_with(
    chain, spread, own, even, alpha, bound, w, a, rho, defect, depth, leaves, leaf_place, leaf_radius,
    stack, totals, levels, whole, rows, place
):  # fmt: skip
    """:func:`walk` with the room that it works in: segments on a stack, each with its totals and how often it was halved."""
    N = len(alpha)
    least, most, drift = rows[0], rows[1], rows[2]
    edge, work = rows[3:5], rows[5]
    found = 0
    for segment in range((len(chain) - 1) // 2):
        begin(stack, totals, chain, alpha, spread, own, even, 2 * segment)
        levels[0], whole[0] = 0, True
        height = 1
        while height > 0:
            height -= 1
            here, sums, halved = stack[height], totals[height], levels[height]
            if min(sums[0], min(sums[1], sums[2])) <= 0.0:
                return TOO_MANY
            verdict, r, level, doubt = decide(
                here[1], sums, here[2], here[3], w, bound, a, rho, defect, edge, least, most, drift, place
            )  # fmt: skip
            if verdict != UNDECIDED:
                continue
            # a level that changes by less than rounding leaves in doubt: shorter segments decide no more
            useful = r < np.inf and (level == NOBODY or changes(edge) > doubt)
            if halved >= depth or not useful:
                if found >= len(leaves):
                    return TOO_MANY
                for k in range(N):
                    leaf_place[found, k] = place[k]
                    for j in range(3):
                        leaves[found, j, k] = here[0, j, k]
                leaf_radius[found] = r
                found += 1
                continue
            # what comes first is put above the rest and looked at before it, so that leaves come in order
            start, end, inside = 0.0, 1.0, False
            if whole[height]:
                start, end, inside = where_to_cut(here[1], sums, bound, edge, level, doubt, rho, work)
            if start == 0.0 and end == 1.0:
                cut(stack, totals, height, 0.5)
                levels[height] = levels[height + 1] = halved + 1
                whole[height + 1] = whole[height]
                height += 2
                continue
            whole[height] = whole[height + 1] = whole[height + 2] = False
            if end < 1.0:
                cut(stack, totals, height, end)
                levels[height] = halved if inside else depth
                height += 1
            levels[height] = depth if inside else halved
            if start > 0.0:
                cut(stack, totals, height, start / end)
                height += 1
                levels[height] = halved if inside else depth
            height += 1
    return found


@njit(cache=True)
def walk(chain, spread, own, even, alpha, bound, w, a, rho, defect, depth, leaves, leaf_place, leaf_radius):
    """Follow the chain, cutting segments that decide nothing; how many leaves stay undecided, or that they are TOO_MANY.

    Around an equilibrium a piece is cut out that stays a leaf, and the rest of the segment is often decided at once; other
    segments are halved. ``leaves`` gets the three control profiles of every undecided leaf, in the order of the chain.
    Participation, amounts, ``D y`` and its size are linear in the profile, so those of the parts are averages too.
    """
    N = len(alpha)
    # per segment on the stack: participation, amounts, D y, size of D y; three control profiles each
    stack, totals = np.empty((depth + 4, 4, 3, N)), np.empty((depth + 4, 3))
    levels, whole = np.empty(depth + 4, dtype=np.int64), np.empty(depth + 4, dtype=np.bool_)
    rows, place = np.empty((6, max(N, 7))), np.empty(N, dtype=np.int8)
    return walk_with(
        chain, spread, own, even, alpha, bound, w, a, rho, defect, depth, leaves, leaf_place, leaf_radius,
        stack, totals, levels, whole, rows, place
    )  # fmt: skip


@njit(cache=True, allocates=False)
def possible(chain, caps):
    """Return True if every profile of a chain respects the caps; NaN does not."""
    for i in range(len(chain)):
        for k in range(len(caps)):
            if not (0.0 <= chain[i, k] <= caps[k]):
                return False
    return True


@njit(cache=True, allocates=False)
def closed_above(first, alpha, caps, reach, w, a, rho):
    """Return True if no equilibrium can have a total above the first profile's."""
    top, all_in, beyond = dot(alpha, first) * (1.0 - rho), True, True
    for k in range(len(alpha)):
        tempted = reach[k] + (a / (2.0 * top) if a > 0.0 and top > 0.0 else 0.0)
        all_in = all_in and first[k] == caps[k]
        beyond = beyond and top * w[k] * (1.0 - rho) > tempted
    return all_in or (beyond and top > 0.0)


@njit(cache=True, allocates=False)
def closed_below(last, alpha, bound, apart, w, a, rho):
    """Return True if no equilibrium can have a total below the last profile's."""
    N, bottom = len(alpha), dot(alpha, last) * (1.0 + rho)
    for i in range(N):
        root = np.sqrt(max(w[i], 0.0)) * (1.0 + rho)
        for j in range(i):
            if min(bound[i], bound[j]) * (1.0 - rho) > bottom and apart[i, j] > 0.0:
                both = root + np.sqrt(max(w[j], 0.0)) * (1.0 + rho)
                if both == 0.0 or apart[i, j] / (both * both) > bottom:
                    return True
    eager = 0.0
    for k in range(N):
        if w[k] * bottom**2 * (1.0 + 4.0 * rho) < 0.5 * a * (1.0 - 4.0 * rho):
            eager += bound[k]
    return a > 0.0 and eager * (1.0 - rho) > bottom


@njit(cache=True, allocates=False)
def ends(chain, alpha, caps, bound, reach, apart, w, a, rho, smallest):
    """Return True if a chain's profiles are possible, its totals at least ``smallest``, and no equilibrium is beyond its ends."""
    if not possible(chain, caps):
        return IMPOSSIBLE
    if not dot(alpha, chain[-1]) >= smallest:
        return TOO_FAR_APART
    if not closed_above(chain[0], alpha, caps, reach, w, a, rho):
        return OPEN_ABOVE
    return CLOSED if closed_below(chain[-1], alpha, bound, apart, w, a, rho) else OPEN_BELOW


@njit(cache=True, allocates=False)
def end_of_group(leaves, first, count):
    """The leaves from ``first`` on that touch each other: the number of the first that does not belong to them."""
    i = first + 1
    while i < count:
        for k in range(leaves.shape[2]):
            if leaves[i - 1, 2, k] != leaves[i, 0, k]:
                return i
        i += 1
    return i


@njit(cache=True, allocates=False)
def bracket(leaves, place, alpha, bound, rho, unsure):
    """Between which totals a group's equilibria lie, and how many clients are not known to be at one of their bounds in all of
    them; ``unsure`` gets those."""
    N, doubtful = len(alpha), 0
    for k in range(N):
        same = place[0, k] != 0
        for i in range(1, len(place)):
            same = same and place[i, k] == place[0, k]
        if not same:
            unsure[doubtful] = k
            doubtful += 1
    low, high = np.inf, -np.inf
    if doubtful == 0:
        low = 0.0
        for k in range(N):
            if place[0, k] > 0:
                low += bound[k]
        high = low
    else:
        for i in range(len(leaves)):
            for j in range(3):
                s = dot(alpha, leaves[i, j])
                low, high = min(low, s), max(high, s)
    return low * (1.0 - rho), high * (1.0 + rho), doubtful


@njit(cache=True)
def distance_of_mixtures(distances, slack, even, alpha, x, other, rho, defect):
    """A bound on the distance of two profiles' mixture embeddings."""
    N = len(alpha)
    s, t = dot(alpha, x), dot(alpha, other)
    gap, sums = np.empty(N), np.empty(N)
    for k in range(N):
        a, b = alpha[k] * x[k] / s, alpha[k] * other[k] / t
        gap[k], sums[k] = a - b, a + b
    square = size = cross = both = 0.0
    for i in range(N):
        if sums[i] > 0.0:
            row = row_gap = row_both = 0.0
            for k in range(N):
                loose = distances[i, k] + (slack[i, k] if len(slack) > 0 else 0.0) + even
                row += distances[i, k] * gap[k]
                row_gap += loose * abs(gap[k])
                row_both += loose * sums[k]
            square += gap[i] * row
            size += abs(gap[i]) * row_gap
            cross += sums[i] * row_gap
            both += sums[i] * row_both
    # -v'Dv/2 with v = a - b; entries of v carry rounding of a and b, paired with D through both
    square = -0.5 * square + rho * size + 4.0 * rho * cross + 16.0 * rho * rho * both
    return np.sqrt(max(square, 0.0) + 2.0 * defect) * (1.0 + 4.0 * rho)


@njit(cache=True)
def jacobian(leaves, radii, unsure, distances, slack, even, alpha, w, a, rho, defect, low, high, out):
    """The negative Jacobian ``(2 / S) <mu_k - m, mu_j - m> + w_k + a / (2 S^2)`` of the unsure clients in a group of leaves.

    Into ``out``: the inner products and how far they may be off anywhere between the totals ``low`` and ``high``, then the same of
    the Jacobian.
    """
    N, n, u = len(alpha), 3 * len(leaves), 2.0**-53
    centre = leaves[(n // 2) // 3, (n // 2) % 3]
    reach, further = 0.0, 0.0
    for i in range(len(leaves)):
        reach = max(reach, radii[i])
        for j in range(3):
            further = max(
                further,
                distance_of_mixtures(distances, slack, even, alpha, centre, leaves[i, j], rho, defect),
            )
    reach += further
    total, y, spread, size = dot(alpha, centre), np.empty(N), np.empty(N), np.empty(N)
    for k in range(N):
        y[k] = alpha[k] * centre[k]
        spread[k], size[k] = 0.0, even * total
    for i in range(N):
        if y[i] > 0.0:
            for k in range(N):
                loose = distances[i, k] + (slack[i, k] if len(slack) > 0 else 0.0)
                spread[k] += y[i] * distances[i, k]
                size[k] += y[i] * loose
    joint, joint_size = dot(y, spread), dot(y, size)
    middle = 0.5 * (1.0 / low + 1.0 / high)
    half = 0.5 * (1.0 / low - 1.0 / high) + 4.0 * u * middle
    for p in range(len(unsure)):
        for q in range(len(unsure)):
            k, j = unsure[p], unsure[q]
            # <mu_k - m, mu_j - m> = ((D y)_k / S + (D y)_j / S - y'Dy / S^2 - D_kj) / 2
            out[0, p, q] = 0.5 * (spread[k] / total + spread[j] / total - joint / total**2 - distances[k, j])
            loose = distances[k, j] + (slack[k, j] if len(slack) > 0 else 0.0) + even
            out[1, p, q] = 0.5 * (size[k] / total + size[j] / total + joint_size / total**2 + loose)
    drift = np.empty(len(unsure))
    for p in range(len(unsure)):
        drift[p] = np.sqrt(max(out[0, p, p] + 4.0 * rho * out[1, p, p] + 2.0 * defect, 0.0))
    for p in range(len(unsure)):
        own = w[unsure[p]]
        for q in range(len(unsure)):
            inner = out[0, p, q]
            moved = reach * (drift[p] + drift[q]) + reach**2 + 4.0 * defect
            error = 4.0 * rho * out[1, p, q] + moved * (1.0 + 16.0 * rho)
            value = 2.0 * middle * inner + own + 0.5 * a * middle**2
            doubt = 2.0 * (middle + half) * error + 2.0 * half * abs(inner) + 16.0 * rho * abs(own)
            doubt += 2.0 * a * middle * half + 16.0 * rho * abs(value)
            out[1, p, q], out[2, p, q], out[3, p, q] = error, value, doubt


@njit(cache=True)
def positive_definite(matrix, doubt):
    """Return True if ``v'Mv > 0`` for every v and every M within ``doubt`` of the matrix.

    If a Cholesky factorisation of B in floats runs to its end, no eigenvalue of B is below ``-gamma_{n+1} / (1 - gamma_{n+1})``
    times its trace (Rump, 2006). B is the symmetric part, with all that is in doubt taken off its diagonal.
    """
    n, u = len(matrix), 2.0**-53
    B = np.empty((n, n))
    lost, trace, largest, everything = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        row = 0.0
        for j in range(n):
            B[i, j] = 0.5 * (matrix[i, j] + matrix[j, i])
            # half a unit in the last place goes into the symmetric part
            row += 0.5 * (doubt[i, j] + doubt[j, i]) + 2.0 * u * abs(B[i, j])
        everything += row
        lost = max(lost, row)
        trace += max(B[i, i], 0.0)
        largest = max(largest, abs(B[i, i]))
    lost = (lost + (2.0 * n + 8.0) * u * trace + 4.0 * u * largest) * (1.0 + 8.0 * n * u) + FACTOR_UNDERFLOW
    for i in range(n):
        for j in range(i + 1):
            rest = B[i, j] - (lost if i == j else 0.0)
            for k in range(j):
                rest -= B[i, k] * B[j, k]
            if i == j:
                if not rest > 0.0:
                    return False
                B[i, i] = np.sqrt(rest)
            else:
                B[i, j] = rest / B[j, j]
    return np.isfinite(everything)


@njit(cache=True)
def strictly_inside(leaves, place, radii, unsure, inner, error, alpha, caps, bound, rho):
    """Return True if every equilibrium of a group of leaves has all unsure clients strictly between their bounds.

    Its mixture differs from the candidate's by v on the unsure clients only, ``sum v = 0``, with ``v'Kv <= r^2``: by less than
    anybody's room if K less ``(r / room)^2`` on its diagonal is positive definite on such v.
    """
    n, u, needed, p = len(unsure), 2.0**-53, 0.0, 0
    for k in range(len(alpha)):
        sure = p == n or unsure[p] != k
        if not sure:
            p += 1
        for i in range(len(leaves)):
            for j in range(3):
                x = leaves[i, j, k]
                if sure:
                    if x != (caps[k] if place[i, k] > 0 else 0.0):
                        return False
                    continue
                room = min(alpha[k] * x, bound[k] - alpha[k] * x) / dot(alpha, leaves[i, j])
                room = room * (1.0 - 8.0 * rho) - 4.0 * rho
                if not room > 0.0:
                    return False
                needed = max(needed, (radii[i] / room) ** 2)
    needed *= 1.0 + 32.0 * rho
    # K + c 11' is K on vectors that sum to zero, and bounded below on all of them
    shift, shifted, doubt = 0.0, np.empty((n, n)), np.empty((n, n))
    for p in range(n):
        shift = max(shift, inner[p, p])
    for p in range(n):
        for q in range(n):
            shifted[p, q] = inner[p, q] + shift - (needed if p == q else 0.0)
            doubt[p, q] = error[p, q] + 4.0 * u * (abs(inner[p, q]) + shift + needed)
    return positive_definite(shifted, doubt)


@njit(cache=True)
def inverse_of(matrix):
    """An approximate inverse by Gaussian elimination with row pivots; not numbers where there is none."""
    n = len(matrix)
    rows = np.zeros((n, 2 * n))
    for i in range(n):
        rows[i, n + i] = 1.0
        for j in range(n):
            rows[i, j] = matrix[i, j]
    for p in range(n):
        best = p
        for i in range(p + 1, n):
            if abs(rows[i, p]) > abs(rows[best, p]):
                best = i
        pivot = rows[best, p]
        for j in range(2 * n):
            held = rows[best, j]
            rows[best, j] = rows[p, j]
            rows[p, j] = held / pivot if pivot != 0.0 else np.nan
        for i in range(n):
            factor = rows[i, p]
            if i != p and factor != 0.0:
                for j in range(2 * n):
                    rows[i, j] -= factor * rows[p, j]
    return rows[:, n:]


@njit(cache=True)
def regular(matrix, doubt):
    """Return True if every M within ``doubt`` of the matrix is regular: ``||I - C M|| < 1`` for an approximate inverse C."""
    n, u, largest, everything = len(matrix), 2.0**-53, 0.0, 0.0
    inverse = inverse_of(matrix)
    for i in range(n):
        row = 0.0
        for j in range(n):
            value, size, off = -1.0 if i == j else 0.0, 0.0, 0.0
            for k in range(n):
                value += inverse[i, k] * matrix[k, j]
                size += abs(inverse[i, k]) * abs(matrix[k, j])
                off += abs(inverse[i, k]) * doubt[k, j]
            row += abs(value) + 4.0 * (n + 1) * u * (size + 1.0) + off
        everything += row
        largest = max(largest, row)
    return np.isfinite(everything) and largest * (1.0 + 8.0 * n * u) < 1.0


@njit(cache=True)
def several(
    leaves, place, radii, unsure, distances, slack, even, alpha, caps, bound, w, a, rho, defect, low, high, resolved
):  # fmt: skip
    """Return SETTLED, or the reason why a group may hold several equilibria with totals between ``low`` and ``high``."""
    n = len(unsure)
    if n == 0:  # everybody is at a bound, so there is one profile
        return SETTLED
    if low <= 0.0:
        return NEXT_TO_NOBODY
    if high - low > resolved * high:
        return TOO_WIDE
    parts = np.empty((4, n, n))
    jacobian(leaves, radii, unsure, distances, slack, even, alpha, w, a, rho, defect, low, high, parts)
    if positive_definite(parts[2], parts[3]):
        return SETTLED
    inside = strictly_inside(leaves, place, radii, unsure, parts[0], parts[1], alpha, caps, bound, rho)
    return SETTLED if inside and regular(parts[2], parts[3]) else SINGULAR


@njit(cache=True)
def settle(
    leaves, place, radii, found, shift, continua, distances, slack, even, alpha, caps, bound, w, a, rho, defect, resolved,
    brackets
):  # fmt: skip
    """Check that every group of touching leaves holds at most one equilibrium, and one of the totals ``found`` lies there.

    Totals of equilibria may differ from those of the leaves by ``shift``.
    Groups that meet one of the ranges ``continua`` are left alone. Returns what was found, how many ``brackets`` there are, and how
    many totals lie in the last one; then the place of a total that lies in none.
    """
    N, first, count = len(alpha), 0, 0
    unsure, used = np.empty(N, dtype=np.int64), np.zeros(len(found), dtype=np.bool_)
    while first < len(leaves):
        last = end_of_group(leaves, first, len(leaves))
        x, places, around = leaves[first:last], place[first:last], radii[first:last]
        first = last
        low, high, doubtful = bracket(x, places, alpha, bound, rho, unsure)
        low, high = low - shift, high + shift
        brackets[count, 0], brackets[count, 1] = low, high
        count += 1
        inside, known = 0, False
        for i in range(len(found)):
            if not used[i] and low <= found[i] <= high:
                inside, used[i] = inside + 1, True
        for i in range(len(continua)):
            known = known or (low <= continua[i, 1] and continua[i, 0] <= high)
        if known:
            continue
        if inside != 1:
            return MISCOUNTED, count, inside
        reason = several(
            x, places, around, unsure[:doubtful], distances, slack, even, alpha, caps, bound, w, a, rho, defect, low, high,
            resolved
        )  # fmt: skip
        if reason != SETTLED:
            return reason, count, inside
    for i in range(len(found)):
        if not used[i]:
            return NOWHERE, count, i
    return SETTLED, count, 0


@njit(cache=True)
def check_chain(
    chain, found, distances, slack, own, even, reach, apart, alpha, caps, bound, w, a, rho, defect, smallest, depth, most,
    resolved
):  # fmt: skip
    """Return True if the chain shows at once that the equilibria with the totals ``found`` are all there are.

    Segments are halved ``depth`` times at most, and at most ``most`` pieces stay undecided; where that is too few the steps are
    taken one by one (:func:`stackfu.judging.completeness.follow_chain`).
    """
    if ends(chain, alpha, caps, bound, reach, apart, w, a, rho, smallest) != CLOSED:
        return False
    N = len(alpha)
    spread = np.empty(chain.shape)
    weigh(chain, alpha, distances, spread)
    leaves, place, radii = np.empty((most, 3, N)), np.empty((most, N), dtype=np.int8), np.empty(most)
    count = walk(chain, spread, own, even, alpha, bound, w, a, rho, defect, depth, leaves, place, radii)
    if count < 0:
        return False
    known, brackets = np.empty((0, 2)), np.empty((most, 2))
    code, _, _ = settle(
        leaves[:count], place[:count], radii[:count], found, 0.0, known, distances, slack, even, alpha, caps, bound, w, a, rho,
        defect, resolved, brackets
    )  # fmt: skip
    return code == SETTLED
