"""Checking a solution from scratch, by other means than those that found it."""

from __future__ import annotations

import numpy as np

from ..results import Equilibrium, Solution, Status, Verification
from ..results.facade import facade

__all__ = ["verify_solution"]


def verify_solution(solution: Solution, tolerance: float = 1e-9) -> Verification:
    """Recompute equilibrium, spend, loss and budget from the game; for a certificate, try to beat its lower bound.

    The lower bound is checked by searching again from the solution's own profile with a fresh branch and bound: the new
    search must not find payments below the stated bound, and must reach a bound that supports it.
    """
    game, eq, goal = solution.game, solution.equilibrium, solution.goal
    problems = [
        f"the {name} is not a number"
        for name in ("budget", "objective", "lower_bound")
        if np.isnan(getattr(solution, name))
    ]
    check = eq.verify(tolerance)
    if not check:
        problems.append(check.message)
    if not np.array_equal(eq.payments, solution.payments):
        problems.append("the payments differ from those of the equilibrium")
    spend = float(solution.payments @ eq.participation)
    if spend > solution.budget * (1.0 + 1e-9):
        problems.append(f"the payments spend {spend:.9g}, more than the budget {solution.budget:.9g}")
    if goal.budget != solution.budget:
        problems.append(f"the budget {solution.budget:.9g} is not the one asked for, {goal.budget:.9g}")
    loss = game.loss_of(game.profile(eq.participation), goal.finite_sample)
    objective = goal.value(loss, spend)
    scale = max(abs(objective), game.lam * game.geometry.scale * 1e-6)
    if abs(objective - solution.objective) > tolerance * scale:
        problems.append(f"the objective is {objective:.12g}, not {solution.objective:.12g} as stated")
    if loss > goal.max_loss * (1.0 + 1e-9):
        problems.append(f"the loss {loss:.9g} is above the largest one allowed, {goal.max_loss:.9g}")
    if (
        solution.status is Status.CERTIFIED
        and not solution.gap <= _promised_gap(solution) + tolerance * scale
    ):
        problems.append(f"the gap {solution.gap:.3g} is too wide for a certificate")
    floor = goal.min_total
    if eq.total < floor * (1.0 - 1e-9):
        problems.append(f"total participation {eq.total:.6g} is below the floor {floor:.6g}")
    if np.isfinite(solution.lower_bound):
        if solution.lower_bound > objective + tolerance * scale:
            problems.append("the lower bound lies above the objective")
        elif not problems and not game.is_homogeneous:
            problems += _challenge(solution, scale)
    message = "; ".join(problems) if problems else _checked(solution)
    return Verification(not problems, check.residual, check.regret, tolerance, message)


def _checked(solution: Solution) -> str:
    known = "equilibrium, spend, objective"
    if not np.isfinite(solution.lower_bound):
        return f"{known} recomputed from the game, nothing disagrees; optimality is not claimed"
    return f"{known} and lower bound recomputed from the game, nothing disagrees"


def _promised_gap(solution: Solution) -> float:
    """The widest gap under which the solver says CERTIFIED, absolute; a robust choice may lie further up."""
    game, goal, limits = solution.game, solution.goal, solution.limits
    if solution.robust or game.is_homogeneous or limits is None:
        return np.inf
    unpaid: Equilibrium = facade(game).equilibrium()
    reference = unpaid.server_loss * goal.loss_weight or goal.payment_weight * game.full_participation_price
    return float(limits.gap * reference)


def _challenge(solution: Solution, scale: float) -> list[str]:
    goal = solution.goal
    wanted = max(solution.gap, 1e-9 * scale)
    unpaid: Equilibrium = facade(solution.game).equilibrium()
    reference = (
        unpaid.server_loss * goal.loss_weight or goal.payment_weight * solution.game.full_participation_price
    )
    again: Solution = facade(solution.game).solve(
        goal.budget if np.isfinite(goal.budget) else None,
        payment_weight=goal.payment_weight,
        loss_weight=goal.loss_weight,
        max_loss=goal.max_loss,
        min_total=goal.min_total,
        finite_sample=goal.finite_sample,
        gap=wanted / reference if reference > 0 else 0.0,
        time_limit=max(60.0, 3.0 * solution.seconds),
        max_nodes=1_000_000,
        start=solution.participation,
        progress=False,
    )
    if again.objective < solution.lower_bound - 1e-9 * scale:
        return [
            f"payments worth {again.objective:.9g} exist, below the stated lower bound {solution.lower_bound:.9g}"
        ]
    if again.lower_bound < solution.lower_bound - wanted - 1e-9 * scale:
        return [
            f"a fresh search only supports the bound {again.lower_bound:.9g}, not {solution.lower_bound:.9g}"
        ]
    return []
