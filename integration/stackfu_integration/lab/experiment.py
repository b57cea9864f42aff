"""Run experiments cell by cell; a finished cell is one JSON file and is never computed twice.

A *run* is a preset at one heterogeneity ``beta`` and one seed: partition, training, game. A *cell* is one
unlearned model of that run with everything measured about it. Runs live in folders; killing the process loses
at most the cell that was being computed, and the rounds of training since the last checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stackfu.game import StackelbergGame
from stackfu_integration.lab.cells import Approach
from stackfu_integration.lab.mechanisms import View
from stackfu_integration.lab.pilots import Pilots
from stackfu_integration.lab.runs.materials import Materials
from stackfu_integration.lab.runs.playing import Playing, pilot_plan
from stackfu_integration.lab.runs.run import Run
from stackfu_integration.lab.runs.source import Reporter, Settings, Source, run_name
from stackfu_integration.lab.runtime import single_thread

__all__ = ["CalibrationRun", "Experiment", "Reporter", "Settings", "run_name"]


@dataclass
class Experiment(Source):
    """A preset with its settings, its data and its folders."""

    def propose_pilots(self, beta: float, seed: int) -> str:
        """Return the participation that :meth:`calibrate` gives its pilots, one line each; nothing is trained."""
        rows = pilot_plan(Materials(self, beta, seed))
        return "\n".join(f"pilot {p}: " + " ".join(f"{x:.2f}" for x in row) for p, row in enumerate(rows))

    def calibrate(self, beta: float, seed: int) -> CalibrationRun:
        """Train one federation and its pilots, and return the game in every view with them; nothing is unlearned."""
        with single_thread():
            materials = Materials(self, beta, seed)
            materials.describe()
            playing = Playing(materials)
            return CalibrationRun(materials.folder, playing.views, playing.pilots)

    def run(self, beta: float, seed: int) -> Path:
        """Compute all cells of one run that do not exist yet and return its folder."""
        with single_thread():
            run = Run(self, beta, seed)
            run.complete()
            return run.materials.folder


@dataclass(frozen=True)
class CalibrationRun:
    """The games of a federation with C = 1 and A = 0, and what pilot trainings in it showed."""

    folder: Path
    views: dict[View, StackelbergGame]
    pilots: dict[Approach, Pilots]
