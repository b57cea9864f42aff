"""Compiled core of :mod:`stackfu.followers.at_once`: follow the path, and have what it found checked, row by row.

The solver (:mod:`stackfu.followers.path`) leaves profiles and a chain. The checkers (:mod:`stackfu.judging._stake_kernels`,
:mod:`stackfu.judging._segment_kernels`) read those and their own numbers of the game, and call nothing of the solver.
"""

import numpy as np

from ..jit import njit
from ..judging._segment_kernels import check_chain
from ..judging._stake_kernels import reluctances, stakes
from ..model._geometry_kernels import drifts, drifts_of_rows, judge
from .path._loop import DONE, follow, smallest_total
from .solver_tolerances import CHECK, EAGER, MARGIN, SMALL

__all__ = ["ROW_COLUMNS", "settle_rows"]

#: Columns of the results: 1 if the row was accepted, the number of equilibria, the number of pieces of the path; then the residual,
#: the gain, and the bound on the gain relative to stakes, of the equilibrium with the largest total.
ROW_COLUMNS = ("accepted", "equilibria", "pieces", "residual", "gain", "bound")
ACCEPTED, EQUILIBRIA, PIECES, RESIDUAL, GAIN, BOUND = range(6)
#: Kinds of zeros, as :mod:`.path._zeros` numbers them.
CROSSING, FLAT = 0, 2


@njit(cache=True, allocates=False)
def largest_total(w, reach, a):
    """Return a number that no equilibrium's total exceeds, at most 1; see :mod:`stackfu.followers.path.tracing`."""
    largest = 0.0
    for k in range(len(w)):
        if w[k] <= 0.0:
            return 1.0
        most = reach[k] / w[k]
        if a > 0.0:
            most = 0.5 * (most + np.sqrt(most * most + 2.0 * a / w[k]))
        largest = max(largest, most)
    return min(1.0, (1.0 + MARGIN) * largest)


@njit(cache=True, allocates=False)
def one_of_a_kind(kinds, tight, count):
    """Return True if every zero is an equilibrium of its own, and their number can be right."""
    crossings = 0
    for i in range(count):
        if tight[i] > 0 or kinds[i] == FLAT:
            return False
        crossings += kinds[i] == CROSSING
    return crossings % 2 == 1 and not (crossings == 1 and count > 1)


@njit(cache=True, nogil=True)
def settle_rows(
    payments, caps, enough, residual,
    normalised, gram, scale, pairwise, far, shares, costs, weights, sampling, lam, floor, short, below,
    rows, numbers, origin,
    squares, error, slack, own, reach, apart, terms, few, smallest, depth, leaves, resolved,
    profiles, found
):  # fmt: skip
    """Write the equilibrium with the largest total under each row of ``payments``, and :data:`ROW_COLUMNS` of what is known of it.

    ``caps`` has a row for each, or one for all. A row is accepted if the path saw nothing unusual, each client's gain is proved to
    be at most ``enough`` of its stakes, each residual is at most ``residual``, and no other equilibrium is possible. The arguments
    after that are the solver's numbers of the game, the feature rows (none: distances are taken from ``gram``), and the numbers of
    the checkers; ``terms`` holds rho, defect, even, and the largest squared distance.
    """
    N = len(shares)
    length, places, links = 4 * N + 60, 16, 12 * N + 160
    pieces, totals, ys = np.empty((length, 8)), np.empty(places), np.empty((places, N))
    statuses, kinds = np.empty((places, N), dtype=np.int8), np.empty(places, dtype=np.int8)
    tight, chain = np.empty(places, dtype=np.int64), np.empty((links, N))
    w, scaled, owned, bounds, z = np.empty(N), np.empty(N), np.empty(N), np.empty(N), np.empty(N)
    x, sums, judged = np.empty((places, N)), np.empty(places), np.empty(N)
    rho, defect, even, largest = terms[0], terms[1], terms[2], terms[3]
    checked = enough < 0.0  # never: the checkers look at what the path leaves, not at the way there
    for row in range(len(payments)):
        p, most, out = payments[row], caps[min(row, len(caps) - 1)], found[row]
        out[:] = 0.0
        for k in range(N):
            w[k] = max((costs[k] - p[k]) / weights[k], -EAGER * scale)
            scaled[k], owned[k] = w[k] / scale, shares[k] * most[k]
        if largest_total(w, far, sampling) < SMALL:
            continue
        lowest = below * smallest_total(pairwise, w, shares, most, sampling, short)
        if not lowest > 0.0:
            continue
        code, n_pieces, n_roots, n_links, worst = follow(
            normalised, owned, scaled, floor, pieces, totals, ys, statuses, kinds, tight, chain, shares, 1.0, lowest, most,
            sampling / scale, checked
        )  # fmt: skip
        if code != DONE or not worst <= CHECK or n_links < 3 or not one_of_a_kind(kinds, tight, n_roots):
            continue
        for k in range(N):
            chain[0, k] = most[k]
        good = True
        for i in range(n_roots):
            total = sums[i] = 0.0
            for k in range(N):
                x[i, k] = most[k] if ys[i, k] >= owned[k] else min(ys[i, k] / shares[k], most[k])
                z[k] = shares[k] * x[i, k]
                total += z[k]
                sums[i] += shares[k] * x[i, k]
            for k in range(N):
                z[k] /= max(total, 5e-324)
            stakes(
                squares, error, shares, costs, weights, p, x[i], most, lam, sampling, few, smallest, bounds
            )
            bound = bounds.max()
            drift = drifts_of_rows(rows, numbers, origin, z) if len(rows) > 0 else drifts(gram, z)
            violation, gain = judge(drift, shares, most, costs, p, weights, x[i], sampling)
            good = good and bound <= enough and violation <= residual
            if i == 0:
                out[RESIDUAL], out[GAIN], out[BOUND] = violation, lam * gain, bound
        if not good or not reluctances(costs, weights, p, largest, smallest, judged):
            continue
        if check_chain(
            chain[:n_links], sums[:n_roots], squares, slack, own, even, reach, apart, shares, most, owned, judged, sampling,
            rho, defect, smallest, depth, leaves, resolved
        ):  # fmt: skip
            profiles[row] = x[0]
            out[ACCEPTED], out[EQUILIBRIA], out[PIECES] = 1.0, n_roots, n_pieces
