"""Rounds of unlearning with the committed shares, each looked at before it counts.

An update is judged by what can be seen of it (:mod:`~stackfu_integration.flower.robust`). Some work is asked for again:
which, nobody knows before it is delivered, because the choice is made from the hash of the ledger's row that says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from stackfu.errors import InputError
from stackfu_integration.flower.events import (
    ClientCommitted,
    ModelUnlearned,
    RoundFinished,
    RunStarted,
    WorkDelivered,
    WorkJudged,
    WorkRepeated,
)
from stackfu_integration.flower.ledger import RUN
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases.rounds import run_rounds
from stackfu_integration.flower.phases.session import Removal, StuckError
from stackfu_integration.flower.phases.summed_rounds import run_summed_rounds
from stackfu_integration.flower.receipts import WORK
from stackfu_integration.flower.robust import Judgement, judge, update_of
from stackfu_integration.flower.strategy import Delivery, Member, NobodyAnsweredError, RoundOutcome
from stackfu_integration.flower.wire import REPEAT, UNLEARN, Refusal, TrainingAnswer
from stackfu_integration.flower.wire.records import config

__all__ = ["PHASE", "fault_phase", "run"]

PHASE = "unlearning"


def fault_phase(number: int) -> str:
    """Name of a round in the ledger's faults."""
    return f"{PHASE} {number}"


def run(removal: Removal, strategy: Strategy | None = None) -> None:
    """Unlearn from the last round in the ledger on; the last model is the result.

    A round in which nobody delivers is tried again, ``patience`` times in all.
    """
    ledger, terms, request = removal.ledger, removal.terms, removal.request
    anew = terms.unlearning in ("retrain", "federaser")
    first = ledger.need(RUN, RunStarted).initial if anew else request.before
    if terms.unlearning == "federaser" and strategy is not None:
        raise InputError("strategy", "FedEraser is one of its own")
    commitments = ledger.by_client(removal.name, ClientCommitted)
    if terms.aggregation == "secure":
        if strategy is not None:
            raise InputError("strategy", "sees single updates, and with secure aggregation nobody does")
        run_summed_rounds(removal, removal.models.get(first), commitments)
        ledger.add(removal.name, ModelUnlearned(ledger.need(removal.name, RoundFinished).model))
        return
    for attempt in range(removal.patience):
        try:
            run_rounds(
                removal,
                removal.name,
                removal.models.get(first),
                terms.rounds,
                {client: Member(agreed.share, agreed.samples) for client, agreed in commitments.items()},
                message_type=UNLEARN,
                settings=config(request=removal.name, seed=terms.seed),
                write=lambda outcome, model: _write(removal, outcome, model),
                judge=lambda *seen: _judge(removal, *seen),
                inspect=lambda *seen: _inspect(removal, *seen),
                strategy=strategy,
            )
            break
        except NobodyAnsweredError as error:
            if attempt + 1 == removal.patience:
                raise StuckError(str(error)) from error
    model = ledger.need(removal.name, RoundFinished).model
    ledger.add(removal.name, ModelUnlearned(model))


def _write(removal: Removal, outcome: RoundOutcome, model: str) -> None:
    ledger = removal.ledger
    for client, delivery in outcome.delivered.items():
        _enter(removal, outcome.number, client, delivery)
        found = outcome.judgements.get(client, Judgement(True))
        judged = WorkJudged(client, outcome.number, found.passed, found.problem, dict(found.measured))
        ledger.add(removal.name, judged)
    for client in outcome.excused:  # it stood ready and was not needed
        ledger.add(removal.name, WorkJudged(client, outcome.number, True, "was not asked in this round"))
    for client, problem in outcome.problems.items():
        ledger.add_fault(removal.name, client, fault_phase(outcome.number), problem)
    ledger.add(removal.name, RoundFinished(outcome.number, model))


def _enter(removal: Removal, number: int, client: int, delivery: Delivery) -> None:
    """Write down what a client delivered, unless that is in the ledger already."""
    if removal.ledger.of_client(removal.name, WorkDelivered, client, number) is None:
        receipt = None if delivery.receipt is None else delivery.receipt.plain()
        work = WorkDelivered(client, number, delivery.samples, delivery.model, receipt)
        removal.ledger.add(removal.name, work)


def _judge(
    removal: Removal,
    number: int,
    models: Mapping[int, ArrayRecord],
    samples: Mapping[int, int],
    sent: ArrayRecord,
) -> dict[int, Judgement]:
    """Look at the updates of a round, beside that of the server's own data, if it has any."""
    terms, reference = removal.terms, None
    if removal.probe is not None:
        settings = config(request=removal.name, seed=terms.seed, server_round=number)
        trained, _ = removal.probe.train(sent, 1.0, settings)
        reference = update_of(trained, sent)
        reference = reference if np.linalg.norm(reference) > 0 else None
    earlier: dict[int, list[float]] = {}
    for work in removal.ledger.events(removal.name, WorkJudged):
        if work.number < number and "cosine" in work.measured:
            earlier.setdefault(work.client, []).append(work.measured["cosine"])
    return judge(
        models,
        samples,
        sent,
        clip_factor=terms.clip_factor,
        least_norm=terms.least_norm,
        least_cosine=terms.least_cosine,
        reference=reference,
        earlier=earlier,
    )


def _inspect(
    removal: Removal, number: int, delivered: Mapping[int, Delivery], orders: Mapping[int, RecordDict]
) -> dict[int, str]:
    """Check receipts, and ask some clients to do the round again; return problems by client."""
    ledger, problems = removal.ledger, {}
    for client, delivery in delivered.items():
        facts = {
            "request": removal.name,
            "number": number,
            "model": delivery.model,
            "samples": delivery.samples,
        }
        problem = removal.refused_receipt(client, delivery.receipt, WORK, **facts)
        if problem is not None:
            problems[client] = problem
    if removal.terms.spot_checks == 0.0:
        return problems
    with ledger.transaction():
        for client, delivery in delivered.items():
            _enter(removal, number, client, delivery)
    head = ledger.head
    assert head is not None
    drawn = [c for c in delivered if c not in problems and _chance(head.hash, c) < removal.terms.spot_checks]
    done = {w.client for w in ledger.events(removal.name, WorkRepeated) if w.number == number}
    asked = {client: _Again(orders[client]) for client in drawn if client not in done}
    for client, answer in removal.ask(asked, TrainingAnswer.decode).items():
        if isinstance(answer, Refusal):
            problem = f"was asked to do the round again: {answer.problem}"
        elif digest(answer.model) != delivered[client].model:
            problem = "did the round again from the same model and seed, and got another model"
        else:
            problem = ""
        ledger.add(removal.name, WorkRepeated(client, number, problem == "", problem))
    for repeated in ledger.events(removal.name, WorkRepeated):
        if repeated.number == number and not repeated.same:
            problems[repeated.client] = repeated.problem
    return problems


class _Again:
    """The same order once more."""

    message_type = REPEAT

    def __init__(self, order: RecordDict) -> None:
        self._order = order

    def encode(self) -> RecordDict:
        """The records of the order."""
        return RecordDict({"arrays": self._order["arrays"], "config": self._order["config"]})


def _chance(head: str, client: int) -> float:
    """A number in [0, 1) that follows from the ledger's head and from nothing that was known before it."""
    drawn = hashlib.sha256(f"{head} {client}".encode()).digest()
    return int.from_bytes(drawn[:8], "big") / 2.0**64
