"""Values of clients for the server's loss: how much of its fall each client brings about."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..embedding.names import PerClient
from ..errors import InputError
from ..judging.check_tolerances import NEGLIGIBLE
from ..model import Array, GameModel, frozen
from ..model.arguments import count, number
from .coalitions import coalition_loss
from .result import ClientValues
from .sampling import sampled_losses
from .shapley import leave_one_out, shapley_values

__all__ = ["check_confidence", "values_of_clients"]

#: Up to this many clients that take part all coalitions are evaluated: 2^20 of them take a second and 100 MB.
MOST_EXACT = 20
#: Random orders if nothing else is asked for, fewer where each takes long: it costs a pass over the inner products.
ORDERS, FEWEST, WORK = 1000, 100, 10_000_000
#: Ratio of amounts up to which estimates are made: sums lose its square, times the rounding of a number.
WIDEST = 1e5
#: Limit on the number of clients for stored inner products.
LARGEST = 5000


def values_of_clients(
    game: GameModel,
    participation: PerClient | None = None,
    *,
    empty: float | None = None,
    orders: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> ClientValues:
    """Return what each client contributes to the fall of the server's loss; see :meth:`stackfu.StackelbergGame.values`."""
    x = game.no_caps if participation is None else game.check_participation(participation)
    x = np.where(x > NEGLIGIBLE, x, 0.0)  # less is what rounding left of nothing
    if not x.any():
        raise InputError("participation", "no client takes part", value="0")
    level = check_confidence(confidence)
    asked = None if orders is None else count(orders, "orders")
    if asked == 0:
        raise InputError("orders", "must be at least 1", value=0)
    start = count(seed, "seed")
    loss, places = coalition_loss(game, x)
    worst = float(loss.alone.max()) if empty is None else number(empty, "empty")
    if not np.isfinite(worst):
        raise InputError("empty", "must be finite", value=empty)
    n = loss.count
    if n > LARGEST:
        raise InputError(
            "participation", f"{n} clients take part; values are computed for at most {LARGEST}", value=n
        )
    everybody = loss.of_members(np.ones(n, dtype=bool))
    if n == 1:
        found = below = above = np.array([worst - everybody])
        last, exact = np.array([worst - everybody]), True
    elif n <= MOST_EXACT and asked is None:
        table = worst - loss.all_losses(worst)
        found = below = above = shapley_values(table)
        last, exact = leave_one_out(table), True
    else:
        _require_comparable(game, loss.amounts, places)
        asked = min(ORDERS, max(FEWEST, WORK // n**2)) if asked is None else asked
        found, below, above = sampled_losses(loss, worst, asked, level, start)
        last, exact = loss.without[0] - everybody, False

    def spread(values: Any) -> Array:
        """Return values for all remaining clients: zero for those that bring nothing."""
        out = np.zeros(game.count)
        out[places] = values
        return frozen(out)

    return ClientValues(
        clients=tuple(str(game.label(k)) for k in range(game.count)),
        measure="server loss",
        shapley=spread(found),
        low=spread(below),
        high=spread(above),
        leave_one_out=spread(last),
        alone=spread(worst - loss.alone),
        whole=worst - everybody,
        empty=worst,
        confidence=1.0 if exact else level,
        orders=0 if exact else int(asked or 0),
    )


def _require_comparable(game: GameModel, amounts: Array, places: Any) -> None:
    """Refuse amounts so different that sums over coalitions lose the smallest to rounding."""
    least, most = int(amounts.argmin()), int(amounts.argmax())
    if amounts[most] > WIDEST * amounts[least]:
        raise InputError(
            "participation",
            f"brings less than {1 / WIDEST:.0e} of what client {game.label(places[most])} does, and rounding would decide "
            "estimated values; leave it out with a participation of 0",
            client=game.label(places[least]),
            value=f"{amounts[least] / game.alpha[places[least]]:.3g}",
        )


def check_confidence(confidence: object) -> float:
    """Return a confidence between 0 and 1, or an error."""
    level = number(confidence, "confidence")
    if not 0.0 < level < 1.0:
        raise InputError("confidence", "must lie between 0 and 1", value=confidence)
    return level
