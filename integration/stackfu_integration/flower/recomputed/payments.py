"""Every amount, their sum, and what clients say of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from stackfu_integration.flower.events import (
    ClientCommitted,
    ClientPaid,
    GameFounded,
    PaymentAcknowledged,
    RequestSettled,
    WorkJudged,
)
from stackfu_integration.flower.ledger_error import need
from stackfu_integration.flower.phases.settlement import amount_of
from stackfu_integration.flower.receipts import shown
from stackfu_integration.flower.recomputed.case import TOLERANCE, Case, same

__all__ = ["check"]


def check(case: Case) -> None:
    """Payments follow from what was agreed and what passed, and are what was settled."""
    settled, payments = case.last(RequestSettled), case.by_client(ClientPaid)
    if settled is None:
        need(not payments, f"{case.request}: payments without a settlement")
        return
    terms = case.terms_at(case.place_of(RequestSettled))
    passed = Counter(work.client for work in case.events(WorkJudged) if work.passed)
    commitments = case.by_client(ClientCommitted)
    for client, agreed in commitments.items():
        owed = amount_of(agreed, passed[client], terms)
        paid = payments[client].amount if client in payments else 0.0
        need(paid == owed, f"{case.request}: client {case.naming(client)} is owed {owed!r} and paid {paid!r}")
    strangers = sorted(set(payments) - set(commitments))
    need(not strangers, f"{case.request}: {case.naming.all(strangers)} paid without a commitment")
    total = sum(event.amount for event in payments.values())
    need(
        same(settled.paid, total),
        f"{case.request}: {total!r} was paid, the settlement says {settled.paid!r}",
    )
    budget = case.needed(GameFounded).budget
    need(total <= budget * (1 + TOLERANCE), f"{case.request}: {total!r} was paid of a budget of {budget!r}")
    _ask_clients(case, set(payments))


def _ask_clients(case: Case, paid: set[int]) -> None:
    """Leave a question for every silent or disputing client."""
    acknowledged = case.by_client(PaymentAcknowledged)
    silent = sorted(paid - set(acknowledged))
    if silent:
        case.questions.append(
            f"{case.request}: whether {case.naming.all(silent)} got what the ledger says: nothing was acknowledged"
        )
    for client, said in acknowledged.items():
        if not said.agreed:
            signed = (said.receipt or {}).get("statement", {})
            owed, delivered, passed = (_brief(signed.get(what)) for what in ("owed", "delivered", "passed"))
            about = f"its payment of {_brief(said.amount)}; by its own records it is owed {owed}, and "
            if owed == _brief(said.amount):  # the sum follows from what passed, and that is what is disputed
                about = f"what passed, not the sum: {_brief(said.amount)} is what it is owed if "
            case.questions.append(
                f"{case.request}: client {case.naming(client)} disputes {about}{passed} of the {delivered} rounds that it "
                "delivered passed"
            )


def _brief(claimed: Any) -> str:
    """Return a number as people read it; whatever else a client signed as one, fit for a line."""
    return f"{claimed:.9g}" if isinstance(claimed, float) else shown(claimed)
