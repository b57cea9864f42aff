"""Rounds of training or unlearning: each is on disk before the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import Strategy

from stackfu_integration.flower.convex import CURVATURE, of_one_objective
from stackfu_integration.flower.events import (
    ModelUnlearned,
    NoiseDrawn,
    PayloadsErased,
    RequestAborted,
    RequestClosed,
    RoundFinished,
    RunStarted,
    ShardsTrained,
    SlopeSummed,
    StartPrepared,
    UpdatesKept,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.methods import METHODS
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.phases.session import Session, terms_of
from stackfu_integration.flower.robust import recalibrated, robust_average
from stackfu_integration.flower.strategy import (
    Aggregate,
    CohortMember,
    Inspect,
    Judge,
    ParticipationFedAvg,
    RoundOutcome,
    View,
)

__all__ = ["forget_models", "last_model", "lengths_in_training", "rounds_done", "run_rounds"]


class _EnoughError(Exception):
    """No further round is needed: Flower's strategies count them and know no other end."""


def rounds_done(ledger: PaymentLedger, request: str = RUN) -> int:
    """Return how many rounds of training, or of a request, are closed."""
    last = ledger.last(request, RoundFinished)
    return 0 if last is None else last.number


def last_model(ledger: PaymentLedger, request: str = RUN) -> str | None:
    """Return the name of the model after the last round of training, or of a request; of a request that is through, its outcome."""
    last = ledger.last(request, ModelUnlearned) or ledger.last(request, RoundFinished)
    return None if last is None else last.model


def lengths_in_training(ledger: PaymentLedger, number: int) -> Mapping[int, Mapping[str, float]]:
    """Return the norms of the clients' updates in a round of training, array by array."""
    found = next((e for e in ledger.events(RUN, RoundFinished) if e.number == number), None)
    return {} if found is None or found.lengths is None else found.lengths


def run_rounds(
    session: Session,
    request: str,
    start: ArrayRecord,
    rounds: int,
    cohort: Mapping[int, CohortMember],
    *,
    message_type: str,
    settings: ConfigRecord,
    write: Callable[[RoundOutcome, str], None],
    judge: Judge | None = None,
    inspect: Inspect | None = None,
    strategy: Strategy | None = None,
    follow: bool = True,
    combine: Callable[[ArrayRecord, int], ArrayRecord] = lambda averaged, samples: averaged,
    step: Aggregate | None = None,
    enough: Callable[[], bool] = lambda: False,
    view: View | None = None,
) -> None:
    """Average from ``start``, from the round after the last one in the ledger up to round ``rounds``.

    ``write(outcome, model)`` enters a round and the name of its model into the ledger, within a transaction. A
    ``strategy`` of Flower's replaces the averaging; its state other than the model does not survive a
    crash. Without ``follow`` the next round starts from ``start``, and not from where the last one ended; ``combine(average,
    samples)`` may add to an average of so many samples. ``step`` takes the place of averaging; ``enough`` ends
    the rounds early; ``view(client, arrays)`` is what a client is sent of the arrays.
    """
    terms = session.terms
    done, last = rounds_done(session.ledger, request), last_model(session.ledger, request)
    if done >= rounds or enough():
        return

    def finished(outcome: RoundOutcome) -> None:
        name = session.models.put(outcome.arrays)
        if session.keep_updates and request == RUN:
            for model in outcome.models.values():
                session.models.put(model)
        with session.ledger.transaction():
            write(outcome, name)
        forget_models(session.ledger, session.models)
        if enough():
            raise _EnoughError

    def aggregate(
        models: Mapping[int, ArrayRecord], samples: Mapping[int, int], sent: ArrayRecord
    ) -> ArrayRecord:
        if session.terms.unlearning == "federaser" and request != RUN:
            stored = lengths_in_training(session.ledger, rounds_done(session.ledger, request) + 1)
            models = {c: recalibrated(m, sent, stored[c]) if c in stored else m for c, m in models.items()}
        factors = {"clip_factor": terms.clip_factor, "trim": terms.trim}
        averaged = robust_average(models, samples, sent, terms.aggregation, **factors)
        return combine(averaged, sum(samples[client] for client in models))

    averaging = ParticipationFedAvg(
        session.nodes,
        cohort,
        finished=finished,
        message_type=message_type,
        done=done,
        patience=session.patience,
        most_samples=terms.most_samples,
        aggregate=aggregate if step is None else step,
        judge=judge,
        inspect=inspect,
        head=lambda: session.ledger.head,
        inner=strategy,
        only=(*terms.head, CURVATURE) if terms.head and (request != RUN or view is not None) else (),
        view=view,
    )
    with suppress(_EnoughError):
        averaging.start(
            session.grid,
            start if last is None or not follow else session.models.get(last),
            num_rounds=rounds - done,
            timeout=session.time_for_answers(),
            train_config=settings,
        )


def forget_models(ledger: PaymentLedger, models: ModelStore) -> None:
    """Keep the first model, the last of training, the last of every request, and what an open request or kept updates need."""
    run, names = ledger.last(RUN, RunStarted), set()
    if run is not None:
        names.add(run.initial)
    for kept in ledger.events(RUN, UpdatesKept):
        names |= set(kept.models.values())
    if ledger.has(RUN, UpdatesKept):
        names |= {finished.model for finished in ledger.events(RUN, RoundFinished)}
    for request in ledger.requests():
        over = ledger.has(request, RequestClosed) or ledger.has(request, PayloadsErased)
        method = None if over else terms_of(ledger, request).unlearning
        if method == "mode":
            names |= {finished.model for finished in ledger.events(request, RoundFinished)}
        elif (
            method is not None
            and METHODS[method].gradients
            and (slopes := ledger.events(request, SlopeSummed))
        ):
            for event in of_one_objective(slopes, slopes[-1].clients):
                names |= {event.at, event.slope}
            names |= {slopes[-1].at, slopes[-1].answers}
        prepared, drawn = ledger.last(request, StartPrepared), ledger.last(request, NoiseDrawn)
        if prepared is not None:
            names.add(prepared.model)
        if drawn is not None and not ledger.has(request, PayloadsErased):
            names.add(drawn.noiseless)
    carried = [request for request in ledger.requests() if not ledger.has(request, RequestAborted)]
    for request in (RUN, *carried):
        shards = ledger.last(request, ShardsTrained)
        names |= {name for name in (last_model(ledger, request), shards and shards.model) if name}
    models.keep_only(names)
