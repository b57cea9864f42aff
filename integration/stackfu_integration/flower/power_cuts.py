"""Contents of the disk after a power cut at any moment, and a check that all parties can continue from there.

A disk keeps what it was told to keep: the content of a file since its last ``fsync``, a name since the last ``fsync`` of its
folder. Whatever was written later may be there or not. :class:`Disk` watches a run of server and clients and takes down, at every
one of their writes, two extremes of what a power cut then leaves, nothing that was not told and everything that was written; and
between two commits of the ledger its log torn in the middle. A new file with its name kept and its content lost is empty.

SQLite's own calls are not watched. It is trusted to bring its log to the disk before a commit returns, which is what
``synchronous = FULL`` promises; what it makes of a torn log is tried.
"""

from __future__ import annotations

import logging
import os
import random
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord

from stackfu.errors import StackfuError
from stackfu_integration.arrays import FloatArray, IntArray
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.client_state import read_receipts
from stackfu_integration.flower.convex import flat
from stackfu_integration.flower.events import ClientPaid, PaymentAcknowledged, RequestClosed
from stackfu_integration.flower.in_process import InProcessGrid
from stackfu_integration.flower.keys import read_public_key
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.load import SigningTiny, terms_of_the_load
from stackfu_integration.flower.mechanism import UnlearningMechanism
from stackfu_integration.flower.scale import tiny_client_app
from stackfu_integration.flower.terms import Terms
from stackfu_integration.flower.verification import Evidence, verify

__all__ = ["METHODS", "Disk", "Moment", "count_power_cuts", "problem_after"]

Tree = Mapping[str, bytes | None]  # content by path; of a folder, None
_LEDGER, _LOG, _INDEX = "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"
_CLIENTS, _REMOVED = 5, (0, 1)
_HEAD: dict[str, Any] = {"head": ("weight", "bias"), "min_total": 0.3}
_CONVEX: dict[str, Any] = {**_HEAD, "certify_l2": 1.0, "certify_distance": 0.1, "rounds": 8}

#: Kinds of requests that are cut, by name: changes of the terms.
METHODS: Mapping[str, Mapping[str, Any]] = {
    "clipped": {},
    "secure": {"aggregation": "secure"},
    "mode": {"unlearning": "mode", "rounds": 3},
    "convex-head": {"unlearning": "convex-head", **_CONVEX},
    "convex-head, secure": {"unlearning": "convex-head", "aggregation": "secure", **_CONVEX},
    "newton": {"unlearning": "newton", **_CONVEX},
    "shards": {"unlearning": "shards", "shards": 2, **_HEAD},
}


@dataclass(frozen=True)
class Moment:
    """Disk contents after a power cut at some write, the kind of cut, and the last row that was committed."""

    write: int
    what: str
    tree: Tree
    head: Head | None = None

    def restore(self, folder: Path) -> None:
        """Make a folder of it."""
        for name, content in sorted(self.tree.items()):
            path = folder / name
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.write_bytes(content)
                path.chmod(0o600)


@dataclass
class Disk:
    """A folder, as the disk below it was told to keep it."""

    root: Path
    moments: list[Moment] = field(default_factory=list)
    writes: int = 0
    head: Head | None = None
    _kept: dict[Path, dict[str, tuple[int, bytes | None]]] = field(default_factory=dict)
    _pending: dict[int, bytes] = field(default_factory=dict)

    def told_to_keep(self) -> dict[str, bytes | None]:
        """Return everything that was told, and nothing else."""
        found: dict[str, bytes | None] = {}

        def walk(folder: Path) -> None:
            for name, (_, content) in self._kept.get(folder, {}).items():
                found[str((folder / name).relative_to(self.root))] = content
                if content is None:
                    walk(folder / name)

        walk(self.root)
        return found

    def written(self) -> dict[str, bytes | None]:
        """Return everything that was written."""
        paths = [path for path in self.root.rglob("*") if path.name != _INDEX]
        return {str(p.relative_to(self.root)): None if p.is_dir() else p.read_bytes() for p in paths}

    def _take_down(self, what: str, tree: Tree) -> None:
        if not self.moments or all(tree != moment.tree for moment in self.moments[-3:]):
            self.moments.append(Moment(self.writes, what, tree, self.head))

    # ---------------------------------------------------------------- writes to the disk

    def sync(self, path: Path) -> None:
        """A file or a folder is brought to the disk."""
        self.writes += 1
        self._take_down("everything written", self.written())
        if path.is_dir():
            before = self._kept.get(path, {})
            entries: dict[str, tuple[int, bytes | None]] = {}
            for there in path.iterdir():
                number, old = there.stat().st_ino, before.get(there.name)
                if there.is_dir():
                    entries[there.name] = (number, None)
                elif old is not None and old[0] == number:
                    entries[there.name] = old
                elif there.name != _INDEX:
                    entries[there.name] = (number, self._pending.pop(number, b""))
            self._kept[path] = entries
        else:
            number, content = path.stat().st_ino, path.read_bytes()
            entry = self._kept.get(path.parent, {}).get(path.name)
            if entry is not None and entry[0] == number:
                self._kept[path.parent][path.name] = (number, content)
            else:
                self._pending[number] = content
        self._take_down("what was told", self.told_to_keep())

    def commit(self, folder: Path, head: Head | None) -> None:
        """The ledger's log, and the file where it was moved into it, are on the disk."""
        self.writes += 1
        kept = self._kept.setdefault(folder, {})
        before = kept.get(_LOG, (0, b""))[1] or b""
        known = self.told_to_keep()
        for name in (_LEDGER, _LOG):
            path = folder / name
            if path.is_file():  # SQLite brings the folder to the disk when it makes the log
                kept[name] = (path.stat().st_ino, path.read_bytes())
            else:
                kept.pop(name, None)
        after, log = kept.get(_LOG, (0, b""))[1] or b"", str((folder / _LOG).relative_to(self.root))
        if log in known and after.startswith(before) and len(after) > len(before) and before:
            cut = len(before) + random.Random(self.writes).randrange(1, len(after) - len(before))
            self._take_down("the ledger's log torn", {**known, log: after[:cut]})
        self.head = head
        self._take_down("what was told", self.told_to_keep())


@contextmanager
def watched(disk: Disk) -> Iterator[None]:
    """Tell the disk about every ``fsync`` and every commit of a ledger."""
    synced, transaction, flush = os.fsync, PaymentLedger.transaction, PaymentLedger.flush

    def sync(descriptor: int) -> None:
        synced(descriptor)
        kind = os.fstat(descriptor).st_mode
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if (stat.S_ISREG(kind) or stat.S_ISDIR(kind)) and path.is_relative_to(disk.root):
            disk.sync(path)

    @contextmanager
    def committed(self: PaymentLedger) -> Iterator[None]:
        inner = self._open_transaction
        with transaction(self):
            yield
        if not inner:
            disk.commit(self.path.parent, self.head)

    def flushed(self: PaymentLedger, wait: float = 30.0) -> bool:
        done = flush(self, wait)
        disk.commit(self.path.parent, self.head)
        return done

    os.fsync = sync  # type: ignore[assignment]
    PaymentLedger.transaction, PaymentLedger.flush = committed, flushed  # type: ignore[method-assign]
    try:
        yield
    finally:
        os.fsync = synced
        PaymentLedger.transaction, PaymentLedger.flush = transaction, flush  # type: ignore[method-assign]


# ---- a run, and the run after it


class TinyHead(SigningTiny):
    """A softmax head of two classes, which the first coordinate tells apart."""

    def _used(self, share: float) -> tuple[FloatArray, IntArray]:
        used = self._data[: round(share * len(self._data))]
        inputs = np.column_stack([used, np.ones(len(used))])
        return inputs, (used[:, 0] > self._data[:, 0].mean()).astype(np.int64)

    @staticmethod
    def _chances(arrays: ArrayRecord, inputs: FloatArray) -> FloatArray:
        head = np.column_stack([arrays["weight"].numpy(), arrays["bias"].numpy()]).astype(np.float64)
        scores = np.exp(inputs @ head.T - (inputs @ head.T).max(1, keepdims=True))
        return np.asarray(scores / scores.sum(1, keepdims=True))

    def gradient(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[FloatArray, int]:
        """Return the gradient of the summed cross-entropy."""
        inputs, labels = self._used(share)
        found = (self._chances(arrays, inputs) - np.eye(2)[labels]).T @ inputs
        return np.concatenate([found[:, :-1].ravel(), found[:, -1]]), len(inputs)

    def curvature(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[FloatArray, int]:
        """Its Hessian."""
        inputs, _ = self._used(share)
        spread = self._chances(arrays, inputs).prod(1)
        block = (inputs * spread[:, None]).T @ inputs
        square = np.kron(np.array([[1.0, -1.0], [-1.0, 1.0]]), block)
        places = np.arange(len(square)).reshape(2, -1)
        order = np.concatenate([places[:, :-1].ravel(), places[:, -1]])
        return square[order][:, order], len(inputs)

    def train(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[ArrayRecord, int]:
        """Return a step along the gradient."""
        slope, used = self.gradient(arrays, share, config)
        moved = (flat(arrays) - 0.1 * slope / used).astype(np.float32)
        return ArrayRecord({"weight": Array(moved[:-2].reshape(2, -1)), "bias": Array(moved[-2:])}), used

    def measure(self, arrays: ArrayRecord) -> dict[str, float]:
        """Return the accuracy of the head."""
        inputs, labels = self._used(1.0)
        return {"accuracy": float((self._chances(arrays, inputs).argmax(1) == labels).mean())}


def run_all(base: Path, terms: Terms) -> None:
    """Train and remove, or go on with it, with five clients that keep records in the same folder."""
    nodes = [{"partition-id": i, "client-folder": str(base / "clients" / str(i))} for i in range(_CLIENTS)]
    mechanism = UnlearningMechanism(base / "run", _CLIENTS, terms, wait=0.0, timeout=1.0)
    first = {"model": np.zeros(9, np.float32)}
    if terms.head:
        first = {"weight": np.zeros((2, 8), np.float32), "bias": np.zeros(2, np.float32)}
    try:
        grid = InProcessGrid(tiny_client_app(TinyHead if terms.head else SigningTiny), nodes)
        mechanism.train(grid, ArrayRecord({name: Array(values) for name, values in first.items()}), 1)
        mechanism.remove(grid, _REMOVED[:1] if terms.unlearning == "shards" else _REMOVED)
    finally:
        mechanism.ledger.close()


def _payments(base: Path) -> dict[int, float]:
    with PaymentLedger(base / "run" / "ledger.sqlite", create=False) as ledger:
        return {client: event.amount for client, event in ledger.by_client("r1", ClientPaid).items()}


def problem_after(moment: Moment, terms: Terms, expected: Mapping[int, float]) -> str | None:
    """Go on from what a power cut left; say what is wrong afterwards, if anything is."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        moment.restore(base)
        try:
            run_all(base, terms)
            server_key = read_public_key(base / "run" / "keys" / "server.pub")
        except (StackfuError, OSError) as error:
            return f"cannot go on: {error}"
        with PaymentLedger(base / "run" / "ledger.sqlite", create=False) as ledger:
            paid = Counter(event.client for event in ledger.events("r1", ClientPaid))
            disputed = [c for c, e in ledger.by_client("r1", PaymentAcknowledged).items() if not e.agreed]
            closed = ledger.has("r1", RequestClosed)
            hashes = {row[0]: hash_ for row, hash_, _, _ in ledger.links()}
            faults = [(row.client, row.detail["problem"]) for row in ledger.rows(kind="fault")]
        kept = [read_receipts(path) for path in sorted(base.glob("clients/*/receipts.jsonl"))]
        evidence = Evidence(
            server_key=server_key,
            client_keys={int(p.parent.name): read_public_key(p) for p in base.glob("clients/*/client.pub")},
            receipts=tuple(receipt for receipts in kept for receipt in receipts),
        )
        head = moment.head
        found: list[tuple[bool, str]] = [
            (head is not None and hashes.get(head.seq) != head.hash, "rows that were committed are lost"),
            (not closed, "the request is not closed"),
            (any(count > 1 for count in paid.values()), "somebody is paid twice"),
            (_payments(base) != dict(expected), "other payments than without a power cut"),
            (bool(disputed), f"clients {disputed} dispute their payments"),
            (bool(faults), f"clients are blamed: {faults}"),
        ]
        misfit = verify(base / "run", evidence).misfit
        found.append((misfit is not None, f"does not fit: {misfit}"))
        return next((what for wrong, what in found if wrong), None)


def count_power_cuts(
    terms: Terms | None = None,
    most: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """Cut the power at every write of a run, or at ``most`` of the moments; count what went wrong."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    terms = terms_of_the_load() if terms is None else terms
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder).resolve())
        with watched(disk):
            run_all(disk.root, terms)
        expected = _payments(disk.root)
    chosen = disk.moments
    if most is not None and most < len(chosen):
        chosen = sorted(random.Random(seed).sample(chosen, most), key=lambda moment: moment.write)
    problems: list[dict[str, Any]] = []
    for done, moment in enumerate(chosen):
        problem = problem_after(moment, terms, expected)
        if problem is not None:
            problems.append({"write": moment.write, "what": moment.what, "problem": problem})
        progress(done + 1, len(chosen))
    return {
        "writes": disk.writes,
        "moments": len(disk.moments),
        "tried": len(chosen),
        "tried_by_kind": dict(sorted(Counter(moment.what for moment in chosen).items())),
        "paid": len(expected),
        "problems": problems,
    }
