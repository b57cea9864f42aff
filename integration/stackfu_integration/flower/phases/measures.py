"""Tell clients their payments, and ask for measures of the models before and after. Answers are optional."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from flwr.app import ArrayRecord

from stackfu_integration.flower.events import (
    ClientCommitted,
    ClientFault,
    ClientMeasured,
    ClientPaid,
    MeasuresClosed,
    ModelUnlearned,
    PaymentAcknowledged,
    WorkDelivered,
    WorkJudged,
)
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases import evidence
from stackfu_integration.flower.phases.session import Removal
from stackfu_integration.flower.phases.unlearning import fault_phase
from stackfu_integration.flower.receipts import PAYMENT
from stackfu_integration.flower.wire import MeasureAnswer, MeasureQuestion, Refusal

__all__ = ["PHASE", "distance", "run"]

PHASE = "measures"


def run(removal: Removal) -> None:
    """Ask those who have not measured yet, and write down how far the weights moved."""
    ledger, request, terms = removal.ledger, removal.request, removal.terms
    before = removal.models.get(request.before)
    after = removal.models.get(ledger.need(removal.name, ModelUnlearned).model)
    payments = ledger.by_client(removal.name, ClientPaid)
    commitments = ledger.by_client(removal.name, ClientCommitted)
    passed = Counter(work.client for work in ledger.events(removal.name, WorkJudged) if work.passed)
    # offline clients are not awaited twice
    final = fault_phase(terms.rounds)
    there = {
        work.client for work in ledger.events(removal.name, WorkDelivered) if work.number == terms.rounds
    }
    silent = {
        fault.client
        for fault in ledger.events(removal.name, ClientFault)
        if fault.phase == final
        and fault.client not in there  # a refused client hears of it, and may dispute it
    }
    unasked = {*ledger.by_client(removal.name, ClientMeasured), *request.gone, *silent}
    questions = {}
    for client in removal.nodes:
        if client not in unasked:
            questions[client] = MeasureQuestion(
                before,
                after,
                removal.name,
                payments[client].amount if client in payments else 0.0,
                passed[client],
                commitments[client].rounds if client in commitments else 0,
                terms.stated_decimals,
            )
    answers = removal.ask(questions, MeasureAnswer.decode)
    with ledger.transaction():
        for client, answer in answers.items():
            if isinstance(answer, Refusal):
                continue
            ledger.add(removal.name, ClientMeasured(client, answer.measures))
            amount, receipt = questions[client].amount, answer.receipt
            if receipt is None:
                continue
            agreed = receipt.statement.get("agreed")
            facts = {
                "request": removal.name,
                "amount": amount,
                "agreed": agreed is True,
                "before": digest(before),
                "after": digest(after),
            }
            if "measures" in receipt.statement:
                facts["measures"] = dict(answer.measures)
            problem = removal.refused_receipt(client, receipt, PAYMENT, **facts)
            if problem is not None:
                ledger.add_fault(removal.name, client, PHASE, problem)
            else:
                assert isinstance(agreed, bool)
                ledger.add(removal.name, PaymentAcknowledged(client, amount, agreed, receipt.plain()))
    evidence.gather(removal)
    ledger.add(removal.name, MeasuresClosed(distance(before, after)))


def distance(before: ArrayRecord, after: ArrayRecord) -> float:
    """Return the distance that the weights moved."""
    return math.sqrt(
        sum(
            float(
                (
                    (after[name].numpy().astype(np.float64) - before[name].numpy().astype(np.float64)) ** 2
                ).sum()
            )
            for name in before
        )
    )
