"""A sum of vectors of which nobody learns a summand.

Every two members of a group agree on a secret by X25519 and make a mask of it; the one adds it, the other takes it off,
in whole numbers modulo 2^64:

    s_k = round(2^32 v_k) + sum_{j > k} m_kj - sum_{j < k} m_jk          sum_k s_k = sum_k round(2^32 v_k)

Each s_k alone is uniformly random to whoever lacks the secrets. The server relays the public keys, so this protects
against a server that reads what passes, not against one that hands out keys of its own making, unless members know each
other's keys. All members must answer: without one of them the sum is noise, and the others are asked again with new masks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from stackfu.errors import InputError

__all__ = ["mask_key", "masked", "unmasked_sum"]

_SCALE = 2.0**32
_LARGEST = 2.0**29  # of a vector's entries: a group of eight still fits into 64 bits


def _private(secret: bytes, *context: object) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(hashlib.sha256(secret + repr(context).encode()).digest())


def mask_key(secret: bytes, *context: object) -> str:
    """Return the public key of a member, for this context only."""
    public = _private(secret, *context).public_key()
    return public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex()


def masked(
    vector: NDArray[np.float64], secret: bytes, me: int, group: Mapping[int, str], *context: object
) -> NDArray[np.uint64]:
    """Return a member's masked vector; ``group`` has every member's public key, its own among them.

    >>> keys = {k: mask_key(b"secret %d" % k, "r1") for k in (3, 5)}
    >>> sent = [masked(np.array([0.25, -1.0]) * k, b"secret %d" % k, k, keys, "r1") for k in (3, 5)]
    >>> unmasked_sum(sent)
    array([ 2., -8.])
    """
    if group.get(me) != mask_key(secret, *context):
        raise InputError("group", "does not have this client's own key", client=me)
    if len(group) < 2:
        raise InputError("group", "a sum of one hides nothing", client=me)
    if not np.abs(vector).max(initial=0.0) < _LARGEST / len(group):
        raise InputError("vector", "is too large to be summed exactly", client=me)
    total = np.rint(vector * _SCALE).astype(np.int64).view(np.uint64).copy()
    private = _private(secret, *context)
    for other, public in group.items():
        if other == me:
            continue
        shared = private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
        stream = hashlib.shake_256(shared + repr((min(me, other), max(me, other), context)).encode())
        mask = np.frombuffer(stream.digest(8 * len(vector)), dtype="<u8").astype(np.uint64)
        total = total + mask if me < other else total - mask
    return total


def unmasked_sum(sent: Iterable[NDArray[np.uint64]]) -> NDArray[np.float64]:
    """Return the sum of all members' vectors."""
    total: NDArray[np.uint64] = np.sum(np.array(list(sent), dtype=np.uint64), axis=0, dtype=np.uint64)
    return np.asarray(total.view(np.int64).astype(np.float64) / _SCALE)
