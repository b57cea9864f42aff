"""Embeddings are erased, and what would take noise off a release; the request is closed, and its audit written."""

from __future__ import annotations

from stackfu_integration.flower.audit import write_audit
from stackfu_integration.flower.events import (
    EmbeddingReceived,
    GradientHidden,
    GradientReported,
    GroupSumReceived,
    NoisePromised,
    PayloadsErased,
    RequestClosed,
    SumAgreed,
    SumOpened,
)
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.phases.release import forget_noise
from stackfu_integration.flower.phases.rounds import forget_models
from stackfu_integration.flower.phases.session import Removal
from stackfu_integration.flower.terms import Terms

__all__ = ["PHASE", "close", "run"]

PHASE = "report"


def run(removal: Removal) -> None:
    """Close the request; the audit can be written again from the ledger at any time."""
    close(removal.ledger, removal.models, removal.name, removal.terms)
    write_audit(removal.ledger, removal.name, removal.folder)


def close(ledger: PaymentLedger, models: ModelStore, request: str, terms: Terms) -> None:
    """Erase what is not needed any more, and close the request."""
    noisy = ledger.has(request, NoisePromised)
    if terms.erase and not ledger.has(request, PayloadsErased):
        gradients = (GradientReported, GradientHidden, SumOpened) if noisy else ()
        ledger.erase(request, (EmbeddingReceived, GroupSumReceived, SumAgreed, *gradients))
    if ledger.has(request, PayloadsErased) and ledger.emptied_after(request) is None:
        ledger.empty_log()  # where a reader is in the way, nothing says that it was emptied
    if terms.erase and noisy:
        forget_noise(ledger, request)
        forget_models(ledger, models)
    ledger.add(request, RequestClosed())
