"""How often directions refuse an honest client, and how often flipped signs: the measurement behind the default.

Federations of digits are trained from their first weights, everybody honest, and once per client with that client's
signs flipped in every round. Every round is judged as the mechanism judges it (:func:`.robust.judge`); refused updates are
left out of the average. A rate is a share of rounds, so it is a share of the pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from stackfu_integration.flower.lab import load_federation
from stackfu_integration.flower.robust import judge, robust_average
from stackfu_integration.lab.federation import LabFederation, LocalTraining, client_seed, local_train
from stackfu_integration.lab.models.classifier import read_weights, write_weights

__all__ = ["THRESHOLDS", "measure_directions", "refused_shares"]

THRESHOLDS = (-0.5, -0.3, -0.2, -0.1, -0.05, 0.0, 0.05)
_TRAINING = LocalTraining(epochs=2.0, batch=32, learning_rate=0.5)


def _record(weights: NDArray[np.float32]) -> ArrayRecord:
    return ArrayRecord({"weights": Array(weights)})


def refused_shares(
    federation: LabFederation,
    clients: Sequence[int],
    least_cosine: float,
    rounds: int,
    flip: int | None = None,
) -> dict[int, float]:
    """Return the share of rounds in which each client is refused; ``flip`` sends its update with the wrong sign."""
    model = federation.model(0)
    sent = _record(read_weights(model).numpy())
    samples = {client: len(federation.clients[client].train) for client in clients}
    earlier: dict[int, list[float]] = {client: [] for client in clients}
    refused = dict.fromkeys(clients, 0)
    for number in range(rounds):
        models = {}
        start = sent["weights"].numpy()
        for client in clients:
            write_weights(model, torch.from_numpy(start.copy()))
            local_train(model, federation.clients[client].train, client_seed(0, client, number), _TRAINING)
            honest = read_weights(model).numpy()
            models[client] = _record((2 * start - honest) if client == flip else honest)
        found = judge(
            models,
            samples,
            sent,
            clip_factor=4.0,
            least_norm=0.01,
            least_cosine=least_cosine,
            earlier=earlier,
        )
        for client, judgement in found.items():
            refused[client] += not judgement.passed
            if "cosine" in judgement.measured:
                earlier[client].append(judgement.measured["cosine"])
        passed = {client: models[client] for client in clients if found[client].passed}
        if passed:
            sent = robust_average(passed, samples, sent, "clipped", clip_factor=4.0, trim=0.2)
    return {client: count / rounds for client, count in refused.items()}


def measure_directions(
    betas: Sequence[float] = (0.1, 0.2, 0.5, 0.8),
    seeds: Sequence[int] = (0, 1, 2),
    thresholds: Sequence[float] = THRESHOLDS,
    rounds: int = 10,
) -> list[dict[str, Any]]:
    """One row per heterogeneity and threshold: rounds refused of honest clients, and of a client that flips signs."""
    figures = []
    for beta in betas:
        for least in thresholds:
            honest: list[float] = []
            flipped: list[float] = []
            for seed in seeds:
                federation = load_federation({"beta": beta, "seed": seed})
                clients = list(range(3, len(federation.clients)))
                honest += refused_shares(federation, clients, least, rounds).values()
                flipped += [
                    refused_shares(federation, clients, least, rounds, flip=client)[client]
                    for client in clients
                ]
            figures.append(
                {
                    "beta": beta,
                    "least_cosine": least,
                    "honest_refused": float(np.mean(honest)),
                    "honest_clients_ever_refused": float(np.mean([share > 0 for share in honest])),
                    "flipped_refused": float(np.mean(flipped)),
                    "flippers_never_refused": float(np.mean([share == 0 for share in flipped])),
                    "clients": len(honest),
                    "rounds": rounds,
                }
            )
    return figures
