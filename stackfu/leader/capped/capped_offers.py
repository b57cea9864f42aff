"""Certified capped offers: what was asked for, the search, and the offers that are posted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ConvergenceError, InfeasibleError, InputError, NoEquilibriumError, StackfuError
from ...followers import find_equilibrium
from ...jit import clock
from ...judging.gaps import GapRule
from ...judging.plan import gaps_are_relative_to, plan_gap_rule
from ...judging.plan_bound import check_plan_bound
from ...judging.point import enclose_point
from ...judging.solution_check import judge_point, within_gap
from ...judging.stakes import NEGLIGIBLE, check_at_caps, check_stakes
from ...model import Array, GameModel, Limits, Objective, frozen
from ...model.offers import Offers, capped_offers, check_outside
from ...model.revealed import check_interval
from ...progress import reporting
from ...results import Equilibrium, Solution, Status, Uniqueness
from ..asked import (
    check_listeners,
    objective_of,
    refuse_what_has_no_optimum,
    refuse_what_no_plan_can_keep,
    require_positive_weight,
    starting_profiles,
)
from .plan_problem import PlanProblem
from .plan_search import Run, search
from .plans import Plan, Plans

__all__ = ["breaks", "capped", "plan_equilibrium", "value_of", "within_rounding"]

#: Share of the time for the linear problem; the search starts from its solution.
LINEAR_SHARE = 0.25
#: The same where a sample stands for the clients: their linear problem is far from closed in any share.
SMALL_LINEAR_SHARE = 0.1
#: Share of the gap that the search closes; the rest is room for the rounding of the claim.
SEARCHED = 0.99
#: Share of the time after which local search makes way for the linear problem and the bound.
LOCAL_SHARE = 0.25
#: Gap that is asked for unless said otherwise, at least: bounds under capped offers seldom come closer in a moment.
FINEST_GAP = 1e-4
#: How near to the least spend (or loss) of any plan one comes to tell whether one is within reach, at first and if it is in doubt.
NEAR_ENOUGH = (1e-2, 1e-6)
#: Twice the rounding of a mixture's coordinates, relative to the largest one, and some.
COORDINATE_ROUNDING = 64.0 * 2.0**-53
UNIQUE = "any plan is the only equilibrium of its capped offers (Theorem 1 of the theory of offers)"
INDIFFERENT = "the plan is an equilibrium; rounding leaves open whether everybody would rather bring more, and it is the only one"


def capped(
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
    start: npt.ArrayLike | None = None,
    costs_between: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    outside: npt.ArrayLike | None = None,
    progress: bool | None = None,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Solution:
    """The best plan within the budget, offered as prices and caps; never worse than the best linear payments."""
    if costs_between is not None:  # a plan for the upper ends is safe for every cost below (Theorem 2)
        low, high = _two(costs_between)
        own = {} if game.has_paper_loss else {"server_loss": game.loss}
        game = game.replace(costs=check_interval(game, low, high).high, **own)
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
        gap=max(Limits.default_gap(game.count), FINEST_GAP) if gap is None else gap,
        time_limit=time_limit,
        max_nodes=max_nodes,
    )
    apart = check_outside(game, outside)
    require_positive_weight(game, goal)
    refuse_what_has_no_optimum(game, goal, "capped")
    refuse_what_no_plan_can_keep(game, goal.budget, apart)
    check_listeners(progress, callback)
    given = starting_profiles(game, start)
    with reporting("capped", progress, callback) as report:
        return _optimise(game, goal, limits, apart, given, report)


def _two(pair: Any) -> tuple[Any, Any]:
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise InputError("costs_between", "must be two vectors, the lower and the upper costs") from None
    return low, high


def _optimise(
    game: GameModel,
    goal: Objective,
    limits: Limits,
    outside: Array | None,
    given: list[Array],
    report: Callable[[dict[str, Any]], None] | None,
) -> Solution:
    began = clock()
    sought = goal
    if goal.budget >= 1.01 * float(game.costs.sum()) and outside is None:
        sought = replace(goal, budget=np.inf)  # prices never exceed costs
    problem = PlanProblem.of(game, sought, outside)
    firm = within_rounding(game, sought)
    plans = Plans(game, firm, problem.with_loss_cap(firm.max_loss), outside)
    unpaid = _unpaid(game)
    rule = plan_gap_rule(game, goal, limits.gap)
    unit = problem.unit_loss
    plans.deadline = began + LOCAL_SHARE * limits.time_limit
    plans.begin((unpaid, np.ones(game.count), *given))
    share = LINEAR_SHARE if problem.sampled is None else SMALL_LINEAR_SHARE
    linear = _linear(game, goal, share * limits.time_limit)
    plans.deadline = ends = began + limits.time_limit
    for x in linear:
        plans.offer(x)
        plans.improve(x)
    if plans.best is None:
        _refuse_a_loss_out_of_reach(game, sought, 0.25 * limits.time_limit)
        cheap = _cheapest_admissible(game, sought, outside, 0.5 * limits.time_limit)
        if cheap is not None:
            plans.offer(cheap)
    run = search(
        problem,
        plans,
        gap=lambda value: SEARCHED * rule(value * unit) / unit,
        reference=rule.reference / unit,
        time_limit=max(ends - clock(), 0.0),
        max_nodes=limits.max_nodes,
        judged=problem.large,
        callback=report,
    )
    plans.tidy()
    if plans.best is None:
        raise ConvergenceError("no plan within the constraints was found, and none was proved impossible")
    return _solution(game, goal, limits, outside, plans.best, run, sought, rule, began)


def _solution(
    game: GameModel,
    goal: Objective,
    limits: Limits,
    outside: Array | None,
    plan: Plan,
    run: Run,
    sought: Objective,
    rule: GapRule,
    began: float,
) -> Solution:
    offers = Offers("capped", plan.prices, frozen(plan.x), plan.retainers)
    value = value_of(game, goal, offers)
    status, message = run.status, ""
    lower = min(max(run.bound, 0.0), value)  # losses and payments are never negative
    verdict = check_plan_bound(game, sought, run.certificate, outside)
    if not verdict:
        # the plan and its guarantees stand; what the search believed about its optimality does not
        status, message, lower = Status.GAP_OPEN, f"the bound was not accepted: {verdict.message}", -np.inf
    elif status is Status.CERTIFIED and not within_gap(value, lower, rule(value)):
        status = Status.GAP_OPEN
    if (broken := breaks(game, goal, offers)) is not None:
        status, message = Status.FAILED, broken
    return Solution(
        game=game,
        budget=goal.budget,
        payments=plan.prices,
        equilibrium=plan_equilibrium(game, offers),
        status=status,
        method="certified",
        objective=value,
        lower_bound=lower,
        goal=sought if np.isinf(goal.budget) else goal,
        limits=limits,
        message=message,
        nodes=run.nodes,
        seconds=clock() - began,
        history=run.history,
        posted=offers,
        outside=outside,
        certificate=run.certificate if verdict else None,
    )


def within_rounding(game: GameModel, goal: Objective) -> Objective:
    """The goal with a cap on the loss that a plan keeps even if its loss is a little larger than floats say.

    ``loss = w ||m - t||^2`` of coordinates as large as c that round by eps is off by about ``2 sqrt(loss w) c eps``: many of its
    digits if it is next to nothing.
    """
    if not 0.0 < goal.max_loss < np.inf:
        return goal
    off = COORDINATE_ROUNDING * np.sqrt(game.loss.weight * game.geometry.scale / goal.max_loss)
    return replace(goal, max_loss=goal.max_loss * (1.0 - min(float(off), 0.5)))


def breaks(game: GameModel, goal: Objective, offers: Offers) -> str | None:
    """Return the constraint that a plan violates, computed to the last digit, as a sentence."""
    point = enclose_point(game, goal, offers.prices, offers.caps)
    return next(judge_point(goal, point, offers.most, "the offers can cost"), None)


def value_of(game: GameModel, goal: Objective, offers: Offers) -> float:
    """The objective of a plan, to the last digit: losses next to nothing are lost in the rounding of a search."""
    point = enclose_point(game, goal, offers.prices, offers.caps)
    loss, total = 0.5 * (point.loss[0] + point.loss[1]), 0.5 * (point.spend[0] + point.spend[1])
    return goal.value(loss, total + float(offers.retainers.sum()))


def plan_equilibrium(game: GameModel, offers: Offers) -> Equilibrium:
    """The plan as the equilibrium of its capped offers, as far as that is proved."""
    only = bool(check_at_caps(game, offers.prices, offers.caps))
    firm = only or check_stakes(game, offers.prices, offers.caps, offers.caps).max() <= NEGLIGIBLE
    residual, regret = game.judge(offers.prices, offers.caps, offers.caps)
    return Equilibrium(
        game=game,
        payments=offers.prices,
        participation=offers.caps,
        status=Status.CERTIFIED if firm else Status.CONVERGED,
        uniqueness=Uniqueness.UNIQUE if only else Uniqueness.UNKNOWN,
        reason=UNIQUE if only else INDIFFERENT,
        method="plan",
        regret=regret,
        residual=residual,
        caps=offers.caps,
        retainers=offers.retainers if offers.retainers.any() else None,
    )


def _unpaid(game: GameModel) -> Array:
    try:
        return find_equilibrium(game, game.no_payments).participation
    except (NoEquilibriumError, ConvergenceError):
        return np.ones(game.count)


def _linear(game: GameModel, goal: Objective, time_limit: float) -> list[Array]:
    """Return the plan of the best linear payments, which capped offers have at no higher price."""
    from ..certified import certified

    try:
        found = certified(
            game,
            goal.budget,
            payment_weight=goal.payment_weight,
            loss_weight=goal.loss_weight,
            max_loss=goal.max_loss,
            min_total=goal.min_total,
            finite_sample=goal.finite_sample,
            time_limit=time_limit,
            progress=False,
        )
    except StackfuError:
        return []
    return [found.participation]


def _dearest(game: GameModel, outside: Array | None, plan: Plan | None) -> str:
    """Return a phrase about the client with the most expensive outside utility."""
    if outside is None or plan is None:
        return ""
    bare = capped_offers(game, game.profile(plan.x))
    extra = plan.prices * plan.x + plan.retainers - bare.prices * bare.caps
    k = int(np.argmax(extra))
    return (
        f" ({extra[k]:.6g} of it to keep client {game.label(k)}, whose outside utility is {outside[k]:.6g})"
        if extra[k] > 0
        else ""
    )


def _refuse_a_loss_out_of_reach(game: GameModel, goal: Objective, time_limit: float) -> None:
    """An error if no plan above the floor has a loss of at most what is allowed, whatever the budget, and that is proved."""
    if not np.isfinite(goal.max_loss) or game.loss.weight == 0:
        return
    free = replace(goal, budget=np.inf, max_loss=np.inf, loss_weight=1.0, payment_weight=0.0)
    problem = PlanProblem.of(game, free)
    plans = Plans(game, free, problem, None)
    plans.begin((np.ones(game.count),))
    reference = gaps_are_relative_to(game, free) / problem.unit_loss
    deadline = clock() + time_limit
    for gap in NEAR_ENOUGH:
        left = max(deadline - clock(), 0.0)
        run = search(
            problem, plans, gap=gap * reference, reference=reference, time_limit=left, max_nodes=10_000
        )
        if run.bound > goal.max_loss and check_plan_bound(game, free, run.certificate):
            floor = f" with total participation of at least {goal.min_total:g}" if goal.min_total > 0 else ""
            raise InfeasibleError(
                f"no plan{floor} has a loss of at most {goal.max_loss:g}, whatever the budget: all have more than {run.bound:.6g}"
            )
        if plans.best is not None and plans.best.loss <= goal.max_loss:
            return


def _cheapest_admissible(
    game: GameModel, goal: Objective, outside: Array | None, time_limit: float
) -> Array | None:
    """A plan that meets floor and loss cap for as little as possible, or an error that says what it takes; None if neither is
    found."""
    bill = replace(goal, budget=np.inf, loss_weight=0.0, payment_weight=1.0)
    problem = PlanProblem.of(game, bill, outside)
    firm = within_rounding(game, bill)
    plans = Plans(game, firm, problem.with_loss_cap(firm.max_loss), outside)
    plans.begin((np.ones(game.count),))
    reference = float(game.costs.sum()) / problem.unit_loss
    if plans.best is not None:
        reference = max(reference, plans.target)
    deadline = clock() + time_limit
    for gap in NEAR_ENOUGH:
        left = max(deadline - clock(), 0.0)
        run = search(
            problem, plans, gap=gap * reference, reference=reference, time_limit=left, max_nodes=10_000
        )
        if run.bound > goal.budget or (plans.best is not None and plans.best.spend <= goal.budget):
            break  # the rest would be digits of a number that decides nothing
    # an error is a claim too: what it rests on is checked
    if run.bound > goal.budget and check_plan_bound(game, bill, run.certificate, outside):
        wanted = [f"total participation of at least {goal.min_total:g}"] if goal.min_total > 0 else []
        wanted += [f"a loss of at most {goal.max_loss:g}"] if np.isfinite(goal.max_loss) else []
        wanted += ["keeping everybody"] if outside is not None else []
        raise InfeasibleError(
            f"budget {goal.budget:g} is too small for {' and '.join(wanted)}: that takes at least {run.bound:.6g}"
            + _dearest(game, outside, plans.best)
        )
    return None if plans.best is None else plans.best.x
