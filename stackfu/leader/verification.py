"""Checking a solution from scratch, by other means than those that found it."""

from __future__ import annotations

import numpy as np

from ..result import Solution, Status, Verification

__all__ = ["verify_solution"]


def verify_solution(solution: Solution, tolerance: float = 1e-9) -> Verification:
    """Recompute equilibrium, spend, loss and budget from the game; for a certificate, try to beat its lower bound.

    The lower bound is checked by searching again from the solution's own profile with a fresh branch and bound: the new
    search must not find payments below the stated bound, and must reach a bound that supports it.
    """
    game, eq, options = solution.game, solution.equilibrium, solution.options
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
    loss = game.server_loss(eq.participation)
    if options.get("finite_sample"):
        loss += game.finite_sample_penalty(eq.participation)
    objective = options.get("loss_weight", 1.0) * loss + options.get("payment_weight", 0.0) * spend
    scale = max(abs(objective), game.lam * game.geometry.scale * 1e-6)
    if abs(objective - solution.objective) > tolerance * scale:
        problems.append(f"the objective is {objective:.12g}, not {solution.objective:.12g} as stated")
    if loss > options.get("max_loss", np.inf) * (1.0 + 1e-9):
        problems.append(f"the loss {loss:.9g} is above the largest one allowed, {options['max_loss']:.9g}")
    if (
        solution.status is Status.CERTIFIED
        and not solution.gap <= _promised_gap(solution) + tolerance * scale
    ):
        problems.append(f"the gap {solution.gap:.3g} is too wide for a certificate")
    floor = options.get("min_total", 0.0)
    if eq.total < floor * (1.0 - 1e-9):
        problems.append(f"total participation {eq.total:.6g} is below the floor {floor:.6g}")
    if np.isfinite(solution.lower_bound):
        if solution.lower_bound > objective + tolerance * scale:
            problems.append("the lower bound lies above the objective")
        elif not problems and not game.is_homogeneous:
            problems += _challenge(solution, objective, scale)
    message = "; ".join(problems) if problems else _checked(solution)
    return Verification(not problems, check.residual, check.regret, tolerance, message)


def _checked(solution: Solution) -> str:
    known = "equilibrium, spend, objective"
    if not np.isfinite(solution.lower_bound):
        return f"{known} recomputed from the game, nothing disagrees; optimality is not claimed"
    return f"{known} and lower bound recomputed from the game, nothing disagrees"


def _promised_gap(solution: Solution) -> float:
    """The widest gap under which the solver says CERTIFIED, absolute; a robust choice may lie further up."""
    game, options = solution.game, solution.options
    if options.get("robust") or game.is_homogeneous:
        return np.inf
    unpaid = game.equilibrium().server_loss * options.get("loss_weight", 1.0)
    reference = unpaid or options.get("payment_weight", 0.0) * game.full_participation_price
    return float(options.get("gap", 1e-3) * reference)


def _challenge(solution: Solution, objective: float, scale: float) -> list[str]:
    from . import effective_budget
    from .certified import Objective, certified

    options = solution.options
    wanted = max(solution.gap, 1e-9 * scale)
    run = certified(
        solution.game,
        Objective(
            budget=effective_budget(solution.game, solution.budget),
            payment_weight=options.get("payment_weight", 0.0),
            loss_weight=options.get("loss_weight", 1.0),
            loss_cap=options.get("max_loss", np.inf),
            finite_sample=options.get("finite_sample", False),
            floor=options.get("min_total", 0.0),
        ),
        gap=wanted,
        time_limit=max(60.0, 3.0 * solution.seconds),
        max_nodes=1_000_000,
        starts=(solution.participation,),
    )
    if run.best.value < solution.lower_bound - 1e-9 * scale:
        return [
            f"payments worth {run.best.value:.9g} exist, below the stated lower bound {solution.lower_bound:.9g}"
        ]
    if run.bound < solution.lower_bound - wanted - 1e-9 * scale:
        return [f"a fresh search only supports the bound {run.bound:.9g}, not {solution.lower_bound:.9g}"]
    return []
