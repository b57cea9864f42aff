"""The client's own records: its key, its policy, what it released, what it agreed to, and its receipts.

    FOLDER/policy.toml       what may be released (:mod:`.policy`); written by the client's operator
    FOLDER/client.key, .pub  the client's Ed25519 key, drawn on first use
    FOLDER/state.json        releases, agreements and work, and the server's last head
    FOLDER/receipts.jsonl    everything that the client signed, one receipt per line
    FOLDER/replies/          the last reply of each kind to each request, which is repeated when it is asked for again
    FOLDER/work/             the models that it sent in rounds of unlearning, if the policy keeps them: evidence for an audit

They outlive the node and its runs: after a restart a client still knows what it sent, what it was promised and what it
is owed. Without a folder the records live as long as a run of Flower does, nothing is signed, and releases of other runs
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

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from stackfu.atomic import make_folder, sync_folder
from stackfu.errors import FileFormatError, InputError
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.policy import POLICY_FILE, Policy, Release
from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.storage import write_json, write_with

__all__ = ["ClientState", "read_receipts"]

_MEMORY, _SECRET, _REPLY = "stackfu-books", "stackfu-secret", "stackfu-reply"
_HEADS_KEPT = 200  # of the server, so that a message that comes a second time is known
_MOST_REQUESTS = 10_000  # that are remembered, and releases too: a server that invents names fills no disk


class ClientState:
    """The records of one client, in a folder or, without one, in the memory that a run of Flower gives a node."""

    def __init__(self, folder: Path | None, memory: RecordDict, policy: Policy | None = None) -> None:
        self.folder, self._memory, self._given = folder, memory, policy

    @property
    def lasting(self) -> bool:
        """True if missing entries may belong to an earlier run, because the client has no folder."""
        return self.folder is not None

    @cached_property
    def policy(self) -> Policy:
        """Releases that the client allows."""
        if self._given is not None:
            return self._given
        return Policy() if self.folder is None else Policy.load(self.folder / POLICY_FILE)

    @cached_property
    def key(self) -> SigningKey | None:
        """The client's key; without a folder there is none."""
        return None if self.folder is None else SigningKey.load_or_create(self.folder / "client.key")

    def noise_key(self) -> bytes:
        """Return a secret of which noise and masks are made, so that the same question gets the same answer.

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
            raise FileFormatError(f"{self.folder}: the records cannot be read ({error})") from error
        return state

    def save(self) -> None:
        """Write the state down, whole or not at all."""
        if self.folder is None:
            self._memory[_MEMORY] = ConfigRecord({"state": json.dumps(self.state)})
        else:
            write_json(self.folder / "state.json", self.state)

    def about(self, request: str) -> dict[str, Any]:
        """Return the stored facts about a request; :meth:`save` stores changes."""
        requests = self.state["requests"]
        if request not in requests and len(requests) >= _MOST_REQUESTS:
            raise InputError("request", f"is one more than the {_MOST_REQUESTS} that this client remembers")
        found: dict[str, Any] = requests.setdefault(request, {})
        return found

    @property
    def in_doubt(self) -> bool:
        """True for a client without a folder and with a policy that trusts the server's account of missing agreements."""
        return not self.lasting and self.policy.trusting

    # ---------------------------------------------------------------- replies

    def reply_to(self, slot: str, mark: str) -> bytes | None:
        """Return the stored reply to this very question, or ``None``; ``slot`` is what it is about, ``mark`` its content."""
        if self.folder is None:
            record = self._memory.get(f"{_REPLY} {slot}")
            stored = bytes(record["reply"]) if isinstance(record, ConfigRecord) else b""
        else:
            path = self._path_of(slot)
            stored = path.read_bytes() if path.is_file() else b""
        wanted = mark.encode()
        return stored[len(wanted) :] if stored.startswith(wanted) else None

    def keep_reply(self, slot: str, mark: str, reply: bytes) -> None:
        """Store a reply before it leaves; it takes the place of an earlier one in its slot."""
        stored = mark.encode() + reply
        if self.folder is None:
            self._memory[f"{_REPLY} {slot}"] = ConfigRecord({"reply": stored})
        else:
            write_with(self._path_of(slot), lambda stream: stream.write(stored))

    def forget_reply(self, slot: str) -> None:
        """Delete the reply in a slot, if there is one."""
        if self.folder is None:
            self._memory.pop(f"{_REPLY} {slot}", None)
        else:
            self._path_of(slot).unlink(missing_ok=True)

    def _path_of(self, slot: str) -> Path:
        assert self.folder is not None
        return self.folder / "replies" / hashlib.sha256(slot.encode()).hexdigest()[:32]

    # ---------------------------------------------------------------- releases

    def account(self, name: str, release: Release) -> None:
        """Enter a release before it leaves, or refuse it; the same release under the same name costs once."""
        known = self.state["releases"]
        if name in known:
            return
        if len(known) >= _MOST_REQUESTS:
            raise InputError(
                "epsilon", f"is that of one release more than the {_MOST_REQUESTS} that this client remembers"
            )
        self.policy.check_total(self.released(), release)
        # JSON has no infinity, which is what an embedding without noise costs
        known[name] = {"mu": release.mu if math.isfinite(release.mu) else None, "epsilon": release.epsilon}
        self.save()

    def released(self) -> list[Release]:
        """Return everything that has left so far."""
        entries = self.state["releases"].values()
        return [Release(math.inf if e["mu"] is None else e["mu"], e["epsilon"]) for e in entries]

    # ---------------------------------------------------------------- the server

    def see(self, head: Head | None) -> None:
        """Look at the head that the server shows: signed, by the server that is known, and no fork of what it showed.

        A number that this client has seen has one row. An earlier number than the last one is accepted only where it was shown
        before, as in a message that comes twice: a server that goes back and writes other rows would show new ones. A server that
        writes other rows without showing any of them until they are more than before is not seen here; the receipts that
        name the first rows show it to the audit.
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
        seen: dict[str, str] = self.state.setdefault("heads", {} if last is None else {str(last[0]): last[1]})
        if seen.get(str(head.seq), head.hash) != head.hash:
            raise InputError(
                "head", "the server has signed two different rows of this number", value=head.seq
            )
        if last is not None and head.seq < last[0] and str(head.seq) not in seen:
            raise InputError(
                "head",
                f"the server goes back: it has signed row {last[0]}, and shows an earlier one",
                value=head.seq,
            )
        if last is None or head.seq > last[0]:
            self.state["server_key"] = head.key
            self.state["head"] = [head.seq, head.hash, head.key, head.signature]
            seen[str(head.seq)] = head.hash
            for number in sorted(seen, key=int)[:-_HEADS_KEPT]:
                del seen[number]
            self.save()

    def keep_work(self, model: ArrayRecord) -> None:
        """Keep a model that leaves, as evidence of what it was: the audit averages what clients kept."""
        if self.folder is not None and self.policy.keep_work:
            ModelStore(self.folder / "work").put(model)

    def sign(self, what: str, head: Head | None, **facts: Any) -> Receipt | None:
        """Sign facts and keep the receipt, numbered so that a missing one shows; without a key nothing is signed."""
        if self.key is None or self.folder is None:
            return None
        make_folder(self.folder)
        path = self.folder / "receipts.jsonl"
        new = not path.exists()
        kept = 0 if new else sum(line.endswith(b"}}") for line in path.read_bytes().splitlines())
        receipt = Receipt.sign(self.key, what, head, nth=kept + 1, **facts)
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
