"""Paired comparisons of two methods over federations, and what many of them together prove.

One comparison and one quantity are named before the runs (:data:`PRIMARY`); its p-value stands as it is. All other comparisons
of a table are corrected together by the procedure of Benjamini and Hochberg (1995). A run in which a method diverged counts as
lost for that method: its difference is infinite, which a test on ranks can take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stackfu_integration.arrays import FloatArray
from stackfu_integration.lab.cells import CellKey
from stackfu_integration.lab.intervals import mean_interval
from stackfu_integration.lab.mechanisms import CAPPED_LABELS, SAME_SHARE
from stackfu_integration.lab.report.results import RunResult

__all__ = ["FEWEST", "POOLED", "PRIMARY", "Paired", "benjamini_hochberg", "corrected", "paired", "realised"]

#: The comparison chosen in advance: capped offers in the labels view against the same share for all, convex
#: heads, main budget, in V + S.
PRIMARY = (CAPPED_LABELS, SAME_SHARE, "V + S")

#: Federations from which on an interval or a p-value is shown.
FEWEST = 5

#: Quantities of a cell, in loss; smaller is better.
_QUANTITIES = {
    "V": ("v_loss",),
    "S": ("s_loss",),
    "V + S": ("v_loss", "s_loss"),
    "worst Q": ("q_loss_worst",),
}


#: V + S on the test samples of all clients, up to a constant of the run that differences do not contain.
POOLED = "V + S, pooled"


def realised(run: RunResult, cell: CellKey, quantity: str) -> float | None:
    """Return a quantity of a cell, infinity where the method diverged, nothing where it was not run.

    Quantities are "V", "S", "V + S" and "worst Q", on each client's own test samples, and :data:`POOLED`.
    """
    if cell in run.diverged:
        return float("inf")
    if cell not in run.cells:
        return None
    if quantity == POOLED:
        return _pooled(run, run.cells[cell]["pooled_losses"])
    return float(sum(run.cells[cell][key] for key in _QUANTITIES[quantity]))


def _pooled(run: RunResult, losses: Sequence[float]) -> float:
    """Sum of the mean losses of the remaining and of all clients, weighted by data size."""
    sizes = np.array(run.run["sizes"], dtype=np.float64)
    stay = np.delete(np.arange(len(sizes)), run.run["removed"])
    values = np.asarray(losses, dtype=np.float64)
    return float(np.average(values[stay], weights=sizes[stay]) + np.average(values, weights=sizes))


@dataclass(frozen=True)
class Paired:
    """Differences of two methods, one per federation; negative is better for the first."""

    differences: FloatArray

    @property
    def count(self) -> int:
        """Number of federations."""
        return len(self.differences)

    @property
    def better(self) -> int:
        """Federations in which the first was better."""
        return int((self.differences < 0).sum())

    @property
    def diverged(self) -> int:
        """Federations in which one of the two diverged."""
        return int(np.isinf(self.differences).sum())

    @property
    def interval(self) -> tuple[float, float]:
        """Mean and half-width over the federations in which neither diverged; no half-width (NaN) below five of them."""
        finite = self.differences[np.isfinite(self.differences)]
        mean, half = mean_interval(finite.tolist()) if len(finite) else (float("nan"), float("nan"))
        return mean, half if len(finite) >= FEWEST else float("nan")

    @property
    def p(self) -> float | None:
        """Two-sided p-value of Wilcoxon's signed-rank test; none below five federations."""
        from scipy.stats import wilcoxon

        if self.count < FEWEST or not np.any(self.differences):
            return None
        # infinite differences get the largest ranks
        finite = np.abs(self.differences[np.isfinite(self.differences)])
        top = 2.0 * (float(finite.max()) if len(finite) else 1.0) + 1.0
        return float(wilcoxon(np.clip(self.differences, -top, top)).pvalue)


def paired(runs: Sequence[RunResult], first: CellKey, second: CellKey, quantity: str) -> Paired:
    """Compare two cells over the runs that have both; runs in which both diverged say nothing."""
    found = []
    for run in runs:
        a, b = realised(run, first, quantity), realised(run, second, quantity)
        if a is not None and b is not None and not (np.isinf(a) and np.isinf(b)):
            found.append(a - b)
    return Paired(np.array(found, dtype=np.float64))


def benjamini_hochberg(values: Sequence[float | None]) -> list[float | None]:
    """Return q-values: the smallest false discovery rate at which each p-value is still significant.

    >>> benjamini_hochberg([0.01, 0.04, None, 0.03])
    [0.03, 0.04, None, 0.04]
    """
    known = sorted((p, k) for k, p in enumerate(values) if p is not None)
    found: list[float | None] = [None] * len(values)
    least = 1.0
    for rank in range(len(known), 0, -1):
        p, k = known[rank - 1]
        least = min(least, p * len(known) / rank)
        found[k] = least
    return found


def corrected(families: Sequence[object], values: Sequence[float | None]) -> list[float | None]:
    """Return the q-values of p-values that are corrected family by family: one family per preset of a table.

    >>> corrected(["a", "a", "b"], [0.01, 0.04, 0.03])
    [0.02, 0.04, 0.03]
    """
    found: list[float | None] = [None] * len(values)
    for family in dict.fromkeys(families):
        places = [k for k, name in enumerate(families) if name == family]
        for k, q in zip(places, benjamini_hochberg([values[k] for k in places]), strict=True):
            found[k] = q
    return found
