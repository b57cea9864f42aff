"""Clients send mean embeddings; the game is founded on what is sound of them.

Of removed clients only the sum is needed, and where several leave and can hide their part of it, only the sum is seen.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord

from stackfu_integration.flower.events import (
    BandwidthAgreed,
    EmbeddingReceived,
    GameFounded,
    GroupSumReceived,
    RoundFinished,
    SumHeard,
    TermsAmended,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.phases.session import NO_NODE, NO_SUM, Removal, StuckError
from stackfu_integration.flower.phases.sums import Agreed, agree, keep, open_sum
from stackfu_integration.flower.privacy import gaussian_deviation, largest_honest_norm
from stackfu_integration.flower.receipts import EMBEDDING, fingerprint_of
from stackfu_integration.flower.secure_sum import EMBEDDING_BITS, SumError, SumName
from stackfu_integration.flower.wire import (
    EmbeddingAnswer,
    EmbeddingQuestion,
    Refusal,
    SpreadAnswer,
    SpreadQuestion,
)

__all__ = ["PHASE", "found_game", "run"]

PHASE = "embeddings"


def run(removal: Removal) -> None:
    """Ask the clients without an embedding for one, then fix bandwidth, costs and budget."""
    request = removal.request
    model = removal.models.get(request.before)
    present = [client for client in range(removal.clients) if client not in request.gone]
    for client in present:
        if client not in removal.nodes:
            removal.leave_out(client, PHASE, NO_NODE)
    bandwidth = _bandwidth(removal, model, present)
    _hear_group(removal, model, bandwidth)
    done = {*removal.ledger.by_client(removal.name, EmbeddingReceived), *removal.excluded}
    question = _question(removal, model, bandwidth)
    asked = {client: question for client in present if client in removal.nodes and client not in done}
    answers = removal.ask(asked, EmbeddingAnswer.decode)
    checks = {
        client: answer if isinstance(answer, Refusal) else _check(removal, client, answer)
        for client, answer in answers.items()
    }
    with removal.ledger.transaction():
        for client, checked in _without_oversized(removal, checks).items():
            if isinstance(checked, Refusal):
                removal.leave_out(client, PHASE, checked.problem)
            else:
                removal.ledger.add(removal.name, checked)
    found_game(removal, bandwidth)


def _question(removal: Removal, model: ArrayRecord, bandwidth: float) -> EmbeddingQuestion:
    terms = removal.terms
    return EmbeddingQuestion(
        model,
        removal.name,
        bandwidth,
        terms.features,
        terms.seed,
        terms.epsilon,
        terms.delta,
        erase=terms.erase,
    )


def _bandwidth(removal: Removal, model: ArrayRecord, present: list[int]) -> float:
    """Return the bandwidth of the terms, or the median of the clients' own, weighted by size up to the median size."""
    terms = removal.terms
    if terms.bandwidth is not None:
        return terms.bandwidth
    known = removal.ledger.last(removal.name, BandwidthAgreed)
    if known is not None:
        return known.bandwidth
    out = removal.excluded
    question = SpreadQuestion(model, removal.name, None if terms.epsilon is None else terms.bandwidth_epsilon)
    asked = {c: question for c in present if c in removal.nodes and c not in out}
    squares, sizes = [], []
    for client, answer in removal.ask(asked, SpreadAnswer.decode).items():
        if isinstance(answer, Refusal):
            removal.leave_out(client, PHASE, answer.problem)
            continue
        square, size, used = answer.squared, answer.size, _samples_in_training(removal.ledger, client)
        if used - {size}:
            removal.leave_out(client, PHASE, _other_size(size, used))
        elif not (np.isfinite(square) and square >= 0 and isinstance(size, int) and size >= 1):
            said = f"says that the median squared distance of {size} samples is {square}"
            removal.leave_out(client, PHASE, said)
        elif square > 0:
            squares.append(square)
            # an unknown size gives no additional weight
            sizes.append(min(int(size), terms.most_samples) if used else 1)
    if not squares:
        raise StuckError("no client could say how far apart its samples are")
    weights = np.minimum(
        sizes, np.median(sizes)
    )  # whatever one client of three claims, it is not half of all
    order = np.argsort(squares, kind="stable")
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    value = float(np.sqrt(np.array(squares)[order][middle]))
    removal.ledger.add(removal.name, BandwidthAgreed(value))
    return value


# ---- those who leave


def _hear_group(removal: Removal, model: ArrayRecord, bandwidth: float) -> None:
    """Ask removed clients for the sum of their embeddings; it is that of those who deliver something sound."""
    ledger = removal.ledger
    if not removal.terms.secure_sum or ledger.has(removal.name, GroupSumReceived):
        return
    heard = ledger.last(removal.name, SumHeard)
    if heard is not None and set(heard.clients) <= removal.excluded:
        return  # it could not be had
    done = {*ledger.by_client(removal.name, EmbeddingReceived), *removal.excluded}
    members = [c for c in removal.request.removed if c in removal.nodes and c not in done]
    if len(members) < 2 and heard is None:
        return  # one client's sum is its embedding: it is asked like the others
    agreed, problems = agree(removal, SumName(removal.name, "embeddings"), members)
    for client, problem in problems.items():
        removal.leave_out(client, PHASE, problem)
    if agreed is None:
        return
    if heard is None:
        sent = _hear_parts(removal, model, bandwidth, agreed)
        if len(sent) < agreed.threshold:
            # nothing of them was seen, and a client takes part in a sum once
            for client in agreed.members:
                removal.leave_out(client, PHASE, NO_SUM)
            return
        heard = keep(removal, agreed, {c: a.masked for c, a in sent.items() if a.masked is not None})
        with ledger.transaction():
            for client, answer in sent.items():
                receipt = None if answer.receipt is None else answer.receipt.plain()
                received = EmbeddingReceived(client, int(answer.size), np.empty(0), answer.deviation, receipt)
                ledger.add(removal.name, received)
            ledger.add(removal.name, heard)
    _take_sum(removal, agreed, heard)


def _hear_parts(
    removal: Removal, model: ArrayRecord, bandwidth: float, agreed: Agreed
) -> dict[int, EmbeddingAnswer]:
    """Return the masked parts that pass the visible checks; leave out the senders of others."""
    question = replace(_question(removal, model, bandwidth), group=agreed.members)
    asked = {client: question for client in agreed.members if client in removal.nodes}
    sent: dict[int, EmbeddingAnswer] = {}
    for client, answer in removal.ask(asked, EmbeddingAnswer.decode).items():
        problem = answer.problem if isinstance(answer, Refusal) else _check_part(removal, client, answer)
        if problem is not None:
            removal.leave_out(client, PHASE, problem)
        elif isinstance(answer, EmbeddingAnswer):
            sent[client] = answer
    return sent


def _check_part(removal: Removal, client: int, answer: EmbeddingAnswer) -> str | None:
    """Say what is wrong with a masked part of a sum, as far as it can be seen."""
    if answer.masked is None or answer.masked.shape != (removal.terms.features,):
        return "sent no masked embedding of the right length"
    return _check_claims(removal, client, answer, fingerprint_of(answer.masked))


def _take_sum(removal: Removal, agreed: Agreed, heard: SumHeard) -> None:
    """Record the sum; refuse one that cannot be a sum of embeddings; its wrong part cannot be attributed."""
    parts = removal.ledger.by_client(removal.name, EmbeddingReceived)
    size = sum(parts[client].size for client in heard.clients)
    deviation = float(np.sqrt(sum((parts[c].size * parts[c].deviation) ** 2 for c in heard.clients)))
    try:
        total = open_sum(removal, agreed, heard, EMBEDDING_BITS)
    except SumError as error:
        for client in heard.clients:
            removal.leave_out(client, PHASE, f"took part in a sum that cannot be had: {error}")
        return
    if np.linalg.norm(total / size) > largest_honest_norm(deviation / size, len(total)):
        for client in heard.clients:
            removal.leave_out(client, PHASE, "took part in a sum that no embeddings can have")
        return
    removal.ledger.add(removal.name, GroupSumReceived(heard.clients, size, total, deviation))


# ---- checks


def _check_claims(removal: Removal, client: int, answer: EmbeddingAnswer, sent: str) -> str | None:
    """Say what is wrong with the size, the noise and the signature of an embedding."""
    terms, size, deviation = removal.terms, answer.size, answer.deviation
    used = _samples_in_training(removal.ledger, client)
    if not isinstance(size, int) or not 1 <= size <= terms.most_samples:
        return f"claims {size} samples"
    if used - {size}:
        return _other_size(size, used)
    unexpected = terms.refused_size(client, removal.naming, size, None)
    if unexpected is not None:
        return unexpected
    expected = 0.0 if terms.epsilon is None else gaussian_deviation(terms.epsilon, terms.delta, size)
    if not np.isclose(deviation, expected, rtol=1e-6, atol=0.0):
        return f"added noise of deviation {deviation:.6g}, {expected:.6g} was asked for"
    facts = {"request": removal.name, "vector": sent, "size": size, "deviation": deviation}
    return removal.refused_receipt(client, answer.receipt, EMBEDDING, **facts)


def _without_oversized(
    removal: Removal, checks: dict[int, EmbeddingReceived | Refusal]
) -> dict[int, EmbeddingReceived | Refusal]:
    """Refuse the embeddings of clients that claim too many samples, the largest first, until the terms allow all others."""
    found = dict(checks)
    while True:
        sizes = {c: answer.size for c, answer in found.items() if isinstance(answer, EmbeddingReceived)}
        median = float(np.median(list(sizes.values()))) if sizes else None
        for client in sorted(sizes, key=lambda c: -sizes[c]):
            problem = removal.terms.refused_size(client, removal.naming, sizes[client], median)
            if problem is not None:
                found[client] = Refusal(problem)
                break
        else:
            return found


def _check(removal: Removal, client: int, answer: EmbeddingAnswer) -> EmbeddingReceived | Refusal:
    """Take an embedding, or say what is wrong with it."""
    terms, mean = removal.terms, answer.mean
    problem = _check_claims(removal, client, answer, fingerprint_of(mean))
    if problem is not None:
        return Refusal(problem)
    if mean.shape != (terms.features,):
        return Refusal(f"sent an embedding of shape {list(mean.shape)}, not [{terms.features}]")
    if not np.isfinite(mean).all():
        return Refusal("sent an embedding with numbers that are not finite")
    norm = float(np.linalg.norm(mean))
    if norm > largest_honest_norm(answer.deviation, terms.features):
        return Refusal(f"sent an embedding of norm {norm:.6g}; a mean of unit vectors has at most 1")
    receipt = None if answer.receipt is None else answer.receipt.plain()
    return EmbeddingReceived(client, int(answer.size), mean, answer.deviation, receipt)


def _other_size(size: float | int, used: set[int]) -> str:
    before = ", ".join(str(n) for n in sorted(used - {size}))
    return f"claims {size} samples after training with {before}"


def _samples_in_training(ledger: PaymentLedger, client: int) -> set[int]:
    """Return all numbers of samples that a client ever trained with: an honest one has one."""
    rounds = (row.detail.get("samples", {}) for row in ledger.rows(RUN, RoundFinished.kind))
    return {int(samples[str(client)]) for samples in rounds if str(client) in samples}


def found_game(removal: Removal, bandwidth: float) -> None:
    """Fix costs and budget, which later departures do not change."""
    terms, ledger = removal.terms, removal.ledger
    received = ledger.by_client(removal.name, EmbeddingReceived)
    total = sum(event.size for event in received.values())
    costs = {
        client: terms.cost_of(client, removal.naming, event.size / total)
        for client, event in received.items()
    }
    board = removal.board(costs)
    full = float(board.game.full_participation_price)
    budget = terms.budget_share * full if terms.budget is None else terms.budget
    amended = ledger.last(removal.name, TermsAmended)
    number = {} if amended is None else {"amendment": amended.number}
    ledger.add(removal.name, GameFounded(budget, bandwidth, costs, full, board.clipped, **number))
