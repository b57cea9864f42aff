"""The roll call: node ids are Flower's, client numbers are the mechanism's, and this is who is who."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from logging import WARNING

from flwr.app import RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from stackfu.errors import StackfuError
from stackfu_integration.flower.events import NOBODY, ClientEnrolled
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.wire import Refusal, RollAnswer, RollQuestion, ask, decoded

__all__ = ["PHASE", "NotEnoughNodesError", "call_the_roll"]

PHASE = "roll"


class NotEnoughNodesError(StackfuError):
    """Too few nodes came to the roll call."""


def call_the_roll(
    grid: Grid, ledger: PaymentLedger, clients: int, *, wait: float, timeout: float, least: int = 2
) -> dict[int, int]:
    """Wait for the nodes, ask each for its client number, and return node ids by client number.

    Nodes register one after the other, and a round that starts too early trains nobody without a word. A node
    may also be busy: after a crash it takes Flower a minute to notice that the old run is over. Until all
    ``clients`` clients are there or ``wait`` seconds have passed, whoever has not answered is asked again.

    A client number belongs to the public key (or, without keys, to the node) that came with it first. Whoever
    claims it later joins twice: it is named in the ledger and gets no messages.
    """
    claims = _hear_claims(grid, clients, wait, timeout)
    keys = {info.node_id: _fingerprint(info.public_key) for info in grid.get_nodes()}
    owners = ledger.by_client(RUN, ClientEnrolled)
    roster: dict[int, int] = {}
    with ledger.transaction():
        for client, claimants in sorted(claims.items()):
            node = _admit(ledger, client, claimants, owners.get(client), keys)
            if node is not None:
                roster[client] = node
    if len(roster) < least:
        raise NotEnoughNodesError(
            f"{len(roster)} of {clients} clients came within {wait:g} s, {least} are needed"
        )
    return roster


def _hear_claims(grid: Grid, clients: int, wait: float, timeout: float) -> dict[int, list[int]]:
    """Return the nodes that claim each client number."""
    deadline = time.monotonic() + wait
    claims: dict[int, list[int]] = {}
    heard: set[int] = set()
    while True:
        while len(nodes := set(grid.get_node_ids())) < clients and time.monotonic() < deadline:
            time.sleep(0.1)
        patience = timeout if wait <= 0 else min(timeout, max(deadline - time.monotonic(), 1.0))
        asked = {node: node for node in sorted(nodes - heard)}
        questions = {node: RollQuestion() for node in asked}
        for node, answer in ask(grid, asked, questions, _read_client, patience).items():
            if isinstance(answer, Refusal):
                log(WARNING, "node %d did not say who it is: %s", node, answer.problem)
                continue
            heard.add(node)
            if isinstance(answer, int) and 0 <= answer < clients:
                claims.setdefault(answer, []).append(node)
            else:
                log(WARNING, "node %d claims the client number %r of %d clients", node, answer, clients)
        if len(claims) == clients or time.monotonic() >= deadline:
            return claims
        time.sleep(0.1)


def _read_client(content: RecordDict) -> float | int:
    """Return the number that a node claims; nonsense is a claim to no number, and not asked for again."""
    answer = decoded(content, RollAnswer.decode)
    return NOBODY if isinstance(answer, Refusal) else answer.client


def _admit(
    ledger: PaymentLedger,
    client: int,
    claimants: list[int],
    known: ClientEnrolled | None,
    keys: Mapping[int, str],
) -> int | None:
    """Choose the node that speaks for a client, if any may, and name the others."""

    def is_owner(node: int) -> bool:
        if known is None:
            return False
        return node == known.node or (keys.get(node, "") != "" and keys[node] == known.key)

    chosen, *others = sorted(claimants, key=lambda node: (not is_owner(node), node))
    key = keys.get(chosen, "")
    if known is None:
        ledger.add(RUN, ClientEnrolled(client, node=chosen, key=key))
    elif known.key and key != known.key:
        ledger.add_fault(RUN, client, PHASE, f"node {chosen} claims this number with another key")
        return None
    for node in others:
        ledger.add_fault(RUN, client, PHASE, f"joined twice: node {node} beside node {chosen}")
    return chosen


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest() if key else ""
