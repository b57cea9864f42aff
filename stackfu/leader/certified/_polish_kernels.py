"""Newton's method on the optimality conditions, compiled. The conditions stand in :mod:`.polish`.

Guesses are masks over clients that are corrected in place: ``moving`` shares, shares that are ``capped``, rows that are ``tight``,
clients that are ``eager`` (gain beyond indifference, multiplier ``nu u_k``) or on the ``hull``; ``binds`` says whether budget and
loss cap bind.
"""

import numpy as np

from ...jit import njit

#: Corrections of the guess before giving up.
CORRECTIONS = 8
#: Newton steps per guess; convergence is quadratic.
NEWTON_STEPS = 6
#: Relative size of a residual that counts as solved.
SOLVED = 1e-13
#: Newton steps with S free, the residual that counts as solved there, and the relative step of differences.
JOINT_STEPS = 25
JOINTLY_SOLVED = 1e-12
DIFFERENCE = 1e-7
#: A residual above this after all steps: the conditions contradict each other.
UNSOLVED = 1e-9
#: Shares and multipliers may miss their limits by this without changing the guess.
TOUCHING = 1e-12
#: Rows may be broken by this, relative to the largest squared distance, without changing the guess.
BROKEN_ROW = 1e-11
#: A share at a limit may want to leave it by this, relative to the level.
WANTED = 1e-9
#: The level that this is relative to, at least: losses are normalised, and a smaller level is as good as none.
SMALLEST_LEVEL = 1e-3
#: Pivots below this part of the first one are rounding, at one S and with S free, where differences leave less of it exact.
CUTOFF, JOINT_CUTOFF = 1e-12, 1e-13


@njit(cache=True, error_model="numpy")
def newton_step(matrix, right, cutoff):
    """A solution of a square system, in place of ``right``; unknowns that rounding leaves open are 0. Elimination with complete
    pivoting, which also changes ``matrix``."""
    n = len(right)
    columns, ordered = np.empty(n, dtype=np.int64), np.empty(n)
    for k in range(n):
        columns[k] = k
    first = 0.0
    rank = n
    for k in range(n):
        row, col, most = k, k, 0.0
        for i in range(k, n):
            for j in range(k, n):
                if abs(matrix[i, j]) > most:
                    row, col, most = i, j, abs(matrix[i, j])
        if k == 0:
            first = most
        if not most > cutoff * first:
            rank = k
            break
        if row != k:
            for j in range(n):
                matrix[k, j], matrix[row, j] = matrix[row, j], matrix[k, j]
            right[k], right[row] = right[row], right[k]
        if col != k:
            for i in range(n):
                matrix[i, k], matrix[i, col] = matrix[i, col], matrix[i, k]
            columns[k], columns[col] = columns[col], columns[k]
        for i in range(k + 1, n):
            factor = matrix[i, k] / matrix[k, k]
            if factor != 0.0:
                for j in range(k + 1, n):
                    matrix[i, j] -= factor * matrix[k, j]
                right[i] -= factor * right[k]
    for k in range(n - 1, -1, -1):
        if k >= rank:
            right[k] = 0.0
            continue
        value = right[k]
        for j in range(k + 1, rank):
            value -= matrix[k, j] * right[j]
        right[k] = value / matrix[k, k]
    for k in range(n):
        ordered[columns[k]] = right[k]
    for k in range(n):
        right[k] = ordered[k]


@njit(cache=True, error_model="numpy")
def inner_products(points, weights, inner):
    """``<mu_k, m>`` into ``inner`` and ``||m||^2`` of ``m = sum_k weights_k mu_k``."""
    N, r = points.shape
    m = np.zeros(r)
    for k in range(N):
        if weights[k] != 0.0:
            for d in range(r):
                m[d] += weights[k] * points[k, d]
    square = 0.0
    for d in range(r):
        square += m[d] * m[d]
    for k in range(N):
        value = 0.0
        for d in range(r):
            value += points[k, d] * m[d]
        inner[k] = value
    return square


@njit(cache=True, error_model="numpy")
def same_guess(seen, count, current):
    """Return True if one of the first ``count`` rows is the current guess."""
    for i in range(count):
        alike = True
        for j in range(len(current)):
            if seen[i, j] != current[j]:
                alike = False
                break
        if alike:
            return True
    return False


@njit(cache=True, error_model="numpy")
def write_guess(moving, capped, tight, eager, hull, binds, out):
    """All masks in a row."""
    N = len(moving)
    for k in range(N):
        out[k], out[N + k], out[2 * N + k] = moving[k], capped[k], tight[k]
        out[3 * N + k], out[4 * N + k] = eager[k], hull[k]
    out[5 * N], out[5 * N + 1] = binds[0], binds[1]


@njit(cache=True, error_model="numpy")
def limits_at(alpha, theta, volunteer, ceiling, s, shrink, u, limit, room):
    """Caps of shares, limits of rows (``D_k <= limit_k``; volunteers ``D_k >= theta_k S``) and what a share counts on the hull."""
    for k in range(len(alpha)):
        u[k] = alpha[k] / s
        limit[k] = theta[k] * s * (1.0 + shrink if volunteer[k] else 1.0 - shrink)
        room[k] = s * (max(ceiling[k], theta[k]) - theta[k] * s) / alpha[k]


@njit(cache=True, error_model="numpy")
def how_many(mask):
    """The number of clients of a mask."""
    count = 0
    for k in range(len(mask)):
        if mask[k]:
            count += 1
    return count


@njit(cache=True, error_model="numpy")
def members(mask):
    """The clients of a mask."""
    out = np.empty(how_many(mask), dtype=np.int64)
    count = 0
    for k in range(len(mask)):
        if mask[k]:
            out[count] = k
            count += 1
    return out


@njit(cache=True, error_model="numpy")
def set_out(u, rows, nu, moving, capped, tight, eager, hull, z, own, tight_rows, followed):
    """Set the variables fixed by the guess: unmoved shares, and rows' multipliers on the hull, tied to the budget's price."""
    for k in range(len(u)):
        if not moving[k]:
            z[k] = u[k] if capped[k] else 0.0
        own[k] = max(rows[k] - nu * u[k], 0.0) if hull[k] else 0.0
        tight_rows[k] = rows[k] if tight[k] else 0.0
        followed[k] = u[k] if eager[k] or hull[k] else 0.0  # multiplier nu u_k, plus the hull's own


@njit(cache=True, error_model="numpy")
def prices_at(
    points, theta, diagonal, noise, pull, room, loss_square, loss_constant, client_sampling, loss_sampling,
    s, nu, ell, z, own, tight_rows, followed, inner, every, mixed, q, distance,
):  # fmt: skip
    """Return each share's cost (``q``) and each client's distance; also T, the sum of shares, spend and loss."""
    v = 1.0 / s
    half_a = 0.5 * client_sampling * v
    tau = inner_products(points, z, inner)
    weight = ell * loss_square + nu
    for k in range(len(z)):
        every[k] = tight_rows[k] + nu * followed[k] + own[k]
        weight += every[k]
    inner_products(points, every, mixed)
    whole = theta_z = diagonal_z = pull_z = noise_z = gained = 0.0
    for k in range(len(z)):
        distance[k] = tau - 2.0 * inner[k] + diagonal[k] + half_a
        q[k] = (
            2.0 * (weight * inner[k] - mixed[k] - ell * pull[k])
            + nu * (theta[k] * s - diagonal[k])
            + ell * v * noise[k]
            - own[k] * room[k]
        )
        whole += z[k]
        theta_z += theta[k] * z[k]
        diagonal_z += diagonal[k] * z[k]
        pull_z += pull[k] * z[k]
        noise_z += noise[k] * z[k]
        gained += followed[k] * (distance[k] - theta[k] * s)
    spend = s * theta_z - diagonal_z + tau - half_a + gained
    loss = loss_square * tau - 2.0 * pull_z + loss_constant + v * (noise_z + loss_sampling)
    return weight, whole, spend, loss


@njit(cache=True, error_model="numpy")
def places(binds, moving, tight, last):
    """Where in the system the conditions of the level, budget, loss cap, tight rows and the ``last`` ones (hull, or S) begin, after
    those of moving shares; and its size."""
    budget = moving + 1
    cap = budget + (1 if binds[0] else 0)
    rows = cap + (1 if binds[1] else 0)
    return moving, budget, cap, rows, rows + tight, rows + tight + last


@njit(cache=True, error_model="numpy")
def write_slopes(
    gram, theta, diagonal, noise, pull, room, inner, towards_followed, weight, weight_follow,
    loss_square, payment_unit, s, binds, at_moving, at_tight, at_hull, out,
):  # fmt: skip
    """The Jacobian of the conditions; rows and columns in the same order, symmetric but for units and the level."""
    i0, i1, i2, i3, i4, _ = places(binds, len(at_moving), len(at_tight), len(at_hull))
    for i, k in enumerate(at_moving):
        for j, other in enumerate(at_moving):
            out[i, j] = 2.0 * weight * gram[k, other]
        out[i, i0], out[i0, i] = -1.0, 1.0
        if binds[0]:
            slope = (
                s * theta[k]
                - diagonal[k]
                + (1.0 + weight_follow) * 2.0 * inner[k]
                - 2.0 * towards_followed[k]
            )
            out[i1, i], out[i, i1] = slope, payment_unit * slope
        if binds[1]:
            slope = loss_square * 2.0 * inner[k] - 2.0 * pull[k] + noise[k] / s
            out[i2, i], out[i, i2] = slope, slope
        for j, row in enumerate(at_tight):
            slope = 2.0 * inner[k] - 2.0 * gram[row, k]
            out[i3 + j, i], out[i, i3 + j] = slope, slope
        for j, row in enumerate(at_hull):
            slope = 2.0 * inner[k] - 2.0 * gram[row, k]
            if row == k:
                slope -= room[k]
            out[i4 + j, i], out[i, i4 + j] = slope, slope


@njit(cache=True, error_model="numpy")
def write_residual(
    theta,
    limit,
    room,
    s,
    z,
    q,
    distance,
    level,
    missing,
    overspent,
    lost,
    binds,
    at_moving,
    at_tight,
    at_hull,
    out,
):
    """By how much the conditions are missed; the largest, infinite if one is not a number."""
    i0, i1, i2, i3, i4, _ = places(binds, len(at_moving), len(at_tight), len(at_hull))
    for i, k in enumerate(at_moving):
        out[i] = q[k] - level
    out[i0] = missing
    if binds[0]:
        out[i1] = overspent
    if binds[1]:
        out[i2] = lost
    for j, k in enumerate(at_tight):
        out[i3 + j] = distance[k] - limit[k]
    for j, k in enumerate(at_hull):
        out[i4 + j] = distance[k] - theta[k] * s - room[k] * z[k]
    size = 0.0
    for value in out:
        size = max(size, abs(value)) if np.isfinite(value) else np.inf
    return size


@njit(cache=True, error_model="numpy")
def correct_guess(
    theta,
    u,
    limit,
    room,
    paid,
    volunteer,
    s,
    nu,
    level,
    z,
    q,
    distance,
    own,
    rows,
    moving,
    capped,
    tight,
    eager,
    hull,
):
    """Change what the solution contradicts; whether there was anything."""
    changed = False
    scale = max(abs(level), SMALLEST_LEVEL)
    for k in range(len(u)):
        small = TOUCHING * min(u[k], 1.0)
        was_tight, was_eager, was_hull = tight[k], eager[k], hull[k]
        if moving[k]:
            if z[k] < -small:
                moving[k], capped[k], changed = False, False, True
            elif z[k] > u[k] + small:
                moving[k], capped[k], changed = False, True, True
        elif not volunteer[k]:
            # a share at a limit that wants to leave it
            off = q[k] - level if capped[k] else level - q[k]
            if off > WANTED * scale:
                moving[k], capped[k], changed = True, False, True
        slack = distance[k] - (theta[k] * s if volunteer[k] else limit[k])
        free = not (paid[k] or volunteer[k])
        # tight rows with a multiplier of wrong sign, and violated loose rows
        if was_tight:
            if not volunteer[k] and rows[k] < -TOUCHING:
                tight[k], changed = False, True
            if (free or volunteer[k]) and rows[k] > nu * u[k] + TOUCHING:
                tight[k], eager[k], changed = False, True, True
        elif was_eager:
            if slack < -BROKEN_ROW:
                tight[k], eager[k], changed = True, False, True
            elif free and room[k] * z[k] - (distance[k] - theta[k] * s) < -BROKEN_ROW:
                hull[k], eager[k], changed = True, False, True
        elif was_hull:
            if own[k] < -TOUCHING:
                hull[k], eager[k], changed = False, True, True
        elif not volunteer[k] and slack > BROKEN_ROW:
            tight[k], changed = True, True
    return changed


@njit(cache=True, error_model="numpy")
def weakest_row(at_tight, rows):
    """The tight row with the smallest multiplier."""
    weakest, least = at_tight[0], np.inf
    for k in at_tight:
        if abs(rows[k]) < least:
            weakest, least = k, abs(rows[k])
    return weakest


@njit(cache=True, error_model="numpy")
def polish_at(
    points, alpha, theta, diagonal, noise, pull, gram, paid, volunteer, ceiling,
    loss_square, loss_constant, loss_weight, payment_weight, payment_unit, cap, client_sampling, loss_sampling,
    spendable, total, shrink, z, rows, budget, loss_cap, moving, capped, tight, eager, hull, binds,
):  # fmt: skip
    """The conditions at one S; shares, row multipliers and the guess in place. Whether they hold, budget and cap multipliers."""
    N, failed = len(alpha), (False, 0.0, 0.0)
    u, limit, room = np.empty(N), np.empty(N), np.empty(N)
    limits_at(alpha, theta, volunteer, ceiling, total, shrink, u, limit, room)
    inner, mixed, q, distance = np.empty(N), np.empty(N), np.empty(N), np.empty(N)
    every, own, tight_rows, followed = np.empty(N), np.empty(N), np.empty(N), np.empty(N)
    towards_followed = np.empty(N)
    seen = np.zeros((CORRECTIONS, 5 * N + 2), dtype=np.bool_)
    z_before, rows_before = np.empty(N), np.empty(N)
    level = 0.0
    for correction in range(CORRECTIONS):
        write_guess(moving, capped, tight, eager, hull, binds, seen[correction])
        if same_guess(seen, correction, seen[correction]):
            return failed
        budget_before, cap_before = budget, loss_cap
        z_before[:], rows_before[:] = z, rows
        budget = budget if binds[0] else 0.0
        loss_cap = loss_cap if binds[1] else 0.0
        nu = payment_unit * (payment_weight + budget)
        set_out(u, rows, nu, moving, capped, tight, eager, hull, z, own, tight_rows, followed)
        inner_products(points, followed, towards_followed)
        weight_follow = followed.sum()
        at_moving, at_tight, at_hull = members(moving), members(tight), members(hull)
        i0, i1, i2, i3, i4, n = places(binds, len(at_moving), len(at_tight), len(at_hull))
        level_known = False
        size, spend, loss = np.inf, 0.0, 0.0
        for _ in range(NEWTON_STEPS):
            nu = payment_unit * (payment_weight + budget)
            weight, whole, spend, loss = prices_at(
                points, theta, diagonal, noise, pull, room, loss_square, loss_constant, client_sampling, loss_sampling,
                total, nu, loss_weight + loss_cap, z, own, tight_rows, followed, inner, every, mixed, q, distance,
            )  # fmt: skip
            if not level_known and len(at_moving):
                level = q[at_moving].mean()
            level_known = True
            residual = np.empty(n)
            size = write_residual(
                theta, limit, room, total, z, q, distance, level, whole - 1.0, spend - spendable, loss - cap * (1.0 - shrink),
                binds, at_moving, at_tight, at_hull, residual,
            )  # fmt: skip
            if not np.isfinite(size):
                return failed
            if size <= SOLVED * max(1.0, abs(level)):
                break
            slopes = np.zeros((n, n))
            write_slopes(
                gram, theta, diagonal, noise, pull, room, inner, towards_followed, weight, weight_follow,
                loss_square, payment_unit, total, binds, at_moving, at_tight, at_hull, slopes,
            )  # fmt: skip
            newton_step(slopes, residual, CUTOFF)
            for i, k in enumerate(at_moving):
                z[k] -= residual[i]
            level -= residual[i0]
            if binds[0]:
                budget -= residual[i1]
            if binds[1]:
                loss_cap -= residual[i2]
            for j, k in enumerate(at_tight):
                tight_rows[k] -= residual[i3 + j]
            for j, k in enumerate(at_hull):
                own[k] -= residual[i4 + j]
        if size > UNSOLVED:
            # more conditions than freedom: the weakest tight row is the one that is tight by accident
            if not len(at_tight):
                return failed
            tight[weakest_row(at_tight, rows_before)] = False
            budget, loss_cap = budget_before, cap_before
            z[:], rows[:] = z_before, rows_before
            continue
        nu = payment_unit * (payment_weight + budget)
        rows[:] = tight_rows + nu * followed + own
        changed = correct_guess(
            theta, u, limit, room, paid, volunteer, total, nu, level, z, q, distance, own, rows,
            moving, capped, tight, eager, hull,
        )  # fmt: skip
        if (binds[0] and budget < 0.0) or (not binds[0] and spend > spendable * (1.0 + TOUCHING)):
            binds[0], changed = not binds[0], True
        if (binds[1] and loss_cap < 0.0) or (not binds[1] and loss > cap):
            binds[1], changed = not binds[1], True
        if not changed:
            return True, max(budget, 0.0), max(loss_cap, 0.0)
        for k in range(N):
            z[k] = min(max(z[k], 0.0), u[k])
            if not volunteer[k]:
                rows[k] = max(rows[k], 0.0)
    return failed


@njit(cache=True, error_model="numpy")
def joint_residual(
    points, alpha, theta, diagonal, noise, pull, volunteer,
    loss_square, loss_constant, loss_weight, payment_weight, payment_unit, cap, client_sampling, loss_sampling,
    room, room_lost, room_lost_most, shrink, w, moving, capped, tight, eager, binds, z, own, q, gain, inner, every, mixed, out,
):  # fmt: skip
    """The conditions with S free, into ``out``; ``z, own, q, gain`` get what they were computed from. Level, S and multipliers."""
    N = len(alpha)
    i0, i1, i2, i3, i4, _ = places(binds, how_many(moving), how_many(tight), 1)
    s, t = w[i4], w[i0]
    beta = w[i1] if binds[0] else 0.0
    gamma = w[i2] if binds[1] else 0.0
    v = 1.0 / s
    half_a = 0.5 * client_sampling * v
    nu, ell = payment_unit * (payment_weight + beta), loss_weight + gamma
    weight = ell * loss_square + nu
    i = j = 0
    for k in range(N):
        if moving[k]:
            z[k] = w[i]
            i += 1
        else:
            z[k] = alpha[k] * v if capped[k] else 0.0
        own[k] = 0.0
        if tight[k]:
            own[k] = w[i3 + j]
            j += 1
        every[k] = own[k] + (nu * alpha[k] * v if eager[k] else 0.0)
        weight += every[k]
    tau = inner_products(points, z, inner)
    inner_products(points, every, mixed)
    whole = pull_z = scatter = spend = theta_z = bends = held = pressed = 0.0
    i = j = 0
    for k in range(N):
        u = alpha[k] * v
        gain[k] = tau - 2.0 * inner[k] + diagonal[k] + half_a - theta[k] * s
        q[k] = (
            2.0 * (weight * inner[k] - mixed[k] - ell * pull[k])
            + nu * (theta[k] * s - diagonal[k])
            + ell * v * noise[k]
        )
        whole += z[k]
        pull_z += pull[k] * z[k]
        scatter += noise[k] * z[k]
        theta_z += theta[k] * z[k]
        spend -= z[k] * gain[k]
        bend = half_a * v + theta[k]
        if eager[k]:
            spend += u * gain[k]
            bends += u * (v * gain[k] + bend)
        held += own[k] * bend
        if moving[k]:
            out[i] = q[k] - t
            i += 1
        elif capped[k]:
            pressed += u * (t - q[k])
        if tight[k]:
            out[i3 + j] = gain[k] + (-shrink if volunteer[k] else shrink) * theta[k] * s
            j += 1
    scatter += loss_sampling
    out[i0] = whole - 1.0
    usable = room - min(room_lost * s, room_lost_most)
    if binds[0]:
        out[i1] = spend - usable
    loss = loss_square * tau - 2.0 * pull_z + loss_constant + v * scatter
    if binds[1]:
        out[i2] = loss - cap * (1.0 - shrink)
    out[i4] = -ell * v * v * scatter + nu * (theta_z + half_a * v - bends) - held + v * pressed
    return spend - usable, loss


@njit(cache=True, error_model="numpy")
def polish_jointly(
    points, alpha, theta, diagonal, noise, pull, paid, volunteer,
    loss_square, loss_constant, loss_weight, payment_weight, payment_unit, cap, client_sampling, loss_sampling,
    room, room_lost, room_lost_most, least_total, total, shrink, z, rows, level, budget, loss_cap,
    moving, capped, tight, eager, binds,
):  # fmt: skip
    """The conditions with S free as well, by differences; shares, row multipliers and the guess in place. Whether they hold, S,
    budget and cap multipliers."""
    N = len(alpha)
    q, gain, inner, every, mixed, own = (
        np.empty(N), np.empty(N), np.empty(N), np.empty(N), np.empty(N), np.empty(N),
    )  # fmt: skip
    hull = np.zeros(N, dtype=np.bool_)
    seen = np.zeros((CORRECTIONS, 5 * N + 2), dtype=np.bool_)
    failed = (False, 0.0, 0.0, 0.0)
    s = total
    for correction in range(CORRECTIONS):
        write_guess(moving, capped, tight, eager, hull, binds, seen[correction])
        if same_guess(seen, correction, seen[correction]):
            return failed
        i0, i1, i2, i3, i4, n = places(binds, how_many(moving), how_many(tight), 1)
        w = np.empty(n)
        i = j = 0
        for k in range(N):
            if moving[k]:
                w[i] = z[k]
                i += 1
            if tight[k]:
                w[i3 + j] = rows[k]
                j += 1
        w[i0], w[i4] = level, s
        if binds[0]:
            w[i1] = budget
        if binds[1]:
            w[i2] = loss_cap
        at, moved = np.empty(n), np.empty(n)
        slopes = np.empty((n, n))
        solved = False
        over = loss = 0.0
        for _ in range(JOINT_STEPS):
            over, loss = joint_residual(
                points, alpha, theta, diagonal, noise, pull, volunteer,
                loss_square, loss_constant, loss_weight, payment_weight, payment_unit, cap, client_sampling, loss_sampling,
                room, room_lost, room_lost_most, shrink, w, moving, capped, tight, eager, binds,
                z, own, q, gain, inner, every, mixed, at,
            )  # fmt: skip
            size = 0.0
            for value in at:
                size = max(size, abs(value)) if np.isfinite(value) else np.inf
            if not np.isfinite(size):
                return failed
            if size <= JOINTLY_SOLVED * max(1.0, abs(w[i0])):
                solved = True
                break
            for i in range(n):
                h = DIFFERENCE * max(abs(w[i]), DIFFERENCE)
                before = w[i]
                w[i] = before + h
                joint_residual(
                    points, alpha, theta, diagonal, noise, pull, volunteer,
                    loss_square, loss_constant, loss_weight, payment_weight, payment_unit, cap, client_sampling,
                    loss_sampling, room, room_lost, room_lost_most, shrink, w, moving, capped, tight, eager, binds,
                    z, own, q, gain, inner, every, mixed, moved,
                )  # fmt: skip
                w[i] = before
                for j in range(n):
                    slopes[j, i] = (moved[j] - at[j]) / h
            newton_step(slopes, at, JOINT_CUTOFF)
            step = at
            reach = max(abs(step[i4]) / (0.2 * w[i4]), 1.0)
            for i in range(n):
                w[i] -= step[i] / reach
        if not solved:
            return failed
        s, level = w[i4], w[i0]
        budget = w[i1] if binds[0] else 0.0
        loss_cap = w[i2] if binds[1] else 0.0
        if not least_total <= s <= 1.0:
            return failed
        nu = payment_unit * (payment_weight + budget)
        scale = max(abs(level), SMALLEST_LEVEL)
        changed = False
        for k in range(N):
            u = alpha[k] / s
            rows[k] = own[k] + (nu * u if eager[k] else 0.0)
            small = TOUCHING * min(u, 1.0)
            if moving[k]:
                if z[k] < -small:
                    moving[k], capped[k], changed = False, False, True
                elif z[k] > u + small:
                    moving[k], capped[k], changed = False, True, True
            elif not volunteer[k]:
                off = q[k] - level if capped[k] else level - q[k]
                if off > WANTED * scale:
                    moving[k], capped[k], changed = True, False, True
            if tight[k]:
                if not volunteer[k] and own[k] < -TOUCHING:
                    tight[k], changed = False, True
                elif not paid[k] and own[k] > nu * u + TOUCHING:
                    tight[k], eager[k], changed = False, True, True
            elif eager[k]:
                if gain[k] < -BROKEN_ROW:
                    tight[k], eager[k], changed = True, False, True
            elif not volunteer[k] and gain[k] > BROKEN_ROW:
                tight[k], changed = True, True
        if (binds[0] and budget < 0.0) or (not binds[0] and over > TOUCHING * abs(room)):
            binds[0], budget, changed = not binds[0], 0.0, True
        if (binds[1] and loss_cap < 0.0) or (not binds[1] and loss > cap):
            binds[1], loss_cap, changed = not binds[1], 0.0, True
        if not changed:
            return True, s, budget, loss_cap
        for k in range(N):
            z[k] = min(max(z[k], 0.0), alpha[k] / s)
            if not volunteer[k]:
                rows[k] = max(rows[k], 0.0)
    return failed
