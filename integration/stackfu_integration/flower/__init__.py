"""The mechanism on a federation that runs with Flower.

Phases, in order; each is closed by a row in the ledger, so that a server that dies goes on where it stopped:

    train -> request -> embeddings -> offers -> responses -> unlearning -> settlement -> measures -> report

- :func:`add_mechanism`, :class:`Participant`: the client's side, added to an existing ``ClientApp``
- :class:`UnlearningMechanism`, :class:`Terms`: the server's side, called in the ``main`` of a ``ServerApp``
- :mod:`.phases`: what the mechanism does, one module per phase
- :mod:`.wire`: what crosses the network, one class per question and answer
- :class:`PaymentLedger`, :mod:`.events`: what was offered, answered, delivered and paid, one class per event
- :class:`InProcessGrid`: a ``Grid`` that calls the client apps directly, without Ray and without a network

Names are loaded when they are first used: an engine starts a process for every message, and a client should
not wait for what only the server needs.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Flower and Ray read these when they are imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

_HOME = {
    "PHASES": "phases",
    "InProcessGrid": "in_process",
    "LedgerError": "ledger",
    "Offer": "offer",
    "Participant": "client",
    "ParticipationFedAvg": "strategy",
    "PaymentLedger": "ledger",
    "Policy": "policy",
    "Terms": "terms",
    "UnlearningMechanism": "mechanism",
    "add_mechanism": "client",
    "gaussian_deviation": "privacy",
    "unbiased_gram": "privacy",
}

__all__ = [
    "PHASES",
    "InProcessGrid",
    "LedgerError",
    "Offer",
    "Participant",
    "ParticipationFedAvg",
    "PaymentLedger",
    "Policy",
    "Terms",
    "UnlearningMechanism",
    "add_mechanism",
    "gaussian_deviation",
    "unbiased_gram",
]

if TYPE_CHECKING:
    from stackfu_integration.flower.client import Participant, add_mechanism
    from stackfu_integration.flower.in_process import InProcessGrid
    from stackfu_integration.flower.ledger import LedgerError, PaymentLedger
    from stackfu_integration.flower.mechanism import UnlearningMechanism
    from stackfu_integration.flower.offer import Offer
    from stackfu_integration.flower.phases import PHASES
    from stackfu_integration.flower.policy import Policy
    from stackfu_integration.flower.privacy import gaussian_deviation, unbiased_gram
    from stackfu_integration.flower.strategy import ParticipationFedAvg
    from stackfu_integration.flower.terms import Terms


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
