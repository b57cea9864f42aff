"""Pay all clients for the accepted rounds: ``price * share * passed / agreed``, in one transaction."""

from __future__ import annotations

from collections import Counter

from stackfu_integration.flower.events import ClientCommitted, ClientPaid, RequestSettled, WorkJudged
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.phases.session import Removal
from stackfu_integration.flower.terms import Terms

__all__ = ["PHASE", "amount_of", "run", "settle"]

PHASE = "settlement"


def run(removal: Removal) -> None:
    """Write all payments and their sum."""
    settle(removal.ledger, removal.name, removal.terms)


def amount_of(agreed: ClientCommitted, passed: int, terms: Terms) -> float:
    """Return a client's payment for its accepted rounds, in whole coins."""
    return terms.rounded(agreed.price * agreed.share / agreed.rounds * passed)


def settle(ledger: PaymentLedger, request: str, terms: Terms) -> None:
    """Write all payments and their sum in one transaction."""
    passed = Counter(work.client for work in ledger.events(request, WorkJudged) if work.passed)
    total = 0.0
    with ledger.transaction():
        for client, agreed in ledger.by_client(request, ClientCommitted).items():
            amount = amount_of(agreed, passed[client], terms)
            if amount > 0.0:
                paid = ClientPaid(client, amount, delivered=passed[client], agreed=agreed.rounds)
                ledger.add(request, paid)
                total += amount
        ledger.add(request, RequestSettled(total))
