"""One price for everybody that just meets the budget: the baseline an operator would try first.

The total ``p sum_k x_k(p)`` at the clients' equilibrium need not be continuous in the price p (the equilibrium may jump), so
"just meets" means: the largest price found, by bisection, whose equilibrium stays within the budget.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import NoEquilibriumError
from ..followers import find_equilibrium
from ..model import GameModel, frozen
from ..results import Equilibrium, Status
from .mechanisms import Proposal

__all__ = ["uniform"]


def uniform(
    game: GameModel, budget: float, *, tolerance: float = 1e-12, max_iterations: int = 200
) -> Proposal:
    """One price for everybody: the largest whose equilibrium stays within the budget."""
    history: list[dict[str, Any]] = []

    def play(price: float) -> Equilibrium | None:
        try:
            eq = find_equilibrium(game, frozen(np.full(game.count, price)))
        except NoEquilibriumError:
            return None
        history.append({"price": price, "spend": eq.spend, "server_loss": eq.server_loss, "total": eq.total})
        return eq

    # nobody needs more than this to take part fully, so a higher price buys nothing
    enough = float(game.payments_for(np.ones(game.count)).max())
    top = play(enough)
    if top is not None and top.spend <= budget:
        return Proposal(top, Status.CONVERGED, "everybody takes part fully within the budget", tuple(history))
    best, low, high = play(0.0), 0.0, enough
    for _ in range(max_iterations):
        if high - low <= tolerance * enough:
            break
        price = 0.5 * (low + high)
        eq = play(price)
        if eq is not None and eq.spend <= budget:
            best, low = eq, price
        elif eq is None:
            low = price
        else:
            high = price
    if best is None:
        raise NoEquilibriumError(
            f"no uniform price within the budget {budget:g} makes anybody take part: the remaining clients' data are alike, "
            f"so each needs its full cost (at least {game.costs.min():g})"
        )
    left = budget - best.spend
    jump = (
        ""
        if left <= 1e-6 * max(budget, best.spend)
        else f"; {left:.3g} of the budget is left because participation jumps"
    )
    return Proposal(best, Status.CONVERGED, f"price {low:.6g}{jump}", tuple(history))
