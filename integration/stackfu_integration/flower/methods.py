"""Unlearning methods: the model that each starts from, and its requirements.

Whatever the method, the remaining clients are paid for ``rounds`` of work on the shares of data that the game bought. Methods
differ in the model that these rounds start from, in what a round is, and in who else has to work:

- ``retrain``           from the first model
- ``continue``          from the trained one
- ``head``              from the trained one, of which some arrays are trained on and all others stay to the last bit
- ``convex-head``       from the first model, of which the last layer starts at zero and is brought to the optimum of a penalised
                        softmax loss by sums of gradients; needs apps that give them (:mod:`.convex`)
- ``newton``            from the first model with the trained last layer, which Newton steps bring to the same optimum; noise hides
                        how far it still is from it; needs apps that give first and second derivatives (:mod:`.phases.release`)
- ``shards``            from the first model, in the shards with a leaving client; the others' heads stay as
                        they are, and the model is the mean of all (:mod:`.phases.shards`); needs training in shards
- ``federaser``         from the first model, with the lengths that updates had in training
- ``fedrecovery``       from the trained model without the removed clients' part of every round, and noise; needs kept updates
- ``gradient-ascent``   from where the removed clients, before they go, undo their training near the others' models; needs
                        kept updates
- ``quickdrop``         from where they undo it on synthetic sets, which they made during training and keep to themselves
- ``mode``              towards a model that starts anew, guided by removed clients that train in every other round

The last three need work of the leaving clients. A client does it if its policy allows it; if one refuses or is offline, the
method is unavailable (:mod:`.phases.leaving`). Constants are those of the lab's methods, which are the published ones.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from flwr.app import Array, ArrayRecord

from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.robust import lengths_of, of_type

__all__ = [
    "ASCENT_RADIUS",
    "METHODS",
    "MODE_GUIDANCE_RATE",
    "MODE_MOMENTUM",
    "MODE_RATE",
    "Method",
    "Unlearning",
    "bounded",
    "degradation_rounds",
    "distance_between",
    "is_degradation",
    "mixed",
    "recovered",
    "without_leavers",
]


Unlearning = Literal[
    "retrain",
    "continue",
    "head",
    "convex-head",
    "newton",
    "shards",
    "federaser",
    "fedrecovery",
    "gradient-ascent",
    "quickdrop",
    "mode",
]

MODE_MOMENTUM, MODE_RATE, MODE_GUIDANCE_RATE = 0.95, 0.1, 5e-4
ASCENT_RADIUS = 1.0 / 3.0  # of the distance between the others' models and a random one
_MODE_ROUNDS = (6, 10)  # of degradation and of guidance, as published
_NOISE = 81  # seed stream


@dataclass(frozen=True)
class Method:
    """Requirements of a method: the first model (``anew``), kept updates, single updates, work of leaving clients, gradients.

    ``head``: it trains some arrays only, which the terms name.
    """

    name: str
    anew: bool = False
    updates: bool = False
    single: bool = False
    leavers: bool = False
    gradients: bool = False
    head: bool = False


METHODS: Mapping[str, Method] = {
    "retrain": Method("Retraining", anew=True),
    "continue": Method("Training on"),
    "head": Method("Training the head on", head=True),
    "convex-head": Method("Convex heads", anew=True, gradients=True, head=True),
    "newton": Method("Certified removal by Newton steps", anew=True, gradients=True, head=True),
    "shards": Method("Shards", anew=True, single=True, head=True),
    "federaser": Method("FedEraser", anew=True, single=True),
    "fedrecovery": Method("FedRecovery", updates=True),
    "gradient-ascent": Method("Projected gradient ascent", updates=True, leavers=True),
    "quickdrop": Method("QuickDrop", leavers=True),
    "mode": Method("MoDe", anew=True, single=True, leavers=True),
}
assert tuple(METHODS) == get_args(Unlearning)


def without_leavers() -> str:
    """Return the methods that need no work of leaving clients.

    >>> without_leavers()
    'retrain, continue, head, convex-head, newton, shards, federaser, fedrecovery'
    """
    return ", ".join(name for name, method in METHODS.items() if not method.leavers)


# ---- MoDe


def degradation_rounds(rounds: int) -> int:
    """Return how many of the paid rounds train the new model.

    >>> degradation_rounds(16), degradation_rounds(10)
    (6, 3)
    """
    return rounds * _MODE_ROUNDS[0] // sum(_MODE_ROUNDS)


def is_degradation(number: int, rounds: int) -> bool:
    """Return True if round ``number``, from 1, trains the new model: every other one until they are done.

    >>> [number for number in range(1, 11) if is_degradation(number, 10)]
    [1, 3, 5]
    """
    return number % 2 == 1 and number < 2 * degradation_rounds(rounds)


def mixed(model: ArrayRecord, other: ArrayRecord, share: float) -> ArrayRecord:
    """Return ``share * model + (1 - share) * other``."""
    return _combined([model, other], [share, 1.0 - share])


# ---- FedRecovery


def recovered(
    trained: ArrayRecord,
    starts: Sequence[ArrayRecord],
    kept: Sequence[Mapping[int, ArrayRecord]],
    samples: Sequence[Mapping[int, int]],
    removed: Sequence[int],
    noise: float,
    seed: int,
) -> ArrayRecord:
    """Take the removed clients' part of every round off the trained model, and add noise.

    With the average ``U_t`` of all updates of round t and ``V_t`` of those of the others,
    ``w - sum_t p_t (U_t - V_t) + N(0, noise^2)``, ``p_t = |U_t|^2 / sum_{s < t} |U_s|^2`` (0 for the first round).
    ``starts`` are the models that the rounds began with, ``kept`` what clients made of them.
    """
    weights = {n: a.numpy().astype(np.float64) for n, a in trained.items() if _is_trained(a)}
    before = 0.0
    for start, models, sizes in zip(starts, kept, samples, strict=True):
        others = {client: model for client, model in models.items() if client not in removed}
        everybody = _mean(models, sizes)
        without = (
            _mean(others, sizes) if others else {n: start[n].numpy().astype(np.float64) for n in weights}
        )
        length = sum(float(((everybody[n] - start[n].numpy()) ** 2).sum()) for n in weights)
        part = length / before if before > 0.0 else 0.0
        for name in weights:
            weights[name] = weights[name] - part * (everybody[name] - without[name])
        before += length
    random = np.random.default_rng([_NOISE, seed])
    out: OrderedDict[str, Array] = OrderedDict()
    for name, array in trained.items():
        if name in weights:
            values = weights[name] + noise * random.standard_normal(weights[name].shape)
            out[name] = Array(of_type(values, array.numpy().dtype))
        else:
            out[name] = array
    return ArrayRecord(out)


def _mean(models: Mapping[int, ArrayRecord], samples: Mapping[int, int]) -> dict[str, FloatArray]:
    total = float(sum(samples[client] for client in models))
    first = models[min(models)]
    return {
        name: np.asarray(
            sum(models[c][name].numpy().astype(np.float64) * (samples[c] / total) for c in sorted(models))
        )
        for name, array in first.items()
        if _is_trained(array)
    }


# ---- those who leave


def bounded(model: ArrayRecord, around: ArrayRecord, most: float) -> ArrayRecord:
    """Return the model, or the nearest one on the way to it that is at most ``most`` away from ``around``."""
    far = distance_between(model, around)
    return model if far <= most else _combined([model, around], [most / far, 1.0 - most / far])


def distance_between(left: ArrayRecord, right: ArrayRecord) -> float:
    """Return the distance of two models in their trained arrays."""
    return math.sqrt(sum(length**2 for length in lengths_of(left, right).values()))


def _combined(models: Sequence[ArrayRecord], shares: Sequence[float]) -> ArrayRecord:
    out: OrderedDict[str, Array] = OrderedDict()
    for name, array in models[0].items():
        if _is_trained(array):
            values = sum(
                share * model[name].numpy().astype(np.float64)
                for model, share in zip(models, shares, strict=True)
            )
            out[name] = Array(of_type(np.asarray(values), array.numpy().dtype))
        else:
            out[name] = array  # counters are not mixed
    return ArrayRecord(out)


def _is_trained(array: Array) -> bool:
    return bool(np.issubdtype(array.numpy().dtype, np.floating))
