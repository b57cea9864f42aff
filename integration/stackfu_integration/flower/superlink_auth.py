"""Access control of a SuperLink: operators by token, nodes by key, and the process that runs server apps by a secret.

Flower's SuperLink has three doors on one address:

- *Control* (``flwr run``, ``flwr list``, ``flwr supernode register``): whoever starts a run lets own code run on every node.
  Account authentication is a plug-in there, and the only one that Flower has, OpenID Connect, comes with its enterprise
  edition. :class:`OperatorAuthnPlugin` is another one: a request needs the token of an operator.
- *Fleet* (nodes): with ``--enable-supernode-auth`` only keys that an operator registered are let in.
- *Runtime* (the process that runs server apps): in Flower's default isolation it may be asked for work by anybody who
  reaches the address, who then is the server. With isolation ``process`` and a secret it may not.

    python -m stackfu_integration.flower.superlink_auth --operators operators.json --host ... --enable-supernode-auth ...

starts Flower's own SuperLink with the plug-in, and refuses to start it with one of the doors open. What Flower promises
changes: this was read in, and is tested against, version 1.41.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import secrets
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_FLWR_AID
from flwr.supercore.auth.typing import AccountAuthCredentials, AccountAuthLoginDetails, AccountInfo
from flwr.superlink.auth_plugin import ControlAuthnPlugin

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.storage import write_json

__all__ = ["OperatorAuthnPlugin", "admit_operator", "check_doors", "log_in", "main"]


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def admit_operator(operators: Path, name: str) -> str:
    """Draw a token for an operator and return it; the file keeps its hash only."""
    known = _read(operators) if operators.is_file() else {}
    token = secrets.token_urlsafe(32)
    write_json(operators, {**known, name: _digest(token)})
    return token


def _read(operators: Path) -> dict[str, str]:
    try:
        known = json.loads(operators.read_text())
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{operators}: no list of operators ({error})") from error
    if not isinstance(known, dict) or not all(isinstance(value, str) for value in known.values()):
        raise FileFormatError(f"{operators}: not names and hashes of tokens")
    return known


class OperatorAuthnPlugin(ControlAuthnPlugin):
    """Accept requests with the token of an operator; the file is read at every request, so that tokens can be revoked."""

    def __init__(self, operators: Path) -> None:
        if not _read(operators):
            raise InputError(
                "operators", "there is none in the file: nobody could ever start a run", value=operators
            )
        self._operators = operators

    def get_login_details(self) -> AccountAuthLoginDetails | None:
        """Nothing: tokens are handed over by hand."""
        return None

    def validate_tokens_in_metadata(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[bool, AccountInfo | None]:
        """Return True if the request carries an operator's token, and the operator."""
        given = [str(value) for key, value in metadata if key == ACCESS_TOKEN_KEY]
        if len(given) != 1:
            return False, None
        found = None
        for name, known in _read(self._operators).items():
            if hmac.compare_digest(known, _digest(given[0])):  # all are compared, so that time tells nothing
                found = name
        # without the enterprise edition there is one account, which owns all runs and nodes: operators share it
        return found is not None, None if found is None else AccountInfo(NOOP_FLWR_AID, account_name=found)

    def get_auth_tokens(self, device_code: str) -> AccountAuthCredentials | None:
        """Nothing: tokens are handed over by hand."""
        return None

    def refresh_tokens(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[Sequence[tuple[str, str | bytes]] | None, AccountInfo | None]:
        """Nothing: a token holds until it is revoked."""
        return None, None


def log_in(flwr_home: Path, address: str, token: str) -> None:
    """Keep an operator's token where Flower's command line looks for it."""
    from flwr.cli.constant import ACCESS_TOKEN_STORE_KEY, AUTHN_TYPE_STORE_KEY, REFRESH_TOKEN_STORE_KEY
    from flwr.common.constant import AuthnType
    from flwr.supercore.credential_store.file_credential_store import FileCredentialStore

    flwr_home.mkdir(parents=True, exist_ok=True)
    store = FileCredentialStore(flwr_home / "credentials.yaml")
    store.set(AUTHN_TYPE_STORE_KEY % address, AuthnType.OIDC.encode())
    store.set(ACCESS_TOKEN_STORE_KEY % address, token.encode())
    store.set(REFRESH_TOKEN_STORE_KEY % address, b"none")
    (flwr_home / "credentials.yaml").chmod(0o600)


def check_doors(arguments: Sequence[str]) -> None:
    """Refuse arguments of a SuperLink that leave a door open, read by the parser with which Flower reads them."""
    options = _as_flower_reads(arguments)
    if options.insecure:
        raise InputError("--insecure", "tokens would be sent to anybody who listens")
    if not options.enable_supernode_auth:
        raise InputError("--enable-supernode-auth", "is missing: any node could join")
    if options.isolation != "process" or not options.superexec_auth_secret_file:
        raise InputError(
            "--superexec-auth-secret-file",
            "must be given, with --isolation process: otherwise every caller could ask for the server's work",
        )


def _superlink() -> Any:
    return import_module("flwr.superlink.cli.flower_superlink")  # the package hides it behind a function


def _as_flower_reads(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a SuperLink: of one that is given twice the last counts, and a value is no option."""
    superlink = _superlink()
    known = ("insecure", "enable_supernode_auth", "isolation", "superexec_auth_secret_file")
    if not hasattr(superlink, "_parse_args_run_superlink"):
        raise InputError(
            "flwr", "this version reads its options elsewhere than 1.41, and doors cannot be checked"
        )
    options: argparse.Namespace = superlink._parse_args_run_superlink().parse_args(list(arguments))
    missing = [name for name in known if not hasattr(options, name)]
    if missing:
        raise InputError("flwr", "this version has no such option as 1.41 has", value=missing[0])
    return options


def main(arguments: Sequence[str] | None = None) -> Any:
    """Start Flower's SuperLink with all doors closed."""
    parser = argparse.ArgumentParser(
        prog="python -m stackfu_integration.flower.superlink_auth", add_help=False, allow_abbrev=False
    )
    parser.add_argument(
        "--operators", type=Path, required=True, help="JSON file: name and SHA-256 of the token"
    )
    own, rest = parser.parse_known_args(arguments)
    check_doors(rest)
    plugin = OperatorAuthnPlugin(own.operators)
    superlink = _superlink()
    if not hasattr(superlink, "load_control_authn_plugin"):
        raise InputError("flwr", "this version has no place for an authentication plug-in where 1.41 has it")
    superlink.load_control_authn_plugin = lambda: plugin
    sys.argv = ["flower-superlink", *rest]
    superlink.flower_superlink()


if __name__ == "__main__":
    main()
