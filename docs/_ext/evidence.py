"""Make tables and figures of the experiments' results for the pages; needs neither Sphinx nor torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "integration" / "results"
sys.path.insert(0, str(ROOT / "integration"))

from matplotlib.figure import Figure

from stackfu_integration.lab.report import (
    TABLES,
    RunResult,
    Table,
    budget_figure,
    frontier_figure,
    load_results,
    participation_figure,
    prediction_figure,
)

FIGURES = {
    "budget": budget_figure,
    "frontier": frontier_figure,
    "prediction": prediction_figure,
    # one run: of a preset's, the first seed of the most heterogeneous partition
    "participation": lambda runs: participation_figure(runs[0]),
}


@cache
def measured() -> tuple[RunResult, ...]:
    """Every committed run, ordered by preset, beta and seed."""
    return tuple(load_results(RESULTS))


def all_presets() -> list[str]:
    """The presets that were run."""
    return list(dict.fromkeys(run.run["preset"] for run in measured()))


def selected(presets: Sequence[str] = (), betas: Sequence[float] = ()) -> list[RunResult]:
    """The runs of some presets and betas, in the order in which the presets are named; all of them by default."""
    known = {run.run["preset"] for run in measured()}, {run.run["beta"] for run in measured()}
    for asked, there in zip((presets, betas), known, strict=True):
        if unknown := [value for value in asked if value not in there]:
            raise ValueError(f"no run of {unknown} among the results")
    return [
        run
        for preset in presets or all_presets()
        for run in measured()
        if run.run["preset"] == preset and (not betas or run.run["beta"] in betas)
    ]


@cache
def _whole(name: str, presets: tuple[str, ...], betas: tuple[float, ...]) -> Table:
    """A table of the report with all that it has; several pages ask for parts of one."""
    return TABLES[name](selected(presets, betas))


def table(
    name: str,
    presets: Sequence[str] = (),
    betas: Sequence[float] = (),
    where: Mapping[str, Sequence[str]] | None = None,
    columns: Sequence[str] = (),
) -> Table:
    """A table of the report, made from some presets and betas, with the rows and columns that a page wants.

    Columns that the choice makes constant (the preset, if one is asked for) are said once, in the note.
    """
    if name not in TABLES:
        raise ValueError(f"no table {name!r}; there are {', '.join(TABLES)}")
    whole = _whole(name, tuple(presets), tuple(betas))
    if unknown := {*columns, *(where or {})} - set(whole.columns):
        raise ValueError(f"table {name!r} has no column {', '.join(sorted(unknown))}")
    place = {column: i for i, column in enumerate(whole.columns)}
    rows = [row for row in whole.rows if all(row[place[c]] in values for c, values in (where or {}).items())]
    fixed = {column: values[0] for column, values in (where or {}).items() if len(values) == 1}
    if len(presets) == 1:
        fixed["preset"] = presets[0]
    if len(betas) == 1:
        fixed["β"] = f"{betas[0]:g}"
    fixed = {column: value for column, value in fixed.items() if column in place}
    shown = [c for c in (columns or whole.columns) if c not in fixed]
    said = "; ".join(f"{column} = {value}" for column, value in fixed.items() if column != "preset")
    return replace(
        whole,
        columns=tuple(shown),
        rows=tuple(tuple(row[place[c]] for c in shown) for row in rows),
        note=f"{whole.note} Here: {said}." if said else whole.note,
    )


def figure(kind: str, preset: str) -> Figure:
    """A figure of the report for one preset."""
    if kind not in FIGURES:
        raise ValueError(f"no figure {kind!r}; there are {', '.join(FIGURES)}")
    return FIGURES[kind](selected([preset]))
