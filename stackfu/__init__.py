"""Federated unlearning as a Stackelberg game, solved with proof.

    samples -> MeanEmbeddings -> StackelbergGame -> equilibrium(payments) -> solve(budget)

Names are loaded when they are first used, so that importing the package stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "MeanEmbeddings": "stackfu.embedding",
    "Bandwidth": "stackfu.embedding",
    "client_features": "stackfu.embedding",
    "median_bandwidth": "stackfu.embedding",
    "mmd": "stackfu.embedding",
    "StackelbergGame": "stackfu.game",
    "Profile": "stackfu.profile",
    "Equilibria": "stackfu.result",
    "Equilibrium": "stackfu.result",
    "Solution": "stackfu.result",
    "Status": "stackfu.result",
    "Uniqueness": "stackfu.result",
    "Verification": "stackfu.result",
    "Frontier": "stackfu.leader.frontier",
    "load": "stackfu.io",
    "save": "stackfu.io",
    "ConvergenceError": "stackfu.errors",
    "FileFormatError": "stackfu.errors",
    "InfeasibleError": "stackfu.errors",
    "InputError": "stackfu.errors",
    "NoEquilibriumError": "stackfu.errors",
    "NotInducibleError": "stackfu.errors",
    "StackfuError": "stackfu.errors",
    "VerificationError": "stackfu.errors",
}
_MODULES = ("catalog", "errors", "lemmas", "plot", "testing")

__all__ = [
    "Bandwidth",
    "ConvergenceError",
    "Equilibria",
    "Equilibrium",
    "FileFormatError",
    "Frontier",
    "InfeasibleError",
    "InputError",
    "MeanEmbeddings",
    "NoEquilibriumError",
    "NotInducibleError",
    "Profile",
    "Solution",
    "StackelbergGame",
    "StackfuError",
    "Status",
    "Uniqueness",
    "Verification",
    "VerificationError",
    "__version__",
    "catalog",
    "client_features",
    "errors",
    "lemmas",
    "load",
    "median_bandwidth",
    "mmd",
    "plot",
    "save",
    "testing",
]

if TYPE_CHECKING:
    from . import catalog, errors, lemmas, plot, testing
    from .embedding import Bandwidth, MeanEmbeddings, client_features, median_bandwidth, mmd
    from .errors import (
        ConvergenceError,
        FileFormatError,
        InfeasibleError,
        InputError,
        NoEquilibriumError,
        NotInducibleError,
        StackfuError,
        VerificationError,
    )
    from .game import StackelbergGame
    from .io import load, save
    from .leader.frontier import Frontier
    from .profile import Profile
    from .result import Equilibria, Equilibrium, Solution, Status, Uniqueness, Verification


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(f"stackfu.{name}")
    else:
        raise AttributeError(f"module 'stackfu' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
