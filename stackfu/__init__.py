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
    "client_counts": "stackfu.embedding",
    "client_features": "stackfu.embedding",
    "median_bandwidth": "stackfu.embedding",
    "mmd": "stackfu.embedding",
    "PreparedSamples": "stackfu.embedding",
    "prepare_samples": "stackfu.embedding",
    "StackelbergGame": "stackfu.game",
    "Profile": "stackfu.model",
    "ServerLoss": "stackfu.model",
    "Objective": "stackfu.model",
    "Limits": "stackfu.model",
    "register_mechanism": "stackfu.leader",
    "mechanism_names": "stackfu.leader",
    "Equilibria": "stackfu.results",
    "Equilibrium": "stackfu.results",
    "EquilibriumBatch": "stackfu.results.equilibrium_batch",
    "equilibria_of": "stackfu.followers.batch",
    "Solution": "stackfu.results",
    "Status": "stackfu.results",
    "Uniqueness": "stackfu.results",
    "Verification": "stackfu.results",
    "Frontier": "stackfu.results",
    "Cascade": "stackfu.results",
    "Manipulation": "stackfu.results",
    "Manipulations": "stackfu.results",
    "Offers": "stackfu.model.offers",
    "PostedPrices": "stackfu.leader.posted_prices",
    "Requests": "stackfu.requests",
    "load": "stackfu.io",
    "save": "stackfu.io",
    "ConvergenceError": "stackfu.errors",
    "FileFormatError": "stackfu.errors",
    "InfeasibleError": "stackfu.errors",
    "InputError": "stackfu.errors",
    "NoEquilibriumError": "stackfu.errors",
    "NotDifferentiableError": "stackfu.errors",
    "NotInducibleError": "stackfu.errors",
    "StackfuError": "stackfu.errors",
    "StackfuWarning": "stackfu.errors",
    "VerificationError": "stackfu.errors",
}
_MODULES = ("catalog", "errors", "explorer", "lemmas", "plot", "results", "testing")

__all__ = [
    "Bandwidth",
    "Cascade",
    "ConvergenceError",
    "Equilibria",
    "Equilibrium",
    "EquilibriumBatch",
    "FileFormatError",
    "Frontier",
    "InfeasibleError",
    "InputError",
    "Limits",
    "Manipulation",
    "Manipulations",
    "MeanEmbeddings",
    "NoEquilibriumError",
    "NotDifferentiableError",
    "NotInducibleError",
    "Objective",
    "Offers",
    "PostedPrices",
    "PreparedSamples",
    "Profile",
    "Requests",
    "ServerLoss",
    "Solution",
    "StackelbergGame",
    "StackfuError",
    "StackfuWarning",
    "Status",
    "Uniqueness",
    "Verification",
    "VerificationError",
    "__version__",
    "catalog",
    "client_counts",
    "client_features",
    "equilibria_of",
    "errors",
    "explorer",
    "lemmas",
    "load",
    "mechanism_names",
    "median_bandwidth",
    "mmd",
    "plot",
    "prepare_samples",
    "register_mechanism",
    "results",
    "save",
    "testing",
]

if TYPE_CHECKING:
    from . import catalog, errors, explorer, lemmas, plot, results, testing
    from .embedding import (
        Bandwidth,
        MeanEmbeddings,
        PreparedSamples,
        client_counts,
        client_features,
        median_bandwidth,
        mmd,
        prepare_samples,
    )
    from .errors import (
        ConvergenceError,
        FileFormatError,
        InfeasibleError,
        InputError,
        NoEquilibriumError,
        NotDifferentiableError,
        NotInducibleError,
        StackfuError,
        StackfuWarning,
        VerificationError,
    )
    from .followers.batch import equilibria_of
    from .game import StackelbergGame
    from .io import load, save
    from .leader import mechanism_names, register_mechanism
    from .leader.posted_prices import PostedPrices
    from .model import Limits, Objective, Profile, ServerLoss
    from .model.offers import Offers
    from .requests import Requests
    from .results import (
        Cascade,
        Equilibria,
        Equilibrium,
        Frontier,
        Manipulation,
        Manipulations,
        Solution,
        Status,
        Uniqueness,
        Verification,
    )
    from .results.equilibrium_batch import EquilibriumBatch


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
