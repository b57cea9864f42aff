"""Solve games of every regime with one or more versions of the library, and write what each reached by when.

    python -m stackfu_bench.regimes --clients 30 300 --games 10 --seconds 10
    python -m stackfu_bench.regimes --code before=/path/to/a/checkout --code now=. --out here.json

All versions take turns at every game, each in a process of its own, so that a machine's mood is shared. Seconds are of the
processor, limits too. A row keeps the incumbent and the bound over time, both relative to the unpaid loss.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stackfu_bench.regimes import draw

RESULTS = Path(__file__).parents[1] / "results" / "regimes"
ROOT = Path(__file__).parents[2]
#: Records of a history that a row keeps at most.
KEPT = 60


class Version:
    """A process that solves games with the library of a folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        command = [sys.executable, "-m", "stackfu_bench.regimes", "--serve", str(folder.resolve())]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def solve(self, seed: int, clients: int, gap: float, limit: float) -> dict[str, Any]:
        """Return the row of one game."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([seed, clients, gap, limit]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of {self.name} ended")
        return {"code": self.name, **json.loads(answer)}

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(folder: str) -> int:
    """Answer requests on the standard input with rows on the standard output."""
    import time

    time.perf_counter = time.process_time  # limits of the library's searches count seconds of the processor
    sys.path.insert(0, folder)
    out, sys.stdout = sys.stdout, sys.stderr
    solve_one(0, 12, 1e-2, 20.0)  # reads machine code
    solve_one(1, 150, 1e-1, 20.0)
    for line in sys.stdin:
        out.write(json.dumps(solve_one(*json.loads(line))) + "\n")
        out.flush()
    return 0


def solve_one(seed: int, clients: int, gap: float, limit: float) -> dict[str, Any]:
    """Solve the game of a seed; the row says when which incumbent and bound were known."""
    import time

    import numpy as np

    from stackfu.errors import StackfuError

    regime = draw(seed, clients)
    game, arguments = regime.build()
    unpaid = game.equilibrium().server_loss
    history: list[tuple[float, float, float]] = []
    unit = unpaid if arguments.get("loss_weight", 1.0) else game.full_participation_price
    began = time.process_time()

    def listen(record: dict[str, Any]) -> None:
        lower, upper = record["lower"] / unit, record["upper"] / unit
        history.append((time.process_time() - began, lower, upper))

    row: dict[str, Any] = {**asdict(regime), "name": regime.name, "gap": gap, "limit": limit}
    try:
        found = game.solve(**arguments, gap=gap, time_limit=limit, progress=False, callback=listen)
    except StackfuError as error:
        row |= {"status": type(error).__name__, "message": str(error)[:200]}
    else:
        row |= {
            "status": found.status.name,
            "objective": found.objective / unit,
            "loss": found.server_loss / unpaid,
            "lower": found.lower_bound / unit,
            "spent": found.spend / game.full_participation_price,
            "nodes": found.nodes,
        }
    row["seconds"] = time.process_time() - began
    row["history"] = [
        [None if not np.isfinite(value) else float(f"{value:.5g}") for value in record]
        for record in thinned(history)
    ]
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in row.items()
    }


def thinned(history: Sequence[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Return the records at which the incumbent or the bound changed, at most :data:`KEPT` of them.

    >>> thinned([(0.1, 0.0, 1.0), (0.2, 0.0, 1.0), (0.3, 0.5, 1.0)])
    [(0.1, 0.0, 1.0), (0.3, 0.5, 1.0)]
    """
    changed = [r for i, r in enumerate(history) if i == 0 or r[1:] != history[i - 1][1:]]
    step = max(-(-len(changed) // KEPT), 1)
    return changed[:-1:step] + changed[-1:]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def main(given: Sequence[str] | None = None) -> int:
    """Measure, and keep every row as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--clients", type=int, nargs="+", default=[30, 100, 300, 1000], help="sizes of the games"
    )
    parser.add_argument("--games", type=int, default=4, help="games of each size")
    parser.add_argument("--first", type=int, default=0, help="seed of the first game")
    parser.add_argument("--gap", type=float, default=1e-3, help="gap asked for, relative to the unpaid loss")
    parser.add_argument("--seconds", type=float, default=10.0, help="limit on processor seconds per game")
    parser.add_argument("--code", action="append", help="NAME=FOLDER of a version; default: this one")
    parser.add_argument("--out", type=Path, default=RESULTS / "regimes.json")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.serve:
        return serve(options.serve)
    named = [code.split("=", 1) for code in options.code or [f"now={ROOT}"]]
    versions = [Version(name, Path(folder)) for name, folder in named]
    from stackfu_bench.by_size import keep
    from stackfu_bench.machine import machine

    for clients in options.clients:
        for seed in range(options.first, options.first + options.games):
            for version in versions:
                facts = machine()
                row = version.solve(seed, clients, options.gap, options.seconds)
                keep(options.out, row | {"machine": facts}, ("code", "clients", "seed", "gap", "limit"))
                reached = " .. ".join(_number(row.get(name)) for name in ("lower", "objective"))
                print(
                    f"{row['name']}, {version.name}: {row['status']}, {reached}, {row['seconds']:.1f} s",
                    flush=True,
                )
    for version in versions:
        version.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
