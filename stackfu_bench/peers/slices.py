"""The leader's convex program at one total participation, written down for general solvers, and PDHG for it.

With the volunteers decided and ``tau >= ||m||^2`` everything else is linear, so a general conic solver sees one small second-order
cone and many linear rows: the form that favours it most. Minimised is ``tau`` over shares z, ``m = F'z``, subject to

    sum z = 1,  0 <= z <= u,    pay.z + (1 + s) tau - 2 pull.m <= B,    tau - 2 <mu_k, m> <= o_k  for every paid client k.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

import stackfu as sf
from stackfu.leader.certified.normalised import normalised
from stackfu.leader.certified.sifting import Restriction, SliceAnswer, solve_at


@dataclass(frozen=True, eq=False)
class Slice:
    """The program's data; ``relaxed`` asks stackfu for the same."""

    points: np.ndarray  # (n, r)
    cap: np.ndarray
    pay: np.ndarray
    square: float  # s
    pull: np.ndarray
    budget: float
    rows: np.ndarray  # (k, r)
    offset: np.ndarray
    problem: object
    total: float
    restriction: Restriction

    @classmethod
    def of(cls, game: sf.StackelbergGame, budget: float) -> Slice:
        """The program a little above the unpaid total, who volunteers there being those who do at the unpaid mixture."""
        problem = normalised(game, sf.Objective(budget))
        unpaid = game.equilibrium()
        total = 1.05 * unpaid.total
        distances = game.profile(unpaid.participation).to_clients / problem.unit_square
        full = distances > problem.theta * total
        points = problem.place.rows(np.arange(game.count))
        cap, wanted = problem.alpha / total, problem.theta * total
        square = np.einsum("ij,ij->i", points, points)
        # a volunteer's part of the payment is cap (||m - mu||^2 - wanted), its z the cap: its price is what is left of both
        fixed = np.where(full, cap, 0.0)
        constant = float(fixed @ (square - wanted))
        return cls(
            points, cap, wanted - square, float(fixed.sum()), fixed @ points, problem.budget - constant,
            points[~full], (wanted - square)[~full], problem, total, Restriction(~full, full, problem.reach),
        )  # fmt: skip

    def by_stackfu(self, enough: float) -> SliceAnswer:
        """The structured interior-point method with sifting."""
        return solve_at(self.problem, self.total, self.restriction, enough=enough)

    def by_cone_solver(self, name: str, **options: float) -> tuple[float, np.ndarray | None]:
        """Processor seconds and shares from a solver that cvxpy knows; compiling the model does not count."""
        import cvxpy as cp

        n, r = self.points.shape
        z, m, tau = cp.Variable(n), cp.Variable(r), cp.Variable()
        full = self.restriction.full
        rules = [z >= 0, z <= self.cap, cp.sum(z) == 1, m == self.points.T @ z, tau >= cp.sum_squares(m)]
        rules += [z[full] == self.cap[full]] if full.any() else []
        rules += [self.pay @ z + (1 + self.square) * tau - 2 * self.pull @ m <= self.budget]
        rules += [tau - 2 * self.rows @ m <= self.offset]
        program = cp.Problem(cp.Minimize(tau), rules)
        data, chain, inverse = program.get_problem_data(name, solver_opts=options)
        began = time.process_time()
        try:
            raw = chain.solve_via_data(program, data, solver_opts=options)
            took = time.process_time() - began
            program.unpack_results(raw, chain, inverse)
        except (cp.error.SolverError, ValueError):
            return time.process_time() - began, None
        return took, None if z.value is None else np.asarray(z.value)

    def by_pdhg(self, seconds: float, best: float, close: float) -> tuple[float, np.ndarray | None]:
        """Primal-dual hybrid gradient with diagonal steps, restarted at averages; until it is ``close`` to the best value known."""
        n, r = self.points.shape
        k = len(self.rows)
        full = self.restriction.full
        low = np.where(full, self.cap, 0.0)
        # rows: m - F'z = 0 (r), sum z = 1, budget, the paid clients' conditions
        row_f, col_f = np.abs(self.points).sum(axis=0), np.abs(self.points).sum(axis=1)
        scale_pay = 1.0 / max(float(np.abs(self.pay).max()), 1.0)
        pay, pull = scale_pay * self.pay, scale_pay * self.pull
        pay_tau, budget = scale_pay * (1 + self.square), scale_pay * self.budget
        step_z = 1.0 / (col_f + 1.0 + np.abs(pay))
        step_m = 1.0 / float((1.0 + 2 * np.abs(pull) + 2 * np.abs(self.rows).sum(axis=0)).max())
        step_tau = min(1.0 / (pay_tau + k), step_m)
        sigma = (
            1.0 / (1.0 + row_f),
            1.0 / n,
            1.0 / (float(np.abs(pay).sum()) + pay_tau + 2 * float(np.abs(pull).sum())),
            1.0 / (1.0 + 2 * np.abs(self.rows).sum(axis=1)),
        )
        z, m, tau = np.clip(self.cap / self.cap.sum(), low, self.cap), np.zeros(r), 0.0
        y, t, nu, p = np.zeros(r), 0.0, 0.0, np.zeros(k)
        total, count, period = [np.zeros(n), np.zeros(r), 0.0, np.zeros(r), 0.0, 0.0, np.zeros(k)], 0, 200
        began, steps = time.process_time(), 0
        while time.process_time() - began < seconds:
            grad_z = -self.points @ y + t + nu * pay
            grad_m = y - 2 * nu * pull - 2 * self.rows.T @ p
            grad_tau = 1.0 + nu * pay_tau + float(p.sum())
            z1 = np.clip(z - step_z * grad_z, low, self.cap)
            m1, tau1 = _onto_paraboloid(m - step_tau * grad_m, tau - step_tau * grad_tau)
            zz, mm, tt = 2 * z1 - z, 2 * m1 - m, 2 * tau1 - tau
            y = y + sigma[0] * (mm - self.points.T @ zz)
            t = t + sigma[1] * (float(zz.sum()) - 1.0)
            nu = max(nu + sigma[2] * (float(pay @ zz) + pay_tau * tt - 2 * float(pull @ mm) - budget), 0.0)
            p = np.maximum(p + sigma[3] * (tt - 2 * self.rows @ mm - self.offset), 0.0)
            z, m, tau = z1, m1, tau1
            count, steps = count + 1, steps + 1
            for i, value in enumerate((z, m, tau, y, t, nu, p)):
                total[i] = total[i] + value
            if count == period:
                z, m, tau, y, t, nu, p = (value / count for value in total)
                total, count = [0.0 * value for value in total], 0
                period = min(2 * period, 20_000)
                value, broken = self.judged(z)
                if broken <= close and abs(value - best) <= close:
                    return time.process_time() - began, z
        return time.process_time() - began, None

    def judged(self, z: np.ndarray) -> tuple[float, float]:
        """``||m||^2`` at the shares brought back to their caps and to a sum of 1, and the worst that any condition is broken by."""
        z = np.clip(z, np.where(self.restriction.full, self.cap, 0.0), self.cap)
        off = abs(float(z.sum()) - 1.0)
        m = z @ self.points / z.sum()
        value = float(m @ m)
        over = float(self.pay @ z) + (1 + self.square) * value - 2 * float(self.pull @ m) - self.budget
        far = float((value - 2 * self.rows @ m - self.offset).max(initial=0.0))
        return value, max(off, over, far)


def _onto_paraboloid(m: np.ndarray, tau: float) -> tuple[np.ndarray, float]:
    """The nearest point with ``tau >= ||m||^2``: ``m / (1 + 2 a), tau + a`` with the a that makes it an equality."""
    square = float(m @ m)
    if tau >= square:
        return m, tau
    low, high = 0.0, max(square - tau, 0.0) + 1.0
    for _ in range(60):
        a = 0.5 * (low + high)
        low, high = (a, high) if square / (1 + 2 * a) ** 2 > tau + a else (low, a)
    return m / (1 + 2 * high), tau + high
