"""Checking plans from scratch: is the plan what every client wants, is it the only equilibrium, and is the bound proved?

Capped offers and contracts are judged from the definition of the clients' utility, by search over what each could bring,

    U_k(y) = payout_k(y) - kappa_k y - lam (q_k / (S0_k + y)^2 + a / (S0_k + y)),

not by the closed forms that priced the plan. Uniqueness under capped offers rests on Theorem 1 of
``docs/theory/offers.md``, whose hypothesis,
``p_k >= c_k - 2 lam alpha_k D_k / S``, is recomputed here from the embeddings; budgets and retention are sums.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model import Array, GameModel
from ..model.profile import Profile
from ..results import Solution, Status, Uniqueness, Verification
from ..results.contract_certificate import ContractCertificate
from ..results.plan_certificate import PlanCertificate
from .plan_bound import check_plan_bound

__all__ = ["check_contract_bound", "plan_regrets", "verify_plan"]

#: Prices may fall short of the bracket by this share of the cost: rounding. The plan is then exact for costs lower by as much.
ROUNDING = 1e-11


def verify_plan(solution: Solution, tolerance: float = 1e-9) -> Verification:
    """Whether plan, offers, spend, objective and lower bound are what the solution says."""
    game, goal, offers = solution.game, solution.goal, solution.offers
    x = solution.participation
    if np.any((x < 0) | (x > offers.caps)) or not np.any(x > 0) or len(x) != game.count:
        return Verification(False, np.inf, np.inf, tolerance, "the participation does not respect the caps")
    profile = game.profile(x)
    unit = game.lam * (game.geometry.scale + game.sampling / profile.total) or float(game.costs.max())
    problems = [
        f"the {name} is not a number"
        for name in ("budget", "objective", "lower_bound")
        if np.isnan(getattr(solution, name))
    ]
    regrets = plan_regrets(solution, profile)
    worst = int(np.argmax(regrets))
    if regrets[worst] > tolerance * unit:
        problems.append(f"client {game.who(worst)} gains {regrets[worst]:.3e} by deviating")
    problems += _promises(solution, profile)
    spend = float(offers.payouts(x).sum())
    if offers.most > goal.budget * (1.0 + tolerance):
        problems.append(f"the offers can cost {offers.most:.9g}, more than the budget {goal.budget:.9g}")
    loss = _loss(game, profile, goal.finite_sample)
    objective = goal.value(loss, spend)
    scale = max(abs(objective), 1e-6 * unit)
    if abs(objective - solution.objective) > tolerance * scale:
        problems.append(f"the objective is {objective:.12g}, not {solution.objective:.12g} as stated")
    if loss > goal.max_loss * (1.0 + tolerance):
        problems.append(f"the loss {loss:.9g} is above the largest one allowed, {goal.max_loss:.9g}")
    if profile.total < goal.min_total * (1.0 - tolerance):
        problems.append(f"total participation {profile.total:.6g} is below the floor {goal.min_total:.6g}")
    problems += _bound(solution, objective, tolerance * scale)
    known = "plan, offers, spend and objective recomputed from the game"
    proved = "; the lower bound is proved by its certificate" if np.isfinite(solution.lower_bound) else ""
    message = "; ".join(problems) or f"{known}, nothing disagrees{proved}"
    return Verification(not problems, 0.0, float(regrets[worst]), tolerance, message)


def plan_regrets(solution: Solution, profile: Profile) -> Array:
    """What each client could gain by bringing another amount up to its cap, by search over a grid that is refined."""
    game, offers = solution.game, solution.offers
    a, lam = game.sampling, game.lam
    y, top = profile.y, game.alpha * offers.caps
    rest = profile.others
    q = np.where(rest > 0, profile.total**2 * profile.to_clients, 0.0)

    def cost(at: Array) -> Array:
        after = rest[:, None] + at
        with np.errstate(divide="ignore", invalid="ignore"):
            drift = np.where(after > 0, q[:, None] / after**2 + a / after, np.inf)
        return np.asarray(game.kappa[:, None] * at + lam * np.where(np.isnan(drift), np.inf, drift))

    def utility(at: Array) -> Array:
        share = np.where(top[:, None] > 0, at / np.where(top > 0, top, 1.0)[:, None], 1.0)
        if offers.kind == "contract":
            paid = np.where(share >= 1.0 - 1e-12, (offers.prices * offers.caps)[:, None], 0.0)
        else:
            paid = (offers.prices * offers.caps)[:, None] * share
        return np.asarray(paid - cost(at))

    here = utility(y[:, None])[:, 0]
    low, high, best = np.zeros(game.count), np.array(top), np.array(here)
    for _ in range(6):
        grid = low[:, None] + np.linspace(0.0, 1.0, 33) * (high - low)[:, None]
        values = np.where(np.isnan(utility(grid)), -np.inf, utility(grid))
        place = np.argmax(values, axis=1)
        best = np.maximum(best, values[np.arange(game.count), place])
        width = (high - low) / 32.0
        centre = grid[np.arange(game.count), place]
        low, high = np.maximum(centre - width, 0.0), np.minimum(centre + width, top)
    return np.asarray(np.maximum(best - here, 0.0))


def _promises(solution: Solution, profile: Profile) -> list[str]:
    """The hypothesis of uniqueness, and that nobody prefers to leave."""
    game, offers, problems = solution.game, solution.offers, []
    if solution.equilibrium.uniqueness is Uniqueness.UNIQUE:
        if offers.kind != "capped" or not np.array_equal(profile.x, offers.caps):
            problems.append(
                "said to be the only equilibrium, but the participation is not at the caps of capped offers"
            )
        needed = (
            game.costs
            - 2.0
            * game.lam
            * game.alpha
            * (profile.to_clients + 0.5 * game.sampling / profile.total)
            / profile.total
        )
        short = np.where(profile.x > 0, needed - offers.prices, 0.0) / game.costs
        k = int(np.argmax(short))
        if short[k] > ROUNDING:
            problems.append(
                f"client {game.who(k)} is paid too little for the plan to be the only equilibrium"
            )
    if solution.outside is not None:
        utilities = offers.payouts(profile.x) - game.costs * profile.x
        utilities = utilities - game.lam * (profile.to_clients + game.sampling / profile.total)
        missing = np.where(np.isfinite(solution.outside), solution.outside - utilities, -np.inf)
        k = int(np.argmax(missing))
        if missing[k] > ROUNDING * (game.costs[k] + abs(solution.outside[k])):
            problems.append(f"client {game.who(k)} is better off outside by {missing[k]:.3e}")
    return problems


def _loss(game: GameModel, profile: Profile, finite_sample: bool) -> float:
    """The server's loss with its sampling term, from the targets."""
    return float(game.loss_of(profile, finite_sample))


def _bound(solution: Solution, objective: float, slack: float) -> list[str]:
    """The lower bound is what the certificate says, and the checker accepts it."""
    claimed = solution.lower_bound
    if claimed == -np.inf:
        return ["certified without a lower bound"] if solution.status is Status.CERTIFIED else []
    if claimed > objective + slack:
        return ["the lower bound lies above the objective"]
    certificate = solution.certificate
    if isinstance(certificate, ContractCertificate) and solution.offers.kind == "contract":
        if claimed > certificate.lower + slack:
            return ["the lower bound is not the certificate's"]
        problem = check_contract_bound(solution, certificate)
        return [f"the certificate proves nothing: {problem}"] if problem else []
    if not isinstance(certificate, PlanCertificate) or solution.offers.kind != "capped":
        return ["a lower bound is stated without a certificate"]
    if claimed > certificate.lower + slack:
        return [
            f"the lower bound is {claimed:.12g}, but the certificate only claims {certificate.lower:.12g}"
        ]
    verdict = check_plan_bound(solution.game, solution.goal, certificate, solution.outside)
    return [] if verdict else [f"the certificate proves nothing: {verdict.message}"]


def check_contract_bound(solution: Solution, certificate: ContractCertificate) -> str:
    """What is wrong with a certificate for contracts, in words; empty if it proves its bound."""
    game, goal = solution.game, solution.goal
    reached = 0.0
    if solution.outside is not None:
        return "contracts with outside options have no certificate"
    for number, piece in enumerate(certificate.pieces):
        if number and piece.low > reached:
            return f"totals between {reached:.9g} and {piece.low:.9g} are not covered"
        reached = piece.high
        top = float(np.minimum(game.alpha / piece.low, 1.0).max()) * (1.0 + 1e-14)
        withheld = piece.share * top
        if not (0.0 < piece.share <= 1.0 and withheld < 1.0):
            return "a client cannot withhold more than its share"
        if piece.larger < (2.0 - withheld) / (2.0 * (1.0 - withheld) ** 2) * (1.0 + 1e-14):
            return "the larger lambda is not large enough"
        if piece.certificate.lower < certificate.lower:
            return "a piece proves less than the whole"
        own = {} if game.has_paper_loss else {"server_loss": game.loss}
        eager = game.replace(lambda_q=game.lambda_q * piece.larger, **own)
        wider = replace(
            goal, budget=goal.budget / piece.share, payment_weight=goal.payment_weight * piece.share
        )
        totals = (piece.low if number else 0.0, piece.high)
        verdict = check_plan_bound(eager, wider, piece.certificate, None, totals)
        if not verdict:
            return verdict.message
    return "" if reached >= 1.0 else f"totals above {reached:.9g} are not covered"
