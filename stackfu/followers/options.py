"""Options of a search for one equilibrium: the record that :func:`stackfu.followers.find_equilibrium` passes along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from ..errors import InputError
from ..model import Array
from ..model.arguments import count, flag, number
from .solver_tolerances import RESIDUAL

__all__ = ["METHODS", "SearchOptions"]

METHODS = ("auto", "path", "sweeps", "qp")
#: Options that a method does not use; ``auto`` may use any method.
_UNUSED = {
    "path": ("max_iterations", "seed", "callback", "progress"),
    "qp": ("start", "max_iterations", "seed", "callback", "progress"),
}


@dataclass(frozen=True, eq=False)
class SearchOptions:
    """Options of a search for one equilibrium.

    ``start`` is a participation profile that the game has checked, ``tolerance`` the residual to reach (None: by size). The
    rest is for sweeps: the iteration limit, the seed of the order in which clients are asked, a callback per sweep, and whether
    to show a progress bar (None: on a terminal, for very many clients).
    """

    start: Array | None = None
    method: str = "auto"
    tolerance: float | None = None
    max_iterations: int = 500
    seed: int = 0
    callback: Callable[[dict[str, Any]], None] | None = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError("method", 'must be "auto", "path", "sweeps" or "qp"', value=repr(self.method))
        for name in _UNUSED.get(self.method, ()):
            value, unasked = getattr(self, name), _DEFAULTS[name]
            if value is False:  # asks for nothing
                continue
            if value is not None if unasked is None else value != unasked:
                raise InputError(name, f'is not an option of method "{self.method}"', value=value)
        if self.tolerance is not None and not 0.0 < number(self.tolerance, "tolerance") < 1.0:
            raise InputError("tolerance", "must lie between 0 and 1", value=self.tolerance)
        object.__setattr__(self, "max_iterations", count(self.max_iterations, "max_iterations"))
        object.__setattr__(self, "seed", count(self.seed, "seed"))
        if self.progress is not None:
            object.__setattr__(self, "progress", flag(self.progress, "progress"))
        if self.callback is not None and not callable(self.callback):
            raise InputError("callback", "must be a function of one record", value=repr(self.callback))

    def tolerance_for(self, count: int) -> float:
        """Return the residual to reach in a game of so many clients."""
        return RESIDUAL if self.tolerance is None else float(self.tolerance)


_DEFAULTS = {item.name: item.default for item in fields(SearchOptions)}
