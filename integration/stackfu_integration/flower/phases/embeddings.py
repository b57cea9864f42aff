"""Clients send mean embeddings; the game is founded on what is sound of them."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord

from stackfu.errors import StackfuError
from stackfu_integration.flower.events import BandwidthAgreed, EmbeddingReceived, GameFounded, RoundFinished
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.phases.session import NO_NODE, Removal
from stackfu_integration.flower.privacy import gaussian_deviation, largest_norm
from stackfu_integration.flower.terms import Terms
from stackfu_integration.flower.wire import (
    EmbeddingAnswer,
    EmbeddingQuestion,
    Refusal,
    SpreadAnswer,
    SpreadQuestion,
)

__all__ = ["PHASE", "run"]

PHASE = "embeddings"


def run(removal: Removal) -> None:
    """Ask whoever has not sent an embedding yet, then fix bandwidth, costs and budget."""
    terms, request = removal.terms, removal.request
    model = removal.models.get(request.before)
    present = [client for client in range(removal.clients) if client not in request.gone]
    for client in present:
        if client not in removal.nodes:
            removal.leave_out(client, PHASE, NO_NODE)
    bandwidth = _bandwidth(removal, model, present)
    question = EmbeddingQuestion(
        model, removal.name, bandwidth, terms.features, terms.seed, terms.epsilon, terms.delta
    )
    done = {*removal.ledger.by_client(removal.name, EmbeddingReceived), *removal.excluded}
    asked = {client: question for client in present if client in removal.nodes and client not in done}
    answers, trained = removal.ask(asked, EmbeddingAnswer.decode), _samples_in_training(removal.ledger)
    with removal.ledger.transaction():
        for client, answer in answers.items():
            used = trained.get(client)
            checked = answer if isinstance(answer, Refusal) else _check(client, answer, terms, used)
            if isinstance(checked, Refusal):
                removal.leave_out(client, PHASE, checked.problem)
            else:
                removal.ledger.add(removal.name, checked)
    _found_game(removal, bandwidth)


def _bandwidth(removal: Removal, model: ArrayRecord, present: list[int]) -> float:
    """Return the bandwidth of the terms, or the median of the clients' own, weighted by size."""
    if removal.terms.bandwidth is not None:
        return removal.terms.bandwidth
    known = removal.ledger.last(removal.name, BandwidthAgreed)
    if known is not None:
        return known.bandwidth
    out = removal.excluded
    asked = {c: SpreadQuestion(model) for c in present if c in removal.nodes and c not in out}
    squares, sizes = [], []
    for client, answer in removal.ask(asked, SpreadAnswer.decode).items():
        if isinstance(answer, Refusal):
            removal.leave_out(client, PHASE, answer.problem)
            continue
        square, size = answer.squared, answer.size
        if not (np.isfinite(square) and square >= 0 and isinstance(size, int) and size >= 1):
            said = f"says that the median squared distance of {size} samples is {square}"
            removal.leave_out(client, PHASE, said)
        elif square > 0:
            squares.append(square)
            sizes.append(min(size, removal.terms.most_samples))
    if not squares:
        raise StackfuError("no client could say how far apart its samples are")
    order = np.argsort(squares, kind="stable")
    middle = np.searchsorted(np.cumsum(np.array(sizes)[order]), sum(sizes) / 2)
    value = float(np.sqrt(np.array(squares)[order][middle]))
    removal.ledger.add(removal.name, BandwidthAgreed(value))
    return value


def _check(
    client: int, answer: EmbeddingAnswer, terms: Terms, used: int | None
) -> EmbeddingReceived | Refusal:
    """Take an embedding of a client that trained with ``used`` samples, or say what is wrong with it."""
    mean, size, deviation = answer.mean, answer.size, answer.deviation
    if not isinstance(size, int) or not 1 <= size <= terms.most_samples:
        return Refusal(f"claims {size} samples")
    if used is not None and size != used:
        return Refusal(f"claims {size} samples after training with {used}")
    if mean.shape != (terms.features,):
        return Refusal(f"sent an embedding of shape {list(mean.shape)}, not [{terms.features}]")
    if not np.isfinite(mean).all():
        return Refusal("sent an embedding with numbers that are not finite")
    expected = 0.0
    if terms.epsilon is not None:
        expected = gaussian_deviation(terms.epsilon, terms.delta, size)
    if not np.isclose(deviation, expected, rtol=1e-6, atol=0.0):
        return Refusal(f"added noise of deviation {deviation:.6g}, {expected:.6g} was asked for")
    norm = float(np.linalg.norm(mean))
    if norm > largest_norm(expected, terms.features):
        return Refusal(f"sent an embedding of norm {norm:.6g}; a mean of unit vectors has at most 1")
    return EmbeddingReceived(client, size, mean, deviation)


def _samples_in_training(ledger: PaymentLedger) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for finished in ledger.events(RUN, RoundFinished):
        sizes.update(finished.samples or {})
    return sizes


def _found_game(removal: Removal, bandwidth: float) -> None:
    """Fix what does not change any more, whoever leaves: costs, and the budget."""
    terms = removal.terms
    received = removal.ledger.by_client(removal.name, EmbeddingReceived)
    total = sum(event.size for event in received.values())
    costs = {client: terms.cost_scale * event.size / total for client, event in received.items()}
    board = removal.board(costs)
    full = float(board.game.full_participation_price)
    budget = terms.budget_share * full if terms.budget is None else terms.budget
    removal.ledger.add(removal.name, GameFounded(budget, bandwidth, costs, full, board.clipped))
