"""Rounds of unlearning of which the server sees the sum of the updates and no single one.

    w <- sum_k s_k w_k / sum_k s_k,      sum_k s_k w_k by :mod:`~stackfu_integration.flower.secure_sum`

A client that drops out in a round is missing from its sum, and the round counts without it. Single updates are hidden and not
checked: all delivering clients are paid, as the audit states. A member that sends a wrong vector spoils the sum, its sender cannot
be identified, and the request ends there.

Where only some arrays are trained the sum is theirs. For methods of gradients it is a sum of gradients, from which the server takes
a step (:mod:`.convex_rounds`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from stackfu_integration.arrays import FloatArray, UIntArray
from stackfu_integration.flower.convex import CURVATURE, flat, head_of, with_head
from stackfu_integration.flower.events import (
    ClientCommitted,
    RoundFinished,
    SumHeard,
    WorkDelivered,
    WorkJudged,
)
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases.convex_rounds import Descent
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
    removal: Removal,
    start: ArrayRecord,
    commitments: Mapping[int, ClientCommitted],
    descent: Descent | None = None,
) -> None:
    """Unlearn from the round after the last one in the ledger on; ``descent`` makes a step of a sum of gradients."""
    missed = dict.fromkeys(commitments, 0)
    for number in range(rounds_done(removal.ledger, removal.name) + 1, removal.terms.rounds + 1):
        if descent is not None and descent.enough():
            return
        last = last_model(removal.ledger, removal.name)
        model = start if last is None else removal.models.get(last)
        try:
            delivered = _round(removal, number, model, commitments, missed, descent)
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
    descent: Descent | None,
) -> tuple[int, ...]:
    """Do one round and return who delivered."""
    ledger, name = removal.ledger, SumName(removal.name, "round", number)
    there = [c for c in commitments if c in removal.nodes and missed[c] < removal.patience]
    agreed, problems = agree(removal, name, there)
    if agreed is None:
        raise SumError(f"too few can hide their updates among each other's: {problems or there}")
    heard = next((e for e in ledger.events(removal.name, SumHeard) if e.number == number), None)
    if heard is None:
        heard = _hear(removal, agreed, model, commitments, problems, descent)
    total = open_sum(removal, agreed, heard, MODEL_BITS)
    samples = {w.client: w.samples for w in ledger.events(removal.name, WorkDelivered) if w.number == number}
    mean = total / sum(samples[c] for c in heard.clients)
    if descent is not None:
        following = descent.step_from(mean, heard.clients, model)
    elif removal.terms.head:
        following = with_head(model, removal.terms.head, mean)
    else:
        following = _model_of(mean, model)
    stored = removal.models.put(following)
    with ledger.transaction():
        if descent is not None:
            descent.write()
        for client in heard.clients:
            ledger.add(removal.name, WorkJudged(client, number, True, measured={IN_A_SUM: 1.0}))
        ledger.add(removal.name, RoundFinished(number, stored))
    forget_models(ledger, removal.models)
    return heard.clients


def _hear(
    removal: Removal,
    agreed: Agreed,
    model: ArrayRecord,
    commitments: Mapping[int, ClientCommitted],
    problems: dict[int, str],
    descent: Descent | None,
) -> SumHeard:
    """Let the members train, and write down who delivered, with the sum of what they sent."""
    number, ledger = agreed.name.number, removal.ledger
    terms, shown = removal.terms, model if descent is None else descent.shown(model)
    told = {"only": ",".join(terms.head)} if terms.head else {}
    told = told if descent is None else descent.told
    summed = head_of(shown, [*terms.head, CURVATURE]) if terms.head else shown
    length = len(flat(summed))
    orders = {
        c: _Order(shown, commitments[c], removal, agreed, told) for c in agreed.members if c in removal.nodes
    }
    sent: dict[int, UIntArray] = {}
    work: dict[int, WorkDelivered] = {}
    for client, answer in removal.ask(orders, _masked_answer).items():
        problem = answer.problem if isinstance(answer, Refusal) else None
        if isinstance(answer, TrainingAnswer):
            problem = _wrong(removal, client, number, answer, commitments[client], length, shown)
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
    removal: Removal,
    client: int,
    number: int,
    answer: TrainingAnswer,
    agreed: ClientCommitted,
    length: int,
    sent: ArrayRecord,
) -> str | None:
    """Say what is wrong with an update that cannot be seen, if anything."""
    masked = read_masked(answer.model)
    if len(masked) != length or list(answer.model) != ["masked"]:
        return f"sent {len(masked)} numbers for a model of {length}"
    if answer.number != number:
        return f"answered round {answer.number} instead of round {number}"
    if not isinstance(answer.samples, int) or abs(answer.samples - agreed.samples) > 1 or answer.samples < 1:
        return f"used {answer.samples} samples, {agreed.samples} were agreed"
    facts = {
        "number": number,
        "model": digest(answer.model),
        "samples": answer.samples,
        "start": digest(sent),
    }
    return removal.refused_receipt(client, answer.receipt, WORK, request=removal.name, **facts)


class _Order:
    """Train, and send the outcome behind masks."""

    message_type = SUMMED

    def __init__(
        self,
        model: ArrayRecord,
        agreed: ClientCommitted,
        removal: Removal,
        among: Agreed,
        told: Mapping[str, str],
    ) -> None:
        settings = config(request=removal.name, seed=removal.terms.seed, samples=agreed.samples, **told)
        settings = ConfigRecord({**settings, "group": group_text(among.members)})
        self._order = TrainingOrder(model, agreed.share, among.name.number, settings)

    def encode(self) -> RecordDict:
        """Return the records of the order."""
        return self._order.encode()


def _model_of(mean: FloatArray, like: ArrayRecord) -> ArrayRecord:
    """Return the mean as a model of the same arrays."""
    out: OrderedDict[str, Array] = OrderedDict()
    place = 0
    for name, array in like.items():
        values = array.numpy()
        part = mean[place : place + values.size].reshape(values.shape)
        place += values.size
        out[name] = Array(of_type(part, values.dtype))
    return ArrayRecord(out)
