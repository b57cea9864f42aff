"""A Flower strategy: federated averaging over named clients, each with a share of its data.

    w <- sum_k (s_k / s) w_k,     s_k = samples that client k uses

summed in ascending client number and in double precision, whatever order the replies come in, so that two
runs with one seed give the same bits. A reply that is not a model of the right shape with finite numbers and
the agreed number of samples does not count, and its client is named; what counts is judged (:mod:`.robust`), and
what does not pass is left out of the average.

Any other strategy of Flower can take the place of the averaging: it chooses whom to ask and what becomes of the
replies that count, and it is not told of the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log

from stackfu.errors import StackfuError
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.robust import Judgement, average, lengths_of, within_reach
from stackfu_integration.flower.wire import (
    TRAIN,
    UNLEARN,
    Refusal,
    TrainingAnswer,
    TrainingOrder,
    decoded,
    messages_to,
    sort_replies,
)
from stackfu_integration.flower.wire.records import show_head

__all__ = [
    "Aggregate",
    "CohortMember",
    "NobodyAnsweredError",
    "ParticipationFedAvg",
    "RoundOutcome",
    "View",
    "model_problem",
]


class NobodyAnsweredError(StackfuError):
    """A round came back without a single usable model."""


@dataclass(frozen=True)
class CohortMember:
    """One client of a cohort: its share, and the samples it must use (``None``: as many as it says)."""

    share: float = 1.0
    samples: int | None = None


@dataclass(frozen=True)
class Delivery:
    """One client's delivery in a round."""

    samples: int
    model: str
    receipt: Receipt | None = None


@dataclass(frozen=True)
class RoundOutcome:
    """A round: the new model, what was delivered by whom, problems by client that did not, and how it was judged.

    ``excused`` were not asked in this round, because the strategy did not choose them. ``lengths`` are the norms of the
    updates, array by array; ``models`` are those that count.
    """

    number: int
    arrays: ArrayRecord
    delivered: dict[int, Delivery]
    problems: dict[int, str] = field(default_factory=dict)
    judgements: dict[int, Judgement] = field(default_factory=dict)
    excused: tuple[int, ...] = ()
    lengths: dict[int, dict[str, float]] = field(default_factory=dict)
    models: dict[int, ArrayRecord] = field(default_factory=dict)

    @property
    def samples(self) -> dict[int, int]:
        """Samples by client."""
        return {client: delivery.samples for client, delivery in self.delivered.items()}


Aggregate = Callable[[Mapping[int, ArrayRecord], Mapping[int, int], ArrayRecord], ArrayRecord]
Judge = Callable[[int, Mapping[int, ArrayRecord], Mapping[int, int], ArrayRecord], dict[int, Judgement]]
View = Callable[[int, ArrayRecord], ArrayRecord]
Inspect = Callable[[int, Mapping[int, Delivery], Mapping[int, RecordDict]], Mapping[int, str]]


def model_problem(model: ArrayRecord, sent: ArrayRecord) -> str | None:
    """Say why arrays are no model like the one that was sent, if they are none."""
    if list(model) != list(sent):
        return "sent arrays with other names than the model's"
    for name, array in model.items():
        values, wanted = array.numpy(), sent[name].numpy()
        if values.shape != wanted.shape or values.dtype != wanted.dtype:
            kind = values.dtype.name  # names of a type's fields are the sender's to choose
            return f"sent {name} as {kind}{list(values.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
            return f"sent numbers in {name} that are not finite"
        if not within_reach(values):
            return f"sent numbers in {name} that are too large"
    return None


class _Chosen:
    """A grid that shows the strategy only the nodes that may be asked."""

    def __init__(self, grid: Grid, nodes: Iterable[int]) -> None:
        self._grid, self._nodes = grid, list(nodes)

    def get_node_ids(self) -> list[int]:
        """Return the nodes that may be asked."""
        return self._nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


class ParticipationFedAvg(Strategy):
    """FedAvg over a cohort with shares; start it with :meth:`Strategy.start` like any other strategy.

    ``cohort`` says who takes part with how much. ``finished(outcome)`` is called after every round, before
    the next one begins: what it writes down is safe. ``done`` rounds are behind us already, and rounds are
    numbered on from there. A client that fails ``patience`` rounds in a row is not asked again. ``inspect(number,
    delivered, orders)`` may look at what was delivered before it is judged, and name problems by client. ``only`` names the arrays
    that may change, where not all may. ``view(client, arrays)`` is what a client is sent of the arrays that rounds hand on, where
    that is not all of them; ``aggregate`` then makes new ones of what clients answered.
    """

    def __init__(
        self,
        nodes: Mapping[int, int],
        cohort: Mapping[int, CohortMember],
        *,
        finished: Callable[[RoundOutcome], None] = lambda outcome: None,
        message_type: str = UNLEARN,
        done: int = 0,
        patience: int = 2,
        most_samples: int = 10_000_000,
        aggregate: Aggregate | None = None,
        judge: Judge | None = None,
        inspect: Inspect | None = None,
        head: Callable[[], Head | None] = lambda: None,
        inner: Strategy | None = None,
        only: tuple[str, ...] = (),
        view: View | None = None,
    ) -> None:
        self.only, self._view = only, view
        self.nodes, self.cohort, self.done = dict(nodes), dict(cohort), done
        self.patience, self.message_type, self.most_samples = patience, message_type, most_samples
        self.inner = inner
        self._aggregate = aggregate or (lambda models, samples, sent: average(models, samples))
        self._judge, self._inspect, self._head = judge, inspect, head
        self._finished = finished
        self._missed = dict.fromkeys(self.cohort, 0)
        self._asked: list[int] = []
        self._orders: dict[int, RecordDict] = {}
        self._sent: ArrayRecord | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model and its share to every client that is still with us."""
        self._sent, number = arrays, self.done + server_round
        with_us = [c for c in sorted(self.cohort) if c in self.nodes and self._missed[c] < self.patience]
        told = dict.fromkeys(with_us, config)
        if self.inner is not None:
            told = self._chosen(server_round, arrays, config, grid, with_us)
        self._asked, head = sorted(told), self._head()
        self._orders = {client: self._order(client, arrays, number, told[client]) for client in self._asked}
        contents = {client: show_head(order, head) for client, order in self._orders.items()}
        return messages_to(self.nodes, self.message_type, contents)

    def _order(self, client: int, arrays: ArrayRecord, number: int, config: ConfigRecord) -> RecordDict:
        member = self.cohort[client]
        agreed = {} if member.samples is None else {"samples": member.samples}
        arrays = self._seen_by(client, arrays)
        return TrainingOrder(arrays, member.share, number, ConfigRecord({**config, **agreed})).encode()

    def _seen_by(self, client: int, arrays: ArrayRecord) -> ArrayRecord:
        return arrays if self._view is None else self._view(client, arrays)

    def _chosen(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid, with_us: list[int]
    ) -> dict[int, ConfigRecord]:
        """Let the strategy choose whom to ask, and with which settings."""
        assert self.inner is not None
        allowed = _Chosen(grid, [self.nodes[client] for client in with_us])
        clients = {self.nodes[client]: client for client in with_us}
        told: dict[int, ConfigRecord] = {}
        for message in self.inner.configure_train(server_round, arrays, config, allowed):  # type: ignore[arg-type]
            client = clients.get(message.metadata.dst_node_id)
            if client is not None:
                settings = next(iter(message.content.config_records.values()), ConfigRecord())
                told[client] = ConfigRecord({**config, **settings})
        return told

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average what is sound, and hand over who delivered and who did not."""
        number, replies = self.done + server_round, list(replies)
        models: dict[int, ArrayRecord] = {}
        delivered: dict[int, Delivery] = {}
        contents: dict[int, RecordDict] = {}
        problems: dict[int, str] = {c: "has no node" for c in sorted(self.cohort) if c not in self.nodes}
        answers = sort_replies(
            replies, self.nodes, self._asked, lambda client, answer: self._check(client, number, answer)
        )
        for client, answer in answers.items():
            if isinstance(answer, Refusal):
                problems[client] = answer.problem
                self._missed[client] += 1
            else:
                trained = self._decode(answer)
                models[client], contents[client] = trained.model, answer
                delivered[client] = Delivery(int(trained.samples), digest(trained.model), trained.receipt)
                self._missed[client] = 0
        if not models:
            raise NobodyAnsweredError(
                f"round {number}: no usable model from clients {sorted(self.cohort)}: {problems}"
            )
        assert self._sent is not None
        samples = {client: delivery.samples for client, delivery in delivered.items()}
        judgements = {} if self._judge is None else self._judge(number, models, samples, self._sent)
        if self._inspect is not None:
            for client, problem in self._inspect(number, delivered, self._orders).items():
                measured = judgements[client].measured if client in judgements else {}
                judgements[client] = Judgement(False, problem, measured)
        for client, judgement in judgements.items():
            if not judgement.passed:
                problems[client] = judgement.problem
        for client, problem in problems.items():
            log(WARNING, "round %d, client %d: %s", number, client, problem)
        sound = {c: m for c, m in models.items() if c not in judgements or judgements[c].passed}
        arrays, metrics = self._model_of(server_round, sound, samples, contents, replies)
        if self.only and self._view is None:  # what may not change is not averaged either
            kept = self._sent
            arrays = ArrayRecord(
                OrderedDict((n, a if n in self.only else kept[n]) for n, a in arrays.items())
            )
        told = {*self._asked, *problems}
        excused = tuple(c for c in sorted(self.cohort) if c not in told and self._missed[c] < self.patience)
        lengths = {
            client: lengths_of(model, self._seen_by(client, self._sent)) for client, model in models.items()
        }
        outcome = RoundOutcome(number, arrays, delivered, problems, judgements, excused, lengths, sound)
        self._finished(outcome)
        return arrays, metrics

    def _model_of(
        self,
        server_round: int,
        sound: Mapping[int, ArrayRecord],
        samples: Mapping[int, int],
        contents: Mapping[int, RecordDict],
        replies: list[Message],
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Return the model that follows from what is sound; from nothing sound, the model as it was."""
        assert self._sent is not None
        metrics = MetricRecord({"num-examples": sum(samples[c] for c in sound), "clients": len(sound)})
        if not sound:
            return self._sent, metrics
        if self.inner is None:
            return self._aggregate(sound, samples, self._sent), metrics
        counted = {id(contents[client]): client for client in sound}
        passed = [reply for reply in replies if not reply.has_error() and id(reply.content) in counted]
        for reply in passed:  # a strategy takes one record of each kind
            reply.content = RecordDict({name: reply.content[name] for name in ("arrays", "metrics")})
        arrays, theirs = self.inner.aggregate_train(server_round, passed)
        if arrays is None:
            return self._sent, metrics
        model: OrderedDict[str, Array] = OrderedDict()
        for (
            name,
            array,
        ) in self._sent.items():  # some strategies compute in double precision and leave it at that
            model[name] = Array(np.asarray(arrays[name].numpy()).astype(array.numpy().dtype))
        return ArrayRecord(model), (metrics if theirs is None else theirs)

    def _decode(self, content: RecordDict) -> TrainingAnswer:
        return TrainingAnswer.decode(content, numbered=self.message_type != TRAIN)

    def _check(self, client: int, number: int, content: RecordDict) -> str | None:
        """Say what is wrong with a reply, if anything."""
        answer = decoded(content, self._decode)
        if isinstance(answer, Refusal):
            return answer.problem
        used, arrays = answer.samples, answer.model
        if answer.number is not None and answer.number != number:
            return f"answered round {answer.number} instead of round {number}"
        if not isinstance(used, int) or not 1 <= used <= self.most_samples:
            return f"claims {used} samples"
        agreed = self.cohort[client].samples
        if agreed is not None and abs(used - agreed) > 1:  # whoever rounds otherwise is no cheat
            return f"used {used} samples, {agreed} were agreed"
        assert self._sent is not None
        sent = self._seen_by(client, self._sent)
        problem = model_problem(arrays, sent)
        changed = [
            name
            for name, array in sent.items()
            if self.only and name not in self.only and problem is None
            if not np.array_equal(arrays[name].numpy(), array.numpy())
        ]
        return f"changed {changed[0]}, which was to stay as it is" if changed else problem

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the questions of the inner strategy; the mechanism itself measures once, at the end."""
        if self.inner is None:
            return []
        with_us = [self.nodes[c] for c in sorted(self.cohort) if c in self.nodes]
        chosen: Iterable[Message] = self.inner.configure_evaluate(
            server_round,
            arrays,
            config,
            _Chosen(grid, with_us),  # type: ignore[arg-type]
        )
        return chosen

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the result of the inner strategy."""
        if self.inner is None:
            return None
        metrics: MetricRecord | None = self.inner.aggregate_evaluate(server_round, replies)
        return metrics

    def summary(self) -> None:
        """Log how many take part, and with how much."""
        shares = [member.share for member in self.cohort.values()]
        log(
            INFO,
            "\t└──> %d clients, with %.1f%% of their data on average",
            len(shares),
            100 * np.mean(shares),
        )
