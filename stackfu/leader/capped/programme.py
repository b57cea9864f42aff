"""Cone programmes at one total participation: the relaxation of a region, and the linearised problem of the local search.

Variables: the mixture z, its embedding m, ``q >= ||m||^2``, an elastic slack xi, and for every client that may ride free ``e_k >= D_k - theta_k S``
and the product ``p_k`` that stands for ``z_k e_k``:

    relaxed       p_k >= l_k e_k + lo_k z_k - l_k lo_k,     p_k >= h_k e_k + hi_k z_k - h_k hi_k          (McCormick)
    linearised    p_k >= z0_k e_k + e0_k z_k - z0_k e0_k                                                  (around a plan)

With outside options ``r_k >= d_k^2 / 2 + a v / 2 + o_k + z_k min(D_k, theta_k S)``, relaxed below, is added to the payment.
"""

from __future__ import annotations

from dataclasses import dataclass

import clarabel
import numpy as np
from scipy import sparse

from ...model import Array
from .bound import Multipliers, Region, eagerness
from .problem import PlanProblem

__all__ = ["Answer", "linearised", "relaxed"]

#: Of the cone solver; bounds do not depend on it.
TOLERANCE = 1e-9
#: Price of breaking the budget or the cap on the loss, per unit, beside the objective's own size.
PENALTY = 1e2


@dataclass(frozen=True, eq=False)
class Answer:
    """A point, its multipliers, and how much the products are underestimated."""

    z: Array
    total: float
    value: float  # of the objective, without the penalty
    slack: float  # xi
    products: Array  # p_k, 0 for who cannot ride free
    multipliers: Multipliers


class _Rows:
    """Rows of a cone constraint ``A x + s = b``, collected as triplets."""

    def __init__(self, width: int) -> None:
        self.width, self.height = width, 0
        self._i: list[Array] = []
        self._j: list[Array] = []
        self._x: list[Array] = []
        self._b: list[Array] = []

    def add(self, right: Array, *parts: tuple[Array, Array]) -> np.ndarray:
        """One row per entry of ``right``; parts are (columns, values), of shape (rows,) or (rows, n)."""
        n = len(right)
        rows = self.height + np.arange(n)
        for columns, values in parts:
            columns = np.asarray(columns)
            if columns.ndim == 1 and len(columns) != n:
                columns = np.broadcast_to(columns, (n, len(columns)))
            values = np.broadcast_to(values, columns.shape)
            self._i.append(np.repeat(rows, columns.size // n) if n else rows)
            self._j.append(columns.ravel())
            self._x.append(values.ravel())
        self._b.append(np.asarray(right, dtype=np.float64))
        self.height += n
        return rows

    def matrix(self) -> tuple[sparse.csc_matrix, Array]:
        i, j, x = (np.concatenate(part) for part in (self._i, self._j, self._x))
        return sparse.csc_matrix((x, (i, j)), shape=(self.height, self.width)), np.concatenate(self._b)


_SETTINGS = clarabel.DefaultSettings()
_SETTINGS.verbose = False
_SETTINGS.max_threads = 1
_SETTINGS.tol_gap_abs = _SETTINGS.tol_gap_rel = _SETTINGS.tol_feas = TOLERANCE


def relaxed(problem: PlanProblem, region: Region, total: float, size: float, penalty: float = PENALTY) -> Answer:
    """The relaxation of a region at one S in it; ``size`` is the scale of ``||m||^2``."""
    low, high = eagerness(problem, region)
    rides = np.flatnonzero(high > 0.0)
    decided = low[rides] >= 0.0
    rowed = np.flatnonzero((high <= 0.0) & np.isfinite(region.cut_high))
    least = region.least
    most = np.maximum(np.minimum(region.most, problem.alpha / total), least)
    mild, keen = np.maximum(low[rides], 0.0), high[rides]
    cuts = (
        (least[rides], mild, least[rides] * mild),
        (most[rides], keen, most[rides] * keen),
    )
    dmin = region.near + 0.5 * problem.client_sampling / region.high
    return _solve(
        problem, total, size, penalty, problem.budget, least, most, rides, decided, rowed, cuts, mild, keen, dmin
    )


def linearised(problem: PlanProblem, z: Array, total: float, size: float, shrink: float = 1e-9) -> Answer:
    """The problem at one S with every product replaced by its tangent at a plan."""
    n = problem.count
    stakes = problem.stakes(z, total)
    e = np.maximum(stakes - problem.theta * total, 0.0)
    everybody = np.arange(n)
    most = np.minimum(problem.alpha / total, 1.0)
    budget = problem.budget * (1.0 - shrink)
    nobody = np.zeros(0, dtype=np.intp)
    return _solve(
        problem,
        total,
        size,
        PENALTY,
        budget,
        np.zeros(n),
        most,
        everybody,
        np.zeros(n, dtype=bool),
        nobody,
        ((z, e, z * e),),
        np.zeros(n),
        None,
        stakes,
    )


def _solve(
    p: PlanProblem,
    total: float,
    size: float,
    penalty: float,
    budget: float,
    least: Array,
    most: Array,
    rides: np.ndarray,
    decided: np.ndarray,
    rowed: np.ndarray,
    cuts: tuple[tuple[Array, Array, Array], ...],
    mild: Array,
    keen: Array | None,
    dmin: Array,
) -> Answer:
    n, r = p.points.shape
    v, half = 1.0 / total, 0.5 * p.client_sampling / total
    k = len(rides)
    leavers = np.zeros(0, dtype=np.intp)
    if p.outside is not None:
        leavers = np.flatnonzero(np.isfinite(p.outside))
    z, m = np.arange(n), n + np.arange(r)
    q, xi = n + r, n + r + 1
    e = n + r + 2 + np.arange(k)
    pr = e + k
    ret = n + r + 2 + 2 * k + np.arange(len(leavers))
    width = n + r + 2 + 2 * k + len(leavers)
    rows = _Rows(width)
    level = p.diagonal + half - p.theta * total  # D_k - theta_k S = q - 2 <m, mu_k> + level_k
    # equalities
    rows.add(np.ones(1), (z[None, :], np.ones(1)))
    rows.add(np.zeros(r), (m, np.ones(r)), (np.broadcast_to(z, (r, n)), -p.points.T))
    fixed = rides[decided]
    equal = rows.add(
        -level[fixed],
        (np.full(len(fixed), q), 1.0),
        (np.broadcast_to(m, (len(fixed), r)), -2.0 * p.points[fixed]),
        (e[decided], -1.0),
    )
    zero = rows.height
    # inequalities, A x <= b
    spend_columns = np.concatenate([z, [q], pr, ret])
    spend = np.concatenate([total * p.theta - p.diagonal, [1.0], np.ones(k + len(leavers))])
    loss_columns = np.append(z, q)
    loss = np.append(v * p.noise, p.loss_square)
    floor_of_loss = p.loss_constant + v * p.loss_sampling
    budget_row = cap_row = None
    if np.isfinite(budget):
        budget_row = rows.add(
            np.array([budget + half]), (spend_columns[None, :], spend), (np.array([xi]), -1.0)
        )
    if np.isfinite(p.loss_cap):
        cap_row = rows.add(
            np.array([p.loss_cap - floor_of_loss]), (loss_columns[None, :], loss), (np.array([xi]), -1.0)
        )
    free = rides[~decided]
    open_rows = rows.add(
        -level[free],
        (np.full(len(free), q), 1.0),
        (np.broadcast_to(m, (len(free), r)), -2.0 * p.points[free]),
        (e[~decided], -1.0),
    )
    shut_rows = rows.add(
        -level[rowed],
        (np.full(len(rowed), q), 1.0),
        (np.broadcast_to(m, (len(rowed), r)), -2.0 * p.points[rowed]),
        (np.full(len(rowed), xi), -1.0),
    )
    for at, eager, product in cuts:
        rows.add(product, (e, at), (rides, eager), (pr, -1.0))
    rows.add(-mild, (e, -1.0))
    if keen is not None:
        rows.add(keen, (e, 1.0))
    rows.add(np.zeros(k), (pr, -1.0))
    keep_rows = None
    if len(leavers):
        assert p.outside is not None
        keep_rows = rows.add(
            -(0.5 * p.diagonal[leavers] + half + p.outside[leavers]),
            (np.full(len(leavers), q), 0.5),
            (np.broadcast_to(m, (len(leavers), r)), -p.points[leavers]),
            (leavers, np.minimum(dmin[leavers], p.theta[leavers] * total)),
            (ret, -1.0),
        )
        rows.add(np.zeros(len(leavers)), (ret, -1.0))
    rows.add(-least, (z, -1.0))
    rows.add(most, (z, 1.0))
    rows.add(np.zeros(1), (np.array([xi]), -1.0))
    inequalities = rows.height - zero
    # ||(2 m, q / scale - scale)|| <= q / scale + scale
    scale = np.sqrt(max(size, 1e-10))
    rows.add(np.array([scale]), (np.array([q]), -1.0 / scale))
    rows.add(np.array([-scale]), (np.array([q]), -1.0 / scale))
    rows.add(np.zeros(r), (m, -2.0))
    matrix, right = rows.matrix()
    cost = np.zeros(width)
    cost[loss_columns] += p.loss_weight * loss
    cost[spend_columns] += p.payment_weight * spend
    cost[xi] = penalty * (p.loss_weight + p.payment_weight)
    cones = [
        clarabel.ZeroConeT(zero),
        clarabel.NonnegativeConeT(inequalities),
        clarabel.SecondOrderConeT(r + 2),
    ]
    answer = clarabel.DefaultSolver(
        sparse.csc_matrix((width, width)), cost, matrix, right, cones, _SETTINGS
    ).solve()
    x, dual = np.asarray(answer.x), np.asarray(answer.z)
    if not (np.isfinite(x).all() and np.isfinite(dual).all()):
        x, dual = np.zeros(width), np.zeros(rows.height)
    mixture = np.maximum(x[:n], 0.0)
    mixture = mixture / mixture.sum() if mixture.sum() > 0 else p.alpha / p.alpha.sum()
    multipliers = np.zeros(n)
    multipliers[fixed] = dual[equal]
    multipliers[free] = dual[open_rows]
    multipliers[rowed] = dual[shut_rows]
    keep = None
    if keep_rows is not None:
        keep = np.zeros(n)
        keep[leavers] = dual[keep_rows]
    products = np.zeros(n)
    products[rides] = x[pr]
    value = p.loss_weight * (floor_of_loss + float(loss @ x[loss_columns]))
    value += p.payment_weight * (float(spend @ x[spend_columns]) - half)
    return Answer(
        z=mixture,
        total=total,
        value=value,
        slack=float(x[xi]),
        products=products,
        multipliers=Multipliers(
            total=total,
            objective=1.0,
            budget=0.0 if budget_row is None else max(float(dual[budget_row[0]]), 0.0),
            loss_cap=0.0 if cap_row is None else max(float(dual[cap_row[0]]), 0.0),
            level=-float(dual[0]),
            rows=multipliers,
            keep=keep,
            mixture=mixture,
        ),
    )
