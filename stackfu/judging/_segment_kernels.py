"""Compiled arithmetic of :mod:`stackfu.judging.completeness`: values with proved error bounds.

First what a chain decides segment by segment (:func:`walk`), then its ends (:func:`ends`), then what may be where it decides
nothing (:func:`bracket`, :func:`jacobian`, :func:`positive_definite`).

Every number here is a sum of products of non-negative numbers, or a difference of two such sums, so its error is at most ``rho``
times the sum of their sizes; ``rho`` covers all roundings from the stored binary numbers on.
"""

import numpy as np

from ..jit import njit

UNDECIDED, ABOVE, BELOW = 0, 1, 2


@njit(cache=True)
def weigh(distances, slack, even, alpha, x, out, j):
    """A profile, its amounts, ``D y`` and the size of that into ``out[:, j]``; returns the total.

    What distances may be off beyond rounding, over rho, is ``even`` for all of them, and ``slack`` where that is not empty.
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
            if len(slack) > 0:
                for k in range(N):
                    size[k] += y * slack[i, k]
    for k in range(N):
        size[k] += spread[k] + even * total
    return total


@njit(cache=True)
def dot(a, b):
    """Sum of products."""
    out = 0.0
    for i in range(len(a)):
        out += a[i] * b[i]
    return out


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
def pair(i, j, y, s, d, z, n, products, sizes):
    """``<V_k^i, V_k^j> = (s_j (D y^i)_k + s_i (D y^j)_k - y^i' D y^j) / 2`` for every k, and the size of its terms, into row n.

    Indices rather than rows: numba counts references to every row that is taken, which costs more than the arithmetic.
    """
    joint = joint_size = 0.0
    for k in range(y.shape[1]):
        joint += y[i, k] * d[j, k]
        joint_size += y[i, k] * z[j, k]
    for k in range(y.shape[1]):
        products[n, k] = 0.5 * (s[j] * d[i, k] + s[i] * d[j, k] - joint)
        sizes[n, k] = 0.5 * (s[j] * z[i, k] + s[i] * z[j, k] + joint_size)


@njit(cache=True)
def inclinations(y, s, d, z, w, a, rho, low, high, drift, products, sizes):
    """Bounds of ``s^2 g_k`` along a segment by Bernstein coefficients of degree 6, lower and upper, and of ``s^2 d_k^2`` above.

    ``y, s, d, z`` hold the three control profiles: amounts, totals, ``D y`` and its size; ``products`` and ``sizes`` are room to
    work in. Whether all of them are numbers.
    """
    n = 0
    for i in range(3):
        for j in range(i, 3):
            pair(i, j, y, s, d, z, n, products, sizes)
            n += 1
    cube, line = cubed(s[0], s[1], s[2]), raise_two(s[0], s[1], s[2])
    third, everything = 1.0 / 3.0, 0.0
    for k in range(y.shape[1]):
        # order of pairs: aa, ab, ac, bb, bc, cc
        middle = (products[2, k] + 2.0 * products[3, k]) * third
        value = raise_four(products[0, k], products[1, k], middle, products[4, k], products[5, k])
        middle = (sizes[2, k] + 2.0 * sizes[3, k]) * third
        size = raise_four(sizes[0, k], sizes[1, k], middle, sizes[4, k], sizes[5, k])
        most = 0.0
        for i in range(7):
            here = value[i] - w[k] * cube[i] + 0.5 * a * line[i]
            error = rho * (size[i] + abs(w[k]) * cube[i] + 0.5 * a * line[i])
            low[k, i], high[k, i] = here - error, here + error
            most = max(most, value[i] + rho * size[i])
            everything += abs(here) + error
        drift[k] = most
    return np.isfinite(everything)


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
def decide(y, s, d, z, w, bound, a, rho, defect, low, high, drift, place, products, sizes):
    """Whether an equilibrium can have a total that the segment passes; ``place`` says where each client must then be (-1, 0, 1).

    With the mixture within r of the candidate's, ``s^2 g_k`` moves by at most ``s^2 (r^2 + 2 r d_k)``. Who wants more brings all it
    may, who wants less brings nothing: the total lies between what the first bring and what all but the second bring. Returns
    (verdict, r, whether halving the segment may tell more).
    """
    N = len(bound)
    if not inclinations(y, s, d, z, w, a, rho, low, high, drift, products, sizes):
        for k in range(N):
            place[k] = 0
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
def halve(stack, totals, h):
    """The segment at h becomes its second half, and its first half is put above it; control points are averages.

    Exact but for a rounding or two per level.
    """
    for i in range(stack.shape[1]):
        for k in range(stack.shape[3]):
            a, b, c = stack[h, i, 0, k], stack[h, i, 1, k], stack[h, i, 2, k]
            first, last = 0.5 * (a + b), 0.5 * (b + c)
            middle = 0.5 * (first + last)
            stack[h + 1, i, 0, k], stack[h + 1, i, 1, k], stack[h + 1, i, 2, k] = a, first, middle
            stack[h, i, 0, k], stack[h, i, 1, k] = middle, last
    first, last = 0.5 * (totals[h, 0] + totals[h, 1]), 0.5 * (totals[h, 1] + totals[h, 2])
    middle = 0.5 * (first + last)
    totals[h + 1, 0], totals[h + 1, 1], totals[h + 1, 2] = totals[h, 0], first, middle
    totals[h, 0], totals[h, 1] = middle, last


@njit(cache=True)
def begin(stack, totals, given, given_sums):
    """Put a segment of the chain on the empty stack; its last profile becomes the first of the next one."""
    for i in range(4):
        for k in range(given.shape[2]):
            for j in range(3):
                stack[0, i, j, k] = given[i, j, k]
            given[i, 0, k] = given[i, 2, k]
    for j in range(3):
        totals[0, j] = given_sums[j]
    given_sums[0] = given_sums[2]


@njit(cache=True)
def walk(
    chain, distances, slack, even, alpha, caps, w, a, rho, defect, depth, leaves, leaf_place, leaf_radius
):
    """Follow the chain, halving segments that decide nothing; how many leaves stay undecided, -1 if they are too many.

    ``leaves`` gets the three control profiles of every undecided leaf, in the order of the chain. Participation, amounts,
    ``D y`` and its size are linear in the profile, so those of the halves are averages too.
    """
    N = len(alpha)
    low, high, drift, bound = np.empty((N, 7)), np.empty((N, 7)), np.empty(N), np.empty(N)
    for k in range(N):
        bound[k] = alpha[k] * caps[k]
    place = np.empty(N, dtype=np.int8)
    products, sizes = np.empty((6, N)), np.empty((6, N))
    # per segment on the stack: participation, amounts, D y, size of D y; three control profiles each
    stack, totals = np.empty((depth + 3, 4, 3, N)), np.empty((depth + 3, 3))
    levels = np.empty(depth + 3, dtype=np.int64)
    found = 0
    given, given_sums = np.empty((4, 3, N)), np.empty(3)
    given_sums[0] = weigh(distances, slack, even, alpha, chain[0], given, np.int64(0))
    for segment in range((len(chain) - 1) // 2):
        for j in range(1, 3):
            given_sums[j] = weigh(distances, slack, even, alpha, chain[2 * segment + j], given, j)
        begin(stack, totals, given, given_sums)
        levels[0] = 0
        height = 1
        while height > 0:
            height -= 1
            here, sums, level = stack[height], totals[height], levels[height]
            if min(sums[0], min(sums[1], sums[2])) <= 0.0:
                return -1
            verdict, r, useful = decide(
                here[1],
                sums,
                here[2],
                here[3],
                w,
                bound,
                a,
                rho,
                defect,
                low,
                high,
                drift,
                place,
                products,
                sizes,
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
            # the first half comes above the second one and is looked at before it, so that leaves come in order
            halve(stack, totals, height)
            levels[height] = levels[height + 1] = level + 1
            height += 2
    return found


@njit(cache=True)
def possible(chain, caps):
    """Whether every profile of a chain is one that the caps allow; what is no number is not."""
    for i in range(len(chain)):
        for k in range(len(caps)):
            if not (0.0 <= chain[i, k] <= caps[k]):
                return False
    return True


@njit(cache=True)
def ends(first, last, alpha, caps, reach, apart, w, a, rho):
    """Whether no equilibrium can have a total above the first profile's, and whether none can have one below the last one's."""
    N = len(alpha)
    above, top = True, dot(alpha, first) * (1.0 - rho)
    for k in range(N):
        if first[k] != caps[k]:
            above = False
    if not above and top > 0.0:
        above = True
        for k in range(N):
            tempted = reach[k] + (a / (2.0 * top) if a > 0.0 else 0.0)
            if not top * w[k] * (1.0 - rho) > tempted:
                above = False
    bottom = dot(alpha, last) * (1.0 + rho)
    for i in range(N):
        root = np.sqrt(max(w[i], 0.0)) * (1.0 + rho)
        for j in range(i):
            if min(alpha[i] * caps[i], alpha[j] * caps[j]) * (1.0 - rho) > bottom and apart[i, j] > 0.0:
                both = root + np.sqrt(max(w[j], 0.0)) * (1.0 + rho)
                if both == 0.0 or apart[i, j] / (both * both) > bottom:
                    return above, True
    eager = 0.0
    for k in range(N):
        if w[k] * bottom**2 * (1.0 + 4.0 * rho) < 0.5 * a * (1.0 - 4.0 * rho):
            eager += alpha[k] * caps[k]
    return above, a > 0.0 and eager * (1.0 - rho) > bottom


@njit(cache=True)
def end_of_group(leaves, first, count):
    """The leaves from ``first`` on that touch each other: the number of the first that does not belong to them."""
    i = first + 1
    while i < count:
        for k in range(leaves.shape[2]):
            if leaves[i - 1, 2, k] != leaves[i, 0, k]:
                return i
        i += 1
    return i


@njit(cache=True)
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
    weighed = np.empty((4, 1, N))
    total = weigh(distances, slack, even, alpha, centre, weighed, np.int64(0))
    y, spread, size = weighed[1, 0], weighed[2, 0], weighed[3, 0]
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
    """Whether ``v'Mv > 0`` for every v and every M within ``doubt`` of the matrix.

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
    lost = (lost + (2.0 * n + 8.0) * u * trace + 4.0 * u * largest) * (1.0 + 8.0 * n * u) + 1e-280
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
