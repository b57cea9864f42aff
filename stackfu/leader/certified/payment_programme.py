"""The leader's problem at one total participation S as a second-order cone programme, built from named blocks.

At fixed S everything is convex but the choice "paid or volunteer" of undecided clients, with the hull

    D_k - theta_k S <= e_k,      0 <= e_k,      v (D_k - theta_k S) <= (R_k - theta_k S) z_k / alpha_k

(:mod:`stackfu.leader.certified.payment_bound`). Budget, loss cap and distance rows may be broken by a common ``excess`` at a
linear price: every S then has a solution and bounded multipliers, and an S that is infeasible by a hair shows as a
high value instead of an inconclusive answer.

Every entry of the programme is ``constant + per_s S + per_v / S`` (and the right-hand sides have a term in 1/S^2), so
moving to another S is three vector additions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import clarabel
import numpy as np

from ...jit import clock
from ...model import Array
from ..cone import Blocks, quiet_settings
from .payment_bound import Classes, Multipliers, box_margin
from .payment_problem import HELD_BACK_AT_MOST, LeaderProblem
from .polish import ActiveSet, polish, polish_with_total
from .sifting import Restriction, Slice, solve_at

__all__ = ["PointAnswer", "PointProgramme"]

#: Tolerance asked of the cone solver. What it really reached does not matter: any multipliers give a valid bound.
SOLVER_TOLERANCE = 1e-9
#: An answer that breaks its rows by no more than this holds them: the cone solver's inaccuracy.
HELD = 1e-7
#: Value and bound of a polished answer agree to this, relative to the value.
ACCURATE = 1e-9
#: Negative multipliers of volunteers below this part of the largest are zero.
NOISE = 1e-8
#: Budgets, and rooms below loss caps, are scaled to 1 down to these sizes. Below, polishing has to tell how much may be spent: at
#: totals where nothing is feasible a steeper row would make the programme ill-conditioned.
SMALLEST_BUDGET = 1e-4
SMALLEST_ROOM = 1e-8
#: Errors of the hull below this are rounding.
NO_SPLIT = 1e-12
#: Singular values below this part of the largest are zero: clients that depend affinely on each other make the system singular.
SINGULAR = 1e-13


@dataclass(frozen=True, eq=False)
class PointAnswer:
    """Solution of the convex problem at one total: a mixture, multipliers, and the distance of undecided clients from being
    decided."""

    total: float
    z: Array
    multipliers: Multipliers
    classes: Classes  # what was known about the clients
    value: float  # of the relaxation at z
    bound: float  # what the multipliers prove at this total
    excess: float  # what budget and rows are broken by
    split: Array  # (u_k - z_k) u_k e_k of undecided clients: what the hull gets wrong
    active: ActiveSet | None


def answer_at(
    problem: LeaderProblem,
    classes: Classes,
    total: float,
    z: Array,
    rows: Array,
    budget: float,
    loss_cap: float,
    excess: float = 0.0,
    active: ActiveSet | None = None,
) -> PointAnswer:
    """Shares and multipliers put together, judged by their value and their bound."""
    p, s = problem, total
    # a negative multiplier binds a certificate to what is known about the client; one that is noise is none
    rows = np.where((rows < 0.0) & (rows > -NOISE * float(np.abs(rows).max(initial=0.0))), 0.0, rows)
    mass = float(z.sum())
    centre = (z @ p.points) / mass
    square = float(centre @ centre)
    y = Multipliers.of(p, s, 1.0, budget, loss_cap, 0.0, rows, centre).at_best_level(p, classes)
    gain = p.diagonal - 2.0 * (p.points @ centre) + square + 0.5 * p.client_sampling / s - p.theta * s
    value = p.loss_weight * (
        p.loss_square * square
        - 2.0 * float(p.loss_pull @ z)
        + p.loss_constant
        + (float(p.noise @ z) + p.loss_sampling) / s
    )
    free = ~(classes.paid | classes.volunteer)
    over = np.where(classes.paid, 0.0, np.maximum(gain, 0.0))
    if p.payment_weight:
        value += p.payment_weight * p.payment_unit * (float(p.alpha @ over) / s - float(z @ gain))
    room = p.alpha / s
    split = np.where(free, (room - z) * room * over, 0.0)
    bound = box_margin(p, s, s, y, y, classes, 0.0)
    return PointAnswer(s, z, y, classes, value, bound, excess, np.where(split > NO_SPLIT, split, 0.0), active)


class _Spend(NamedTuple):
    """Terms of the spend over U: per variable its slope, also per S and per ``v = 1 / S``, and the constant."""

    slopes: dict[str, tuple[Any, Any, Any]]
    fixed: float
    per_v: float
    per_v2: float


class PointProgramme:
    """The relaxation at fixed S for one set of decided clients; built once, then moved from S to S."""

    def __init__(
        self,
        problem: LeaderProblem,
        classes: Classes,
        radius: float,
        penalty: float,
        shrink: float,
        deadline: float = np.inf,
    ) -> None:
        self._deadline = deadline  # by :func:`stackfu.jit.clock`; the cone solver stops there
        self.problem, self.classes = problem, classes
        self.unit = radius
        self.penalty, self.shrink = penalty, shrink
        self._build(shrink)
        self._solver: Any = None

    def _build(self, shrink: float) -> None:
        volunteer, paid = self.classes.volunteer, self.classes.paid
        free = ~(volunteer | paid)
        self._free, self._full, self._below = (np.flatnonzero(m) for m in (free, volunteer, ~volunteer))
        self.blocks, self._strict = Blocks(), 0.0
        spend = self._spend()
        self._shares()
        self._distances(shrink)
        self._hulls()
        if np.isfinite(self.problem.budget):
            self._budget(spend)
        if np.isfinite(self.problem.loss_cap):
            self._loss_cap(shrink)
        self.blocks.square("tau", "c")
        self._objective(spend)
        self.blocks.finish()

    def _shares(self) -> None:
        """The variables, and what makes a mixture of shares."""
        blocks, p = self.blocks, self.problem
        (n, r), full, below = p.points.shape, self._full, self._below
        gains, every = np.arange(len(self._free)), np.arange(n)
        blocks.variable("z", n)  # the mixture
        blocks.variable("c", r)  # its embedding over unit
        blocks.variable("tau", 1)  # at least ||c||^2
        blocks.variable("e", len(gains))  # what an undecided client would gain beyond indifference
        blocks.variable("excess", 1)

        blocks.block("mixture", 1, clarabel.ZeroConeT)  # sum z = 1
        blocks.entries("mixture", "z", 0, every, 1.0)
        blocks.right("mixture", 1.0)
        blocks.block("embedding", r, clarabel.ZeroConeT)  # F'z = unit c
        blocks.entries("embedding", "z", np.arange(r)[:, None], every[None, :], p.points.T / self.unit)
        blocks.entries("embedding", "c", np.arange(r), np.arange(r), -1.0)
        blocks.block("full", len(full), clarabel.ZeroConeT)  # z_k = alpha_k / S for volunteers
        blocks.entries("full", "z", np.arange(len(full)), full, 1.0)
        blocks.right("full", per_v=p.alpha[full])
        blocks.block("cap", len(below), clarabel.NonnegativeConeT)  # z_k <= alpha_k / S for the others
        blocks.entries("cap", "z", np.arange(len(below)), below, 1.0)
        blocks.right("cap", per_v=p.alpha[below])
        blocks.block("share", len(below), clarabel.NonnegativeConeT)  # z >= 0
        blocks.entries("share", "z", np.arange(len(below)), below, -1.0)
        blocks.block("gain", len(gains), clarabel.NonnegativeConeT)  # e >= 0
        blocks.entries("gain", "e", gains, gains, -1.0)
        blocks.block("slack", 1, clarabel.NonnegativeConeT)  # excess >= 0
        blocks.entries("slack", "excess", 0, 0, -1.0)

    def _distances(self, shrink: float) -> None:
        """``D_k - theta_k S <= e_k`` (undecided), 0 (paid); >= 0 for volunteers."""
        blocks, p, unit, f = self.blocks, self.problem, self.unit, self._free
        n, r = p.points.shape
        every, sign = np.arange(n), np.where(self.classes.volunteer, -1.0, 1.0)
        blocks.block("distance", n, clarabel.NonnegativeConeT)
        blocks.entries("distance", "tau", every, 0, unit * unit * sign)
        blocks.entries(
            "distance", "c", every[:, None], np.arange(r)[None, :], -2.0 * unit * sign[:, None] * p.points
        )
        blocks.entries("distance", "e", f, np.arange(len(f)), -1.0)
        blocks.entries("distance", "excess", every, 0, -1.0)
        blocks.right(
            "distance",
            -sign * p.diagonal,
            per_s=sign * p.theta * (1.0 - shrink * sign),
            per_v=-sign * (0.5 * p.client_sampling),
        )

    def _hulls(self) -> None:
        """``v (D_k - theta_k S) <= (R_k - theta_k S) z_k / alpha_k`` for the undecided."""
        blocks, p, unit, f = self.blocks, self.problem, self.unit, self._free
        at, r = np.arange(len(f)), p.points.shape[1]
        roof = np.maximum(self.classes.ceiling[f], p.theta[f])
        blocks.block("hull", len(f), clarabel.NonnegativeConeT)
        blocks.entries("hull", "tau", at, 0, per_v=unit * unit)
        blocks.entries("hull", "c", at[:, None], np.arange(r)[None, :], per_v=-2.0 * unit * p.points[f])
        blocks.entries("hull", "z", at, f, -roof / p.alpha[f], per_s=p.theta[f] / p.alpha[f])
        blocks.entries("hull", "excess", at, 0, -1.0)
        blocks.right("hull", p.theta[f], per_v=-p.diagonal[f], per_v2=-0.5 * p.client_sampling)

    def _spend(self) -> _Spend:
        """Spend over U, for the row of the budget and for the objective."""
        p, unit, full = self.problem, self.unit, self._full
        owned, half_a, u2 = p.alpha[full], 0.5 * p.client_sampling, unit * unit
        saved = float(owned @ p.theta[full])  # volunteers: alpha_k (v D_k - theta_k)
        return _Spend(
            {
                "z": (-p.diagonal, p.theta, 0.0),
                "tau": (u2, 0.0, u2 * owned.sum()),
                "c": (0.0, 0.0, -2.0 * unit * (owned @ p.points[full])),
                "e": (0.0, 0.0, p.alpha[self._free]),
            },
            -saved,
            float(owned @ p.diagonal[full]) - half_a,
            half_a * owned.sum(),
        )

    def _budget(self, spend: _Spend) -> None:
        """Keep the spend within the budget, scaled so that a small budget is not small relative to the solver's tolerance."""
        blocks, p = self.blocks, self.problem
        strict = self._strict = 1.0 / min(max(p.budget / p.payment_unit, SMALLEST_BUDGET), 1.0)
        blocks.block("budget", 1, clarabel.NonnegativeConeT)
        for name, (c0, c1, c2) in spend.slopes.items():
            size = blocks.variables[name].stop - blocks.variables[name].start
            blocks.entries(
                "budget",
                name,
                0,
                np.arange(size),
                strict * np.asarray(c0),
                strict * np.asarray(c1),
                strict * np.asarray(c2),
            )
        blocks.entries("budget", "excess", 0, 0, -1.0)
        limit = p.usable_budget(0.0)
        lost = min(p.spend_rounding, HELD_BACK_AT_MOST * p.budget / p.payment_unit)
        blocks.right(
            "budget",
            strict * (limit - spend.fixed),
            per_s=-strict * lost,
            per_v=-strict * spend.per_v,
            per_v2=-strict * spend.per_v2,
        )

    def _loss_cap(self, shrink: float) -> None:
        """Keep the loss below its cap, scaled so that the margin above the least loss is not small relative to the tolerance."""
        blocks, p = self.blocks, self.problem
        narrow = self._narrow = 1.0 / min(max(p.loss_cap - p.nearest_loss, SMALLEST_ROOM), 1.0)
        every = np.arange(len(p.points))
        blocks.block("loss", 1, clarabel.NonnegativeConeT)
        blocks.entries("loss", "tau", 0, 0, narrow * (self.unit * self.unit) * p.loss_square)
        blocks.entries("loss", "z", 0, every, -2.0 * narrow * p.loss_pull, per_v=narrow * p.noise)
        blocks.entries("loss", "excess", 0, 0, -1.0)
        blocks.right(
            "loss", narrow * (p.loss_cap * (1.0 - shrink) - p.loss_constant), per_v=-narrow * p.loss_sampling
        )

    def _objective(self, spend: _Spend) -> None:
        blocks, p = self.blocks, self.problem
        blocks.cost("tau", p.loss_weight * p.loss_square * (self.unit * self.unit))
        blocks.cost("z", -2.0 * p.loss_weight * p.loss_pull, per_v=p.loss_weight * p.noise)
        if p.payment_weight:
            for name, (c0, c1, c2) in spend.slopes.items():
                w = p.payment_weight * p.payment_unit
                blocks.cost(name, w * np.asarray(c0), w * np.asarray(c1), w * np.asarray(c2))
        blocks.cost("excess", self.penalty)

    def _start(self, data: Array, b: Array, q: Array) -> None:
        settings = quiet_settings(SOLVER_TOLERANCE)
        settings.presolve_enable = False  # the solver is moved from S to S: its rows must stay
        settings.chordal_decomposition_enable = False
        self._solver = self.blocks.solver(data, b, q, settings)
        if np.isfinite(self._deadline):
            self._solver.set_termination_callback(lambda _: clock() > self._deadline)

    def solve(self, total: float) -> PointAnswer | None:
        """Return the relaxation at S; None if the solver has no usable answer."""
        data, b, q = self.blocks.at(total)
        unit_cost = 1.0 / self.unit**2
        if self._solver is None:
            self._start(data, b, q * unit_cost)
        else:
            self._solver.update(q=q * unit_cost, A=data, b=b)
        answer = self._solver.solve()
        x, dual = np.asarray(answer.x), np.asarray(answer.z) / unit_cost
        if not (np.isfinite(x).all() and np.isfinite(dual).all()):
            return None
        rough = self._read(total, x, dual)
        if rough is None or rough.excess > HELD:
            return rough
        return warm(self.problem, self.classes, rough, total, self.shrink) or rough

    def _read(self, total: float, x: Array, dual: Array) -> PointAnswer | None:
        """Shares and multipliers of an interior point, and its active set as a guess for polishing."""
        p, rows, columns, classes = self.problem, self.blocks.rows, self.blocks.variables, self.classes
        full, free, below = self._full, self._free, self._below
        n, u = len(p.alpha), p.alpha / total
        budget = (
            self._strict * max(float(dual[rows["budget"]][0]), 0.0) / p.payment_unit if self._strict else 0.0
        )
        cap = self._narrow * max(float(dual[rows["loss"]][0]), 0.0) if "loss" in rows else 0.0
        nu = p.payment_unit * (p.payment_weight + budget)
        steep = np.maximum(dual[rows["distance"]], 0.0)
        pushed = np.maximum(dual[rows["hull"]], 0.0)
        multipliers = steep.copy()
        multipliers[full] = nu * u[full] - steep[full]
        multipliers[free] += pushed / total
        z = np.clip(x[columns["z"]], 0.0, u)
        z[full] = u[full]
        if z.sum() <= 0.0:
            return None
        at_zero, at_cap, gain, no_gain, hull = np.zeros((5, n))
        at_zero[below], at_cap[below] = dual[rows["share"]], dual[rows["cap"]]
        gain[free], no_gain[free] = np.maximum(x[columns["e"]], 0.0), dual[rows["gain"]]
        hull[free] = pushed
        guess = ActiveSet.read(p, classes, total, z, budget, cap, at_zero, at_cap, steep, gain, no_gain, hull)
        excess = max(float(x[columns["excess"]][0]), 0.0)
        return answer_at(p, classes, total, z, multipliers, budget, cap, excess, guess)


def by_slice(
    problem: LeaderProblem,
    classes: Classes,
    total: float,
    penalty: float,
    shrink: float,
    stop: Callable[[], bool],
) -> PointAnswer | None:
    """Return the relaxation at S by the interior-point method made for it, without the rows of volunteers; to be polished."""
    roof = np.where(
        classes.paid, classes.ceiling, np.maximum(classes.ceiling, problem.theta)
    )  # as in polishing
    known = Restriction(classes.paid, classes.volunteer, roof)
    found = solve_at(problem, total, known, penalty=penalty, held_back=shrink, stop=stop)
    p, y, u = problem, found.prices, problem.alpha / total
    z = np.clip(found.z, 0.0, u)
    if not (np.isfinite(y.rows).all() and np.isfinite(z).all()) or z.sum() <= 0.0:
        return None
    # multipliers are those of complementary pairs: what a share's price or a row's leaves over belongs to its limits
    nu = p.payment_unit * (p.payment_weight + y.budget)
    price = Slice(p, total, known).cost(y.budget, y.cap, y.rows, y.inner, y.pulled) - y.level
    beyond = y.rows - nu * u
    guess = ActiveSet.read(
        p, classes, total, z, y.budget, y.cap,
        at_zero=np.maximum(price, 0.0),
        at_cap=np.maximum(-price, 0.0),
        steep=np.where(classes.volunteer, np.maximum(-beyond, 0.0), np.where(classes.paid, y.rows, np.minimum(y.rows, nu * u))),
        gain=found.excess_unpaid,
        no_gain=np.maximum(-beyond, 0.0),
        hull=total * np.maximum(beyond, 0.0),
    )  # fmt: skip
    return answer_at(p, classes, total, z, y.rows, y.budget, y.cap, found.broken, guess)


def tolerance(problem: LeaderProblem, answer: PointAnswer) -> float:
    """Return the largest difference of value and bound of a good answer: rounding, and the reserve of the budget."""
    held_back = 0.0
    if answer.multipliers.budget:
        held_back = answer.multipliers.budget * (
            problem.budget - problem.usable_budget(answer.total) * problem.payment_unit
        )
    return ACCURATE * abs(answer.value) + 2.0 * held_back


def warm(
    problem: LeaderProblem, classes: Classes, near: PointAnswer, total: float, shrink: float
) -> PointAnswer | None:
    """Solve at ``total`` from the active set of an answer nearby, without an interior point method; None if that
    fails."""
    if near.active is None:
        return None
    guess = near.active.fitted(classes)
    y = near.multipliers
    found = polish(
        problem, classes, total, shrink, near.z * (near.total / total), y.rows, y.budget, y.loss_cap, guess
    )
    if found is None:
        return None
    z, rows, budget, loss_cap = found
    z = np.clip(z, 0.0, problem.alpha / total)
    rows = np.where(classes.volunteer, rows, np.maximum(rows, 0.0))
    if z.sum() <= 0.0:
        return None
    better = answer_at(problem, classes, total, z, rows, budget, loss_cap, 0.0, guess)
    # a wrong guess shows as a value that the bound contradicts, in either direction
    error = abs(better.value - better.bound)
    good = error <= tolerance(problem, better) or (
        near.total == total and better.value >= better.bound and error < near.value - near.bound
    )
    return better if good and abs(z.sum() - 1.0) <= HELD else None


def optimum(problem: LeaderProblem, classes: Classes, near: PointAnswer, shrink: float) -> PointAnswer | None:
    """Return the local optimum over S as well, from an answer nearby, with multipliers that do not change with S; None if that
    fails."""
    if near.active is None or near.excess > HELD:
        return None
    guess = near.active.fitted(classes)
    y = near.multipliers
    found = polish_with_total(
        problem, classes, near.total, shrink, near.z, y.rows, y.level, y.budget, y.loss_cap, guess
    )
    if found is None:
        return None
    total, z, rows, budget, loss_cap = found
    z = np.clip(z, 0.0, problem.alpha / total)
    rows = np.where(classes.volunteer, rows, np.maximum(rows, 0.0))
    better = answer_at(problem, classes, total, z, rows, budget, loss_cap, 0.0, guess)
    good = abs(better.value - better.bound) <= tolerance(problem, better) and abs(z.sum() - 1.0) <= HELD
    return better if good else None


def companion(problem: LeaderProblem, classes: Classes, of: PointAnswer, total: float) -> PointAnswer | None:
    """Another total at the prices of an answer: its budget, cap and row multipliers, and the mixture and level best for them.

    At an optimum over S the Lagrangian with these prices is least there, on both sides and whether or not the other
    totals are feasible. The mixture solves ``2 T <mu_i, m> + rest_i = t`` on the shares that move, ``sum z = 1``; shares
    that leave their limits are fixed there.
    """
    if of.active is None:
        return None
    p, s, y = problem, total, of.multipliers
    v = 1.0 / s
    u = p.alpha * v
    nu = p.payment_unit * (p.payment_weight + y.budget)
    ell = p.loss_weight + y.loss_cap
    rows = np.where(of.active.eager, nu * u, y.rows)
    weight = ell * p.loss_square + nu + float(rows.sum())
    rest = (
        -2.0 * (p.points @ (rows @ p.points) + ell * p.loss_pull)
        + nu * (p.theta * s - p.diagonal)
        + ell * v * p.noise
    )
    moving, capped = of.active.moving.copy(), of.active.capped & ~of.active.moving
    for _ in range(len(u)):
        at = np.flatnonzero(moving)
        z = np.where(capped, u, 0.0)
        if len(at):
            fixed = z @ p.points
            rows_at = p.points[at]
            k = len(at)
            system = np.zeros((k + 1, k + 1))
            system[:k, :k] = 2.0 * weight * (rows_at @ rows_at.T)
            system[:k, k], system[k, :k] = -1.0, 1.0
            right = np.append(-rest[at] - 2.0 * weight * (rows_at @ fixed), 1.0 - z.sum())
            try:
                z[at] = np.linalg.lstsq(system, right, rcond=SINGULAR)[0][:k]
            except np.linalg.LinAlgError:
                return None
        low, high = moving & (z < 0.0), moving & (z > u)
        if not (low.any() or high.any()):
            break
        moving, capped = moving & ~low & ~high, capped | high
    z = np.clip(z, 0.0, u)
    if z.sum() <= 0.0:
        return None
    return answer_at(p, classes, s, z, rows, y.budget, y.loss_cap, of.excess, of.active)
