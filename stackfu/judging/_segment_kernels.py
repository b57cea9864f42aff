"""Compiled arithmetic of :mod:`stackfu.judging.completeness`: values with proved error bounds.

Every number here is a sum of products of non-negative numbers, or a difference of two such sums, so its error is at most ``rho``
times the sum of their sizes; ``rho`` covers all roundings from the stored binary numbers on.
"""

import numpy as np

from ..jit import njit

UNDECIDED, ABOVE, BELOW = 0, 1, 2


@njit(cache=True)
def weigh(distances, slack, alpha, x, out, j):
    """A profile, its amounts, ``D y`` and the size of that into ``out[:, j]``; returns the total.

    ``slack`` is what distances may be off beyond rounding, over rho.
    """
    N = len(alpha)
    profile, amounts, spread, size = out[0, j], out[1, j], out[2, j], out[3, j]
    total = 0.0
    for k in range(N):
        profile[k], amounts[k] = x[k], alpha[k] * x[k]
        spread[k] = size[k] = 0.0
        total += amounts[k]
    for i in range(N):
        y = amounts[i]
        if y > 0.0:
            for k in range(N):
                spread[k] += y * distances[i, k]
                size[k] += y * (distances[i, k] + slack[i, k])
    return total


@njit(cache=True)
def dot(a, b):
    """Sum of products."""
    out = 0.0
    for i in range(len(a)):
        out += a[i] * b[i]
    return out


@njit(cache=True)
def elevate(c, out):
    """Bernstein coefficients of the same polynomial, one degree higher."""
    degree = len(c) - 1
    out[0], out[degree + 1] = c[0], c[degree]
    for i in range(1, degree + 1):
        share = i / (degree + 1.0)
        out[i] = share * c[i - 1] + (1.0 - share) * c[i]


@njit(cache=True)
def cubed(s, out):
    """Bernstein coefficients of degree 6 of the cube of a quadratic with coefficients s."""
    a, b, c = s[0], s[1], s[2]
    out[0] = a * a * a
    out[1] = a * a * b
    out[2] = (a * a * c + 4.0 * a * b * b) / 5.0
    out[3] = (3.0 * a * b * c + 2.0 * b * b * b) / 5.0
    out[4] = (a * c * c + 4.0 * b * b * c) / 5.0
    out[5] = b * c * c
    out[6] = c * c * c


@njit(cache=True)
def pair(ya, sa, da, za, yb, sb, db, zb, out, size):
    """``<V_k^a, V_k^b> = (s_b (D y^a)_k + s_a (D y^b)_k - y^a' D y^b) / 2`` for every k, and the size of its terms."""
    joint, joint_size = dot(ya, db), dot(ya, zb)
    for k in range(len(ya)):
        out[k] = 0.5 * (sb * da[k] + sa * db[k] - joint)
        size[k] = 0.5 * (sb * za[k] + sa * zb[k] + joint_size)


@njit(cache=True)
def inclinations(y, s, d, z, w, a, rho, low, high, drift):
    """Bounds of ``s^2 g_k`` along a segment by Bernstein coefficients of degree 6, lower and upper, and of ``s^2 d_k^2`` above.

    ``y, s, d, z`` hold the three control profiles: amounts, totals, ``D y`` and its size. Whether all of them are numbers.
    """
    N = y.shape[1]
    products, sizes = np.empty((6, N)), np.empty((6, N))
    n = 0
    for i in range(3):
        for j in range(i, 3):
            pair(y[i], s[i], d[i], z[i], y[j], s[j], d[j], z[j], products[n], sizes[n])
            n += 1
    cube, four, five, six = np.empty(7), np.empty(5), np.empty(6), np.empty(7)
    err4, err5, err6 = np.empty(5), np.empty(6), np.empty(7)
    line3, line4, line5, line6 = np.empty(4), np.empty(5), np.empty(6), np.empty(7)
    cubed(s, cube)
    elevate(s, line3)
    elevate(line3, line4)
    elevate(line4, line5)
    elevate(line5, line6)
    sizes_of_all = 0.0
    for k in range(N):
        # order of pairs: aa, ab, ac, bb, bc, cc
        four[0], four[1], four[3], four[4] = products[0, k], products[1, k], products[4, k], products[5, k]
        four[2] = (products[2, k] + 2.0 * products[3, k]) / 3.0
        err4[0], err4[1], err4[3], err4[4] = sizes[0, k], sizes[1, k], sizes[4, k], sizes[5, k]
        err4[2] = (sizes[2, k] + 2.0 * sizes[3, k]) / 3.0
        elevate(four, five)
        elevate(five, six)
        elevate(err4, err5)
        elevate(err5, err6)
        most = 0.0
        for i in range(7):
            value = six[i] - w[k] * cube[i] + 0.5 * a * line6[i]
            error = rho * (err6[i] + abs(w[k]) * cube[i] + 0.5 * a * line6[i])
            low[k, i], high[k, i] = value - error, value + error
            most = max(most, six[i] + rho * err6[i])
            sizes_of_all += abs(value) + error
        drift[k] = max(most, 0.0)
    return np.isfinite(sizes_of_all)


@njit(cache=True)
def most_inside(y, bound):
    """The client that is furthest from both its bounds over the three control profiles, -1 if nobody is inside anywhere."""
    best, room = -1, 0.0
    for k in range(y.shape[1]):
        here = 0.0
        for j in range(3):
            here += min(y[j, k], bound[k] - y[j, k])
        if here > room:
            best, room = k, here
    return best


@njit(cache=True)
def radius(y, s, bound, low, high, rho, defect):
    """A bound on ``||m~ - m||`` for every equilibrium whose total the segment passes: ``sqrt(gap / 2 + 2 defect)``.

    Returns that, what rounding alone would leave of it on a segment that is short enough, and the client whose level was taken.
    """
    N = len(bound)
    level = most_inside(y, bound)
    smallest = min(s[0], min(s[1], s[2])) * (1.0 - rho)
    largest = max(s[0], max(s[1], s[2])) * (1.0 + rho)
    gap, noise = 0.0, 0.0
    for k in range(N):
        more, less, error = 0.0, 0.0, 0.0
        for i in range(7):
            level_low = low[level, i] if level >= 0 else 0.0
            level_high = high[level, i] if level >= 0 else 0.0
            if k != level:
                more = max(more, high[k, i] - level_low)
                less = max(less, level_high - low[k, i])
                error = max(error, high[k, i] - low[k, i] + level_high - level_low)
        least = min(y[0, k], min(y[1, k], y[2, k]))
        most = max(y[0, k], max(y[1, k], y[2, k]))
        room = max(min(bound[k], largest) - least * (1.0 - rho), 0.0)  # nobody brings more than the total
        gap += max(more * room, less * most)
        noise += error * max(room if more > 0.0 else 0.0, most if less > 0.0 else 0.0)
    scale = (1.0 + rho) * (1.0 + rho) / (smallest * smallest * smallest)
    r = np.sqrt(0.5 * gap * scale * (1.0 + rho) + 2.0 * defect) * (1.0 + rho)
    return r, np.sqrt(0.5 * noise * scale + 2.0 * defect), level


@njit(cache=True)
def decide(y, s, d, z, w, bound, a, rho, defect, low, high, drift, place):
    """Whether an equilibrium can have a total that the segment passes; ``place`` says where each client must then be (-1, 0, 1).

    With the mixture within r of the candidate's, ``s^2 g_k`` moves by at most ``s^2 (r^2 + 2 r d_k)``. Who wants more brings all it
    may, who wants less brings nothing: the total lies between what the first bring and what all but the second bring. Returns
    (verdict, r, whether halving the segment may tell more).
    """
    N = len(bound)
    if not inclinations(y, s, d, z, w, a, rho, low, high, drift):
        place[:] = 0
        return UNDECIDED, np.inf, False
    r, least_r, level = radius(y, s, bound, low, high, rho, defect)
    top = max(s[0], max(s[1], s[2])) * (1.0 + rho)
    bottom = min(s[0], min(s[1], s[2])) * (1.0 - rho)
    eager, willing = 0.0, 0.0
    for k in range(N):
        move = top * (top * (r * r + 4.0 * defect) + 2.0 * r * np.sqrt(drift[k] + 2.0 * defect * top * top))
        move *= 1.0 + 16.0 * rho
        least, most = np.inf, -np.inf
        for i in range(7):
            least, most = min(least, low[k, i]), max(most, high[k, i])
        place[k] = 0
        if least > move:
            place[k] = 1
            eager += bound[k]
        if most < -move:
            place[k] = -1
        else:
            willing += bound[k]
    if eager * (1.0 - rho) > top:
        return ABOVE, r, False
    if willing * (1.0 + rho) < bottom:
        return BELOW, r, False
    if level < 0:
        return UNDECIDED, r, True
    # along the segment the level changes by less than rounding leaves in doubt: shorter ones decide no more
    least, most = np.inf, -np.inf
    for i in range(7):
        least, most = min(least, low[level, i]), max(most, high[level, i])
    doubt = bottom * 2.0 * least_r * np.sqrt(drift[level])
    return UNDECIDED, r, most - least > doubt


@njit(cache=True)
def halve(a, b, c, first, middle, last):
    """Control points of both halves of a segment, by averages; exact but for a rounding or two per level."""
    for k in range(len(a)):
        first[k] = 0.5 * (a[k] + b[k])
        last[k] = 0.5 * (b[k] + c[k])
        middle[k] = 0.5 * (first[k] + last[k])


@njit(cache=True)
def copy(row, target):
    """Number by number: assigning arrays has numba compile the words of its complaint about shapes, which takes seconds."""
    for k in range(len(row)):
        target[k] = row[k]


@njit(cache=True)
def copy_segment(segment, sums, target, target_sums):
    """All of a segment: participation, amounts, ``D y``, its size, and the totals of the three control profiles."""
    for i in range(4):
        for j in range(3):
            copy(segment[i, j], target[i, j])
    copy(sums, target_sums)


@njit(cache=True)
def walk(chain, distances, slack, alpha, caps, w, a, rho, defect, depth, leaves, leaf_place, leaf_radius):
    """Follow the chain, halving segments that decide nothing; how many leaves stay undecided, -1 if they are too many.

    ``leaves`` gets the three control profiles of every undecided leaf, in the order of the chain. Participation, amounts,
    ``D y`` and its size are linear in the profile, so those of the halves are averages too.
    """
    N = len(alpha)
    low, high, drift, bound = np.empty((N, 7)), np.empty((N, 7)), np.empty(N), np.empty(N)
    for k in range(N):
        bound[k] = alpha[k] * caps[k]
    place = np.empty(N, dtype=np.int8)
    # per segment on the stack: participation, amounts, D y, size of D y; three control profiles each
    stack = np.empty((depth + 3, 4, 3, N))
    totals = np.empty((depth + 3, 3))
    levels = np.empty(depth + 3, dtype=np.int64)
    here, sums = np.empty((4, 3, N)), np.empty(3)
    found = 0
    # the control profiles of the chain's segment; its last one is the next segment's first
    given, given_sums = np.empty((4, 3, N)), np.empty(3)
    given_sums[2] = weigh(distances, slack, alpha, chain[0], given, np.int64(2))
    for segment in range((len(chain) - 1) // 2):
        given_sums[0] = given_sums[2]
        for i in range(4):
            copy(given[i, 2], given[i, 0])
        for j in range(1, 3):
            given_sums[j] = weigh(distances, slack, alpha, chain[2 * segment + j], given, j)
        copy_segment(given, given_sums, stack[0], totals[0])
        levels[0] = 0
        height = 1
        while height > 0:
            height -= 1
            copy_segment(stack[height], totals[height], here, sums)
            level = levels[height]
            if min(sums[0], min(sums[1], sums[2])) <= 0.0:
                return -1
            verdict, r, useful = decide(
                here[1], sums, here[2], here[3], w, bound, a, rho, defect, low, high, drift, place
            )
            if verdict != UNDECIDED:
                continue
            if level >= depth or not useful:
                if found >= len(leaves):
                    return -1
                for k in range(N):
                    leaf_place[found, k] = place[k]
                    for j in range(3):
                        leaves[found, j, k] = here[0, j, k]
                leaf_radius[found] = r
                found += 1
                continue
            # the second half is looked at after the first, so that leaves come in order
            left, right = stack[height + 1], stack[height]
            for i in range(4):
                copy(here[i, 0], left[i, 0])
                copy(here[i, 2], right[i, 2])
                halve(here[i, 0], here[i, 1], here[i, 2], left[i, 1], left[i, 2], right[i, 1])
                copy(left[i, 2], right[i, 0])
            first, last = 0.5 * (sums[0] + sums[1]), 0.5 * (sums[1] + sums[2])
            middle = 0.5 * (first + last)
            totals[height + 1, 0], totals[height + 1, 1], totals[height + 1, 2] = sums[0], first, middle
            totals[height, 0], totals[height, 1], totals[height, 2] = middle, last, sums[2]
            levels[height] = levels[height + 1] = level + 1
            height += 2
    return found
