"""A federation of eight tiny clients without torch, and a grid on which things go wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from stackfu_integration.flower import (
    InProcessGrid,
    Offer,
    Participant,
    PaymentLedger,
    Policy,
    Terms,
    UnlearningMechanism,
    add_mechanism,
)
from stackfu_integration.flower.client import training_app
from stackfu_integration.flower.events import ModelUnlearned
from stackfu_integration.flower.wire import UNLEARN

CLIENTS, REMOVED, DIMENSION = 8, (0, 1), 3
SIZES = [40, 30, 25, 60, 35, 50, 20, 45]
TERMS = Terms(
    rounds=3,
    bandwidth=1.5,
    features=64,
    epsilon=None,
    budget_share=0.4,
    loss_constant=5.0,
    cost_scale=20.0,
    # offers and directions have tests of their own; here whatever is offered is answered in a moment, and is for the
    # mixture alone, and three numbers are too few for directions to mean much
    offers="linear",
    finite_sample=False,
    least_cosine=-1.0,
)
TRAINING_ROUNDS = 2


class Averager(Participant):
    """The model is the mean of all samples; training moves it towards the mean of the client's share."""

    def __init__(self, context: Context) -> None:
        self._client = int(context.node_config["partition-id"])
        self.policy = Policy.open()
        if "client-folder" in context.node_config:
            self.folder = Path(str(context.node_config["client-folder"]))
        self.data = self.data_of(self._client)

    @staticmethod
    def data_of(client: int):
        rng = np.random.default_rng([5, client])
        centre = np.random.default_rng([6, client % 5]).normal(size=DIMENSION)
        return centre + 0.7 * rng.normal(size=(SIZES[client], DIMENSION))

    @property
    def client(self) -> int:
        return self._client

    @property
    def size(self) -> int:
        return len(self.data)

    def samples(self, arrays):
        return self.data

    def train(self, arrays, share, config):
        used = self.data[: round(share * len(self.data))]
        old = arrays["mean"].numpy()
        new = old + 0.5 * (used.mean(0) - old)
        return ArrayRecord({"mean": Array(new.astype(np.float32))}), len(used)

    def measure(self, arrays):
        return {"loss": float(((self.data - arrays["mean"].numpy()) ** 2).sum(1).mean())}

    def decide(self, offer: Offer) -> float:
        return offer.best_response()


def client_app(load: Callable[[Context], Participant] = Averager, *, mechanism: bool = True) -> ClientApp:
    app = training_app(load)
    return add_mechanism(app, load) if mechanism else app


def initial() -> ArrayRecord:
    return ArrayRecord({"mean": Array(np.zeros(DIMENSION, dtype=np.float32))})


Behaviour = Callable[[Message, Callable[[Message], Message]], Message | None]


@dataclass
class Scene:
    """A folder, and the grids and servers that work with it."""

    folder: Path
    terms: Terms = TERMS
    behaviours: dict[int, Behaviour] = field(default_factory=dict)  # by client
    load: Callable[[Context], Participant] = Averager
    extra_nodes: tuple[int, ...] = ()

    def grid(self) -> FaultyGrid:
        order = [3, 1, 0, 7, 2, 6, 5, 4, *self.extra_nodes]  # nodes do not come in the order of clients
        nodes = [{"partition-id": i, "client-folder": str(self.client_folder(i))} for i in order]
        return FaultyGrid(client_app(self.load), nodes, self.behaviours)

    def client_folder(self, client: int) -> Path:
        """Folder of a client's records; a second node that claims its number has another one."""
        return self.folder.parent / f"clients of {self.folder.name}" / str(client)

    def mechanism(self, **options: Any) -> UnlearningMechanism:
        return UnlearningMechanism(self.folder, CLIENTS, self.terms, wait=0.0, timeout=1.0, **options)

    def run(self, grid: FaultyGrid | None = None, **options: Any) -> dict[str, Any]:
        grid = self.grid() if grid is None else grid
        mechanism = self.mechanism(**options)
        try:
            mechanism.train(grid, initial(), TRAINING_ROUNDS)
            return mechanism.remove(grid, REMOVED)
        finally:
            mechanism.ledger.close()

    def ledger(self) -> PaymentLedger:
        return PaymentLedger(self.folder / "ledger.sqlite", create=False)

    def records(self, *kinds: str) -> list[tuple[Any, ...]]:
        """Contents of the ledger, without the times."""
        with self.ledger() as ledger:
            rows = [row for row in ledger.rows() if not kinds or row.kind in kinds]
        return sorted((row.request, row.kind, row.client, row.round, row.amount) for row in rows)

    def final_model(self) -> str:
        with self.ledger() as ledger:
            return ledger.need("r1", ModelUnlearned).model


class FaultyGrid(InProcessGrid):
    """Clients with a behaviour of their own; ``late`` replies turn up among the next answers."""

    def __init__(self, app: ClientApp, nodes: list[dict[str, Any]], behaviours: dict[int, Behaviour]):
        super().__init__(app, nodes)
        self.behaviours = behaviours
        self.late: list[Message] = []
        self.log: list[tuple[int, str]] = []

    def _deliver(self, message: Message) -> Message | None:
        client = self.contexts[message.metadata.dst_node_id].node_config["partition-id"]
        self.log.append((client, message.metadata.message_type))
        behave = self.behaviours.get(client)
        return self.answer(message) if behave is None else behave(message, self.answer)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if not messages:
            return []
        overdue, self.late = self.late, []
        return [*overdue, *super().send_and_receive(messages, timeout=timeout)]


class Killed(BaseException):
    """The server is killed here: no phase catches it."""


def dies_in_round(number):
    """A client with a server that is killed when it asks for this round of unlearning."""

    def dies(message, answer):
        if message.metadata.message_type == UNLEARN and message.content["config"]["server-round"] == number:
            raise Killed
        return answer(message)

    return dies


def killed_after_any_row(monkeypatch, rows, make, sound, once):
    """Run scenes to their ``rows``-th commits, kill them there and run them again; how many died.

    Every commit of the ledger is a place to die; the records must end as those of ``sound``, in all kinds of rows that are written
    ``once``. It ends with a scene that is over before it dies.
    """
    commit, left = PaymentLedger.transaction, -1

    @contextmanager
    def dying(self):
        nonlocal left
        with commit(self):
            yield
        left -= 1
        if left == 0:
            raise Killed

    monkeypatch.setattr(PaymentLedger, "transaction", dying)
    deaths = 0
    for row in rows:
        scene, left = make(f"run-{row}"), row
        try:
            scene.run()
            break
        except Killed:
            deaths += 1
        finally:
            left = -1
        scene.run()
        assert scene.records(*once) == sound.records(*once), row
        assert scene.final_model() == sound.final_model()
    return deaths
