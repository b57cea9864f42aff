"""Unlearning with the participation that the game results in: each client uses a share ``x_i`` of its data.

The share is drawn uniformly once, and a client's weight in the average is the number of samples it uses, so
that the data seen is a sample of the mixture ``mu(x)`` of the game.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from stackfu.errors import InputError
from stackfu_integration.lab.federation.averaging import fedavg
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import client_seed
from stackfu_integration.lab.federation.trained import Trained
from stackfu_integration.lab.models.classifier import Classifier, read_weights, write_weights
from stackfu_integration.lab.unlearning.base import Guarantee, UnlearningMethod

__all__ = [
    "SHARE_STREAM",
    "HeadFineTuning",
    "ParticipationMethod",
    "ParticipationRetraining",
    "participants",
    "with_features",
]

SHARE_STREAM = 31  # of seeds, from which a client's share of its samples is drawn


def participants(
    trained: Trained,
    removed: Sequence[int],
    shares: Mapping[int, float] | None,
    seed: int,
    min_share: float = 0.0,
    min_samples: int = 1,
) -> dict[int, LabelledTensors]:
    """Draw each remaining client's share of data; clients below the floors drop out.

    ``shares`` of ``None`` is full participation. Earlier public code of this line of work drops clients with
    ``min_share = 0.1`` or ``min_samples = 10``; the default keeps whoever brings a sample, because an optimal
    payment may well ask many clients for little.
    """
    remaining = trained.federation.remaining(removed)
    if shares is None:
        return trained.federation.cohort(remaining)
    if set(shares) != set(remaining):
        raise InputError(
            "shares", f"must name exactly the remaining clients {remaining}", value=sorted(shares)
        )
    drawn = {
        client: trained.federation.clients[client].train.share(
            float(share), client_seed(seed, client, 0, SHARE_STREAM)
        )
        for client, share in sorted(shares.items())
        if share > min_share
    }
    cohort = {client: data for client, data in drawn.items() if len(data) >= max(1, min_samples)}
    if not cohort:
        raise InputError("shares", "nobody takes part with enough samples", value=dict(shares))
    return cohort


def with_features(
    model: Classifier, cohort: Mapping[int, LabelledTensors], device: torch.device, effort: Effort
) -> dict[int, LabelledTensors]:
    """Let every client compute the penultimate features of its samples once, with the model it is sent."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    found = {}
    for client, data in sorted(cohort.items()):
        with torch.no_grad(), effort.client_work():
            features = [model.features(x.to(device)).cpu() for x in data.x.split(256)]
        found[client] = LabelledTensors(torch.cat(features), data.y)
        effort.exchange(parameters, 0)
    return found


@dataclass(frozen=True)
class ParticipationMethod(UnlearningMethod):
    """Common part of methods with participation: the clients that take part, and their shares."""

    cooperation: ClassVar[str] = "none"

    shares: Mapping[int, float] | None = field(default=None)
    min_share: float = 0.0
    min_samples: int = 1

    def _cohort(self, trained: Trained, removed: Sequence[int], seed: int) -> dict[int, LabelledTensors]:
        return participants(trained, removed, self.shares, seed, self.min_share, self.min_samples)


@dataclass(frozen=True)
class ParticipationRetraining(ParticipationMethod):
    """Retrain from the first weights on the shares of data that the clients bring."""

    name: ClassVar[str] = "participation-retraining"

    @property
    def guarantee(self) -> Guarantee:
        """Starts from the first weights and sees the participants' data only."""
        return "exact"

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        federation = trained.federation
        return fedavg(
            federation.model(trained.seed),
            self._cohort(trained, removed, seed),
            trained.initial,
            trained.rounds,
            trained.settings,
            seed,
            effort=effort,
            device=federation.device,
        )


@dataclass(frozen=True)
class HeadFineTuning(ParticipationMethod):
    """Freeze everything but the head of the trained model and train that on.

    ``rounds`` of 0 are as many as the training had. With a frozen tail the features do not change, so a
    client computes them once and trains the head on them: the same result as running the whole model in every
    step, in a fraction of the time.
    """

    name: ClassVar[str] = "head-fine-tuning"
    rounds: int = 0

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        federation = trained.federation
        model = federation.model(trained.seed)
        write_weights(model, trained.final)
        cohort = with_features(model, self._cohort(trained, removed, seed), federation.device, effort)
        head = fedavg(
            model.head,
            cohort,
            read_weights(model.head),
            self.rounds or trained.rounds,
            trained.settings,
            seed,
            effort=effort,
            device=federation.device,
        )
        write_weights(model.head, head)
        return read_weights(model)
