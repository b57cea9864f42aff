"""Published runs, extended by what they were computed without: mechanisms and methods that came later.

A collected run holds its game, its pilots and its cells, but no weights. Partition and training are functions of the seed, so
that they are made again and compared with what the file says before anything is added; only missing plans and cells are
computed, and the file is replaced by one that has them all.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stackfu.errors import FileFormatError
from stackfu_integration.lab.cells import ANSWERED, FEDERASER, HEAD, ORIGINAL, SCRATCH, CellKey
from stackfu_integration.lab.experiment import Experiment, Reporter, Settings
from stackfu_integration.lab.payments import warm_up
from stackfu_integration.lab.presets import Preset, preset
from stackfu_integration.lab.report.results import RunResult, collect, load_results
from stackfu_integration.lab.runs.materials import Materials
from stackfu_integration.storage import write_json

__all__ = ["Extension"]

#: Largest difference between a stored loss and that of the same training made again, relative to the loss.
SAME = 1e-4


@dataclass
class Extension:
    """Runs of one preset in ``results``, unpacked below ``work`` and collected again as they are completed."""

    results: Path
    work: Path
    cache: Path
    data_root: Path | None = None
    reporter: Reporter = field(default_factory=Reporter)

    def stored(self, name: str) -> list[RunResult]:
        """Return the collected runs of a preset."""
        return [run for run in load_results(self.results) if run.run["preset"] == name]

    def extend(self, run: RunResult) -> Path:
        """Compute what a run lacks and write the completed file."""
        chosen = _as_it_was(run)
        stored: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in run.run["settings"].items()
            if key in Settings.__dataclass_fields__
        }
        settings = Settings(**stored)
        made = Experiment(chosen, settings, self.work, self.cache, self.data_root, reporter=self.reporter)
        made.prepare()
        warm_up()
        materials = Materials(made, run.run["beta"], run.run["seed"])
        if not (materials.folder / "run.json").is_file():
            self._unpack(run, materials)
        folder = made.run(run.run["beta"], run.run["seed"])
        (path,) = collect(folder, self.results)
        return path

    def _unpack(self, run: RunResult, materials: Materials) -> None:
        """Write a collected run as the folder that it was collected from, after checking that it can be made again."""
        folder = materials.folder
        shutil.rmtree(folder, ignore_errors=True)
        _same(run, materials)
        cells = {str(key): cell for key, cell in run.cells.items()}
        cells |= {str(key): {"cell": str(key), "diverged": text} for key, text in run.diverged.items()}
        for name, cell in cells.items():
            write_json(folder / f"{name}.json", {**cell, "cell": name})
        validations = [cell["validation"] for cell in run.cells.values() if "validation" in cell]
        if validations:
            write_json(folder / "validation.json", validations[0])
        write_json(folder / "pilots.json", run.game["pilots"])
        write_json(folder / "game.json", run.game)
        materials.describe()


def _as_it_was(run: RunResult) -> Preset:
    """Return the preset of a run, with the parts of the experiment that the run has."""
    keys = {*run.cells, *run.diverged}
    methods = {key.method for key in keys}
    attacked = any(cell.get("attack") for cell in run.cells.values())
    chosen = preset(run.run["preset"])
    return replace(
        chosen,
        answers=ANSWERED in methods,
        retraining=SCRATCH in methods,
        fine_tuning=HEAD in methods,
        backdoor=any(key.backdoor for key in keys),
        rivals=FEDERASER in keys or CellKey("mode") in keys,
        references=chosen.references if attacked else 0,
    )


def _same(run: RunResult, materials: Materials) -> None:
    """Refuse a run that this machine does not make again: other data, another partition, another training."""
    data = materials.source.dataset
    if data.digest != run.run["dataset_digest"]:
        raise FileFormatError(f"{run.name}: was made from other data ({run.run['origin']})")
    if materials.partition.digest != run.run["partition_digest"]:
        raise FileFormatError(f"{run.name}: the partition of this seed is another one now")
    trained: dict[str, Any] = run.run["training"]
    now = {**materials.preset.training.__dict__, "rounds": materials.preset.rounds}
    if any(now[key] != value for key, value in trained.items()):
        raise FileFormatError(f"{run.name}: was trained with other settings ({json.dumps(trained)})")
    before = np.array(run.cells[ORIGINAL]["losses"])
    again = materials.original.losses
    if not np.allclose(before, again, rtol=SAME, atol=0.0):
        raise FileFormatError(
            f"{run.name}: the same training ends {np.max(np.abs(again / before - 1.0)):.1e} from the stored losses"
        )
