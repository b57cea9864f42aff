"""The server's signature under an audit: over its content, and over the row of the ledger that it was written at."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackfu.errors import FileFormatError
from stackfu_integration.flower.chain import VERSION, Head, first_link, link
from stackfu_integration.flower.events import NO_CLIENT, RequestClosed
from stackfu_integration.flower.keys import SigningKey, canonical, signed_by
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.naming import one_line

__all__ = ["Signature", "check_file", "signed_json", "signed_text"]

_LINE = re.compile(
    r"\n---\n\nSigned by the server's key `([0-9a-f]{64})` at row (\d+) of the ledger, `([0-9a-f]{64})`: `([0-9a-f]{128})`\n\Z"
)
_CHAINED = ("seq", "at", "request", "kind", "client", "round", "amount", "detail", "payload")


@dataclass(frozen=True)
class Signature:
    """The signer of a content, and the row of the ledger at which it was signed."""

    key: str
    row: int
    hash: str
    signature: str = ""

    def statement(self, content: bytes) -> list[Any]:
        """Return what is signed."""
        return ["audit", first_link(self.key), self.row, self.hash, hashlib.sha256(content).hexdigest()]

    @classmethod
    def make(cls, ledger: PaymentLedger, request: str, key: SigningKey, content: bytes) -> Signature:
        """Sign a content at the row that closed a request, or at the last one of a request that is open."""
        row = ledger.place_of(request, RequestClosed) or max((r.seq for r in ledger.rows()), default=0)
        bare = cls(key.public, row, str(ledger.hash_at(row)))
        return cls(bare.key, bare.row, bare.hash, key.sign(bare.statement(content)))

    def signs(self, content: bytes) -> bool:
        """Say if the owner of the key signed this content."""
        return signed_by(self.key, self.statement(content), self.signature)


def signed_json(
    ledger: PaymentLedger, request: str, facts: Mapping[str, Any], key: SigningKey
) -> dict[str, Any]:
    """Return facts with the server's signature among them."""
    return {**facts, "signed": vars(Signature.make(ledger, request, key, canonical(dict(facts))))}


def signed_text(ledger: PaymentLedger, request: str, text: str, key: SigningKey) -> str:
    """Return a text with the server's signature as its last line."""
    made = Signature.make(ledger, request, key, text.encode())
    return (
        f"{text}\n---\n\nSigned by the server's key `{made.key}` at row {made.row} of the ledger, `{made.hash}`: "
        f"`{made.signature}`\n"
    )


def check_file(path: Path, server_key: str | None = None) -> tuple[str | None, str]:
    """Return what is wrong with a signed file, ``None`` if nothing is, and a sentence on who signed what.

    Parameters
    ----------
    path : Path
        An audit as text (``.md``) or JSON, or an exported ledger.
    server_key : str, optional
        The server's public key; without it the key in the file is believed, which the sentence says.

    Raises
    ------
    FileFormatError
        If the file is none of these.
    """
    try:
        text = (
            path.read_bytes().decode()
        )  # line ends as they are: a terminal obeys those that Python takes for one
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: not an audit ({error})") from error
    if path.suffix == ".md":
        found = _LINE.search(text)
        if found is None:
            return "nobody signed it", ""
        made = Signature(found[1], int(found[2]), found[3], found[4])
        return _checked(made, text[: found.start()].encode(), server_key)
    try:
        plain = json.loads(text, object_pairs_hook=_named_once)
    except _GivenTwiceError as error:
        return f"it names {error} twice, of which every program reads another one", ""
    except ValueError as error:
        raise FileFormatError(f"{path}: neither a text (.md) nor JSON ({error})") from error
    if not isinstance(plain, dict) or not ({"rows", "head"} <= set(plain) or "request" in plain):
        raise FileFormatError(f"{path}: neither an audit nor an exported ledger")
    try:
        if "rows" in plain:
            return _checked_export(plain, server_key)
        if "signed" not in plain:
            return "nobody signed it", ""
        made = Signature(**plain.pop("signed"))
        return _checked(made, canonical(plain), server_key)
    except (KeyError, TypeError, ValueError) as error:
        return f"its signature or its rows cannot be read ({type(error).__name__})", ""


class _GivenTwiceError(ValueError):
    """An object of JSON has two entries of one name."""


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the entries of an object of JSON, of which no two have one name."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _GivenTwiceError(one_line(name)[:80])
        found[name] = value
    return found


def _checked(made: Signature, content: bytes, server_key: str | None) -> tuple[str | None, str]:
    if server_key is not None and made.key != server_key:
        return f"it is signed by the key {made.key[:16]}…, not by {server_key[:16]}…", ""
    if not made.signs(content):
        return "it is not what the server signed", ""
    return None, f"signed by the key {made.key[:16]}… at row {made.row} of the ledger"


def _checked_export(plain: Mapping[str, Any], server_key: str | None) -> tuple[str | None, str]:
    """Check the chain of an exported ledger, and the signature of its head."""
    if set(plain) != {"version", "rows", "head"}:
        return "it has entries that are not part of an exported ledger, and that nobody signed", ""
    if plain["version"] != VERSION or plain["head"] is None:
        return "it has no signed head, or is of another version", ""
    head = Head(**plain["head"])
    if server_key is not None and head.key != server_key:
        return f"it is signed by the key {head.key[:16]}…, not by {server_key[:16]}…", ""
    previous, last = first_link(head.key), 0
    for row in plain["rows"]:
        if set(row) != {*_CHAINED, "hash"}:
            return f"row {last + 1} has entries that are not part of a row, and that nobody signed", ""
        previous, last = link(previous, [row[name] for name in _CHAINED]), last + 1
        who = "" if row["client"] == NO_CLIENT else f" of client {row['client']}"
        if row["seq"] != last or row["hash"] != previous:
            return f"row {last} ({row['kind']}{who}) is not what the server wrote", ""
    if not head.is_signed or (head.seq, head.hash) != (last, previous):
        return "the server did not sign its last row", ""
    return None, f"{last} rows, signed by the key {head.key[:16]}…"
