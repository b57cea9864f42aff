"""Heterogeneity-Aware Incremental Payment Optimization (HAIPO), as published.

1. Budget shares ``B_i = B alpha_i``; for every client the price ``p_B,i`` with ``p x_i(p) = B_i``, by bisection. With the others
   fixed ``p x_i(p)`` is non-decreasing, and since ``x_i <= 1`` the root lies in ``[B_i, max(B_i, c_i)]``.
2. From ``p = p_B / 2``: play the clients' equilibrium, linearise the server's loss around its embedding ``mu_0``,

       u~(y) = u_server(mu_0) + 2 <sum_j weight_j (mu_0 - target_j), mu(y) - mu_0>,

   minimise u~ over ``0 <= p <= p_B`` and repeat until the payments stop moving.

With the others frozen each ``y_i`` is a non-decreasing function of ``p_i``, so the box of payments is a box of y, and there
u~ is a ratio of linear functions, ``(g . y) / (1 . y)``. Its minimiser takes the upper end of the box for the clients with the
smallest ``g_i`` and the lower end for the others, so sorting by g and comparing the N + 1 ways to cut the list solves it
(``solver="closed"``). ``solver="cvxpy"`` is the published formulation: a bisection over the level with one convex feasibility
problem per step. A sampling constant adds ``thin / (1 . y)``: a ratio of affine functions with the same structure; answers and
prices are then those with the sampling term.

The paper leaves open which behaviour of the others the bisection holds fixed: ``others="equilibrium"`` (at the current
payments, the default) or ``others="full"`` (everybody takes part fully). The linearised problem's minimiser is bang-bang
(each payment 0 or p_B,i), and iterating it often cycles; the history shows it, and the best iterate within the budget is
returned. The budget shares are sufficient, not necessary, for the budget, and only while the others do not move: the
spend at the real equilibrium is checked for every iterate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ..errors import ConvergenceError, InputError, NoEquilibriumError
from ..followers import find_equilibrium
from ..model import Array, GameModel, Profile, frozen
from ..model.arguments import count, not_negative
from ..model.responses import best_responses
from ..results import Status
from .mechanisms import Proposal
from .playing import play, play_with_proofs, same_play
from .tolerances import TINY

__all__ = ["LevelBisection", "best_iterate", "budget_prices", "haipo", "least_ratio"]

#: The spend may exceed the budget by this, relative to it.
KEPT = 1e-9
#: Tolerances of the published bisection, and of its level above the closed form's, both relative to the spread of the
#: gradient: a conic solver's own accuracy.
BISECTED, MATCHED = 1e-9, 1e-6


def budget_prices(game: GameModel, shares: Array, profile: Profile, iterations: int = 200) -> Array:
    """``p_B,k`` with ``p x_k(p) = share_k``, the others as in ``profile``, by bisection on [share, max(share, c_k)]."""
    low, high = np.array(shares), np.maximum(shares, game.costs)
    for _ in range(iterations):
        price = 0.5 * (low + high)
        settled = (price <= low) | (price >= high)
        if settled.all():
            break
        short = price * responses(game, price, profile) / game.alpha < shares
        low = np.where(short & ~settled, price, low)
        high = np.where(~short & ~settled, price, high)
    return high


def responses(game: GameModel, prices: Array, profile: Profile) -> Array:
    """Return every ``y_k`` that answers a price, the others as in ``profile``."""
    return best_responses(game.alpha, game.reluctance_under(prices), profile, game.sampling)


def prices_of(game: GameModel, y: Array, profile: Profile, cap: Array) -> Array:
    """Cheapest prices in [0, cap] that each client answers with ``y_k``, the others as in ``profile``."""
    rest = profile.others
    q = np.where(rest > 0, profile.total**2 * profile.to_clients, 0.0)
    after = rest + y
    safe = np.where(after > 0, after, 1.0)
    drift = np.where(after > 0, q / safe**3, 0.0)
    if game.sampling > 0.0:
        drift = drift + np.where(after > 0, game.sampling / (2.0 * safe**2), 0.0)
    price = np.clip(game.costs - game.drift_weight * drift, 0.0, cap)
    return np.where(y > 0, price, 0.0)


def least_ratio(g: Array, low: Array, high: Array, thin: float = 0.0) -> tuple[Array, float]:
    """Return the minimiser of ``(g . y + thin) / (1 . y)`` over the box, and the minimum.

    At the optimal level t every ``y_k`` minimises ``(g_k - t) y_k``: the upper end where ``g_k < t``, the lower one elsewhere.

    >>> y, level = least_ratio(np.array([3.0, 1.0, 2.0]), np.array([0.1, 0.0, 0.0]), np.ones(3))
    >>> y, round(level, 6)
    (array([0.1, 1. , 0. ]), 1.181818)
    """
    order = np.argsort(g, kind="stable")
    sorted_g, sorted_low, sorted_high = g[order], low[order], high[order]

    def cuts(lower: Array, upper: Array) -> Array:
        """Sums with the first j entries at the upper end, j = 0 .. N."""
        sums: Array = np.concatenate([[0.0], np.cumsum(upper)])
        sums[:-1] += np.cumsum(lower[::-1])[::-1]
        return sums

    amounts = cuts(sorted_low, sorted_high)
    values = cuts(sorted_g * sorted_low, sorted_g * sorted_high)
    ratios = np.where(amounts > 0, (values + thin) / np.where(amounts > 0, amounts, 1.0), np.inf)
    best = int(np.argmin(ratios))
    y = np.array(low)
    y[order[:best]] = high[order[:best]]
    return y, float(ratios[best])


class LevelBisection:
    """The same minimum as published: bisection over the level, one convex feasibility problem per step (cvxpy)."""

    def __init__(self, count: int) -> None:
        import cvxpy as cp

        self._y = cp.Variable(count)
        self._low, self._high = cp.Parameter(count), cp.Parameter(count)
        self._slope = cp.Parameter(count)  # g - level, so the problem stays affine in its parameters
        self._problem = cp.Problem(
            cp.Minimize(self._slope @ self._y), [self._y >= self._low, self._y <= self._high]
        )

    def solve(
        self, g: Array, low: Array, high: Array, tolerance: float, thin: float = 0.0
    ) -> tuple[Array, float, int]:
        """Least level t for which some y in the box has ``(g - t).y + thin <= 0``; at most ``tolerance`` above the optimum."""
        self._low.value, self._high.value = low, high
        below, best, steps = float(g.min()), high, 0
        above = (float(g @ high) + thin) / float(high.sum())
        while above - below > tolerance and steps < 200:
            level = 0.5 * (below + above)
            self._slope.value = g - level
            self._problem.solve(solver="CLARABEL")
            steps += 1
            y = np.clip(self._y.value, low, high)
            if y.sum() > 0 and float(g @ y) + thin <= level * float(y.sum()):
                best, above = y, (float(g @ y) + thin) / float(y.sum())
            else:
                below = level
        return best, above, steps


def haipo(
    game: GameModel,
    budget: float,
    *,
    others: Literal["equilibrium", "full"] = "equilibrium",
    solver: Literal["closed", "cvxpy"] = "closed",
    tolerance: float = 1e-6,
    max_iterations: int = 50,
) -> Proposal:
    """Return the published algorithm: linearise, pay who helps most, repeat; its best iterate within the budget."""
    if others not in ("equilibrium", "full"):
        raise InputError("others", 'must be "equilibrium" or "full"', value=others)
    if solver not in ("closed", "cvxpy"):
        raise InputError("solver", 'must be "closed" or "cvxpy"', value=solver)
    tolerance, max_iterations = not_negative(tolerance, "tolerance"), count(max_iterations, "max_iterations")
    # payments are tried without proofs; should the equilibrium of the best ones be another one, all are tried with proofs
    for player in (play, play_with_proofs):
        payments, tried, status, message, history = best_iterate(
            game, budget, others, solver, tolerance, max_iterations, player
        )
        found = find_equilibrium(game, frozen(payments))
        if same_play(game, payments, tried, found.profile) and found.spend <= budget * (1.0 + KEPT):
            break
    return Proposal(found, status, message, history)


def best_iterate(
    game: GameModel,
    budget: float,
    others: str = "equilibrium",
    solver: str = "closed",
    tolerance: float = 1e-6,
    max_iterations: int = 50,
    player: Callable[[GameModel, Array], Profile] = play,
) -> tuple[Array, Profile, Status, str, tuple[dict[str, Any], ...]]:
    """Return the best payments within the budget, the profile they lead to, how the iteration ended, and its history."""
    weight, pull, _ = game.loss_centre
    thin = game.loss.weight * game.sampling
    nothing = player(game, game.no_payments)
    fixed = game.profile(np.ones(game.count)) if others == "full" else nothing
    cap = budget_prices(game, budget * game.alpha, fixed)
    bisection = LevelBisection(game.count) if solver == "cvxpy" else None
    payments = 0.5 * cap
    best, least, status, message = (
        (game.no_payments, nothing),
        game.loss_of(nothing),
        Status.MAX_ITERATIONS,
        "",
    )
    seen: list[Array] = []
    history: list[dict[str, Any]] = []
    for iteration in range(max_iterations):
        try:
            profile = player(game, payments)
        except (NoEquilibriumError, ConvergenceError) as error:
            status, message = Status.FAILED, str(error)
            break
        spend, loss = float(payments @ profile.x), game.loss_of(profile)
        feasible = spend <= budget * (1.0 + KEPT)
        if feasible and loss < least:
            best, least = (payments, profile), loss
        # gradient of the linearised loss along every client's embedding; mu_N is the origin
        slope = 2.0 * weight * (game.geometry.inner(profile.mixture) - pull)
        g = slope - float(slope @ profile.mixture)
        around = profile if others == "equilibrium" else fixed
        low = responses(game, game.no_payments, around)
        high = np.maximum(responses(game, cap, around), low)
        record: dict[str, Any] = {
            "iteration": iteration,
            "payments": payments.copy(),
            "spend": spend,
            "feasible": feasible,
            "server_loss": loss,
            "total": profile.total,
        }
        history.append(record)
        if high.sum() <= 0:
            status, message = Status.FAILED, "nobody answers the largest payments the budget shares allow"
            break
        y, level = least_ratio(g, low, high, thin)
        if bisection is not None:
            scale = max(float(np.ptp(g)), thin, TINY)
            published, reached, steps = bisection.solve(g, low, high, BISECTED * scale, thin)
            record |= {"bisection_steps": steps, "cross_check": reached - level}
            if reached <= level + MATCHED * scale:  # never trust a point that the closed form beats
                y = published
        record["linearised_loss"] = loss - thin / profile.total + level
        following = np.where((y >= high) & (high > low), cap, prices_of(game, y, around, cap))
        following[y <= low] = 0.0
        if float(np.abs(following - payments).max()) < tolerance:
            status, message = Status.CONVERGED, f"payments stopped moving after {iteration + 1} iterations"
            break
        repeated = next((i for i, old in enumerate(seen) if np.abs(old - following).max() < tolerance), None)
        if repeated is not None:
            status = Status.CYCLED
            message = f"iteration {iteration + 1} came back to iteration {repeated + 1}: a cycle of length {len(seen) - repeated}"
            break
        seen.append(following)
        payments = following
    if best[1] is nothing:
        message = (message + "; " if message else "") + "no iterate within the budget beat paying nothing"
    return *best, status, message, tuple(history)
