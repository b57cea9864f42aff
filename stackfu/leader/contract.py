"""Contracts: all or nothing, cheaper than capped offers, with the worst equilibrium stated.

The price of a plan is exact (:func:`stackfu.model.offers.contract_transfers`), and never more than that of capped offers. The
best plan is sought from the best capped ones: larger and larger capped budgets until the contracts of their best plan cost what
there is, then local steps. The lower bound comes from capped offers with a larger lambda (``docs/theory/offers.md``), which
leaves a gap: most solutions are GAP_OPEN with a proved bound, and CERTIFIED where the bound comes as near as was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from ..embedding.names import PerClient
from ..errors import ConvergenceError, InfeasibleError, InputError
from ..followers.contracts import settle_contracts
from ..jit import clock
from ..judging.plan import ONLY, check_contract_bound, plan_gap_rule
from ..judging.rejections import MOST_CONTRACTS
from ..judging.solution_check import within_gap
from ..model import Array, GameModel, Limits, Objective, frozen
from ..model.arguments import number
from ..model.offers import (
    Offers,
    capped_prices,
    check_outside,
    contract_offers,
    contract_transfers,
)
from ..results import Equilibrium, Solution, Status, Uniqueness
from ..results.contract_certificate import ContractCertificate, ContractPiece
from .acceptance import acceptance
from .asked import (
    objective_of,
    refuse_what_has_no_optimum,
    refuse_what_no_plan_can_keep,
    require_positive_weight,
)
from .capped.capped_offers import breaks, capped, value_of, within_rounding
from .capped.plan_problem import PlanProblem
from .capped.plan_search import search
from .capped.plans import Plans
from .tolerances import COARSE_SNAP, FLAT, LIMIT_ROUNDING, ROUNDING, SAFETY, SAME_PROFILE, SNAP, TINY

__all__ = ["accepted", "contract", "worst_equilibrium"]

ACCEPTED = "everybody accepting is an equilibrium of the contracts, perhaps not the only one"
#: Local steps by sequential quadratic programming up to this many clients.
LOCAL_UP_TO = 40
#: Intervals of totals on which the bound uses one larger lambda each.
LAMBDA_PIECES = 12
#: Gap that is asked for unless said otherwise, relative to the unpaid loss: the bound is seldom tighter.
CONTRACT_GAP = 1e-3
#: Relative change of the objective at which sequential quadratic programming stops.
PROGRAMME = 1e-10
#: Weight of the loss where the spend is what matters, and nothing but the loss keeps plans from using no data at all.
MINOR = 1e-3
#: Best-response runs that look for other equilibria of the contracts.
RUNS = 32


def contract(
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
    outside: npt.ArrayLike | None = None,
    progress: bool | None = None,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Solution:
    """The best contracts found within the budget, with a lower bound; at least as good as capped offers."""
    began = clock()
    time_limit = Limits(time_limit=time_limit).time_limit
    wanted: dict[str, Any] = {
        "max_loss": max_loss,
        "min_total": min_total,
        "min_samples": min_samples,
        "finite_sample": finite_sample,
    }
    asked: dict[str, Any] = {
        **wanted,
        "gap": CONTRACT_GAP if gap is None else gap,
        "time_limit": 0.4 * time_limit,
        "max_nodes": max_nodes,
        "start": start,
        "outside": outside,
        "progress": progress,
        "callback": callback,
    }
    goal = objective_of(game, budget=budget, payment_weight=payment_weight, loss_weight=loss_weight, **wanted)
    require_positive_weight(game, goal)
    refuse_what_has_no_optimum(game, goal, "contract")
    apart = check_outside(game, outside)
    refuse_what_no_plan_can_keep(game, budget, apart)
    try:
        best = capped(game, budget, payment_weight=payment_weight, loss_weight=loss_weight, **asked)
    except (InfeasibleError, ConvergenceError):
        # contracts are cheaper: from the plan for which capped offers cost least
        bounded = np.isfinite(max_loss) or min_total > 0 or min_samples > 0
        cheapest = capped(game, np.inf, payment_weight=1.0, loss_weight=0.0 if bounded else MINOR, **asked)
        goal = replace(cheapest.goal, budget=budget, payment_weight=payment_weight, loss_weight=loss_weight)
        best = replace(cheapest, goal=goal, budget=budget)
    goal, limits = best.goal, best.limits
    assert limits is not None
    x = _improve(game, within_rounding(game, goal), apart, best.participation, began + 0.7 * time_limit)
    offers = contract_offers(game, game.profile(x), apart)
    if offers.most > budget * (1.0 + LIMIT_ROUNDING):
        raise ConvergenceError(
            f"no contracts within a budget of {budget:g} were found; the cheapest ones met cost {offers.most:.6g}"
        )
    value = value_of(game, goal, offers)
    certificate = _bound(game, goal, value, began + time_limit, max_nodes)
    uniqueness, outcomes = _others(game, offers, goal.finite_sample)
    found = replace(
        best,
        payments=offers.prices,
        equilibrium=accepted(game, offers, uniqueness),
        posted=offers,
        status=Status.GAP_OPEN,
        objective=value,
        lower_bound=-np.inf,
        certificate=None,
        message=outcomes,
    )
    if certificate is not None and not check_contract_bound(found, certificate):
        lower = min(max(certificate.lower, 0.0), value)
        proved = within_gap(value, lower, plan_gap_rule(game, goal, limits.gap)(value))
        status = Status.CERTIFIED if proved else Status.GAP_OPEN
        found = replace(found, status=status, lower_bound=lower, certificate=certificate)
    if (broken := breaks(game, goal, offers)) is not None:
        found = replace(found, status=Status.FAILED, message=broken)
    return replace(found, seconds=clock() - began)


def accepted(game: GameModel, offers: Offers, uniqueness: Uniqueness = Uniqueness.UNKNOWN) -> Equilibrium:
    """Return the equilibrium with acceptance by all clients."""
    return Equilibrium(
        game=game,
        payments=offers.prices,
        participation=offers.caps,
        status=Status.CONVERGED,
        uniqueness=uniqueness,
        reason=ONLY if uniqueness is Uniqueness.UNIQUE else ACCEPTED,
        method="plan",
        regret=0.0,
        residual=0.0,
        caps=offers.caps,
        retainers=offers.retainers if offers.retainers.any() else None,
    )


def _others(game: GameModel, offers: Offers, finite_sample: bool) -> tuple[Uniqueness, str]:
    """Return other outcomes: by trying every set of few clients, else by best responses."""
    plan, transfers = offers.caps, frozen(offers.prices * offers.caps)
    asked = int(np.count_nonzero(plan))
    if asked > MOST_CONTRACTS:
        worst, loss = worst_equilibrium(game, plan, transfers, finite_sample=finite_sample)
        if worst is None:
            return (
                Uniqueness.UNKNOWN,
                "everybody accepting is one equilibrium of the contracts; best responses found no other",
            )
        count = int(np.count_nonzero(worst < plan * (1.0 - SNAP)))
        return Uniqueness.UNKNOWN, (
            "everybody accepting is one equilibrium of the contracts; in the worst one that best responses found "
            f"{count} of {asked} clients reject and the loss is {loss:.6g}"
        )
    found = acceptance(game, plan, transfers, finite_sample=finite_sample)
    sure = "" if found.complete else ", as far as rounding allows to tell"
    if not found.at():
        known = Uniqueness.UNIQUE if found.complete else Uniqueness.UNKNOWN
        return known, f"{ONLY}{sure}: every set that might reject was tried"
    other = found.at()[0]
    return Uniqueness.UNKNOWN, (
        f"everybody accepting is one of {1 + len(found.at())} equilibria of the contracts{sure}; in the worst one "
        f"{len(other.clients)} of {asked} clients reject and the loss is {other.server_loss:.6g}; transfers more than "
        f"{found.premium:.3g} of the way to the capped payouts leave acceptance only"
    )


# -------------------------------------------------------------------- the best plan


def _improve(game: GameModel, goal: Objective, outside: Array | None, start: Array, deadline: float) -> Array:
    """Plans of larger capped budgets while their contracts fit, then local steps."""

    def price(x: Array) -> float:
        return contract_offers(game, game.profile(x), outside).most

    def value(x: Array) -> float:
        return goal.value(game.loss_of(game.profile(x), goal.finite_sample), price(x))

    def fits(x: Array) -> bool:
        profile = game.profile(x)
        return bool(
            price(x) <= goal.budget * (1.0 + LIMIT_ROUNDING)
            and profile.total >= goal.min_total * (1.0 - LIMIT_ROUNDING)
            and game.loss_of(profile, goal.finite_sample) <= goal.max_loss * (1.0 + LIMIT_ROUNDING)
        )

    best = np.array(start)
    if np.isfinite(goal.budget):
        low, high = goal.budget, max(float(game.costs.sum()), goal.budget)
        for _ in range(12):
            if clock() > deadline or high - low < FLAT * high:
                break
            wider = replace(goal, budget=0.5 * (low + high))
            problem = PlanProblem.of(game, wider, outside)
            plans = Plans(game, wider, problem, outside)
            plans.begin((best,))
            if plans.best is None or not fits(plans.best.x):
                high = wider.budget
                continue
            low = wider.budget
            if value(plans.best.x) < value(best) or not fits(best):
                best = np.array(plans.best.x)
    if game.count <= LOCAL_UP_TO and clock() < deadline:
        best = _local_steps(game, goal, best, price, value, fits)
    return best


def _local_steps(
    game: GameModel,
    goal: Objective,
    x: Array,
    price: Callable[[Array], float],
    value: Callable[[Array], float],
    fits: Callable[[Array], bool],
) -> Array:
    """Sequential quadratic programming in the participation, kept only where it stays within the constraints."""
    unit = max(abs(value(x)), TINY)

    def inside(y: Array) -> Array:
        return np.clip(y, SNAP, 1.0)

    constraints = []
    if np.isfinite(goal.budget):
        scale = goal.budget or float(game.costs.sum())
        constraints.append({"type": "ineq", "fun": lambda y: (goal.budget - price(inside(y))) / scale})
    if goal.min_total > 0:
        constraints.append({"type": "ineq", "fun": lambda y: float(game.alpha @ y) - goal.min_total})
    if np.isfinite(goal.max_loss):
        constraints.append(
            {
                "type": "ineq",
                "fun": lambda y: (
                    1.0 - game.loss_of(game.profile(inside(y)), goal.finite_sample) / goal.max_loss
                ),
            }
        )
    found = minimize(
        lambda y: value(inside(y)) / unit,
        x,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * game.count,
        constraints=constraints,
        options={"maxiter": 60, "ftol": PROGRAMME},
    )
    y = np.clip(np.asarray(found.x), 0.0, 1.0)
    y = np.where(y < COARSE_SNAP, 0.0, y)
    for share in (1.0, 0.999, 0.99, 0.9, 0.5):
        trial = x + share * (y - x)
        if trial.any() and fits(trial) and (value(trial) < value(x) or not fits(x)):
            return np.asarray(trial)
    return x


# -------------------------------------------------------------------- the bound


def _bound(
    game: GameModel, goal: Objective, value: float, deadline: float, max_nodes: int
) -> ContractCertificate | None:
    """A lower bound from capped offers with a larger lambda, interval by interval of S; None if there is none."""
    problem = PlanProblem.of(game, goal)
    least = goal.min_total
    if problem.least_sampling > 0:
        limits = [problem.loss_cap]
        if goal.loss_weight > 0:
            limits.append(value / problem.unit_loss / goal.loss_weight)
        room = min(limits) - problem.loss_constant
        if room > 0:
            least = max(least, problem.least_sampling / room * (1.0 - SAFETY))
    if least <= 0.0:
        return None
    edges = np.append(np.geomspace(least, 1.0, LAMBDA_PIECES), []) if least < 1.0 else np.array([1.0, 1.0])
    edges[0], edges[-1] = least, 1.0
    pieces = []
    for low, high in pairwise(edges):
        left = max(deadline - clock(), 0.05)
        pieces.append(
            _piece(game, goal, value, float(low), float(high), left / (2 * LAMBDA_PIECES), max_nodes)
        )
    return ContractCertificate(min(p.certificate.lower for p in pieces), tuple(pieces))


def larger_lambda(reach: float) -> float:
    """``phi = (2 - x) / (2 (1 - x)^2)`` for shares up to x < 1."""
    return (2.0 - reach) / (2.0 * (1.0 - reach) ** 2)


def _piece(
    game: GameModel, goal: Objective, value: float, low: float, high: float, seconds: float, max_nodes: int
) -> ContractPiece:
    """The best bound on one interval over a few choices of how much of its share a client would withhold."""
    top = float(np.minimum(game.alpha / low, 1.0).max()) * (1.0 + ROUNDING)
    best: ContractPiece | None = None
    for share in (1.0, 0.75, 0.5, 0.25):
        if share * top >= 0.999:
            continue
        larger = larger_lambda(share * top) * (1.0 + ROUNDING)
        own = {} if game.has_paper_loss else {"server_loss": game.loss}
        eager = game.replace(lambda_q=game.lambda_q * larger, **own)
        wider = replace(goal, budget=goal.budget / share, payment_weight=goal.payment_weight * share)
        problem = PlanProblem.of(eager, wider)
        plans = _Target(problem, value / problem.unit_loss)
        run = search(
            problem,
            plans,  # type: ignore[arg-type]
            gap=0.0,
            reference=abs(value) / problem.unit_loss,
            time_limit=seconds,
            max_nodes=min(max_nodes, 60),
            totals=(low, high),
        )
        piece = ContractPiece(low, high, larger, share, run.certificate)
        if best is None or piece.certificate.lower > best.certificate.lower:
            best = piece
    assert best is not None
    return best


class _Target:
    """Stands in for plans where only a bound is sought: a value to compare with, and nothing to keep."""

    best = None

    def __init__(self, problem: PlanProblem, target: float) -> None:
        self.problem, self.target, self.size = problem, target, 0.05

    def offer_mixture(self, z: Array, total: float) -> bool:
        return False

    def improve(self, x: Array) -> None:
        return None


# -------------------------------------------------------------------- other equilibria


def worst_equilibrium(
    game: GameModel,
    plan: PerClient,
    transfers: PerClient | None = None,
    *,
    premium: float = 0.0,
    finite_sample: bool = False,
    seed: int = 0,
) -> tuple[Array | None, float]:
    """The equilibrium of a plan's contracts with the largest loss that best responses find, and its loss; None: only the plan.

    ``premium`` in [0, 1] moves the transfers from those that are posted (by default the least that keep everybody in) to the
    capped payouts where these are more, under which acceptance is the only equilibrium (Theorem 3 of the theory of offers). Starts
    are random subsets of acceptance.
    """
    if not 0.0 <= number(premium, "premium") <= 1.0:
        raise InputError("premium", "must lie in [0, 1]", value=premium)
    profile = game.profile(plan)
    plan = profile.x
    posted = (
        contract_transfers(game, profile) if transfers is None else game.check_amounts(transfers, "transfers")
    )
    capped = np.maximum(capped_prices(game, profile)[0] * plan, posted)
    paid = posted + premium * (capped - posted)
    rng = np.random.default_rng(seed)
    worst: Array | None = None
    loss = game.loss_of(profile, finite_sample)
    for run in range(RUNS):
        share = rng.uniform()
        x = np.where(
            rng.uniform(size=game.count) < share, plan, plan * rng.uniform(size=game.count) * (run % 2)
        )
        settled = settle_contracts(game, plan, paid, x)
        if settled is None or np.abs(settled - plan).max() <= SAME_PROFILE:
            continue
        reached = game.loss_of(game.profile(settled), finite_sample)
        if worst is None or reached > loss:
            worst, loss = settled, reached
    return worst, loss
