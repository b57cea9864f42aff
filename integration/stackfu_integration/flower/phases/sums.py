"""Secure sums from the server's side: keys, shares, and the opening (:mod:`~stackfu_integration.flower.secure_sum`).

A client takes part in a sum once. Whatever a server needs to go on after a crash is therefore in the ledger before the next
question: who made shares (``sum``), and who delivered, with the sum of what they sent, still behind masks (``heard``).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stackfu_integration.arrays import FloatArray, UIntArray
from stackfu_integration.flower.events import SumAgreed, SumHeard, SumOpened
from stackfu_integration.flower.phases.session import Removal
from stackfu_integration.flower.receipts import SUM_KEYS
from stackfu_integration.flower.secure_sum import (
    MOST_MEMBERS,
    Keys,
    SumError,
    SumGroup,
    SumName,
    threshold_of,
    usable,
)
from stackfu_integration.flower.wire import (
    KeysAnswer,
    KeysQuestion,
    OpenAnswer,
    OpenQuestion,
    Refusal,
    SharesAnswer,
    SharesQuestion,
)
from stackfu_integration.flower.wire.records import masked_record, read_masked

__all__ = ["Agreed", "agree", "keep", "open_sum", "read_group", "read_shares"]


_LONGEST = 64 * 2**20  # characters of shares: 256 members have 9 million


@dataclass(frozen=True)
class Agreed(SumGroup):
    """A sum with shares from its members; ``shares`` are sealed, by receiver and sender."""

    shares: Mapping[int, Mapping[int, str]]


def read_group(name: SumName, event: SumAgreed) -> SumGroup:
    """Return the members of a sum, by the ledger; that is left when the shares are erased."""
    members = {int(client): Keys.read(keys) for client, keys in event.keys.items()}
    return SumGroup(name, members, event.threshold)


def _read(name: SumName, event: SumAgreed) -> Agreed:
    sealed = json.loads(zlib.decompress(event.shares))
    shares = {int(to): {int(by): text for by, text in given.items()} for to, given in sealed.items()}
    return Agreed(**vars(read_group(name, event)), shares=shares)


def agree(removal: Removal, name: SumName, clients: list[int]) -> tuple[Agreed | None, dict[int, str]]:
    """Return the sum with the members that made shares, and problems by client; ``None``: too few are left to hide anything."""
    known = next((e for e in removal.ledger.events(removal.name, SumAgreed) if e.number == name.number), None)
    if known is not None:
        return _read(name, known), {}
    problems: dict[int, str] = {}
    keys: dict[int, Keys] = {}
    signatures: dict[int, dict[str, object]] = {}
    told = removal.ask(dict.fromkeys(clients, KeysQuestion(name)), KeysAnswer.decode)
    for client, answer in told.items():
        if isinstance(answer, Refusal):
            problems[client] = answer.problem
        else:
            facts = {
                "request": name.request,
                "sum": name.what,
                "number": name.number,
                "keys": str(answer.keys),
            }
            problem = removal.refused_receipt(client, answer.receipt, SUM_KEYS, **facts)
            known_keys = {key for others in keys.values() for key in (others.seal, others.mask)}
            if problem is None and (
                not usable(answer.keys) or known_keys & {answer.keys.seal, answer.keys.mask}
            ):
                problem = "announced keys that nobody can use"
            if problem is not None:
                problems[client] = problem
                continue
            keys[client] = answer.keys
            if answer.receipt is not None:
                signatures[client] = answer.receipt.plain()
    if not 2 <= len(keys) <= MOST_MEMBERS:
        return None, problems
    threshold = threshold_of(len(keys))
    question = SharesQuestion(name, keys, threshold, signatures)
    sealed: dict[int, Mapping[int, str]] = {}
    for client, shared in removal.ask(dict.fromkeys(keys, question), SharesAnswer.decode).items():
        if isinstance(shared, Refusal):
            problems[client] = shared.problem
        elif set(shared.sealed) != set(keys) - {client}:
            problems[client] = "made shares for others than the members of the sum"
        else:
            sealed[client] = shared.sealed
    if len(sealed) < threshold:
        return None, problems
    members = {client: keys[client] for client in sorted(sealed)}
    shares = {to: {by: sealed[by][to] for by in members if by != to} for to in members}
    content = zlib.compress(json.dumps(shares).encode())
    stated = {str(client): str(announced) for client, announced in members.items()}
    removal.ledger.add(removal.name, SumAgreed(name.number, threshold, stated, content))
    return Agreed(name, members, threshold, shares), problems


def keep(removal: Removal, agreed: Agreed, sent: Mapping[int, UIntArray]) -> SumHeard:
    """Return the row that says who delivered, once the sum of what they sent is on disk."""
    parts = np.array([sent[client] for client in sorted(sent)], dtype=np.uint64)
    total = removal.models.put(masked_record(parts.sum(axis=0, dtype=np.uint64)))
    return SumHeard(agreed.name.number, tuple(sorted(sent)), total)


def open_sum(
    removal: Removal, agreed: Agreed, heard: SumHeard, bits: int, *, show: bool = False
) -> FloatArray:
    """Ask the delivering clients for their shares, and unmask the sum; ``show`` lets any reader repeat it."""
    opened = _opened(removal, agreed, heard, show)
    total = read_masked(removal.models.get(heard.total))
    return agreed.unmasked(total, heard.clients, opened, bits)


def _opened(removal: Removal, agreed: Agreed, heard: SumHeard, show: bool) -> Mapping[int, Mapping[int, str]]:
    """Return the shares of those who delivered, asked for or as they were shown before."""
    shown = [e for e in removal.ledger.events(removal.name, SumOpened) if e.number == heard.number]
    if shown:
        return read_shares(shown[0])
    alive = heard.clients
    if len(alive) < agreed.threshold:
        raise SumError(
            f"{len(alive)} of {len(agreed.members)} members delivered, {agreed.threshold} are needed"
        )
    questions = {
        client: OpenQuestion(agreed.name, alive, agreed.shares[client])
        for client in alive
        if client in removal.nodes
    }
    told = removal.ask(questions, OpenAnswer.decode)
    opened = {c: answer.shares for c, answer in told.items() if not isinstance(answer, Refusal)}
    if len(opened) < agreed.threshold:
        raise SumError(
            f"{len(opened)} of {len(alive)} members helped to open the sum, {agreed.threshold} are needed"
        )
    if show:
        removal.ledger.add(removal.name, SumOpened(heard.number, zlib.compress(json.dumps(opened).encode())))
    return opened


def read_shares(event: SumOpened) -> dict[int, dict[int, str]]:
    """Return the shares that opened a sum, by giver and owner."""
    told = json.loads(zlib.decompressobj().decompress(event.shares, _LONGEST))
    return {int(giver): {int(owner): text for owner, text in given.items()} for giver, given in told.items()}
