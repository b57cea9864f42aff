"""One price for all clients that just meets the budget: the baseline an operator would try first.

The total ``p sum_k x_k(p)`` at the clients' equilibrium need not be continuous in the price p (the equilibrium may jump), so
"just meets" means: the largest price found, by false position and bisection, with an equilibrium within the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import NoEquilibriumError
from ..followers import find_equilibrium
from ..model import Array, GameModel, Profile, frozen
from ..model.arguments import count, not_negative
from ..results import Status
from .mechanisms import Proposal
from .playing import play, play_with_proofs, same_play

__all__ = ["best_price", "uniform"]

#: The spend may exceed the budget by this, relative to it: the last digits of a sum of payments.
LAST_DIGITS = 1e-12
#: The interval of prices is halved by this many steps at the latest.
PATIENCE = 4
#: A budget of which less than this part is left is spent: the price was found to about as many digits.
SPENT = 1e-6


def uniform(
    game: GameModel, budget: float, *, tolerance: float = 1e-12, max_iterations: int = 200
) -> Proposal:
    """Return one price for all clients: the largest with an equilibrium within the budget."""
    tolerance, max_iterations = not_negative(tolerance, "tolerance"), count(max_iterations, "max_iterations")
    # prices are tried without proofs; should the equilibrium of the chosen one be another one, all are tried with proofs
    for player in (play, play_with_proofs):
        price, tried, message, history = best_price(game, budget, tolerance, max_iterations, player)
        payments = frozen(np.full(game.count, price))
        found = find_equilibrium(game, payments)
        if same_play(game, payments, tried, found.profile) and found.spend <= budget * (1.0 + LAST_DIGITS):
            break
    return Proposal(found, Status.CONVERGED, message, history)


def best_price(
    game: GameModel,
    budget: float,
    tolerance: float = 1e-12,
    max_iterations: int = 200,
    player: Callable[[GameModel, Array], Profile] = play,
    shape: Array | None = None,
) -> tuple[float, Profile, str, tuple[dict[str, Any], ...]]:
    """Return the price, the profile it leads to, what is to be said about it, and the prices tried.

    With a ``shape`` client k is offered ``price * shape_k``; without one, all clients the price itself.
    """
    rates = np.ones(game.count) if shape is None else shape
    history: list[dict[str, Any]] = []

    def attempt(price: float) -> tuple[float, float, Profile] | None:
        """Return the price, what it spends and the profile."""
        payments = price * rates
        try:
            profile = player(game, payments)
        except NoEquilibriumError:
            return None
        spend = float(payments @ profile.x)
        history.append(
            {"price": price, "spend": spend, "server_loss": game.loss_of(profile), "total": profile.total}
        )
        return price, spend, profile

    # no client needs more than this to take part fully, so a higher price buys nothing
    needed = game.payments_for(np.ones(game.count))
    enough = float((needed[rates > 0] / rates[rates > 0]).max(initial=0.0))
    top = attempt(enough)
    if top is not None and top[1] <= budget:
        return enough, top[2], "everybody takes part fully within the budget", tuple(history)
    best, low, high = attempt(0.0), 0.0, enough
    below = 0.0 if best is None else best[1]  # what is spent at both ends
    above = np.inf if top is None else top[1]
    step = tolerance * enough
    widths = [high - low] * PATIENCE
    for _ in range(max_iterations):
        if high - low <= step:
            break
        # where a line through both ends meets the budget, well inside; the middle if that has not halved the interval lately
        price = low + (high - low) * (budget - below) / (above - below)
        price = min(max(price, low + 0.4 * step), high - 0.4 * step)
        if not np.isfinite(price) or high - low > 0.5 * widths[-PATIENCE]:
            price = 0.5 * (low + high)
            widths = [high - low] * PATIENCE
        widths.append(high - low)
        found = attempt(price)
        if found is not None and found[1] <= budget:
            best, low, below = found, price, found[1]
        elif found is None:
            low = price
        else:
            high, above = price, found[1]
    if best is None:
        raise NoEquilibriumError(
            f"no uniform price within the budget {budget:g} makes anybody take part: the remaining clients' data are alike, "
            f"so each needs its full cost (at least {game.costs.min():g})"
        )
    price, spend, profile = best
    left = budget - spend
    jump = (
        ""
        if left <= SPENT * max(budget, spend)
        else f"; {left:.3g} of the budget is left because participation jumps"
    )
    return price, profile, f"price {price:.6g}{jump}", tuple(history)
