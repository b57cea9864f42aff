"""One entry for games of all sizes: the search that was faster at a game's size when both were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...model import Array, GameModel, Objective
from .search import Run, search

__all__ = ["SMALL", "best_search"]

#: Up to this many clients general cone programmes with warm starts are the faster way (``stackfu_bench``: both searches
#: on the same games).
SMALL = 60


def best_search(
    game: GameModel,
    objective: Objective,
    *,
    gap: float,
    time_limit: float,
    max_nodes: int,
    starts: tuple[Array, ...] = (),
    later: Callable[[], Iterable[Array]] | None = None,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Search until the absolute ``gap`` (in the objective's units), the time or the nodes are used up.

    ``later`` gives further profiles to start from, to a search that is not done soon without them.
    """
    if game.count <= SMALL:
        return search(
            game,
            objective,
            gap=gap,
            time_limit=time_limit,
            max_nodes=max_nodes,
            starts=starts,
            later=later,
            callback=callback,
        )
    from .large import search_large

    return search_large(
        game, objective, gap=gap, time_limit=time_limit, max_nodes=max_nodes, starts=starts, callback=callback
    )
