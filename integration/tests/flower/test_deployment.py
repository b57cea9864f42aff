"""SuperLink and SuperNodes as processes with TLS and node authentication; server app and node are killed."""

from __future__ import annotations

import itertools
import json
import os
import stat

import psutil
import pytest
from cryptography import x509
from typer.testing import CliRunner

from stackfu_integration.cli import app
from stackfu_integration.flower import PaymentLedger
from stackfu_integration.flower.client_state import read_receipts
from stackfu_integration.flower.deployment import (
    Deployment,
    DeploymentError,
    make_certificates,
    make_node_key,
)
from stackfu_integration.flower.events import ClientEnrolled, EmbeddingReceived
from stackfu_integration.flower.keys import read_public_key
from stackfu_integration.flower.ledger import RUN
from stackfu_integration.flower.verification import Evidence, verify

LOST = 2
CONFIG = {
    "clients": 3,
    "removed": "0",
    "training_rounds": 1,
    "rounds": 2,
    "local_epochs": 1.0,
    "bandwidth": "3.0",
    "wait": 300.0,
}


def test_certificates_are_for_the_loopback_address_and_keys_are_private(tmp_path):
    make_certificates(tmp_path)
    private, _ = make_node_key(tmp_path, 0)
    for key in (private, tmp_path / "server.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    root = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    server.verify_directly_issued_by(root)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


#: Times to look for a row between two questions whether the run that should write it is over.
LOOKS = 300


def row_written(deployment: Deployment, run: int, path, kind: str, request: str = "r1"):
    """Return a function that looks for a row in the ledger and fails if the run ended without writing it."""
    looks = itertools.count(1)

    def written() -> bool:
        if not path.is_file():
            return False
        with PaymentLedger(path, create=False) as ledger:
            return bool(ledger.rows(request, kind))

    def look() -> bool:
        if not written() and next(looks) % LOOKS == 0:
            state = deployment.status(run)  # takes seconds, in which the row may come and the run may end
            over = state.startswith("finished") and not written()
            assert not over, f"{state} before {kind}; logs in {deployment.folder}"
        return written()

    return look


@pytest.mark.skipif(
    os.environ.get("STACKFU_DEPLOYMENT") != "1",
    reason="starts seven processes and takes minutes: make test-deployment runs it",
)
def test_a_deployment_survives_the_death_of_its_server_app_and_names_a_dead_node(tmp_path, wait_until):
    run, before = tmp_path / "run", {p.pid for p in psutil.process_iter()}
    ledger_file = run / "ledger.sqlite"
    with Deployment(tmp_path / "deployment", clients=3) as deployment:
        # a node with an unregistered key is turned away
        make_node_key(deployment.folder / "keys", 99)
        deployment.start_node(1, key=99)

        def wait_for_row(run, kind, request="r1"):
            wait_until(row_written(deployment, run, ledger_file, kind, request), f"row {kind}", 3600.0)

        first = deployment.submit(folder=str(run), timeout=600.0, **CONFIG)
        wait_for_row(first, "announced")  # prices were sent out
        assert deployment.kill_server_app()

        # the node that will be dead is waited for until the end, the living ones take a few seconds
        second = deployment.submit(folder=str(run), timeout=120.0, **CONFIG)
        wait_for_row(second, "round")
        deployment.kill_node(LOST)
        wait_for_row(second, "closed")
        assert deployment.wait_for(second) == "finished:completed"
        assert deployment.status(first) != "finished:completed"
        stranger = (deployment.folder / "logs" / "supernode-1-key-99.log").read_text()
        assert "Connection attempt failed" in stranger
        assert "Receiving" not in stranger
    wait_until(  # init needs a moment to bury orphans
        lambda: not [p for p in psutil.process_iter() if p.pid not in before and _of(p, tmp_path)],
        "the end of every process",
    )

    facts = json.loads((run / "audit-r1.json").read_text())
    clients = {c["client"]: c for c in facts["clients"]}
    assert clients[LOST]["rounds_delivered"] < 2
    assert clients[LOST]["paid"] < clients[LOST]["price"] * clients[LOST]["share"]
    assert clients[1]["rounds_delivered"] == 2
    assert clients[1]["paid"] == pytest.approx(clients[1]["price"] * clients[1]["share"])
    assert {f["client"] for f in facts["faults"]} == {LOST}
    assert facts["offers_made"] == 1  # the second server app found the offers of the first
    with PaymentLedger(run / "ledger.sqlite", create=False) as ledger:
        assert len(ledger.by_client("r1", EmbeddingReceived)) == 3
        keys = {enrolled.key for enrolled in ledger.events(RUN, ClientEnrolled)}
        assert len(keys) == 3
        assert all(len(key) == 64 for key in keys)


@pytest.mark.skipif(
    os.environ.get("STACKFU_DEPLOYMENT") != "1",
    reason="starts processes and takes minutes: make test-deployment runs it",
)
def test_the_documented_command_with_updates_that_nobody_sees(tmp_path, monkeypatch):
    """Four nodes hide their updates in sums; every step is a message between processes."""
    monkeypatch.chdir(tmp_path)
    settings = "folder=runs/deployed clients=4 removed=0 rounds=1 training-rounds=1 aggregation=secure"
    done = CliRunner().invoke(app, ["flower", "deploy", "-c", settings])
    assert done.exit_code == 0, (done.output, done.exception)
    run = tmp_path / "runs" / "deployed"
    facts = json.loads((run / "audit-r1.json").read_text())
    assert facts["aborted"] is None
    assert facts["faults"] == []
    assert facts["paid"] > 0
    assert "the server saw the sum of the updates, and no single one" in (run / "audit-r1.md").read_text()
    keys = {k: read_public_key(tmp_path / "deployment" / "clients" / str(k) / "client.pub") for k in range(4)}
    receipts = [read_receipts(p) for p in sorted(tmp_path.glob("deployment/clients/*/receipts.jsonl"))]
    kept = tuple(receipt for of_one in receipts for receipt in of_one)
    assert verify(run, Evidence(client_keys=keys, receipts=kept)).misfit is None


def _of(process: psutil.Process, folder) -> bool:
    try:
        return any(str(folder) in part for part in process.cmdline())
    except psutil.Error:
        return False


def test_a_superlink_that_cannot_start_is_reported(tmp_path, monkeypatch):
    deployment = Deployment(tmp_path, clients=2, patience=20.0)
    monkeypatch.setattr(deployment, "_server_tls", lambda: ["--ssl-certfile", "nowhere"])
    with pytest.raises(DeploymentError, match="does not listen"):
        deployment.__enter__()
