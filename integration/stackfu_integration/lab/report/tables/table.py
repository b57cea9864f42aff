"""A table of plain values, and what every table is made with."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stackfu_integration.lab.intervals import mean_interval
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.statistics import FEWEST

__all__ = ["Cell", "Table", "by_group", "by_preset", "spread"]


Cell = str | float | int | None


@dataclass(frozen=True)
class Table:
    """Rows of plain values, and how to show them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """Return a Markdown table below a line of explanation."""
        lines = [f"**{self.title}** {self.note}".strip(), ""]
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("|" + "|".join("---" for _ in self.columns) + "|")
        lines += ["| " + " | ".join(_shown(value) for value in row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """Comma-separated values with a header."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return stream.getvalue()

    def json(self) -> str:
        """Return a list of records."""
        records = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return json.dumps({"title": self.title, "note": self.note, "rows": records}, indent=1) + "\n"


def _shown(value: Cell) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def spread(values: Sequence[float], digits: int, sign: bool = False, scale: float = 1.0) -> str:
    """Return mean and confidence interval as text; of fewer than five values the smallest and the largest.

    >>> spread([0.01, 0.02, 0.03, 0.04, 0.05], 1, sign=True, scale=100)
    '+3.0 ± 2.0'
    >>> spread([0.01, 0.02, 0.03], 1, sign=True, scale=100)
    '+2.0 (+1.0 to +3.0)'
    """
    if not values:
        return "–"
    scaled = [scale * v for v in values]
    mean, half = mean_interval(scaled)
    form = f"{'+' if sign else ''}.{digits}f"
    if math.isnan(half):
        return f"{mean:{form}}"
    if len(values) < FEWEST:
        return f"{mean:{form}} ({min(scaled):{form}} to {max(scaled):{form}})"
    return f"{mean:{form}} ± {half:.{digits}f}"


def by_group(results: Sequence[RunResult]) -> dict[tuple[str, float], list[RunResult]]:
    """Runs of each preset and heterogeneity, in the order in which they appear."""
    groups: dict[tuple[str, float], list[RunResult]] = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    return groups


def by_preset(results: Sequence[RunResult]) -> Iterator[tuple[str, list[RunResult]]]:
    """Runs of each preset, in the order in which presets appear."""
    for preset in dict.fromkeys(result.run["preset"] for result in results):
        yield preset, [result for result in results if result.run["preset"] == preset]
