"""What was asked for, as an objective; what the clients could not give at any price is refused before anything is computed."""

from __future__ import annotations

from typing import Any

from ..errors import InfeasibleError
from ..model import GameModel, Objective
from .tolerances import LIMIT_ROUNDING

__all__ = ["objective_of"]


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
