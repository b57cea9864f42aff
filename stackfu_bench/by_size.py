"""Shared by measurements by number of clients: games that one process makes and another plays, rows that outlive a run.

The most memory that a process ever had is what it needs for a game only if the game was made elsewhere: the numbers of a
federation are drawn in double precision, several times what is kept of them.
"""

from __future__ import annotations

import datetime
import json
import multiprocessing
import resource
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import stackfu as sf
from stackfu.atomic import write_atomically
from stackfu_bench.benchmarks.leader import federation_of

RESULTS = Path(__file__).parent / "results"
#: Sampling constant of those games that have one, in units of the clients' spread and of the number of samples.
SAMPLING = 0.002
#: Bytes of a unit of ``ru_maxrss``.
UNIT = 1 if sys.platform == "darwin" else 2**10

T = TypeVar("T")


def apart(task: Callable[..., T], *arguments: Any) -> T:
    """Return the result of a function, run in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(task, *arguments).result()


def make(
    folder: Path, clients: int, width: int, gram: bool = False, seed: int = 0, cost: float = 3.0
) -> None:
    """Draw the federation of a size and leave its numbers in a folder."""
    game, _ = federation_of(clients, width, False, seed, cost)
    rows = np.asarray(game.embeddings.features)
    np.save(folder / "rows.npy", rows.astype(float) @ rows.astype(float).T if gram else rows)
    np.save(folder / "sizes.npy", np.asarray(game.all_sizes))
    np.save(folder / "costs.npy", np.asarray(game.costs))


def load(folder: Path, gram: bool = False) -> sf.StackelbergGame:
    """Return the game with its numbers in a folder."""
    rows, sizes, costs = (np.load(folder / f"{name}.npy") for name in ("rows", "sizes", "costs"))
    embed = sf.MeanEmbeddings.from_gram if gram else sf.MeanEmbeddings.from_features
    return sf.StackelbergGame(embed(rows), sizes, range(len(sizes) - len(costs)), costs=costs)


def sampled(game: sf.StackelbergGame) -> sf.StackelbergGame:
    """The same game with a sampling constant."""
    return game.replace(sampling_constant=SAMPLING * game.geometry.scale * float(game.sizes.sum()))


def most_memory() -> float:
    """The most memory that this process had so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 1e9


def kept(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; none if there is no file."""
    return json.loads(path.read_text())["rows"] if path.exists() else []


def keep(path: Path, row: dict[str, Any], known_by: Iterable[str]) -> None:
    """Add what was measured to the row of the same names, with today's date; a reader sees all rows or the old ones."""
    rows, names = kept(path), tuple(known_by)
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    for older in rows:
        if all(older[name] == row[name] for name in names):
            older.update(row, date=now)
            break
    else:
        rows.append({**row, "date": now})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps({"rows": rows}, indent=1) + "\n").encode())
