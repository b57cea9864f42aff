"""Read runs back: from their folders, or from the single files they were collected into."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.lab.cells import CellKey, PlanKey
from stackfu_integration.storage import write_text

__all__ = ["RunResult", "collect", "load_results"]


@dataclass(frozen=True)
class RunResult:
    """One run: its description, its game and its cells; methods that diverged have a message instead."""

    name: str
    run: dict[str, Any]
    game: dict[str, Any]
    cells: dict[CellKey, dict[str, Any]]
    diverged: dict[CellKey, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, run: dict[str, Any], game: dict[str, Any], stored: dict[str, dict[str, Any]]
    ) -> RunResult:
        """From all stored cells, by the names that their files have."""
        cells = {CellKey.parse(text): cell for text, cell in stored.items()}
        failed = {key: cell["diverged"] for key, cell in cells.items() if "diverged" in cell}
        return cls(name, run, game, {k: c for k, c in cells.items() if k not in failed}, failed)

    @property
    def group(self) -> tuple[str, float]:
        """Preset and beta: the key of averages over seeds."""
        return self.run["preset"], self.run["beta"]

    @property
    def main_budget(self) -> float:
        """Fraction of the full price at which the tables compare mechanisms."""
        return float(self.run["settings"]["budgets"][0])

    def main_plan(self, mechanism: str) -> PlanKey:
        """Return a mechanism at the main budget."""
        return PlanKey(mechanism, self.main_budget)

    def plan(self, key: PlanKey) -> dict[str, Any]:
        """Return a mechanism's payments at a budget, and the resulting participation."""
        plan: dict[str, Any] = self.game["offers"][str(key)]
        return plan

    def plan_of(self, cell: CellKey) -> dict[str, Any]:
        """Return the payments that a cell's participation came from."""
        return self.plan(PlanKey.parse(self.cells[cell]["offer"]))


def _from_folder(folder: Path) -> RunResult:
    try:
        run, game = (json.loads((folder / name).read_text()) for name in ("run.json", "game.json"))
        cells = {}
        for path in sorted(folder.glob("*.json")):
            stored = json.loads(path.read_text())
            if isinstance(stored, dict) and "cell" in stored:
                cells[stored["cell"]] = stored
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{folder}: not a finished run ({error!r})") from error
    return RunResult.of(folder.name, run, game, cells)


def _from_file(path: Path) -> RunResult:
    try:
        stored = json.loads(path.read_text())
        return RunResult.of(path.stem, stored["run"], stored["game"], stored["cells"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path}: not a collected run ({error!r})") from error


def load_results(path: Path) -> list[RunResult]:
    """Read a run's folder, a collected file, or a folder of either, ordered by preset, beta and seed."""
    if path.is_file():
        return [_from_file(path)]
    if (path / "run.json").is_file():
        return [_from_folder(path)]
    results = [_from_folder(item.parent) for item in sorted(path.glob("*/run.json"))]
    results += [_from_file(item) for item in sorted(path.glob("*-b*-s*.json"))]
    if not results:
        raise InputError("runs", "holds no runs", value=path)
    return sorted(results, key=lambda r: (r.run["preset"], r.run["beta"], r.run["seed"]))


def collect(runs: Path, out: Path) -> list[Path]:
    """Write every run as one compact JSON file, for keeping."""
    written = []
    for result in load_results(runs):
        cells = {str(key): cell for key, cell in result.cells.items()}
        failed = {str(k): {"cell": str(k), "diverged": message} for k, message in result.diverged.items()}
        value = {"run": result.run, "game": result.game, "cells": {**cells, **failed}}
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
        written.append(write_text(out / f"{result.name}.json", text + "\n"))
    return written
