"""Everybody is paid for the rounds delivered: ``price * share * delivered / agreed``, all at once or nobody."""

from __future__ import annotations

from collections import Counter

from stackfu_integration.flower.events import ClientCommitted, ClientPaid, RequestSettled, WorkDelivered
from stackfu_integration.flower.phases.session import Removal

__all__ = ["PHASE", "run"]

PHASE = "settlement"


def run(removal: Removal) -> None:
    """Write all payments and their sum in one transaction."""
    ledger = removal.ledger
    delivered = Counter(work.client for work in ledger.events(removal.name, WorkDelivered))
    total = 0.0
    with ledger.transaction():
        for client, agreed in ledger.by_client(removal.name, ClientCommitted).items():
            amount = agreed.price * agreed.share / agreed.rounds * delivered[client]
            if amount > 0.0:
                paid = ClientPaid(client, amount, delivered=delivered[client], agreed=agreed.rounds)
                ledger.add(removal.name, paid)
                total += amount
        ledger.add(removal.name, RequestSettled(total))
