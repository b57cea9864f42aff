"""A solution judged from its game alone: every number it states is derived again, and the first that does not hold is named.

*Feasible.* The participation is an equilibrium of the payments for every client beside its own stakes (:mod:`.stakes`), the
spend is within the budget, loss and total meet what was asked for; all of it enclosed (:mod:`.point`), nothing estimated.
*Bound.* The certificate proves that no payments have a smaller objective than ``lower_bound`` (:mod:`.bound_check`).
*Words.* ``CERTIFIED`` is said only if both hold and the gap is the one that was asked for (:mod:`.gaps`); where robust payments
were asked for, only if every equilibrium keeps the budget. How long a search took, how it ended short of a proof, and free text are
not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from ..errors import StackfuError
from ..model import GameModel, Objective
from ..model.game_model import require_formulas
from ..results import Equilibrium, Solution, Status, Verification
from ..results.facade import facade
from .bound_check import BoundVerdict, check_bound
from .check_tolerances import EMBEDDING_DIGITS, GAP_ROUNDING, LAST_DIGITS, LOSS_DIGITS
from .gaps import GapRule, known_bound, resolution_of
from .point import PointEnclosure, enclose_point
from .stakes import NEGLIGIBLE, check_stakes

__all__ = [
    "check_bound_present",
    "check_status",
    "contradictions",
    "gap_rule",
    "judge_point",
    "judge_robustness",
    "measured_against",
    "promised_gap",
    "proved_bound",
    "rounding_slack",
    "unpaid_loss",
    "verify_solution",
    "within_gap",
]

#: Least loss, relative to the clients' spread (their largest squared distance), that gaps are measured against.
SMALLEST_LOSS = 1e-6


def verify_solution(solution: Solution, tolerance: float = 1e-9) -> Verification:
    """Derive every stated number again; ``tolerance`` is what stated floats may differ from what is derived, relative."""
    require_formulas(solution.game)
    residual = regret = math.inf
    try:
        check = solution.equilibrium.verify(tolerance)
        residual, regret = check.residual, check.regret
        problem = next(_problems(solution, check, tolerance), None)
    except StackfuError as error:
        problem = str(error)
    message = problem if problem is not None else _proved(solution)
    return Verification(problem is None, residual, regret, tolerance, message)


def _problems(solution: Solution, check: Verification, tolerance: float) -> Iterator[str]:
    game, goal, eq = solution.game, solution.goal, solution.equilibrium
    yield from contradictions(solution)
    if not check:
        yield check.message
    point = enclose_point(game, goal, solution.payments, eq.participation)
    yield from judge_point(goal, point)
    low, high = point.objective(goal)
    size = max(abs(low), abs(high))
    if not low - tolerance * size <= solution.objective <= high + tolerance * size:
        yield f"the objective is {0.5 * (low + high):.12g}, not {solution.objective:.12g} as stated"
    yield from _bound_problems(solution, high)
    if solution.robust and solution.status is Status.CERTIFIED:
        yield from judge_robustness(solution)


def contradictions(solution: Solution) -> Iterator[str]:
    """Yield contradictions that are visible before any computation."""
    goal, eq = solution.goal, solution.equilibrium
    for name in ("budget", "objective", "lower_bound"):
        if math.isnan(getattr(solution, name)):
            yield f"the {name} is not a number"
    if eq.game is not solution.game:
        yield "the equilibrium belongs to another game"
    if not np.array_equal(eq.payments, solution.payments):
        yield "the payments differ from those of the equilibrium"
    if goal.budget != solution.budget:
        yield f"the budget {solution.budget:.9g} is not the one asked for, {goal.budget:.9g}"


def judge_robustness(solution: Solution) -> Iterator[str]:
    """Yield the reason why payments may exceed their budget in one of their equilibria; nothing if they do not."""
    every = solution.equilibria
    most = solution.spend_range[1]
    if most > solution.goal.budget * (1.0 + LAST_DIGITS):
        yield f"another equilibrium of the same payments spends {most:.9g}, more than the budget {solution.goal.budget:.9g}"
    if not every.complete and np.isfinite(solution.goal.budget):
        yield "whether the payments have further equilibria, which might overspend, is not known"


def judge_point(
    goal: Objective, point: PointEnclosure, most: float | None = None, cost: str = "the payments spend"
) -> Iterator[str]:
    """Yield the constraints that the profile violates; ``most`` is the largest possible cost of the offers, if above their cost."""
    spend = point.spend[1] if most is None else most
    if spend > goal.budget * (1.0 + LAST_DIGITS):
        yield f"{cost} {spend:.12g}, more than the budget {goal.budget:.12g}"
    if point.loss[0] > goal.max_loss * (1.0 + LAST_DIGITS):
        yield f"the loss {point.loss[0]:.12g} is above the largest one allowed, {goal.max_loss:.12g}"
    if point.total[1] < goal.min_total * (1.0 - LAST_DIGITS):
        yield f"total participation {point.total[1]:.9g} is below the floor {goal.min_total:.9g}"


def _bound_problems(solution: Solution, high: float) -> Iterator[str]:
    certificate = solution.certificate
    yield from check_bound_present(solution, high, certificate is not None)
    if certificate is None or not math.isfinite(solution.lower_bound):
        return
    verdict = check_bound(solution.game, solution.goal, certificate)
    if not verdict:
        yield f"the certificate does not prove the lower bound: {verdict.message}"
    yield from check_status(solution, high, proved_bound(verdict), promised_gap)


def check_bound_present(solution: Solution, high: float, has_certificate: bool) -> Iterator[str]:
    """Yield an error if such a lower bound is impossible, or has nothing to prove it."""
    lower = solution.lower_bound
    if lower == math.inf or lower > high:
        yield f"the lower bound {lower:.12g} lies above the objective"
    if not math.isfinite(lower):
        if solution.status is Status.CERTIFIED:
            yield "it says CERTIFIED without a lower bound"
    elif not has_certificate:
        yield "the lower bound comes without a certificate"


def check_status(
    solution: Solution, high: float, proved: float, promise: Callable[[Solution], float]
) -> Iterator[str]:
    """Yield an error if a claim exceeds its proof, or CERTIFIED its gap; ``promise`` is the widest allowed gap."""
    lower = solution.lower_bound
    if lower > proved:
        yield f"the certificate proves {proved:.12g}, not the lower bound {lower:.12g} that is stated"
    if solution.status is Status.CERTIFIED:
        promised = promise(solution)
        if not within_gap(high, lower, promised * (1.0 + GAP_ROUNDING) + rounding_slack(solution, high)):
            yield f"the gap {high - lower:.3g} is wider than the {promised:.3g} that CERTIFIED promises"


def within_gap(high: float, lower: float, gap: float) -> bool:
    """Return True if a bound comes within a gap of a value: all three must be finite numbers."""
    return math.isfinite(high) and math.isfinite(lower) and math.isfinite(gap) and high - lower <= gap


def proved_bound(verdict: BoundVerdict) -> float:
    """Return the bound of an accepted certificate, or 0 if that is larger: losses and payments are never negative."""
    return max(verdict.lower, 0.0) if verdict else -math.inf


def rounding_slack(solution: Solution, high: float) -> float:
    """A difference between two losses that arithmetic cannot resolve: the last digits of the larger one, or of the embeddings."""
    game = solution.game
    largest = float(np.max(game.embeddings.squared_norms))
    return LOSS_DIGITS * abs(high) + EMBEDDING_DIGITS * game.loss.weight * solution.goal.loss_weight * largest


def promised_gap(solution: Solution) -> float:
    """Return the widest gap under which a solution is CERTIFIED, absolute, by :func:`gap_rule`."""
    game, goal, limits = solution.game, solution.goal, solution.limits
    if limits is None:
        return 0.0
    unpaid = math.nan if game.is_homogeneous else unpaid_loss(game, goal)
    return gap_rule(game, goal, limits.gap, unpaid)(solution.objective)


def gap_rule(game: GameModel, goal: Objective, relative: float, unpaid: float) -> GapRule:
    """Return the widest gap at every objective, from the relative one that was asked for.

    Parameters
    ----------
    game, goal
        What is solved.
    relative
        The gap that was asked for.
    unpaid
        The loss without payments; not looked at where all clients have the same data.
    """
    resolution, known = resolution_of(game, goal, game.full_participation_price), known_bound(game, goal)
    if game.is_homogeneous:
        return GapRule(relative, math.inf, resolution, known)
    return GapRule(relative, measured_against(game, goal, unpaid), resolution, known)


def unpaid_loss(game: GameModel, goal: Objective) -> float:
    """Return the loss without payments, at the equilibrium that a solver proposes; 0 if that is not proved to be one."""
    unpaid: Equilibrium = facade(game).equilibrium()
    proved = check_stakes(game, game.no_payments, unpaid.participation).max() <= NEGLIGIBLE
    return game.loss_of(game.profile(unpaid.participation), goal.finite_sample) if proved else 0.0


def measured_against(
    game: GameModel, goal: Objective, unpaid_loss: float, everybody: float | None = None
) -> float:
    """Return the reference value of gaps: the objective without payments, or the price of full participation without a loss.

    A loss below a millionth of the clients' spread is no measure: the squared distances it is made of are known to the spread's
    last digits. That millionth stands in for it.
    """
    if goal.loss_weight * game.loss.weight == 0.0:
        return float(
            goal.payment_weight * (game.full_participation_price if everybody is None else everybody)
        )
    least = SMALLEST_LOSS * game.loss.weight * game.geometry.scale
    return float(goal.loss_weight * max(unpaid_loss, least))


def _proved(solution: Solution) -> str:
    known = "equilibrium, spend, objective"
    if not math.isfinite(solution.lower_bound):
        return f"{known} derived again from the game, nothing disagrees; optimality is not claimed"
    certificate = solution.certificate
    leaves = 0 if certificate is None else certificate.leaves
    return f"{known} derived again from the game, lower bound proved by its certificate ({leaves} boxes); nothing disagrees"
