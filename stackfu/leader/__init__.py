"""The leader: payments within a budget.

===========  ==========================================================================================
certified    global optimum with a lower bound, by branch and bound (:mod:`stackfu.leader.certified`)
haipo        the published algorithm, as a baseline (:mod:`stackfu.leader.haipo`)
uniform      one price for everybody (:mod:`stackfu.leader.uniform`)
===========  ==========================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import InfeasibleError, InputError, NoEquilibriumError
from ..game import StackelbergGame
from ..geometry import Array, frozen
from ..result import Equilibrium, Solution, Status, Uniqueness

__all__ = ["solve"]

#: Up to this many remaining clients all equilibria of the returned payments are enumerated.
ENUMERATE_UP_TO = 300


def solve(
    game: StackelbergGame,
    budget: float | None = None,
    method: Literal["certified", "haipo", "uniform"] = "certified",
    **options: Any,
) -> Solution:
    """Payments that minimise the server's loss within a budget.

    Parameters
    ----------
    budget
        Largest total payment ``p . x``. None means no limit (sensible with ``payment_weight``).
    method
        ``"certified"``, ``"haipo"`` or ``"uniform"``.
    options
        For ``"certified"``:

        ``payment_weight`` (0): minimise ``u_server + payment_weight * spend``; 1 without a budget maximises ``U_sr``.
        ``min_total``, ``min_samples``: floor on total participation S, or on the number of samples used.
        ``finite_sample`` (False): add the variance of the used samples' embedding to the loss, so that leftover budget
        buys data. ``max_loss``: with ``payment_weight=1`` and ``loss_weight=0`` the cheapest way to a given loss.
        ``gap`` (1e-6, 1e-5 above 12 clients, 1e-3 above 60): gap to close, relative to the loss without payments.
        ``time_limit`` (60 s), ``max_nodes``. ``robust`` (False): prefer payments whose equilibrium is unique.
        ``start``: profiles to start from. ``progress``, ``callback``.

        For ``"haipo"``: ``others`` ("equilibrium" or "full"), ``tolerance``, ``max_iterations``. For ``"uniform"``: ``tolerance``.
    """
    limit = _check_budget(budget)
    if method == "certified":
        return _solve_certified(game, limit, **_known(options, _CERTIFIED_OPTIONS, method))
    if not np.isfinite(limit):
        raise InputError("budget", f'method "{method}" needs a budget', value=budget)
    began = time.perf_counter()
    if method == "uniform":
        from .uniform import uniform_price

        eq, status, message, history = uniform_price(game, limit, **_known(options, {"tolerance"}, method))
    elif method == "haipo":
        from .haipo import haipo

        known = _known(options, {"others", "tolerance", "max_iterations"}, method)
        if known.get("others", "equilibrium") not in ("equilibrium", "full"):
            raise InputError("others", 'must be "equilibrium" or "full"', value=known["others"])
        eq, status, message, history = haipo(game, limit, **known)
    else:
        raise InputError("method", 'must be "certified", "haipo" or "uniform"', value=repr(method))
    return Solution(
        game=game,
        budget=limit,
        payments=eq.payments,
        equilibrium=eq,
        status=status,
        method=method,
        objective=eq.server_loss,
        lower_bound=-np.inf,
        message=message,
        options=dict(options),
        nodes=len(history),
        seconds=time.perf_counter() - began,
        history=history,
    )


_CERTIFIED_OPTIONS = {
    "payment_weight",
    "loss_weight",
    "max_loss",
    "min_total",
    "min_samples",
    "finite_sample",
    "gap",
    "time_limit",
    "max_nodes",
    "robust",
    "start",
    "progress",
    "callback",
}


def _known(options: dict[str, Any], names: set[str], method: str) -> dict[str, Any]:
    unknown = sorted(set(options) - names)
    if unknown:
        raise InputError(
            unknown[0], f'is not an option of method "{method}"; those are {", ".join(sorted(names))}'
        )
    return options


def _check_budget(budget: float | None) -> float:
    if budget is None:
        return np.inf
    try:
        value = float(budget)
    except (TypeError, ValueError):
        raise InputError("budget", "must be a number or None", value=repr(budget)) from None
    if np.isnan(value) or value < 0:
        raise InputError("budget", "must not be negative or NaN", value=value)
    return value


def _non_negative(name: str, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(name, "must be a number", value=repr(value)) from None
    if np.isnan(number) or number < 0:
        raise InputError(name, "must not be negative or NaN", value=value)
    return number


def effective_budget(game: StackelbergGame, budget: float) -> float:
    """The budget, or infinity if it cannot bind: the cheapest payments never exceed the costs.

    A budget of 1e300 would otherwise spoil the scaling of the cone programs.
    """
    return budget if budget < 1.01 * float(game.costs.sum()) else float("inf")


def _finite(name: str, value: float) -> float:
    number = _non_negative(name, value)
    if np.isinf(number):
        raise InputError(name, "must be finite", value=value)
    return number


def _starting_profiles(game: StackelbergGame, start: npt.ArrayLike | None) -> list[Array]:
    if start is None:
        return []
    try:
        rows = np.atleast_2d(np.asarray(start, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError("start", "must be a participation profile or a list of them") from None
    return [game.check_participation(row) for row in rows]


def _solve_certified(
    game: StackelbergGame,
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
    from .certified import Objective, certified
    from .homogeneous import buy_data
    from .progress import reporting

    began = time.perf_counter()
    payment_weight = _finite("payment_weight", payment_weight)
    loss_weight = _finite("loss_weight", loss_weight)
    max_loss = _non_negative("max_loss", max_loss)
    max_nodes = int(min(_non_negative("max_nodes", max_nodes), 2**62))
    if (game.lam_v + game.lam_s) * loss_weight + payment_weight == 0:
        raise InputError(
            "lambda_v", "and lambda_s are both 0: the server does not care, there is nothing to optimise"
        )
    floor = max(
        _non_negative("min_total", min_total), _non_negative("min_samples", min_samples) / game.sizes.sum()
    )
    if floor > 1.0 + 1e-12:
        name, value = ("min_total", min_total) if min_total > 1 else ("min_samples", min_samples)
        raise InfeasibleError(
            f"{name} = {value:g} is out of reach whatever the budget: the remaining clients own "
            f"{game.sizes.sum():g} samples (total participation at most 1)"
        )
    floor = min(floor, 1.0)
    if gap is None:
        gap = 1e-6 if game.count <= 12 else 1e-5 if game.count <= 60 else 1e-3
    gap = _non_negative("gap", gap)
    if callback is not None and not callable(callback):
        raise InputError("callback", "must be a function of one record", value=repr(callback))
    time_limit = _non_negative("time_limit", time_limit)
    if game.is_homogeneous:
        return buy_data(
            game,
            budget,
            floor,
            finite_sample,
            payment_weight=payment_weight,
            loss_weight=loss_weight,
            max_loss=max_loss,
        )

    objective = Objective(
        budget=effective_budget(game, budget),
        payment_weight=payment_weight,
        loss_weight=loss_weight,
        loss_cap=max_loss,
        finite_sample=bool(finite_sample),
        floor=floor,
    )
    given = _starting_profiles(game, start)
    unpaid = game.equilibrium()
    reference = unpaid.server_loss * loss_weight or payment_weight * game.full_participation_price
    starts = [unpaid.participation, np.ones(game.count), *given]
    if np.isfinite(objective.budget) and (floor > 0 or np.isfinite(objective.loss_cap)):
        starts.append(_cheapest_admissible(game, objective, 0.5 * time_limit))
    left = max(time_limit - (time.perf_counter() - began), 0.0)
    with reporting("certified", progress, callback) as report:
        run = certified(
            game,
            objective,
            gap=gap * reference,
            time_limit=left,
            max_nodes=max_nodes,
            starts=tuple(starts),
            callback=report,
        )
    best, status, message = run.best, run.status, ""
    if robust:
        best, message = _most_robust(game, run.pool, best)
    equilibrium, reproduced = play_back(game, best.payments, best.x)
    if status is Status.CERTIFIED and run.best.value - run.bound > gap * reference * (1 + 1e-9):
        status = Status.GAP_OPEN
    if not reproduced:
        status, message = Status.FAILED, "the payments, played back, do not reproduce the participation"
    loss = equilibrium.server_loss + (
        game.finite_sample_penalty(equilibrium.participation) if finite_sample else 0.0
    )
    return Solution(
        game=game,
        budget=budget,
        payments=frozen(best.payments),
        equilibrium=equilibrium,
        status=status,
        method="certified",
        objective=loss_weight * loss + payment_weight * equilibrium.spend,
        lower_bound=run.bound,
        shadow_price=run.shadow_price,
        message=message,
        options={
            "payment_weight": payment_weight,
            "loss_weight": loss_weight,
            "max_loss": objective.loss_cap,
            "min_total": floor,
            "finite_sample": objective.finite_sample,
            "gap": gap,
            "robust": robust,
        },
        nodes=run.nodes,
        seconds=time.perf_counter() - began,
        history=run.history,
    )


def _cheapest_admissible(game: StackelbergGame, objective: Any, time_limit: float) -> Array:
    """A profile that meets the floor and the loss cap for as little as possible, or an error that says what it takes."""
    from dataclasses import replace

    from .certified import certified

    bill = replace(objective, budget=np.inf, loss_weight=0.0, payment_weight=1.0)
    everything = float(game.costs.sum())
    half, most = 0.5 * time_limit, 10_000
    run = certified(
        game, bill, gap=1e-3 * everything, time_limit=half, max_nodes=most, starts=(np.ones(game.count),)
    )
    if run.best.spend > objective.budget:
        run = certified(
            game, bill, gap=1e-7 * everything, time_limit=half, max_nodes=most, starts=(run.best.x,)
        )
    if run.bound > objective.budget:
        wanted = [f"total participation of at least {objective.floor:g}"] if objective.floor > 0 else []
        wanted += [f"a loss of at most {objective.loss_cap:g}"] if np.isfinite(objective.loss_cap) else []
        raise InfeasibleError(
            f"budget {objective.budget:g} is too small for {' and '.join(wanted)}: that takes at least {run.bound:.6g}"
        )
    return run.best.x


def play_back(game: StackelbergGame, payments: Array, x: Array) -> tuple[Equilibrium, bool]:
    """The clients' equilibrium under the payments that is meant, and whether it reproduces x, its spend and its loss."""
    meant = game.profile(x)
    residual = game.residual(payments, x)
    verdict = game.equilibria(payments) if game.count <= ENUMERATE_UP_TO else None
    try:
        played = list(verdict) if verdict is not None else [game.equilibrium(payments, start=x)]
    except NoEquilibriumError:
        played = []
    near = [eq for eq in played if np.abs(eq.profile.y - meant.y).max() <= 1e-7 * meant.total]
    if near:
        eq = min(near, key=lambda e: float(np.abs(e.participation - x).max()))
        if eq.spend <= float(payments @ x) * (1.0 + 1e-10):
            return eq, True
    # On a face of equilibria the solver lands on some point of it; x is another one, as its own residual shows.
    loss = game.server_loss(x)
    same = any(
        abs(eq.total - meant.total) <= 1e-6 * meant.total and abs(eq.server_loss - loss) <= 1e-6 * abs(loss)
        for eq in played
    )
    unique, reason = Uniqueness.UNKNOWN, "too many clients to enumerate all equilibria"
    if verdict is not None:
        unique, reason = verdict.uniqueness, verdict.reason
        if not near and same and unique is not Uniqueness.CONTINUUM:
            unique = Uniqueness.CONTINUUM
            reason = "up to rounding, a face of equilibria shares this total and this mixture embedding"
    itself = Equilibrium(
        game=game,
        payments=frozen(payments),
        participation=frozen(x),
        status=Status.CERTIFIED if residual <= 1e-9 else Status.FAILED,
        uniqueness=unique,
        reason=reason,
        method="price",
        regret=game.regret(payments, x),
        residual=residual,
    )
    return itself, residual <= 1e-9 and (bool(near) or same or unique is Uniqueness.CONTINUUM)


def _most_robust(game: StackelbergGame, pool: tuple[Any, ...], best: Any) -> tuple[Any, str]:
    """Among the profiles met by the search, the one whose worst equilibrium is best; ties go to a unique one."""
    ranked = []
    for candidate in sorted(pool, key=lambda c: c.value)[:25]:
        verdict = game.equilibria(candidate.payments)
        worst = max([candidate.value, *(candidate.value + e.server_loss - candidate.loss for e in verdict)])
        ranked.append((worst, verdict.uniqueness is not Uniqueness.UNIQUE, candidate))
    worst, several, chosen = min(ranked, key=lambda r: (r[0], r[1]))
    if chosen is best:
        return best, "the optimal payments are also the most robust ones found"
    word = "has several equilibria, the worst of which" if several else "has one equilibrium, which"
    return chosen, f"robust choice: {word} is worth {worst:.6g} (optimistic optimum {best.value:.6g})"
