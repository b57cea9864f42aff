"""Campaigns: what they will take, and that nothing is computed twice."""

from __future__ import annotations

import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner

from stackfu.errors import InputError, StackfuError
from stackfu_integration.cli import app
from stackfu_integration.lab.campaign import Campaign, Task
from stackfu_integration.lab.cells import equal_spend
from stackfu_integration.lab.cli import _Bars
from stackfu_integration.lab.data import DatasetError
from stackfu_integration.lab.experiment import Experiment, Settings
from stackfu_integration.lab.forecast import forecast, passes_per_run
from stackfu_integration.lab.mechanisms import BUDGETED
from stackfu_integration.lab.models import Identity, extract
from stackfu_integration.lab.models import extraction as extraction_module
from stackfu_integration.lab.presets import PRESETS, preset
from stackfu_integration.lab.report import load_results

TINY = replace(
    preset("digits"),
    name="tiny",
    rounds=2,
    l2=1e-2,
    references=0,
    relearning=0,
    backdoor=False,
    retraining=False,
    pilots=2,
)
SMALL = Settings(
    clients=6, removed=(0, 1), budgets=(0.5,)
)  # four clients are left: games that are solved at once


def campaign(folder: Path, **changes) -> Campaign:
    options = {"betas": (0.5, 0.8), "seeds": 2, "few_seeds": 1, "settings": SMALL}
    return Campaign((TINY,), **{**options, **changes}, out=folder / "runs", cache=folder / "cache")


def test_a_campaign_visits_every_run_seed_by_seed(tmp_path):
    layers = replace(TINY, name="layers", backbone="identity-hidden", train=1)
    both = replace(campaign(tmp_path), presets=(TINY, layers))
    tasks = list(both.tasks())
    assert tasks[:2] == [Task("tiny", 0.5, 0), Task("tiny", 0.8, 0)]
    assert [task.seed for task in tasks] == sorted(task.seed for task in tasks)
    assert sum(task.preset == "tiny" for task in tasks) == 4
    assert sum(task.preset == "layers" for task in tasks) == 2


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A campaign of one run, in a process of its own."""
    folder, done = tmp_path_factory.mktemp("campaign"), []
    campaign(folder, betas=(0.5,), seeds=1).run(1, done.append)
    assert done == [Task("tiny", 0.5, 0)]
    return folder


def test_a_campaign_leaves_runs_and_does_not_repeat_them(finished):
    (result,) = load_results(finished / "runs")
    assert result.name == "tiny-b0.5-s0"
    stamps = {path: path.stat().st_mtime_ns for path in (finished / "runs").rglob("*.json")}
    campaign(finished).experiment(TINY).run(0.5, 0)
    assert {path: path.stat().st_mtime_ns for path in (finished / "runs").rglob("*.json")} == stamps


def test_brief_runs_have_mechanisms_and_backdoors_and_no_rivals(tmp_path):
    folder = campaign(tmp_path).experiment(replace(TINY.brief, backdoor=True)).run(0.5, 0)
    (result,) = load_results(folder)
    cells = {str(cell) for cell in result.cells}
    plans = {"full"} | {f"{m}.{b:g}" for m in BUDGETED for b in (0.5,)}
    simple = {str(key) for key in equal_spend(result.game["offers"], 0.5)}
    backdoored = {"original", "retrain"} | {f"convex.{plan}" for plan in plans}
    expected = {"original", "retrain"} | {f"convex.{plan}" for plan in plans | simple}
    expected |= {f"scratch.{plan}" for plan in plans | simple if TINY.retraining}
    expected |= {f"backdoor.{cell}" for cell in backdoored}
    assert cells == expected
    options = {
        "betas": (0.5,),
        "seeds": 1,
        "few_seeds": 1,
        "settings": Settings(),
        "out": tmp_path,
        "cache": tmp_path,
    }
    assert Campaign.of(["digits"], brief=True, **options).presets == (preset("digits").brief,)
    with pytest.raises(InputError, match="brief"):
        Campaign.of(["digits"], brief=True, lean=True, **options)


def test_bad_campaigns_are_refused_before_they_start(tmp_path):
    with pytest.raises(InputError, match="presets"):
        campaign(tmp_path, betas=())
    with pytest.raises(InputError, match="jobs"):
        campaign(tmp_path).run(0, print)
    with pytest.raises(DatasetError, match="cifar100"):
        Campaign.of(
            ["cifar100"],
            betas=(0.5,),
            seeds=1,
            few_seeds=1,
            settings=Settings(),
            out=tmp_path,
            cache=tmp_path,
            data_root=tmp_path,
        )
    assert not list(tmp_path.iterdir())


# ---- forecasts


def test_a_forecast_counts_what_it_will_keep(tmp_path):
    chosen = preset("digits")
    experiment = Experiment(chosen, Settings(), tmp_path, tmp_path)
    seen = forecast(experiment, runs=3)
    inputs = 1297 + 500 + 3 * (0.2 * 1297 + 500)
    assert seen.feature_bytes == int(inputs * 64 * 4)
    assert seen.trained_parameters == 650
    assert seen.history_bytes == 4 * 650 * 20 * 10
    assert seen.memory == seen.feature_bytes + seen.model_bytes + seen.history_bytes
    assert seen.seconds == seen.extraction_seconds + 3 * seen.run_seconds > 0
    assert seen.run_seconds > seen.training_seconds > 0
    assert "3 runs" in seen.text()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_more_work_is_forecast_to_take_more_passes(name):
    chosen = preset(name)
    whole, head = passes_per_run(chosen, 3)
    assert whole > 0
    assert head > 0
    assert passes_per_run(replace(chosen, references=chosen.references + 2), 3)[0] > whole
    assert passes_per_run(chosen, 4)[1] > head
    assert passes_per_run(replace(chosen, answers=True), 3)[1] > head
    assert sum(passes_per_run(chosen.brief, 3)) < whole + head


def test_a_forecast_is_no_smaller_than_what_a_run_takes(finished):
    """Sample gradients of all unlearning methods of a finished run, against the forecast."""
    (result,) = load_results(finished / "runs")
    taken = sum(cell["cost"].get("samples", 0) for cell in result.cells.values())
    whole, _ = passes_per_run(TINY, 1)
    assert 0.2 * whole * 1297 < taken <= whole * 1297


def test_the_command_line_says_what_it_would_take(tmp_path):
    runner = CliRunner()
    shown = runner.invoke(
        app, ["run", "digits", "--dry-run", "--seeds", "2", "--out", str(tmp_path / "runs")]
    )
    assert shown.exit_code == 0
    assert "digits: 2 runs on 1,297 samples" in shown.output
    shown = runner.invoke(app, ["campaign", "digits", "--dry-run", "--out", str(tmp_path / "runs")])
    assert "digits: 15 runs" in shown.output
    assert "hours with 2 runs at a time" in shown.output
    assert not (tmp_path / "runs").exists()


# ---- an extraction that was interrupted


def test_an_interrupted_extraction_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(extraction_module, "_PART", 10)
    inputs = np.random.default_rng(0).normal(size=(35, 4)).astype(np.float32)
    seen = []

    class Dies(Identity):
        limit = 2

        def prefix(self, inputs, device):
            if len(seen) == self.limit:
                raise KeyboardInterrupt
            seen.append(len(inputs))
            return super().prefix(inputs, device)

    backbone = Dies(4)
    with pytest.raises(KeyboardInterrupt):
        extract(backbone, inputs, cache=tmp_path, device=torch.device("cpu"))
    backbone.limit = 99
    found = extract(backbone, inputs, cache=tmp_path, device=torch.device("cpu"))
    assert seen == [10, 10, 10, 5]
    assert np.array_equal(found, inputs)
    assert sorted(path.suffix for path in (tmp_path / "features").iterdir()) == [".json", ".npy"]
    assert np.array_equal(extract(backbone, inputs, cache=tmp_path), inputs)
    assert len(seen) == 4


def test_a_run_that_fails_is_named_at_the_end_and_the_others_are_done(finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    broken = tmp_path / "runs" / "tiny-b0.1-s0"
    broken.mkdir()
    (broken / "partition.json").write_text("{")
    done, failed = [], []
    with pytest.raises(StackfuError, match=r"1 of 2 runs failed: tiny, β = 0.1, seed 0: .+"):
        campaign(tmp_path, betas=(0.1, 0.5), seeds=1).run(1, done.append, lambda task, _: failed.append(task))
    assert (done, failed) == ([Task("tiny", 0.5, 0)], [Task("tiny", 0.1, 0)])


def test_a_log_file_gets_a_line_per_finished_run():
    text = StringIO()
    with Progress(console=Console(file=text, width=200)) as progress:
        bars = _Bars(progress, 2)
        bars.begin("runs under way", 2)
        bars.run_finished("digits, seed 0")
        bars.run_finished()
    lines = [line for line in text.getvalue().splitlines() if "minutes" in line]
    assert lines[0] == "1 of 2 runs after 0.0 minutes: digits, seed 0"
    assert lines[1] == "2 of 2 runs after 0.0 minutes"
