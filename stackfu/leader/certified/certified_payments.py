"""Certified payments: what was asked for, the search, and the payments played back.

The search (:mod:`.small_search`) works with profiles; here its answer becomes payments whose equilibrium is computed by the
followers' own solver and compared with the intended profile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ConvergenceError, InfeasibleError, NoEquilibriumError
from ...followers import enumerate_equilibria, find_equilibrium
from ...followers.solver_tolerances import RESIDUAL
from ...followers.verdict import status_of
from ...jit import clock
from ...judging.bound_check import BoundVerdict, check_bound
from ...judging.gaps import Gap, gap_at
from ...judging.point import enclose_point
from ...judging.solution_check import (
    gap_rule,
    judge_point,
    judge_robustness,
    proved_bound,
    rounding_slack,
    within_gap,
)
from ...judging.stakes import NEGLIGIBLE, check_stakes
from ...model import Array, GameModel, Limits, Objective, frozen
from ...model.arguments import flag
from ...progress import reporting
from ...results import Equilibrium, Solution, Status, Uniqueness
from ..asked import check_listeners, objective_of, require_positive_weight, starting_profiles
from ..haipo import best_iterate
from ..identical_data import buy_data
from ..tolerances import LIMIT_ROUNDING, SAFETY, SAME_FACE, SAME_PROFILE, SAME_SPEND
from ..uniform import best_price
from .candidates import Candidate
from .choice import best_search as search
from .memory import trim_heap
from .small_search import Run

__all__ = ["certified"]

#: Share of the time that each baseline may take, and the fewest equilibria that it is begun for.
BASELINES, FEWEST = 0.04, 5
#: Equilibria that a baseline may play at most.
MOST_BASELINES = 50
#: Playing back and judging takes about so many times what the unpaid equilibrium takes.
AFTERWARDS = 3.0
#: An equilibrium that took less time than the clock resolves is taken to have needed this many seconds.
SHORTEST = 1e-6
#: Gaps to which the cheapest profile within the limits is searched, relative to all costs: first to know one, then to tell a budget
#: that is too small from one that just suffices.
ROUGH_BILL, FINE_BILL = 1e-3, 1e-7
#: Part of a cap on the loss that is left open where the least loss is looked for to meet it.
LEFT_OPEN = 1e-7
#: Up to this many remaining clients all equilibria of the returned payments are enumerated.
ENUMERATE_UP_TO = 300


def certified(
    game: GameModel,
    budget: float,
    *,
    payment_weight: float = 0.0,
    loss_weight: float = 1.0,
    max_loss: float = np.inf,
    min_total: float = 0.0,
    min_samples: float = 0.0,
    finite_sample: bool = False,
    gap: float | None = None,
    time_limit: float = 60.0,
    max_nodes: int = 100_000,
    robust: bool = False,
    start: npt.ArrayLike | None = None,
    progress: bool | None = None,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Solution:
    """Global optimum with a lower bound, by branch and bound over total participation and volunteers."""
    goal = objective_of(
        game,
        budget=budget,
        payment_weight=payment_weight,
        loss_weight=loss_weight,
        max_loss=max_loss,
        min_total=min_total,
        min_samples=min_samples,
        finite_sample=finite_sample,
    )
    limits = Limits(
        gap=Limits.default_gap(game.count) if gap is None else gap, time_limit=time_limit, max_nodes=max_nodes
    )
    require_positive_weight(game, goal)
    check_listeners(progress, callback)
    given, robust = starting_profiles(game, start), flag(robust, "robust")
    if game.is_homogeneous:
        bought = buy_data(game, goal, limits)
        return judged(replace(bought, robust=robust), gap_rule(game, goal, limits.gap, math.nan))
    with reporting("certified", progress, callback) as report:
        return _optimise(game, goal, limits, robust, given, report)


def _optimise(
    game: GameModel,
    goal: Objective,
    limits: Limits,
    robust: bool,
    given: list[Array],
    report: Callable[[dict[str, Any]], None] | None,
) -> Solution:
    """Search, play back, and say what was proved."""
    began = clock()
    sought = replace(goal, budget=effective_budget(game, goal.budget))
    unpaid = find_equilibrium(game, game.no_payments)
    took = clock() - began  # not its own seconds, which count those in which functions were compiled
    unpaid_loss = game.loss_of(unpaid.profile, goal.finite_sample) if unpaid.status.proved else 0.0
    gap = gap_rule(game, goal, limits.gap, unpaid_loss)
    starts = [unpaid.participation, np.ones(game.count), *given]
    affordable = int(min(BASELINES * limits.time_limit / max(took, SHORTEST), MOST_BASELINES))
    later = partial(_baselines, game, sought, affordable)
    met = unpaid.status.proved and unpaid.total >= goal.min_total and unpaid_loss <= goal.max_loss
    if np.isfinite(sought.budget) and not met:  # a floor or a cap that is not met for nothing
        starts.append(_cheapest_admissible(game, sought, 0.5 * limits.time_limit))
    profiles = iter(starts)
    del unpaid, starts  # release the start profiles
    trim_heap(game.count)
    run = search(
        game,
        sought,
        gap=gap,
        # what is found is then played back and judged
        time_limit=max(limits.time_limit - (clock() - began) - AFTERWARDS * took, 0.0),
        max_nodes=limits.max_nodes,
        starts=profiles,
        later=later,
        callback=report,
    )
    trim_heap(game.count)
    best, message = run.best, ""
    if robust:
        best, message = _most_robust(game, goal, run.pool, best)
    equilibrium, reproduced = play_back(game, best.payments, best.x, goal)
    trim_heap(game.count)
    found = Solution(
        game=game,
        budget=goal.budget,
        payments=frozen(best.payments),
        equilibrium=equilibrium,
        status=run.status,
        method="certified",
        objective=math.nan,
        lower_bound=-math.inf,
        goal=goal,
        limits=limits,
        robust=robust,
        message=message,
        nodes=run.nodes,
        seconds=clock() - began,
        history=run.history,
        certificate=run.certificate,
    )
    if not reproduced:
        message = "the payments, played back, do not reproduce the participation"
        return replace(judged(found, gap), status=Status.FAILED, message=message)
    return judged(found, gap, run.verdict if sought == goal else None)


def judged(found: Solution, gap: Gap, verdict: BoundVerdict | None = None) -> Solution:
    """Return the solution with the objective, lower bound and status that the checkers accept.

    CERTIFIED needs a participation from which no client gains by deviating, relative to its own stakes, satisfied constraints, and
    a certificate that proves a bound within ``gap`` of it; ``verdict`` is the checker's earlier verdict on this certificate and
    this goal, if there is one.
    """
    game, goal, eq = found.game, found.goal, found.equilibrium
    point = enclose_point(game, goal, found.payments, eq.participation)
    low, high = point.objective(goal)
    lower, status, message = -math.inf, found.status, found.message
    if found.certificate is not None:
        verdict = verdict or check_bound(game, goal, found.certificate)
        lower = proved_bound(verdict)
        if not verdict and status is Status.CERTIFIED:
            status, message = Status.GAP_OPEN, f"the checker does not accept the bound: {verdict.message}"
    broken = next(judge_point(goal, point), None)
    if broken is not None:
        status, message = Status.FAILED, broken
    elif lower > high:
        status, message = Status.FAILED, "the proved bound lies above the value of the profile that was found"
    elif (
        status is Status.CERTIFIED
        and not check_stakes(game, found.payments, eq.participation).max() <= NEGLIGIBLE
    ):
        status = Status.GAP_OPEN
        message = f"some client may gain more than {NEGLIGIBLE:g} of its stakes by deviating from the participation that is meant"
    elif status is Status.CERTIFIED and not (
        math.isfinite(point.loss[1])
        and within_gap(high, lower, gap_at(gap, high) * (1.0 + SAFETY) + rounding_slack(found, high))
    ):
        status = Status.GAP_OPEN
    elif status is Status.CERTIFIED and found.robust:
        fragile = next(judge_robustness(found), None)
        if fragile is not None:
            status, message = Status.GAP_OPEN, f"optimal, but not robust: {fragile}"
    return replace(found, objective=0.5 * (low + high), lower_bound=lower, status=status, message=message)


def _baselines(game: GameModel, sought: Objective, most: int) -> list[Array]:
    """Return the outcomes of the published algorithm and of one price for all: the search is never worse than they are.

    Each may play at most so many equilibria; where that is too few to mean anything it is left out.
    """
    if not np.isfinite(sought.budget) or sought.budget <= 0 or most < FEWEST:
        return []
    found = []
    for baseline in (best_iterate, best_price):
        try:
            found.append(baseline(game, sought.budget, max_iterations=most)[1].x)
        except (ConvergenceError, NoEquilibriumError):
            continue
    return found


def effective_budget(game: GameModel, budget: float) -> float:
    """Return the budget, or infinity if it cannot bind: the cheapest payments never exceed the costs.

    A budget of 1e300 would otherwise spoil the scaling of the cone programs.
    """
    return budget if budget < 1.01 * float(game.costs.sum()) else float("inf")


def _cheapest_admissible(game: GameModel, objective: Objective, time_limit: float) -> Array:
    """Return a profile that meets the floor and the loss cap for as little as possible, or an error that says what it takes."""
    bill = replace(objective, budget=np.inf, loss_weight=0.0, payment_weight=1.0)
    everything = float(game.costs.sum())
    half, most = 0.5 * time_limit, 10_000

    def cheapest(gap: float, start: Array) -> Run:
        return search(game, bill, gap=gap * everything, time_limit=half, max_nodes=most, starts=(start,))

    try:
        run = cheapest(ROUGH_BILL, np.ones(game.count))
    except ConvergenceError:
        if not np.isfinite(objective.max_loss):
            raise
        return _least_loss(game, objective, half)
    if run.best.spend > objective.budget:
        run = cheapest(FINE_BILL, run.best.x)
    if run.bound > objective.budget:
        wanted = (
            [f"total participation of at least {objective.min_total:g}"] if objective.min_total > 0 else []
        )
        wanted += [f"a loss of at most {objective.max_loss:g}"] if np.isfinite(objective.max_loss) else []
        raise InfeasibleError(
            f"budget {objective.budget:g} is too small for {' and '.join(wanted)}: that takes at least {run.bound:.6g}"
        )
    return run.best.x


def _least_loss(game: GameModel, objective: Objective, time_limit: float) -> Array:
    """A profile of as small a loss as the budget buys, for caps that hardly any meets; an error if it is proved that none does."""
    free = replace(objective, max_loss=np.inf, loss_weight=1.0, payment_weight=0.0)
    unpaid = find_equilibrium(game, game.no_payments).participation
    gap = LEFT_OPEN * objective.max_loss
    run = search(
        game, free, gap=gap, time_limit=time_limit, max_nodes=10_000, starts=(unpaid, np.ones(game.count))
    )
    if run.bound > objective.max_loss:
        raise InfeasibleError(
            f"a loss of at most {objective.max_loss:g} is out of reach for budget {objective.budget:g}: it is at least "
            f"{run.bound:.6g}"
        )
    return run.best.x


def play_back(
    game: GameModel, payments: Array, x: Array, goal: Objective | None = None
) -> tuple[Equilibrium, bool]:
    """Return the intended equilibrium of the clients under the payments, and whether it reproduces x, its spend and its loss.

    What is found again within rounding stands for x, unless it is rounding that makes it miss the goal's constraints.
    """
    payments, meant = frozen(payments), game.profile(x)
    residual = game.residual(payments, x)
    verdict = enumerate_equilibria(game, payments) if game.count <= ENUMERATE_UP_TO else None
    try:
        played = list(verdict) if verdict is not None else [find_equilibrium(game, payments, start=x)]
    except NoEquilibriumError:
        played = []
    near = [eq for eq in played if np.abs(eq.profile.y - meant.y).max() <= SAME_PROFILE * meant.total]
    if near:
        eq = min(near, key=lambda e: float(np.abs(e.participation - x).max()))
        kept = goal is None or not any(
            judge_point(goal, enclose_point(game, goal, payments, eq.participation))
        )
        if kept and eq.spend <= float(payments @ x) * (1.0 + SAME_SPEND):
            return eq, True
    # On a face of equilibria the solver lands on some point of it; x is another one, as its own residual shows.
    loss = game.server_loss(x)
    same = any(
        abs(eq.total - meant.total) <= SAME_FACE * meant.total
        and abs(eq.server_loss - loss) <= SAME_FACE * abs(loss)
        for eq in played
    )
    unique, reason = Uniqueness.UNKNOWN, "too many clients to enumerate all equilibria"
    if verdict is not None:
        unique, reason = verdict.uniqueness, verdict.reason
        if not near and same and unique is not Uniqueness.CONTINUUM:
            # what was proved is about profiles that this one is none of
            unique = Uniqueness.UNKNOWN
            reason = "up to rounding, a face of equilibria shares this total and this mixture embedding"
    proved = float(check_stakes(game, payments, x).max())
    itself = Equilibrium(
        game=game,
        payments=frozen(payments),
        participation=frozen(x),
        status=status_of(residual, proved, RESIDUAL),
        uniqueness=unique,
        reason=reason,
        method="price",
        regret=game.regret(payments, x),
        residual=residual,
    )
    settled = itself.status is not Status.FAILED
    # if not all equilibria are known, one accepted by the checker is not refuted by another
    judged_itself = itself.status is Status.CERTIFIED and unique is Uniqueness.UNKNOWN
    return itself, settled and (bool(near) or same or unique is Uniqueness.CONTINUUM or judged_itself)


def _most_robust(
    game: GameModel, goal: Objective, pool: tuple[Candidate, ...], best: Candidate
) -> tuple[Candidate, str]:
    """Return the profile found by the search with the best worst-case equilibrium, and with every equilibrium within the
    budget.
    """
    ranked = []
    for candidate in sorted(pool, key=lambda c: c.value)[:25]:
        verdict = enumerate_equilibria(game, candidate.payments)
        values = [goal.value(game.loss_of(e.profile, goal.finite_sample), e.spend) for e in verdict]
        spends = [candidate.spend, *(e.spend_range[1] for e in verdict)]
        over = max(spends) > goal.budget * (1.0 + LIMIT_ROUNDING)
        ranked.append(
            (over, max([candidate.value, *values]), verdict.uniqueness is not Uniqueness.UNIQUE, candidate)
        )
    over, worst, several, chosen = min(ranked, key=lambda r: r[:3])
    if over:
        return chosen, "no payments were found whose every equilibrium keeps the budget"
    if chosen is best:
        return best, "the optimal payments are also the most robust ones found"
    word = "has several equilibria, the worst of which" if several else "has one equilibrium, which"
    return chosen, f"robust choice: {word} is worth {worst:.6g} (optimistic optimum {best.value:.6g})"
