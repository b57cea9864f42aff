"""Budgets to try where none were typed: grids that end where more money buys nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ..game import StackelbergGame

__all__ = ["even_grid", "grid"]


def _top(game: StackelbergGame, to: float | None, **options: Any) -> float:
    """The end of a grid of budgets: ``to``, by default what the best payments without a budget spend."""
    if to is None:
        return game.solve(None, progress=False, **options).spend
    if not 0 < to < float("inf"):
        raise InputError("to", "must be positive", value=to)
    return to


def grid(game: StackelbergGame, to: float | None, points: int, **options: Any) -> list[float]:
    """Budgets up to the top, denser near 0."""
    top = _top(game, to, **options)
    if not top > 0:
        return [0.0]  # the best that can be had comes for free: no budget changes anything
    return [top * (i / points) ** 2 for i in range(1, points + 1)]


def even_grid(game: StackelbergGame, to: float | None, points: int, **options: Any) -> list[float]:
    """Budgets in even round steps that reach the top; exactly, where it was typed."""
    from ..explorer import even_budgets

    top = _top(game, to, **options)
    if not top > 0:
        return [0.0]
    return even_budgets(top, points) if to is None else [top * i / points for i in range(1, points + 1)]
