"""Servers that lie: what they tell clients and write down is one thing, what they do is another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scene import CLIENTS, Scene

from stackfu_integration.flower import PaymentLedger
from stackfu_integration.flower.collected import read_kept
from stackfu_integration.flower.events import Event, RemovalRequested, RoundFinished, from_row, to_row
from stackfu_integration.flower.keys import read_public_key
from stackfu_integration.flower.verification import Evidence

Lie = Callable[[Event], Event]


class LyingLedger(PaymentLedger):
    """A ledger with the server's lies in it, which shows its own server the truth."""

    def __init__(self, path, lies: dict[str, Lie], key=None):
        self._truth = {}
        self._lies = lies
        super().__init__(path, key=key)

    def add(self, request: str, event: Event) -> None:
        lie = self._lies.get(event.kind)
        told = event if lie is None else lie(event)
        if told is not event:
            true = to_row(request, event)
            # a row outside a transaction comes here twice, the second time as the lie
            self._truth.setdefault((request, true.kind, true.client, true.round), true)
        super().add(request, told)

    def _select(self, *args, **columns):
        found = super()._select(*args, **columns)
        return [
            replace(true, seq=row.seq, at=row.at)
            if (true := self._truth.get((row.request, row.kind, row.client, row.round))) is not None
            else row
            for row in found
        ]


def with_lies(mechanism, lies: dict[str, Lie]) -> None:
    """Give a server a ledger of lies."""
    mechanism.ledger.close()
    mechanism.ledger = LyingLedger(mechanism.folder / "ledger.sqlite", lies)


def changed(**fields) -> Lie:
    """A lie that changes some fields of an event."""
    return lambda event: replace(event, **fields)


def evidence_of(scene: Scene, *, without: tuple[int, ...] = ()) -> Evidence:
    """The server's key, and keys, receipts and models of all clients but some."""
    clients = [client for client in range(CLIENTS) if client not in without]
    folders = [scene.client_folder(client) for client in clients]
    return Evidence(
        read_public_key(scene.folder / "keys" / "server.pub"),
        {
            client: read_public_key(folder / "client.pub")
            for client, folder in zip(clients, folders, strict=True)
        },
        tuple(receipt for folder in folders for receipt in read_kept(folder)),
        works=tuple(folder / "work" for folder in folders),
    )


def names_a_worker_as_removed(scene: Scene, removed=(0, 1), works: int = 1, **options) -> None:
    """Run a removal in which one of those who are said to leave trains like the others."""
    mechanism = scene.mechanism(**options)
    with_lies(mechanism, {RemovalRequested.kind: changed(removed=removed)})
    run_to_the_end(scene, mechanism, tuple(c for c in removed if c != works))


def run_to_the_end(scene: Scene, mechanism, removed=(0, 1), **options):
    """Train, remove and close the ledger."""
    from scene import TRAINING_ROUNDS, initial

    try:
        mechanism.train(scene.grid(), initial(), TRAINING_ROUNDS)
        return mechanism.remove(scene.grid(), removed, **options)
    finally:
        mechanism.ledger.close()


def stated_model(round_number: int, model: str) -> Lie:
    """A lie about the model that a round ended with."""
    return lambda event: (
        replace(event, model=model)
        if isinstance(event, RoundFinished) and event.number == round_number
        else event
    )


__all__ = [
    "LyingLedger",
    "changed",
    "evidence_of",
    "from_row",
    "names_a_worker_as_removed",
    "run_to_the_end",
    "stated_model",
    "with_lies",
]
