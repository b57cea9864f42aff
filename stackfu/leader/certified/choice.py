"""One entry for games of all sizes: the search that was faster at a game's size when both were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...judging.gaps import Gap
from ...model import Array, GameModel, Objective
from .small_search import Run, search

__all__ = ["SMALL", "best_search"]

#: Up to this many clients the search with polished multipliers is the faster way whatever is asked for; with 300 it is slower where
#: sampling noise, a cap on the loss or no budget make many clients undecided (both searches on the same games).
SMALL = 100


def best_search(
    game: GameModel,
    objective: Objective,
    *,
    gap: Gap,
    time_limit: float,
    max_nodes: int,
    starts: Iterable[Array] = (),
    later: Callable[[], Iterable[Array]] | None = None,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Search until the absolute ``gap`` (in the objective's units), the time or the nodes are used up.

    ``later`` gives further profiles to start from, to a search that is not done soon without them.
    """
    asked: dict[str, Any] = {
        "gap": gap, "time_limit": time_limit, "max_nodes": max_nodes, "starts": starts, "callback": callback
    }  # fmt: skip
    if game.count <= SMALL:
        return search(game, objective, later=later, **asked)
    if objective.loss_weight == 0.0 and np.isfinite(objective.max_loss):
        from .least_spend import least_spend

        return least_spend(game, objective, **asked)
    from .large import search_large

    return search_large(game, objective, later=later, **asked)
