"""A sum of vectors that reveals no summand, also if members drop out or the server claims that they did.

The protocol of Bonawitz et al. (Practical Secure Aggregation for Privacy-Preserving Machine Learning, 2017), in whole
numbers modulo 2^64:

    y_k = round(2^bits v_k) + G(b_k) + sum_{j > k} G(s_kj) - sum_{j < k} G(s_kj)

    keys      a member announces two X25519 keys, one to mask and one to seal with, and the hash of its own seed b_k
    shares    it splits b_k and its mask key, so that any t members can put them together, and seals a share for each
    vectors   it sends y_k; s_kj is what the mask keys of k and j agree on, G a stream of ChaCha20
    opening   each delivering member gives its shares: of b_j for members that delivered, of the mask key for those that did not

The masks between members cancel; of members that dropped out they follow from the mask key, and G(b_k) from the seed. Of one
member no more than t - 1 others would give both (:class:`Member` gives one, once), and t is more than half of them: without both,
y_k is uniformly random. Everything follows from the member's secret and the sum's name, so a member that was started anew gives
the answers that it gave before.

The server relays the keys. Members that know each other's public keys notice keys of the server's own making
(``peers`` in :mod:`.policy`); others are protected from a server that reads and lies about drop-outs, not from one that plays
all the other members.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from stackfu.errors import InputError, StackfuError
from stackfu_integration.arrays import FloatArray, UIntArray
from stackfu_integration.flower.keys import canonical, fingerprint

__all__ = [
    "EMBEDDING_BITS",
    "MODEL_BITS",
    "MOST_MEMBERS",
    "Keys",
    "Member",
    "SumError",
    "SumGroup",
    "SumName",
    "put_together",
    "split",
    "threshold_of",
    "usable",
]


EMBEDDING_BITS = 32
MODEL_BITS = 24  # as many as a number of single precision has, and a model times a million samples still fits
MOST_MEMBERS = 256
_LARGEST = (
    2.0**54
)  # of a scaled entry: 256 of them stay below 2^62, and random numbers of 64 bits are mostly above it
_PRIME = 2**521 - 1
_HEXADECIMAL = re.compile("[0-9a-f]{1,132}")
_TRIES = 1000  # sets of shares that are tried when some of them are wrong


class SumError(StackfuError):
    """The sum cannot be put together, or is none that honest members can have."""


@dataclass(frozen=True)
class SumName:
    """Name of a sum: its request, kind and number. Masks of one sum reveal nothing about another."""

    request: str
    what: str
    number: int = 0


@dataclass(frozen=True)
class Keys:
    """Announcement of a member: its keys for shares and for masks, and the hash of its own seed."""

    seal: str
    mask: str
    seed: str

    def __str__(self) -> str:
        return f"{self.seal}.{self.mask}.{self.seed}"

    @classmethod
    def read(cls, text: str) -> Keys:
        """Read keys as they are written."""
        parts = text.split(".")
        if len(parts) != 3 or any(len(bytes.fromhex(part)) != 32 for part in parts):
            raise ValueError("keys of a sum are three times 64 hexadecimal digits")
        return cls(*parts)


def usable(keys: Keys) -> bool:
    """Return True if others can agree on a secret with these keys: some numbers are invalid, and would stop them."""
    mine = X25519PrivateKey.generate()
    try:
        for public in (keys.seal, keys.mask):
            mine.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
    except ValueError:
        return False
    return True


def threshold_of(members: int) -> int:
    """Return the number of members needed to open the sum: more than half of them, and at least two."""
    return max(members // 2 + 1, 2)


# ---- secrets


def _derived(secret: bytes, *context: object) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=canonical(list(context))).derive(secret)


def _stream(seed: bytes, length: int) -> UIntArray:
    """``G(seed)``: so many whole numbers of 64 bits."""
    encryptor = Cipher(algorithms.ChaCha20(seed, b"\0" * 16), mode=None).encryptor()
    return np.frombuffer(encryptor.update(b"\0" * (8 * length)), dtype="<u8").astype(np.uint64)


def _public(private: X25519PrivateKey) -> str:
    return private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex()


def _agreed(private: X25519PrivateKey, public: str, *context: object) -> bytes:
    shared = private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
    return _derived(shared, *context)


def split(secret: bytes, threshold: int, members: Iterable[int], source: bytes) -> dict[int, int]:
    """Return a share per member, of which any ``threshold`` give the secret and fewer say nothing (Shamir, 1979).

    >>> shares = split(b"secret", 2, (0, 3, 7), b"random")
    >>> put_together({0: shares[0], 7: shares[7]}, 6)
    b'secret'
    """
    # wider than the prime by far, so that the remainder is as good as uniform
    wide = [hashlib.shake_256(source + k.to_bytes(4, "big")).digest(96) for k in range(1, threshold)]
    polynomial = [int.from_bytes(secret, "big"), *(int.from_bytes(w, "big") % _PRIME for w in wide)]
    shares = {}
    for member in members:
        value = 0
        for coefficient in reversed(polynomial):
            value = (value * (member + 1) + coefficient) % _PRIME
        shares[member] = value
    return shares


def put_together(shares: Mapping[int, int], length: int = 32) -> bytes:
    """Return the secret of which these are the shares; too few, or wrong ones, give another number."""
    total = 0
    for member, share in shares.items():
        up = down = 1
        for other in shares:
            if other != member:
                up = up * (other + 1) % _PRIME
                down = down * (other - member) % _PRIME
        total = (total + share * up * pow(down, -1, _PRIME)) % _PRIME
    return total.to_bytes(66, "big")[-length:]


# ---- a member


@dataclass(frozen=True)
class Member:
    """One client in one sum; ``secret`` is the client's own and never leaves.

    >>> name, secrets = SumName("r1", "example"), {3: b"a", 5: b"b", 9: b"c"}
    >>> members = {k: Member(secret, k, name) for k, secret in secrets.items()}
    >>> group = {k: member.keys for k, member in members.items()}
    >>> sealed = {k: member.sealed_shares(group, 2) for k, member in members.items()}
    >>> sent = {k: members[k].masked(np.array([0.25, -1.0]) * k, 24, group) for k in (3, 5)}  # 9 has dropped out
    >>> opened = {k: members[k].opened({j: sealed[j][k] for j in group if j != k}, group, group, 2, [3, 5]) for k in (3, 5)}
    >>> SumGroup(name, group, 2).unmasked(sent[3] + sent[5], sent, opened, 24)
    array([ 2., -8.])
    """

    secret: bytes
    client: int
    name: SumName

    def _derived(self, what: str) -> bytes:
        return _derived(self.secret, "stackfu sum", *vars(self.name).values(), what)

    @cached_property
    def _seal(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self._derived("seal"))

    @cached_property
    def _mask(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self._derived("mask"))

    @cached_property
    def _seed(self) -> bytes:
        return self._derived("seed")

    @cached_property
    def keys(self) -> Keys:
        """Announcement of this member."""
        return Keys(_public(self._seal), _public(self._mask), _hashed(self._seed))

    def _check_group(self, group: Mapping[int, Keys], threshold: int) -> None:
        if group.get(self.client) != self.keys:
            raise InputError("group", "does not have this client's own keys", client=self.client)
        if not 2 <= len(group) <= MOST_MEMBERS:
            raise InputError("group", f"must have 2 to {MOST_MEMBERS} members", value=len(group))
        if len({k.mask for k in group.values()} | {k.seal for k in group.values()}) < 2 * len(group):
            raise InputError("group", "two members have the same key", client=self.client)
        if not threshold_of(len(group)) <= threshold <= len(group):
            raise InputError("threshold", f"of {len(group)} members is too low or too high", value=threshold)

    def _shares(self, group: Mapping[int, Keys], threshold: int) -> tuple[dict[int, int], dict[int, int]]:
        of = fingerprint([threshold, sorted((k, str(keys)) for k, keys in group.items())])
        return (
            split(self._seed, threshold, group, self._derived(f"shares of the seed {of}")),
            split(self._derived("mask"), threshold, group, self._derived(f"shares of the key {of}")),
        )

    def sealed_shares(self, group: Mapping[int, Keys], threshold: int) -> dict[int, str]:
        """Return a share of both secrets for every other member, which only that one can read."""
        self._check_group(group, threshold)
        seeds, keys = self._shares(group, threshold)
        sealed = {}
        for other in group:
            if other != self.client:
                text = canonical([f"{seeds[other]:x}", f"{keys[other]:x}"])
                box = ChaCha20Poly1305(self._sealing(self.client, other, group))
                sealed[other] = box.encrypt(b"\0" * 12, text, None).hex()  # every key seals one text
        return sealed

    def _sealing(self, sender: int, receiver: int, group: Mapping[int, Keys]) -> bytes:
        other = receiver if sender == self.client else sender
        of = fingerprint(sorted((k, str(keys)) for k, keys in group.items()))
        return _agreed(self._seal, group[other].seal, "seal", *vars(self.name).values(), sender, receiver, of)

    def masked(self, vector: FloatArray, bits: int, group: Mapping[int, Keys]) -> UIntArray:
        """This member's vector behind its masks; ``group`` are the members that shared their secrets."""
        if group.get(self.client) != self.keys or len(group) < 2:
            raise InputError("group", "does not have this client among others", client=self.client)
        scaled = np.rint(np.asarray(vector, dtype=np.float64) * 2.0**bits)
        if not np.abs(scaled).max(initial=0.0) < _LARGEST:
            raise InputError(
                "vector", "has an entry that is too large, or not finite, to be summed", client=self.client
            )
        total = scaled.astype(np.int64).view(np.uint64) + _stream(self._seed, len(scaled))
        for other, keys in group.items():
            if other != self.client:
                mask = _stream(_between(self._mask, keys.mask, self.name), len(scaled))
                total = total + mask if self.client < other else total - mask
        return total

    def opened(
        self,
        sealed: Mapping[int, str],
        group: Mapping[int, Keys],
        masked: Mapping[int, Keys],
        threshold: int,
        alive: Collection[int],
    ) -> dict[int, str]:
        """Shares of the seeds of members that delivered and of the mask keys of those that did not.

        ``group`` shared secrets, of whom ``masked`` were to send vectors, and ``alive`` did. ``sealed`` are the others' shares for
        this member. A second answer with another ``alive`` reveals a summand: remembering is for the caller.
        """
        self._check_group(group, threshold)
        if not set(alive) <= set(masked) <= set(group) or self.client not in alive:
            raise InputError("alive", "has others than those that were to deliver", client=self.client)
        if len(alive) < threshold:
            raise InputError("alive", f"are fewer than {threshold}", value=len(alive))
        own = self._shares(group, threshold)
        found = {self.client: f"{own[0][self.client]:x}"}
        for other in masked:
            if other == self.client:
                continue
            box = ChaCha20Poly1305(self._sealing(other, self.client, group))
            try:
                seed, key = json.loads(box.decrypt(b"\0" * 12, bytes.fromhex(sealed[other]), None))
            except (InvalidTag, KeyError, TypeError, ValueError):
                continue  # invalid shares are ignored; the others' shares may suffice
            share = str(seed if other in alive else key)
            if _HEXADECIMAL.fullmatch(share):
                found[other] = share
        return found


def _between(private: X25519PrivateKey, public: str, name: SumName) -> bytes:
    """Return the seed of the mask between two members: both compute the same."""
    return _agreed(private, public, "mask", *vars(name).values())


# ---- the server


@dataclass(frozen=True)
class SumGroup:
    """The members of a sum that made shares, and how many of them can put a secret together."""

    name: SumName
    members: Mapping[int, Keys]
    threshold: int

    def unmasked(
        self, total: UIntArray, alive: Collection[int], opened: Mapping[int, Mapping[int, str]], bits: int
    ) -> FloatArray:
        """The sum of the vectors of the members that delivered, ``alive``, from the sum of what they sent and the opened shares."""
        length = len(total)
        for owner, keys in sorted(self.members.items()):
            shares = {m: int(given[owner], 16) % _PRIME for m, given in opened.items() if owner in given}
            if owner in alive:
                total = total - _stream(self._recovered(shares, _hashed, keys.seed, owner), length)
            else:
                key = self._recovered(shares, _public_of, keys.mask, owner)
                private = X25519PrivateKey.from_private_bytes(key)
                for other in alive:
                    mask = _stream(_between(private, self.members[other].mask, self.name), length)
                    total = total - mask if other < owner else total + mask
        whole = np.asarray(total, dtype=np.uint64).view(np.int64).astype(np.float64)
        if np.abs(whole).max(initial=0.0) > len(alive) * _LARGEST:
            raise SumError(
                "a member sent something else than its vector: the sum is none that vectors can have"
            )
        return np.asarray(whole / 2.0**bits)

    def _recovered(
        self, shares: Mapping[int, int], announce: Callable[[bytes], str], announced: str, owner: int
    ) -> bytes:
        """Put a secret together; some shares may be wrong, and what was announced tells."""
        for chosen in _choices(sorted(shares), self.threshold):
            secret = put_together({member: shares[member] for member in chosen})
            if announce(secret) == announced:
                return secret
        raise SumError(f"{len(shares)} shares do not give what client {owner} hid its vector with")


def _hashed(seed: bytes) -> str:
    return hashlib.sha256(seed).hexdigest()


def _public_of(private: bytes) -> str:
    return _public(X25519PrivateKey.from_private_bytes(private))


def _choices(members: list[int], threshold: int) -> Iterator[tuple[int, ...]]:
    """Yield sets of members to combine shares of: all of them, or many at random, so that few liars are in few of them."""
    if math.comb(len(members), threshold) <= _TRIES:
        yield from itertools.combinations(members, threshold)
        return
    draw = random.Random(0)
    for _ in range(_TRIES):
        yield tuple(sorted(draw.sample(members, threshold)))
