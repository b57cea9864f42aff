"""Heterogeneity-Aware Incremental Payment Optimization (HAIPO), as published.

1. Budget shares ``B_i = B alpha_i``; for every client the price ``p_B,i`` with ``p x_i(p) = B_i``, by bisection. With the others
   fixed ``p x_i(p)`` is non-decreasing, and since ``x_i <= 1`` the root lies in ``[B_i, max(B_i, c_i)]``.
2. From ``p = p_B / 2``: play the clients' equilibrium, linearise u_server around its embedding ``mu_0``,

       u~(y) = u_server(mu_0) + 2 <lam_v (mu_0 - mu_N) + lam_s (mu_0 - mu_O), mu(y) - mu_0>,

   minimise u~ over ``0 <= p <= p_B`` and repeat until the payments stop moving.

With the others frozen each ``y_i`` is a non-decreasing function of ``p_i``, so the box of payments is a box of y, and there
u~ is a ratio of linear functions: a bisection over its level with one convex feasibility problem a step solves it (cvxpy, one
parametrised problem); Dinkelbach's iteration, whose steps have a closed form, cross-checks the answer.

The paper leaves open which behaviour of the others the bisection holds fixed: ``others="equilibrium"`` (at the current
payments, the default) or ``others="full"`` (everybody takes part fully). The linearised problem's minimiser is bang-bang
(each payment 0 or p_B,i), and iterating it often cycles; the history shows it, and the best iterate within the budget is
returned. The budget shares are sufficient, not necessary, for the budget, and only while the others do not move: the
spend at the real equilibrium is checked for every iterate.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..errors import ConvergenceError, NoEquilibriumError
from ..game import StackelbergGame
from ..geometry import Array
from ..profile import Profile
from ..result import Equilibrium, Status

__all__ = ["FractionalStep", "haipo"]


def budget_price(
    game: StackelbergGame, k: int, share: float, profile: Profile, iterations: int = 200
) -> float:
    """``p_B,k`` with ``p x_k(p) = share``, the others as in ``profile``, by bisection on [share, max(share, c_k)]."""
    low, high = share, max(share, float(game.costs[k]))
    for _ in range(iterations):
        price = 0.5 * (low + high)
        if price <= low or price >= high:
            break
        if price * _response(game, k, price, profile) / game.alpha[k] < share:
            low = price
        else:
            high = price
    return high


def _response(game: StackelbergGame, k: int, price: float, profile: Profile) -> float:
    """``y_k`` that answers a price, the others as in ``profile``."""
    w = (game.costs[k] - price) / (2.0 * game.lam * game.alpha[k])
    rest = float(profile.others[k])
    q = profile.total**2 * float(profile.to_clients[k]) if rest > 0 else 0.0
    alpha = float(game.alpha[k])
    if w <= 0:
        return alpha if (w < 0 or q > 0) else float(profile.y[k])
    return float(np.clip(np.cbrt(q / w) - rest, 0.0, alpha))


def _price_of(game: StackelbergGame, k: int, y: float, profile: Profile, cap: float) -> float:
    """A price in [0, cap] that client k answers with ``y``, the others as in ``profile``: the cheapest one."""
    if y <= 0:
        return 0.0
    rest = float(profile.others[k])
    q = profile.total**2 * float(profile.to_clients[k]) if rest > 0 else 0.0
    reluctance = q / (rest + y) ** 3 if rest + y > 0 else 0.0
    return float(np.clip(game.costs[k] - 2.0 * game.lam * game.alpha[k] * reluctance, 0.0, cap))


class FractionalStep:
    """``min (g.y) / (1.y)`` over a box of y, by bisection over convex feasibility problems and by Dinkelbach."""

    def __init__(self, count: int) -> None:
        import cvxpy as cp

        self._y = cp.Variable(count)
        self._low, self._high = cp.Parameter(count), cp.Parameter(count)
        self._slope = cp.Parameter(count)  # g - level, so the problem stays affine in its parameters
        self._problem = cp.Problem(
            cp.Minimize(self._slope @ self._y), [self._y >= self._low, self._y <= self._high]
        )

    def bisect(self, g: Array, low: Array, high: Array, tolerance: float) -> tuple[Array, float, int]:
        """Least level t for which some y in the box has ``(g - t).y <= 0``; at most ``tolerance`` above the optimum."""
        self._low.value, self._high.value = low, high
        below, above, best, steps = float(g.min()), float(g.max()), high, 0
        above = min(above, float(g @ high / high.sum()))
        while above - below > tolerance and steps < 200:
            level = 0.5 * (below + above)
            self._slope.value = g - level
            self._problem.solve(solver="CLARABEL")
            steps += 1
            y = np.clip(self._y.value, low, high)
            if y.sum() > 0 and float(g @ y) <= level * float(y.sum()):
                best, above = y, float(g @ y / y.sum())
            else:
                below = level
        return best, above, steps

    @staticmethod
    def dinkelbach(g: Array, low: Array, high: Array) -> tuple[Array, float]:
        """The same minimum: each step's minimiser of ``(g - t).y`` over the box is bang-bang."""
        y = high.copy()
        level = float(g @ y / y.sum())
        for _ in range(200):
            y = np.where(g < level, high, low)
            if y.sum() <= 0:
                y = np.where(g <= g[high > 0].min(), high, low)
            following = float(g @ y / y.sum())
            if following >= level - 1e-15 * max(abs(level), 1.0):
                break
            level = following
        return y, min(level, following)


def haipo(
    game: StackelbergGame,
    budget: float,
    *,
    others: Literal["equilibrium", "full"] = "equilibrium",
    tolerance: float = 1e-6,
    max_iterations: int = 50,
) -> tuple[Equilibrium, Status, str, tuple[dict[str, Any], ...]]:
    """Run the algorithm; the equilibrium of its best iterate within the budget, and what happened on the way."""
    pull = game.geometry.original[0]
    gram = game.geometry.gram
    shares = budget * game.alpha
    nothing = game.equilibrium()
    fixed = game.profile(np.ones(game.count)) if others == "full" else nothing.profile
    cap = np.array([budget_price(game, k, shares[k], fixed) for k in range(game.count)])
    step = FractionalStep(game.count)
    payments = 0.5 * cap
    best, status, message = nothing, Status.MAX_ITERATIONS, ""
    seen: list[Array] = []
    history: list[dict[str, Any]] = []
    for iteration in range(max_iterations):
        try:
            eq = game.equilibrium(payments)
        except (NoEquilibriumError, ConvergenceError) as error:
            status, message = Status.FAILED, str(error)
            break
        feasible = eq.spend <= budget * (1.0 + 1e-9)
        if feasible and eq.server_loss < best.server_loss:
            best = eq
        # gradient of the linearised loss along every client's embedding; mu_N is the origin
        m = gram @ eq.mixture
        slope = 2.0 * ((game.lam_v + game.lam_s) * m - game.lam_s * pull)
        g = slope - float(slope @ eq.mixture)
        profile = eq.profile if others == "equilibrium" else fixed
        low = np.array([_response(game, k, 0.0, profile) for k in range(game.count)])
        high = np.array([_response(game, k, cap[k], profile) for k in range(game.count)])
        high = np.maximum(high, low)
        record = {
            "iteration": iteration,
            "payments": payments.copy(),
            "spend": eq.spend,
            "feasible": feasible,
            "server_loss": eq.server_loss,
            "total": eq.total,
        }
        history.append(record)
        if high.sum() <= 0:
            status, message = Status.FAILED, "nobody answers the largest payments the budget shares allow"
            break
        scale = max(float(np.ptp(g)), 1e-300)
        y, level, solved = step.bisect(g, low, high, 1e-9 * scale)
        exact, exact_level = step.dinkelbach(g, low, high)
        record |= {
            "linearised_loss": eq.server_loss + level,
            "bisection_steps": solved,
            "cross_check": level - exact_level,
        }
        if exact_level < level - 1e-6 * scale:  # never trust a point that the cross-check beats
            y = exact
        following = np.array(
            [
                cap[k] if y[k] >= high[k] and high[k] > low[k] else _price_of(game, k, y[k], profile, cap[k])
                for k in range(game.count)
            ]
        )
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
    if best is nothing:
        message = (message + "; " if message else "") + "no iterate within the budget beat paying nothing"
    return best, status, message, tuple(history)
