"""An app of one's own: a convolutional network with batch normalisation, in as few lines as promised; documented commands."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from stackfu_integration.cli import app
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.simulation import APP_FOLDER, run_in_process
from stackfu_integration.flower.verification import verify

TEMPLATE = APP_FOLDER.parent / "flower-template"
HOWTO = Path(__file__).resolve().parents[3] / "docs" / "howto"


def test_the_users_lines_are_at_most_thirty():
    text = (TEMPLATE / "my_app" / "app.py").read_text()
    own = text.split("# --- yours ---")[1].split("# --- not yours")[0]
    assert len([line for line in own.splitlines() if line.strip()]) <= 30


def test_the_template_trains_and_unlearns_a_network_with_counters(tmp_path):
    run_in_process(TEMPLATE, folder=str(tmp_path / "run"), training_rounds=1, rounds=2)
    facts = json.loads((tmp_path / "run" / "audit-r1.json").read_text())
    assert facts["aborted"] is None
    assert facts["faults"] == []
    assert facts["terms"]["epsilon"] is not None  # private without being told
    assert verify(tmp_path / "run").misfit is None
    model = ModelStore(tmp_path / "run" / "models").get(facts["model_after"])
    counter = model["1.num_batches_tracked"].numpy()
    assert counter.shape == ()
    assert counter.dtype == np.int64
    assert counter > 0


def documented_commands() -> list[str]:
    """Every ``stackfu-lab`` command that the pages about Flower show."""
    pages = [*sorted(HOWTO.glob("flower*.md")), HOWTO / "private_embeddings.md", APP_FOLDER / "README.md"]
    found = []
    for page in pages:
        text = page.read_text().replace("\\\n", " ")
        found += re.findall(r"^\$ (stackfu-lab .*)$", text, flags=re.MULTILINE)
    return sorted({re.sub(r"\s+#.*", "", command) for command in found})


SMALL = " clients=4 removed=0 training-rounds=1 rounds=1"
SLOW = ("flower deploy", "flower load", "flower privacy", "flower scale")


@pytest.mark.parametrize("command", documented_commands())
def test_every_documented_command_is_understood(command, tmp_path, monkeypatch, sound):
    """Those that take minutes are parsed; the others run, in a small federation."""
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    if " ".join(words[:2]) in SLOW:
        shown = CliRunner().invoke(app, [*words[:2], "--help"]).output
        options = [word for word in words if word.startswith("--")]
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert all(option in plain for option in options), plain
        return
    if words[:2] == ["flower", "simulate"]:
        at = words.index("-c") + 1
        words[at] = re.sub(r"(clients|removed|rounds)=\S+", "", words[at]) + SMALL
        if "--engine" not in words:
            words += ["--engine", "none"]
        if "--app" in words:
            words[words.index("--app") + 1] = str(HOWTO.parents[1] / words[words.index("--app") + 1])
    else:  # of a run that is there
        place = next(k for k, word in enumerate(words) if word.startswith("runs/"))
        words[place] = str(sound.folder)
        for option, value in (
            ("--server-key", sound.folder / "keys" / "server.pub"),
            ("--receipts", sound.client_folder(3)),
            ("--client-keys", tmp_path),
            ("--export", tmp_path / "export.json"),
        ):
            if option in words:
                words[words.index(option) + 1] = str(value)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (result.output, result.exception)
