"""The presets of the paper's sizes are run by the same code as the small ones: here with tiny networks and few samples in the
folders where the large ones are looked for."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import save_bert

from stackfu_integration.lab import runtime
from stackfu_integration.lab.cells import CONVEX, RETRAIN, TUNED, CellKey, PlanKey
from stackfu_integration.lab.experiment import Experiment, Settings
from stackfu_integration.lab.federation import local
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.local import LocalTraining, local_train
from stackfu_integration.lab.forecast import forecast
from stackfu_integration.lab.models import Classifier, extract, load_backbone, read_weights
from stackfu_integration.lab.presets import preset
from stackfu_integration.lab.report import load_results
from stackfu_integration.lab.runs import materials

WORDS = ("war vote", "cup goal", "stock oil", "chip code")  # of the four classes
SETTINGS = Settings(clients=6, removed=(0, 1), budgets=(0.5,))


def news(count, seed):
    rng = np.random.default_rng(seed)
    for number in range(count):
        words = WORDS[number % 4].split()
        yield {"label": number % 4, "text": " ".join(rng.choice(words, int(rng.integers(2, 7))))}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Rows in the layout of AG News, and a BERT of two small layers in the folder of bert-base-uncased."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "ag_news").mkdir()
    for name, count, seed in (("train.csv", 160, 0), ("test.csv", 120, 1)):
        with (folder / "ag_news" / name).open("w", newline="") as stream:
            writer = csv.DictWriter(stream, ["label", "text"])
            writer.writeheader()
            writer.writerows(news(count, seed))
    model = folder / "bert-base-uncased"
    model.mkdir()
    save_bert(
        model, WORDS, hidden_size=8, num_hidden_layers=2, intermediate_size=16, max_position_embeddings=128
    )
    return folder


@pytest.fixture(scope="module")
def full():
    """The preset as it is, but for the sizes: two rounds, two pilots, texts of ten tokens."""
    whole = preset("ag-news-full")
    assert (whole.train, whole.backbone) == ("all", "bert-base-uncased")
    training = replace(whole.training, epochs=1, learning_rate=5e-3)
    return replace(
        whole, rounds=2, training=training, length=10, min_train=5, min_test=4, pilots=2, relearning=1
    )


@pytest.fixture(scope="module")
def finished(root, full, tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    made = Experiment(full, SETTINGS, folder / "runs", folder / "cache", root)
    made.run(0.8, 0)
    return folder


def test_all_layers_are_trained_unlearned_and_attacked(finished):
    (result,) = load_results(finished / "runs")
    assert result.run["backbone"].endswith("bert-base-uncased-all")
    cells = set(result.cells) | set(result.diverged)
    assert {RETRAIN, TUNED, CellKey(CONVEX, PlanKey("capped-labels", 0.5))} <= cells
    assert {RETRAIN.with_backdoor(), TUNED.with_backdoor()} <= cells
    # every layer was reset to public weights: nothing to prove about rounds that never met the removed data
    assert result.cells[TUNED]["guarantee"] == "exact"
    assert result.cells[RETRAIN]["cost"]["stored_bytes"] == 0


def test_it_goes_on_where_it_stopped(finished, root, full, tmp_path, monkeypatch):
    """Killed in the second round: it is trained again, the first is not, and the end is the same."""
    rounds = []
    real = materials.train_federation

    def watched(*args, after_round, **options):
        def note(number):
            rounds.append(number)
            after_round(number)

        return real(*args, after_round=note, every=1, **options)

    class Kill(BaseException):
        pass

    class Deadly:
        def begin(self, what, steps):
            pass

        def advance(self, to):
            if rounds == [0, 1]:
                raise Kill

        def note(self, text):
            pass

    monkeypatch.setattr(materials, "train_federation", watched)
    made = Experiment(full, SETTINGS, tmp_path / "runs", tmp_path / "cache", root, reporter=Deadly())
    lean = replace(made, preset=replace(full, backdoor=False, retraining=False, fine_tuning=False))
    with pytest.raises(Kill):
        lean.run(0.8, 0)
    assert rounds == [0, 1]
    again = replace(lean, reporter=Experiment.__dataclass_fields__["reporter"].default_factory())
    folder = again.run(0.8, 0)
    assert rounds == [0, 1, 1]
    mine = json.loads((folder / "original.json").read_text())
    whole = json.loads((finished / "runs" / "ag-news-full-b0.8-s0" / "original.json").read_text())
    assert mine["losses"] == whole["losses"]


@pytest.mark.parametrize("name", ["ag-news-full", "cifar100-full"])
def test_a_dry_run_says_memory_and_time(root, full, tmp_path, name):
    if name == "cifar100-full":
        (root / "cifar100").mkdir(exist_ok=True)
        rng = np.random.default_rng(0)
        made = {
            f"x_{part}": rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
            for part, count in (("train", 64), ("test", 32))
        }
        made |= {"y_train": np.arange(64) % 100, "y_test": np.arange(32) % 100}
        np.savez(root / "cifar100" / "cifar100_25k.npz", **made)
    chosen = preset(name)
    if name == "cifar100-full":  # without weights; with missing ones the preset as it is would be refused
        chosen = replace(chosen, backbone="resnet18-scratch")
    said = forecast(Experiment(chosen, Settings(), tmp_path / "runs", tmp_path / "cache", root), 2)
    parameters = said.trained_parameters
    assert said.model_bytes == parameters * 4 * (4 if chosen.training.optimizer == "adam" else 2)
    assert said.seconds > 2 * said.training_seconds > 0
    assert f"{parameters:,} trained parameters on" in said.text()
    assert not (tmp_path / "runs").exists()


def test_a_gpu_trains_in_mixed_precision_and_a_cpu_does_not(monkeypatch):
    asked = []
    monkeypatch.setattr(runtime.torch, "autocast", lambda *args, **options: asked.append((args, options)))
    for kind in ("cuda", "cpu"):
        runtime.autocast(torch.device(kind))
    assert [(args[0], options["enabled"]) for args, options in asked] == [("cuda", True), ("cpu", False)]
    assert all(options["dtype"] == torch.bfloat16 for _, options in asked)


def test_mixed_precision_trains_weights_of_single_precision(root, monkeypatch):
    """The path of a GPU with the rounding of one, on the CPU."""
    entered = []

    def mixed(device):
        entered.append(device.type)
        return torch.autocast("cpu", dtype=torch.bfloat16)

    rows = list(news(64, 3))
    data = Experiment(preset("ag-news-full"), Settings(), root, root, root).dataset
    backbone = load_backbone("bert-base-uncased", data, "all", root, 10)
    inputs = extract(backbone, np.array([row["text"] for row in rows], dtype=object))
    held = LabelledTensors(torch.from_numpy(inputs), torch.tensor([row["label"] for row in rows]))
    settings = LocalTraining(epochs=12, batch=16, learning_rate=1e-2, optimizer="adam")

    def trained():
        model = Classifier(backbone, 4, seed=0)
        local_train(model, held, 0, settings)
        with torch.no_grad():
            return read_weights(model), float(torch.nn.functional.cross_entropy(model(held.x), held.y))

    exact, loss = trained()
    monkeypatch.setattr(local, "autocast", mixed)
    coarse, rounded = trained()
    assert entered
    assert set(entered) == {"cpu"}
    assert coarse.dtype == torch.float32
    assert not torch.equal(coarse, exact)
    assert max(loss, rounded) < 0.7  # of log 4 = 1.39 at the start
