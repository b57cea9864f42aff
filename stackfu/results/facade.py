"""Calls from results to their game beyond its formulas.

Results are values: they hold their game and know no solver, judge or file format. Where a method such as
:meth:`~stackfu.Equilibrium.verify` needs one, it asks the game, whose class :class:`stackfu.StackelbergGame` is the only place
that faces upward. Its methods are the ones that are called, whatever a subclass makes of them: what a result says about itself does
not depend on who asked for it.
"""

from __future__ import annotations

from types import MethodType
from typing import Any, Protocol, TypeVar, cast

import numpy.typing as npt

from ..errors import InputError
from ..model import GameModel

__all__ = ["Facade", "facade", "faces_upward"]


class Facade(Protocol):
    """A game with solvers and judges behind it."""

    def equilibrium(self, payments: npt.ArrayLike | None = None) -> Any:
        """Return one equilibrium under the payments."""

    def equilibria(
        self, payments: npt.ArrayLike | None = None, *, caps: npt.ArrayLike | None = None, offers: Any = None
    ) -> Any:
        """Return every equilibrium under the payments."""

    def dynamics(
        self, payments: npt.ArrayLike | None = None, start: npt.ArrayLike | None = None, **options: Any
    ) -> Any:
        """Best responses round by round."""

    def solve(self, budget: float | None = None, method: Any = "certified", **options: Any) -> Any:
        """Return payments within a budget."""

    def verify(self, result: Any, tolerance: float = 1e-9) -> Any:
        """Judge a result."""

    def prove(self, result: Any, precision: int = 256) -> Any:
        """Prove a result."""

    def diagnose(self, result: Any) -> Any:
        """Diagnose a result."""

    def clients_frame(self, payments: npt.ArrayLike | None, participation: npt.ArrayLike) -> Any:
        """Return one row per client."""

    def plot(self, result: Any, ax: Any = None, **options: Any) -> Any:
        """Draw a result."""

    def whole_samples(self, result: Any) -> Any:
        """Round a solution to whole samples."""

    def manipulation(self, result: Any, **options: Any) -> Any:
        """Return the gains from misreporting."""

    def sensitivity(self, result: Any, parameter: str, of: str, side: Any = None) -> Any:
        """Differentiate a result."""

    def marginal_effects(self, result: Any) -> Any:
        """Say what more money for each client brings."""

    def values(self, participation: npt.ArrayLike | None = None, **options: Any) -> Any:
        """Value the clients' contributions."""

    def save(self, path: Any, result: Any = None) -> None:
        """Write a result."""


Class = TypeVar("Class", bound=type[GameModel])
_FACING: list[type[GameModel]] = []


def faces_upward(cls: Class) -> Class:
    """Register the class with the methods that results and checkers call."""
    _FACING.append(cls)
    return cls


class _Own:
    """A game with the methods of the library's own class."""

    def __init__(self, game: GameModel) -> None:
        self._game = game

    def __getattr__(self, name: str) -> Any:
        return MethodType(getattr(_FACING[0], name), self._game)


def facade(game: GameModel) -> Facade:
    """Return the game with the library's solvers and judges; refuses a bare model."""
    if not _FACING or not issubclass(type(game), _FACING[0]):
        raise InputError(
            "game", "is a bare model; results of a StackelbergGame can do this", value=repr(game)
        )
    return cast(Facade, _Own(game))
