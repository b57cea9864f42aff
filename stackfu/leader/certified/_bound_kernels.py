"""The sums over clients of the bound on a box, in one pass. The formulas stand in :mod:`.bound`."""

import numpy as np

from ...jit import njit


@njit(cache=True, error_model="numpy")
def client_sums(
    alpha,
    theta,
    diagonal,
    noise,
    pull,
    paid,
    volunteer,
    ceiling,
    low,
    high,
    level_low,
    rows_low,
    slope_low,
    nu_low,
    ell_low,
    level_high,
    rows_high,
    slope_high,
    nu_high,
    ell_high,
):
    """``Y`` at both ends, an upper bound of its curvature, ``P.(diag - theta S)`` at both ends, ``h (P_b - P_a).theta``, ``sum P``,
    and for clients who own more than ``high`` the largest ``(psi_k)_+`` at both ends and the largest curvature.

    The last entry is False if the multipliers prove nothing (a negative one, or a hull without a ceiling).
    """
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
        p_low, p_high = rows_low[k], rows_high[k]
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
            - 2.0 * (slope_low[k] - ell_low * pull[k])
            - nu_low * (th * low - diagonal[k])
            - ell_low / low * noise[k]
            + x_low * hull_low / a
        )
        psi_high = (
            level_high
            - 2.0 * (slope_high[k] - ell_high * pull[k])
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
        elif a > high:
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
