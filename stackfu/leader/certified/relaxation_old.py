"""Second-order cone relaxations of the leader's problem on an interval of total participation.

Units. Squared distances are divided by ``scale``, the largest one; losses by ``(lam_v + lam_s) scale``; payments by
``2 lam scale``; ``theta_k = kappa_k / (2 lam scale)``. The origin is the point the server would like the mixture to be at,
the mean of ``mu_N`` and ``mu_O`` weighted by lam_v and lam_s (projected onto the clients' span), so that with
``tau = ||m||^2`` the leader minimises ``tau + const`` over z in the simplex and S, subject to

    S z_k <= alpha_k                                                         nobody brings more than it has
    d_k^2 = tau - 2 <m, mu_k> + G_kk <= theta_k S     or  S z_k = alpha_k    nobody unpaid wants to bring more
    sum_k S z_k (theta_k - d_k^2 / S)_+ <= B                                 the budget

For a decided set V of volunteers (``S z_k = alpha_k`` and ``d_k^2 >= theta_k S``: paid nothing) the payment is

    S theta.z - (diag(G).z - tau) + sum_{k in V} ((alpha_k / S) d_k^2 - theta_k alpha_k).

**Relaxation on S in [S1, S2].** Everything above is, for fixed z, affine in S once ``1/S`` is replaced by its tangent
(a lower bound). The Lagrangian minimum over z is therefore a concave function of S, smallest at an end of the interval,
and the best Lagrangian bound is the optimum of one convex program over *two* mixtures: ``a = lambda_1 z_1`` living at S1
and ``b = lambda_2 z_2`` living at S2, ``lambda_1 + lambda_2 = 1``, with every constraint averaged and one rotated cone
``lambda_j tau_j >= ||m_j||^2`` each. As the curvature of ``tau`` punishes ``m_1 != m_2``, the error of the bound falls with
the square of the interval's width. With ``S1 = S2`` the same program in one mixture is exact for decided V. On a very narrow
interval the two mixtures nearly coincide and the program is ill-conditioned; there one mixture serves, with a tilt:
``S z_k = S_mid z_k + (width / 2) t_k``, ``|t_k| <= z_k``, whose error falls only linearly, but from a small start.

**Safe bounds.** A bound is not taken from the solver's word: for any dual vector in the dual cone,
``-b'y - sum_i |q + A'y|_i u_i`` bounds the optimum from below when ``u`` bounds the variables of feasible points, however
inexact the solver was.

**Elastic rows.** Budget and distance rows may be broken by a common ``e >= 0`` at a steep linear price. The bound stays valid
(feasible points have e = 0), and an interior point method always has an interior: boxes that are infeasible by a hair get a
high bound instead of an inconclusive answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import clarabel
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import nnls

from ...game import StackelbergGame
from ...geometry import Array

__all__ = ["FREE", "PAID", "VOLUNTEER", "LeaderProblem", "Relaxation", "RelaxedPoint"]

#: Which cone program: two mixtures for a wide interval, one mixture for a single S, one tilted mixture for a narrow interval.
Kind = Literal["wide", "point", "narrow"]

#: What is decided about a client in a node: nothing; it is no unpaid maximal participant; it is one.
FREE, PAID, VOLUNTEER = 0, 1, 2

TOLERANCE = 1e-11  # of the cone solver; what it really reached is measured, see "safe bounds"
_INERT = 1e3  # right-hand side that switches a row off, far above anything in normalised units


@dataclass(frozen=True, eq=False)
class LeaderProblem:
    """The leader's problem in normalised units."""

    alpha: Array
    theta: Array
    factor: Array  # (N, r), G = factor factor'
    diagonal: Array
    constant: float  # loss that remains even where tau = 0
    noise: Array  # finite-sample term: coefficient of z_k / S, zero when the term is off
    budget: float  # normalised, may be inf
    loss_cap: float  # normalised bound on the server's loss, may be inf
    loss_weight: float  # weight of the server's loss in the objective, 0 or 1
    payment_weight: float  # weight of the payment in the objective, normalised
    unit_loss: float  # (lam_v + lam_s) scale, or 2 lam scale if that is zero
    unit_payment: float  # 2 lam scale
    reach: Array  # largest squared distance of each client to another

    @classmethod
    def of(
        cls,
        game: StackelbergGame,
        *,
        budget: float = np.inf,
        loss_cap: float = np.inf,
        loss_weight: float = 1.0,
        payment_weight: float = 0.0,
        finite_sample: bool = False,
    ) -> LeaderProblem:
        """Normalise a game's data."""
        geometry = game.geometry
        scale = geometry.scale
        gram = geometry.gram / scale
        values, vectors = np.linalg.eigh(gram)
        keep = values > 1e-15 * max(values[-1], 0.0) * len(values)
        roots = np.sqrt(values[keep])
        pull, square = geometry.original
        server = game.lam_v + game.lam_s
        unit_payment = 2.0 * game.lam * scale
        unit_loss = server * scale if server > 0 else unit_payment
        share = game.lam_s / server if server > 0 else 0.0
        target = share * (vectors[:, keep].T @ pull) / (roots * scale)
        factor = vectors[:, keep] * roots - target
        noise = np.zeros(game.count)
        if finite_sample and server > 0:
            noise = game.sampling_noise / (game.sizes.sum() * scale)
        return cls(
            alpha=game.alpha,
            theta=game.kappa / unit_payment,
            factor=np.ascontiguousarray(factor),
            diagonal=np.einsum("ij,ij->i", factor, factor),
            constant=max(share * square / scale - float(target @ target), 0.0),
            noise=noise,
            budget=budget / unit_payment,
            loss_cap=loss_cap / unit_loss,
            loss_weight=loss_weight if server > 0 else 0.0,
            payment_weight=payment_weight * unit_payment / unit_loss,
            unit_loss=unit_loss,
            unit_payment=unit_payment,
            reach=geometry.reach / scale,
        )

    @cached_property
    def ideal(self) -> Array:
        """The mixture whose embedding is nearest to the server's ideal, whatever it costs (non-negative least squares)."""
        system = np.vstack([self.factor.T, np.ones(len(self.factor))])
        z, _ = nnls(system, np.append(np.zeros(self.factor.shape[1]), 1.0))
        return np.asarray(z / z.sum())

    @cached_property
    def nearest_loss(self) -> float:
        """Least loss over all mixtures, whatever they cost.

        For any m, ``2 min_k <mu_k, m> - ||m||^2`` is a lower bound of ``||m'||^2`` over the clients' hull, sharp at the
        nearest point.
        """
        m = self.factor.T @ self.ideal
        nearest = max(2.0 * float((self.factor @ m).min()) - float(m @ m), 0.0)
        return nearest + self.constant

    @property
    def least_loss(self) -> float:
        """Least objective over all mixtures, payments left out."""
        return self.loss_weight * self.nearest_loss

    def squared_distances(self, z: Array) -> Array:
        """``d_k^2`` of a mixture, normalised."""
        m = self.factor.T @ z
        return np.asarray(np.maximum(self.diagonal - 2.0 * self.factor @ m + m @ m, 0.0))


@dataclass(frozen=True, eq=False)
class RelaxedPoint:
    """Answer of one cone program."""

    bound: float  # safe lower bound, inf when infeasibility was proved
    z: Array
    total: float
    spread: float  # how far the two mixtures differ: the part of the error that a narrower interval removes
    budget_price: float  # multiplier of the budget row, normalised
    solved: bool  # the solver has an answer
    slack: float = np.inf  # what the solver's inaccuracy costs the bound, 0 when infeasibility was proved


class Relaxation:
    """The cone program for one or two values of S and a set of volunteers.

    Built once and updated in place for every node with the same volunteers; their caps are equalities, which an interior
    point method must know as such.
    """

    def __init__(
        self,
        problem: LeaderProblem,
        kind: Kind,
        radius: float,
        volunteers: npt.NDArray[np.bool_],
        time_limit: float = np.inf,
    ) -> None:
        self.problem = problem
        self._time_limit = time_limit
        self.kind = kind
        self.ends = 2 if kind == "wide" else 1
        self._volunteer = volunteers
        # tau and c are expressed in units of a typical ||m||, which keeps the cone well scaled near its boundary
        self._unit = radius
        self._n = len(problem.factor)
        self._r = int(problem.factor.shape[1])
        n, r = self._n, self._r
        self._width: int = n + r + 2  # a, c = L'a / unit, tau / unit^2, lambda
        self._build_pattern()
        self._solver: Any = None

    # columns of end j
    def _a(self, j: int) -> npt.NDArray[np.intp]:
        return np.asarray(j * self._width + np.arange(self._n))

    def _c(self, j: int) -> npt.NDArray[np.intp]:
        return np.asarray(j * self._width + self._n + np.arange(self._r))

    def _tau(self, j: int) -> int:
        return j * self._width + self._n + self._r

    def _lam(self, j: int) -> int:
        return j * self._width + self._n + self._r + 1

    @property
    def _excess(self) -> int:
        return self.ends * self._width

    @property
    def _tilt(self) -> npt.NDArray[np.intp]:
        return self._excess + 1 + np.arange(self._n)

    @property
    def _shift(self) -> int:
        return self._excess + 1 + self._n

    def _build_pattern(self) -> None:
        """Row and column of every structural non-zero, in the order in which ``_values`` lists their values."""
        n, r, ends = self._n, self._r, self.ends
        rows: list[npt.NDArray[np.intp]] = []
        cols: list[npt.NDArray[np.intp]] = []

        def add(row: npt.ArrayLike, col: npt.ArrayLike) -> None:
            i, j = np.broadcast_arrays(np.asarray(row), np.asarray(col))
            rows.append(i.ravel())
            cols.append(j.ravel())

        top = 0
        add(0, [self._lam(j) for j in range(ends)])  # sum lambda = 1
        top = 1
        for j in range(ends):  # lambda_j = sum a_j ; c_j = L' a_j
            add(top, self._a(j))
            add(top, self._lam(j))
            add(top + 1 + np.arange(r)[:, None], self._a(j)[None, :])
            add(top + 1 + np.arange(r), self._c(j))
            top += 1 + r
        if self.kind == "narrow":
            self._shift_row = top
            top += 1
        self._full_row = top
        full, below = np.flatnonzero(self._volunteer), np.flatnonzero(~self._volunteer)
        for j in range(ends):  # sum_j S_j a_jk = alpha_k for volunteers
            add(top + np.arange(len(full)), self._a(j)[full])
        top += len(full)
        self._equalities = top
        for j in range(ends):  # a_j >= 0
            add(top + np.arange(n), self._a(j))
            top += n
        add(top, self._excess)  # e >= 0
        top += 1
        self._cap_row = top
        for j in range(ends):  # sum_j S_j a_jk <= alpha_k for the others
            add(top + np.arange(len(below)), self._a(j)[below])
        top += len(below)
        self._distance_row = top
        for j in range(ends):  # d_k^2 <= theta_k S (paid), >= (volunteers)
            add(top + np.arange(n), self._tau(j))
            add(top + np.arange(n), self._lam(j))
            add(top + np.arange(n)[:, None], self._c(j)[None, :])
        top += n
        self._budget_row = top
        for j in range(ends):
            add(top, self._a(j))
            add(top, self._c(j))
            add(top, self._tau(j))
            add(top, self._lam(j))
        top += 1
        self._loss_row = top
        for j in range(ends):
            add(top, self._a(j))
            add(top, self._tau(j))
        top += 1
        add(np.arange(self._distance_row, top), self._excess)  # these rows may be broken by e, at a price
        if self.kind == "wide":
            for j in range(ends):  # each mixture by itself, at the S of the interval that is kindest to it
                add(top + np.arange(n), self._a(j))
                add(top + np.arange(n), self._lam(j))
                top += n
                add(top + np.arange(len(full)), self._a(j)[full])
                add(top + np.arange(len(full)), self._lam(j))
                top += len(full)
                add(top + np.arange(n), self._tau(j))
                add(top + np.arange(n), self._lam(j))
                add(top + np.arange(n)[:, None], self._c(j)[None, :])
                add(top + np.arange(n), self._excess)
                top += n
        if self.kind == "narrow":
            tilt, shift = self._tilt, self._shift
            add(self._shift_row, tilt)  # shift = sum of tilts
            add(self._shift_row, shift)
            add(self._full_row + np.arange(len(full)), tilt[full])
            add(self._cap_row + np.arange(len(below)), tilt[below])
            add(self._distance_row + np.arange(n), shift)
            add(self._budget_row, tilt)
            for sign_row in (top, top + n):  # |tilt_k| <= z_k
                add(sign_row + np.arange(n), tilt)
                add(sign_row + np.arange(n), self._a(0))
            top += 2 * n
        self._linear = top - self._equalities
        self._cone_row = top
        for j in range(ends):  # (tau + lambda, tau - lambda, 2c) in the second-order cone
            add(top, [self._tau(j), self._lam(j)])
            add(top + 1, [self._tau(j), self._lam(j)])
            add(top + 2 + np.arange(r), self._c(j))
            top += r + 2
        self._height = top
        row, col = np.concatenate(rows), np.concatenate(cols)
        self._columns = ends * self._width + 1 + (n + 1 if self.kind == "narrow" else 0)
        # csc order of the coordinate list; the pattern has no duplicates
        self._order = np.lexsort((row, col))
        indptr = np.zeros(self._columns + 1, dtype=np.int64)
        np.add.at(indptr, col + 1, 1)
        self._indices, self._indptr = row[self._order], np.cumsum(indptr)
        self._column_of = col[self._order]
        self._cones = [
            clarabel.ZeroConeT(self._equalities),
            clarabel.NonnegativeConeT(self._linear),
            *[clarabel.SecondOrderConeT(r + 2) for _ in range(ends)],
        ]

    def _least(self, slope: Array) -> float:
        """Least value of ``slope . v`` over a set that holds every feasible v.

        There ``e = 0``, ``a >= 0`` and ``sum a = sum lambda = 1`` over both ends, ``tau_j <= lambda_j R`` and
        ``||c_j|| <= lambda_j sqrt(R)`` with R the largest ``||mu_k||^2``, so an end contributes in proportion to its lambda.
        """
        largest = float(self.problem.diagonal.max())
        tilted, shifted = np.zeros(self._n), 0.0
        if self.kind == "narrow":  # |tilt_k| <= a_k and |shift| <= 1
            tilted, shifted = np.abs(slope[self._tilt]), abs(float(slope[self._shift]))
        per_end = [
            min(slope[self._a(j)] - tilted)
            - shifted
            + slope[self._lam(j)]
            + min(slope[self._tau(j)], 0.0) * largest / self._unit**2
            - np.sqrt(largest) / self._unit * float(np.linalg.norm(slope[self._c(j)]))
            for j in range(self.ends)
        ]
        return float(min(per_end))

    def _values(
        self,
        at: Array,
        inverse: Array,
        half: float,
        decided: npt.NDArray[np.int8],
        shrink: float,
        penalty: float,
    ) -> tuple[Array, Array, Array]:
        """Matrix values (csc order), right-hand side and objective for ends ``at``; ``inverse`` stands for 1/S there.

        ``half`` is half the width of a narrow interval.
        """
        p, n, r, ends, unit = self.problem, self._n, self._r, self.ends, self._unit
        volunteer = self._volunteer
        full = int(volunteer.sum())
        sign = np.where(volunteer, -1.0, 1.0)
        values: list[Array] = [np.ones(ends)]
        for _ in range(ends):
            values += [np.ones(n), -np.ones(1), p.factor.T.ravel() / unit, -np.ones(r)]
        values += [np.full(full, s) for s in at]
        values += [-np.ones(n)] * ends
        values += [-np.ones(1)]
        values += [np.full(n - full, s) for s in at]
        for s in at:
            values += [
                unit**2 * sign,
                sign * (p.diagonal - p.theta * s),
                (-2.0 * unit * sign[:, None] * p.factor).ravel(),
            ]
        # a small budget must not be small beside the solver's tolerance
        strict = 1.0 / min(max(p.budget, 1e-4), 1.0)
        pay: list[tuple[Array, Array, float, float]] = []
        for s, inv in zip(at, inverse, strict=True):
            weight = p.alpha[volunteer] * inv
            pay.append(
                (
                    s * p.theta - p.diagonal,
                    -2.0 * unit * weight @ p.factor[volunteer],
                    unit**2 * (1.0 + float(weight.sum())),
                    float(weight @ p.diagonal[volunteer]),
                )
            )
            values += [strict * np.atleast_1d(part) for part in pay[-1]]
        loss = [inv * p.noise for inv in inverse]
        for on_a in loss:
            values += [on_a, np.array([unit**2])]
        values += [-np.ones(n + 2)]
        if self.kind == "wide":
            switch = np.where(decided == FREE, -_INERT, 0.0)
            kindest = np.where(volunteer, at[0], at[1])
            for _ in range(ends):
                values += [np.ones(n), -np.minimum(p.alpha / max(at[0], 1e-300), 1.0)]
                values += [-np.ones(full), p.alpha[volunteer] / at[1]]
                values += [
                    unit**2 * sign,
                    sign * (p.diagonal - p.theta * kindest) + switch,
                    (-2.0 * unit * sign[:, None] * p.factor).ravel(),
                    -np.ones(n),
                ]
        if self.kind == "narrow":
            values += [np.ones(n), -np.ones(1), np.full(full, half), np.full(n - full, half)]
            values += [-half * sign * p.theta, strict * half * p.theta]
            values += [np.ones(n), -np.ones(n), -np.ones(n), -np.ones(n)]
        for _ in range(ends):
            values += [np.array([-1.0, -1.0]), np.array([-1.0, 1.0]), np.full(r, -2.0)]

        saved = float((p.theta * p.alpha)[volunteer].sum())
        b = np.zeros(self._height)
        b[0] = 1.0
        b[self._full_row : self._full_row + full] = p.alpha[volunteer]
        b[self._cap_row : self._cap_row + n - full] = p.alpha[~volunteer]
        b[self._distance_row : self._distance_row + n] = np.where(decided == FREE, _INERT, 0.0)
        paid_out = p.budget * (1.0 - shrink) if np.isfinite(p.budget) else _INERT * (1.0 + p.theta.max())
        b[self._budget_row] = strict * (paid_out + saved)
        self._strict = strict
        b[self._loss_row] = p.loss_cap * (1.0 - shrink) - p.constant if np.isfinite(p.loss_cap) else _INERT

        q = np.zeros(self._columns)
        q[self._excess] = penalty
        for j in range(ends):
            q[self._a(j)] = p.loss_weight * loss[j]
            q[self._tau(j)] = p.loss_weight * unit**2
            if p.payment_weight:
                on_a, on_c, on_tau, on_lam = pay[j]
                q[self._a(j)] += p.payment_weight * on_a
                q[self._c(j)] += p.payment_weight * on_c
                q[self._tau(j)] += p.payment_weight * on_tau
                q[self._lam(j)] += p.payment_weight * on_lam
        if self.kind == "narrow":
            q[self._tilt] = p.payment_weight * half * p.theta
        self._offset = p.loss_weight * p.constant - p.payment_weight * saved
        return np.concatenate(values)[self._order], b, q / unit**2

    def solve(
        self,
        low: float,
        high: float,
        decided: npt.NDArray[np.int8],
        *,
        shrink: float = 0.0,
        penalty: float = 30.0,
    ) -> RelaxedPoint:
        """Bound the box [low, high], or solve exactly (for decided clients) at ``S = low = high`` with kind "point".

        ``shrink`` takes a relative part off the budget, so that a point found within the solver's tolerance stays within the
        budget itself; ``penalty`` is the price, in normalised loss, of breaking the budget or a distance row.
        """
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        at = np.array([low, high]) if self.kind == "wide" else np.array([middle])
        # 1/S is bounded from below by its tangent at the middle, on a narrow interval by its least value
        inverse = 2.0 / middle - at / middle**2 if self.kind != "narrow" else np.array([1.0 / high])
        data, b, q = self._values(at, inverse, half, decided, shrink, penalty)
        if self._solver is None:
            settings = clarabel.DefaultSettings()
            settings.verbose = False
            settings.presolve_enable = False
            settings.chordal_decomposition_enable = False
            settings.time_limit = self._time_limit
            settings.max_threads = 1 if self._n < 200 else 0
            settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
            nothing = sparse.csc_matrix((self._columns, self._columns))
            self._solver = clarabel.DefaultSolver(nothing, q, self._matrix(data), b, self._cones, settings)
        else:
            self._solver.update(q=q, A=data, b=b)
        answer = self._solver.solve()
        x, dual = np.asarray(answer.x), np.asarray(answer.z)
        infeasible = "PrimalInfeasible" in str(answer.status)
        n, p = self._n, self.problem
        nowhere = np.full(n, np.nan)
        if not np.isfinite(dual).all() or np.abs(dual).max() > 1e100:
            return RelaxedPoint(p.least_loss, nowhere, float("nan"), 0.0, float("nan"), False)
        dual = self._into_dual_cone(dual)
        slope = np.add.reduceat(data * dual[self._indices], self._indptr[:-1])  # A'y; no column is empty
        if not infeasible:
            slope = slope + q
        least = self._least(slope) - float(b @ dual)
        if infeasible:  # a ray: feasible points would have to make up for more than they can
            bound = np.inf if least > 0 else p.least_loss
            return RelaxedPoint(
                bound, nowhere, float("nan"), 0.0, float("nan"), False, 0.0 if least > 0 else np.inf
            )
        bound = max(self._unit**2 * least + self._offset, p.least_loss)
        mass = np.array([max(x[self._a(j)].sum(), 0.0) for j in range(self.ends)])
        z = np.maximum(sum(x[self._a(j)] for j in range(self.ends)), 0.0)
        if not np.isfinite(x).all() or mass.sum() <= 0 or z.sum() <= 0:
            return RelaxedPoint(bound, nowhere, float("nan"), 0.0, float("nan"), False)
        z = z / z.sum()
        total = float(at @ mass / mass.sum())
        if self.kind == "narrow":
            total += half * float(np.clip(x[self._shift], -1.0, 1.0))
        price = self._unit**2 * self._strict * float(dual[self._budget_row])
        status = str(answer.status)
        spread = self._spread(x, mass, at, z, total)
        kept = bool(x[self._excess] < 1e-6)
        slack = abs(self._unit**2 * float(q @ x) + self._offset - bound)
        if status == "Solved":
            slack = 0.0
        else:
            reached = np.bincount(self._indices, data * x[self._column_of], self._height)
            if float(np.abs(reached - b)[: self._equalities].max()) > 1e-7:
                slack = np.inf
        return RelaxedPoint(bound, z, total, spread, price, kept and "Solved" in status, slack)

    def _matrix(self, data: Array) -> Any:
        return sparse.csc_matrix((data, self._indices, self._indptr), shape=(self._height, self._columns))

    def _spread(self, x: Array, mass: Array, at: Array, z: Array, total: float) -> float:
        """How much of the relaxation's error a narrower interval would remove, roughly."""
        if self.ends == 1:
            return 0.0
        spread = 0.0
        share = mass / mass.sum()
        if share.min() > 1e-12:
            difference = self._unit * (x[self._c(0)] / mass[0] - x[self._c(1)] / mass[1])
            spread += float(share[0] * share[1] * (difference @ difference))
        brought = sum(s * x[self._a(j)] for j, s in enumerate(at))
        spread += float(np.abs(self.problem.theta @ (brought - total * z)))
        return spread + float(np.maximum(total * z - self.problem.alpha, 0.0).sum())

    def _into_dual_cone(self, dual: Array) -> Array:
        dual = dual.copy()
        line = slice(self._equalities, self._equalities + self._linear)
        dual[line] = np.maximum(dual[line], 0.0)
        top = self._cone_row
        for _ in range(self.ends):
            radius = float(np.linalg.norm(dual[top + 1 : top + self._r + 2]))
            dual[top] = max(dual[top], radius)
            top += self._r + 2
        return dual
