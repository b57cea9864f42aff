"""An outsider with the address and the CA certificate, at every door of a SuperLink."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import stat
import subprocess

import httpx
import pytest
from flwr.common.constant import ACCESS_TOKEN_KEY
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.superlink import main as superlink
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.dependencies.account import AccountAccessDependency
from flwr.superlink.routers.control import middlewares

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.flower.deployment import Deployment, DeploymentError, make_node_key
from stackfu_integration.flower.superlink_auth import OperatorAuthnPlugin, admit_operator, check_doors, log_in


@pytest.fixture
def operators(tmp_path):
    path = tmp_path / "operators.json"
    return path, admit_operator(path, "ada")


def control_doors(plugin) -> dict[str, int]:
    """Knock at every door of the Control API without a token, and with a wrong one; return the status by door."""
    app = superlink.create_app()
    app.state.account_access_dep = AccountAccessDependency(plugin)
    found = {}

    async def knock(method, path, headers):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="https://superlink") as client:
            return (await client.request(method, path, headers=headers)).status_code

    for path, methods in app.openapi()["paths"].items():
        for method in (name.upper() for name in methods):
            if not path.startswith("/v1/control/") or (method, path) in middlewares.CONTROL_AUTH_ROUTE_KEYS:
                continue
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                found[f"{method} {path} {bool(headers)}"] = asyncio.run(knock(method, path, headers))
    return found


def test_no_door_of_the_control_api_opens_without_a_token(operators):
    statuses = control_doors(OperatorAuthnPlugin(operators[0]))
    assert len(statuses) > 20
    assert set(statuses.values()) == {401}
    # as Flower comes, none of them asks
    assert 401 not in control_doors(NoOpControlAuthnPlugin()).values()


def test_a_token_opens_and_can_be_revoked(operators):
    path, token = operators
    plugin = OperatorAuthnPlugin(path)
    assert plugin.validate_tokens_in_metadata([(ACCESS_TOKEN_KEY, token)])[0]
    assert plugin.validate_tokens_in_metadata([(ACCESS_TOKEN_KEY, token)])[1].account_name == "ada"
    for wrong in ([], [(ACCESS_TOKEN_KEY, token[:-1])], [(ACCESS_TOKEN_KEY, token)] * 2):
        assert plugin.validate_tokens_in_metadata(wrong) == (False, None)
    assert token not in path.read_text()
    other = admit_operator(path, "bob")
    known = json.loads(path.read_text())
    del known["ada"]
    path.write_text(json.dumps(known))
    assert not plugin.validate_tokens_in_metadata([(ACCESS_TOKEN_KEY, token)])[0]
    assert plugin.validate_tokens_in_metadata([(ACCESS_TOKEN_KEY, other)])[0]


def test_lists_of_operators_that_are_none(tmp_path):
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(InputError, match="nobody could ever"):
        OperatorAuthnPlugin(tmp_path / "empty.json")
    (tmp_path / "odd.json").write_text("[1]")
    for name in ("odd.json", "none.json"):
        with pytest.raises(FileFormatError):
            OperatorAuthnPlugin(tmp_path / name)


CLOSED = ["--enable-supernode-auth", "--isolation", "process", "--superexec-auth-secret-file", "s"]


@pytest.mark.parametrize(
    "arguments",
    [
        CLOSED[1:],
        CLOSED[:3],
        ["--enable-supernode-auth", *CLOSED[3:]],
        [*CLOSED, "--insecure"],
        [],
        [*CLOSED, "--isolation", "subprocess"],
        [*CLOSED, "--isolation=subprocess"],
        ["--database=--enable-supernode-auth", *CLOSED[1:]],
        ["--database=--superexec-auth-secret-file", *CLOSED[:3]],
        [*CLOSED, "--insec"],
        [*CLOSED[:4], ""],
    ],
    ids=[
        "any node",
        "no secret",
        "subprocess",
        "insecure",
        "nothing",
        "a second isolation",
        "a second isolation behind a sign",
        "an option as a value",
        "a secret as a value",
        "shortened",
        "an empty secret",
    ],
)
def test_a_superlink_with_an_open_door_is_not_started(arguments):
    with pytest.raises(InputError):
        check_doors(arguments)
    check_doors(CLOSED)


def test_the_token_is_kept_where_nobody_else_reads_it(tmp_path):
    log_in(tmp_path, "127.0.0.1:1", "secret")
    assert stat.S_IMODE((tmp_path / "credentials.yaml").stat().st_mode) == 0o600


@pytest.mark.skipif(
    os.environ.get("STACKFU_DEPLOYMENT") != "1",
    reason="starts a SuperLink: make test-deployment runs it",
)
def test_an_outsider_is_refused_at_every_door_of_a_running_superlink(tmp_path, wait_until):
    """It has the address, the CA certificate and Flower's own programs, and no token, no secret and no registered key."""
    with Deployment(tmp_path / "deployment", clients=0) as deployment:
        ca = deployment.folder / "certificates" / "ca.crt"
        home = tmp_path / "outsider"
        home.mkdir()
        (home / "config.toml").write_text(
            '[superlink]\ndefault = "it"\n\n[superlink.it]\n'
            f'address = "{deployment.address}"\nroot-certificates = "{ca}"\n'
        )
        _, public = make_node_key(tmp_path / "keys", 7)
        environment = {**deployment._environment, "FLWR_HOME": str(home)}

        def flwr(*arguments: str) -> str:
            done = subprocess.run(
                [deployment._program("flwr"), *arguments],
                capture_output=True,
                text=True,
                env=environment,
                timeout=600,
                check=False,
            )
            assert done.returncode != 0 or '"success": false' in done.stdout, done.stdout
            return done.stdout + done.stderr

        for door in (
            ("supernode", "register", str(public), "it"),
            ("supernode", "list", "it"),
            ("run", str(deployment.app), "it", "--format", "json"),
            ("list", "it"),
            ("pull", "--run-id", "1", "it"),
        ):
            said = flwr(*door)
            assert "node registered" not in said.lower()
        # the interface of the process that runs server apps: no work without the secret
        context = ssl.create_default_context(cafile=str(ca))
        answer = httpx.post(
            f"https://{deployment.address}/v1/runtime/acquire-task",
            verify=context,
            content=b"",
            headers={"Content-Type": PROTOBUF_MEDIA_TYPE, "Accept": PROTOBUF_MEDIA_TYPE},
        )
        assert answer.status_code in (401, 403), answer.text
        # and a node with an unregistered key
        make_node_key(deployment.folder / "keys", 99)
        process = deployment.start_node(0, key=99)
        log = deployment.folder / "logs" / "supernode-0-key-99.log"
        wait_until(
            lambda: "failed" in log.read_text().lower() or process.poll() is not None, "a refusal in the log"
        )
        assert "Receiving" not in log.read_text()
        # the operator is let in
        deployment.register(3)
        with pytest.raises(DeploymentError):
            deployment._flwr("supernode", "register", str(public), "nowhere")
