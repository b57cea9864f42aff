"""How far the unlearned model can be from one that never met the removed data.

For a softmax head with penalty, ``F(w) = 1/n sum_k f_k(w) + l2/2 |w|^2`` over the n samples that the participants worked with
is strongly convex, so

    |w - w*| <= |grad F(w)| / l2 = |1/n sum_k grad f_k(w) + l2 w| / l2

for any w, wherever it came from; w* is a function of the participants' samples alone. Each participant sends ``grad f_k(w)`` of the
model that the ledger names, signed; the sum, its norm and the bound are the ledger's, and anybody can work them out again.
That the gradients are those of the data they claim is the clients' word. Only a head, one matrix and one bias, is convex:
for any other model there is no bound, unless all layers below the head are the first ones, as :mod:`..convex` leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from stackfu_integration.flower.convex import METHOD, head_of
from stackfu_integration.flower.events import (
    ClientCommitted,
    DistanceBounded,
    GradientReported,
    ModelUnlearned,
    SlopeSummed,
    WorkDelivered,
)
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases.session import Removal
from stackfu_integration.flower.receipts import GRADIENT, fingerprint_of
from stackfu_integration.flower.robust import within_reach
from stackfu_integration.flower.wire import GradientAnswer, GradientQuestion, Refusal

__all__ = ["PHASE", "bound_on_distance", "gather", "is_head"]

PHASE = "evidence"


def is_head(model: ArrayRecord) -> bool:
    """Whether a model is a matrix and a vector with as many entries as it has rows."""
    shapes = sorted((array.numpy().shape for array in model.values()), key=len)
    return len(shapes) == 2 and len(shapes[0]) == 1 and len(shapes[1]) == 2 and shapes[0][0] == shapes[1][0]


def bound_on_distance(
    model: ArrayRecord, gradients: Mapping[int, NDArray[np.float64]], samples: int, l2: float
) -> tuple[float, float]:
    """Return ``|grad F|`` and ``|grad F| / l2``; summed in ascending client number."""
    weights = np.concatenate([array.numpy().astype(np.float64).ravel() for array in model.values()])
    total = np.zeros(len(weights))
    for client in sorted(gradients):
        total = total + gradients[client]
    norm = float(np.linalg.norm(total / samples + l2 * weights))
    return norm, norm / l2


def gather(removal: Removal) -> None:
    """Ask the participants that have not reported yet, and write down the bound, once."""
    ledger, terms = removal.ledger, removal.terms
    if terms.certify_l2 is None or ledger.has(removal.name, DistanceBounded):
        return
    name = ledger.need(removal.name, ModelUnlearned).model
    model = removal.models.get(name)
    head = head_of(model, terms.head) if terms.unlearning == METHOD else model
    if not is_head(head):
        return  # the audit says that there is none
    worked = {work.client for work in ledger.events(removal.name, WorkDelivered)}
    summed = ledger.last(removal.name, SlopeSummed)
    if summed is not None:  # the head is the optimum of these, and of nobody whose work was refused
        worked = set(summed.clients)
    known = ledger.by_client(removal.name, GradientReported)
    size, only = sum(array.numpy().size for array in head.values()), terms.head if head is not model else ()
    questions = {
        client: GradientQuestion(model, removal.name, agreed.share, agreed.samples, terms.seed, only)
        for client, agreed in ledger.by_client(removal.name, ClientCommitted).items()
        if client in worked and client not in known and client in removal.nodes
    }
    for client, answer in removal.ask(questions, GradientAnswer.decode).items():
        problem = None
        if isinstance(answer, Refusal):
            problem = answer.problem
        elif (
            answer.gradient.shape != (size,)
            or not np.isfinite(answer.gradient).all()
            or not within_reach(answer.gradient)
        ):
            problem = f"sent no gradient of {size} numbers"
        elif not isinstance(answer.samples, int) or abs(answer.samples - questions[client].samples) > 1:
            problem = (
                f"sent the gradient of {answer.samples:g} samples, agreed were {questions[client].samples}"
            )
        else:
            facts = {
                "request": removal.name,
                "model": digest(model),
                "gradient": fingerprint_of(answer.gradient),
                "samples": int(answer.samples),
            }
            problem = removal.refused_receipt(client, answer.receipt, GRADIENT, **facts)
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
