"""A Flower strategy: federated averaging over named clients, each with a share of its data.

    w <- sum_k (s_k / s) w_k,     s_k = samples that client k uses

summed in ascending client number and in double precision, whatever order the replies come in, so that two
runs with one seed give the same bits. A reply that is not a model of the right shape with finite numbers and
the agreed number of samples does not count, and its client is named.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log

from stackfu.errors import StackfuError
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

__all__ = ["Member", "NobodyAnsweredError", "ParticipationFedAvg", "RoundOutcome", "average"]


class NobodyAnsweredError(StackfuError):
    """A round came back without a single usable model."""


@dataclass(frozen=True)
class Member:
    """One client of a cohort: its share, and the samples it must use (``None``: as many as it says)."""

    share: float = 1.0
    samples: int | None = None


@dataclass(frozen=True)
class RoundOutcome:
    """A round: the new model, samples by client that delivered, and problems by client that did not."""

    number: int
    arrays: ArrayRecord
    samples: dict[int, int]
    problems: dict[int, str] = field(default_factory=dict)


def average(models: Mapping[int, ArrayRecord], samples: Mapping[int, int]) -> ArrayRecord:
    """Average models by samples, in ascending client number and in double precision."""
    total = float(sum(samples[client] for client in sorted(models)))
    first = models[min(models)]
    mean: OrderedDict[str, Array] = OrderedDict()
    for name, array in first.items():
        values = array.numpy()
        acc = np.zeros(values.shape, dtype=np.float64)
        for client in sorted(models):
            acc += models[client][name].numpy().astype(np.float64) * (samples[client] / total)
        # counters, as batch normalisation keeps them, are whole numbers
        mean[name] = Array(
            (acc if np.issubdtype(values.dtype, np.floating) else np.rint(acc)).astype(values.dtype)
        )
    return ArrayRecord(mean)


class ParticipationFedAvg(Strategy):
    """FedAvg over a cohort with shares; start it with :meth:`Strategy.start` like any other strategy.

    ``cohort`` says who takes part with how much. ``finished(outcome)`` is called after every round, before
    the next one begins: what it writes down is safe. ``done`` rounds are behind us already, and rounds are
    numbered on from there. A client that fails ``patience`` rounds in a row is not asked again.
    """

    def __init__(
        self,
        nodes: Mapping[int, int],
        cohort: Mapping[int, Member],
        *,
        finished: Callable[[RoundOutcome], None] = lambda outcome: None,
        message_type: str = UNLEARN,
        done: int = 0,
        patience: int = 2,
        most_samples: int = 10_000_000,
    ) -> None:
        self.nodes, self.cohort, self.done = dict(nodes), dict(cohort), done
        self.patience, self.message_type, self.most_samples = patience, message_type, most_samples
        self._finished = finished
        self._missed = dict.fromkeys(self.cohort, 0)
        self._asked: list[int] = []
        self._sent: ArrayRecord | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model and its share to every client that is still with us."""
        self._sent = arrays
        self._asked = [c for c in sorted(self.cohort) if c in self.nodes and self._missed[c] < self.patience]
        number = self.done + server_round
        contents = {
            client: TrainingOrder(arrays, self.cohort[client].share, number, config).encode()
            for client in self._asked
        }
        return messages_to(self.nodes, self.message_type, contents)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies, average what is sound, and report the round."""
        number = self.done + server_round
        models: dict[int, ArrayRecord] = {}
        samples: dict[int, int] = {}
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
                models[client], samples[client] = trained.model, int(trained.samples)
                self._missed[client] = 0
        for client, problem in problems.items():
            log(WARNING, "round %d, client %d: %s", number, client, problem)
        if not models:
            raise NobodyAnsweredError(
                f"round {number}: no usable model from clients {sorted(self.cohort)}: {problems}"
            )
        arrays = average(models, samples)
        self._finished(RoundOutcome(number, arrays, samples, problems))
        return arrays, MetricRecord({"num-examples": sum(samples.values()), "clients": len(models)})

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
        if agreed is not None and used != agreed:
            return f"used {used} samples, {agreed} were agreed"
        assert self._sent is not None
        if list(arrays) != list(self._sent):
            return "sent arrays with other names than the model's"
        for name, array in arrays.items():
            values, sent = array.numpy(), self._sent[name].numpy()
            if values.shape != sent.shape or values.dtype != sent.dtype:
                return (
                    f"sent {name} as {values.dtype}{list(values.shape)}, not {sent.dtype}{list(sent.shape)}"
                )
            if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
                return f"sent numbers in {name} that are not finite"
        return None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: the mechanism measures once, at the end."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing to aggregate."""
        return None

    def summary(self) -> None:
        """Log how many take part, and with how much."""
        shares = [member.share for member in self.cohort.values()]
        log(
            INFO,
            "\t└──> %d clients, with %.1f%% of their data on average",
            len(shares),
            100 * np.mean(shares),
        )
