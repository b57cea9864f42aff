"""Training with all clients, by Flower's own ``train`` message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import Strategy

from stackfu.errors import InputError
from stackfu_integration.flower.events import RoundFinished, RunStarted, UpdatesKept
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.model_store import ModelStore, digest
from stackfu_integration.flower.phases.rounds import last_model, run_rounds
from stackfu_integration.flower.phases.session import Session
from stackfu_integration.flower.phases.shards import METHOD, rounds_of
from stackfu_integration.flower.strategy import CohortMember, RoundOutcome
from stackfu_integration.flower.wire import TRAIN

__all__ = ["PHASE", "open_run", "run"]

PHASE = "train"


def open_run(
    ledger: PaymentLedger,
    models: ModelStore,
    folder: Path,
    clients: int,
    rounds: int,
    initial: ArrayRecord,
    names: tuple[str, ...] = (),
    adopted: ArrayRecord | None = None,
) -> None:
    """Write the run down, or check that it is the one in the ledger; an ``adopted`` model was trained elsewhere."""
    known = ledger.last(RUN, RunStarted)
    if known is None:
        first, trained = models.put(initial), None if adopted is None else models.put(adopted)
        with ledger.transaction():
            ledger.add(RUN, RunStarted(clients, rounds, first, names, adopted is not None))
            if trained is not None:
                ledger.add(RUN, RoundFinished(1, trained))
    elif known.names != names:
        raise InputError("folder", "holds a run with other names of clients", value=folder)
    elif adopted is not None and last_model(ledger) != digest(adopted):
        raise InputError("folder", "holds a run with another trained model", value=folder)
    elif (known.clients, known.rounds) != (clients, rounds):
        raise InputError("folder", "holds a run with another number of clients or rounds", value=folder)
    elif known.initial != digest(initial):
        raise InputError("folder", "holds a run that started from another model", value=folder)


def run(
    session: Session,
    initial: ArrayRecord,
    rounds: int,
    settings: Mapping[str, Any],
    strategy: Strategy | None = None,
) -> None:
    """Train from the last round in the ledger on."""

    shards = rounds_of(session) if session.terms.unlearning == METHOD else None
    options: dict[str, Any] = {}
    if shards is not None:
        if strategy is not None:
            raise InputError("strategy", "training in shards is one of its own")
        initial, settings = shards.stack, {**settings, "only": ",".join(session.terms.head)}
        options = {"step": shards.step, "view": shards.view, "follow": False}

    def write(outcome: RoundOutcome, model: str) -> None:
        if shards is not None:
            model = shards.entered(outcome, model)
        for client, problem in outcome.problems.items():
            session.ledger.add_fault(RUN, client, f"{PHASE} {outcome.number}", problem)
        session.ledger.add(RUN, RoundFinished(outcome.number, model, outcome.samples, outcome.lengths))
        if session.keep_updates:
            kept = {client: outcome.delivered[client].model for client in outcome.models}
            session.ledger.add(RUN, UpdatesKept(outcome.number, kept))

    run_rounds(
        session,
        RUN,
        initial,
        rounds,
        {client: CohortMember() for client in range(session.clients)},
        message_type=TRAIN,
        settings=ConfigRecord({"seed": session.terms.seed, **_told(session), **settings}),
        write=write,
        strategy=strategy,
        **options,
    )


def _told(session: Session) -> dict[str, int]:
    """QuickDrop is prepared while the model is trained."""
    return {"distil": 1} if session.terms.unlearning == "quickdrop" else {}
