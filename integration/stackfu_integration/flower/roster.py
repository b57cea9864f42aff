"""Who is who: node ids are Flower's, client numbers are the mechanism's."""

from __future__ import annotations

import hashlib
import time
from logging import WARNING

from flwr.app import RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from stackfu.errors import StackfuError
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.protocol import ROLL, Refusal, ask, metric

__all__ = ["NotEnoughNodesError", "call_the_roll"]


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
    deadline = time.monotonic() + wait
    claims: dict[int, list[int]] = {}
    heard: set[int] = set()
    while True:
        while len(nodes := set(grid.get_node_ids())) < clients and time.monotonic() < deadline:
            time.sleep(0.1)
        patience = timeout if wait <= 0 else min(timeout, max(deadline - time.monotonic(), 1.0))
        asked = {node: node for node in sorted(nodes - heard)}
        for node, answer in ask(grid, asked, ROLL, {node: RecordDict() for node in asked}, patience).items():
            if isinstance(answer, Refusal):
                log(WARNING, "node %d did not say who it is: %s", node, answer.problem)
                continue
            heard.add(node)
            try:
                client = metric(answer, "client")
            except (KeyError, TypeError):
                client = -1
            if isinstance(client, int) and 0 <= client < clients:
                claims.setdefault(client, []).append(node)
            else:
                log(WARNING, "node %d claims the client number %r of %d clients", node, client, clients)
        if len(claims) == clients or time.monotonic() >= deadline:
            break
        time.sleep(0.1)
    keys = {info.node_id: _fingerprint(info.public_key) for info in grid.get_nodes()}
    owners = {event.client: event.detail for event in ledger.events("", "enrolled")}

    roster: dict[int, int] = {}
    with ledger.transaction():
        for client, claimants in sorted(claims.items()):
            known = owners.get(client)

            def rank(node: int, known: dict[str, object] | None = known) -> tuple[bool, int]:
                same = known is not None and (
                    node == known["node"] or (keys.get(node, "") != "" and keys[node] == known["key"])
                )
                return (not same, node)

            chosen, *others = sorted(claimants, key=rank)
            if known is None:
                ledger.add("", "enrolled", client=client, node=chosen, key=keys.get(chosen, ""))
            elif known["key"] and keys.get(chosen, "") != known["key"]:
                ledger.add_fault("", client, "roll", f"node {chosen} claims this number with another key")
                continue
            for node in others:
                ledger.add_fault("", client, "roll", f"joined twice: node {node} beside node {chosen}")
            roster[client] = chosen
    if len(roster) < least:
        raise NotEnoughNodesError(
            f"{len(roster)} of {clients} clients came within {wait:g} s, {least} are needed"
        )
    return roster


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest() if key else ""
