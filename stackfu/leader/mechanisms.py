"""Mechanisms: what turns a game and a budget into payments, known by name everywhere.

A mechanism is a callable ``(game, budget, *, its own options) -> payments``. It may return a bare payment vector, a
:class:`Proposal` (payments with their equilibrium and what happened on the way) or a complete
:class:`~stackfu.Solution`. Its keyword-only parameters are its options; ``solve`` refuses any other. Once registered,
``game.solve(method=name)``, the command line, the lab and the Flower application know it by the same name.

>>> import numpy as np, stackfu as sf
>>> from stackfu.leader import mechanisms
>>> def at_cost(game, budget, *, share=1.0):
...     "Pay all clients the same share of their costs, as far as the budget goes."
...     return game.costs * min(share, budget / game.costs.sum())
>>> sf.register_mechanism("at-cost", at_cost)
>>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1, 1, 2], costs=[1.0, 1.0, 2.0])
>>> game.solve(1.0, method="at-cost", share=0.5).status.name
'CONVERGED'
>>> mechanisms.forget("at-cost")

Packages announce mechanisms of their own through the entry point group ``stackfu.mechanisms``; modules named in the environment
variable ``STACKFU_MECHANISMS`` (comma separated) are imported before the first look-up, so that the command line knows what they
register.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol

from ..errors import InputError
from ..model import Array, GameModel
from ..results import Equilibrium, Solution, Status

__all__ = [
    "Mechanism",
    "Proposal",
    "Registered",
    "forget",
    "mechanism",
    "mechanism_names",
    "read",
    "refuse_unknown",
    "register_mechanism",
]


class Mechanism(Protocol):
    """``mechanism(game, budget, **options)``; keyword-only parameters are the options it knows."""

    def __call__(self, game: GameModel, budget: float, **options: Any) -> Solution | Proposal | Array:
        """Return payments for a budget."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """Payments with their intended equilibrium, the status of the mechanism, and its history."""

    equilibrium: Equilibrium
    status: Status = Status.CONVERGED
    message: str = ""
    history: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.equilibrium, Equilibrium):
            raise InputError("equilibrium", "must be an Equilibrium", value=type(self.equilibrium).__name__)
        if not isinstance(self.status, Status):
            raise InputError("status", "must be a Status", value=repr(self.status))
        if self.status is Status.CERTIFIED:
            raise InputError(
                "status",
                "a proposal comes without a proof; return a Solution with its certificate",
                value="CERTIFIED",
            )


@dataclass(frozen=True)
class Registered:
    """A mechanism under its name, with the options it knows."""

    name: str
    run: Any
    options: frozenset[str]
    needs_budget: bool = True

    @property
    def is_own(self) -> bool:
        """True for a mechanism of the library."""
        return self.name in _ANNOUNCED

    @property
    def summary(self) -> str:
        """First line of the mechanism's docstring."""
        return (inspect.getdoc(self.run) or self.name).splitlines()[0]


_REGISTRY: dict[str, Registered] = {}
#: Mechanisms of the library itself by their address, ``module:function``, imported when they are first asked for.
_ANNOUNCED: dict[str, tuple[str, bool]] = {}
_looked_around = False
#: Options read by solve itself, which a mechanism would never see.
RESERVED = frozenset({"budget", "costs_between", "game", "method", "offers", "outside"})


def announce(name: str, address: str, *, needs_budget: bool = True) -> None:
    """Make a mechanism of the library known by its address, without importing it; its name cannot be taken by others."""
    _ANNOUNCED[name] = (address, needs_budget)


def register_mechanism(
    name: str, mechanism: Any, *, needs_budget: bool = True, replace: bool = False
) -> None:
    """Make a mechanism known under a name; ``needs_budget=False`` if it also works without a limit.

    Parameters
    ----------
    name : str
        Name for the ``method`` of :meth:`StackelbergGame.solve <stackfu.StackelbergGame.solve>`.
    mechanism : callable
        Function ``f(game, budget)`` that returns payments; its keyword-only parameters are options.
    needs_budget : bool
        False if it also works without a limit.
    replace : bool
        Replace a registered mechanism of this name.

    Returns
    -------
    None

    Raises
    ------
    InputError
        If the name is taken or no word, or the mechanism is no such function.
    """
    if not isinstance(name, str) or not name or any(c.isspace() for c in name):
        raise InputError("name", "must be a word", value=repr(name))
    if not callable(mechanism):
        raise InputError("mechanism", "must be a function of a game and a budget", value=repr(mechanism))
    if name in _ANNOUNCED or (name in _REGISTRY and not replace):
        raise InputError("name", "is taken", value=name)
    _REGISTRY[name] = _checked(name, mechanism, needs_budget)


def _checked(name: str, run: Any, needs_budget: bool = True) -> Registered:
    """Return a mechanism with its options, none of which solve keeps for itself."""
    found = read(name, run, needs_budget)
    for option in sorted(found.options & RESERVED):
        raise InputError(
            "mechanism", f"cannot have an option {option}: solve keeps it for itself", value=name
        )
    return found


def forget(name: str) -> None:
    """Remove a mechanism that was registered; the library's own stay."""
    if name not in _ANNOUNCED:
        _REGISTRY.pop(name, None)


def mechanism(name: Any) -> Registered:
    """Return the mechanism with this name, or a function ``f(game, budget)`` as one; an error lists the names there are."""
    if not isinstance(name, str):
        if callable(name):
            return _checked(_name_of(name), name)
        raise InputError(
            "method",
            "must be the name of a mechanism, or a function of a game and a budget",
            value=repr(name),
        )
    if name in _ANNOUNCED and name not in _REGISTRY:
        address, needs_budget = _ANNOUNCED[name]
        module, function = address.split(":")
        _REGISTRY[name] = read(name, getattr(import_module(module), function), needs_budget)
    if name not in _REGISTRY:
        _look_around()
    if name not in _REGISTRY:
        known = ", ".join(f'"{other}"' for other in mechanism_names())
        raise InputError("method", f"must be one of {known}", value=repr(name))
    return _REGISTRY[name]


def _name_of(run: Any) -> str:
    """Return the name under which answers show a function: its own, unless that is the name of one of the library's mechanisms."""
    name = getattr(run, "__name__", type(run).__name__)
    return f"own {name}" if name in _ANNOUNCED else name


def mechanism_names() -> tuple[str, ...]:
    """Return every name that ``solve(method=...)`` knows, the library's own first."""
    _look_around()
    return (*_ANNOUNCED, *sorted(set(_REGISTRY) - set(_ANNOUNCED)))


def _look_around() -> None:
    """Load, once, what packages and the environment announce."""
    global _looked_around
    if _looked_around:
        return
    for module in filter(
        None, (word.strip() for word in os.environ.get("STACKFU_MECHANISMS", "").split(","))
    ):
        try:
            import_module(module)
        except ImportError as error:
            raise InputError("STACKFU_MECHANISMS", f"cannot be imported ({error})", value=module) from error
    for point in entry_points(group="stackfu.mechanisms"):
        if point.name not in _REGISTRY and point.name not in _ANNOUNCED:
            register_mechanism(point.name, point.load())
    _looked_around = True  # at the end: what cannot be imported is said every time


def refuse_unknown(chosen: Registered, options: dict[str, Any]) -> None:
    """An error if an option is none of the mechanism's."""
    unknown = sorted(set(options) - chosen.options)
    if unknown:
        known = ", ".join(sorted(chosen.options)) or "none"
        raise InputError(unknown[0], f'is not an option of method "{chosen.name}"; those are {known}')


def read(name: str, run: Any, needs_budget: bool) -> Registered:
    """Return a mechanism with the options that its signature knows."""
    problem = "must be a function of a game and a budget"
    try:
        signature = inspect.signature(run)
    except ValueError:
        raise InputError("mechanism", problem, value=name) from None
    said = f"{name}{signature}"
    try:
        signature.bind("game", "budget")
    except TypeError:
        raise InputError("mechanism", problem, value=said) from None
    options = set()
    for place, parameter in enumerate(signature.parameters.values()):
        if parameter.kind is parameter.KEYWORD_ONLY:
            options.add(parameter.name)
        elif parameter.kind is parameter.VAR_KEYWORD or (
            place > 1 and parameter.kind is not parameter.VAR_POSITIONAL
        ):
            why = f"has the parameter {parameter}, but its options must be keyword-only, each by its name"
            raise InputError("mechanism", why, value=said)
    return Registered(name, run, frozenset(options), needs_budget)
