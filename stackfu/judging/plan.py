"""Checking plans from scratch: is the plan what every client wants, is it the only equilibrium, and is the bound proved?

*Capped offers.* No client can gain relative to its own stakes (:mod:`.stakes`). Uniqueness rests on Theorem 1 of
``docs/theory/offers.md``: every client would bring more than its cap, with all rounding accounted for. *Contracts.* What
each client could gain by bringing less, unpaid, is searched for from the definition of its utility,

    U_k(y) = payout_k(y) - kappa_k y - lam (q_k / (S0_k + y)^2 + a / (S0_k + y)),

not by the closed form that priced the plan. A claim that acceptance by all is the only equilibrium is checked with every
set that might reject (:mod:`.rejections`). Spend, loss and total are enclosed (:mod:`.point`), the lower bound is proved by its
certificate (:mod:`.plan_bound`), and CERTIFIED is said only if the gap is the one that was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..errors import StackfuError
from ..model import Array, GameModel, Objective, frozen
from ..model.game_model import require_formulas
from ..model.profile import Profile
from ..results import Solution, Uniqueness, Verification
from ..results.contract_certificate import ContractCertificate
from ..results.plan_certificate import PlanCertificate
from .check_tolerances import LAST_DIGITS
from .gaps import GapRule, known_bound, resolution_of
from .plan_bound import check_plan_bound
from .point import enclose_point
from .rejections import other_outcome
from .solution_check import (
    check_bound_present,
    check_status,
    contradictions,
    judge_point,
    measured_against,
    rounding_slack,
    unpaid_loss,
)

__all__ = [
    "ONLY",
    "check_contract_bound",
    "contract_regrets",
    "gaps_are_relative_to",
    "plan_gap_rule",
    "verify_plan",
]

#: Margin of a claim about shares: the rounding of a few quotients.
TO_SPARE = 1e-14

#: Start of the message of contracts that no client can reject; the checker derives the claim again.
ONLY = "everybody accepting is the only equilibrium of the contracts"


def gaps_are_relative_to(game: GameModel, goal: Objective) -> float:
    """Return the objective without payments, or the sum of all costs where the loss does not count."""
    everybody = float(game.costs.sum())
    if goal.loss_weight * game.loss.weight == 0.0:
        return measured_against(game, goal, 0.0, everybody)
    try:
        loss = unpaid_loss(game, goal)
    except StackfuError:
        loss = game.loss_of(game.profile(np.ones(game.count)), goal.finite_sample)
    return measured_against(game, goal, loss, everybody)


def plan_gap_rule(game: GameModel, goal: Objective, relative: float) -> GapRule:
    """Return the widest gap at every objective of a plan, from the relative one that was asked for."""
    resolution = resolution_of(game, goal, float(game.costs.sum()))
    return GapRule(relative, gaps_are_relative_to(game, goal), resolution, known_bound(game, goal))


def verify_plan(solution: Solution, tolerance: float = 1e-9) -> Verification:
    """Verify plan, offers, spend, objective and lower bound of a solution."""
    require_formulas(solution.game)
    residual = regret = math.inf
    try:
        problem = next(_nonsense(solution), None)
        if problem is None:
            if solution.offers.kind == "capped":
                check = solution.equilibrium.verify(tolerance)
                residual, regret = check.residual, check.regret
                problem = None if check else check.message
            else:
                residual, regret = 0.0, 0.0
                problem = next(_rejections(solution, tolerance), None)
        if problem is None:
            problem = next(_problems(solution, tolerance), None)
    except StackfuError as error:
        problem = str(error)
    known = "plan, offers, spend and objective derived again from the game, nothing disagrees"
    proved = "; the lower bound is proved by its certificate" if math.isfinite(solution.lower_bound) else ""
    message = f"{known}{proved}" if problem is None else problem
    return Verification(problem is None, residual, regret, tolerance, message)


def _nonsense(solution: Solution) -> Iterator[str]:
    """Yield contradictions that are visible before any computation."""
    game, offers, eq = solution.game, solution.offers, solution.equilibrium
    yield from contradictions(solution)
    for name in ("prices", "caps", "retainers"):
        values = getattr(offers, name)
        if values.shape != (game.count,) or not np.all((values >= 0) & np.isfinite(values)):
            yield f"the {name} of the offers are not one number per client, none below 0"
    if np.any(offers.caps > 1):
        yield "somebody is asked for more than it has"
    if not np.array_equal(eq.payments, offers.prices):
        yield "the payments are not the prices that are offered"
    if not np.array_equal(game.check_caps(eq.caps), offers.caps):
        yield "the caps are not those that are offered"
    if not np.array_equal(game.no_payments if eq.retainers is None else eq.retainers, offers.retainers):
        yield "the retainers are not those that are offered"
    x = eq.participation
    if x.shape != (game.count,) or not np.all((x >= 0) & (x <= offers.caps)) or not np.any(x > 0):
        yield "the participation does not respect the caps"
    if solution.outside is not None and (
        solution.outside.shape != (game.count,)
        or np.any(np.isnan(solution.outside) | (solution.outside == np.inf))
    ):
        yield "there is not one outside utility per client"


def _rejections(solution: Solution, tolerance: float) -> Iterator[str]:
    """Yield an error if a client would reject its contract."""
    game, eq = solution.game, solution.equilibrium
    if not np.array_equal(eq.participation, solution.offers.caps):
        yield "not everybody brings what its contract says"
    if eq.uniqueness not in (Uniqueness.UNKNOWN, Uniqueness.UNIQUE):
        yield "how many equilibria contracts have is not proved"
    if eq.uniqueness is Uniqueness.UNIQUE or solution.message.startswith(ONLY):
        yield from _other_outcomes(solution)
    if eq.status.proved:
        yield "that everybody accepts is found by search, not proved"
    if not (0.0 <= eq.regret <= tolerance * float(game.costs.max()) and 0.0 <= eq.residual <= tolerance):
        yield f"the reported regret {eq.regret:.3e} or residual {eq.residual:.3e} is not that of contracts that are accepted"
    regrets = contract_regrets(solution)
    k = int(np.argmax(regrets))
    if not regrets[k] <= tolerance:
        yield f"client {game.label(k)} gains {regrets[k]:.3e} of its stakes by not accepting"


def _other_outcomes(solution: Solution) -> Iterator[str]:
    """Yield the reason why acceptance by all may not be the only equilibrium, if the solution claims it."""
    game, offers = solution.game, solution.offers
    other, complete = other_outcome(game, offers.caps, frozen(offers.prices * offers.caps))
    if other is not None:
        who = ", ".join(str(game.label(int(k))) for k in np.flatnonzero(other < offers.caps))
        yield f"everybody accepting is said to be the only equilibrium, but there is one in which {who} rejects"
    elif not complete and solution.equilibrium.uniqueness is Uniqueness.UNIQUE:
        yield "that everybody accepting is the only equilibrium is not found again"


def contract_regrets(solution: Solution) -> Array:
    """Return each client's gain from bringing less, unpaid, relative to its own stakes; by search over a refined grid."""
    game, offers, profile = solution.game, solution.offers, solution.equilibrium.profile
    here, y, rest = profile.total, profile.y, profile.others
    q = np.where(rest > 0, here**2 * profile.to_clients, 0.0)
    payout = offers.prices * offers.caps

    def gains(share: Array) -> Array:
        less = (1.0 - share) * y[:, None]
        away = rest[:, None] + share * y[:, None]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # q / away^2 + a / away minus q / here^2 + a / here, without subtracting numbers of one size
            more = q[:, None] * (here + away) / (here * away) ** 2 + game.sampling / (here * away)
            drift = np.where(less > 0, less * np.where(away > 0, more, np.inf), 0.0)
            if (
                game.sampling == 0.0
            ):  # who is alone sees no drift however little it brings, unless it brings nothing
                drift = np.where((rest[:, None] > 0) | (share <= 0), drift, 0.0)
            found = game.kappa[:, None] * less - game.lam * drift - payout[:, None]
        return np.where(np.isnan(found) | (less <= 0), -np.inf, found)

    low, high, best = np.zeros(game.count), np.ones(game.count), np.zeros(game.count)
    for _ in range(6):
        grid = low[:, None] + np.linspace(0.0, 1.0, 33) * (high - low)[:, None]
        values = gains(grid)
        place = np.argmax(values, axis=1)
        best = np.maximum(best, values[np.arange(game.count), place])
        width = (high - low) / 32.0
        centre = grid[np.arange(game.count), place]
        low, high = np.maximum(centre - width, 0.0), np.minimum(centre + width, 1.0)
    stakes = np.maximum(np.maximum(game.costs, payout), game.lam * profile.to_clients)
    return np.asarray(np.where(y > 0, best / stakes, 0.0))


def _problems(solution: Solution, tolerance: float) -> Iterator[str]:
    game, goal, offers = solution.game, solution.goal, solution.offers
    profile = solution.equilibrium.profile
    yield from _leavers(solution, profile)
    retained = math.fsum(offers.retainers.tolist())
    most = math.fsum((offers.prices * offers.caps).tolist()) + retained
    point = enclose_point(game, goal, offers.prices, profile.x)
    yield from judge_point(goal, point, most, "the offers can cost")
    low, high = replace(point, spend=(point.spend[0] + retained, point.spend[1] + retained)).objective(goal)
    slack = tolerance * max(abs(low), abs(high)) + rounding_slack(solution, high)
    if not low - slack <= solution.objective <= high + slack:
        yield f"the objective is {0.5 * (low + high):.12g}, not {solution.objective:.12g} as stated"
    yield from _bound_problems(solution, high)


def _leavers(solution: Solution, profile: Profile) -> Iterator[str]:
    """Yield the clients that would leave, relative to their stakes."""
    if solution.outside is None:
        return
    game, outside = solution.game, solution.outside
    bill = game.costs * profile.x
    drift = game.lam * (profile.to_clients + game.sampling / profile.total)
    missing = outside - (solution.offers.payouts(profile.x) - bill - drift)
    stakes = np.maximum(game.costs, np.maximum(drift, np.where(np.isfinite(outside), np.abs(outside), 0.0)))
    k = int(np.argmax(missing / stakes))
    if missing[k] > LAST_DIGITS * stakes[k]:
        yield f"client {game.label(k)} is better off outside by {missing[k]:.3e}"


def _bound_problems(solution: Solution, high: float) -> Iterator[str]:
    """The lower bound is what the certificate says, the checker accepts it, and CERTIFIED promises no more."""
    certificate, kind = solution.certificate, solution.offers.kind
    yield from check_bound_present(solution, high, certificate is not None)
    if not math.isfinite(solution.lower_bound):
        return
    if kind == "contract" and isinstance(certificate, ContractCertificate):
        problem = check_contract_bound(solution, certificate)
    elif kind == "capped" and isinstance(certificate, PlanCertificate):
        verdict = check_plan_bound(solution.game, solution.goal, certificate, solution.outside)
        problem = "" if verdict else verdict.message
    else:
        yield "the lower bound comes without a certificate"
        return
    if problem:
        yield f"the certificate does not prove the lower bound: {problem}"
    # losses and payments are never negative
    yield from check_status(solution, high, max(certificate.lower, 0.0), _promised)


def _promised(solution: Solution) -> float:
    if solution.limits is None:
        return 0.0
    return plan_gap_rule(solution.game, solution.goal, solution.limits.gap)(solution.objective)


def check_contract_bound(solution: Solution, certificate: ContractCertificate) -> str:
    """Return the error in a certificate for contracts, as a sentence; empty if it proves its bound."""
    game, goal = solution.game, solution.goal
    reached = 0.0
    if not math.isfinite(certificate.lower):
        return "the claimed lower bound is not a finite number"
    # what keeps clients from leaving only adds to the price, so it plays no part here
    for number, piece in enumerate(certificate.pieces):
        if number and piece.low > reached:
            return f"totals between {reached:.9g} and {piece.low:.9g} are not covered"
        reached = piece.high
        # the first piece begins where its certificate does
        least = piece.low if number else min(piece.low, piece.certificate.least)
        if not 0.0 < least <= 1.0:
            return f"a piece begins at a total of {least!r}"
        top = float(np.minimum(game.alpha / least, 1.0).max()) * (1.0 + TO_SPARE)
        withheld = piece.share * top
        if not (0.0 < piece.share <= 1.0 and withheld < 1.0):
            return "a client cannot withhold more than its share"
        if piece.larger < (2.0 - withheld) / (2.0 * (1.0 - withheld) ** 2) * (1.0 + TO_SPARE):
            return "the larger lambda is not large enough"
        if piece.certificate.lower < certificate.lower:
            return "a piece proves less than the whole"
        # the library's own class: another constructor might make another game of it
        eager = GameModel(**game.arguments(lambda_q=game.lambda_q * piece.larger))
        wider = replace(
            goal, budget=goal.budget / piece.share, payment_weight=goal.payment_weight * piece.share
        )
        totals = (piece.low if number else 0.0, piece.high)
        verdict = check_plan_bound(eager, wider, piece.certificate, None, totals)
        if not verdict:
            return verdict.message
    return "" if reached >= 1.0 else f"totals above {reached:.9g} are not covered"
