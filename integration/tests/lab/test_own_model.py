"""A model and data of one's own, by address and by name; the template is run as it is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from stackfu.errors import InputError
from stackfu_integration.cli import app
from stackfu_integration.lab.cells import FEDERASER, RETRAIN
from stackfu_integration.lab.data import DATASETS, Dataset, Split, load_dataset, register_dataset
from stackfu_integration.lab.models import BACKBONES, Identity, load_backbone, register_backbone
from stackfu_integration.lab.named import load_address
from stackfu_integration.lab.presets import PRESETS, Preset, own, preset, register_preset
from stackfu_integration.lab.report import TABLES, load_results

TEMPLATE = Path(__file__).parents[2] / "lab-template" / "my_lab.py"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy(TEMPLATE, tmp_path / "my_lab.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_lab", None)


def test_the_template_runs_in_thirty_lines(folder):
    assert len(TEMPLATE.read_text().splitlines()) <= 32
    options = ["--model", "my_lab:network", "--data", "my_lab:rings", "--rounds", "2", "--budget", "0.5"]
    said = CliRunner().invoke(app, ["run", "own", *options, "--cache", "cache"], catch_exceptions=False)
    assert said.exit_code == 0
    (result,) = load_results(folder / "runs")
    assert result.run["preset"] == "own-my_lab.network-my_lab.rings"
    assert result.run["dataset"] == "rings"
    assert result.run["classes"] == 3
    assert {RETRAIN, FEDERASER} <= set(result.cells) | set(result.diverged)


def test_a_network_of_ones_own_is_trained_as_a_whole(folder):
    data = load_dataset("my_lab:rings")
    backbone = load_backbone("my_lab:network", data)
    assert backbone.feature_dim == 16
    first, second = backbone.tail(), backbone.tail()
    x = torch.from_numpy(backbone.prefix(data.train.x[:4], torch.device("cpu")))
    assert torch.equal(first(x), second(x))
    assert next(first.parameters()) is not next(second.parameters())


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("nowhere_at_all:f", "cannot be imported"),
        ("math:nothing", "names no function"),
        ("math:pi", "must name a function"),
    ],
)
def test_addresses_that_lead_nowhere_are_refused(address, why):
    with pytest.raises(InputError, match=why):
        load_address(address, "--model")


def test_what_an_address_returns_is_checked(folder):
    (folder / "wrong.py").write_text("def data(root):\n    return 3\n\ndef model(data):\n    return 'no'\n")
    with pytest.raises(InputError, match="must return a Dataset"):
        load_dataset("wrong:data")
    with pytest.raises(InputError, match="Backbone or a torch"):
        load_backbone("wrong:model", load_dataset("digits"))
    sys.modules.pop("wrong", None)


def test_models_data_and_presets_are_registered_by_name():
    def read(folder):
        x = np.zeros((4, 2), dtype=np.float32)
        split = Split(x, np.array([0, 1, 0, 1]))
        return split, split, "four zeros"

    try:
        register_dataset("zeros", read, "vector", 2)
        register_backbone("flat", lambda data, train, root, length: Identity(2), ["vector"])
        register_preset(own(preset("digits"), "flat", "zeros"))
        assert load_dataset("zeros").origin == "four zeros"
        assert load_backbone("flat", load_dataset("zeros")).feature_dim == 2
        assert preset("digits-flat-zeros").dataset == "zeros"
        with pytest.raises(InputError, match="is taken"):
            register_dataset("zeros", read, "vector", 2)
        with pytest.raises(InputError, match="is taken"):
            register_backbone("flat", BACKBONES["flat"].build, ["vector"])
        with pytest.raises(InputError, match="is taken"):
            register_preset(preset("digits"))
        words = Split(np.array(["a", "b"], dtype=object), np.array([0, 1]))
        two = Dataset("words", "text", words, words, 2, "two words")
        with pytest.raises(InputError, match="does not take text"):
            load_backbone("flat", two)
    finally:
        DATASETS.pop("zeros", None)
        BACKBONES.pop("flat", None)
        PRESETS.pop("digits-flat-zeros", None)


def test_presets_and_tables_are_listed():
    said = CliRunner().invoke(app, ["presets"], catch_exceptions=False).output
    assert all(name in said for name in PRESETS)
    assert "module:function" in said
    said = CliRunner().invoke(app, ["tables"], catch_exceptions=False).output
    assert [line.split()[0] for line in said.splitlines()] == list(TABLES)


def test_a_preset_of_ones_own_keeps_everything_else():
    base = preset("digits")
    assert own(base, None, None) is base
    made = own(base, None, "my_lab:rings")
    assert isinstance(made, Preset)
    assert (made.backbone, made.train, made.rounds) == (base.backbone, base.train, base.rounds)
