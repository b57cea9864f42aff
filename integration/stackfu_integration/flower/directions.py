"""Measure how often the direction check refuses honest clients, and flipped signs: the basis of the default.

Federations of digits are trained from their first weights, all clients honest, and once per client with that client's
signs flipped in every round. Every round is judged as the mechanism judges it (:func:`.robust.judge`); refused updates are
left out of the average. A rate is a share of rounds, so it is a share of the pay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from stackfu_integration.flower.client import Participant
from stackfu_integration.flower.lab import TRAINING, LabParticipant, initial_arrays, load_federation
from stackfu_integration.flower.robust import judge, robust_average
from stackfu_integration.flower.wire.records import config

__all__ = ["THRESHOLDS", "digits_participants", "measure_directions", "refused_shares"]

THRESHOLDS = (-0.5, -0.3, -0.2, -0.1, -0.05, 0.0, 0.05)


def digits_participants(beta: float, seed: int) -> tuple[dict[int, Participant], ArrayRecord]:
    """Return the clients that remain when three of ten leave a federation of digits, and its first model."""
    run = {"beta": beta, "seed": seed}
    federation = load_federation(run)
    clients = range(3, len(federation.clients))
    return {k: LabParticipant(lambda: federation, k, TRAINING) for k in clients}, initial_arrays(run)


def _flipped(sent: ArrayRecord, honest: ArrayRecord) -> ArrayRecord:
    """``w - (w_k - w)`` in place of ``w_k``."""
    return ArrayRecord(
        OrderedDict((name, Array(2 * sent[name].numpy() - array.numpy())) for name, array in honest.items())
    )


def refused_shares(
    participants: Mapping[int, Participant],
    initial: ArrayRecord,
    least_cosine: float,
    rounds: int,
    flip: int | None = None,
) -> dict[int, float]:
    """Return the share of rounds in which each client is refused; ``flip`` sends its update with the wrong sign."""
    sent = initial
    samples = {client: participant.size for client, participant in participants.items()}
    earlier: dict[int, list[float]] = {client: [] for client in participants}
    refused = dict.fromkeys(participants, 0)
    for number in range(rounds):
        models = {}
        for client, participant in participants.items():
            honest, _ = participant.train(sent, 1.0, config(seed=0, server_round=number + 1))
            models[client] = _flipped(sent, honest) if client == flip else honest
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
        passed = {client: models[client] for client in participants if found[client].passed}
        if passed:
            sent = robust_average(passed, samples, sent, "clipped", clip_factor=4.0, trim=0.2)
    return {client: count / rounds for client, count in refused.items()}


def measure_directions(
    betas: Sequence[float] = (0.1, 0.2, 0.5, 0.8),
    seeds: Sequence[int] = (0, 1, 2),
    thresholds: Sequence[float] = THRESHOLDS,
    rounds: int = 10,
) -> list[dict[str, Any]]:
    """Return one row per heterogeneity and threshold: rounds refused of honest clients, and of a client that flips signs."""
    figures = []
    for beta in betas:
        for least in thresholds:
            honest: list[float] = []
            flipped: list[float] = []
            for seed in seeds:
                there, initial = digits_participants(beta, seed)
                honest += refused_shares(there, initial, least, rounds).values()
                flipped += [refused_shares(there, initial, least, rounds, flip=k)[k] for k in there]
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
