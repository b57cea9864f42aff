"""A removal request is opened: who leaves, under which terms, from which model."""

from __future__ import annotations

from stackfu.errors import InputError, StackfuError
from stackfu_integration.flower.events import (
    ClientExcluded,
    CommitmentsClosed,
    GameFounded,
    RemovalRequested,
    RequestAborted,
    RequestClosed,
    TermsAmended,
)
from stackfu_integration.flower.keys import canonical
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.naming import PLAIN_NAME, one_line
from stackfu_integration.flower.phases.rounds import last_model
from stackfu_integration.flower.phases.session import terms_of
from stackfu_integration.flower.terms import Terms

__all__ = ["PHASE", "abort_request", "amend_request", "open_request"]

PHASE = "request"


def open_request(
    ledger: PaymentLedger, name: str, removed: tuple[int, ...], terms: Terms, clients: int
) -> bool:
    """Write the request down and say so, or check that it is the one in the ledger."""
    if not PLAIN_NAME.fullmatch(name):  # files are named after it
        raise InputError("request", "needs a name of letters, digits, spaces, dots and dashes", value=name)
    known = ledger.last(name, RemovalRequested)
    if known is not None:
        same_terms = canonical(terms_of(ledger, name).stated()) == canonical(terms.stated())
        if known.removed != removed or not same_terms:
            raise InputError("request", "is in the ledger with other clients or other terms", value=name)
        return False
    unfinished = [other for other in ledger.requests() if not ledger.has(other, RequestClosed)]
    if unfinished:
        raise InputError("request", f"must wait: {unfinished[0]} is not closed", value=name)
    earlier = [other for other in ledger.requests() if not ledger.has(other, RequestAborted)]
    gone = {client for other in earlier for client in ledger.need(other, RemovalRequested).removed}
    present = set(range(clients)) - gone
    if not removed or not set(removed) < present:
        raise InputError(
            "removed", f"must name some, not all, of {ledger.naming.all(sorted(present))}", value=removed
        )
    before = last_model(ledger, earlier[-1]) if earlier else last_model(ledger)
    if before is None:
        raise StackfuError("nothing has been trained yet")
    ledger.add(name, RemovalRequested(removed, tuple(sorted(gone)), before, terms.stated()))
    return True


def abort_request(ledger: PaymentLedger, name: str, phase: str, reason: str) -> None:
    """Write down that a request is not carried any further, and why."""
    if not reason.strip():
        raise InputError("reason", "must be stated")
    _open(ledger, name)
    if not ledger.has(name, RequestAborted):
        ledger.add(name, RequestAborted(phase, one_line(reason)))


def amend_request(ledger: PaymentLedger, name: str, terms: Terms, reason: str) -> None:
    """Write down other terms, and why; what was asked of the embeddings stays, and so does what is committed."""
    if not reason.strip():
        raise InputError("reason", "must be stated")
    _open(ledger, name)
    if ledger.has(name, RequestAborted) or ledger.has(name, CommitmentsClosed):
        raise InputError("request", "clients are committed, or it was aborted: its terms stay", value=name)
    fixed = terms.concern_embeddings(terms_of(ledger, name))
    if fixed and ledger.has(name, GameFounded):
        raise InputError(fixed[0], "cannot be amended: the embeddings are there already; abort the request")
    shards = [t.unlearning == "shards" for t in (terms, terms_of(ledger, name))]
    if shards[0] != shards[1] and ledger.has(name, ClientExcluded):
        raise InputError("unlearning", "clients of other shards are left out already; abort the request")
    last = ledger.last(name, TermsAmended)
    ledger.add(name, TermsAmended(0 if last is None else last.number + 1, terms.stated(), one_line(reason)))


def _open(ledger: PaymentLedger, name: str) -> None:
    if not ledger.has(name, RemovalRequested) or ledger.has(name, RequestClosed):
        raise InputError("request", "is not open", value=name)
