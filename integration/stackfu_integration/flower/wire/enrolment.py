"""Messages that identify clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flwr.app import RecordDict

from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.wire.records import (
    config,
    metric,
    metrics,
    receipt_in,
    setting,
    settings_in,
    signed,
)

__all__ = ["ROLL", "RollAnswer", "RollQuestion"]

ROLL = "query.stackfu_roll"

_LONGEST_NONCE = 64  # a client signs it, and keeps what it signed


@dataclass(frozen=True)
class RollQuestion:
    """Question for the client's number. ``nonce`` is drawn for the occasion, so that an old answer is useless."""

    message_type: ClassVar[str] = ROLL

    nonce: str = ""

    def encode(self) -> RecordDict:
        """Return one setting."""
        return RecordDict({"config": config(nonce=self.nonce)})

    @classmethod
    def decode(cls, content: RecordDict) -> RollQuestion:
        """Read the setting."""
        return cls(setting(settings_in(content), "nonce", str, _LONGEST_NONCE))


@dataclass(frozen=True)
class RollAnswer:
    """The client's number, if it is one."""

    client: float | int
    receipt: Receipt | None = None

    def encode(self) -> RecordDict:
        """Return one metric, signed."""
        return signed(metrics(client=self.client), self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> RollAnswer:
        """Read the metric."""
        return cls(metric(content, "client"), receipt_in(content))
