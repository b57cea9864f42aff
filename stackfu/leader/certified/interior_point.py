r"""The leader's problem at one total participation, by an interior-point method made for its structure.

Units are normalised (:mod:`stackfu.leader.certified.points`): the origin is the mixture the server would like, ``mu_k``
are the clients'
rows, ``u_k = alpha_k / S``, ``theta_k S`` stands against ``d_k^2 = ||m - mu_k||^2``. At fixed S the problem, with the
hull of "``e_k = 0`` or
``z_k = u_k``" for clients of whom it is not decided whether they take part fully and unpaid, is convex:

    minimise    w_loss loss + w_pay pay + M xi
    over        0 <= z_k <= u_k,  sum_k z_k = 1,  m = sum_k z_k mu_k,  e_k >= 0,  xi >= 0
    loss        = ||m||^2 + sum_k g_k z_k
    pay         = sum_k q_k z_k + ||m||^2 + sum_k u_k e_k
    such that   pay <= B + omega xi,   loss <= cap + xi
                d_k^2 - theta_k S <= e_k + xi                   (rows; multiplier P_k)
                e_k <= h_k z_k                                  (hull; e_k = 0 for the paid, no such row for those at full)

``xi`` lets rows be broken at a steep price, so that there always is an interior. Whoever is known to stay at 0 or at full
leaves the program (its part of every sum is a constant), and so does the row of whoever is known to be a volunteer: its ``e_k``
equals ``d_k^2 - theta_k S`` and goes into ``pay``.

Every quadratic form above is ``||m||^2`` plus something linear. A Newton step of the primal-dual method therefore has, besides
m, only a 2 x 2 block ``(z_k, e_k)`` for each client; eliminating these leaves ``2 r + 4`` unknowns (m, the multipliers y of ``m
= F'z``, xi, and the multipliers of the simplex, the budget and the cap), and one iteration costs ``O((columns + rows) r^2)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...model import Array
from ..tolerances import TINY

__all__ = ["Columns", "Constants", "Goal", "Rows", "SlicePoint", "solve_slice"]

Index = npt.NDArray[np.intp]

#: A step goes at most this share of the way to the boundary.
_TO_BOUNDARY = 0.995
#: Primal and dual residuals, relative to the data, below which a point counts as feasible.
_FEASIBLE = 1e-8
#: Start of the iteration: amounts keep this part of their caps away from both ends, slacks this part of their range.
_INSIDE = 1e-3
#: Units of the budget and of the objective are kept above these: a small number must not be small relative to the elastic slack.
_LEAST_BUDGET, _LEAST_UNIT = 1e-4, 1e-6
#: Part of the complementarity that is aimed at, at the least; and a step so short that nothing moves any more.
_LEAST_CENTRING, _NO_STEP = 1e-6, 1e-10


class Columns(NamedTuple):
    """Clients with an unknown share ``z_k`` in ``[0, u_k]``."""

    points: Array  # (n, r), mu_k
    cap: Array  # u_k
    pay: Array  # q_k = theta_k S - ||mu_k||^2
    loss: Array  # g_k = eta_k / S


class Rows(NamedTuple):
    """Clients with the imposed condition ``||m||^2 - 2 <m, mu_k> + offset_k <= e_k + xi``."""

    points: Array  # (n, r), mu_k
    offset: Array  # ||mu_k||^2 - theta_k S
    relief: Array  # what a unit of e_k adds to the payment: u_k; 0 where e_k must be 0
    hull: Array  # h_k in e_k <= h_k z_k; inf where e_k has no upper bound
    column: Index  # position of the client among the columns; -1 where hull is inf or relief 0


class Constants(NamedTuple):
    """Contribution of the clients outside the program."""

    mass: float  # sum of the fixed z_k
    point: Array  # (r,), sum of the fixed z_k mu_k
    pay: float
    loss: float
    square: float  # pay and loss aside, what ||m||^2 is multiplied with in pay, beyond 1: sum of u_k over the volunteers' rows
    pull: Array  # (r,), sum of u_k mu_k over the volunteers' rows: pay has -2 <m, pull>


class Goal(NamedTuple):
    """The minimised quantity, and the limits."""

    loss_weight: float
    pay_weight: float
    budget: float  # may be inf
    loss_cap: float  # may be inf
    penalty: float  # M


@dataclass(frozen=True, eq=False)
class SlicePoint:
    """A primal-dual point; ``gap`` is the complementarity that is left, in the units of the goal."""

    z: Array  # of the columns
    e: Array  # of the rows
    m: Array
    excess: float  # xi
    value: float  # of the goal, without the penalty
    price: float  # multiplier of the budget
    cap_price: float  # multiplier of the loss cap
    row_price: Array  # P_k of the rows
    threshold: float  # t: multiplier of the simplex, who costs less takes part
    gap: float
    residual: float
    iterations: int
    solved: bool


def solve_slice(
    columns: Columns,
    rows: Rows,
    constants: Constants,
    goal: Goal,
    *,
    tolerance: float = 1e-9,
    max_iterations: int = 100,
    stop: Callable[[], bool] | None = None,
) -> SlicePoint:
    """Minimise to a gap of ``tolerance`` times the loss's own size (``||m||^2`` at the start), or until ``stop`` says so.

    The answer is a point near the central path in any case; ``solved`` says whether the tolerance was reached.
    """
    return _Newton(columns, rows, constants, goal).run(tolerance, max_iterations, stop)


class _Newton:
    """The iterate, and one step. Names: ``a, b`` multipliers of ``z >= 0, z <= u``; ``f`` of ``e >= 0``; ``p`` (pi) of the
    hull; ``s*`` slacks.
    """

    def __init__(self, columns: Columns, rows: Rows, constants: Constants, goal: Goal) -> None:
        self.F, self.u, self.q, self.g = columns
        self.R, self.offset, self.relief, self.h, partner = rows
        self.constants, self.goal = constants, goal
        self.nc, self.nr, self.r = len(self.u), len(self.offset), self.F.shape[1]
        self.has_e = self.relief > 0
        self.hulled = np.flatnonzero(self.has_e & np.isfinite(self.h))
        self.partner = partner[self.hulled]
        self.hull = self.h[self.hulled]
        self.with_budget, self.with_cap = bool(np.isfinite(goal.budget)), bool(np.isfinite(goal.loss_cap))
        # a small budget must not be small relative to xi
        self.omega = min(max(goal.budget, _LEAST_BUDGET), 1.0) if self.with_budget else 1.0
        self._start()

    def _start(self) -> None:
        needed = 1.0 - self.constants.mass
        share = min(max(needed / float(self.u.sum()), _INSIDE), 1.0 - _INSIDE)
        self.z = self.u * share
        self.zu = self.u - self.z  # kept beside z: near the cap the difference would be rounding
        self.m = self.F.T @ self.z + self.constants.point
        size = float(self.m @ self.m) * (self.goal.loss_weight + self.goal.pay_weight)
        # objective in units of its own size at the start
        self.unit = max(size, _LEAST_UNIT)
        self.wl, self.ww = self.goal.loss_weight / self.unit, self.goal.pay_weight / self.unit
        self.penalty = self.goal.penalty / self.unit
        square = float(self.m @ self.m)
        values = square - 2.0 * self.R @ self.m + self.offset
        spread = max(float(np.abs(values).mean()) if self.nr else 0.0, _INSIDE)
        self.e = np.zeros(self.nr)
        self.e[self.has_e] = np.maximum(values[self.has_e], 0.0) + 0.1 * spread
        if len(self.hulled):
            self.e[self.hulled] = np.minimum(self.e[self.hulled], 0.5 * self.hull * self.z[self.partner])
        over = values - self.e
        self.xi = max(float(over.max(initial=0.0)), 0.0) + 0.1 * spread
        self.s = np.maximum(self.xi - over, 0.1 * spread)
        self.sh = np.maximum(
            self.hull * self.z[self.partner] - self.e[self.hulled], _INSIDE * self.hull * self.u[self.partner]
        )
        self.sB = (
            max(self.goal.budget + self.omega * self.xi - self._pay(), 0.1 * self.omega)
            if self.with_budget
            else 1.0
        )
        self.sC = max(self.goal.loss_cap + self.xi - self._loss(), 0.1) if self.with_cap else 1.0
        # multipliers on the central path of mu, but none beyond its natural size
        count = 2 * self.nc + self.nr + int(self.has_e.sum()) + len(self.hulled) + 2
        mu = 1.0 / count
        self.a, self.b = mu / self.z, mu / self.zu
        self.p = np.minimum(mu / self.sh, 1.0)
        self.f = np.where(self.has_e, np.minimum(mu / np.where(self.has_e, self.e, 1.0), 1.0), 0.0)
        self.P = np.minimum(mu / self.s, 1.0)
        self.nu = min(mu / self.sB, 1.0) if self.with_budget else 0.0
        self.chi = min(mu / self.sC, 1.0) if self.with_cap else 0.0
        self.kappa = max(
            self.penalty - self.omega * self.nu - self.chi - float(self.P.sum()), 0.1 * self.penalty
        )
        self.t = 0.0
        self.y = -self._m_slope()

    # ---------------------------------------------------------------- the functions

    def _pay(self) -> float:
        c = self.constants
        square = float(self.m @ self.m) * (1.0 + c.square)
        return float(self.q @ self.z + self.relief @ self.e + square - 2.0 * (c.pull @ self.m) + c.pay)

    def _loss(self) -> float:
        return float(self.m @ self.m + self.g @ self.z + self.constants.loss)

    def _weight(self) -> float:
        """Coefficient of ``||m||^2`` in the Lagrangian."""
        return self.wl + (self.ww + self.nu) * (1.0 + self.constants.square) + self.chi + float(self.P.sum())

    def _m_slope(self) -> Array:
        slope = 2.0 * self._weight() * self.m - 2.0 * (self.P @ self.R)
        return np.asarray(slope - 2.0 * (self.ww + self.nu) * self.constants.pull)

    def _complementarity(self) -> tuple[float, int]:
        total = float(
            self.a @ self.z + self.b @ self.zu + self.P @ self.s + self.f @ self.e + self.p @ self.sh
        )
        total += self.kappa * self.xi
        count = 2 * self.nc + self.nr + int(self.has_e.sum()) + len(self.hulled) + 1
        if self.with_budget:
            total, count = total + self.nu * self.sB, count + 1
        if self.with_cap:
            total, count = total + self.chi * self.sC, count + 1
        return total, count

    # ---------------------------------------------------------------- residuals and the reduced system

    def _residuals(self) -> None:
        c = self.constants
        self.rz = (
            (self.wl + self.chi) * self.g
            + (self.ww + self.nu) * self.q
            - self.a
            + self.b
            - self.t
            - self.F @ self.y
        )
        np.subtract.at(self.rz, self.partner, self.hull * self.p)
        self.re = np.where(self.has_e, (self.ww + self.nu) * self.relief - self.P - self.f, 0.0)
        self.re[self.hulled] += self.p
        self.rm = self._m_slope() + self.y
        self.rxi = self.penalty - self.omega * self.nu - self.chi - float(self.P.sum()) - self.kappa
        self.rt = float(self.z.sum()) + c.mass - 1.0
        self.ry = self.m - self.F.T @ self.z - c.point
        square = float(self.m @ self.m)
        self.rr = square - 2.0 * (self.R @ self.m) + self.offset - self.e - self.xi + self.s
        self.rB = self._pay() - self.omega * self.xi + self.sB - self.goal.budget if self.with_budget else 0.0
        self.rC = self._loss() - self.xi + self.sC - self.goal.loss_cap if self.with_cap else 0.0
        self.rh = self.e[self.hulled] - self.hull * self.z[self.partner] + self.sh

    def _residual(self) -> float:
        """Largest residual, relative to the terms it is made of."""
        primal = max(
            abs(self.rt),
            float(np.abs(self.ry).max(initial=0.0)),
            float(np.abs(self.rr).max(initial=0.0)),
            abs(self.rB) / self.omega,
            abs(self.rC),
            float((np.abs(self.rh) / (self.hull * self.u[self.partner])).max(initial=0.0)),
        )
        prices = self.wl + self.ww + self.nu + self.chi + float(self.P.sum())
        dual = max(
            float(np.abs(self.rz * self.u).sum()),
            float(np.abs(self.re * self.relief).sum())
            / max(float(self.relief.sum()), TINY)
            / max(float(self.relief.max(initial=0.0)), TINY),
            float(np.abs(self.rm).max()),
            abs(self.rxi) / self.penalty * prices,
        )
        return max(primal, dual / prices)

    def _factor(self) -> None:
        """The 2 x 2 blocks, and the matrix of the unknowns ``(m, xi, y, t, nu, chi)`` that are left."""
        r, hulled, partner, h = self.r, self.hulled, self.partner, self.hull
        wr = self.P / self.s
        wf = np.zeros(self.nr)
        wf[self.has_e] = self.f[self.has_e] / self.e[self.has_e]
        wh = self.p / self.sh
        bounds = self.a / self.z + self.b / self.zu
        zz = 1.0 / bounds
        ee, ze, kept = np.zeros(self.nr), np.zeros(self.nr), wr.copy()
        ee[self.has_e] = 1.0 / (wf + wr)[self.has_e]
        kept[self.has_e] = (wr * wf)[self.has_e] * ee[self.has_e]
        if len(hulled):
            others = wf[hulled] + wr[hulled]
            own = bounds[partner]
            # determinant and Schur complements written without cancellation
            det = own * (wh + others) + h * h * wh * others
            zz[partner] = (wh + others) / det
            ee[hulled] = (own + h * h * wh) / det
            ze[hulled] = h * wh / det
            kept[hulled] = wr[hulled] * (own * (wh + wf[hulled]) + h * h * wh * wf[hulled]) / det
        self.wr, self.wf, self.wh, self.zz, self.ee, self.ze = wr, wf, wh, zz, ee, ze
        self.E = 2.0 * (self.m - self.R)
        size = 2 * r + 4
        K = np.zeros((size, size))
        M, X, Y, T, B, C = slice(0, r), r, slice(r + 1, 2 * r + 1), 2 * r + 1, 2 * r + 2, 2 * r + 3
        scaled = np.sqrt(kept)[:, None] * self.E
        K[M, M] = scaled.T @ scaled
        K[M, M][np.diag_indices(r)] += 2.0 * self._weight()
        K[M, X] = -(self.E.T @ kept)
        K[X, X] = self.kappa / self.xi + float(kept.sum())
        scaled = np.sqrt(zz)[:, None] * self.F
        K[Y, Y] = -(scaled.T @ scaled)
        K[Y, T] = -(self.F.T @ zz)
        K[T, T] = -float(zz.sum())
        cross = wr[hulled] * ze[hulled]
        K[M, Y] = np.eye(r)
        if len(hulled):
            near = self.F[partner]
            K[M, Y] -= (self.E[hulled] * cross[:, None]).T @ near
            K[X, Y] = near.T @ cross
            K[M, T] = -(self.E[hulled].T @ cross)
            K[X, T] = float(cross.sum())
        q, g, relief = self.q, self.g, self.relief
        by_pay = ee * relief  # Minv (q, u) on e, and on z
        on_z = zz * q
        if len(hulled):
            by_pay[hulled] += ze[hulled] * q[partner]
            np.add.at(on_z, partner, ze[hulled] * relief[hulled])
        if self.with_budget:
            K[M, B] = self._pay_slope() + self.E.T @ (wr * by_pay)
            K[X, B] = -self.omega - float(wr @ by_pay)
            K[Y, B] = self.F.T @ on_z
            K[T, B] = float(on_z.sum())
            K[B, B] = -self.sB / self.nu - float(q @ on_z) - float(relief @ by_pay)
        else:
            K[B, B] = -1.0
        if self.with_cap:
            K[M, C] = 2.0 * self.m
            K[X, C] = -1.0
            if len(hulled):
                K[M, C] += self.E[hulled].T @ (cross * g[partner])
                K[X, C] -= float(cross @ g[partner])
            K[Y, C] = self.F.T @ (zz * g)
            K[T, C] = float(zz @ g)
            if self.with_budget:
                K[B, C] = -float(on_z @ g)
            K[C, C] = -self.sC / self.chi - float(zz @ (g * g))
        else:
            K[C, C] = -1.0
        upper = np.triu(K, 1)
        self.K = upper + upper.T + np.diag(np.diag(K))
        # equilibrate: the multipliers' scales differ by many orders
        self.scaling = 1.0 / np.sqrt(np.maximum(np.abs(self.K).max(axis=1), TINY))
        balanced = self.K * self.scaling[:, None] * self.scaling[None, :]
        from scipy.linalg.lapack import dgetrf

        *self.lu, info = dgetrf(balanced, overwrite_a=True)
        if info != 0:
            raise np.linalg.LinAlgError("the reduced system is singular")

    def _pay_slope(self) -> Array:
        return np.asarray(2.0 * (1.0 + self.constants.square) * self.m - 2.0 * self.constants.pull)

    def _solve_reduced(self, rhs: Array) -> Array:
        from scipy.linalg.lapack import dgetrs

        x = self.scaling * dgetrs(*self.lu, self.scaling * rhs)[0]
        for _ in range(2):
            x += self.scaling * dgetrs(*self.lu, self.scaling * (rhs - self.K @ x))[0]
        return np.asarray(x)

    def _direction(self, targets: dict[str, Array | float]) -> dict[str, Array | float]:
        """Newton direction towards complementarity products ``targets`` (given as residuals ``product - wanted``)."""
        r, hulled, partner, h = self.r, self.hulled, self.partner, self.hull
        ta, tb, tP, tf, tp = (np.asarray(targets[n]) for n in ("a", "b", "P", "f", "p"))
        tk, tB, tC = float(targets["kappa"]), float(targets["nu"]), float(targets["chi"])
        lift = -tP / self.s + self.wr * self.rr
        lift_h = -tp / self.sh + self.wh * self.rh
        cz = -self.rz - ta / self.z + tb / self.zu
        np.add.at(cz, partner, h * lift_h)
        ce = np.zeros(self.nr)
        he = self.has_e
        ce[he] = -self.re[he] + lift[he] - tf[he] / self.e[he]
        ce[hulled] -= lift_h
        # what the blocks alone would do
        z0 = self.zz * cz
        e0 = self.ee * ce
        if len(hulled):
            np.add.at(z0, partner, self.ze[hulled] * ce[hulled])
            e0[hulled] += self.ze[hulled] * cz[partner]
        size = 2 * r + 4
        M, X, Y, T, B, C = slice(0, r), r, slice(r + 1, 2 * r + 1), 2 * r + 1, 2 * r + 2, 2 * r + 3
        rhs = np.zeros(size)
        rhs[M] = -self.rm - self.E.T @ (lift - self.wr * e0)
        rhs[X] = -self.rxi - tk / self.xi + float((lift - self.wr * e0).sum())
        rhs[Y] = -self.ry + self.F.T @ z0
        rhs[T] = self.rt + float(z0.sum())
        if self.with_budget:
            rhs[B] = -self.rB + tB / self.nu - float(self.q @ z0) - float(self.relief @ e0)
        if self.with_cap:
            rhs[C] = -self.rC + tC / self.chi - float(self.g @ z0)
        x = self._solve_reduced(rhs)
        dm, dxi, dy, dt, dnu, dchi = x[M], float(x[X]), x[Y], float(x[T]), float(x[B]), float(x[C])
        line = self.E @ dm - dxi
        oz = self.F @ dy + dt - self.q * dnu - self.g * dchi
        oe = self.wr * line - self.relief * dnu
        dz = z0 + self.zz * oz
        de = e0 + self.ee * oe
        if len(hulled):
            np.add.at(dz, partner, self.ze[hulled] * oe[hulled])
            de[hulled] += self.ze[hulled] * oz[partner]
        de[~he] = 0.0
        ds = -self.rr - line + de
        dsh = -self.rh - de[hulled] + h * dz[partner]
        df = np.zeros(self.nr)
        df[he] = (-tf[he] - self.f[he] * de[he]) / self.e[he]
        out: dict[str, Array | float] = {
            "z": dz, "e": de, "m": dm, "xi": dxi, "s": ds, "sh": dsh, "y": dy, "t": dt, "nu": dnu, "chi": dchi,
            "a": (-ta - self.a * dz) / self.z,
            "b": (-tb + self.b * dz) / self.zu,
            "P": (-tP - self.P * ds) / self.s,
            "p": (-tp - self.p * dsh) / self.sh,
            "f": df,
            "kappa": (-tk - self.kappa * dxi) / self.xi,
            "sB": (-tB - self.sB * dnu) / self.nu if self.with_budget else 0.0,
            "sC": (-tC - self.sC * dchi) / self.chi if self.with_cap else 0.0,
        }  # fmt: skip
        return out

    def _products(self) -> dict[str, Array | float]:
        return {
            "a": self.a * self.z,
            "b": self.b * self.zu,
            "P": self.P * self.s,
            "f": self.f * self.e,
            "p": self.p * self.sh,
            "kappa": self.kappa * self.xi,
            "nu": self.nu * self.sB if self.with_budget else 0.0,
            "chi": self.chi * self.sC if self.with_cap else 0.0,
        }

    def _longest(self, d: dict[str, Array | float]) -> tuple[float, float]:
        he = self.has_e
        primal = [(self.z, d["z"]), (self.zu, -np.asarray(d["z"])), (self.s, d["s"]), (self.e[he], np.asarray(d["e"])[he]),
                  (self.sh, d["sh"]), (self.xi, d["xi"])]  # fmt: skip
        dual = [(self.a, d["a"]), (self.b, d["b"]), (self.P, d["P"]), (self.f[he], np.asarray(d["f"])[he]), (self.p, d["p"]),
                (self.kappa, d["kappa"])]  # fmt: skip
        if self.with_budget:
            primal.append((self.sB, d["sB"]))
            dual.append((self.nu, d["nu"]))
        if self.with_cap:
            primal.append((self.sC, d["sC"]))
            dual.append((self.chi, d["chi"]))
        return _to_boundary(primal), _to_boundary(dual)

    def _move(self, d: dict[str, Array | float], primal: float, dual: float) -> None:
        self.zu = self.zu - primal * d["z"]
        for name in ("z", "e", "m", "xi", "s", "sh", "sB", "sC"):
            setattr(self, name, getattr(self, name) + primal * d[name])
        for name in ("a", "b", "P", "f", "p", "kappa", "nu", "chi", "y", "t"):
            setattr(self, name, getattr(self, name) + dual * d[name])

    # ---------------------------------------------------------------- the method

    def run(
        self, tolerance: float, max_iterations: int, stop: Callable[[], bool] | None = None
    ) -> SlicePoint:
        solved = False
        iterations = 0
        residual = np.inf
        while iterations < max_iterations:
            self._residuals()
            total, count = self._complementarity()
            mu = total / count
            residual = self._residual()
            if total <= tolerance and residual <= max(_FEASIBLE, 0.1 * tolerance):
                solved = True
                break
            if stop is not None and stop():
                break
            try:
                self._factor()
                products = self._products()
                affine = self._direction(products)
                ap, ad = self._longest(affine)
                after = self._after(affine, min(1.0, ap), min(1.0, ad)) / count
                sigma = min(max((after / mu) ** 3, _LEAST_CENTRING), 0.9)
                if min(ap, ad) < 0.1:
                    sigma = max(sigma, 0.3)
                wanted = sigma * mu
                second = {
                    "a": products["a"] - wanted + _bounded(affine["a"] * affine["z"], mu),
                    "b": products["b"] - wanted - _bounded(affine["b"] * affine["z"], mu),
                    "P": products["P"] - wanted + _bounded(affine["P"] * affine["s"], mu),
                    "f": np.where(
                        self.has_e, products["f"] - wanted + _bounded(affine["f"] * affine["e"], mu), 0.0
                    ),
                    "p": products["p"] - wanted + _bounded(affine["p"] * affine["sh"], mu),
                    "kappa": products["kappa"] - wanted + _bounded(affine["kappa"] * affine["xi"], mu),
                    "nu": products["nu"] - wanted + _bounded(affine["nu"] * affine["sB"], mu)
                    if self.with_budget
                    else 0.0,
                    "chi": products["chi"] - wanted + _bounded(affine["chi"] * affine["sC"], mu)
                    if self.with_cap
                    else 0.0,
                }
                d = self._direction(second)
            except (np.linalg.LinAlgError, ValueError):
                break
            if not all(np.isfinite(v).all() for v in d.values()):
                break
            ap, ad = self._longest(d)
            ap, ad = min(1.0, _TO_BOUNDARY * ap), min(1.0, _TO_BOUNDARY * ad)
            if max(ap, ad) < _NO_STEP:
                break
            self._move(d, ap, ad)
            iterations += 1
        return self._answer(residual, iterations, solved)

    def _after(self, d: dict[str, Array | float], primal: float, dual: float) -> float:
        """Complementarity after a step."""
        z, e, s, sh = (getattr(self, n) + primal * d[n] for n in ("z", "e", "s", "sh"))
        a, b, P, f, p = (getattr(self, n) + dual * d[n] for n in ("a", "b", "P", "f", "p"))
        total = float(a @ z + b @ (self.zu - primal * d["z"]) + P @ s + f @ e + p @ sh)
        total += (self.kappa + dual * float(d["kappa"])) * (self.xi + primal * float(d["xi"]))
        if self.with_budget:
            total += (self.nu + dual * float(d["nu"])) * (self.sB + primal * float(d["sB"]))
        if self.with_cap:
            total += (self.chi + dual * float(d["chi"])) * (self.sC + primal * float(d["sC"]))
        return total

    def _answer(self, residual: float, iterations: int, solved: bool) -> SlicePoint:
        unit = self.unit
        total, _ = self._complementarity()
        value = self.goal.loss_weight * self._loss() + (
            self.goal.pay_weight * self._pay() if self.goal.pay_weight else 0.0
        )
        return SlicePoint(
            z=np.minimum(self.z, self.u),
            e=self.e,
            m=self.m,
            excess=self.xi,
            value=value,
            price=unit * self.nu,
            cap_price=unit * self.chi,
            row_price=unit * self.P,
            threshold=unit * self.t,
            gap=unit * total,
            residual=residual,
            iterations=iterations,
            solved=solved,
        )


def _bounded(product: Array | float, mu: float) -> Array | float:
    """Second-order terms of a long affine step are worth no more than a few mu."""
    return np.clip(product, -10.0 * mu, 10.0 * mu)


def _to_boundary(pairs: list[tuple[Array | float, Array | float]]) -> float:
    """Largest step that keeps every value non-negative."""
    longest = np.inf
    for value, step in pairs:
        value, step = np.atleast_1d(value), np.atleast_1d(step)
        falling = step < 0
        if falling.any():
            longest = min(longest, float((value[falling] / -step[falling]).min()))
    return longest
