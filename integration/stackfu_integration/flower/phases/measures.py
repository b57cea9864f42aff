"""Clients are told what they were paid and look at the models before and after. Nobody has to answer."""

from __future__ import annotations

import math

import numpy as np

from stackfu_integration.flower.events import (
    ClientFault,
    ClientMeasured,
    ClientPaid,
    MeasuresClosed,
    ModelUnlearned,
)
from stackfu_integration.flower.phases.session import Removal
from stackfu_integration.flower.phases.unlearning import fault_phase
from stackfu_integration.flower.wire import MeasureAnswer, MeasureQuestion, Refusal

__all__ = ["PHASE", "run"]

PHASE = "measures"


def run(removal: Removal) -> None:
    """Ask those who have not measured yet, and write down how far the weights moved."""
    ledger, request = removal.ledger, removal.request
    before = removal.models.get(request.before)
    after = removal.models.get(ledger.need(removal.name, ModelUnlearned).model)
    payments = ledger.by_client(removal.name, ClientPaid)
    # nobody waits for the dead twice
    final = fault_phase(removal.terms.rounds)
    silent = {fault.client for fault in ledger.events(removal.name, ClientFault) if fault.phase == final}
    unasked = {*ledger.by_client(removal.name, ClientMeasured), *request.gone, *silent}
    questions = {}
    for client in removal.nodes:
        if client not in unasked:
            amount = payments[client].amount if client in payments else None
            questions[client] = MeasureQuestion(before, after, removal.name, amount)
    answers = removal.ask(questions, MeasureAnswer.decode)
    with ledger.transaction():
        for client, answer in answers.items():
            if not isinstance(answer, Refusal):
                ledger.add(removal.name, ClientMeasured(client, answer.measures))
    squared = sum(
        float(((after[name].numpy() - before[name].numpy()).astype(np.float64) ** 2).sum()) for name in before
    )
    ledger.add(removal.name, MeasuresClosed(math.sqrt(squared)))
