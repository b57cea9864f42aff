from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from stackfu.errors import StackfuError
from stackfu_integration.cli import app


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_the_ledger_is_printed(sound):
    result = run("ledger", str(sound.folder))
    assert result.exit_code == 0
    for kind in (
        "request",
        "embedding",
        "offer",
        "response",
        "commitment",
        "work",
        "payment",
        "settled",
        "closed",
    ):
        assert kind in result.output
    paid = run("ledger", str(sound.folder), "--kind", "payment", "--request", "r1")
    assert paid.output.count("payment") == len(sound.books("payment"))


def test_the_audit_is_written_again_and_printed(sound):
    path = sound.folder / "audit-r1.json"
    before = path.read_text()
    path.unlink()
    result = run("audit", str(sound.folder), "--plain")
    assert result.exit_code == 0
    assert "# Removal request r1" in result.output
    assert path.read_text() == before
    assert json.loads(before)["removed"] == [0, 1]


@pytest.mark.parametrize("command", [("ledger", "nowhere"), ("audit", "nowhere")])
def test_a_run_that_does_not_exist(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert isinstance(run(*command).exception, StackfuError)


def test_a_request_that_does_not_exist(sound):
    assert "known: r1" in str(run("audit", str(sound.folder), "r7").exception)


def test_simulate_without_an_engine(tmp_path):
    config = f"folder={tmp_path}/run clients=4 removed=0 training-rounds=1 rounds=1 local-epochs=1.0"
    result = run("flower", "simulate", "--engine", "none", "-c", config)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "audit-r1.md").is_file()


def test_scale(tmp_path):
    result = run("flower", "scale", "--clients", "6", "--out", str(tmp_path / "scale.json"))
    assert result.exit_code == 0, result.output
    (figures,) = json.loads((tmp_path / "scale.json").read_text())
    assert figures["status"] == "CERTIFIED"
    # D numbers of eight bytes, and a header
    assert 8 * 256 < figures["bytes_up"]["query.stackfu_embed"] < 8 * 256 + 400
