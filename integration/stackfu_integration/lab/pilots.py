"""Pilot trainings: the change of all losses at known participation, and the constants that predict it.

The game predicts ``Q_k = C [d_k^2(m) - d_k^2(mu_O)] + A (1 / n_used - 1 / n_O)``. A handful of trainings with different
mixtures and amounts of data fit C and A (:meth:`stackfu.StackelbergGame.calibrate`); the same trainings, each left out
once, say how well the others predict it. Losses are those of the clients' own test samples, and those of their label
mixtures on the test samples of all clients, which carry less noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from torch import Tensor

from stackfu.calibration import Calibration
from stackfu.errors import InputError
from stackfu.game import StackelbergGame
from stackfu_integration.arrays import FloatArray
from stackfu_integration.lab.federation.trained import Trained
from stackfu_integration.lab.measures import evaluate, pooled_losses
from stackfu_integration.lab.unlearning.participation import ParticipationMethod

__all__ = [
    "PILOT_SEED",
    "LossKind",
    "Pilots",
    "calibrated_game",
    "calibration_report",
    "run_pilots",
    "saturating_r2",
]

#: Measured on a client's own test samples, or on all test samples in the client's label mixture.
LossKind = Literal["own", "pooled"]
PILOT_SEED = 3000  # added to a run's seed: pilots draw from other streams than training
_KINDS: tuple[LossKind, ...] = ("own", "pooled")


@dataclass(frozen=True)
class Pilots:
    """Profiles over the remaining clients, and every client's losses after each and before the removal."""

    remaining: tuple[int, ...]
    participation: FloatArray  # (pilots, remaining clients)
    losses: Mapping[LossKind, FloatArray]  # (pilots, all clients)
    before: Mapping[LossKind, FloatArray]  # (all clients)
    alone: Mapping[LossKind, FloatArray]  # (remaining clients), each with a model of its own data
    seconds: float

    def changes(self, kind: LossKind = "own") -> FloatArray:
        """Return the change of every remaining client's loss after each pilot."""
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
    return Pilots(
        remaining,
        participation,
        {kind: np.array([losses[kind] for losses in found[:count]]) for kind in _KINDS},
        _losses(trained, before),
        {
            kind: np.array(
                [losses[kind][client] for losses, client in zip(found[count:], remaining, strict=True)]
            )
            for kind in _KINDS
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


class Piloted(Protocol):
    """Games in every view and pilots by every approach."""

    @property
    def views(self) -> Mapping[Any, StackelbergGame]:
        """Games with C = 1 and A = 0."""

    @property
    def pilots(self) -> Mapping[Any, Pilots]:
        """Results of the trainings."""


def _r2(predicted: FloatArray, observed: FloatArray) -> float:
    total = float(((observed - observed.mean()) ** 2).sum())
    return 1.0 - float(((observed - predicted) ** 2).sum()) / total if total > 0 else float("nan")


def saturating_r2(game: StackelbergGame, pilots: Pilots, kind: LossKind, classes: int) -> float:
    """R2 of pilots that the others predict, where the sampling term ends at what a model that knows nothing loses.

    A way to read predictions (:mod:`~stackfu_integration.lab.report.predictions`): its constants are not those of a game.
    """
    from stackfu_integration.lab.report.predictions import Trainings, fitted

    changes = pilots.changes(kind)
    bare = game.replace(loss_constant=1.0, sampling_constant=0.0)
    drift = np.array([bare.impacts(x).clients for x in pilots.participation])
    used = pilots.participation @ game.sizes
    thin = np.broadcast_to((1.0 / used - 1.0 / game.all_sizes.sum())[:, None], drift.shape)
    room = np.maximum(np.log(classes) - pilots.before[kind][list(pilots.remaining)], 0.0)
    nothing = np.zeros(len(changes), dtype=np.bool_)
    whole = Trainings(np.stack([drift, thin], axis=-1), changes, ~nothing, nothing, room)
    guess = []
    for number in range(len(changes)):
        others = np.arange(len(changes)) != number
        guess.append(whole.part(~others).predict(fitted([whole.part(others)])))
    return _r2(np.concatenate(guess), changes)


def calibration_report(
    views: Mapping[Any, StackelbergGame],
    pilots: Mapping[Any, Pilots],
    other: Piloted | None = None,
    classes: int | None = None,
) -> str:
    """Return one line per approach and view: the constants, how sure they are, and what they predict out of sample.

    Each pilot is predicted by the others; ``other`` is a federation with pilots that are predicted by all of these. With the number
    of ``classes`` the report also says how well the others predict a pilot if few samples cost no more than knowing nothing.
    """
    lines = []
    for approach, observed in pilots.items():
        for view, game in views.items():
            for kind in _KINDS:
                constants = game.calibrate(observed.participation, observed.changes(kind))
                unsure = "" if constants.identified else "; C is not told from zero: run more pilots"
                line = f"{approach}, {view}, {kind} test samples: {constants}{unsure}"
                if classes is not None:
                    line += f"; saturating {saturating_r2(game, observed, kind, classes):.2f}"
                if other is not None and approach in other.pilots:
                    there = other.views[view].replace(
                        loss_constant=max(constants.loss_constant, np.finfo(np.float64).eps),
                        sampling_constant=constants.sampling_constant,
                    )
                    theirs = other.pilots[approach]
                    guess = np.array([there.impacts(x).clients for x in theirs.participation])
                    line += f"; on the other federation R2 {_r2(guess, theirs.changes(kind)):.2f}"
                lines.append(line)
    return "\n".join(lines)
