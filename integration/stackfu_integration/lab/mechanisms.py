"""The mechanisms that the lab compares, by name: what each asks of stackfu, and what tables and figures call it.

Whoever needs a mechanism's name, its order or its label reads it here; whoever needs to know which methods
stackfu's leader has asks :func:`leader_methods`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from stackfu.errors import InputError

__all__ = [
    "BUDGETED",
    "CERTIFIED",
    "CERTIFIED_FINITE",
    "FULL",
    "HAIPO",
    "MECHANISMS",
    "UNIFORM",
    "Mechanism",
    "check_leader_method",
    "leader_methods",
    "mechanism",
]

FULL = "full"
UNIFORM = "uniform"
HAIPO = "haipo"
CERTIFIED = "certified"
CERTIFIED_FINITE = "certified-finite"

_LEADER = (CERTIFIED, HAIPO, UNIFORM)


def leader_methods() -> tuple[str, ...]:
    """Names that ``StackelbergGame.solve`` knows as a method.

    >>> leader_methods()
    ('certified', 'haipo', 'uniform')
    """
    return _LEADER


def check_leader_method(method: str, argument: str = "method") -> None:
    """Refuse a method that the leader does not have."""
    if method not in leader_methods():
        raise InputError(argument, f"must be one of {', '.join(leader_methods())}", value=method)


@dataclass(frozen=True)
class Mechanism:
    """One mechanism of the comparison.

    ``method`` and ``options`` are those of ``StackelbergGame.solve``; without a method nothing is solved and
    everybody takes part with everything. ``label`` is what tables say, ``caption`` what figures say.
    """

    name: str
    label: str
    caption: str
    colour: str
    method: str | None = None
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


MECHANISMS: dict[str, Mechanism] = {
    m.name: m
    for m in (
        Mechanism(FULL, "full participation", "full participation", "#555555"),
        Mechanism(UNIFORM, "uniform", "uniform price", "#0072b2", UNIFORM),
        Mechanism(HAIPO, "HAIPO", "HAIPO", "#d55e00", HAIPO),
        Mechanism(CERTIFIED, "certified", "certified", "#009e73", CERTIFIED),
        Mechanism(
            CERTIFIED_FINITE,
            "certified, finite-sample",
            "certified, finite-sample",
            "#cc79a7",
            CERTIFIED,
            MappingProxyType({"finite_sample": True}),
        ),
    )
}

#: Those that keep to a budget; full participation costs what it costs.
BUDGETED: tuple[str, ...] = tuple(name for name, m in MECHANISMS.items() if m.method is not None)


def mechanism(name: str) -> Mechanism:
    """Return a mechanism by name.

    >>> mechanism("haipo").label
    'HAIPO'
    """
    if name not in MECHANISMS:
        raise InputError("mechanism", f"must be one of {', '.join(MECHANISMS)}", value=name)
    return MECHANISMS[name]
