from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest
from flwr.common.config import parse_config_args
from scene import TERMS, initial
from typer.testing import CliRunner

from stackfu.errors import InputError, StackfuError
from stackfu_integration.cli import app
from stackfu_integration.flower import PaymentLedger, UnlearningMechanism
from stackfu_integration.flower.cli import _read
from stackfu_integration.flower.deployment import _toml
from stackfu_integration.flower.events import ClientEnrolled, ClientFault, GameFounded, RemovalRequested
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.simulation import APP_FOLDER, load_app


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
    assert paid.output.count("payment") == len(sound.records("payment"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--kind", "payments"), "must be one of .*payment, "),
        (("--request", "r7"), "must be one of r1"),
        (("--export", "x.json", "--kind", "payment"), "of all rows"),
    ],
)
def test_what_the_ledger_has_no_answer_to_is_refused(sound, arguments, problem):
    """An empty table looked like an answer."""
    assert re.search(problem, str(run("ledger", str(sound.folder), *arguments).exception))


def test_a_policy_that_does_not_exist_is_refused():
    assert "must be open" in str(run("flower", "simulate", "--policy", "closed").exception)


def test_the_audit_is_written_again_and_printed(sound):
    path = sound.folder / "audit-r1.json"
    before = path.read_text()
    path.unlink()
    result = run("audit", str(sound.folder), "--plain")
    assert result.exit_code == 4
    assert "# Removal request r1" in result.output
    assert path.read_text() == before
    assert json.loads(before)["removed"] == [0, 1]


@pytest.mark.parametrize("command", [("ledger", "nowhere"), ("audit", "nowhere")])
def test_a_run_that_does_not_exist(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert isinstance(run(*command).exception, StackfuError)


def test_a_request_that_does_not_exist(sound):
    assert "known: r1" in str(run("audit", str(sound.folder), "r7").exception)


NAMES = ["Leeds", "New York", "Bath, Somerset", "O'Hare [2]", *"efgh"]


def test_clients_go_by_their_names(scene, tmp_path):
    scene.terms = replace(TERMS, costs={"New York": 30.0})
    mechanism = UnlearningMechanism(scene.folder, NAMES, scene.terms, wait=0.0, timeout=1.0)
    mechanism.train(scene.grid(), initial(), 1)
    mechanism.remove(scene.grid(), ["Leeds"])
    mechanism.ledger.close()
    printed = run("ledger", str(scene.folder)).output
    assert "removed=[Leeds]" in printed
    assert re.search(
        r"game .*costs=\{Leeds: [\d.]+, New York: 30, Bath, Somerset: [\d.]+, O'Hare \[2\]: ", printed
    )
    assert re.search(r"offer +O'Hare \[2\] ", printed)
    keys = tmp_path / "keys"
    keys.mkdir()
    for client in (0, 1, 3, 4):
        shutil.copy(scene.client_folder(client) / "client.pub", keys / f"{NAMES[client]}.pub")
    shutil.copy(scene.client_folder(5) / "client.pub", keys / "f.pub")
    audited = run("audit", str(scene.folder), "--plain", "--client-keys", str(keys))
    assert audited.exit_code == 4, audited.output
    assert 'who is behind clients "Bath, Somerset", g, h: a server' in audited.output
    for stranger in ("Oslo", "5"):
        (keys / f"{stranger}.pub").write_text((keys / "f.pub").read_text())
        refused = str(run("audit", str(scene.folder), "--client-keys", str(keys)).exception)
        assert (
            f"client-keys = '{stranger}': there is no such client; the clients are Leeds, New York" in refused
        )
        (keys / f"{stranger}.pub").unlink()


def test_settings_with_spaces_and_quotation_marks():
    options = [
        "clients=4 names='\"Bath, Somerset\",New York' ",
        "removed=007",
        'costs="New York=3,e=2"',
        "budget=",
    ]
    assert _read(options) == {
        "clients": "4",
        "names": '"Bath, Somerset",New York',
        "removed": "007",
        "costs": "New York=3,e=2",
        "budget": "",
    }
    for option in ("names=New York", "clients 4", "names='New York", "a=1 =2"):
        with pytest.raises(InputError, match="stands in quotation marks"):
            _read([option])


@pytest.mark.parametrize("setting", ["clients=4.5", "clients=four", "timeout=soon", "finite-sample=no"])
def test_a_setting_of_another_kind_is_refused(setting):
    with pytest.raises(InputError, match=f"{setting.partition('=')[0]} must be"):
        load_app(APP_FOLDER, _read([setting]))


def test_names_reach_flower_as_they_are():
    """Flower reads a run config by patterns of its own, and ends a value at the next quotation mark."""
    names = '"Bath, Somerset",New York'
    line = f"names={_toml(names)} clients={_toml(4)} request={_toml('York 1')} finite-sample={_toml(True)}"
    assert parse_config_args([line]) == {
        "names": names,
        "clients": 4,
        "request": "York 1",
        "finite-sample": True,
    }
    with pytest.raises(InputError, match="both kinds"):
        _toml('"O\'Hare"')


def test_simulate_without_an_engine(tmp_path):
    config = f"folder={tmp_path}/run clients=4 training-rounds=1 rounds=1 local-epochs=1.0"
    named = """names='"Bath, Somerset",New York,Hull,Ely' removed='"Bath, Somerset"' costs='"New York=7.5"'"""
    result = run("flower", "simulate", "--engine", "none", "-c", config, "-c", named)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "run" / "audit-r1.md").read_text()
    assert '\nClient "Bath, Somerset" left.\n' in text
    assert "| New York | remaining" in text
    with PaymentLedger(tmp_path / "run" / "ledger.sqlite", create=False) as ledger:
        assert ledger.need("r1", GameFounded).costs[1] == 7.5


def test_names_for_fewer_clients_than_there_are_are_refused(tmp_path):
    config = f"folder={tmp_path}/run clients=5 names=Leeds,York,Hull removed=Leeds"
    result = run("flower", "simulate", "--engine", "none", "-c", config)
    assert isinstance(result.exception, InputError)
    assert "names = 3: must hold one name per client (5)" in str(result.exception)
    assert not (tmp_path / "run" / "ledger.sqlite").exists()


def test_who_is_left_of_an_aborted_request_goes_by_name(tmp_path):
    config = f"folder={tmp_path}/run clients=2 names=1,2 removed=1 training-rounds=1 rounds=1"
    result = run("flower", "simulate", "--engine", "none", "-c", config)
    assert result.exit_code == 3
    assert "a game needs two remaining clients, only client 2 is left" in result.output


def test_with_the_clients_keys_in_the_config_nobody_else_is_let_in(tmp_path):
    """Three clients of four have the keys that the operator has; the fourth is left out, and the others go on."""
    keys, clients = tmp_path / "keys", tmp_path / "run" / "clients"
    keys.mkdir()
    for client in range(4):
        known = clients / str(client) if client != 3 else tmp_path / "other"
        (keys / f"{client}.pub").write_text(SigningKey.load_or_create(known / "client.key").public)
    config = (
        f"folder={tmp_path}/run clients=4 removed=0 training-rounds=1 rounds=1 wait=1.0 client-keys={keys}"
    )
    result = run("flower", "simulate", "--engine", "none", "-c", config, "-c", 'sizes="1=1:100000"')
    assert result.exit_code == 0, result.output
    with PaymentLedger(tmp_path / "run" / "ledger.sqlite", create=False) as ledger:
        assert sorted(ledger.by_client("", ClientEnrolled)) == [0, 1, 2]
        assert "signs with a key that is not this client's" in str(ledger.events("", ClientFault))
        assert ledger.need("r1", RemovalRequested).terms["sizes"] == {"1": [1, 100000]}


def test_a_simulation_of_a_request_that_is_aborted_ends_with_three_and_names_the_cause(tmp_path):
    """Both clients that stay claim other sizes than the operator expects."""
    config = f"folder={tmp_path}/run clients=3 removed=0 training-rounds=1 rounds=1"
    result = run("flower", "simulate", "--engine", "none", "-c", config, "-c", 'sizes="1=1,2=1"')
    assert result.exit_code == 3
    assert "client 1 (claims" in " ".join(result.output.split())


def test_scale(tmp_path):
    result = run("flower", "scale", "--clients", "6", "--out", str(tmp_path / "scale.json"))
    assert result.exit_code == 0, result.output
    (figures,) = json.loads((tmp_path / "scale.json").read_text())
    assert figures["status"] == "CERTIFIED"
    # D numbers of eight bytes, and a header
    assert 8 * 256 < figures["bytes_up"]["query.stackfu_embed"] < 8 * 256 + 400
