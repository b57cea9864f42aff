"""The frontier between the four targets: side effects against cost, with forgetting and value as what a marker looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from stackfu_integration.lab.cells import CONVEX, HEAD, SCRATCH
from stackfu_integration.lab.mechanisms import AWARE, BUDGETED
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.tables.rows import APPROACHES
from stackfu_integration.lab.report.tables.targets import BETTER, RUNTIME, Standing, standings

__all__ = ["frontier_figure"]

_COLOURS: dict[str, str] = {CONVEX: "#0072b2", SCRATCH: "#d55e00", HEAD: "#999999"}
_OTHERS = "#009e73"
#: Label of a mechanism in the legend, and its marker; None without a mechanism.
_MARKED: dict[str | None, tuple[str, str]] = {
    "full": ("full participation", "s"),
    "uniform": ("uniform", "v"),
    "haipo": ("HAIPO", "^"),
    "certified": ("certified", "D"),
    "certified-finite": ("certified, finite-sample", "o"),
    "capped": ("capped", "P"),
    "simple": ("simple rules", "X"),
    None: ("no mechanism", "*"),
}


def _shape(row: Standing) -> str:
    mechanism = None if row.cell.plan is None else row.cell.plan.mechanism
    if mechanism in BUDGETED and mechanism not in (*AWARE, "uniform"):
        return _MARKED["simple"][1]
    return _MARKED.get(mechanism, _MARKED["capped"])[1]


def frontier_figure(runs: Sequence[RunResult]) -> Figure:
    """Runs with lower side effects than Retrain against processor time, game included; hollow markers do not forget.

    Small markers lose more than a point of V. Whatever lies in the shaded corner and is filled and large has everything.
    """
    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    axis: Any = figure.subplots()
    low, high = -5.0, 105.0
    corner = (100 * BETTER - low) / (high - low)
    axis.axvspan(0, RUNTIME, ymin=corner, color="#f0e442", alpha=0.25, linewidth=0)
    axis.axhline(100 * BETTER, color="grey", linewidth=0.8, linestyle="--")
    seen: dict[str, Line2D] = {}
    names = {str(approach): label for approach, label in APPROACHES.items()}
    rows = [row for row in standings(runs) if row.cpu_with_game and row.backdoor]
    for row in rows:
        better = [100 * sum(x < 0 for x in values) / len(values) for values in (row.s, row.worst_q)]
        reached = row.reached
        colour = _COLOURS.get(row.cell.method, _OTHERS)
        axis.plot(
            float(np.mean(row.cpu_with_game)),
            min(better),
            marker=_shape(row),
            markersize=10 if reached["V"] else 5,
            linestyle="none",
            color=colour,
            markerfacecolor=colour if reached["forgets"] else "white",
            alpha=0.85,
        )
        name = names.get(row.cell.method, "other methods")
        seen.setdefault(name, Line2D([], [], marker="o", linestyle="none", color=colour, label=name))
    grey: dict[str, Any] = {"linestyle": "none", "color": "#555555"}
    legend = list(seen.values())
    legend += [Line2D([], [], marker=shape, label=name, **grey) for name, shape in _MARKED.values()]
    legend += [
        Line2D([], [], marker="o", markerfacecolor="white", label="keeps the backdoor", **grey),
        Line2D([], [], marker="o", markersize=4, label="loses more than a point of V", **grey),
    ]
    axis.set_xscale("log")
    axis.set_ylim(low, high)
    axis.set_xlabel("processor time with the game / Retrain's")
    axis.set_ylabel("runs with lower S and worst Q than Retrain (%)")
    axis.grid(alpha=0.25)
    figure.legend(handles=legend, loc="outside right center", fontsize=8, frameon=False)
    count = max((len(row.s) for row in rows), default=0)
    figure.suptitle(f"{runs[0].run['preset']}: what can be had together ({count} federations)", size=10)
    return figure
