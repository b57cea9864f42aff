"""A removal request is opened: who leaves, under which terms, from which model."""

from __future__ import annotations

from dataclasses import asdict

from stackfu.errors import InputError, StackfuError
from stackfu_integration.flower.events import RemovalRequested, RequestClosed
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.phases.rounds import last_model
from stackfu_integration.flower.terms import Terms

__all__ = ["PHASE", "open_request"]

PHASE = "request"


def open_request(
    ledger: PaymentLedger, name: str, removed: tuple[int, ...], terms: Terms, clients: int
) -> bool:
    """Write the request down and say so, or check that it is the one in the ledger."""
    if not name:
        raise InputError("request", "needs a name")
    known = ledger.last(name, RemovalRequested)
    if known is not None:
        if (known.removed, known.terms) != (removed, asdict(terms)):
            raise InputError("request", "is in the ledger with other clients or other terms", value=name)
        return False
    earlier = ledger.requests()
    unfinished = [other for other in earlier if not ledger.has(other, RequestClosed)]
    if unfinished:
        raise InputError("request", f"must wait: {unfinished[0]} is not closed", value=name)
    gone = {client for other in earlier for client in ledger.need(other, RemovalRequested).removed}
    present = set(range(clients)) - gone
    if not removed or not set(removed) < present:
        raise InputError("removed", f"must name some, not all, of clients {sorted(present)}", value=removed)
    before = last_model(ledger, earlier[-1]) if earlier else last_model(ledger)
    if before is None:
        raise StackfuError("nothing has been trained yet")
    ledger.add(name, RemovalRequested(removed, tuple(sorted(gone)), before, asdict(terms)))
    return True
