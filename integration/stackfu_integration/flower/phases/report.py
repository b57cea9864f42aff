"""Embeddings are erased, the request is closed, and its audit written."""

from __future__ import annotations

from stackfu_integration.flower.audit import write_audit
from stackfu_integration.flower.events import (
    EmbeddingReceived,
    GroupSumReceived,
    PayloadsErased,
    RequestClosed,
    SumAgreed,
)
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.phases.session import Removal
from stackfu_integration.flower.terms import Terms

__all__ = ["PHASE", "close", "run"]

PHASE = "report"


def run(removal: Removal) -> None:
    """Close the request; the audit can be written again from the ledger at any time."""
    close(removal.ledger, removal.name, removal.terms)
    write_audit(removal.ledger, removal.name, removal.folder)


def close(ledger: PaymentLedger, request: str, terms: Terms) -> None:
    """Erase what is not needed any more, and close the request."""
    if terms.erase and not ledger.has(request, PayloadsErased):
        ledger.erase(request, (EmbeddingReceived, GroupSumReceived, SumAgreed))
    ledger.add(request, RequestClosed())
