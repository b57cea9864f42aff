"""From updates to a model when some clients do not do what they are paid for, and what can be seen of an update.

With the updates ``u_k = w_k - w`` of a round, their norms and the median norm ``r``:

- ``mean``      sum_k (s_k / s) u_k: one client can put the model anywhere
- ``clipped``   the same of ``u_k min(1, c r / |u_k|)``: one client moves the model by at most ``c r s_k / s``
- ``trimmed``   in every coordinate the mean without the largest and the smallest share of values
- ``krum``      the mean of the updates that are nearest to their neighbours (Blanchard et al., 2017): with n clients,
                the ``n - f`` with the least sum of squared distances to their ``n - f - 2`` nearest, f = trim * n

What an update shows: its norm against the median, and its direction against a reference, the update of data that the
server holds or the sum of the other clients' clipped updates. An update of nearly no length was not trained, and one
that points against the reference undoes the others' work. What it does not show: which data it was trained on.

Directions say something while the others agree. Near the end of training honest updates cancel, ``sum_k s_k u_k = 0``,
and each points against the sum of the others. Of n equally long updates that cancel, the sum of all but one is
``1 / (n - 1)`` as long as they are together, at most 0.5. So the others are a reference only where that ``coherence`` is 0.6
or more, and where there are six of them: fewer may agree by chance. In a model of few numbers any two updates may
be at odds: the others are a reference only where an update without direction, uniform on the sphere of the model's dimension,
would be refused less than once in a hundred. One round's cosine is a noisy thing, and flipped signs appear in every
round: what is judged is the mean of a client's cosines in all rounds so far that had a reference.
:mod:`.directions` measures what that refuses, of honest clients and of flipped signs; every judgement says whether the same client
with its signs flipped would have been refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from scipy.special import betainc

from stackfu_integration.arrays import FloatArray

__all__ = [
    "Judgement",
    "average",
    "judge",
    "lengths_of",
    "of_type",
    "recalibrated",
    "refused_by_chance",
    "robust_average",
    "update_of",
    "within_reach",
]

_COHERENT = 0.6
_BY_CHANCE = 0.01  # of updates without direction that a threshold may refuse
_MANY = 6  # others; with four, one of four removals among six clients of digits refused one that was honest


@dataclass(frozen=True)
class Judgement:
    """Result of the check of a client's update, the reason of a refusal, and the measurements."""

    passed: bool
    problem: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)


def update_of(model: ArrayRecord, sent: ArrayRecord) -> FloatArray:
    """Return ``w_k - w`` as one vector of the numbers that are trained; counters are not."""
    parts = [
        (array.numpy().astype(np.float64) - sent[name].numpy().astype(np.float64)).ravel()
        for name, array in model.items()
        if np.issubdtype(array.numpy().dtype, np.floating)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def within_reach(values: NDArray[np.generic]) -> bool:
    """Return True if numbers are within single precision: sums of larger ones, and their squares, may overflow."""
    return not np.issubdtype(values.dtype, np.floating) or bool(
        np.abs(values).max(initial=0.0) <= np.finfo(np.float32).max
    )


def lengths_of(model: ArrayRecord, sent: ArrayRecord) -> dict[str, float]:
    """Return ``|w_k - w|`` for every array that is trained."""
    return {
        name: float(np.linalg.norm(array.numpy().astype(np.float64) - sent[name].numpy().astype(np.float64)))
        for name, array in model.items()
        if np.issubdtype(array.numpy().dtype, np.floating)
    }


def recalibrated(model: ArrayRecord, sent: ArrayRecord, lengths: Mapping[str, float]) -> ArrayRecord:
    """Give the update of every array the norm that it had in training, and keep its direction (FedEraser).

    An array that was not trained then, or does not move now, keeps its update.
    """
    out: OrderedDict[str, Array] = OrderedDict()
    now = lengths_of(model, sent)
    for name, array in model.items():
        values = array.numpy()
        if now.get(name, 0.0) == 0.0 or name not in lengths:
            out[name] = array
            continue
        before = sent[name].numpy().astype(np.float64)
        step = (values.astype(np.float64) - before) * (lengths[name] / now[name])
        out[name] = Array(of_type(before + step, values.dtype))
    return ArrayRecord(out)


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
        mean[name] = Array(of_type(acc, values.dtype))
    return ArrayRecord(mean)


def of_type(values: FloatArray, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    """Counters, as batch normalisation keeps them, are whole numbers, and single numbers stay arrays."""
    rounded = values if np.issubdtype(dtype, np.floating) else np.rint(values)
    return np.asarray(rounded).astype(dtype).reshape(values.shape)


def robust_average(
    models: Mapping[int, ArrayRecord],
    samples: Mapping[int, int],
    sent: ArrayRecord,
    rule: str,
    *,
    clip_factor: float,
    trim: float,
) -> ArrayRecord:
    """Return the model that follows from the clients' models by one of the rules above."""
    clients = sorted(models)
    if rule == "mean" or len(clients) < 2:
        return average(models, samples)
    updates = {client: update_of(models[client], sent) for client in clients}
    if rule == "clipped":
        factors = _clip_factors(updates, clip_factor)
        if all(factor == 1.0 for factor in factors.values()):
            return average(models, samples)  # to the last bit what it would be without a rule
        total = float(sum(samples[client] for client in clients))
        step = sum((samples[c] / total * factors[c]) * updates[c] for c in clients)
        return _moved(sent, np.asarray(step), average(models, samples))
    if rule == "trimmed":
        values = np.sort(np.array([updates[client] for client in clients]), axis=0)
        cut = min(int(trim * len(clients)), (len(clients) - 1) // 2)
        return _moved(sent, values[cut : len(clients) - cut].mean(0), average(models, samples))
    chosen = _krum(updates, int(trim * len(clients)))
    return average({client: models[client] for client in chosen}, samples)


def _clip_factors(updates: Mapping[int, FloatArray], clip_factor: float) -> dict[int, float]:
    norms = {client: float(np.linalg.norm(update)) for client, update in updates.items()}
    most = clip_factor * float(np.median(list(norms.values())))
    return {client: 1.0 if norm <= most else most / norm for client, norm in norms.items()}


def _krum(updates: Mapping[int, FloatArray], faulty: int) -> list[int]:
    clients = sorted(updates)
    rows = np.array([updates[client] for client in clients])
    squared = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    near = max(len(clients) - faulty - 2, 1)
    scores = np.sort(squared, axis=1)[:, 1 : near + 1].sum(1)
    order = np.argsort(scores, kind="stable")[: len(clients) - faulty]
    return [clients[k] for k in sorted(order)]


def _moved(sent: ArrayRecord, step: FloatArray, averaged: ArrayRecord) -> ArrayRecord:
    """Return ``sent + step``; what is not trained is averaged."""
    out: OrderedDict[str, Array] = OrderedDict()
    place = 0
    for name, array in sent.items():
        values = array.numpy()
        if np.issubdtype(values.dtype, np.floating):
            part = step[place : place + values.size].reshape(values.shape)
            place += values.size
            out[name] = Array(of_type(values.astype(np.float64) + part, values.dtype))
        else:
            out[name] = averaged[name]
    return ArrayRecord(out)


def refused_by_chance(dimension: int, least_cosine: float) -> float:
    """Return the probability that a uniform direction has a cosine below ``least_cosine`` with a given one."""
    if dimension < 2:
        return 0.5 if least_cosine > -1.0 else 0.0
    tail = float(betainc(0.5 * (dimension - 1), 0.5, 1.0 - least_cosine**2)) / 2.0
    return tail if least_cosine <= 0.0 else 1.0 - tail


def judge(
    models: Mapping[int, ArrayRecord],
    samples: Mapping[int, int],
    sent: ArrayRecord,
    *,
    clip_factor: float,
    least_norm: float,
    least_cosine: float,
    reference: FloatArray | None = None,
    earlier: Mapping[int, Sequence[float]] | None = None,
) -> dict[int, Judgement]:
    """Look at every client's update; ``reference`` is the update of data that the server holds, if it holds any.

    Norms are compared with the median of the others, for which two others are needed. Directions are compared with the
    reference, or with the sum of at least six others that agree, if the model has enough numbers for directions to differ by
    more than chance (:func:`refused_by_chance`); ``earlier`` are each client's cosines in the rounds before.
    ``measured`` also says whether the same updates with their signs flipped would have been refused.
    """
    clients = sorted(models)
    updates = {client: update_of(models[client], sent) for client in clients}
    norms = {client: float(np.linalg.norm(update)) for client, update in updates.items()}
    factors = _clip_factors(updates, clip_factor) if clients else {}
    found: dict[int, Judgement] = {}
    telling = bool(clients) and refused_by_chance(updates[clients[0]].size, least_cosine) <= _BY_CHANCE
    for client in clients:
        others = [c for c in clients if c != client]
        measured = {"norm": norms[client]}
        problem = ""
        typical = float(np.median([norms[c] for c in others])) if len(others) >= 2 else 0.0
        if reference is not None:
            typical = max(typical, 0.0) or float(np.linalg.norm(reference))
        if typical > 0.0:
            measured["of the median norm"] = norms[client] / typical
            if norms[client] < least_norm * typical:
                problem = (
                    f"sent the model back nearly as it was: an update of {norms[client] / typical:.2g} of the "
                    "others' median norm"
                )
        against = reference
        if against is None and len(others) >= 2:
            against = np.asarray(sum(samples[c] * factors[c] * updates[c] for c in others))
            length = sum(samples[c] * factors[c] * norms[c] for c in others)
            measured["coherence"] = float(np.linalg.norm(against)) / length if length > 0.0 else 0.0
            agree = telling and measured["coherence"] >= _COHERENT and len(others) >= _MANY
            against = against if agree else None
        seen = list((earlier or {}).get(client, ()))
        if against is not None and norms[client] > 0.0 and np.linalg.norm(against) > 0.0:
            cosine = float(updates[client] @ against) / (norms[client] * float(np.linalg.norm(against)))
            measured["cosine"] = cosine
            seen.append(cosine)
        measured["flip refused"] = 0.0
        if seen:
            mean = measured["mean cosine"] = float(np.mean(seen))
            measured["flip refused"] = float(-mean < least_cosine)
            if not problem and mean < least_cosine:
                whose = "the others'" if reference is None else "the server's own"
                problem = (
                    f"sends updates that point against {whose}: a cosine of {mean:.2g} on average of {len(seen)} "
                    f"round{'s' if len(seen) > 1 else ''}"
                )
        found[client] = Judgement(problem == "", problem, measured)
    return found
