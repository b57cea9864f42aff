"""What was asked for, as an objective; what the clients could not give at any price is refused before anything is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InfeasibleError
from ..model import Array, GameModel, Objective
from ..model.arguments import numbers
from ..model.offers import least_keeping
from .tolerances import LIMIT_ROUNDING

__all__ = ["objective_of", "refuse_what_no_plan_can_keep", "starting_profiles"]


def objective_of(
    game: GameModel, *, min_total: float, min_samples: float, finite_sample: bool, **asked: Any
) -> Objective:
    """The objective whose floor is a share of the remaining data, a number of samples, or the larger of both.

    The sampling term counts if it was asked for or if the game's own loss has it.
    """
    samples = float(game.sizes.sum())
    floor = max(
        Objective(min_total=min_total).min_total, Objective(min_total=min_samples).min_total / samples
    )
    if floor > 1.0 + LIMIT_ROUNDING:
        name, value = ("min_total", min_total) if min_total > 1 else ("min_samples", min_samples)
        raise InfeasibleError(
            f"{name} = {value:g} is out of reach whatever the budget: the remaining clients own "
            f"{samples:g} samples (total participation at most 1)"
        )
    sampling = True if game.loss.sampling else finite_sample
    return Objective(min_total=min(floor, 1.0), finite_sample=sampling, **asked)


def refuse_what_no_plan_can_keep(game: GameModel, budget: float, outside: Array | None) -> None:
    """An error before anything is searched if keeping everybody costs more than the budget whatever the plan."""
    if outside is None:
        return
    each = least_keeping(game, outside)
    if float(each.sum()) > budget * (1.0 + LIMIT_ROUNDING):
        k = int(np.argmax(each))
        raise InfeasibleError(
            f"budget {budget:g} is too small for keeping everybody: that takes at least {each.sum():.6g} whatever the plan "
            f"({each[k]:.6g} of it to keep client {game.who(k)}, whose outside utility is {outside[k]:.6g})"
        )


def starting_profiles(game: GameModel, start: npt.ArrayLike | None) -> list[Array]:
    """The profiles that a search is told to start from, one or one per row."""
    if start is None:
        return []
    rows = np.atleast_2d(numbers(start, "start", "must be a participation profile or a list of them"))
    return [game.check_participation(row) for row in rows]
