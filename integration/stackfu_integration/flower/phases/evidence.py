"""Bound the distance of the unlearned model from one that never met the removed data.

For a softmax head with penalty, ``F(w) = 1/n sum_k f_k(w) + l2/2 |w|^2`` over the n samples that the participants worked with
is strongly convex, so

    |w - w*| <= |grad F(w)| / l2 = |1/n sum_k grad f_k(w) + l2 w| / l2

for any w, wherever it came from; w* is a function of the participants' samples alone. Each participant sends ``grad f_k(w)`` of the
model that the ledger names, signed; the sum, its norm and the bound are the ledger's, and can be recomputed by any reader.
That the gradients are those of the data they claim is the clients' word. Only a head, one matrix and one bias, is convex:
for any other model there is no bound, unless all layers below the head are the first ones, as :mod:`..convex` leaves them.

With secure aggregation the gradients are sent behind masks, each signed as it is sent, and the ledger keeps them so, with the
shares that unmask their sum: any reader can recompute the sum, and no summand. Whole multiples of ``2^-bits`` are summed,
so that K clients' gradients of m numbers are off by at most ``K sqrt(m) 2^-(bits + 1)`` in all, which is added to the norm.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord

from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.convex import flat, head_of
from stackfu_integration.flower.events import (
    ClientCommitted,
    DistanceBounded,
    GradientHidden,
    GradientReported,
    RoundFinished,
    SlopeSummed,
    SumHeard,
    WorkDelivered,
)
from stackfu_integration.flower.methods import METHODS
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases.session import Removal
from stackfu_integration.flower.phases.sums import agree, keep, open_sum
from stackfu_integration.flower.receipts import GRADIENT, fingerprint_of
from stackfu_integration.flower.robust import within_reach
from stackfu_integration.flower.secure_sum import MODEL_BITS, SumError, SumName
from stackfu_integration.flower.wire import GradientAnswer, GradientQuestion, Refusal

__all__ = ["PHASE", "bound_on_distance", "bound_on_summed", "gather", "is_head", "name_of_sum"]

PHASE = "evidence"


def is_head(model: ArrayRecord) -> bool:
    """Return True if a model is a matrix and a vector with as many entries as it has rows."""
    shapes = sorted((array.numpy().shape for array in model.values()), key=len)
    return len(shapes) == 2 and len(shapes[0]) == 1 and len(shapes[1]) == 2 and shapes[0][0] == shapes[1][0]


def bound_on_distance(
    model: ArrayRecord, gradients: Mapping[int, FloatArray], samples: int, l2: float
) -> tuple[float, float]:
    """Return ``|grad F|`` and ``|grad F| / l2``; summed in ascending client number."""
    weights = flat(model)
    total = np.zeros(len(weights))
    for client in sorted(gradients):
        total = total + gradients[client]
    norm = float(np.linalg.norm(total / samples + l2 * weights))
    return norm, norm / l2


def bound_on_summed(
    model: ArrayRecord, total: FloatArray, clients: Collection[int], samples: int, l2: float
) -> tuple[float, float]:
    """Return the same from a secure sum over these clients, which is off by as much as rounding can do."""
    norm, _ = bound_on_distance(model, {0: total}, samples, l2)
    norm += len(clients) * math.sqrt(len(total)) * 2.0 ** -(MODEL_BITS + 1) / samples
    return norm, norm / l2


def name_of_sum(request: str, rounds: int) -> SumName:
    """Return the sum of gradients comes after those of all rounds that can be."""
    return SumName(request, "gradient", rounds + 1)


def gather(removal: Removal) -> None:
    """Ask the participants that have not reported yet, and write down the bound, once."""
    ledger, terms = removal.ledger, removal.terms
    if terms.certify_l2 is None or ledger.has(removal.name, DistanceBounded):
        return
    model = removal.models.get(ledger.need(removal.name, RoundFinished).model)
    only = terms.head if METHODS[terms.unlearning].gradients else ()
    head = head_of(model, only) if only else model
    if not is_head(head):
        return  # the audit says that there is none
    worked = {work.client for work in ledger.events(removal.name, WorkDelivered)}
    summed = ledger.last(removal.name, SlopeSummed)
    if summed is not None:  # the head is the optimum of these clients, without those with refused work
        worked = set(summed.clients)
    questions = {
        client: GradientQuestion(model, removal.name, agreed.share, agreed.samples, terms.seed, only)
        for client, agreed in ledger.by_client(removal.name, ClientCommitted).items()
        if client in worked
    }
    if terms.aggregation == "secure":
        try:
            _gather_sum(removal, head, questions)
        except SumError as error:  # the audit says that there is no bound
            for client in questions:
                ledger.add_fault(
                    removal.name, client, PHASE, f"took part in a sum that cannot be had: {error}"
                )
        return
    known = ledger.by_client(removal.name, GradientReported)
    asked = {c: question for c, question in questions.items() if c not in known and c in removal.nodes}
    for client, answer in removal.ask(asked, GradientAnswer.decode).items():
        problem = _wrong(removal, client, answer, asked[client], len(flat(head)))
        if problem is not None or isinstance(answer, Refusal):
            ledger.add_fault(removal.name, client, PHASE, str(problem))
            continue
        receipt = None if answer.receipt is None else answer.receipt.plain()
        ledger.add(removal.name, GradientReported(client, int(answer.samples), answer.gradient, receipt))
    reported = ledger.by_client(removal.name, GradientReported)
    if reported:
        samples = sum(event.samples for event in reported.values())
        gradients = {client: event.gradient for client, event in reported.items()}
        norm, distance = bound_on_distance(head, gradients, samples, terms.certify_l2)
        ledger.add(
            removal.name, DistanceBounded(distance, norm, terms.certify_l2, samples, tuple(sorted(reported)))
        )


def _gather_sum(removal: Removal, head: ArrayRecord, questions: Mapping[int, GradientQuestion]) -> None:
    """The same of which only the sum is seen; what is kept are the masked gradients, and what takes the masks off their sum."""
    ledger, terms = removal.ledger, removal.terms
    assert terms.certify_l2 is not None
    name = name_of_sum(removal.name, terms.rounds)
    agreed, problems = agree(removal, name, [c for c in questions if c in removal.nodes])
    if agreed is None:
        raise SumError(
            f"too few can hide their gradients among each other's: {problems or sorted(questions)}"
        )
    heard = next((e for e in ledger.events(removal.name, SumHeard) if e.number == name.number), None)
    if heard is None:
        asked = {
            c: replace(questions[c], group=agreed.members, number=name.number)
            for c in agreed.members
            if c in removal.nodes
        }
        sent: dict[int, GradientHidden] = {}
        for client, answer in removal.ask(asked, GradientAnswer.decode).items():
            problem = _wrong(removal, client, answer, asked[client], len(flat(head)))
            if problem is not None or isinstance(answer, Refusal):
                problems[client] = str(problem)
                continue
            assert answer.masked is not None
            receipt = None if answer.receipt is None else answer.receipt.plain()
            content = answer.masked.astype("<u8").tobytes()
            sent[client] = GradientHidden(client, int(answer.samples), content, receipt)
        if not sent:
            raise SumError(f"nobody sent a gradient: {problems}")
        heard = keep(removal, agreed, {c: np.frombuffer(e.masked, "<u8") for c, e in sent.items()})
        with ledger.transaction():
            for client, problem in sorted(problems.items()):
                ledger.add_fault(removal.name, client, PHASE, problem)
            for event in sent.values():
                ledger.add(removal.name, event)
            ledger.add(removal.name, heard)
    total = open_sum(removal, agreed, heard, MODEL_BITS, show=True)
    parts = ledger.by_client(removal.name, GradientHidden)
    samples = sum(parts[client].samples for client in heard.clients)
    norm, distance = bound_on_summed(head, total, heard.clients, samples, terms.certify_l2)
    ledger.add(
        removal.name, DistanceBounded(distance, norm, terms.certify_l2, samples, tuple(sorted(heard.clients)))
    )


def _wrong(
    removal: Removal, client: int, answer: GradientAnswer | Refusal, asked: GradientQuestion, size: int
) -> str | None:
    """Say what is wrong with a gradient, if anything that can be seen is."""
    if isinstance(answer, Refusal):
        return answer.problem
    vector = answer.masked if asked.group else answer.gradient
    if vector is None or vector.shape != (size,):
        return f"sent no gradient of {size} numbers"
    if not asked.group and not (np.isfinite(vector).all() and within_reach(vector)):
        return f"sent no gradient of {size} numbers"
    if not isinstance(answer.samples, int) or abs(answer.samples - asked.samples) > 1 or answer.samples < 1:
        return f"sent the gradient of {answer.samples:g} samples, agreed were {asked.samples}"
    facts = {
        "request": removal.name,
        "model": digest(asked.model),
        "gradient": fingerprint_of(vector),
        "samples": int(answer.samples),
    }
    return removal.refused_receipt(client, answer.receipt, GRADIENT, **facts)
