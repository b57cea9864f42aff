"""Accuracy of a game's predictions: every model on the same trainings.

A training with participation x has the mixture m and n_used samples. From the squared distances between clients,
``d_k^2(m) = sum_j z_j D_jk - 1/2 sum_ij z_i z_j D_ij``, every model's prediction follows:

    paper        Q_k = C d_k^2(m)
    amount of data alone
                 Q_k = A (1 / n_used - 1 / n_O), the null model: it knows nothing about the clients
    features, labels, joint, gradients, labels+gradients
                 Q_k = C [d_k^2(m) - d_k^2(mu_O)] + A (1 / n_used - 1 / n_O)

in the view that the model is named by. Constants are least squares with C, A >= 0, from trainings that are not predicted.

``1 / n_used`` is the first term of a law for many samples. With hardly one sample per class a model knows nothing, and
what it loses by that cannot exceed ``r_k = log K - f_k(original)``, the room up to the loss of a model that calls all K
classes equally likely; ``A / n`` runs away from it. R2 is therefore also taken without such trainings, and one model more says

    labels, saturating
                 Q_k = C [d_k^2(m) - d_k^2(mu_O)] + t r_k / (t + r_k),        t = A (1 / n_used - 1 / n_O)

which has the same slope where samples are many, ends at ``r_k`` where there are none, and needs no third constant. It is a way to
read a prediction, not a game: the theory is that of ``A / n``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stackfu_integration.arrays import BoolArray, FloatArray
from stackfu_integration.lab.cells import Approach, CellKey, PlanKey
from stackfu_integration.lab.mechanisms import PAPER_VIEW, VIEWS, View
from stackfu_integration.lab.report.results import RunResult

__all__ = [
    "CHOSEN_ON",
    "DATA_ALONE",
    "ENOUGH",
    "MODELS",
    "SATURATING",
    "LaterScore",
    "Score",
    "Trainings",
    "fitted",
    "gather",
    "score",
    "score_later",
]


#: A model with a sampling term limited by the loss of a model without knowledge.
SATURATING = "labels, saturating"

#: The null model: fewer samples are worse, from any client.
DATA_ALONE = "amount of data alone"

#: Name of a model and the view that it looks through; the first is the paper's.
MODELS: dict[str, View] = {
    "paper": PAPER_VIEW,
    DATA_ALONE: "labels",
    **dict(zip(VIEWS, VIEWS, strict=True)),
    SATURATING: "labels",
}

#: The saturating form was chosen, among four, on trainings of federations of seeds below this one.
CHOSEN_ON = 3

#: Samples per class from which on a training is not called thin.
ENOUGH = 5


@dataclass(frozen=True)
class Trainings:
    """The trainings of one run by one approach: one row per profile, one column per remaining client."""

    columns: FloatArray  # (profiles, clients, constants): what each constant multiplies
    changes: FloatArray  # (profiles, clients): what happened to the losses
    pilot: BoolArray  # (profiles,): which of them were pilots
    thin: BoolArray  # (profiles,): which of them had fewer than ENOUGH samples per class
    room: FloatArray | None = None  # (clients,): where the sampling term ends, if it does

    def fit(self) -> FloatArray:
        """Constants that explain these trainings best."""
        return fitted([self])

    def predict(self, constants: FloatArray) -> FloatArray:
        """Predicted changes."""
        if self.room is None:
            return np.asarray(self.columns @ constants)
        thinned = constants[1] * self.columns[..., 1]
        return np.asarray(constants[0] * self.columns[..., 0] + _limited(thinned, self.room))

    def part(self, which: BoolArray) -> Trainings:
        """Some of the profiles."""
        return Trainings(
            self.columns[which], self.changes[which], self.pilot[which], self.thin[which], self.room
        )


def _limited(thinned: FloatArray, room: FloatArray) -> FloatArray:
    """``t r / (t + r)``; nothing where there is no room or no need of it."""
    both = thinned + room
    return np.asarray(np.divide(thinned * room, both, out=np.zeros_like(both), where=both > 0))


def fitted(evidence: Sequence[Trainings]) -> FloatArray:
    """Non-negative least squares over several runs, scaled so that no constant's unit matters."""
    linear = _linear(evidence)
    return linear if evidence[0].room is None else _saturating(evidence, linear)


def _saturating(evidence: Sequence[Trainings], linear: FloatArray) -> FloatArray:
    """Least squares in C, at every A the best one, and A: the line's A is too small wherever the term saturates."""
    from scipy.optimize import minimize_scalar

    drift, thin = (np.concatenate([item.columns[..., k].ravel() for item in evidence]) for k in (0, 1))
    room = np.concatenate(
        [
            np.broadcast_to(np.asarray(item.room, dtype=np.float64), item.changes.shape).ravel()
            for item in evidence
        ]
    )
    observed = np.concatenate([item.changes.ravel() for item in evidence])
    size = float(drift @ drift)

    def at(sampling: float) -> tuple[float, FloatArray]:
        rest = observed - _limited(sampling * thin, room)
        constant = max(float(drift @ rest) / size, 0.0) if size > 0 else 0.0
        return float(((rest - constant * drift) ** 2).sum()), np.array([constant, sampling])

    # the error need not have one valley: the best of a grid over six decades, then within its neighbours
    middle = float(linear[1]) or 1.0 / max(float(np.max(item.columns[..., 1])) for item in evidence)
    grid = middle * np.geomspace(1e-2, 1e4, 61)
    best = int(np.argmin([at(value)[0] for value in grid]))
    ends = np.log(grid[[max(best - 1, 0), min(best + 1, len(grid) - 1)]])
    found = minimize_scalar(lambda power: at(float(np.exp(power)))[0], bounds=tuple(ends), method="bounded")
    return min(at(0.0), at(float(np.exp(found.x))), key=lambda pair: pair[0])[1]


def _linear(evidence: Sequence[Trainings]) -> FloatArray:
    from scipy.optimize import nnls

    design = np.concatenate([item.columns.reshape(-1, item.columns.shape[-1]) for item in evidence])
    observed = np.concatenate([item.changes.ravel() for item in evidence])
    size = np.maximum(np.linalg.norm(design, axis=0), np.finfo(np.float64).tiny)
    return np.asarray(nnls(design / size, observed)[0] / size)


def _profiles(run: RunResult, approach: Approach, kind: str) -> Iterator[tuple[FloatArray, FloatArray, bool]]:
    """Participation, losses of all clients, and whether it was a pilot; equal profiles of several budgets once."""
    pilots = run.game["pilots"][approach]
    for x, losses in zip(pilots["participation"], pilots["losses"][kind], strict=True):
        yield np.array(x), np.array(losses), True
    seen = set()
    for text in run.game["offers"]:
        cell = CellKey(approach, PlanKey.parse(text))
        if cell not in run.cells:
            continue
        x = run.plan_of(cell)["participation"]
        if tuple(x) not in seen:
            seen.add(tuple(x))
            yield (
                np.array(x),
                np.array(run.cells[cell]["losses" if kind == "own" else "pooled_losses"]),
                False,
            )


def gather(run: RunResult, approach: Approach, model: str, kind: str = "own") -> Trainings | None:
    """Return everything that one run says about a model; nothing if it has no pilots by this approach, or no such view."""
    if approach not in run.game.get("pilots", {}) or MODELS[model] not in run.game["views"]:
        return None
    sizes = np.array(run.run["sizes"], dtype=np.float64)
    remaining = np.array(run.game["remaining"])
    squared = np.array(run.game["views"][MODELS[model]]["squared_distances"])
    before = np.array(run.game["pilots"][approach]["before"][kind])

    def to_clients(amounts: FloatArray) -> FloatArray:
        z = amounts / amounts.sum()
        return np.asarray((z @ squared - 0.5 * z @ squared @ z)[remaining])

    original = to_clients(sizes)
    rows, changes, pilot, thinned = [], [], [], []
    for x, losses, is_pilot in _profiles(run, approach, kind):
        amounts = np.zeros(len(sizes))
        amounts[remaining] = x * sizes[remaining]
        drift, thin = to_clients(amounts), 1.0 / amounts.sum() - 1.0 / sizes.sum()
        if model == "paper":
            rows.append(drift[:, None])
        elif model == DATA_ALONE:
            rows.append(np.full((len(drift), 1), thin))
        else:
            rows.append(np.stack([drift - original, np.full(len(drift), thin)], axis=-1))
        changes.append((losses - before)[remaining])
        pilot.append(is_pilot)
        thinned.append(amounts.sum() < ENOUGH * run.run["classes"])
    room = np.maximum(np.log(run.run["classes"]) - before[remaining], 0.0) if model == SATURATING else None
    return Trainings(np.array(rows), np.array(changes), np.array(pilot), np.array(thinned), room)


def _ranks(predicted: FloatArray, observed: FloatArray) -> float:
    """Mean rank correlation (Spearman's) of the rows; rows that do not vary say nothing."""
    from scipy.stats import rankdata

    x, y = (rankdata(rows, axis=1) - (rows.shape[1] + 1) / 2 for rows in (predicted, observed))
    size = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    vary = size > 0
    return float(np.mean((x * y).sum(axis=1)[vary] / size[vary])) if vary.any() else float("nan")


def _r2(pairs: Sequence[tuple[FloatArray, FloatArray]]) -> float:
    """Of predictions and observations, each run's a pair."""
    if not pairs:
        return float("nan")
    guessed, seen = (np.concatenate([pair[k].ravel() for pair in pairs]) for k in (0, 1))
    total = float(((seen - seen.mean()) ** 2).sum())
    return 1.0 - float(((seen - guessed) ** 2).sum()) / total if total > 0 else float("nan")


@dataclass(frozen=True)
class Score:
    """Accuracy of a model on a set of runs.

    ``within``: rank correlation over the clients of one training; ``across``: over the trainings for one client; one
    number per run. ``r2`` predicts every run with constants of the others, ``r2_paid`` the same for mechanisms' trainings
    alone, ``r2_enough`` where samples are enough, ``r2_pilots`` a run's mechanisms with constants of its own pilots, where
    samples are enough.
    """

    within: tuple[float, ...]
    across: tuple[float, ...]
    r2: float
    r2_paid: float
    r2_enough: float
    r2_pilots: float
    constants: FloatArray  # (runs, constants), each run's from the others, where samples are enough

    @property
    def runs(self) -> int:
        """Number of runs of the score."""
        return len(self.within)


def _elsewhere(evidence: Sequence[Trainings]) -> list[FloatArray]:
    """For every run the constants that the others fit."""
    return [
        fitted([other for k, other in enumerate(evidence) if k != number]) for number in range(len(evidence))
    ]


def _predicted(
    evidence: Sequence[Trainings], constants: Sequence[FloatArray]
) -> list[tuple[FloatArray, FloatArray]]:
    return [(item.predict(fit), item.changes) for item, fit in zip(evidence, constants, strict=True)]


def score(evidence: Sequence[Trainings]) -> Score:
    """Score a model on several runs; two at least, since constants come from the others."""
    everything = _predicted(evidence, _elsewhere(evidence))
    paid = [item.part(~item.pilot) for item in evidence]
    paid = [item for item in paid if len(item.changes)]
    enough = [item.part(~item.thin) for item in evidence]
    constants = _elsewhere(enough)
    own = [
        (part.part(~part.pilot), part.part(part.pilot))
        for part in enough
        if part.pilot.any() and not part.pilot.all()
    ]
    return Score(
        within=tuple(_ranks(guess, seen) for guess, seen in everything),
        across=tuple(_ranks(guess.T, seen.T) for guess, seen in everything),
        r2=_r2(everything),
        r2_paid=_r2(_predicted(paid, _elsewhere(paid))) if len(paid) > 1 else float("nan"),
        r2_enough=_r2(_predicted(enough, constants)),
        r2_pilots=_r2([(rest.predict(pilots.fit()), rest.changes) for rest, pilots in own]),
        constants=np.array(constants),
    )


@dataclass(frozen=True)
class LaterScore:
    """Accuracy of a model with the constants of some federations on others; as :class:`Score`."""

    within: tuple[float, ...]
    r2: float
    r2_paid: float
    r2_enough: float


def score_later(known: Sequence[Trainings], new: Sequence[Trainings]) -> LaterScore:
    """Predict ``new`` with constants of ``known``; each R2 with those of trainings of its own kind."""

    def scored(
        which: Callable[[Trainings], BoolArray],
    ) -> list[tuple[FloatArray, FloatArray]]:
        fit = fitted([item.part(which(item)) for item in known])
        chosen = [item.part(which(item)) for item in new]
        return _predicted(chosen, [fit] * len(chosen))

    everything = scored(lambda item: np.ones(len(item.changes), dtype=np.bool_))
    return LaterScore(
        within=tuple(_ranks(guess, seen) for guess, seen in everything),
        r2=_r2(everything),
        r2_paid=_r2(scored(lambda item: ~item.pilot)),
        r2_enough=_r2(scored(lambda item: ~item.thin)),
    )
