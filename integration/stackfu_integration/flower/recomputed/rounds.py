"""Every round starts from the model that the one before ended with, and ends with the average of what clients sent."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from flwr.app import ArrayRecord

from stackfu.errors import FileFormatError
from stackfu_integration.flower.convex import NEWTON, with_curvature
from stackfu_integration.flower.events import (
    DistanceBounded,
    ModelUnlearned,
    PaymentAcknowledged,
    RemovalRequested,
    RoundFinished,
    RunStarted,
    StartPrepared,
    WorkDelivered,
    WorkJudged,
)
from stackfu_integration.flower.ledger import RUN
from stackfu_integration.flower.ledger_error import need
from stackfu_integration.flower.methods import METHODS, MODE_MOMENTUM, is_degradation, mixed
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases import shards
from stackfu_integration.flower.phases.convex_rounds import NOT_ASKED
from stackfu_integration.flower.phases.rounds import lengths_in_training
from stackfu_integration.flower.recomputed.case import Case
from stackfu_integration.flower.robust import recalibrated, robust_average

__all__ = ["check"]


def check(case: Case) -> None:
    """Compare where rounds start and end with what clients signed, and with the models that clients kept."""
    if not case.has(RoundFinished):
        return
    _check_starts(case)
    _check_averages(case)
    _check_shown(case)


# ---- where rounds start


def _check_starts(case: Case) -> None:
    """Check that all workers of a round signed the model they received, and that it follows from the ledger."""
    open_rounds: set[int] = set()
    ends = {finished.number: finished.model for finished in case.events(RoundFinished)}
    refused = {(w.client, w.number) for w in case.events(WorkJudged) if not w.passed}
    for work in case.events(WorkDelivered):
        if (work.client, work.number) in refused:
            continue  # nothing follows from it, whatever was signed
        signed = (work.receipt or {}).get("statement", {}).get("start")
        wanted = _start_of(case, work.client, work.number, ends)
        if signed is None or wanted is None:
            open_rounds.add(work.number)
            continue
        origin = (
            "the model that the method starts from"
            if work.number == 1
            else f"where round {work.number - 1} ended"
        )
        need(
            signed == wanted,
            f"{case.request}: client {case.naming(work.client)} signed that its work in round {work.number} started from "
            "another model "
            f"than {origin}",
        )
    if open_rounds:
        case.questions.append(
            f"{case.request}: what clients were sent in round{'s' if len(open_rounds) > 1 else ''} "
            f"{_listed(open_rounds)}: it is in "
            "no receipt, or cannot be worked out from what is kept, and so the server's word"
        )
    else:
        case.proved.append(
            f"{case.request}: every round started where the one before ended, as clients signed"
        )


def _start_of(case: Case, client: int, number: int, ends: dict[int, str]) -> str | None:
    """Return the digest of the model that a client is sent in a round, or ``None`` where what is kept does not say it."""
    terms, opened = case.terms, case.needed(RemovalRequested)
    method = terms.unlearning
    if method == shards.METHOD:
        return digest(case.first_model()) if number == 1 else None
    if method == "mode":
        return _start_of_mode(case, number, ends)
    prepared = case.last(StartPrepared)
    first = opened.before
    if prepared is not None:
        first = prepared.model
    elif METHODS[method].anew:
        first = case.ledger.need(RUN, RunStarted).initial
    start = first if number == 1 else ends.get(number - 1)
    if method != NEWTON or start is None:
        return start
    model = _kept(case, start)
    return None if model is None else digest(with_curvature(model, terms.head))


def _start_of_mode(case: Case, number: int, ends: dict[int, str]) -> str | None:
    """MoDe hands on two models, one that starts anew and one that is moved towards it."""
    rounds, opened = case.terms.rounds, case.needed(RemovalRequested)
    anew = [n for n in ends if n < number and is_degradation(n, rounds)]
    guided = [n for n in ends if n < number and not is_degradation(n, rounds)]
    degraded = ends[max(anew)] if anew else case.ledger.need(RUN, RunStarted).initial
    if is_degradation(number, rounds):
        return degraded
    start = ends[max(guided)] if guided else opened.before
    if not is_degradation(number - 1, rounds):
        return start
    moved, towards = _kept(case, start), _kept(case, degraded)
    return None if moved is None or towards is None else digest(mixed(moved, towards, MODE_MOMENTUM))


def _kept(case: Case, name: str) -> ArrayRecord | None:
    """Return a model from the server's folder, or from those of clients."""
    for store in (case.models, *case.works):
        try:
            return store.get(name)
        except FileFormatError:
            continue
    return None


# ---- where rounds end


def _check_averages(case: Case) -> None:
    """The model of every round is the average of the models that clients sent, where they kept them."""
    terms, ends = case.terms, {finished.number: finished.model for finished in case.events(RoundFinished)}
    if METHODS[terms.unlearning].gradients and case.has(DistanceBounded):
        case.proved.append(
            f"{case.request}: how far the last head is from its optimum, however rounds were averaged"
        )
        return
    reason = ""
    if terms.strategy:
        reason = f"the strategy {terms.strategy} did that"
    elif terms.aggregation == "secure":
        reason = "updates were seen in sums only"
    elif terms.unlearning in (shards.METHOD, "mode") or METHODS[terms.unlearning].gradients:
        reason = f"{METHODS[terms.unlearning].name} keeps no models from which it could be worked out again"
    open_rounds = set(ends) if reason else _averaged_otherwise(case, ends)
    if not open_rounds:
        case.proved.append(
            f"{case.request}: every round ended with the average of the models that clients sent and kept"
        )
        return
    reason = reason or "the models that clients sent are not all here; clients keep them in their folders"
    case.questions.append(
        f"{case.request}: if the models of round{'s' if len(open_rounds) > 1 else ''} {_listed(open_rounds)} are averages of what "
        f"clients sent ({reason}): that is the server's word"
    )


def _averaged_otherwise(case: Case, ends: dict[int, str]) -> set[int]:
    """Recompute averages; a wrong one raises an error, one that cannot be recomputed leaves a question."""
    open_rounds: set[int] = set()
    started: ArrayRecord | None = _kept(case, str(_start_of(case, -1, 1, ends)))
    for number in sorted(ends):
        if started is None:
            open_rounds.add(number)
            started = _kept(case, ends[number])
            continue
        again = _averaged(case, number, started)
        stated = _kept(case, ends[number])
        if again is not None and digest(again) == ends[number]:
            stated = again
        elif again is None or stated is None:
            open_rounds.add(number)
        else:
            need(
                list(again) == list(stated)
                and all(_near(again[name].numpy(), stated[name].numpy()) for name in stated),
                f"{case.request}: the model of round {number} is not the average of the models that clients signed and sent",
            )
        started = stated
    return open_rounds


def _near(a: np.ndarray, b: np.ndarray) -> bool:  # type: ignore[type-arg]
    """Say if two arrays differ by rounding only: another machine may add up in another order."""
    return a.shape == b.shape and np.allclose(
        a.astype(np.float64), b.astype(np.float64), rtol=1e-5, atol=1e-7
    )


def _averaged(case: Case, number: int, sent: ArrayRecord) -> ArrayRecord | None:
    """Return the average of a round's accepted work under the terms; ``None`` if a client's model is missing."""
    terms = case.terms
    passed = {
        w.client
        for w in case.events(WorkJudged)
        if w.number == number and w.passed and w.problem != NOT_ASKED
    }
    work = {w.client: w for w in case.events(WorkDelivered) if w.number == number and w.client in passed}
    if not work:
        return sent
    models: dict[int, ArrayRecord] = {}
    for client, delivered in work.items():
        model = _kept(case, delivered.model)
        if model is None:
            return None
        models[client] = model
    if terms.unlearning == "federaser":
        stored = lengths_in_training(case.ledger, number)
        models = {c: recalibrated(m, sent, stored[c]) if c in stored else m for c, m in models.items()}
    samples = {client: delivered.samples for client, delivered in work.items()}
    averaged = robust_average(
        models, samples, sent, terms.aggregation, clip_factor=terms.clip_factor, trim=terms.trim
    )
    if not terms.head:
        return averaged
    return ArrayRecord(OrderedDict((n, a if n in terms.head else sent[n]) for n, a in averaged.items()))


# ---- what clients were shown


def _check_shown(case: Case) -> None:
    """With their payment clients signed the models before and after that they were shown."""
    unlearned, opened = case.last(ModelUnlearned), case.needed(RemovalRequested)
    if unlearned is None:
        return
    unsaid = []
    signed = False
    for said in case.events(PaymentAcknowledged):
        statement = (said.receipt or {}).get("statement", {})
        if "after" not in statement:
            unsaid.append(said.client)
            continue
        signed = True
        for name, wanted in (("before", opened.before), ("after", unlearned.model)):
            need(
                statement.get(name) == wanted,
                f"{case.request}: client {case.naming(said.client)} signed that it was shown another model {name} the "
                "removal than the ledger "
                "names",
            )
    if unsaid or not signed:
        whom = case.naming.all(sorted(unsaid)) if unsaid else "clients"
        case.questions.append(
            f"{case.request}: which model {whom} were shown at the end: it is in no receipt, and so the server's word"
        )
    else:
        case.proved.append(
            f"{case.request}: the released model is that of the last round, and clients signed that they were shown it"
        )


def _listed(numbers: set[int]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))
