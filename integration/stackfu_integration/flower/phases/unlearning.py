"""Rounds of unlearning with the committed shares."""

from __future__ import annotations

from stackfu_integration.flower.events import (
    ClientCommitted,
    ModelUnlearned,
    RoundFinished,
    RunStarted,
    WorkDelivered,
)
from stackfu_integration.flower.ledger import RUN
from stackfu_integration.flower.phases.rounds import run_rounds
from stackfu_integration.flower.phases.session import Removal
from stackfu_integration.flower.strategy import Member, RoundOutcome
from stackfu_integration.flower.wire import UNLEARN
from stackfu_integration.flower.wire.records import config

__all__ = ["PHASE", "fault_phase", "run"]

PHASE = "unlearning"


def fault_phase(number: int) -> str:
    """Name of a round in the ledger's faults."""
    return f"{PHASE} {number}"


def run(removal: Removal) -> None:
    """Unlearn from the last round in the ledger on; the last model is the result."""
    ledger, terms, request = removal.ledger, removal.terms, removal.request
    first = ledger.need(RUN, RunStarted).initial if terms.unlearning == "retrain" else request.before
    commitments = ledger.by_client(removal.name, ClientCommitted)

    def write(outcome: RoundOutcome, model: str) -> None:
        for client, used in outcome.samples.items():
            ledger.add(removal.name, WorkDelivered(client, outcome.number, used))
        for client, problem in outcome.problems.items():
            ledger.add_fault(removal.name, client, fault_phase(outcome.number), problem)
        ledger.add(removal.name, RoundFinished(outcome.number, model))

    run_rounds(
        removal,
        removal.name,
        removal.models.get(first),
        terms.rounds,
        {client: Member(agreed.share, agreed.samples) for client, agreed in commitments.items()},
        message_type=UNLEARN,
        settings=config(request=removal.name, seed=terms.seed),
        write=write,
    )
    model = ledger.need(removal.name, RoundFinished).model
    ledger.add(removal.name, ModelUnlearned(model))
