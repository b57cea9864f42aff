"""Passes over the clients of a box: sums of its bound, classes, distances in a ball; formulas are in :mod:`.payment_bound`.

One thread: a pass takes milliseconds even over a million clients, and on a busy machine threads of so short a pass wait for each
other ten times as long as they work.
"""

import numpy as np

from ...jit import njit


@njit(cache=True, error_model="numpy")
def client_sums(
    wide,
    alpha,
    theta,
    diagonal,
    noise,
    pull,
    paid,
    volunteer,
    ceiling,
    rows_first,
    rows_second,
    slope_first,
    slope_second,
    low,
    high,
    parts,
    level_low,
    nu_low,
    ell_low,
    level_high,
    nu_high,
    ell_high,
):
    """``Y`` at both ends, an upper bound of its curvature, ``P.(diag - theta S)`` at both ends, ``h (P_b - P_a).theta``, ``sum P``,
    and, if ``wide``, for clients who own more than ``high`` the largest ``(psi_k)_+`` at both ends and the largest curvature.

    Rows and slopes are those of two knots, ``parts`` their shares at the lower and at the upper end. The last entry is False
    if the multipliers prove nothing (a negative one, or a hull without a ceiling).
    """
    one_low, two_low, one_high, two_high = parts
    h = high - low
    bend = max(h * (high * nu_low - low * nu_high) / (low + high) ** 2, 0.0)
    unpaid_low, unpaid_high = (nu_low - bend) / low, (nu_high - bend) / high
    tilt = h * (high * ell_low - low * ell_high) / (low * high)
    tilt_most, tilt_range = max(tilt / low, tilt / high), abs(tilt / low - tilt / high)
    nothing = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, False)
    top_low = top_high = top_bend = 0.0
    brought_low = brought_high = curve = held_low = held_high = drift = sum_low = sum_high = 0.0
    for k in range(len(alpha)):
        a, th = alpha[k], theta[k]
        p_low = one_low * rows_first[k] + two_low * rows_second[k]
        p_high = one_high * rows_first[k] + two_high * rows_second[k]
        slope_low = one_low * slope_first[k] + two_low * slope_second[k]
        slope_high = one_high * slope_first[k] + two_high * slope_second[k]
        if (p_low < 0.0 or p_high < 0.0) and not volunteer[k]:
            return nothing
        x_low = x_high = hull_low = hull_high = 0.0
        if not paid[k]:
            x_low = max(p_low - a * unpaid_low, 0.0)
            x_high = max(p_high - a * unpaid_high, 0.0)
            if x_low > 0.0 or x_high > 0.0:
                if not np.isfinite(ceiling[k]):
                    return nothing
                roof = max(ceiling[k], th * high)
                hull_low, hull_high = low * (roof - th * low), high * (roof - th * high)
        psi_low = (
            level_low
            - 2.0 * (slope_low - ell_low * pull[k])
            - nu_low * (th * low - diagonal[k])
            - ell_low / low * noise[k]
            + x_low * hull_low / a
        )
        psi_high = (
            level_high
            - 2.0 * (slope_high - ell_high * pull[k])
            - nu_high * (th * high - diagonal[k])
            - ell_high / high * noise[k]
            + x_high * hull_high / a
        )
        bump = (
            h * (nu_high - nu_low) * th
            + tilt_most * noise[k]
            + (-(x_high - x_low) * (hull_high - hull_low) + th * h * h * max(x_low, x_high)) / a
        )
        if volunteer[k]:
            brought_low += a * psi_low
            brought_high += a * psi_high
            curve += a * bump
        elif wide and a > high:
            top_low, top_high = max(top_low, psi_low), max(top_high, psi_high)
            if max(psi_low, psi_high) + 0.25 * max(bump, 0.0) > 0.0:
                top_bend = max(top_bend, bump)
        else:
            dent = bump - tilt_range * noise[k] - th * h * h * abs(x_high - x_low) / a
            if min(psi_low, psi_high) + 0.25 * min(dent, 0.0) >= 0.0:
                curve += a * bump
            elif max(psi_low, psi_high) + 0.25 * max(bump, 0.0) > 0.0:
                curve += a * max(bump, 0.0)
            brought_low += a * max(psi_low, 0.0)
            brought_high += a * max(psi_high, 0.0)
        held_low += p_low * (diagonal[k] - th * low)
        held_high += p_high * (diagonal[k] - th * high)
        drift += (p_high - p_low) * th
        sum_low += p_low
        sum_high += p_high
    drift *= h
    return (
        brought_low, brought_high, curve, held_low, held_high, drift, sum_low, sum_high, top_low, top_high, top_bend, True,
    )  # fmt: skip


@njit(cache=True)
def classify_many(alpha, theta, reach, paid, volunteer, near, far, extra_low, extra_high, low, high, room):
    """Classify clients as paid or volunteers, with upper bounds of ``D_k``, the volunteers' total, and contradictions."""
    n = len(alpha)
    now_paid, now_full = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_)
    ceiling = np.empty(n)
    owned, empty = 0.0, False
    for k in range(n):
        ceiling[k] = min(far[k], reach[k]) + extra_low
        too_far = near[k] + extra_high > room * theta[k] * high
        near_enough = ceiling[k] * room <= theta[k] * low
        large = alpha[k] > room * high
        empty |= (too_far and (paid[k] or near_enough or large)) or (volunteer[k] and large)
        now_full[k] = volunteer[k] or too_far
        now_paid[k] = (paid[k] or large or near_enough) and not now_full[k]
        if now_full[k]:
            owned += alpha[k]
    return now_paid, now_full, ceiling, owned, empty


@njit(cache=True)
def ball_of_many(diagonal, along_first, along_second, coefficients, squares, apart, radius, near, far):
    """``near`` and ``far`` narrowed to the squared distances of points within ``radius`` of the segment between two centres.

    ``coefficients`` are what the knots' ``<mu_k, T c>`` are multiplied with to give ``<mu_k, c>`` at either end.
    """
    one_low, two_low, one_high, two_high = coefficients
    least, most = np.empty(len(near)), np.empty(len(near))
    for k in range(len(near)):
        first, second = along_first[k], along_second[k]
        low = np.sqrt(max(diagonal[k] + squares[0] - 2.0 * (one_low * first + two_low * second), 0.0))
        high = np.sqrt(max(diagonal[k] + squares[1] - 2.0 * (one_high * first + two_high * second), 0.0))
        most[k] = min(far[k], (max(low, high) + radius) ** 2)
        least[k] = max(near[k], max(0.5 * (low + high - apart) - radius, 0.0) ** 2)
    return least, most
