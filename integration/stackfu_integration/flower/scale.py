"""Growth of the mechanism with the number of clients: time of its phases, bytes per client, and Flower's part.

The clients hold fifty points around one of several centres and train a model of nine numbers, so that nearly
all of the time is the mechanism's and the engine's. Without an engine the same apps are called directly,
through Flower's serialisation; the difference is what the engine takes.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from rich.table import Table

from stackfu.errors import InputError
from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.audit import audit
from stackfu_integration.flower.client import Participant, add_mechanism, training_app
from stackfu_integration.flower.in_process import InProcessGrid
from stackfu_integration.flower.mechanism import UnlearningMechanism
from stackfu_integration.flower.policy import Policy
from stackfu_integration.flower.terms import Terms
from stackfu_integration.flower.wire import PartingOrder
from stackfu_integration.lab.mechanisms import CERTIFIED, UNIFORM

__all__ = ["TinyParticipant", "measure", "tabulate"]

_DIMENSION, _CENTRES = 8, 20
_MECHANISM = ("embeddings", "offers", "responses", "settlement", "report")
_FEATURES = 256


class TinyParticipant(Participant):
    """Points around a centre; the model is their running mean and a counter."""

    def __init__(self, context: Context) -> None:
        self._client, self.policy = int(context.node_config["partition-id"]), Policy.open()
        rng = np.random.default_rng([1, self._client])
        centre = 2.0 * np.random.default_rng([2, self._client % _CENTRES]).normal(size=_DIMENSION)
        self._data = centre + rng.normal(size=(int(rng.integers(20, 81)), _DIMENSION))

    @property
    def client(self) -> int:
        """The partition's number."""
        return self._client

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self._data)

    def samples(self, arrays: ArrayRecord) -> FloatArray:
        """Return the points."""
        return self._data

    def train(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[ArrayRecord, int]:
        """Move the mean half of the way to that of the share."""
        used = self._data[: round(share * len(self._data))]
        old = arrays["model"].numpy()
        new = np.append(0.5 * old[:-1] + 0.5 * used.mean(0), old[-1] + 1.0)
        return ArrayRecord({"model": Array(new.astype(np.float32))}), len(used)

    def part(self, order: PartingOrder) -> tuple[ArrayRecord, int]:
        """Move half of the way to the other model, or away from the points."""
        old = order.model["model"].numpy()
        aim = 2 * old[:-1] - self._data.mean(0) if order.aside is None else order.aside["model"].numpy()[:-1]
        new = np.append(0.5 * old[:-1] + 0.5 * aim, old[-1] + 1.0)
        return ArrayRecord({"model": Array(new.astype(np.float32))}), len(self._data)

    def measure(self, arrays: ArrayRecord) -> dict[str, float]:
        """Return the mean squared distance to the model."""
        return {"loss": float(((self._data - arrays["model"].numpy()[:-1]) ** 2).sum(1).mean())}


def tiny_client_app(load: Callable[[Context], TinyParticipant] = TinyParticipant) -> ClientApp:
    """Return a client app for :class:`TinyParticipant`, or one like it."""
    return add_mechanism(training_app(load), load)


def measure(clients: int, engine: str = "none", method: str = "auto") -> dict[str, Any]:
    """Train a round, remove a tenth of the clients, unlearn two rounds; return times, bytes and outcome.

    ``method`` is that of the leader; ``"auto"`` certifies up to 300 clients, and posts one price above.
    """
    if engine not in ("none", "ray"):
        raise InputError("engine", "must be none or ray", value=engine)
    if clients < 4:
        raise InputError("clients", "must be at least 4", value=clients)
    if method == "auto":
        method = CERTIFIED if clients <= 300 else UNIFORM
    logging.getLogger("flwr").setLevel(logging.ERROR)
    terms = Terms(
        rounds=2,
        epsilon=None,
        bandwidth=4.0,
        features=_FEATURES,
        cost_scale=20.0,
        loss_constant=10.0,
        method=method,
        offers="linear",  # what is measured are the phases, the same ones for every method
        finite_sample=False,
        least_cosine=-1.0,
    )
    removed = tuple(range(max(1, clients // 10)))
    figures: dict[str, Any] = {"clients": clients, "engine": engine, "features": _FEATURES, "method": method}
    with tempfile.TemporaryDirectory() as folder:

        def serve(grid: Grid) -> None:
            mechanism = UnlearningMechanism(Path(folder), clients, terms, wait=600.0, timeout=600.0)
            initial = ArrayRecord({"model": Array(np.zeros(_DIMENSION + 1, dtype=np.float32))})
            mechanism.train(grid, initial, 1)
            mechanism.remove(grid, removed)
            facts = audit(mechanism.ledger, "r1")
            figures["seconds"] = dict(mechanism.seconds)
            figures["solver_seconds"] = facts["certificate"]["seconds"]
            figures["status"] = facts["certificate"]["status"]
            figures["gap"] = facts["certificate"]["gap"]
            figures["settled"] = facts["responses"]["settled"]
            figures["participants"] = sum(c["share"] > 0 for c in facts["clients"])
            figures["paid"], figures["budget"] = facts["paid"], facts["budget"]
            figures["rows"] = len(mechanism.ledger.rows())
            mechanism.ledger.close()  # which also moves everything from the write-ahead log into the file
            figures["ledger_bytes"] = mechanism.ledger.path.stat().st_size

        began = time.perf_counter()
        if engine == "none":
            nodes = [{"partition-id": i} for i in range(clients)]
            grid = InProcessGrid(tiny_client_app(), nodes, wire=True)
            serve(grid)
            figures["bytes_up"] = {kind: n / clients for kind, n in grid.bytes_up.items()}
            figures["bytes_down"] = {kind: n / clients for kind, n in grid.bytes_down.items()}
        else:
            from stackfu_integration.flower.simulation import run_with_ray

            server = ServerApp()

            @server.main()
            def main(grid: Grid, context: Context) -> None:
                serve(grid)

            run_with_ray(server, tiny_client_app(), clients)
        figures["total_seconds"] = time.perf_counter() - began
    return figures


def tabulate(figures: list[dict[str, Any]]) -> Table:
    """Return the figures as a table."""
    head = ("clients", "engine", "method", "total", *_MECHANISM, "solver", "status", "rounds")
    table = Table(*head, box=None, caption="seconds", caption_justify="left")
    for f in figures:
        seconds = f["seconds"]
        rounds = sum(seconds.get(p, 0.0) for p in ("roll", "train", "unlearning", "measures"))
        table.add_row(
            str(f["clients"]),
            f["engine"],
            f["method"],
            f"{f['total_seconds']:.1f}",
            *(f"{seconds[p]:.2f}" for p in _MECHANISM),
            f"{f['solver_seconds']:.2f}",
            f["status"],
            f"{rounds:.1f}",
        )
    return table
