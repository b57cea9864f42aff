"""How well a game predicts what happens: every model beside the others, on the same trainings.

A training with participation x has the mixture m and n_used samples. From the squared distances between clients,
``d_k^2(m) = sum_j z_j D_jk - 1/2 sum_ij z_i z_j D_ij``, every model's prediction follows:

    paper        Q_k = C d_k^2(m)
    features, labels, joint
                 Q_k = C [d_k^2(m) - d_k^2(mu_O)] + A (1 / n_used - 1 / n_O)

in the view that the model is named by. Constants are least squares with C, A >= 0, from trainings that are not predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stackfu_integration.lab.cells import Approach, CellKey, PlanKey
from stackfu_integration.lab.report.results import RunResult

__all__ = ["MODELS", "Evidence", "Score", "gather", "score"]

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

#: Name of a model and the view that it looks through; the first is the paper's.
MODELS = {"paper": "features", "features": "features", "labels": "labels", "joint": "joint"}


@dataclass(frozen=True)
class Evidence:
    """The trainings of one run by one approach: one row per profile, one column per remaining client."""

    columns: FloatArray  # (profiles, clients, constants): what each constant multiplies
    changes: FloatArray  # (profiles, clients): what happened to the losses
    pilot: np.ndarray[Any, np.dtype[np.bool_]]  # (profiles,): which of them were pilots

    def fit(self) -> FloatArray:
        """Constants that explain these trainings best."""
        return fitted([self])

    def predict(self, constants: FloatArray) -> FloatArray:
        """Predicted changes."""
        return np.asarray(self.columns @ constants)

    def part(self, which: np.ndarray[Any, np.dtype[np.bool_]]) -> Evidence:
        """Some of the profiles."""
        return Evidence(self.columns[which], self.changes[which], self.pilot[which])


def fitted(evidence: Sequence[Evidence]) -> FloatArray:
    """Non-negative least squares over several runs, scaled so that no constant's unit matters."""
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


def gather(run: RunResult, approach: Approach, model: str, kind: str = "own") -> Evidence | None:
    """Everything that one run says about a model; nothing if it has no pilots by this approach."""
    if approach not in run.game.get("pilots", {}):
        return None
    sizes = np.array(run.run["sizes"], dtype=np.float64)
    remaining = np.array(run.game["remaining"])
    squared = np.array(run.game["views"][MODELS[model]]["squared_distances"])
    before = np.array(run.game["pilots"][approach]["before"][kind])

    def to_clients(amounts: FloatArray) -> FloatArray:
        z = amounts / amounts.sum()
        return np.asarray((z @ squared - 0.5 * z @ squared @ z)[remaining])

    original = to_clients(sizes)
    rows, changes, pilot = [], [], []
    for x, losses, is_pilot in _profiles(run, approach, kind):
        amounts = np.zeros(len(sizes))
        amounts[remaining] = x * sizes[remaining]
        drift, thin = to_clients(amounts), 1.0 / amounts.sum() - 1.0 / sizes.sum()
        if model == "paper":
            rows.append(drift[:, None])
        else:
            rows.append(np.stack([drift - original, np.full(len(drift), thin)], axis=-1))
        changes.append((losses - before)[remaining])
        pilot.append(is_pilot)
    return Evidence(np.array(rows), np.array(changes), np.array(pilot))


def _spearman(a: FloatArray, b: FloatArray) -> float:
    from scipy.stats import rankdata

    x, y = rankdata(a) - (len(a) + 1) / 2, rankdata(b) - (len(b) + 1) / 2
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / size if size > 0 else float("nan")


def _ranks(predicted: FloatArray, observed: FloatArray) -> float:
    """Mean rank correlation of the rows; rows that do not vary say nothing."""
    found = [_spearman(a, b) for a, b in zip(predicted, observed, strict=True)]
    known = [value for value in found if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _r2(predicted: Sequence[FloatArray], observed: Sequence[FloatArray]) -> float:
    flat, seen = np.concatenate([p.ravel() for p in predicted]), np.concatenate([o.ravel() for o in observed])
    total = float(((seen - seen.mean()) ** 2).sum())
    return 1.0 - float(((seen - flat) ** 2).sum()) / total if total > 0 else float("nan")


@dataclass(frozen=True)
class Score:
    """What a model is worth on a set of runs.

    ``within``: rank correlation over the clients of one training; ``across``: over the trainings for one client; one
    number per run. ``r2`` predicts every run with constants of the others, ``r2_pilots`` a run's mechanisms with
    constants of its own pilots.
    """

    within: tuple[float, ...]
    across: tuple[float, ...]
    r2: float
    r2_pilots: float
    constants: FloatArray  # (runs, constants), each run's from the others

    @property
    def runs(self) -> int:
        """How many runs it was scored on."""
        return len(self.within)


def score(evidence: Sequence[Evidence]) -> Score:
    """Score a model on several runs; two at least, since constants come from the others."""
    within, across, constants, predicted = [], [], [], []
    own: list[tuple[FloatArray, FloatArray]] = []
    for number, item in enumerate(evidence):
        fit = fitted([other for k, other in enumerate(evidence) if k != number])
        guess = item.predict(fit)
        within.append(_ranks(guess, item.changes))
        across.append(_ranks(guess.T, item.changes.T))
        constants.append(fit)
        predicted.append(guess)
        paid = item.part(~item.pilot)
        own.append((paid.predict(item.part(item.pilot).fit()), paid.changes))
    return Score(
        tuple(within),
        tuple(across),
        _r2(predicted, [item.changes for item in evidence]),
        _r2([p for p, _ in own], [o for _, o in own]),
        np.array(constants),
    )
