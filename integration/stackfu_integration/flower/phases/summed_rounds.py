"""Rounds of unlearning of which the server sees the sum of the updates and no single one.

    w <- sum_k s_k w_k / sum_k s_k,      sum_k s_k w_k by :mod:`~stackfu_integration.flower.secure_sum`

Whoever drops out in a round is missing from its sum, and the round counts without it. What cannot be seen cannot be judged:
everybody who delivered is paid, and the audit says so. A member that sends something else than its vector spoils the sum, nobody
can tell whose fault it is, and the request ends there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from stackfu_integration.flower.events import (
    ClientCommitted,
    RoundFinished,
    SumHeard,
    WorkDelivered,
    WorkJudged,
)
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases.rounds import forget_models, last_model, rounds_done
from stackfu_integration.flower.phases.session import Removal, StuckError
from stackfu_integration.flower.phases.sums import Agreed, agree, keep, open_sum
from stackfu_integration.flower.receipts import WORK
from stackfu_integration.flower.robust import of_type
from stackfu_integration.flower.secure_sum import MODEL_BITS, SumError, SumName
from stackfu_integration.flower.wire import SUMMED, Refusal, TrainingAnswer, TrainingOrder
from stackfu_integration.flower.wire.records import config, read_masked
from stackfu_integration.flower.wire.sums import group_text

__all__ = ["IN_A_SUM", "run_summed_rounds"]

IN_A_SUM = "seen in a sum"  # what is measured of an update that is not seen by itself


def run_summed_rounds(
    removal: Removal, start: ArrayRecord, commitments: Mapping[int, ClientCommitted]
) -> None:
    """Unlearn from the round after the last one in the ledger on."""
    missed = dict.fromkeys(commitments, 0)
    for number in range(rounds_done(removal.ledger, removal.name) + 1, removal.terms.rounds + 1):
        last = last_model(removal.ledger, removal.name)
        model = start if last is None else removal.models.get(last)
        try:
            delivered = _round(removal, number, model, commitments, missed)
        except SumError as error:
            raise StuckError(f"round {number}: {error}") from error
        for client in commitments:
            missed[client] = 0 if client in delivered else missed[client] + 1


def _round(
    removal: Removal,
    number: int,
    model: ArrayRecord,
    commitments: Mapping[int, ClientCommitted],
    missed: Mapping[int, int],
) -> tuple[int, ...]:
    """Do one round and return who delivered."""
    ledger, name = removal.ledger, SumName(removal.name, "round", number)
    there = [c for c in commitments if c in removal.nodes and missed[c] < removal.patience]
    agreed, problems = agree(removal, name, there)
    if agreed is None:
        raise SumError(f"too few can hide their updates among each other's: {problems or there}")
    heard = next((e for e in ledger.events(removal.name, SumHeard) if e.number == number), None)
    if heard is None:
        heard = _hear(removal, agreed, model, commitments, problems)
    total = open_sum(removal, agreed, heard, MODEL_BITS)
    samples = {w.client: w.samples for w in ledger.events(removal.name, WorkDelivered) if w.number == number}
    stored = removal.models.put(_model_of(total / sum(samples[c] for c in heard.clients), model))
    with ledger.transaction():
        for client in heard.clients:
            ledger.add(removal.name, WorkJudged(client, number, True, measured={IN_A_SUM: 1.0}))
        ledger.add(removal.name, RoundFinished(number, stored))
    forget_models(removal)
    return heard.clients


def _hear(
    removal: Removal,
    agreed: Agreed,
    model: ArrayRecord,
    commitments: Mapping[int, ClientCommitted],
    problems: dict[int, str],
) -> SumHeard:
    """Let the members train, and write down who delivered, with the sum of what they sent."""
    number, ledger = agreed.name.number, removal.ledger
    length = sum(array.numpy().size for array in model.values())
    orders = {c: _Order(model, commitments[c], removal, agreed) for c in agreed.members if c in removal.nodes}
    sent: dict[int, NDArray[np.uint64]] = {}
    work: dict[int, WorkDelivered] = {}
    for client, answer in removal.ask(orders, _masked_answer).items():
        problem = answer.problem if isinstance(answer, Refusal) else None
        if isinstance(answer, TrainingAnswer):
            problem = _wrong(removal, client, number, answer, commitments[client], length)
            if problem is None:
                sent[client] = read_masked(answer.model)
                receipt = None if answer.receipt is None else answer.receipt.plain()
                work[client] = WorkDelivered(
                    client, number, int(answer.samples), digest(answer.model), receipt
                )
        if problem is not None:
            problems[client] = problem
    absent = {c: "has no node" for c in commitments if c not in removal.nodes}
    if not sent:
        raise SumError("nobody delivered")
    heard = keep(removal, agreed, sent)
    with ledger.transaction():
        for client, problem in sorted({**absent, **problems}.items()):
            ledger.add_fault(removal.name, client, f"unlearning {number}", problem)
        for delivered in work.values():
            ledger.add(removal.name, delivered)
        ledger.add(removal.name, heard)
    return heard


def _masked_answer(content: RecordDict) -> TrainingAnswer:
    """Read an update behind masks; one that is none is refused."""
    answer = TrainingAnswer.decode(content)
    read_masked(answer.model)
    return answer


def _wrong(
    removal: Removal, client: int, number: int, answer: TrainingAnswer, agreed: ClientCommitted, length: int
) -> str | None:
    """Say what is wrong with an update that cannot be seen, if anything."""
    masked = read_masked(answer.model)
    if len(masked) != length or list(answer.model) != ["masked"]:
        return f"sent {len(masked)} numbers for a model of {length}"
    if answer.number != number:
        return f"answered round {answer.number} instead of round {number}"
    if not isinstance(answer.samples, int) or abs(answer.samples - agreed.samples) > 1 or answer.samples < 1:
        return f"used {answer.samples} samples, {agreed.samples} were agreed"
    facts = {"number": number, "model": digest(answer.model), "samples": answer.samples}
    return removal.refused_receipt(client, answer.receipt, WORK, request=removal.name, **facts)


class _Order:
    """Train, and send the outcome behind masks."""

    message_type = SUMMED

    def __init__(self, model: ArrayRecord, agreed: ClientCommitted, removal: Removal, among: Agreed) -> None:
        settings = config(request=removal.name, seed=removal.terms.seed, samples=agreed.samples)
        settings = ConfigRecord({**settings, "group": group_text(among.members)})
        self._order = TrainingOrder(model, agreed.share, among.name.number, settings)

    def encode(self) -> RecordDict:
        """The records of the order."""
        return self._order.encode()


def _model_of(mean: NDArray[np.float64], like: ArrayRecord) -> ArrayRecord:
    """The mean as a model of the same arrays."""
    out: OrderedDict[str, Array] = OrderedDict()
    place = 0
    for name, array in like.items():
        values = array.numpy()
        part = mean[place : place + values.size].reshape(values.shape)
        place += values.size
        out[name] = Array(of_type(part, values.dtype))
    return ArrayRecord(out)
