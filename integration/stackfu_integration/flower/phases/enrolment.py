"""The roll call: node ids are Flower's, client numbers are the mechanism's, and this is who is who."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from logging import WARNING

from flwr.app import RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from stackfu.errors import StackfuError
from stackfu_integration.flower.events import NO_CLIENT, ClientEnrolled
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.receipts import ENROLMENT
from stackfu_integration.flower.wire import Refusal, RollAnswer, RollQuestion, ask, decoded

__all__ = ["PHASE", "NotEnoughNodesError", "call_the_roll"]

PHASE = "roll"


class NotEnoughNodesError(StackfuError):
    """Too few nodes came to the roll call."""


@dataclass(frozen=True)
class Claim:
    """A node that says which client it is; ``signer`` is the key with which it signed that."""

    node: int
    signer: str


def call_the_roll(
    grid: Grid,
    ledger: PaymentLedger,
    clients: int,
    *,
    wait: float,
    timeout: float,
    least: int = 2,
    client_keys: Mapping[int, str] | None = None,
) -> dict[int, int]:
    """Wait for the nodes, ask each for its client number, and return node ids by client number.

    Nodes register one after the other, and a round that starts too early would silently train no client. A node
    may also be busy: after a crash it takes Flower a minute to notice that the old run is over. Until all
    ``clients`` clients are there or ``wait`` seconds have passed, clients without an answer are asked again.

    A client number belongs to the node that claimed it first, and to the keys it came with: that of the node and
    its signing key. A node that claims it later joins twice: it is named in the ledger and gets no messages.
    ``client_keys``, if given, are the clients' signing keys, and all others are refused.
    """
    claims = _hear_claims(grid, ledger, clients, wait, timeout)
    infos = list(grid.get_nodes())
    keys = {info.node_id: _fingerprint(info.public_key) for info in infos}
    # the order in which nodes registered; a grid that does not say when lists them in that order
    listed = sorted(enumerate(infos), key=lambda item: (item[1].registered_at, item[0]))
    age = {info.node_id: place for place, (_, info) in enumerate(listed)}
    owners = ledger.by_client(RUN, ClientEnrolled)
    roster: dict[int, int] = {}
    with ledger.transaction():
        for client, claimants in sorted(claims.items()):
            if client_keys is not None:
                for claim in claimants:
                    if claim.signer != client_keys.get(client):
                        said = f"node {claim.node} signs with a key that is not this client's"
                        ledger.add_fault(RUN, client, PHASE, said)
                claimants = [claim for claim in claimants if claim.signer == client_keys.get(client)]
            claimants = _with_own_keys(ledger, client, claimants)
            if claimants:
                in_order = sorted(claimants, key=lambda claim: age.get(claim.node, len(age)))
                node = _admit(ledger, client, in_order, owners.get(client), keys)
                if node is not None:
                    roster[client] = node
    if len(roster) < least:
        raise NotEnoughNodesError(
            f"{len(roster)} of {clients} clients came within {wait:g} s, {least} are needed"
        )
    return roster


def _with_own_keys(ledger: PaymentLedger, client: int, claimants: list[Claim]) -> list[Claim]:
    """Return the claims that are not signed with another client's key: a key that is enrolled speaks for one number."""
    others = {
        enrolled.signer: number
        for number, enrolled in ledger.by_client(RUN, ClientEnrolled).items()
        if enrolled.signer and number != client
    }
    for claim in claimants:
        if claim.signer in others:
            said = f"node {claim.node} signs with the key of {ledger.naming.all([others[claim.signer]])}"
            ledger.add_fault(RUN, client, PHASE, said)
    return [claim for claim in claimants if claim.signer not in others]


def _hear_claims(
    grid: Grid, ledger: PaymentLedger, clients: int, wait: float, timeout: float
) -> dict[int, list[Claim]]:
    """Return the nodes that claim each client number, in the order of their first message."""
    deadline = time.monotonic() + wait
    claims: dict[int, list[Claim]] = {}
    heard: set[int] = set()
    while True:
        while len(nodes := dict.fromkeys(grid.get_node_ids())) < clients and time.monotonic() < deadline:
            time.sleep(0.1)
        patience = timeout if wait <= 0 else min(timeout, max(deadline - time.monotonic(), 1.0))
        asked = {node: node for node in nodes if node not in heard}
        nonce = secrets.token_hex(16)
        questions = {node: RollQuestion(nonce) for node in asked}
        for node, answer in ask(grid, asked, questions, _read_claim, patience, ledger.head).items():
            if isinstance(answer, Refusal):
                log(WARNING, "node %d did not say who it is: %s", node, answer.problem)
                continue
            heard.add(node)
            number, receipt = answer.client, answer.receipt
            if not isinstance(number, int) or not 0 <= number < clients:
                log(WARNING, "node %d claims the client number %r of %d clients", node, number, clients)
            elif receipt is not None and (
                not receipt.is_signed or receipt.differs_from(ENROLMENT, client=number, nonce=nonce)
            ):
                log(
                    WARNING, "node %d claims the client number %d without a signature that fits", node, number
                )
            else:
                claims.setdefault(number, []).append(Claim(node, "" if receipt is None else receipt.key))
        if len(claims) == clients or time.monotonic() >= deadline:
            return claims
        time.sleep(0.1)


def _read_claim(content: RecordDict) -> RollAnswer:
    """Return what a node claims; nonsense is a claim to no number, and not asked for again."""
    answer = decoded(content, RollAnswer.decode)
    return RollAnswer(NO_CLIENT) if isinstance(answer, Refusal) else answer


def _admit(
    ledger: PaymentLedger,
    client: int,
    claimants: list[Claim],
    known: ClientEnrolled | None,
    keys: Mapping[int, str],
) -> int | None:
    """Choose the node that speaks for a client, if any may, and name the others."""

    def is_owner(claim: Claim) -> bool:
        if known is None:
            return False
        if known.signer:
            return claim.signer == known.signer
        return claim.node == known.node or (keys.get(claim.node, "") != "" and keys[claim.node] == known.key)

    chosen, *others = sorted(claimants, key=lambda claim: not is_owner(claim))
    key = keys.get(chosen.node, "")
    if known is None:
        ledger.add(RUN, ClientEnrolled(client, node=chosen.node, key=key, signer=chosen.signer))
    elif (known.key and key != known.key) or (known.signer and chosen.signer != known.signer):
        ledger.add_fault(RUN, client, PHASE, f"node {chosen.node} claims this number with another key")
        return None
    for claim in others:
        ledger.add_fault(
            RUN,
            client,
            PHASE,
            f"node {claim.node} claims this number as well; it stays with node {chosen.node}",
        )
    return chosen.node


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest() if key else ""
