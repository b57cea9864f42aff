"""Rounds of unlearning with the committed shares, each looked at before it counts.

An update is judged by what can be seen of it (:mod:`~stackfu_integration.flower.robust`). Some work is asked for again:
the choice is unknown before the delivery, because it is made from the hash of the ledger's row about the delivery.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from stackfu_integration.flower.client import round_of
from stackfu_integration.flower.convex import METHOD as CONVEX
from stackfu_integration.flower.convex import NEWTON
from stackfu_integration.flower.events import (
    NO_CLIENT,
    ClientCommitted,
    ModelUnlearned,
    RoundFinished,
    RunStarted,
    WorkDelivered,
    WorkJudged,
    WorkRepeated,
)
from stackfu_integration.flower.ledger import RUN
from stackfu_integration.flower.methods import (
    METHODS,
    MODE_GUIDANCE_RATE,
    MODE_MOMENTUM,
    MODE_RATE,
    is_degradation,
    mixed,
)
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases import leaving, shards
from stackfu_integration.flower.phases.convex_rounds import NOT_ASKED, Descent, excuse, without_curvature
from stackfu_integration.flower.phases.release import promise, release
from stackfu_integration.flower.phases.rounds import rounds_done, run_rounds
from stackfu_integration.flower.phases.session import Removal, StuckError
from stackfu_integration.flower.phases.start import first_model
from stackfu_integration.flower.phases.summed_rounds import run_summed_rounds
from stackfu_integration.flower.receipts import WORK
from stackfu_integration.flower.robust import Judgement, average, judge, update_of
from stackfu_integration.flower.strategy import CohortMember, Delivery, NobodyAnsweredError, RoundOutcome
from stackfu_integration.flower.wire import REPEAT, UNLEARN, PartingOrder, Refusal, TrainingAnswer
from stackfu_integration.flower.wire.records import config

__all__ = ["PHASE", "fault_phase", "run"]

PHASE = "unlearning"


def fault_phase(number: int) -> str:
    """Name of a round in the ledger's faults."""
    return f"{PHASE} {number}"


def run(removal: Removal, strategy: Strategy | None = None) -> None:
    """Unlearn from the last round in the ledger on; the last model is the result.

    A round without deliveries is tried again, ``patience`` times in all.
    """
    ledger, terms = removal.ledger, removal.terms
    commitments = ledger.by_client(removal.name, ClientCommitted)
    gradients = METHODS[terms.unlearning].gradients
    if terms.unlearning == NEWTON:
        promise(removal)
    if terms.aggregation == "secure":
        descent = Descent(removal) if gradients else None
        run_summed_rounds(removal, first_model(removal), commitments, descent)
    elif terms.unlearning == "mode":
        for number in range(rounds_done(ledger, removal.name) + 1, terms.rounds + 1):
            _mode_round(removal, number, commitments)
    elif gradients:
        _descend(removal, commitments)
    elif terms.unlearning == shards.METHOD:
        heads, told = shards.rounds_of(removal, removal.name), {"only": ",".join(terms.head)}
        judged = heads.judge(lambda *seen: _judge(removal, *seen))
        _rounds(
            removal,
            commitments,
            heads.stack,
            terms.rounds,
            told,
            follow=False,
            judge=judged,
            step=heads.step,
            view=heads.view,
            entered=heads.entered,
        )
    else:
        only = {"only": ",".join(terms.head)} if terms.head else {}
        _rounds(removal, commitments, first_model(removal), terms.rounds, only, strategy=strategy)
    model = ledger.need(removal.name, RoundFinished).model
    if terms.unlearning == NEWTON:
        model = release(removal)
    with ledger.transaction():
        if gradients:
            excuse(removal)
        ledger.add(removal.name, ModelUnlearned(model))


def _descend(removal: Removal, commitments: Mapping[int, ClientCommitted]) -> None:
    """Rounds of gradients, each answer checked by its head; second derivatives are checked separately."""
    descent = Descent(removal)

    def judge(
        number: int, models: Mapping[int, ArrayRecord], samples: Mapping[int, int], sent: ArrayRecord
    ) -> dict[int, Judgement]:
        bare = {client: without_curvature(model) for client, model in models.items()}
        return descent.judge(_judge(removal, number, bare, samples, sent), number, models, samples, sent)

    _rounds(
        removal,
        commitments,
        first_model(removal),
        removal.terms.rounds,
        descent.told,
        descent.write,
        judge=judge,
        step=descent.step,
        enough=descent.enough,
        view=lambda client, model: descent.shown(model),
    )


def _rounds(
    removal: Removal,
    commitments: Mapping[int, ClientCommitted],
    first: ArrayRecord,
    rounds: int,
    told: Mapping[str, str | float],
    also: Callable[[], None] = lambda: None,
    entered: Callable[[RoundOutcome, str], str] = lambda outcome, model: model,
    **options: Any,
) -> None:
    """Do rounds up to round ``rounds``; ``told`` are settings of the method, and ``also`` writes something with each.

    ``entered`` writes as well, and names the model that a round counts with where it is not what rounds hand on.
    """

    def write(outcome: RoundOutcome, model: str) -> None:
        also()
        _write(removal, outcome, entered(outcome, model))

    for attempt in range(removal.patience):
        try:
            run_rounds(
                removal,
                removal.name,
                first,
                rounds,
                {
                    client: CohortMember(agreed.share, agreed.samples)
                    for client, agreed in commitments.items()
                },
                message_type=UNLEARN,
                settings=config(request=removal.name, seed=removal.terms.seed, **told),
                write=write,
                inspect=lambda *seen: _inspect(removal, *seen),
                **{"judge": lambda *seen: _judge(removal, *seen), **options},
            )
            break
        except NobodyAnsweredError as error:
            if attempt + 1 == removal.patience:
                raise StuckError(str(error)) from error


def _mode_round(removal: Removal, number: int, commitments: Mapping[int, ClientCommitted]) -> None:
    """One round of MoDe: the model that starts anew learns, or the trained one is moved towards it and guided.

    In a round of guidance those who leave learn the labels that the new model gives to their samples, and count with their sizes.
    """
    ledger, models, terms = removal.ledger, removal.models, removal.terms
    done = {finished.number: finished.model for finished in ledger.events(removal.name, RoundFinished)}
    anew = [n for n in done if is_degradation(n, terms.rounds)]
    guided = [n for n in done if n not in anew]
    degraded = models.get(done[max(anew)] if anew else ledger.need(RUN, RunStarted).initial)
    if is_degradation(number, terms.rounds):
        told: dict[str, str | float] = {"method": "mode", "step": "degradation", "learning_rate": MODE_RATE}
        _rounds(removal, commitments, degraded, number, told, follow=False)
        return
    model = models.get(done[max(guided)] if guided else removal.request.before)
    if is_degradation(number - 1, terms.rounds):
        model = mixed(model, degraded, MODE_MOMENTUM)
    order = PartingOrder(model, removal.name, "mode", number, terms.seed, degraded)
    parted = leaving.hear(removal, number, dict.fromkeys(removal.request.removed, order))
    theirs = {client: made for client, (_, made) in parted.items()}
    sizes = {client: work.samples for client, (work, _) in parted.items()}

    def combine(averaged: ArrayRecord, samples: int) -> ArrayRecord:
        return average({**theirs, NO_CLIENT: averaged}, {**sizes, NO_CLIENT: samples})

    told = {"method": "mode", "step": "guidance", "learning_rate": MODE_GUIDANCE_RATE}
    also = partial(leaving.write, removal, parted)
    _rounds(removal, commitments, model, number, told, also, follow=False, combine=combine)


def _write(removal: Removal, outcome: RoundOutcome, model: str) -> None:
    ledger = removal.ledger
    for client, delivery in outcome.delivered.items():
        _enter(removal, outcome.number, client, delivery)
        found = outcome.judgements.get(client, Judgement(True))
        judged = WorkJudged(client, outcome.number, found.passed, found.problem, dict(found.measured))
        ledger.add(removal.name, judged)
    for client in outcome.excused:  # it stood ready and was not needed
        ledger.add(removal.name, WorkJudged(client, outcome.number, True, NOT_ASKED))
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
    """Check the updates of a round, compared with that of the server's own data, if it has any."""
    terms, reference = removal.terms, None
    if removal.probe is not None:
        settings = config(request=removal.name, seed=terms.seed, server_round=number)
        if METHODS[terms.unlearning].gradients:
            settings["only"], settings["method"] = ",".join(terms.head), CONVEX
        trained, _ = round_of(removal.probe, sent, 1.0, settings)
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
        # at an optimum gradients cancel, and each points against the others'
        least_cosine=-1.0 if METHODS[terms.unlearning].gradients else terms.least_cosine,
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
            "start": digest(orders[client]["arrays"]),  # type: ignore[arg-type]
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
        """Return the records of the order."""
        return RecordDict({"arrays": self._order["arrays"], "config": self._order["config"]})


def _chance(head: str, client: int) -> float:
    """Return a number in [0, 1) that follows from the ledger's head and from nothing that was known before it."""
    drawn = hashlib.sha256(f"{head} {client}".encode()).digest()
    return int.from_bytes(drawn[:8], "big") / 2.0**64
