"""Rows of a table of ratios, and the two ways to measure what goes into them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Row:
    """One task done by stackfu, and by a peer in the same run.

    ``ratio`` is peer / ours in ``unit``: above 1 the peer takes more. ``target`` is the ratio aimed at, if
    any.
    """

    task: str
    peer: str
    ours: float
    theirs: float
    unit: str = "s"
    target: float | None = None
    note: str = ""
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours


def interleaved(
    tasks: Mapping[str, Callable[[], object]], repeats: int, seconds: float = 60.0
) -> dict[str, float]:
    """Best time of each task, the tasks taking turns so that a busy machine is unfair to all of them alike.

    Every task runs once before the clock starts (compilation, caches). A task that has used up its share of
    ``seconds`` drops out of further rounds.
    """
    best = dict.fromkeys(tasks, float("inf"))
    used = dict.fromkeys(tasks, 0.0)
    for run in tasks.values():
        run()
    for _ in range(repeats):
        for name, run in tasks.items():
            if used[name] > seconds / len(tasks):
                continue
            start = time.perf_counter()
            run()
            elapsed = time.perf_counter() - start
            best[name] = min(best[name], elapsed)
            used[name] += elapsed
    return best


def fitted_exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Slope of log time against log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
