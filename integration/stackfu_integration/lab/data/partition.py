"""Share a data set out over clients with Dirichlet-distributed labels AND quantities.

Quantities ``q ~ Dir(beta)`` over the clients and label mixtures ``P_i ~ Dir(beta)`` over the labels are drawn
independently; the table of counts ``N_ic`` is the one with row sums ``q_i n`` and column sums of at most the
pool's class counts that keeps the odds ratios of ``q_i P_ic`` (iterative proportional fitting). Every sample
belongs to one client at most, and a client's test samples are drawn from the test pool in the proportions of
its training labels.

Other schemes put constants that were fitted to one federation to the test: ``classes`` divides every class over the
clients by ``Dir(beta)``, so that quantities follow from the classes; ``covariate`` treats clusters of inputs as the
first scheme treats labels; ``concept`` is the first scheme with clients that call things by other names.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.arrays import FloatArray, IntArray
from stackfu_integration.storage import write_json

__all__ = ["SCHEMES", "ClientIndices", "Partition", "Scheme", "clusters", "dirichlet_partition", "renamed"]

Scheme = Literal["labels", "classes", "covariate", "concept"]
SCHEMES: tuple[Scheme, ...] = ("labels", "classes", "covariate", "concept")


@dataclass(frozen=True)
class ClientIndices:
    """Positions of one client's samples in the training pool and in the test pool."""

    train: IntArray
    test: IntArray


@dataclass(frozen=True)
class Partition:
    """Assignment of samples to clients; ``digest`` identifies data, parameters and outcome."""

    dataset: str
    beta: float
    seed: int
    clients: tuple[ClientIndices, ...]
    attempts: int
    repaired: bool

    def __post_init__(self) -> None:
        for pool in ("train", "test"):
            held = np.concatenate([getattr(client, pool) for client in self.clients])
            if len(np.unique(held)) != len(held):
                raise InputError("partition", f"two clients hold the same {pool} sample")

    @property
    def sizes(self) -> IntArray:
        """Training samples of each client."""
        return np.array([len(client.train) for client in self.clients])

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the partition says."""
        return hashlib.sha256(json.dumps(self._plain(), sort_keys=True).encode()).hexdigest()

    def _plain(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "beta": self.beta,
            "seed": self.seed,
            "attempts": self.attempts,
            "repaired": self.repaired,
            "clients": [{"train": c.train.tolist(), "test": c.test.tolist()} for c in self.clients],
        }

    def save(self, path: Path) -> Path:
        """Write the partition as JSON together with its digest."""
        return write_json(path, {**self._plain(), "digest": self.digest})

    @classmethod
    def load(cls, path: Path) -> Partition:
        """Read a saved partition; refuse a file that does not match its digest."""
        try:
            stored = json.loads(path.read_text())
            clients = tuple(
                ClientIndices(np.array(c["train"], dtype=np.int64), np.array(c["test"], dtype=np.int64))
                for c in stored["clients"]
            )
            partition = cls(
                stored["dataset"],
                stored["beta"],
                stored["seed"],
                clients,
                stored["attempts"],
                stored["repaired"],
            )
            digest = stored["digest"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileFormatError(f"{path}: not a partition ({error!r})") from error
        if partition.digest != digest:
            raise FileFormatError(f"{path}: the content does not match its digest")
        return partition


def _fit_counts(weights: FloatArray, rows: FloatArray, columns: FloatArray, sweeps: int = 500) -> FloatArray:
    """Scale ``weights`` by rows and columns until they have these sums (both sum to the same total)."""
    table = weights.copy()
    for _ in range(sweeps):
        table *= (rows / table.sum(1))[:, None]
        table *= columns / table.sum(0)
    return table


def _round_within(table: FloatArray, columns: IntArray) -> IntArray:
    """Round down, then hand out what is left of each column by largest remainder."""
    counts = np.floor(table).astype(np.int64)
    for c in range(table.shape[1]):
        left = int(min(columns[c], round(table[:, c].sum()))) - int(counts[:, c].sum())
        order = np.argsort(counts[:, c] - table[:, c], kind="stable")
        counts[order[: max(left, 0)], c] += 1
    return counts


def _guarantee(counts: IntArray, wanted: FloatArray, columns: IntArray, smallest: int) -> IntArray:
    """Bring every row to ``smallest`` after rounding, from what no client holds or from the largest."""
    for i in np.flatnonzero(counts.sum(1) < smallest):
        while counts[i].sum() < smallest:
            donors = np.where(columns > counts.sum(0), -1, counts.argmax(0))  # -1: not handed out yet
            possible = (donors == -1) | ((donors != i) & (counts.max(0) > 1))
            c = int(np.argmax(np.where(possible, wanted[i] - counts[i], -np.inf)))
            if donors[c] >= 0:
                counts[donors[c], c] -= 1
            counts[i, c] += 1
    return counts


def _draw_quantities(
    rng: np.random.Generator,
    clients: int,
    beta: float,
    smallest: float,
    removed: tuple[int, ...],
    removed_share: tuple[float, float],
    retries: int,
) -> tuple[FloatArray, int, bool]:
    """Draw shares until the smallest client and the removed share are acceptable; else repair the last."""
    low, high = removed_share
    shares = rng.dirichlet(np.full(clients, beta))
    for attempt in range(1, retries + 1):
        if shares.min() >= smallest and (not removed or low <= shares[list(removed)].sum() <= high):
            return shares, attempt, False
        if attempt < retries:
            shares = rng.dirichlet(np.full(clients, beta))
    # Lift small clients to the guaranteed size; the others give in proportion to what they have above it.
    spare = np.maximum(shares - smallest, 0.0)
    return smallest + spare * ((1.0 - smallest * clients) / spare.sum()), retries, True


def clusters(train: FloatArray, test: FloatArray, count: int, seed: int = 0) -> tuple[IntArray, IntArray]:
    """Nearest of ``count`` centres (k-means on the training inputs) of every input: groups for covariate shift.

    >>> train, test = clusters(np.array([[0.0], [0.1], [5.0]]), np.array([[4.0]]), 2)
    >>> bool(train[0] == train[1] != train[2] == test[0])
    True
    """
    flat, others = (pool.reshape(len(pool), -1).astype(np.float64) for pool in (train, test))
    if not 1 <= count <= len(flat):
        raise InputError("count", f"must be between 1 and {len(flat)}", value=count)

    def nearest(points: FloatArray, centres: FloatArray) -> IntArray:
        return np.asarray(((centres**2).sum(1) - 2.0 * points @ centres.T).argmin(1))

    rng = np.random.default_rng([seed, 104729])
    centres = flat[rng.choice(len(flat), count, replace=False)]
    for _ in range(25):
        group = nearest(flat, centres)
        centres = np.stack(
            [flat[group == k].mean(0) if (group == k).any() else centres[k] for k in range(count)]
        )
    return nearest(flat, centres), nearest(others, centres)


def renamed(labels: IntArray, classes: int) -> IntArray:
    """Call every class by the name of its neighbour: 0 and 1, 2 and 3, ... change places.

    >>> renamed(np.array([0, 1, 2, 4]), 5)
    array([1, 0, 3, 4])
    """
    other = labels ^ 1
    return np.asarray(np.where(other < classes, other, labels))


def _by_classes(
    rng: np.random.Generator,
    pool: IntArray,
    clients: int,
    beta: float,
    smallest: float,
    removed: tuple[int, ...],
    removed_share: tuple[float, float],
    retries: int,
) -> tuple[FloatArray, int]:
    """Divide every class over the clients, again until the removed clients' share and the smallest are acceptable."""
    low, high = removed_share
    for attempt in range(1, retries + 1):
        table = rng.dirichlet(np.full(clients, beta), size=len(pool)).T * pool
        shares = table.sum(1) / table.sum()
        if shares.min() >= smallest and (not removed or low <= shares[list(removed)].sum() <= high):
            return table, attempt
    raise InputError("beta", "no division of the classes keeps the guaranteed sizes", value=beta)


def dirichlet_partition(
    train_labels: IntArray,
    test_labels: IntArray,
    *,
    beta: float,
    seed: int,
    clients: int = 10,
    min_train: int = 20,
    min_test: int = 10,
    removed: tuple[int, ...] = (),
    removed_share: tuple[float, float] = (0.0, 1.0),
    retries: int = 10_000,
    dataset_digest: str = "",
    by_classes: bool = False,
) -> Partition:
    """Draw a partition; every client gets at least ``min_train`` and ``min_test`` samples.

    Quantities are redrawn (at most ``retries`` times) while a client would fall below ``min_train`` or the
    clients in ``removed`` would hold a share of the data outside ``removed_share``; after the last attempt
    small clients are lifted to the guaranteed size and the partition says that it was repaired. ``by_classes``
    divides every class over the clients instead of drawing quantities and mixtures.

    >>> labels = np.repeat(np.arange(4), 100)
    >>> partition = dirichlet_partition(labels, labels, beta=0.5, seed=0, clients=5)
    >>> int(partition.sizes.sum()) <= 400, bool(partition.sizes.min() >= 20)
    (True, True)
    """
    if beta <= 0:
        raise InputError("beta", "must be positive", value=beta)
    if clients < 2:
        raise InputError("clients", "must be at least 2", value=clients)
    n_train, n_test = len(train_labels), len(test_labels)
    if clients * min_train > n_train // 2 or clients * min_test > n_test // 2:
        raise InputError(
            "clients", f"the data cannot give {clients} clients their guaranteed sizes", value=n_train
        )
    rng = np.random.default_rng([seed, 7919])
    classes = int(max(train_labels.max(), test_labels.max())) + 1
    pool_train = np.bincount(train_labels, minlength=classes)
    pool_test = np.bincount(test_labels, minlength=classes)
    # The test pool is shared out in the same table, so a guaranteed test size is a guaranteed share as well.
    smallest = max((min_train + 1) / n_train, (min_test + 1) / n_test)
    if by_classes:
        table, attempts = _by_classes(
            rng, pool_train, clients, beta, smallest, removed, removed_share, retries
        )
        repaired = False
    else:
        shares, attempts, repaired = _draw_quantities(
            rng, clients, beta, smallest, removed, removed_share, retries
        )
        mixtures = rng.dirichlet(np.full(classes, beta), size=clients) + 1e-9
        table = _fit_counts(shares[:, None] * mixtures, shares * n_train, pool_train.astype(float))

    counts_train = _guarantee(_round_within(table, pool_train), table, pool_train, min_train)
    # One factor for all classes keeps a client's test mixture equal to its training mixture up to rounding.
    held = counts_train.sum(0)
    factor = float(np.min(pool_test[held > 0] / held[held > 0]))
    wanted: FloatArray = counts_train.astype(np.float64) * factor
    counts_test = _guarantee(_round_within(wanted, pool_test), wanted, pool_test, min_test)

    indices: list[dict[str, IntArray]] = [{} for _ in range(clients)]
    for pool, labels, counts in (("train", train_labels, counts_train), ("test", test_labels, counts_test)):
        per_class = [rng.permutation(np.flatnonzero(labels == c)) for c in range(classes)]
        starts = np.zeros(classes, dtype=np.int64)
        for i in range(clients):
            taken = [per_class[c][starts[c] : starts[c] + counts[i, c]] for c in range(classes)]
            starts += counts[i]
            indices[i][pool] = np.sort(np.concatenate(taken))
    return Partition(
        dataset_digest,
        beta,
        seed,
        tuple(ClientIndices(c["train"], c["test"]) for c in indices),
        attempts,
        repaired,
    )
