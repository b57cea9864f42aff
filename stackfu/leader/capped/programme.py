"""Cone programmes at one total participation: the relaxation of a region, and the linearised problem of the local search.

Variables: the mixture z, its embedding m, ``q >= ||m||^2``, the spend, an elastic slack xi, and for every client, with the
eagerness
``f_k = D_k - theta_k S = q - 2 <m, mu_k> + const``,

    e_k >= f_k,    plus_k  >= z_k e_k      (if it may ride free)      spend >= S theta.z - diag.z + q - a v / 2 + sum_k plus_k
    i_k >= -f_k,   minus_k >= z_k i_k      (if it may be paid)        spend >= sum_k minus_k

with the products bounded below by McCormick's inequalities on the region, or by their tangents at a plan (local search).
With outside
options ``r_k >= d_k^2 / 2 + a v / 2 + o_k + z_k min(D_k, theta_k S)``, relaxed below, is added to both.
"""

from __future__ import annotations

from dataclasses import dataclass

import clarabel
import numpy as np
import numpy.typing as npt
from scipy import sparse

from ...model import Array
from .bound import Multipliers, Region, eagerness
from .problem import PlanProblem

__all__ = ["PENALTY", "Answer", "linearised", "relaxed"]

Index = npt.NDArray[np.intp]

#: Of the cone solver; bounds do not depend on it.
TOLERANCE = 1e-9
#: Price of breaking the budget or the cap on the loss, per unit, beside the objective's own size.
PENALTY = 1e2


@dataclass(frozen=True, eq=False)
class Answer:
    """A point with its multipliers, and what stands for the products at it."""

    z: Array
    total: float
    value: float  # of the objective, without the penalty
    slack: float  # xi
    products: Array  # plus_k
    prices: Array  # minus_k
    multipliers: Multipliers


class _Rows:
    """Rows of a cone constraint ``A x + s = b``, collected as triplets."""

    def __init__(self) -> None:
        self.height = 0
        self._i: list[npt.NDArray[np.intp]] = []
        self._j: list[npt.NDArray[np.intp]] = []
        self._x: list[Array] = []
        self._b: list[Array] = []

    def add(self, right: npt.ArrayLike, *parts: tuple[npt.ArrayLike, npt.ArrayLike]) -> Index:
        """One row per entry of ``right``; parts are (columns, values), of shape (rows,) or (rows, n)."""
        b = np.atleast_1d(np.asarray(right, dtype=np.float64))
        rows = self.height + np.arange(len(b))
        for columns, values in parts:
            j = np.asarray(columns)
            if j.ndim == 2:
                j = np.broadcast_to(j, (len(b), j.shape[1]))
            else:
                j = np.broadcast_to(j, (len(b),))[:, None]
            x = np.asarray(values, dtype=np.float64)
            x = np.broadcast_to(x[:, None] if x.ndim == 1 and j.shape[1] == 1 else x, j.shape)
            self._i.append(np.repeat(rows, j.shape[1]))
            self._j.append(j.ravel())
            self._x.append(x.ravel())
        self._b.append(b)
        self.height += len(b)
        return rows

    def matrix(self, width: int) -> tuple[sparse.csc_matrix, Array]:
        """The matrix and the right side."""
        i, j, x = (np.concatenate(part) for part in (self._i, self._j, self._x))
        return sparse.csc_matrix((x, (i, j)), shape=(self.height, width)), np.concatenate(self._b)


@dataclass(frozen=True, eq=False)
class _Products:
    """Products ``z_k e_k``: whose, bounds of the factor, and inequalities ``product >= slope_z z + slope_e e - constant``."""

    clients: Index
    low: Array
    high: Array | None
    cuts: tuple[tuple[Array, Array, Array], ...]

    @classmethod
    def mccormick(cls, clients: Index, least: Array, most: Array, low: Array, high: Array) -> _Products:
        """On a box of shares and factors."""
        least, most = least[clients], most[clients]
        return cls(clients, low, high, ((low, least, least * low), (high, most, most * high)))

    @classmethod
    def tangent(cls, clients: Index, z: Array, factor: Array) -> _Products:
        """At a plan."""
        return cls(clients, np.zeros(len(clients)), None, ((factor, z, z * factor),))


_SETTINGS = clarabel.DefaultSettings()
_SETTINGS.verbose = False
_SETTINGS.max_threads = 1
_SETTINGS.tol_gap_abs = _SETTINGS.tol_gap_rel = _SETTINGS.tol_feas = TOLERANCE


def relaxed(
    problem: PlanProblem, region: Region, total: float, size: float, penalty: float = PENALTY
) -> Answer:
    """The relaxation of a region at one S in it; ``size`` is the scale of ``||m||^2``."""
    low, high = eagerness(problem, region)
    high = np.maximum(low, high)
    least = region.least
    most = np.maximum(np.minimum(region.most, problem.alpha / total), least)
    rides, paid = np.flatnonzero(high > 0.0), np.flatnonzero(low < 0.0)
    plus = _Products.mccormick(rides, least, most, np.maximum(low[rides], 0.0), high[rides])
    minus = _Products.mccormick(paid, least, most, np.maximum(-high[paid], 0.0), -low[paid])
    dmin = region.near + 0.5 * problem.client_sampling / region.high
    return _solve(problem, total, size, penalty, problem.budget, least, most, plus, minus, dmin)


def linearised(problem: PlanProblem, z: Array, total: float, size: float, shrink: float = 1e-9) -> Answer:
    """The problem at one S with every product replaced by its tangent at a plan."""
    n = problem.count
    stakes = problem.stakes(z, total)
    plus = _Products.tangent(np.arange(n), z, np.maximum(stakes - problem.theta * total, 0.0))
    minus = _Products.tangent(np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0))
    most = np.minimum(problem.alpha / total, 1.0)
    budget = problem.budget * (1.0 - shrink)
    return _solve(problem, total, size, PENALTY, budget, np.zeros(n), most, plus, minus, stakes)


def _solve(
    p: PlanProblem,
    total: float,
    size: float,
    penalty: float,
    budget: float,
    least: Array,
    most: Array,
    plus: _Products,
    minus: _Products,
    dmin: Array,
) -> Answer:
    n, r = p.points.shape
    v, half = 1.0 / total, 0.5 * p.client_sampling / total
    leavers = np.zeros(0, dtype=np.intp) if p.outside is None else np.flatnonzero(np.isfinite(p.outside))
    sizes = [
        n,
        r,
        1,
        1,
        1,
        len(plus.clients),
        len(plus.clients),
        len(minus.clients),
        len(minus.clients),
        len(leavers),
    ]
    ends = np.cumsum(sizes)
    z, m, _, _, _, e, gained, i, owed, ret = (
        np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)
    )
    q, xi, spend = n + r, n + r + 1, n + r + 2
    width = int(ends[-1])
    rows = _Rows()
    level = p.diagonal + half - p.theta * total  # eagerness = q - 2 <m, mu_k> + level_k
    rows.add(1.0, (z[None, :], 1.0))
    embedding = rows.add(np.zeros(r), (m, 1.0), (z[None, :], -p.points.T))
    equalities = rows.height
    # the spend is at least what the variance says, and at least what is owed client by client
    rows.add(
        half,
        (z[None, :], total * p.theta - p.diagonal),
        (q, 1.0),
        (gained[None, :], 1.0),
        (ret[None, :], 1.0),
        (spend, -1.0),
    )
    direct_row = rows.add(0.0, (owed[None, :], 1.0), (ret[None, :], 1.0), (spend, -1.0))
    loss_at_all = p.loss_constant + v * p.loss_sampling
    budget_row = cap_row = None
    if np.isfinite(budget):
        budget_row = rows.add(budget, (spend, 1.0), (xi, -1.0))
    if np.isfinite(p.loss_cap):
        cap_row = rows.add(
            p.loss_cap - loss_at_all, (z[None, :], v * p.noise), (q, p.loss_square), (xi, -1.0)
        )
    prices = np.zeros(n)
    eager_rows = []
    for sign, products, factor, product in ((1.0, plus, e, gained), (-1.0, minus, i, owed)):
        who = products.clients
        eager_rows.append(
            (
                sign,
                who,
                rows.add(
                    -sign * level[who], (q, sign), (m[None, :], -2.0 * sign * p.points[who]), (factor, -1.0)
                ),
            )
        )
        for slope_z, slope_e, constant in products.cuts:
            rows.add(constant, (who, slope_z), (factor, slope_e), (product, -1.0))
        rows.add(-products.low, (factor, -1.0))
        if products.high is not None:
            rows.add(products.high, (factor, 1.0))
        rows.add(np.zeros(len(who)), (product, -1.0))
    keep_rows = None
    if len(leavers):
        assert p.outside is not None
        keep_rows = rows.add(
            -(0.5 * p.diagonal[leavers] + half + p.outside[leavers]),
            (q, 0.5),
            (m[None, :], -p.points[leavers]),
            (leavers, np.minimum(dmin[leavers], p.theta[leavers] * total)),
            (ret, -1.0),
        )
        rows.add(np.zeros(len(leavers)), (ret, -1.0))
    rows.add(-least, (z, -1.0))
    rows.add(most, (z, 1.0))
    rows.add(0.0, (xi, -1.0))
    inequalities = rows.height - equalities
    # ||(2 m, q / scale - scale)|| <= q / scale + scale
    scale = np.sqrt(max(size, 1e-10))
    rows.add(scale, (q, -1.0 / scale))
    rows.add(-scale, (q, -1.0 / scale))
    rows.add(np.zeros(r), (m, -2.0))
    matrix, right = rows.matrix(width)
    cost = np.zeros(width)
    cost[z] = p.loss_weight * v * p.noise
    cost[q] = p.loss_weight * p.loss_square
    cost[spend] = p.payment_weight
    cost[xi] = penalty * (p.loss_weight + p.payment_weight)
    cones = [
        clarabel.ZeroConeT(equalities),
        clarabel.NonnegativeConeT(inequalities),
        clarabel.SecondOrderConeT(r + 2),
    ]
    empty = sparse.csc_matrix((width, width))
    answer = clarabel.DefaultSolver(empty, cost, matrix, right, cones, _SETTINGS).solve()
    x, dual = np.asarray(answer.x), np.asarray(answer.z)
    if not (np.isfinite(x).all() and np.isfinite(dual).all()):
        x, dual = np.zeros(width), np.zeros(rows.height)
    mixture = np.maximum(x[:n], 0.0)
    mixture = mixture / mixture.sum() if mixture.sum() > 0 else p.alpha / p.alpha.sum()
    for sign, who, places in eager_rows:
        prices[who] += sign * dual[places]
    keep = None
    if keep_rows is not None:
        keep = np.zeros(n)
        keep[leavers] = dual[keep_rows]
    budget_price = 0.0 if budget_row is None else max(float(dual[budget_row[0]]), 0.0)
    cap_price = 0.0 if cap_row is None else max(float(dual[cap_row[0]]), 0.0)
    direct = min(max(float(dual[direct_row[0]]), 0.0), p.payment_weight + budget_price)
    # z_k meets the multipliers of m = sum z_k mu_k, not m itself: the centre that reproduces them is exact to first order
    pulls = prices if keep is None else prices + 0.5 * keep
    weight = (p.loss_weight + cap_price) * p.loss_square + p.payment_weight + budget_price - direct
    weight += float(pulls.sum())
    centre = mixture
    if weight > 0.0:
        wanted = (pulls @ p.points - 0.5 * dual[embedding]) / weight
        centre = mixture + p.weights_of(wanted - mixture @ p.points)
    gains, owes = np.zeros(n), np.zeros(n)
    gains[plus.clients], owes[minus.clients] = x[gained], x[owed]
    return Answer(
        z=mixture,
        total=total,
        value=p.loss_weight * loss_at_all + float(cost[:xi] @ x[:xi]) + p.payment_weight * float(x[spend]),
        slack=float(x[xi]),
        products=gains,
        prices=owes,
        multipliers=Multipliers(
            total=total,
            objective=1.0,
            budget=budget_price,
            loss_cap=cap_price,
            level=-float(dual[0]),
            direct=direct,
            rows=prices,
            keep=keep,
            mixture=centre,
        ),
    )
