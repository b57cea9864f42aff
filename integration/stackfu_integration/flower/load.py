"""Load and faults, counted: a thousand clients of which a fifth go wrong, a server that is killed, two servers at once.

Everything runs in this process, through the same apps as anywhere else. What must hold whatever happens is checked on the
ledger afterwards, by the same recomputation that an auditor runs: no client is paid twice or for undelivered
work, honest clients are paid in full, and rows written before a kill are still there.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from stackfu.errors import StackfuError
from stackfu_integration.flower.events import (
    ClientCommitted,
    ClientExcluded,
    ClientFault,
    ClientPaid,
    RequestClosed,
    RequestSettled,
    WorkJudged,
)
from stackfu_integration.flower.in_process import InProcessGrid
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.mechanism import UnlearningMechanism
from stackfu_integration.flower.scale import TinyParticipant, tiny_client_app
from stackfu_integration.flower.terms import Terms
from stackfu_integration.flower.verification import verify
from stackfu_integration.flower.wire import EMBED, MEASURE, RESPOND, ROLL, TRAIN, UNLEARN
from stackfu_integration.lab.mechanisms import UNIFORM

__all__ = ["FAULTS", "SigningTiny", "count_faults_and_kills", "count_two_servers", "terms_of_the_load"]

Answer = Callable[[Message], Message]
Fault = Callable[[Message, Answer], Message | None]


class SigningTiny(TinyParticipant):
    """Every tenth client keeps records in a folder and signs; the others have no key."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        folder = context.node_config.get("client-folder")
        self.folder = Path(str(folder)) if folder else None


# ---- ways to go wrong


def _at(kind: str, act: Fault) -> Fault:
    return lambda message, answer: (
        act(message, answer) if message.metadata.message_type == kind else answer(message)
    )


def _silent(message: Message, answer: Answer) -> None:
    return None


def _failing(message: Message, answer: Answer) -> Message:
    raise RuntimeError("disk full")


def _arrays(change: Callable[[NDArray[Any]], NDArray[Any]]) -> Fault:
    def act(message: Message, answer: Answer) -> Message:
        reply = answer(message)
        if not reply.has_error():
            arrays = {name: Array(change(array.numpy())) for name, array in reply.content["arrays"].items()}
            reply.content["arrays"] = ArrayRecord(arrays)
        return reply

    return act


def _metrics(**entries: float) -> Fault:
    def act(message: Message, answer: Answer) -> Message:
        reply = answer(message)
        if not reply.has_error():
            named = {name.replace("_", "-"): value for name, value in entries.items()}
            reply.content["metrics"] = MetricRecord({**reply.content["metrics"], **named})
        return reply

    return act


def _echo(message: Message, answer: Answer) -> Message:
    reply = answer(message)
    if not reply.has_error():
        reply.content["arrays"] = message.content["arrays"]
    return reply


FAULTS: dict[str, Fault] = {
    "never answers": _silent,
    "silent when embeddings are asked for": _at(EMBED, _silent),
    "silent when prices are posted": _at(RESPOND, _silent),
    "dies before the first round": _at(UNLEARN, _silent),
    "raises an exception": _at(EMBED, _failing),
    "not a number as an embedding": _at(EMBED, _arrays(lambda v: v * np.nan)),
    "an embedding that is too long": _at(EMBED, _arrays(lambda v: 10.0 * v)),
    "another size": _at(EMBED, _metrics(size=10**6)),
    "an impossible share": _at(RESPOND, _metrics(share=7.0)),
    "not a number as a model": _at(UNLEARN, _arrays(lambda v: (v * np.nan).astype(v.dtype))),
    "a model of another shape": _at(UNLEARN, _arrays(lambda v: v[:2])),
    "other samples than agreed": _at(UNLEARN, _metrics(num_examples=10**6)),
    "the model as it was": _at(UNLEARN, _echo),
    "an empty answer": _at(RESPOND, lambda message, answer: Message(RecordDict(), reply_to=message)),
    "no number": _at(ROLL, _metrics(client=-3)),
    "not a number in training": _at(TRAIN, _arrays(lambda v: (v * np.nan).astype(v.dtype))),
    "silent when paid": _at(MEASURE, _silent),
}
_UNPAID_BY_RIGHT = set(FAULTS) - {"not a number in training", "silent when paid"}


class Killed(BaseException):
    """The server is gone."""


class FaultyTinyGrid(InProcessGrid):
    """Clients that go wrong by number; every message is a step towards the next kill."""

    def __init__(
        self, nodes: list[dict[str, Any]], faults: dict[int, Fault], step: Callable[[], None]
    ) -> None:
        self._faults, self._step, self.messages = faults, step, 0
        super().__init__(tiny_client_app(SigningTiny), nodes)

    def _deliver(self, message: Message) -> Message | None:
        self.messages += 1
        if self.messages % 100 == 0:
            self._step()
        client = self.contexts[message.metadata.dst_node_id].node_config["partition-id"]
        fault = self._faults.get(client)
        try:
            return self.answer(message) if fault is None else fault(message, self.answer)
        except RuntimeError:
            return None


class _Reaper:
    """Kills the server at random steps: a step is a commit of the ledger or a hundred messages."""

    def __init__(self, kills: int, seed: int) -> None:
        self.left, self.done, self._random = kills, 0, random.Random(seed)
        self._next = self._draw()

    def _draw(self) -> int:
        # the longest time without a commit is a message to all clients: some kills come sooner, some let it finish
        return self._random.randint(1, 16)

    def step(self) -> None:
        if self.left == 0:
            return
        self._next -= 1
        if self._next <= 0:
            self.left, self.done, self._next = self.left - 1, self.done + 1, self._draw()
            raise Killed


@contextmanager
def _watched(reaper: _Reaper) -> Iterator[None]:
    """Make every commit of a ledger a step: half of the kills come just before it reaches the disk, half just after."""
    transaction = PaymentLedger.transaction

    @contextmanager
    def watched(self: PaymentLedger) -> Iterator[None]:
        inner = self._open_transaction
        with transaction(self):
            yield
            if not inner and reaper.left % 2:
                reaper.step()
        if not inner and not reaper.left % 2:
            reaper.step()

    PaymentLedger.transaction = watched  # type: ignore[method-assign]
    try:
        yield
    finally:
        PaymentLedger.transaction = transaction  # type: ignore[method-assign]


def terms_of_the_load(**changes: Any) -> Terms:
    """Terms under which a thousand clients are done with in a minute."""
    stated = {
        "rounds": 2,
        "epsilon": None,
        "bandwidth": 4.0,
        "cost_scale": 20.0,
        "method": UNIFORM,
        "finite_sample": False,
        "least_cosine": -1.0,  # records are counted here; what directions refuse is measured in directions.py
        **changes,
    }
    return Terms(**stated)


def count_faults_and_kills(clients: int = 1000, kills: int = 50, seed: int = 0) -> dict[str, Any]:
    """Remove clients from a federation of which a fifth goes wrong, killing the server at random points; count."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    draw, began = random.Random(seed), time.perf_counter()
    removed = tuple(range(max(2, clients // 50)))
    rest = [c for c in range(clients) if c not in removed]
    kinds = {
        client: list(FAULTS)[k % len(FAULTS)] for k, client in enumerate(draw.sample(rest, clients // 5))
    }
    faults = {client: FAULTS[kind] for client, kind in kinds.items()}
    reaper, messages, seen = _Reaper(kills, seed), 0, {}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        nodes = [
            {"partition-id": i, **({"client-folder": str(base / "clients" / str(i))} if i % 10 == 0 else {})}
            for i in range(clients)
        ]
        rows_before_kills: list[tuple[int, str]] = []
        requests = [("r1", removed)]
        while True:
            grid = FaultyTinyGrid(nodes, faults, reaper.step)
            mechanism = None
            try:
                with _watched(reaper):
                    mechanism = UnlearningMechanism(
                        base / "run", clients, terms_of_the_load(), wait=0.0, timeout=1.0
                    )
                    initial = ArrayRecord({"model": Array(np.zeros(9, dtype=np.float32))})
                    mechanism.train(grid, initial, 1)
                    for name, leaving in list(requests):
                        mechanism.remove(grid, leaving, request=name)
                if reaper.left == 0:
                    break
                # the records are closed and there are kills left: another client leaves
                requests.append(
                    (f"r{len(requests) + 1}", (draw.choice([c for c in rest if c not in kinds]),))
                )
                rest.remove(requests[-1][1][0])
            except Killed:
                continue
            finally:
                messages += grid.messages
                if mechanism is not None:
                    head = mechanism.ledger.head
                    if head is not None:
                        rows_before_kills.append((head.seq, head.hash))
                    mechanism.ledger.close()
        checking = time.perf_counter()
        report = verify(base / "run")
        verified = time.perf_counter() - checking
        with PaymentLedger(base / "run" / "ledger.sqlite", create=False) as ledger:
            hashes = {row[0]: hash_ for row, hash_, _, _ in ledger.links()}
            done = [name for name, _ in requests]
            paid_rows = Counter((r, e.client) for r in done for e in ledger.events(r, ClientPaid))
            paid = {(r, c): e.amount for r in done for c, e in ledger.by_client(r, ClientPaid).items()}
            agreed = {(r, c): e for r in done for c, e in ledger.by_client(r, ClientCommitted).items()}
            passed = Counter((r, w.client) for r in done for w in ledger.events(r, WorkJudged) if w.passed)
            named = {e.client for request in (RUN, *done) for e in ledger.events(request, ClientFault)}
            out = {(r, c) for r in done for c in ledger.by_client(r, ClientExcluded)}
            settled = sum(ledger.need(r, RequestSettled).paid for r in done)
            seen = {
                "clients": clients,
                "faulty": len(faults),
                "faulty_by_kind": dict(sorted(Counter(kinds.values()).items())),
                "requests": len(done),
                "removed": sum(len(leaving) for _, leaving in requests),
                "kills": reaper.done,
                "messages": messages,
                "rows": len(hashes),
                "rows_lost_after_a_kill": sum(hashes.get(seq) != hash_ for seq, hash_ in rows_before_kills),
                "left_out": len(out),
                "committed": len(agreed),
                "payments": len(paid),
                "paid_twice": sum(n > 1 for n in paid_rows.values()),
                "paid_without_passing": sum(passed[c] == 0 for c in paid),
                "faulty_and_paid": sum(kinds.get(c) in _UNPAID_BY_RIGHT for _, c in paid),
                "sound_and_not_paid_in_full": sum(
                    passed[c] < e.rounds for c, e in agreed.items() if kinds.get(c[1]) not in _UNPAID_BY_RIGHT
                ),
                "sound_and_named_as_faulty": sum(c not in kinds for c in named),
                "sum_of_payments_is_what_was_settled": bool(
                    np.isclose(sum(paid.values()), settled, rtol=1e-12)
                ),
                "closed": all(ledger.has(r, RequestClosed) for r in done),
                "misfit": report.misfit,
                "checks": len(report.checked),
                "seconds": round(time.perf_counter() - began, 1),
                "seconds_to_verify": round(verified, 1),
            }
    return seen


# ---- two servers at once


def _serve(folder: str, clients: int, start: float) -> None:
    """Go on until the request is closed, however often the other server is quicker."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    time.sleep(max(0.0, start - time.time()))
    for attempt in range(50):
        mechanism = UnlearningMechanism(
            Path(folder) / "run", clients, terms_of_the_load(), wait=0.0, timeout=1.0
        )
        grid = InProcessGrid(tiny_client_app(SigningTiny), [{"partition-id": i} for i in range(clients)])
        try:
            mechanism.train(grid, ArrayRecord({"model": Array(np.zeros(9, dtype=np.float32))}), 2)
            mechanism.remove(grid, (0, 1))
            (Path(folder) / f"crashes-{multiprocessing.current_process().pid}").write_text(str(attempt))
            return
        except (StackfuError, OSError):
            continue
        finally:
            mechanism.ledger.close()
    raise SystemExit(1)


def count_two_servers(clients: int = 30, pairs: int = 3) -> dict[str, Any]:
    """Let two servers carry out the same request in the same folder at the same time; count."""
    outcomes: list[dict[str, Any]] = []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as folder:
            context, start = multiprocessing.get_context("spawn"), time.time() + 8.0
            servers = [context.Process(target=_serve, args=(folder, clients, start)) for _ in range(2)]
            for server in servers:
                server.start()
            for server in servers:
                server.join(timeout=300.0)
            report = verify(Path(folder) / "run")
            with PaymentLedger(Path(folder) / "run" / "ledger.sqlite", create=False) as ledger:
                paid = Counter(e.client for e in ledger.events("r1", ClientPaid))
                outcomes.append(
                    {
                        "finished": sum(server.exitcode == 0 for server in servers),
                        "gave_way": sum(int(p.read_text()) for p in Path(folder).glob("crashes-*")),
                        "paid_clients": len(paid),
                        "paid_twice": sum(n > 1 for n in paid.values()),
                        "faults": len(ledger.events("r1", ClientFault)),
                        "misfit": report.misfit,
                    }
                )
    return {"clients": clients, "pairs": outcomes}
