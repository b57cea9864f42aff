"""Polynomials of degree at most four on an interval: signs, roots, and where a condition first fails."""

import numpy as np

from ...jit import njit
from ..solver_tolerances import BRACKET, BRACKET_FLOOR, VANISHED

#: Answer of :func:`first_violation` if a condition holds throughout: beyond every piece, which ends at u = 1.
NEVER = 2.0


@njit(cache=True, allocates=False)
def evaluate(p, degree, u):
    """The polynomial with coefficients ``p`` at u."""
    acc = p[degree]
    for i in range(degree - 1, -1, -1):
        acc = acc * u + p[i]
    return acc


@njit(cache=True, allocates=False)
def first_violation(c0, c1, c2, tiny, tiny1, tiny2):
    """Smallest u >= 0 just after which c0 + c1 u + c2 u^2 >= 0 fails; ``NEVER`` if not before that."""
    if c0 > tiny:
        if c2 == 0.0 or abs(c2) < VANISHED:
            return -c0 / c1 if c1 < 0.0 else NEVER
        disc = c1 * c1 - 4.0 * c0 * c2
        if disc <= 0.0:
            return NEVER
        q = -0.5 * (c1 + np.sqrt(disc)) if c1 >= 0.0 else -0.5 * (c1 - np.sqrt(disc))
        best = NEVER
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
        return 0.0 if c2 < -tiny2 else NEVER
    return -c1 / c2 if c2 < 0.0 else NEVER


@njit(cache=True, allocates=False)
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
        if hi - lo <= BRACKET_FLOOR + BRACKET * abs(hi):
            break
    return lo if abs(flo) < abs(fhi) else hi


@njit(cache=True, allocates=False)
def roots_between(p, degree, lo, hi, out, work):
    """Roots of a polynomial in the open interval where it changes sign, ascending; returns their number.

    Found degree by degree: between consecutive roots of the derivative a polynomial is monotone. ``work`` is room for three rows of
    ``degree + 2`` numbers.
    """
    # coefficients of the derivatives, highest first, are rebuilt from p each time: degree is at most 4
    derivative, stops, found = work[0], work[1], work[2]
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


@njit(cache=True, allocates=False)
def keeps_sign(p, hi, tiny):
    """Return True if all Bernstein coefficients on [0, hi] have the same definite sign: then p has no root there.

    ``p`` has five coefficients; those above its degree are 0.
    """
    power = hi * hi
    a, b, c = p[0], 0.25 * p[1] * hi, p[2] * power / 6.0
    d, e = 0.25 * p[3] * power * hi, p[4] * power * power
    # sum_j binom(i, j) / binom(4, j) p_j hi^j
    b1, b2, b3 = a + b, a + 2.0 * b + c, a + 3.0 * (b + c) + d
    b4 = a + 4.0 * (b + d) + 6.0 * c + e
    if a > tiny:
        return b1 > tiny and b2 > tiny and b3 > tiny and b4 > tiny
    return a < -tiny and b1 < -tiny and b2 < -tiny and b3 < -tiny and b4 < -tiny
