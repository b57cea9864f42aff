"""Certified linear payments by number of clients and by what is asked for: time, memory, gap and loss.

    python -m stackfu_bench.leader_by_size                      # all rows, the largest of which take minutes each
    python -m stackfu_bench.leader_by_size 1000: floor          # rows with one of these words in their names
    python -m stackfu_bench.leader_by_size --quick --list       # one federation of the smallest size; its rows' names

Every row is measured in a process of its own, on a game that another one made (:mod:`stackfu_bench.by_size`), and written to
``stackfu_bench/results/leader_by_size.json`` when it is there: an interrupted run keeps its rows, and ``--missing`` goes on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stackfu as sf
from stackfu.judging.solution_check import promised_gap
from stackfu.model.losses import ServerLoss
from stackfu_bench.by_size import RESULTS, apart, keep, kept, load, make, most_memory, sampled
from stackfu_bench.machine import machine

#: Clients of the game that is solved first, so that nothing is compiled while the clock runs; the methods for many, loosely.
WARM_UP, LOOSE = 400, 0.1
#: Part of the unpaid loss that a cap on the loss allows.
CAP = 0.5
#: Least part of the data, where there is a floor.
FLOOR = 0.2


@dataclass(frozen=True)
class Row:
    """A federation and what is asked of it."""

    clients: int
    width: int = 128
    gram: bool = False
    #: Part of the price of full participation that may be spent.
    share: float = 0.05
    seed: int = 0
    #: Gap asked for, relative to the unpaid loss.
    gap: float = 1e-3
    option: str = "budget"
    #: Price of full participation of all clients; the lower it is, the more of them take part fully without payments.
    cost: float = 3.0

    @property
    def name(self) -> str:
        """Name of the row on the command line."""
        form = "gram" if self.gram else f"D={self.width}"
        cost = "" if self.cost == 3.0 else f" cost={self.cost:g}"
        return f"{self.clients}: {form} share={self.share:g} seed={self.seed} gap={self.gap:g}{cost} {self.option}"


#: Options by name: arguments of ``solve`` beside a budget, from the game, its unpaid loss and the budget (None drops the budget).
OPTIONS: dict[str, Any] = {
    "budget": lambda game, unpaid, budget: {"budget": budget},
    "floor": lambda game, unpaid, budget: {"budget": budget, "min_total": FLOOR},
    "finite_sample": lambda game, unpaid, budget: {"budget": budget, "finite_sample": True},
    # a unit of spend counts like the unpaid loss spread over the price of full participation
    "payment_weight": lambda game, unpaid, budget: {
        "budget": budget,
        "payment_weight": unpaid / game.full_participation_price,
    },
    "payment_weight_alone": lambda game, unpaid, budget: {
        "payment_weight": unpaid / game.full_participation_price
    },
    "max_loss": lambda game, unpaid, budget: {"budget": budget, "max_loss": CAP * unpaid},
    "sampling_constant": lambda game, unpaid, budget: {"budget": budget},
    "own_loss": lambda game, unpaid, budget: {"budget": budget},
    "cheapest": lambda game, unpaid, budget: {
        "loss_weight": 0.0,
        "payment_weight": 1.0,
        "max_loss": CAP * unpaid,
    },
}

#: By size: forms, shares, seeds and gaps where they are cheap, single rows where they are not.
SIZES = (
    *(
        Row(1_000, 64, gram, share, seed, gap)
        for gap in (1e-3, 1e-4)
        for gram in (False, True)
        for seed in (0, 1)
        for share in (0.05, 0.2)
    ),
    Row(6_000, gram=True),
    Row(10_000),
    # with those who leave hardly fewer than 20,000, the most that inner products are held of
    Row(19_600, gram=True),
    Row(100_000),
    Row(100_000, seed=1),
    # most take part fully even without payments
    Row(100_000, gap=1e-2, cost=0.3),
    Row(200_000, 32),
    Row(1_000_000),
)
ROWS = (
    *SIZES,
    *(
        Row(clients, width, option=option)
        for clients, width in ((1_000, 64), (10_000, 128))
        for option in OPTIONS
        if option != "budget"
    ),
)
#: Seconds by the clock that a row may take: a quarter of an hour is what a user waits.
LIMIT = 900.0


def asked(game: sf.StackelbergGame, row: Row) -> tuple[sf.StackelbergGame, dict[str, Any], float]:
    """The game with its option, the arguments of ``solve``, and the loss without payments."""
    if row.option == "sampling_constant":
        game = sampled(game)
    elif row.option == "own_loss":
        mixture = np.random.default_rng([2, row.seed]).dirichlet(np.ones(len(game.all_sizes)))
        game = game.replace(server_loss=ServerLoss.to_mixtures([mixture], [1.0]))
    unpaid = game.equilibrium().server_loss
    budget = row.share * game.full_participation_price
    return game, OPTIONS[row.option](game, unpaid, budget), unpaid


def solve(folder: Path, warm: Path, row: Row, limit: float) -> dict[str, Any]:
    """Solve the game of a folder after that of another, and say what it took and what came out."""
    first, arguments, _ = asked(load(warm, row.gram), row)
    first.solve(**arguments, gap=LOOSE, time_limit=limit, progress=False)
    began = time.perf_counter()
    game = load(folder, row.gram)
    made = time.perf_counter() - began
    game, arguments, unpaid = asked(game, row)
    volunteers = game.equilibrium().participation
    began, cpu = time.perf_counter(), time.process_time()
    found = game.solve(**arguments, gap=row.gap, time_limit=limit, progress=False)
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    memory = most_memory()
    began = time.perf_counter()
    verified = bool(found.verify())
    return {
        "status": found.status.name,
        "gap_reached": row.gap * found.gap / promised_gap(found),
        "loss": found.server_loss / unpaid,
        "spend": found.spend / game.full_participation_price,
        "verified": verified,
        "seconds": seconds,
        "cpu": used,
        "make_seconds": made,
        "verify_seconds": time.perf_counter() - began,
        "memory_gb": memory,
        "game_gb": (folder / "rows.npy").stat().st_size / 1e9,
        "volunteers": float(np.mean(volunteers == 1.0)),
        "limit": limit,
    }


def measure(row: Row, limit: float = LIMIT, warm_up: int = WARM_UP) -> dict[str, Any]:
    """Make the game in one process and solve it in another."""
    with tempfile.TemporaryDirectory() as folder:
        games = []
        for clients in (warm_up, row.clients):
            games.append(Path(folder, f"{len(games)}"))
            games[-1].mkdir()
            apart(make, games[-1], clients, row.width, row.gram, row.seed, row.cost)
        return asdict(row) | apart(solve, games[1], games[0], row, limit)


def chosen(words: Sequence[str], quick: bool, rows: Sequence[Row] = ROWS) -> list[Row]:
    """Return the rows with one of the words in their names, or all; ``quick``: of those one federation of the smallest size."""
    found = [row for row in rows if not words or any(word in row.name for word in words)]
    if quick and found:
        least = min(row.clients for row in found)
        found = [r for r in found if (r.clients, r.seed, r.gap, r.gram) == (least, 0, 1e-3, False)]
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Measure the rows that are chosen, in the order of :data:`ROWS`; 1 if a row was killed for its memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("words", nargs="*", help="rows whose names contain one of these; default: all")
    parser.add_argument("--quick", action="store_true", help="one federation of the smallest size")
    parser.add_argument("--missing", action="store_true", help="rows alone that the file does not have")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    parser.add_argument("--seconds", type=float, default=LIMIT, help="limit by the clock, for each row")
    parser.add_argument("--out", type=Path, default=RESULTS / "leader_by_size.json")
    options = parser.parse_args(given)
    names = list(asdict(ROWS[0]))
    there = [[row[name] for name in names] for row in kept(options.out)] if options.missing else []
    rows = [row for row in chosen(options.words, options.quick) if list(asdict(row).values()) not in there]
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    lost = 0
    for number, row in enumerate(rows, 1):
        print(f"{number} of {len(rows)}, {row.name} ...", flush=True)
        facts = machine()
        try:
            found = measure(row, options.seconds)
        except BrokenProcessPool:
            print("  the process was killed, as happens where memory is short; not kept", flush=True)
            lost += 1
            continue
        keep(options.out, found | {"machine": facts}, names)
        print(
            f"  {found['status']}, gap {found['gap_reached']:.1e}, loss {found['loss']:.4f}, {found['seconds']:.1f} s "
            f"({found['cpu']:.1f} s of processor), {found['memory_gb']:.2f} GB, verified: {found['verified']}",
            flush=True,
        )
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
