"""Messages around a secure sum (:mod:`~stackfu_integration.flower.secure_sum`), before and after the vectors.

=========================  ==================================================  =============================
message                    server sends                                        client replies
=========================  ==================================================  =============================
``query.stackfu_keys``     which sum                                           its keys for this sum; signed
``query.stackfu_shares``   the keys of all, the least number of members        a sealed share for each other
``query.stackfu_open``     who delivered, and the shares sealed for it         one share per member
=========================  ==================================================  =============================
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from flwr.app import ConfigRecord, RecordDict

from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.secure_sum import Keys, SumName
from stackfu_integration.flower.wire.records import (
    config,
    receipt_in,
    request_in,
    setting,
    settings_in,
    signed,
)

__all__ = [
    "KEYS",
    "LONGEST",
    "OPEN",
    "SHARES",
    "KeysAnswer",
    "KeysQuestion",
    "OpenAnswer",
    "OpenQuestion",
    "SharesAnswer",
    "SharesQuestion",
    "group_in",
    "group_text",
]

KEYS = "query.stackfu_keys"
SHARES = "query.stackfu_shares"
OPEN = "query.stackfu_open"

_LONGEST_NAME = 40  # of what is summed
LONGEST = 256 * 4_000  # what one member says of all others; the ledger keeps it, and others are sent it


def group_text(group: Mapping[int, Keys]) -> str:
    """Members and their keys as one setting."""
    return json.dumps({str(client): str(keys) for client, keys in sorted(group.items())})


def group_in(settings: ConfigRecord, name: str = "group") -> dict[int, Keys]:
    """Read members and their keys."""
    return {int(client): Keys.read(str(keys)) for client, keys in _texts(settings, name).items()}


def _texts(settings: ConfigRecord, name: str) -> dict[str, Any]:
    found = json.loads(setting(settings, name, str, LONGEST))
    if not isinstance(found, dict):
        raise TypeError(f"{name} must be names and values")
    return found


def _of(name: SumName, **more: str | int) -> RecordDict:
    return RecordDict({"config": config(request=name.request, what=name.what, number=name.number, **more)})


def _name_in(settings: ConfigRecord) -> SumName:
    return SumName(
        request_in(settings), setting(settings, "what", str, _LONGEST_NAME), setting(settings, "number", int)
    )


@dataclass(frozen=True)
class KeysQuestion:
    """Question for the keys of a member of this sum."""

    message_type: ClassVar[str] = KEYS

    name: SumName

    def encode(self) -> RecordDict:
        """Return the name of the sum."""
        return _of(self.name)

    @classmethod
    def decode(cls, content: RecordDict) -> KeysQuestion:
        """Read the name."""
        return cls(_name_in(settings_in(content)))


@dataclass(frozen=True)
class KeysAnswer:
    """The keys."""

    keys: Keys
    receipt: Receipt | None = None

    def encode(self) -> RecordDict:
        """Return one setting, signed."""
        content = RecordDict({"config": config(keys=str(self.keys))})
        return signed(content, self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> KeysAnswer:
        """Read the setting."""
        return cls(Keys.read(setting(settings_in(content), "keys", str)), receipt_in(content))


@dataclass(frozen=True)
class SharesQuestion:
    """Split your secrets so that any ``threshold`` of this group can put them together.

    ``signatures`` are the receipts under the members' keys, as plain values; a client that knows its peers looks at them.
    """

    message_type: ClassVar[str] = SHARES

    name: SumName
    group: Mapping[int, Keys]
    threshold: int
    signatures: Mapping[int, Mapping[str, Any]]

    def encode(self) -> RecordDict:
        """Return the group, and how many must be left."""
        signatures = json.dumps({str(client): dict(plain) for client, plain in self.signatures.items()})
        return _of(self.name, group=group_text(self.group), threshold=self.threshold, signatures=signatures)

    @classmethod
    def decode(cls, content: RecordDict) -> SharesQuestion:
        """Read the group."""
        settings = settings_in(content)
        signatures = {int(client): plain for client, plain in _texts(settings, "signatures").items()}
        return cls(_name_in(settings), group_in(settings), setting(settings, "threshold", int), signatures)


@dataclass(frozen=True)
class SharesAnswer:
    """A sealed share for every other member."""

    sealed: Mapping[int, str]

    def encode(self) -> RecordDict:
        """Return one setting."""
        return RecordDict({"config": config(sealed=json.dumps({str(c): s for c, s in self.sealed.items()}))})

    @classmethod
    def decode(cls, content: RecordDict) -> SharesAnswer:
        """Read the setting."""
        return cls({int(c): str(s) for c, s in _texts(settings_in(content), "sealed").items()})


@dataclass(frozen=True)
class OpenQuestion:
    """These members delivered: give the share of each one's seed, and of the others' mask keys.

    ``sealed`` are the shares that the others sealed for this member.
    """

    message_type: ClassVar[str] = OPEN

    name: SumName
    alive: tuple[int, ...]
    sealed: Mapping[int, str]

    def encode(self) -> RecordDict:
        """Return two settings."""
        sealed = json.dumps({str(c): s for c, s in self.sealed.items()})
        return _of(self.name, alive=json.dumps(list(self.alive)), sealed=sealed)

    @classmethod
    def decode(cls, content: RecordDict) -> OpenQuestion:
        """Read the settings."""
        settings = settings_in(content)
        alive = tuple(int(client) for client in json.loads(setting(settings, "alive", str)))
        sealed = {int(c): str(s) for c, s in _texts(settings, "sealed").items()}
        return cls(_name_in(settings), alive, sealed)


@dataclass(frozen=True)
class OpenAnswer:
    """One share per member."""

    shares: Mapping[int, str]

    def encode(self) -> RecordDict:
        """Return one setting."""
        return RecordDict({"config": config(shares=json.dumps({str(c): s for c, s in self.shares.items()}))})

    @classmethod
    def decode(cls, content: RecordDict) -> OpenAnswer:
        """Read the setting."""
        found = {int(c): str(s) for c, s in _texts(settings_in(content), "shares").items()}
        for share in found.values():
            int(share, 16)
        return cls(found)
