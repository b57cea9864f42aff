"""Signs that a game's numbers are not in one unit.

Costs, payments and budgets are money; losses are not. ``lambda_q`` is the price that clients put on a unit of loss, so that
``lambda_q C d^2`` is what a squared distance d^2 costs a client in money. Where that and the costs, or a budget and the price of
full participation, lie orders of magnitude apart, one of them is usually in the wrong unit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..html import money
from .game_model import GameModel
from .impacts import guessed

__all__ = ["OTHER_UNIT", "unit_doubts"]

#: Amounts of money that differ by more than this factor are pointed out.
OTHER_UNIT = 1000.0


def unit_doubts(game: GameModel, budgets: Sequence[float] = (), *, keeping: bool = False) -> list[str]:
    """Return a sentence for every sign that the numbers of a game are not in one unit.

    Parameters
    ----------
    game
        The game.
    budgets
        Budgets that are asked about, perhaps infinite; one that fits the game is enough.
    keeping
        Whether clients have utilities outside that offers must exceed: a budget may then be larger than full participation costs.

    Examples
    --------
    >>> import numpy as np, stackfu as sf
    >>> emb = sf.MeanEmbeddings.from_features(np.eye(3))
    >>> game = sf.StackelbergGame(emb, [1, 1, 1], removed=[0], costs=[5.0, 5.0], currency="EUR")
    >>> unit_doubts(game, [12000.0])[0]
    'budget = 12000 EUR exceeds 9 EUR, for which everybody takes part with all data; is it in the unit of the costs?'
    """
    found = []
    asked = [float(budget) for budget in budgets if 0 < budget < float("inf")]
    if asked:
        least, most, unit = min(asked), max(asked), game.currency
        price = game.full_participation_price
        if least > price and not keeping:
            found.append(
                f"budget = {money(least, unit)} exceeds {money(price, unit)}, for which everybody takes part with all data; "
                "is it in the unit of the costs?"
            )
        if most * OTHER_UNIT < price:
            found.append(
                f"budget = {money(most, unit)} is less than a thousandth of {money(price, unit)}, for which everybody takes part "
                "with all data; is it in the unit of the costs?"
            )
    if drift := _drift_doubt(game):
        found.append(drift)
    if game.currency is not None and (guess := guessed(game)):
        found.append(guess)
    return found


def _drift_doubt(game: GameModel) -> str | None:
    """Return a sentence if costs and the worth of losses lie far apart."""
    if game.is_homogeneous:
        return None
    costs = float(game.costs.sum())
    with np.errstate(over="ignore"):
        worth = float(game.lam * (game.geometry.scale + game.sampling))
    if OTHER_UNIT * worth < costs:
        so = "clients hardly mind what the model does to them, and take part with little unless they are paid"
    elif OTHER_UNIT * costs < worth:
        so = "clients hardly mind their costs, and payments change little"
    else:
        return None
    return (
        f"costs are {money(costs, game.currency, 3)} in all, and the largest squared distance between clients is worth "
        f"{money(worth, game.currency, 3)} to a client (lambda_q = {game.lambda_q:g} per unit of loss, "
        f"C = {game.loss_constant:g} units of loss per squared distance): {so}; are both in one unit?"
    )
