"""The mechanisms that the lab compares, by name: what each asks of stackfu, and what tables and figures call it.

Whoever needs a mechanism's name, its order or its label reads it here. Which methods there are at all is for
stackfu's registry to say (``stackfu.register_mechanism``): :func:`mechanism` knows every name that is registered
there, with the name as its label.
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
    "known_options",
    "mechanism",
]

FULL = "full"
UNIFORM = "uniform"
HAIPO = "haipo"
CERTIFIED = "certified"
CERTIFIED_FINITE = "certified-finite"
_OTHER_COLOUR = "#56b4e9"


def known_options(method: str) -> frozenset[str]:
    """Options that a method of ``StackelbergGame.solve`` knows; a method that is not registered is refused.

    >>> "time_limit" in known_options("certified"), "time_limit" in known_options("uniform")
    (True, False)
    """
    from stackfu.leader import mechanisms  # reports need the names alone, and no solver

    return mechanisms.mechanism(method).options


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
    """Return a mechanism by name: one of the lab's own, or any that is registered with stackfu.

    >>> mechanism("haipo").label
    'HAIPO'
    """
    if name in MECHANISMS:
        return MECHANISMS[name]
    from stackfu.leader import mechanism_names

    if name not in mechanism_names():
        known = dict.fromkeys((*MECHANISMS, *mechanism_names()))
        raise InputError("mechanism", f"must be one of {', '.join(known)}", value=name)
    return Mechanism(name, name, name, _OTHER_COLOUR, name)
