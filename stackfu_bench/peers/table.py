"""Rows of a table of ratios, and the two ways to measure what goes into them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
    tasks: Mapping[str, Callable[[], object]],
    repeats: int,
    seconds: float = 60.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Best time of each task, the tasks taking turns so that a busy machine is unfair to all of them alike.

    Every task runs once before the clock starts (compilation, caches). A task that has used up its share of
    ``seconds`` drops out of further rounds. With ``clock=time.process_time`` the time that other processes
    take does not count; compare single-threaded tasks with it.
    """
    best = dict.fromkeys(tasks, float("inf"))
    used = dict.fromkeys(tasks, 0.0)
    for run in tasks.values():
        run()
    for _ in range(repeats):
        for name, run in tasks.items():
            if used[name] > seconds / len(tasks):
                continue
            wait_for_quiet()
            start, began = clock(), time.perf_counter()
            run()
            best[name] = min(best[name], clock() - start)
            used[name] += time.perf_counter() - began
    return best


def wait_for_quiet(seconds: float = 0.1) -> None:
    """Wait until nothing else is running, but no longer than ``seconds``."""
    loads = Path("/proc/loadavg")
    deadline = time.monotonic() + seconds
    while loads.exists() and time.monotonic() < deadline:
        if int(loads.read_text().split()[3].split("/")[0]) <= 1:  # this process itself
            return
        time.sleep(0.01)


def busy(seconds: float = 3.0) -> bool:
    """Return True if other processes use more than a fifth of a core."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return False

    def idle_and_total() -> tuple[int, int]:
        fields = [int(x) for x in stat.read_text().splitlines()[0].split()[1:9]]
        return fields[3] + fields[4], sum(fields)

    idle, total = idle_and_total()
    time.sleep(seconds)
    idle_now, total_now = idle_and_total()
    used = 1 - (idle_now - idle) / (total_now - total)
    return used * (os.cpu_count() or 1) > 0.2


def fitted_exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Slope of log time against log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
