"""Ed25519 keys of the server and of the clients, and the bytes that they sign.

What is signed is a value in canonical JSON: keys in order, no spaces, floats in their shortest form that reads
back as the same number. Two programs that agree on a value therefore agree on its bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from stackfu.atomic import make_folder, sync_folder
from stackfu.errors import FileFormatError, InputError
from stackfu_integration.storage import write_text

__all__ = ["SigningKey", "canonical", "fingerprint", "read_public_key", "signed_by"]


def canonical(value: Any) -> bytes:
    """Return the one way to write a value down.

    >>> canonical({"b": 0.1, "a": [1, "é"]})
    b'{"a":[1,"\\\\u00e9"],"b":0.1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def fingerprint(value: Any) -> str:
    """SHA-256 of a value in canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


@dataclass(frozen=True)
class SigningKey:
    """A private key; ``public`` is its public part, 64 hexadecimal digits."""

    _private: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> SigningKey:
        """Draw a new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """Read a private key from a PEM file."""
        try:
            private = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError) as error:
            raise FileFormatError(f"{path}: not a private key ({error})") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise FileFormatError(f"{path}: not an Ed25519 key")
        return cls(private)

    @classmethod
    def load_or_create(cls, path: Path) -> SigningKey:
        """Read a private key; if there is none, draw one that only its owner can read.

        The public part is stored in the same folder, as ``NAME.pub``. If two programs start at once, one draws the key and
        both read it.
        """
        if not path.is_file():
            make_folder(path.parent)
            pem = cls.generate()._private.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            part = path.with_name(f".{path.name}.{os.getpid()}.part")
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
                stream.write(pem)
                stream.flush()
                os.fsync(stream.fileno())
            try:
                os.link(
                    part, path
                )  # unlike a rename, it does not replace the key of somebody who was quicker
            except FileExistsError:
                pass
            finally:
                part.unlink()
            sync_folder(
                path.parent
            )  # a key that signs, and is gone after a power cut, signs nothing any more
        key = cls.load(path)
        public = path.with_suffix(".pub")
        if not public.is_file():
            write_text(public, key.public + "\n")
        return key

    @property
    def public(self) -> str:
        """The public part, in hexadecimal digits."""
        raw = self._private.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )
        return raw.hex()

    @property
    def secret(self) -> bytes:
        """The private part: its holder can sign, and knows all numbers drawn from it."""
        return self._private.private_bytes_raw()

    def sign(self, value: Any) -> str:
        """Sign a value in canonical JSON."""
        return self._private.sign(canonical(value)).hex()


def signed_by(public: str, value: Any, signature: str) -> bool:
    """Say whether the owner of a public key signed this value."""
    try:
        return _signed(public, canonical(value), signature)
    except (ValueError, TypeError):
        return False


@lru_cache(maxsize=4096)  # an audit meets the same heads again and again
def _signed(public: str, content: bytes, signature: str) -> bool:
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def read_public_key(path: Path) -> str:
    """Read a public key, as :meth:`SigningKey.load_or_create` writes it."""
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: not a public key ({error})") from error
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise InputError("key", "a public key is 64 hexadecimal digits", value=str(path))
    return text
