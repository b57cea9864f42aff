"""Statements that clients sign: about an embedding, an answer, a round of work, a payment.

A statement names the ledger and the head that the server showed with its question. A receipt in another party's hands
therefore proves three things: what was said, that the client said it, and that the ledger had reached that head when it
was said. A copy of the ledger that ends earlier, or has another row there, is not the ledger that the client dealt with.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackfu_integration.flower.chain import Head, first_link
from stackfu_integration.flower.keys import SigningKey, signed_by

__all__ = [
    "CONSENT",
    "EMBEDDING",
    "ENROLMENT",
    "GRADIENT",
    "PARTING",
    "PAYMENT",
    "REFUSAL",
    "SHARE",
    "SUM_KEYS",
    "WORK",
    "Receipt",
    "fingerprint_of",
    "shown",
    "signable_clients",
]

ENROLMENT, EMBEDDING, SHARE, WORK, PAYMENT = "enrolment", "embedding", "share", "work", "payment"
GRADIENT, SUM_KEYS, CONSENT, PARTING = "gradient", "keys of a sum", "consent", "parting"
REFUSAL = "refusal"  # of an offer, by the client's own policy

_MOST_NAMED = 1_000  # clients in one statement, which the ledger keeps


def shown(value: Any) -> str:
    """Return text from another party as one plain line for the audit, without headings, links or tables."""
    return re.sub(r"[^\w .,:;/()='-]+", " ", repr(value))[:80]


def fingerprint_of(vector: NDArray[Any]) -> str:
    """Return the hash by which receipts and records know a vector."""
    return hashlib.sha256(np.ascontiguousarray(vector).tobytes()).hexdigest()


def signable_clients(removed: Collection[int]) -> dict[str, list[int]]:
    """Return the clients that leave as a receipt about a share states them; very many are not listed, as receipts are short."""
    return {"removed": sorted(removed)} if len(removed) <= _MOST_NAMED else {}


@dataclass(frozen=True)
class Receipt:
    """A statement and the client's signature under it; ``key`` is its public key."""

    statement: Mapping[str, Any]
    key: str
    signature: str

    @classmethod
    def sign(cls, key: SigningKey, what: str, head: Head | None, **facts: Any) -> Receipt:
        """Sign facts, together with the head that was shown."""
        shown = (
            None if head is None else [first_link(head.key), head.seq, head.hash, head.key, head.signature]
        )
        statement = {"what": what, "head": shown, **facts}
        return cls(statement, key.public, key.sign(statement))

    @property
    def is_signed(self) -> bool:
        """Return True if the owner of the key signed it."""
        return signed_by(self.key, dict(self.statement), self.signature)

    @property
    def head(self) -> Head | None:
        """The head that the server showed, if it showed one."""
        shown = self.statement.get("head")
        if not isinstance(shown, list) or len(shown) != 5 or not isinstance(shown[1], int):
            return None
        return Head(shown[1], str(shown[2]), str(shown[3]), str(shown[4]))

    def plain(self) -> dict[str, Any]:
        """Return the receipt as plain values."""
        return {"statement": dict(self.statement), "key": self.key, "signature": self.signature}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Receipt:
        """Read plain values back."""
        return cls(dict(plain["statement"]), str(plain["key"]), str(plain["signature"]))

    def differs_from(self, what: str, **facts: Any) -> str | None:
        """Say in what the statement differs from these facts, if in anything."""
        if self.statement.get("what") != what:
            return f"is about {shown(self.statement.get('what'))}, not {what!r}"
        for name, value in facts.items():
            if self.statement.get(name) != value:
                return f"says {name} = {shown(self.statement.get(name))}, the ledger {value!r}"
        return None
