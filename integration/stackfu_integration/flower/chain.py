"""The chain of a ledger's rows, and the head that the server signs.

hash_i = SHA-256(hash_{i-1}, row_i in canonical JSON),      hash_0 = SHA-256(public key of the server)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from stackfu_integration.flower.keys import SigningKey, fingerprint, signed_by

__all__ = ["VERSION", "Head", "first_link", "link", "sealed"]

VERSION = 2  # of the ledger: what is chained, and how


def first_link(public_key: str) -> str:
    """Return the hash before the first row: it names the server's key, and by it the ledger."""
    return fingerprint(["stackfu ledger", VERSION, public_key])


def link(previous: str, row: Any) -> str:
    """Return the hash of a row and of all rows before it; ``row`` has the chained columns in their order."""
    plain = list(row)
    if plain[6] is not None:
        plain[6] = float(plain[6]).hex()
    return fingerprint([previous, plain])


def sealed(salt: bytes, content: bytes) -> str:
    """Return the salted hash by which a vector enters the chain; without the salt it tells nothing of the vector."""
    return hashlib.sha256(salt + content).hexdigest()


@dataclass(frozen=True)
class Head:
    """The last row that the server stands behind: its number, its hash, the server's key and signature."""

    seq: int
    hash: str
    key: str
    signature: str = ""

    def statement(self) -> list[Any]:
        """Return the signed bytes."""
        return ["head", first_link(self.key), self.seq, self.hash]

    @classmethod
    def signed(cls, seq: int, hash_: str, key: SigningKey) -> Head:
        """Sign a head."""
        bare = cls(seq, hash_, key.public)
        return cls(seq, hash_, key.public, key.sign(bare.statement()))

    @property
    def is_signed(self) -> bool:
        """Return True if the owner of the key signed it."""
        return signed_by(self.key, self.statement(), self.signature)
