"""Work of those who leave, for methods that cannot do without.

They are asked for their consent before all other questions, and work in the phase of unlearning: before the first
round, or in rounds of their own. They are not paid, and not forced: where one refuses, is gone or sends something that is
no model, the method cannot be had, and the request ends with a reason that says which methods can.

What they send is seen by the server like any update, and is made of the data that is to be forgotten. It is bounded: one who leaves
moves the model no further than :func:`furthest` says, whatever it sends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord

from stackfu_integration.flower.events import (
    ConsentGiven,
    EmbeddingReceived,
    PartingWork,
    RoundFinished,
    RunStarted,
    TermsAmended,
)
from stackfu_integration.flower.ledger import RUN
from stackfu_integration.flower.methods import METHODS, bounded, distance_between, without_leavers
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases.session import NO_NODE, Removal, StuckError
from stackfu_integration.flower.receipts import CONSENT, PARTING
from stackfu_integration.flower.strategy import model_problem
from stackfu_integration.flower.wire import (
    ConsentAnswer,
    ConsentQuestion,
    PartingOrder,
    Refusal,
    TrainingAnswer,
)

__all__ = ["PHASE", "Parted", "ask_consent", "furthest", "hear", "write"]

PHASE = "leaving"

Parted = dict[int, tuple[PartingWork, ArrayRecord]]


def ask_consent(removal: Removal) -> None:
    """Ask those who leave whether they will work for the method of the terms, once per method; one no ends the request."""
    ledger, name = removal.ledger, removal.terms.unlearning
    if not METHODS[name].leavers:
        return
    amended = ledger.last(removal.name, TermsAmended)
    number = 0 if amended is None else amended.number + 1
    given = {e.client for e in ledger.events(removal.name, ConsentGiven) if e.method == name}
    missing = [client for client in removal.request.removed if client not in given]
    question = ConsentQuestion(removal.name, name)
    asked = {client: question for client in missing if client in removal.nodes}
    problems = {client: NO_NODE for client in missing if client not in removal.nodes}
    for client, answer in removal.ask(asked, ConsentAnswer.decode).items():
        problem = answer.problem if isinstance(answer, Refusal) else None
        if isinstance(answer, ConsentAnswer):
            facts = {"request": removal.name, "method": name}
            problem = removal.refused_receipt(client, answer.receipt, CONSENT, **facts)
            if problem is None:
                receipt = None if answer.receipt is None else answer.receipt.plain()
                ledger.add(removal.name, ConsentGiven(client, number, name, receipt))
        if problem is not None:
            problems[client] = problem
    _give_up(removal, problems)


def furthest(removal: Removal) -> float:
    """Return the limit on a leaving client's movement of the model: ``clip_factor`` times the longest median training update.

    Of a model that was trained elsewhere no updates are known; its distance from the first model takes their place.
    """
    medians = [
        float(np.median([math.hypot(*lengths.values()) for lengths in finished.lengths.values()]))
        for finished in removal.ledger.events(RUN, RoundFinished)
        if finished.lengths
    ]
    if not medians:
        first = removal.models.get(removal.ledger.need(RUN, RunStarted).initial)
        medians = [distance_between(removal.models.get(removal.request.before), first)]
    return removal.terms.clip_factor * max(medians)


def hear(
    removal: Removal,
    number: int,
    orders: Mapping[int, PartingOrder],
    around: ArrayRecord | None = None,
    most: float | None = None,
) -> Parted:
    """Ask those who leave for their work and return it, bounded; all of it, or the request ends.

    The bound is ``most`` around ``around``, by default around the model that was sent. Who does not answer is asked again, as often
    as ``patience`` says.
    """
    found: Parted = {}
    problems = {client: NO_NODE for client in orders if client not in removal.nodes}
    most = furthest(removal) if most is None else most
    for _ in range(removal.patience):
        asked = {c: order for c, order in orders.items() if c in removal.nodes and c not in found}
        for client, answer in removal.ask(asked, TrainingAnswer.decode).items():
            order = orders[client]
            problem = (
                answer.problem if isinstance(answer, Refusal) else _wrong(removal, client, order, answer)
            )
            if problem is not None or isinstance(answer, Refusal):
                problems[client] = str(problem)
                continue
            problems.pop(client, None)
            model = bounded(answer.model, order.model if around is None else around, most)
            receipt = None if answer.receipt is None else answer.receipt.plain()
            moved = distance_between(model, order.model)
            work = PartingWork(client, number, int(answer.samples), digest(answer.model), moved, receipt)
            found[client] = work, model
    _give_up(removal, problems)
    return found


def write(removal: Removal, parted: Parted) -> None:
    """Enter what those who leave sent; within a transaction."""
    for work, _ in parted.values():
        removal.ledger.add(removal.name, work)


def _wrong(removal: Removal, client: int, order: PartingOrder, answer: TrainingAnswer) -> str | None:
    if answer.number != order.number:
        return f"answered round {answer.number} instead of round {order.number}"
    most = _most_samples(removal, client)
    if not isinstance(answer.samples, int) or not 1 <= answer.samples <= most:
        return f"claims {answer.samples} samples"
    problem = model_problem(answer.model, order.model)
    if problem is not None:
        return problem
    facts = {
        "request": removal.name,
        "method": order.method,
        "number": order.number,
        "model": digest(answer.model),
        "samples": answer.samples,
    }
    return removal.refused_receipt(client, answer.receipt, PARTING, **facts)


def _most_samples(removal: Removal, client: int) -> int:
    """Return a client's possible number of samples: its earlier claim, or the largest claim if it made none."""
    sizes = {c: event.size for c, event in removal.ledger.by_client(removal.name, EmbeddingReceived).items()}
    last = removal.ledger.last(RUN, RoundFinished)
    sizes.update({} if last is None or last.samples is None else last.samples)
    return sizes.get(client, max(sizes.values(), default=1))


def _give_up(removal: Removal, problems: Mapping[int, str]) -> None:
    if not problems:
        return
    method = METHODS[removal.terms.unlearning]
    said = "; ".join(f"{removal.name_of(c)}: {problem}" for c, problem in sorted(problems.items()))
    raise StuckError(
        f"{method.name} needs work of the clients that leave, and cannot be had ({said}); without it can be had: "
        f"{without_leavers()}"
    )
