"""The figures: who participates, what a budget buys, and predicted against realised change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from stackfu.plot.name_labels import NameLabels, chosen
from stackfu_integration.lab.cells import CONVEX, HEAD, Approach, CellKey, PlanKey
from stackfu_integration.lab.intervals import mean_interval
from stackfu_integration.lab.mechanisms import DRAWN, MECHANISMS
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.storage import write_with

__all__ = ["budget_figure", "participation_figure", "prediction_figure", "save"]

_plain = FuncFormatter(lambda value, position: f"{value:g}")


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and as SVG; without dates or random numbers, equal data gives equal files."""
    with matplotlib.rc_context({"svg.hashsalt": "stackfu-lab"}):
        return [
            write_with(
                path.with_name(f"{path.name}.{kind}"),
                lambda stream, kind=kind: figure.savefig(  # type: ignore[misc]
                    stream,
                    format=kind,
                    dpi=150,
                    metadata={"Date": None} if kind == "svg" else {"Software": None},
                ),
            )
            for kind in ("png", "svg")
        ]


def _title(run: RunResult) -> str:
    return f"{run.run['preset']}, β = {run.run['beta']:g}, seed {run.run['seed']}"


def _forgets(runs: Sequence[RunResult]) -> Approach:
    """Convex heads where all runs have them: what the figures show should have forgotten."""
    full = CellKey(CONVEX, PlanKey.full())
    return CONVEX if all(full in run.cells for run in runs) else HEAD


def participation_figure(run: RunResult, mechanisms: Sequence[str] = ()) -> Figure:
    """Data share against heterogeneity to the removed clients; area is payment, fill is participation."""
    mechanisms = mechanisms or [m for m in DRAWN if str(run.main_plan(m)) in run.game["offers"]]
    figure = Figure(figsize=(3.3 * len(mechanisms), 3.9), layout="constrained")
    axes: Any = figure.subplots(1, len(mechanisms), sharex=True, sharey=True, squeeze=False)[0]
    share = 100 * np.array(run.game["alpha"])
    heterogeneity = np.array(run.game["heterogeneity"])
    plans = {m: run.plan(run.main_plan(m)) for m in mechanisms}
    # Area shows what a client is actually paid, p_i x_i, on one scale for all panels.
    paid = {m: np.multiply(plan["payments"], plan["participation"]) for m, plan in plans.items()}
    largest = max(float(np.max(p)) for p in paid.values()) or 1.0
    for axis, mechanism in zip(axes, mechanisms, strict=True):
        plan, colour = plans[mechanism], MECHANISMS[mechanism].colour
        area = 40 + 460 * paid[mechanism] / largest
        axis.scatter(heterogeneity, share, s=area, facecolors="white", edgecolors=colour, linewidths=1.3)
        for k, x in enumerate(plan["participation"]):
            if x > 0:
                alpha = 0.15 + 0.75 * x
                axis.scatter(
                    heterogeneity[k], share[k], s=area[k], facecolors=colour, edgecolors="none", alpha=alpha
                )
        places, radii = np.column_stack([heterogeneity, share]), 0.55 * np.sqrt(area)
        order, _ = chosen(
            True, [str(k) for k in run.game["remaining"]], np.maximum(area / area.max(), share / share.max())
        )
        NameLabels(
            axis, [str(run.game["remaining"][k]) for k in order], places[order], radii[order], [False] * len(order),
            markers=places, marker_radii=radii, forced=False, edge=colour, size=8,
        )  # fmt: skip
        spends = f"spends {plan['spend']:.2f} of {plan['budget']:.2f}"
        axis.set_title(f"{MECHANISMS[mechanism].caption}\n{spends}", size=9)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(_plain)
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("heterogeneity ‖μᵢ − μ_R‖")
        axis.margins(0.15)
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("share of the remaining data (%)")
    figure.suptitle(_title(run), size=10)
    grey = {"marker": "o", "linestyle": "none", "color": "grey"}
    legend = [
        Line2D([], [], markersize=6, markerfacecolor="white", label="stays out", **grey),  # type: ignore[arg-type]
        Line2D([], [], markersize=6, alpha=0.9, label="takes part (darker: more)", **grey),  # type: ignore[arg-type]
        Line2D([], [], markersize=12, alpha=0.9, label=f"larger: paid more (up to {largest:.2f})", **grey),  # type: ignore[arg-type]
    ]
    figure.legend(handles=legend, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def prediction_figure(runs: Sequence[RunResult], approach: Approach | None = None) -> Figure:
    """Predicted against realised change of every remaining client of every run, one panel per beta."""
    approach = approach or _forgets(runs)
    betas = sorted({run.run["beta"] for run in runs})
    figure = Figure(figsize=(3.5 * len(betas), 3.6), layout="constrained")
    axes: Any = figure.subplots(1, len(betas), sharey=True, squeeze=False)[0]
    for axis, beta in zip(axes, betas, strict=True):
        for mechanism in DRAWN:
            points: list[tuple[float, float]] = []
            for run in runs:
                cell = CellKey(approach, run.main_plan(mechanism))
                if run.run["beta"] == beta and cell in run.cells:
                    plan = run.plan_of(cell)
                    points += zip(
                        plan.get("changes", plan["impacts"]), run.cells[cell]["q_loss"], strict=True
                    )
            if points:
                u, q = np.array(points).T
                axis.scatter(
                    u,
                    q,
                    s=18,
                    color=MECHANISMS[mechanism].colour,
                    alpha=0.7,
                    label=MECHANISMS[mechanism].caption,
                )
        axis.axhline(0, color="grey", linewidth=0.8)
        axis.set_title(f"β = {beta:g}", size=10)
        axis.set_xlabel("predicted Qᵢ")
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("realised Qᵢ (loss)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.suptitle(f"{runs[0].run['preset']}: predicted and realised change of each client", size=10)
    return figure


def budget_figure(runs: Sequence[RunResult]) -> Figure:
    """Draw predicted server loss and realised S and worst Q against the budget, one column per beta."""
    betas = sorted({run.run["beta"] for run in runs})
    quantities = ("predicted server loss", "realised S (loss)", "realised worst Q (loss)")
    figure, approach = Figure(figsize=(3.4 * len(betas), 7.2), layout="constrained"), _forgets(runs)
    axes: Any = figure.subplots(3, len(betas), sharex=True, sharey="row", squeeze=False)
    for column, beta in enumerate(betas):
        chosen = [run for run in runs if run.run["beta"] == beta]
        fractions = sorted(chosen[0].run["settings"]["budgets"])
        for shift, mechanism in enumerate(DRAWN):
            if not any(CellKey(approach, run.main_plan(mechanism)) in run.cells for run in chosen):
                continue
            values: list[list[list[float]]] = [[], [], []]
            for fraction in fractions:
                cell = CellKey(approach, PlanKey(mechanism, fraction))
                present = [run for run in chosen if cell in run.cells]
                values[0].append([run.plan_of(cell)["server_loss"] for run in present])
                values[1].append([run.cells[cell]["s_loss"] for run in present])
                values[2].append([run.cells[cell]["q_loss_worst"] for run in present])
            # side by side, so that bars do not hide each other
            where = np.array(fractions) * (1 + 0.03 * (shift - (len(DRAWN) - 1) / 2))
            for row in range(3):
                means = [mean_interval(v)[0] for v in values[row]]
                low = [m - min(v) for m, v in zip(means, values[row], strict=True)]
                high = [max(v) - m for m, v in zip(means, values[row], strict=True)]
                axes[row, column].errorbar(
                    where,
                    means,
                    yerr=[low, high],
                    color=MECHANISMS[mechanism].colour,
                    marker="o",
                    markersize=4,
                    capsize=2,
                    linewidth=1.2,
                    label=MECHANISMS[mechanism].caption,
                )
        axes[0, column].set_title(f"β = {beta:g}", size=10)
        axes[2, column].set_xlabel("budget / full price")
    for row, quantity in enumerate(quantities):
        axes[row, 0].set_ylabel(quantity)
        for axis in axes[row]:
            axis.grid(alpha=0.25)
    axes[0, 0].set_yscale("log")
    axes[0, 0].yaxis.set_major_formatter(_plain)
    axes[0, 0].yaxis.set_minor_formatter(NullFormatter())
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.suptitle(f"{runs[0].run['preset']}: what a budget buys\n(mean, lowest and highest seed)", size=10)
    return figure
