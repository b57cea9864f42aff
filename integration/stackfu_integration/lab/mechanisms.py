"""The mechanisms that the lab compares, by name: what each asks of stackfu, and what tables and figures call it.

Names, order and labels of mechanisms are defined here. The methods themselves come from stackfu's registry
(``stackfu.register_mechanism``), where :mod:`stackfu_integration.lab.rivals` registers the simple rules that the designed
mechanisms are compared with. :func:`mechanism` knows every registered name, with the name as its label.

A mechanism plays in a *view*, what the game sees of the clients' data: the paper's (``features``, with the constants
of the settings), or one whose constants C and A were fitted to pilot trainings of the same federation.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from stackfu.errors import InputError

if TYPE_CHECKING:
    from stackfu import StackelbergGame

__all__ = [
    "AWARE",
    "BLIND",
    "BUDGETED",
    "CAPPED_FEATURES",
    "CAPPED_LABELS",
    "CERTIFIED",
    "CERTIFIED_FINITE",
    "CHEAPEST_FIRST",
    "DRAWN",
    "FULL",
    "HAIPO",
    "MECHANISMS",
    "PAPER_VIEW",
    "PRICE_PER_SAMPLE",
    "RANDOM_CLIENTS",
    "REVERSE_AUCTION",
    "REWARD_POOL",
    "SAME_SHARE",
    "SHAPLEY",
    "UNIFORM",
    "UNPAID",
    "VIEWS",
    "Mechanism",
    "View",
    "known_options",
    "mechanism",
]

FULL = "full"
UNIFORM = "uniform"
HAIPO = "haipo"
CERTIFIED = "certified"
CERTIFIED_FINITE = "certified-finite"
CAPPED_FEATURES = "capped-features"
CAPPED_LABELS = "capped-labels"
UNPAID = "unpaid"
SAME_SHARE = "same-share"
RANDOM_CLIENTS = "random-clients"
CHEAPEST_FIRST = "cheapest-first"
PRICE_PER_SAMPLE = "price-per-sample"
REVERSE_AUCTION = "reverse-auction"
SHAPLEY = "shapley"
REWARD_POOL = "reward-pool"
_OTHER_COLOUR = "#56b4e9"

#: Data in a game: features by an RBF kernel, class histograms, features within each class, gradients of the last
#: layer, or histograms and gradients with added kernels.
View = Literal["features", "labels", "joint", "gradients", "labels+gradients"]
VIEWS: tuple[View, ...] = ("features", "labels", "joint", "gradients", "labels+gradients")
PAPER_VIEW: View = "features"
# a plan within a thousandth of the best is as good as the pilots' constants can tell
_CAPPED = MappingProxyType({"offers": "capped", "gap": 1e-3, "time_limit": 5.0})


def known_options(method: str) -> frozenset[str]:
    """Options that a method of ``StackelbergGame.solve`` knows; a method that is not registered is refused.

    >>> "time_limit" in known_options("certified"), "time_limit" in known_options("uniform")
    (True, False)
    """
    from stackfu.leader import mechanisms  # reports need the names alone, and no solver

    _register_rivals()
    return mechanisms.mechanism(method).options


@dataclass(frozen=True)
class Mechanism:
    """One mechanism of the comparison.

    ``method`` and ``options`` are those of ``StackelbergGame.solve``; without a method nothing is solved and
    all clients take part fully. ``label`` is used in tables, ``caption`` in figures. ``view`` is
    that of a calibrated game; without one it is the paper's game.
    """

    name: str
    label: str
    caption: str
    colour: str
    method: str | None = None
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    view: View | None = None

    def options_in(self, game: StackelbergGame, budget: float) -> dict[str, Any]:
        """Return the options for a game.

        Capped offers need a loss that counts data. Where the pilots' A is 0, which it is where more data taught nothing, they get a
        floor instead: the part of all data that the budget is of the full price; that participation of all clients is affordable.
        """
        options = dict(self.options)
        if options.get("offers") == "capped" and game.sampling_constant == 0.0:
            options["min_total"] = (1.0 - 1e-6) * min(budget / float(game.full_participation_price), 1.0)
        return options


def _rule(name: str, label: str, colour: str) -> Mechanism:
    """Return a simple rule, which plays in the calibrated labels game: the view of the best designed mechanism."""
    return Mechanism(name, label, label, colour, name, view="labels")


MECHANISMS: dict[str, Mechanism] = {
    m.name: m
    for m in (
        Mechanism(FULL, "full participation", "full participation", "#555555"),
        # every step of its bisection is an equilibrium with a proof; a millionth of the price is near enough
        Mechanism(
            UNIFORM,
            "uniform",
            "uniform price",
            "#0072b2",
            UNIFORM,
            MappingProxyType({"tolerance": 1e-6}),
        ),
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
        Mechanism(
            CAPPED_FEATURES,
            "capped, features, calibrated",
            "capped, features",
            "#e69f00",
            CERTIFIED,
            _CAPPED,
            "features",
        ),
        Mechanism(
            CAPPED_LABELS,
            "capped, labels, calibrated",
            "capped, labels",
            "#000000",
            CERTIFIED,
            _CAPPED,
            "labels",
        ),
        _rule(UNPAID, "unpaid", "#bbbbbb"),
        _rule(SAME_SHARE, "same share for all", "#882255"),
        _rule(RANDOM_CLIENTS, "random clients", "#aa4499"),
        _rule(CHEAPEST_FIRST, "cheapest first", "#44aa99"),
        _rule(PRICE_PER_SAMPLE, "price per sample", "#117733"),
        _rule(REVERSE_AUCTION, "reverse auction", "#999933"),
        _rule(SHAPLEY, "Shapley payments", "#332288"),
        _rule(REWARD_POOL, "reward pool (Lin et al.)", "#88ccee"),
    )
}

#: Those that keep to a budget; full participation costs what it costs.
BUDGETED: tuple[str, ...] = tuple(name for name, m in MECHANISMS.items() if m.method is not None)


#: Designed mechanisms: they look at how clients' data differ.
AWARE: tuple[str, ...] = (HAIPO, CERTIFIED, CERTIFIED_FINITE, CAPPED_FEATURES, CAPPED_LABELS)
#: Rules that choose participants and amounts by sizes and costs alone.
BLIND: tuple[str, ...] = (
    UNIFORM,
    SAME_SHARE,
    RANDOM_CLIENTS,
    CHEAPEST_FIRST,
    PRICE_PER_SAMPLE,
    REVERSE_AUCTION,
    REWARD_POOL,
)
#: Mechanisms that figures show: curves of all of them would cover each other.
DRAWN: tuple[str, ...] = (UNIFORM, *AWARE, SAME_SHARE)


def _register_rivals() -> None:
    """Register the simple rules with stackfu, once."""
    importlib.import_module("stackfu_integration.lab.rivals")


def mechanism(name: str) -> Mechanism:
    """Return a mechanism by name: one of the lab's own, or any that is registered with stackfu.

    >>> mechanism("haipo").label
    'HAIPO'
    """
    if name in MECHANISMS:
        _register_rivals()
        return MECHANISMS[name]
    from stackfu.leader import mechanism_names

    if name not in mechanism_names():
        known = dict.fromkeys((*MECHANISMS, *mechanism_names()))
        raise InputError("mechanism", f"must be one of {', '.join(known)}", value=name)
    return Mechanism(name, name, name, _OTHER_COLOUR, name)
