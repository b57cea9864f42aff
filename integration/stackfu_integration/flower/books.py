"""The client's own books: its key, its policy, what it released, what it agreed to, and its receipts.

    FOLDER/policy.toml       what may be released (:mod:`.policy`); written by the client's operator
    FOLDER/client.key, .pub  the client's Ed25519 key, drawn on first use
    FOLDER/state.json        releases, agreements and work, and the server's last head
    FOLDER/receipts.jsonl    everything that the client signed, one receipt per line

They outlive the node and its runs: after a restart a client still knows what it sent, what it was promised and what it
is owed. Without a folder the books live as long as a run of Flower does, nothing is signed, and releases of other runs
are not counted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import secrets
from functools import cached_property
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from stackfu.atomic import make_folder, sync_folder
from stackfu.errors import FileFormatError, InputError
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.policy import POLICY_FILE, Policy, Release
from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.storage import write_json

__all__ = ["ClientBooks", "read_receipts"]

_MEMORY, _SECRET = "stackfu-books", "stackfu-secret"


class ClientBooks:
    """The books of one client, in a folder or, without one, in the memory that a run of Flower gives a node."""

    def __init__(self, folder: Path | None, memory: RecordDict, policy: Policy | None = None) -> None:
        self.folder, self._memory, self._given = folder, memory, policy

    @property
    def lasting(self) -> bool:
        """Whether what is not in the books did not happen; without a folder it may have been another run's."""
        return self.folder is not None

    @cached_property
    def policy(self) -> Policy:
        """What may be released."""
        if self._given is not None:
            return self._given
        return Policy() if self.folder is None else Policy.load(self.folder / POLICY_FILE)

    @cached_property
    def key(self) -> SigningKey | None:
        """The client's key; without a folder there is none."""
        return None if self.folder is None else SigningKey.load_or_create(self.folder / "client.key")

    def noise_key(self) -> bytes:
        """A secret of which noise and masks are made, so that the same question gets the same answer.

        Without a folder it lives as long as a run of Flower does.
        """
        if self.key is None:
            kept = self._memory.get(_SECRET)
            if not isinstance(kept, ConfigRecord):
                kept = self._memory[_SECRET] = ConfigRecord({"secret": secrets.token_bytes(32)})
            return bytes(kept["secret"])
        return hmac.new(bytes.fromhex(self.key.sign("noise")), b"stackfu", hashlib.sha256).digest()

    # ---------------------------------------------------------------- state

    @cached_property
    def state(self) -> dict[str, Any]:
        """Everything that is remembered; :meth:`save` writes it down."""
        if self.folder is None:
            kept = self._memory.get(_MEMORY)
            text = kept["state"] if isinstance(kept, ConfigRecord) else ""
        else:
            path = self.folder / "state.json"
            text = path.read_text() if path.is_file() else ""
        try:
            state: dict[str, Any] = json.loads(text) if text else {"releases": {}, "requests": {}}
        except ValueError as error:
            raise FileFormatError(f"{self.folder}: the books cannot be read ({error})") from error
        return state

    def save(self) -> None:
        """Write the state down, whole or not at all."""
        if self.folder is None:
            self._memory[_MEMORY] = ConfigRecord({"state": json.dumps(self.state)})
        else:
            write_json(self.folder / "state.json", self.state)

    def about(self, request: str) -> dict[str, Any]:
        """What is remembered of a request; changes are kept by :meth:`save`."""
        found: dict[str, Any] = self.state["requests"].setdefault(request, {})
        return found

    # ---------------------------------------------------------------- releases

    def account(self, name: str, release: Release) -> None:
        """Enter a release before it leaves, or refuse it; the same release under the same name costs once."""
        known = self.state["releases"]
        if name in known:
            return
        self.policy.check_total(self.released(), release)
        # JSON has no infinity, which is what an embedding without noise costs
        known[name] = {"mu": release.mu if math.isfinite(release.mu) else None, "epsilon": release.epsilon}
        self.save()

    def released(self) -> list[Release]:
        """Everything that has left so far."""
        entries = self.state["releases"].values()
        return [Release(math.inf if e["mu"] is None else e["mu"], e["epsilon"]) for e in entries]

    # ---------------------------------------------------------------- the server

    def see(self, head: Head | None) -> None:
        """Look at the head that the server shows: signed, by the server that is known, and no fork of what it showed.

        An earlier head may be a message that was late. It is not kept, and the later one, signed by the server, is the
        client's proof if that row should ever be denied.
        """
        if head is None:
            return
        if not head.is_signed:
            raise InputError("head", "the server's signature is wrong")
        pinned = self.policy.server_key or self.state.get("server_key", "")
        if pinned and pinned != head.key:
            raise InputError(
                "head", "another server's key than the one that this client knows", value=head.key
            )
        last = self.state.get("head")
        if last is not None and head.seq == last[0] and head.hash != last[1]:
            raise InputError(
                "head", "the server has signed two different rows of this number", value=head.seq
            )
        if last is None or head.seq > last[0]:
            self.state["server_key"] = head.key
            self.state["head"] = [head.seq, head.hash, head.key, head.signature]
            self.save()

    def sign(self, what: str, head: Head | None, **facts: Any) -> Receipt | None:
        """Sign facts and keep the receipt; without a key nothing is signed."""
        if self.key is None or self.folder is None:
            return None
        receipt = Receipt.sign(self.key, what, head, **facts)
        make_folder(self.folder)
        path = self.folder / "receipts.jsonl"
        new = not path.exists()
        line = json.dumps(receipt.plain(), sort_keys=True).encode() + b"\n"
        with path.open("ab") as stream:
            if stream.tell() and path.read_bytes()[-1:] != b"\n":
                line = b"\n" + line  # a power cut left half a line, which stays the only one that is lost
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
        if new:
            sync_folder(self.folder)
        return receipt


def read_receipts(path: Path) -> list[Receipt]:
    """Read receipts that a client kept; a line that a power cut left unfinished does not count."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: no receipts ({error})") from error
    found = []
    for line in lines:
        try:
            found.append(Receipt.read(json.loads(line)))
        except (KeyError, TypeError, ValueError):
            continue
    if lines and not found:
        raise FileFormatError(f"{path}: no receipts in {len(lines)} lines")
    return found
