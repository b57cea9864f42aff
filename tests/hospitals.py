"""A federation of 25 hospitals as its data arrives: one table of laboratory values with gaps, one table of costs in euros.

Forty columns on scales from 0.01 to 100,000, some of them skewed, with gaps in every one of them; hospitals of very different
sizes and mixtures of patients, one of which (Wells) sent a single row; names with spaces and a comma. All values are drawn from a
seed.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TOWNS = (
    "Bath", "Bristol", "Derby", "Durham", "Ely", "Exeter", "Hereford", "Kingston upon Hull, City of", "Lancaster", "Leeds",
    "Lichfield", "Lincoln", "New York", "Norwich", "Oxford", "Preston", "Ripon", "Salford", "Selby", "St Albans", "Truro",
    "Wakefield", "Wells", "Winchester", "York",
)  # fmt: skip
LONELY = "Wells"
REMOVED = ("Leeds", "Exeter")
LABS = 40
#: Share of the cells that are empty; every column has some.
GAPS = 0.004
#: Euros for preparing all data of a hospital: a fixed effort, and one per row.
FIXED, PER_ROW = 400.0, 9.0


@dataclass(frozen=True)
class Hospitals:
    """The federation as arrays, and as the text of its two tables."""

    names: tuple[str, ...]
    samples: dict[str, np.ndarray]
    columns: tuple[str, ...]
    costs: dict[str, float]

    @property
    def gaps(self) -> dict[str, np.ndarray]:
        """Missing values, True where there is one, per hospital."""
        return {name: np.isnan(values) for name, values in self.samples.items()}

    @property
    def rows_with_gaps(self) -> int:
        """Number of rows that are not complete."""
        return int(sum(hole.any(axis=1).sum() for hole in self.gaps.values()))

    def samples_csv(self) -> str:
        """The table of samples, in the order of visits: rows of hospitals are mixed."""
        rows = [(name, row) for name in self.names for row in self.samples[name]]
        order = np.random.default_rng(1).permutation(len(rows))
        return _csv(
            ["hospital", *self.columns],
            ([rows[i][0], *("" if np.isnan(v) else f"{v:.6g}" for v in rows[i][1])] for i in order),
        )

    def costs_csv(self) -> str:
        """The table of costs, of all hospitals and in another order."""
        return _csv(["client", "cost"], ([name, f"{self.costs[name]:.2f}"] for name in reversed(self.names)))

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write both tables into a folder and return their paths."""
        paths = folder / "hospitals.csv", folder / "costs.csv"
        for path, text in zip(paths, (self.samples_csv(), self.costs_csv()), strict=True):
            path.write_text(text)
        return paths


def _csv(head, rows) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def hospitals(seed: int = 7) -> Hospitals:
    """Return the federation of a seed."""
    rng = np.random.default_rng(seed)
    columns = tuple(f"lab_{j:02d}" for j in range(LABS))
    scales = 10.0 ** rng.uniform(-2, 5, LABS)
    skewed = rng.random(LABS) < 0.3
    # three kinds of patients, seen by every hospital in shares of its own
    kinds = rng.normal(size=(3, LABS))
    samples = {}
    for name in TOWNS:
        count = 1 if name == LONELY else int(rng.integers(40, 260))
        kind = rng.choice(3, size=count, p=rng.dirichlet(np.full(3, 0.6)))
        values = kinds[kind] + 0.3 * rng.normal(size=LABS) + rng.normal(size=(count, LABS))
        values = np.where(skewed, np.exp(0.5 * values), 5.0 + values) * scales
        values[rng.random(values.shape) < GAPS] = np.nan
        samples[name] = values
    for j in range(LABS):  # every column has a gap, and the single row of one hospital has two
        samples["York"][j % len(samples["York"]), j] = np.nan
    samples[LONELY][0, [3, 17]] = np.nan
    costs = {name: round(FIXED + PER_ROW * len(samples[name]) * rng.uniform(0.7, 1.4), 2) for name in TOWNS}
    return Hospitals(TOWNS, samples, columns, costs)
