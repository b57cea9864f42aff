"""Turn a request into an objective; refuse impossible requests before any computation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..embedding.names import rows_by_name
from ..errors import InfeasibleError, InputError
from ..model import Array, GameModel, Objective
from ..model.arguments import flag, numbers
from ..model.offers import Kind, least_keeping
from .tolerances import LIMIT_ROUNDING

__all__ = [
    "check_listeners",
    "objective_of",
    "refuse_what_has_no_optimum",
    "refuse_what_no_plan_can_keep",
    "require_positive_weight",
    "starting_profiles",
]


def objective_of(
    game: GameModel, *, min_total: float, min_samples: float, finite_sample: bool, **asked: Any
) -> Objective:
    """Return the objective with a floor on the share of the remaining data, the number of samples, or the larger of both.

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


def require_positive_weight(game: GameModel, goal: Objective) -> None:
    """An error if nothing that is minimised has a weight, by the name of what has none."""
    if game.loss.weight * goal.loss_weight + goal.payment_weight > 0:
        return
    why = "there is nothing to optimise"
    if goal.loss_weight == 0:
        raise InputError("loss_weight", f"and payment_weight are both 0: {why}")
    if not game.has_paper_loss:
        raise InputError(
            "server_loss", f"has no weight and neither has the spend: {why}", value=repr(game.loss)
        )
    raise InputError("lambda_v", f"and lambda_s are both 0: the server does not care, {why}")


def refuse_what_has_no_optimum(game: GameModel, goal: Objective, kind: Kind) -> None:
    """An error if the best plan for offers of this kind is to use no data at all, and why."""
    counts_samples = game.sampling > 0 or goal.finite_sample or game.loss.sampling
    matters = game.loss.weight > 0 and (goal.loss_weight > 0 or np.isfinite(goal.max_loss))
    if goal.min_total > 0 or (counts_samples and matters):
        return
    raise InputError(
        "offers",
        f"{'contracts' if kind == 'contract' else 'capped offers'} need a sampling term or a floor: the loss sees only the "
        "mixture, and any mixture costs nothing as less and less data is taken (tiny plans make everybody eager), so the best plan "
        "would use no data at all; give the game a sampling_constant, or ask for finite_sample=True, min_total=... or "
        "min_samples=...",
        value=kind,
    )


def refuse_what_no_plan_can_keep(game: GameModel, budget: float, outside: Array | None) -> None:
    """Raise an error before any search if keeping all clients costs more than the budget under every plan."""
    if outside is None:
        return
    each = least_keeping(game, outside)
    if float(each.sum()) > budget * (1.0 + LIMIT_ROUNDING):
        k = int(np.argmax(each))
        raise InfeasibleError(
            f"budget {budget:g} is too small for keeping everybody: that takes at least {each.sum():.6g} whatever the plan "
            f"({each[k]:.6g} of it to keep client {game.label(k)}, whose outside utility is {outside[k]:.6g})"
        )


def check_listeners(progress: object, callback: object) -> None:
    """Refuse a wish for progress that is neither yes nor no, and a callback that cannot be called."""
    if progress is not None:
        flag(progress, "progress")
    if callback is not None and not callable(callback):
        raise InputError("callback", "must be a function of one record", value=repr(callback))


def starting_profiles(game: GameModel, start: npt.ArrayLike | None) -> list[Array]:
    """Return the user's starting profiles of a search, one or one per row."""
    if start is None:
        return []
    named = rows_by_name(start, "start", game.client_names)
    rows = np.atleast_2d(numbers(named, "start", "must be a participation profile or a list of them"))
    return [game.check_participation(row) for row in rows]
