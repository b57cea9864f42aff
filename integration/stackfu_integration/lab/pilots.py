"""Pilot trainings: what happens to everybody's loss at known participation, and the constants that say so in advance.

The game predicts ``Q_k = C [d_k^2(m) - d_k^2(mu_O)] + A (1 / n_used - 1 / n_O)``. A handful of trainings with different
mixtures and amounts of data fit C and A (:meth:`stackfu.StackelbergGame.calibrate`); the same trainings, each left out
once, say how well the others predict it. Losses are those of the clients' own test samples, and those of their label
mixtures on everybody's test samples, which carry less noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

from stackfu.calibration import Calibration
from stackfu.errors import InputError
from stackfu.game import StackelbergGame
from stackfu_integration.lab.federation.trained import Trained
from stackfu_integration.lab.measures import evaluate, pooled_losses
from stackfu_integration.lab.unlearning.participation import ParticipationMethod

__all__ = ["LossKind", "Pilots", "calibrated_game", "run_pilots"]

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
#: Measured on a client's own test samples, or on all test samples in the client's label mixture.
LossKind = Literal["own", "pooled"]


@dataclass(frozen=True)
class Pilots:
    """Profiles over the remaining clients, and every client's losses after each and before anybody left."""

    remaining: tuple[int, ...]
    participation: FloatArray  # (pilots, remaining clients)
    losses: Mapping[LossKind, FloatArray]  # (pilots, all clients)
    before: Mapping[LossKind, FloatArray]  # (all clients)
    alone: Mapping[LossKind, FloatArray]  # (remaining clients), each with a model of its own data
    seconds: float

    def changes(self, kind: LossKind = "own") -> FloatArray:
        """What every pilot did to every remaining client's loss."""
        clients = list(self.remaining)
        return np.asarray(self.losses[kind][:, clients] - self.before[kind][clients])

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "remaining": list(self.remaining),
            "participation": self.participation.tolist(),
            **{
                name: {kind: values.tolist() for kind, values in getattr(self, name).items()}
                for name in ("losses", "before", "alone")
            },
            "seconds": self.seconds,
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Pilots:
        """From plain numbers."""
        arrays = {
            name: {kind: np.array(values) for kind, values in stored[name].items()}
            for name in ("losses", "before", "alone")
        }
        participation = np.array(stored["participation"])
        return cls(
            tuple(stored["remaining"]),
            participation,
            arrays["losses"],
            arrays["before"],
            arrays["alone"],
            stored["seconds"],
        )


def _losses(trained: Trained, weights: Tensor) -> dict[LossKind, FloatArray]:
    performance = evaluate(trained.federation, weights)
    return {"own": performance.losses, "pooled": pooled_losses(trained.federation, performance)}


def run_pilots(
    trained: Trained,
    removed: Sequence[int],
    method: ParticipationMethod,
    before: Tensor,
    participation: FloatArray,
    seed: int,
    advance: Callable[[int], None] = lambda done: None,
) -> Pilots:
    """Train once per profile, and once per remaining client alone; ``before`` are the weights that changes count from."""
    remaining = trained.federation.remaining(removed)
    if participation.ndim != 2 or participation.shape[1] != len(remaining):
        raise InputError(
            "participation",
            f"needs a column per remaining client, {len(remaining)}",
            value=participation.shape,
        )
    start = time.perf_counter()
    count = len(participation)
    profiles = [dict(zip(remaining, row, strict=True)) for row in participation]
    profiles += [{other: float(other == client) for other in remaining} for client in remaining]
    found = []
    for number, shares in enumerate(profiles):
        shared = {client: float(x) for client, x in shares.items()}
        weights = replace(method, shares=shared).unlearn(trained, removed, seed + number).weights
        found.append(_losses(trained, weights))
        advance(number + 1)
    kinds: tuple[LossKind, ...] = ("own", "pooled")
    return Pilots(
        remaining,
        participation,
        {kind: np.array([losses[kind] for losses in found[:count]]) for kind in kinds},
        _losses(trained, before),
        {
            kind: np.array(
                [losses[kind][client] for losses, client in zip(found[count:], remaining, strict=True)]
            )
            for kind in kinds
        },
        time.perf_counter() - start,
    )


def calibrated_game(
    game: StackelbergGame, pilots: Pilots, kind: LossKind = "pooled"
) -> tuple[StackelbergGame, Calibration]:
    """Return the game with the constants that the pilots fit, and how sure they are.

    Where the pilots do not tell C from zero the game keeps the fitted values but is not called calibrated.
    """
    fit = game.calibrate(pilots.participation, pilots.changes(kind))
    if fit.identified:
        return game.recalibrated(fit), fit
    smallest = np.finfo(np.float64).eps
    return (
        game.replace(loss_constant=max(fit.loss_constant, smallest), sampling_constant=fit.sampling_constant),
        fit,
    )
