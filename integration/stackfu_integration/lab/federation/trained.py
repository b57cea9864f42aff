"""The shared starting point of every unlearning method: a trained federation with its history."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.lab.federation.averaging import Observer, fedavg
from stackfu_integration.lab.federation.clients import LabelledTensors, LabFederation
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import LocalTraining
from stackfu_integration.lab.models.classifier import read_weights
from stackfu_integration.storage import write_checkpoint

__all__ = ["Trained", "UpdateHistory", "stored_updates", "train_federation"]


class UpdateHistory:
    """Every client's update in every ``interval``-th round, as FedEraser needs them."""

    def __init__(self, interval: int = 1) -> None:
        if interval < 1:
            raise InputError("interval", "must be at least 1", value=interval)
        self.interval = interval
        self.updates: dict[int, dict[int, Tensor]] = {}

    def client_trained(
        self,
        round_number: int,
        client: int,
        data: LabelledTensors,
        model: nn.Module,
        before: Tensor,
        after: Tensor,
    ) -> None:
        """Keep ``after - before`` in kept rounds."""
        if round_number % self.interval == 0:
            self.updates.setdefault(round_number, {})[client] = after - before

    def state(self) -> dict[str, Any]:
        """Plain tensors."""
        return {"interval": self.interval, "updates": self.updates}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over kept updates."""
        self.interval, self.updates = state["interval"], state["updates"]

    @property
    def nbytes(self) -> int:
        """Size of everything that was kept."""
        return sum(4 * update.numel() for kept in self.updates.values() for update in kept.values())


@dataclass(frozen=True)
class Trained:
    """A federation after training: first and last global weights, and what the observers kept."""

    federation: LabFederation
    settings: LocalTraining
    rounds: int
    seed: int
    initial: Tensor
    final: Tensor
    observers: dict[str, Observer]
    effort: Effort
    seconds: float


def stored_updates(trained: Trained, method: str) -> dict[int, dict[int, Tensor]]:
    """Return every kept round's update of every client; a training that kept none is refused."""
    history = trained.observers.get("history")
    if not isinstance(history, UpdateHistory) or not history.updates:
        raise InputError("trained", f"{method} needs a federation trained with an UpdateHistory")
    return history.updates


def train_federation(
    federation: LabFederation,
    settings: LocalTraining,
    rounds: int,
    seed: int,
    *,
    observers: dict[str, Observer] | None = None,
    checkpoint: Path | None = None,
    identity: str = "",
    every: int = 10,
    after_round: Callable[[int], None] = lambda round_number: None,
) -> Trained:
    """Train all clients with FedAvg; continue from ``checkpoint`` if it exists.

    A checkpoint is written every ``every`` rounds and at the end. ``identity`` names what is being trained (a
    digest of data, partition and settings); a checkpoint of something else is refused. Resuming gives the
    same bits as not having stopped, because every client's seed is a function of the round.
    """
    observers = {} if observers is None else observers
    model = federation.model(seed)
    initial = read_weights(model)
    weights, start, effort, seconds = initial, 0, Effort(), 0.0
    if checkpoint is not None and checkpoint.is_file():
        try:
            stored = torch.load(checkpoint, weights_only=True)
            same = stored["identity"] == identity
        except Exception as error:
            raise FileFormatError(f"{checkpoint}: not a checkpoint ({error!r})") from error
        if not same:
            raise FileFormatError(f"{checkpoint}: belongs to another run; remove it or choose another folder")
        weights, start, seconds = stored["weights"], stored["round"], stored["seconds"]
        effort = Effort(**stored["ledger"])
        for name, observer in observers.items():
            observer.restore(stored["observers"][name])
    began = time.perf_counter()

    def keep(round_number: int, current: Tensor) -> None:
        after_round(round_number)
        done = round_number + 1
        if checkpoint is not None and (done % every == 0 or done == rounds):
            value = {
                "identity": identity,
                "round": done,
                "weights": current,
                "seconds": seconds + time.perf_counter() - began,
                "ledger": effort.as_dict(),  # the name that checkpoints have it under
                "observers": {name: observer.state() for name, observer in observers.items()},
            }
            write_checkpoint(checkpoint, value)

    final = fedavg(
        model,
        federation.cohort(range(len(federation.clients))),
        weights,
        rounds,
        settings,
        seed,
        start=start,
        effort=effort,
        observers=tuple(observers.values()),
        device=federation.device,
        after_round=keep,
    )
    total = seconds + time.perf_counter() - began
    return Trained(federation, settings, rounds, seed, initial, final, observers, effort, total)
