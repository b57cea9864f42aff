"""Evidence of the clients of a run in one folder, by name: the input of an audit in addition to the ledger.

    FOLDER/server.pub             the server's public key, as the clients know it
    FOLDER/clients/NAME.pub       a client's public key
    FOLDER/clients/NAME.jsonl     its receipts
    FOLDER/clients/NAME.head      the last head that the server showed it
    FOLDER/clients/NAME.work/     the models that it sent

Of a name with a slash in it the file has %2F.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from stackfu.atomic import make_folder
from stackfu.embedding.names import ClientNames
from stackfu.errors import FileFormatError, InputError
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.client_state import read_receipts
from stackfu_integration.flower.events import ClientEnrolled, RunStarted
from stackfu_integration.flower.keys import read_public_key
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.signed_rows import Evidence
from stackfu_integration.storage import write_text

__all__ = ["collect", "keys_in_folder", "read_client_keys", "read_evidence", "read_kept"]


def collect(ledger: PaymentLedger, folders: Sequence[str], out: Path) -> list[str]:
    """Copy what is evidence out of clients' folders, each under its client's name, and return the names in order.

    Parameters
    ----------
    ledger : PaymentLedger
        The ledger of the run, in which clients enrolled with their keys.
    folders : Sequence[str]
        Folders of clients, each as it is or as ``NAME=FOLDER``.
    out : Path
        The folder to fill.

    Raises
    ------
    InputError
        If a key belongs to no client of the run, or to another one than named, or two clients know different servers.
    """
    names: dict[int, Path] = {}
    known: dict[int, str] = {}
    for text in folders:
        named, folder = _split(text)
        key = read_public_key(folder / "client.pub")
        client = _owner(ledger, key, folder)
        if named is not None and named not in (ledger.naming(client), str(client)):
            raise InputError(
                "folder", f"has the key of client {ledger.naming(client)}, not of {named}", value=text
            )
        if client in names:
            raise InputError("folder", f"has the same client's key as {names[client]}", value=text)
        names[client] = folder
        state = folder / "state.json"
        if state.is_file():
            kept = _read_state(state)
            if kept.get("server_key"):
                known[client] = str(kept["server_key"])
    if len(set(known.values())) > 1:
        first, *others = sorted(known)
        other = next(client for client in others if known[client] != known[first])
        raise InputError(
            "folder",
            f"clients {ledger.naming(first)} and {ledger.naming(other)} know different servers' keys",
        )
    for client, folder in names.items():
        _copy(folder, make_and_name(out, _file_name(ledger, client)))
    if known:
        write_text(out / "server.pub", next(iter(known.values())) + "\n")
    return [ledger.naming(client) for client in sorted(names)]


def make_and_name(out: Path, name: str) -> Path:
    """Make the folder of clients' evidence, and return the path that a client's files begin with."""
    make_folder(out / "clients")
    return out / "clients" / name


def _split(text: str) -> tuple[str | None, Path]:
    if not Path(text).exists() and "=" in text:
        name, _, folder = text.partition("=")
        return name, Path(folder)
    return None, Path(text)


def _owner(ledger: PaymentLedger, key: str, folder: Path) -> int:
    for client, enrolled in ledger.by_client(RUN, ClientEnrolled).items():
        if enrolled.signer == key:
            return client
    raise InputError("folder", "has the key of no client of this run", value=folder)


def _file_name(ledger: PaymentLedger, client: int) -> str:
    """Return the name of a client as that of a file, in which no slash can be."""
    return ledger.naming(client).replace("%", "%25").replace("/", "%2F")


def _read_state(path: Path) -> Mapping[str, object]:
    try:
        state = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path}: not a client's records ({error})") from error
    return state if isinstance(state, dict) else {}


def _copy(folder: Path, base: Path) -> None:
    """Copy public key, receipts, last head and models of one client."""
    write_text(base.with_name(f"{base.name}.pub"), (folder / "client.pub").read_text())
    receipts = folder / "receipts.jsonl"
    if receipts.is_file():
        write_text(base.with_name(f"{base.name}.jsonl"), receipts.read_text())
    state = folder / "state.json"
    if state.is_file() and _read_state(state).get("head"):
        write_text(base.with_name(f"{base.name}.head"), json.dumps(_read_state(state)["head"]) + "\n")
    if (folder / "work").is_dir():
        shutil.copytree(folder / "work", base.with_name(f"{base.name}.work"), dirs_exist_ok=True)


# ---- reading


def read_client_keys(ledger: PaymentLedger, folder: Path) -> dict[int, str]:
    """Return the public keys in a folder by client; files are called by the clients' numbers or names."""
    run = ledger.last(RUN, RunStarted)
    return keys_in_folder(folder, tuple(ledger.naming.names), None if run is None else run.clients)


def keys_in_folder(folder: Path, names: Sequence[str], count: int | None) -> dict[int, str]:
    """Return the public keys in a folder by the clients' numbers.

    Parameters
    ----------
    folder : Path
        Holds a file per client, ``Leeds.pub``, or ``3.pub`` where clients have no names.
    names : Sequence[str]
        The clients' names, empty where they have none.
    count : int or None
        How many clients there are, where that is known.

    Raises
    ------
    InputError
        If there is no such folder, no key in it, or a key of no client.
    """
    if not folder.is_dir():
        raise InputError("client-keys", "is no folder", value=folder)
    found = {}
    for path in sorted(folder.glob("*.pub")):
        if names:
            client = int(ClientNames.of(names, len(names)).position(unquote(path.stem), "client-keys"))
        elif path.stem.isdecimal():
            client = int(path.stem)
        else:
            raise InputError("client-keys", "must be named by the clients' numbers, as in 3.pub", value=path)
        if count is not None and not 0 <= client < count:
            raise InputError(
                "client-keys", f"has a key of client {client}, and there are {count}", value=path
            )
        found[client] = read_public_key(path)
    if not found:
        raise InputError("client-keys", "holds no public key, such as 3.pub or Leeds.pub", value=folder)
    return found


def read_kept(path: Path) -> tuple[Receipt, ...]:
    """Return the receipts in a file, or in a client's folder; a file without any is refused."""
    file = path / "receipts.jsonl" if path.is_dir() else path
    found = tuple(read_receipts(file))
    if not found:
        raise InputError("receipts", "holds no receipt", value=file)
    return found


def read_evidence(ledger: PaymentLedger, folder: Path) -> Evidence:
    """Return everything that :func:`collect` put into a folder."""
    clients = folder / "clients"
    if not clients.is_dir():
        raise InputError("evidence", "is no folder that `stackfu-lab audit collect` filled", value=folder)
    server = folder / "server.pub"
    receipts = [receipt for path in sorted(clients.glob("*.jsonl")) for receipt in read_kept(path)]
    try:
        heads = tuple(Head(*json.loads(path.read_text())) for path in sorted(clients.glob("*.head")))
    except (OSError, TypeError, ValueError) as error:
        raise FileFormatError(f"{clients}: a head cannot be read ({error})") from error
    return Evidence(
        read_public_key(server) if server.is_file() else None,
        read_client_keys(ledger, clients),
        tuple(receipts),
        heads,
        tuple(sorted(clients.glob("*.work"))),
    )
