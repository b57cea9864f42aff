"""The model that rounds of unlearning start from, and whether the method can be had at all (:mod:`..methods`)."""

from __future__ import annotations

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy

from stackfu.errors import InputError
from stackfu_integration.flower.convex import METHOD, MOST_NUMBERS, NEWTON, flat, head_of, with_head, zeroed
from stackfu_integration.flower.events import (
    RemovalRequested,
    RoundFinished,
    RunStarted,
    StartPrepared,
    UpdatesKept,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.methods import ASCENT_RADIUS, METHODS, distance_between, recovered
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.phases import shards
from stackfu_integration.flower.phases.evidence import is_head
from stackfu_integration.flower.phases.leaving import Parted, hear, write
from stackfu_integration.flower.phases.rounds import last_model, lengths_in_training
from stackfu_integration.flower.phases.session import Removal
from stackfu_integration.flower.robust import average
from stackfu_integration.flower.terms import Terms
from stackfu_integration.flower.wire import PartingOrder

__all__ = ["check", "descent_start", "first_model", "recovered_from"]


def check(ledger: PaymentLedger, models: ModelStore, terms: Terms, strategy: Strategy | None) -> None:
    """Refuse terms with a method that needs missing training data, or does not fit the strategy."""
    run, method = ledger.last(RUN, RunStarted), METHODS[terms.unlearning]
    if strategy is not None and (terms.unlearning in ("federaser", "mode", "shards") or method.gradients):
        raise InputError("strategy", f"{method.name} is one of its own")
    if strategy is not None and terms.aggregation == "secure":
        raise InputError("strategy", "sees single updates, and with secure aggregation nobody does")
    if run is None:
        return
    if run.adopted and method.anew and run.initial == last_model(ledger):
        raise InputError("unlearning", "an adopted model without its first weights cannot be retrained")
    if terms.unlearning == "federaser":
        stored = sum(bool(lengths_in_training(ledger, n + 1)) for n in range(terms.rounds))
        if stored < terms.rounds:
            said = f"FedEraser replays rounds of training, and the ledger has the lengths of {stored}"
            raise InputError("rounds", said, value=terms.rounds)
    kept = {event.number for event in ledger.events(RUN, UpdatesKept)} if method.updates else set()
    if method.updates and kept != {finished.number for finished in ledger.events(RUN, RoundFinished)}:
        said = f"{method.name} needs every client's updates: train with keep_updates, or with these terms"
        raise InputError("unlearning", said, value=terms.unlearning)
    unknown = sorted(set(terms.head) - set(models.get(run.initial))) if terms.head else []
    if unknown:
        raise InputError("head", "is no array of the model", value=unknown[0])
    if method.gradients or terms.unlearning == "shards":
        head = head_of(models.get(run.initial), terms.head)
        if not is_head(head):
            raise InputError(
                "head",
                f"of {terms.unlearning} names one matrix and its bias, the last layer",
                value=terms.head,
            )
        if terms.unlearning == NEWTON and len(flat(head)) > MOST_NUMBERS:
            said = f"has {len(flat(head))} numbers, and Newton's method sends half as many as their square: {MOST_NUMBERS} at most"
            raise InputError("head", said, value=terms.head)
    if terms.unlearning == "shards":
        shards.check(ledger, terms)


def first_model(removal: Removal) -> ArrayRecord:
    """Return the model that the first round starts from; one that is made for it is made once."""
    ledger, models, terms = removal.ledger, removal.models, removal.terms
    if METHODS[terms.unlearning].gradients:
        started = descent_start(ledger, models, removal.request, terms)
        if not ledger.has(removal.name, StartPrepared):
            ledger.add(removal.name, StartPrepared(models.put(started)))
        return started
    if METHODS[terms.unlearning].anew:
        return models.get(ledger.need(RUN, RunStarted).initial)
    if terms.unlearning not in ("fedrecovery", "gradient-ascent", "quickdrop"):
        return models.get(removal.request.before)
    prepared = ledger.last(removal.name, StartPrepared)
    if prepared is not None:
        return models.get(prepared.model)
    if terms.unlearning == "fedrecovery":
        made = recovered_from(ledger, models, removal.request, terms)
        ledger.add(removal.name, StartPrepared(models.put(made)))
        return made
    return _ascended(removal) if terms.unlearning == "gradient-ascent" else _dropped(removal)


def descent_start(
    ledger: PaymentLedger, models: ModelStore, request: RemovalRequested, terms: Terms
) -> ArrayRecord:
    """Return the first weights with a head of zeros, or for Newton's method with the head as it was before the request."""
    first = models.get(ledger.need(RUN, RunStarted).initial)
    if terms.unlearning == METHOD:
        return zeroed(first, terms.head)
    return with_head(first, terms.head, flat(head_of(models.get(request.before), terms.head)))


def recovered_from(
    ledger: PaymentLedger, models: ModelStore, request: RemovalRequested, terms: Terms
) -> ArrayRecord:
    """Return the trained model without the parts of all removed clients."""
    rounds = ledger.events(RUN, RoundFinished)
    names = [ledger.need(RUN, RunStarted).initial, *(finished.model for finished in rounds)]
    kept = [
        {c: models.get(name) for c, name in event.models.items()} for event in ledger.events(RUN, UpdatesKept)
    ]
    return recovered(
        models.get(names[-1]),
        [models.get(name) for name in names[:-1]],
        kept,
        [finished.samples or {} for finished in rounds],
        (*request.removed, *request.gone),
        terms.recovery_noise,
        terms.seed,
    )


def _ascended(removal: Removal) -> ArrayRecord:
    """Return one after the other, those who leave undo their training near the others' last models.

    The first model replaces the random ones that set the radius by their distance.
    """
    ledger, models, terms, request = removal.ledger, removal.models, removal.terms, removal.request
    last, kept = ledger.need(RUN, RoundFinished), ledger.need(RUN, UpdatesKept)
    left = {*request.removed, *request.gone}
    theirs = {c: models.get(name) for c, name in kept.models.items() if c not in left}
    reference = average(theirs, last.samples or {})
    radius = ASCENT_RADIUS * distance_between(models.get(ledger.need(RUN, RunStarted).initial), reference)
    model = models.get(request.before)
    with_all: Parted = {}
    for client in request.removed:
        order = PartingOrder(model, removal.name, terms.unlearning, 0, terms.seed, reference, radius)
        parted = hear(removal, 0, {client: order}, around=reference, most=radius)
        with_all.update(parted)
        model = parted[client][1]
    return _prepared(removal, with_all, model)


def _dropped(removal: Removal) -> ArrayRecord:
    """Let leaving clients ascend on their synthetic sets, all from the same model."""
    model, request = removal.models.get(removal.request.before), removal.request
    order = PartingOrder(model, removal.name, removal.terms.unlearning, 0, removal.terms.seed)
    parted = hear(removal, 0, dict.fromkeys(request.removed, order))
    samples = {client: work.samples for client, (work, _) in parted.items()}
    return _prepared(
        removal, parted, average({client: made for client, (_, made) in parted.items()}, samples)
    )


def _prepared(removal: Removal, parted: Parted, model: ArrayRecord) -> ArrayRecord:
    name = removal.models.put(model)
    with removal.ledger.transaction():
        write(removal, parted)
        removal.ledger.add(removal.name, StartPrepared(name))
    return model
