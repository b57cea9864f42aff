"""Clients send mean embeddings; the game is founded on what is sound of them.

Of removed clients only the sum is needed, and where several leave and can hide their part of it, only the sum is seen.
"""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord

from stackfu_integration.flower.events import (
    BandwidthAgreed,
    EmbeddingReceived,
    GameFounded,
    GroupSumReceived,
    RoundFinished,
    TermsAmended,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.phases.session import NO_NODE, Removal, StuckError
from stackfu_integration.flower.privacy import gaussian_deviation, largest_norm
from stackfu_integration.flower.receipts import EMBEDDING, fingerprint_of
from stackfu_integration.flower.secure_sum import unmasked_sum
from stackfu_integration.flower.wire import (
    EmbeddingAnswer,
    EmbeddingQuestion,
    MaskAnswer,
    MaskQuestion,
    Refusal,
    SpreadAnswer,
    SpreadQuestion,
)

__all__ = ["PHASE", "found_game", "run"]

PHASE = "embeddings"


def run(removal: Removal) -> None:
    """Ask whoever has not sent an embedding yet, then fix bandwidth, costs and budget."""
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
    with removal.ledger.transaction():
        for client, answer in answers.items():
            checked = answer if isinstance(answer, Refusal) else _check(removal, client, answer)
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
    """Return the bandwidth of the terms, or the median of the clients' own, weighted by size."""
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
        square, size = answer.squared, answer.size
        if not (np.isfinite(square) and square >= 0 and isinstance(size, int) and size >= 1):
            said = f"says that the median squared distance of {size} samples is {square}"
            removal.leave_out(client, PHASE, said)
        elif square > 0:
            squares.append(square)
            sizes.append(min(size, terms.most_samples))
    if not squares:
        raise StuckError("no client could say how far apart its samples are")
    order = np.argsort(squares, kind="stable")
    middle = np.searchsorted(np.cumsum(np.array(sizes)[order]), sum(sizes) / 2)
    value = float(np.sqrt(np.array(squares)[order][middle]))
    removal.ledger.add(removal.name, BandwidthAgreed(value))
    return value


# ---- those who leave


def _hear_group(removal: Removal, model: ArrayRecord, bandwidth: float) -> None:
    """Ask removed clients for the sum of their embeddings; whoever spoils it is left out, and the rest asked again."""
    ledger, terms = removal.ledger, removal.terms
    if not terms.secure_sum or ledger.has(removal.name, GroupSumReceived):
        return
    attempt = 0
    while True:
        done = {*ledger.by_client(removal.name, EmbeddingReceived), *removal.excluded}
        members = [c for c in removal.request.removed if c in removal.nodes and c not in done]
        if len(members) < 2:
            return  # one client's sum is its embedding: it is asked like the others
        keys: dict[int, str] = {}
        mask = MaskQuestion(removal.name, attempt)
        for client, told in removal.ask(dict.fromkeys(members, mask), MaskAnswer.decode).items():
            if isinstance(told, Refusal):
                removal.leave_out(client, PHASE, told.problem)
            elif told.key:
                keys[client] = told.key
        if len(keys) < 2:
            return
        base = vars(_question(removal, model, bandwidth))
        question = EmbeddingQuestion(**{**base, "group": keys, "attempt": attempt})
        sent: dict[int, EmbeddingAnswer] = {}
        spoilt = False
        for client, answer in removal.ask(dict.fromkeys(keys, question), EmbeddingAnswer.decode).items():
            problem = answer.problem if isinstance(answer, Refusal) else _check_part(removal, client, answer)
            if problem is not None:
                removal.leave_out(client, PHASE, problem)
                spoilt = True
            else:
                assert isinstance(answer, EmbeddingAnswer)
                sent[client] = answer
        if not spoilt and _take_sum(removal, sent):
            return
        attempt += 1


def _check_part(removal: Removal, client: int, answer: EmbeddingAnswer) -> str | None:
    """Say what is wrong with a masked part of a sum, as far as it can be seen."""
    if answer.masked is None or answer.masked.shape != (removal.terms.features,):
        return "sent no masked embedding of the right length"
    return _check_claims(removal, client, answer, fingerprint_of(answer.masked))


def _take_sum(removal: Removal, sent: dict[int, EmbeddingAnswer]) -> bool:
    """Write the sum down; one that cannot be a sum of embeddings is refused, and nobody can tell whose fault it is."""
    total = unmasked_sum(answer.masked for answer in sent.values() if answer.masked is not None)
    size = sum(int(answer.size) for answer in sent.values())
    deviation = float(np.sqrt(sum((int(a.size) * a.deviation) ** 2 for a in sent.values())))
    mean = total / size
    if np.linalg.norm(mean) > largest_norm(deviation / size, len(total)):
        for client in sent:
            removal.leave_out(client, PHASE, "took part in a sum that no embeddings can have")
        return False
    with removal.ledger.transaction():
        for client, answer in sent.items():
            receipt = None if answer.receipt is None else answer.receipt.plain()
            received = EmbeddingReceived(client, int(answer.size), np.empty(0), answer.deviation, receipt)
            removal.ledger.add(removal.name, received)
        removal.ledger.add(removal.name, GroupSumReceived(tuple(sorted(sent)), size, total, deviation))
    return True


# ---- checks


def _check_claims(removal: Removal, client: int, answer: EmbeddingAnswer, sent: str) -> str | None:
    """Say what is wrong with the size, the noise and the signature of an embedding."""
    terms, size, deviation = removal.terms, answer.size, answer.deviation
    used = _samples_in_training(removal.ledger, client)
    if not isinstance(size, int) or not 1 <= size <= terms.most_samples:
        return f"claims {size} samples"
    if used - {size}:
        before = ", ".join(str(n) for n in sorted(used - {size}))
        return f"claims {size} samples after training with {before}"
    expected = 0.0 if terms.epsilon is None else gaussian_deviation(terms.epsilon, terms.delta, size)
    if not np.isclose(deviation, expected, rtol=1e-6, atol=0.0):
        return f"added noise of deviation {deviation:.6g}, {expected:.6g} was asked for"
    facts = {"request": removal.name, "vector": sent, "size": size, "deviation": deviation}
    return removal.refused_receipt(client, answer.receipt, EMBEDDING, **facts)


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
    if norm > largest_norm(answer.deviation, terms.features):
        return Refusal(f"sent an embedding of norm {norm:.6g}; a mean of unit vectors has at most 1")
    receipt = None if answer.receipt is None else answer.receipt.plain()
    return EmbeddingReceived(client, int(answer.size), mean, answer.deviation, receipt)


def _samples_in_training(ledger: PaymentLedger, client: int) -> set[int]:
    """All numbers of samples that a client ever trained with: an honest one has one."""
    rounds = (row.detail.get("samples", {}) for row in ledger.rows(RUN, RoundFinished.kind))
    return {int(samples[str(client)]) for samples in rounds if str(client) in samples}


def found_game(removal: Removal, bandwidth: float) -> None:
    """Fix what does not change any more, whoever leaves: costs, and the budget."""
    terms, ledger = removal.terms, removal.ledger
    received = ledger.by_client(removal.name, EmbeddingReceived)
    total = sum(event.size for event in received.values())
    costs = {
        client: terms.cost_of(client, removal.name_of(client), event.size / total)
        for client, event in received.items()
    }
    board = removal.board(costs)
    full = float(board.game.full_participation_price)
    budget = terms.budget_share * full if terms.budget is None else terms.budget
    amended = ledger.last(removal.name, TermsAmended)
    number = {} if amended is None else {"amendment": amended.number}
    ledger.add(removal.name, GameFounded(budget, bandwidth, costs, full, board.clipped, **number))
