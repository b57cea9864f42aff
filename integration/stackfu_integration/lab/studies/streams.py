"""Ten removal requests, one after the other, from one budget: who is left, at what quality, at what cost.

Every request removes one client for good. The budget is that of all requests together (:class:`stackfu.Requests`); each may spend
an equal part of what is left. After every answer the head is trained again with what the clients bring.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stackfu import Requests
from stackfu.errors import ConvergenceError, InfeasibleError, NoEquilibriumError
from stackfu_integration.lab.mechanisms import CAPPED_LABELS, MECHANISMS, SAME_SHARE, UNIFORM, UNPAID
from stackfu_integration.lab.runs.rounding import rounded
from stackfu_integration.lab.runs.source import Source
from stackfu_integration.lab.studies.bench import Bench, one_thread
from stackfu_integration.storage import write_json

__all__ = ["ANSWERED_BY", "Streams"]

#: Ways to answer a request.
ANSWERED_BY = (UNPAID, UNIFORM, SAME_SHARE, CAPPED_LABELS)


@dataclass
class Streams:
    """Streams of requests in the federations of one preset: a file per federation."""

    source: Source
    folder: Path
    betas: tuple[float, ...]
    seeds: tuple[int, ...]
    clients: int = 20
    requests: int = 10
    budget: float = 2.5  # of the price of full participation, for all requests together
    cost_scale: float = 10.0

    def tasks(self) -> Iterator[tuple[float, int]]:
        """Betas and seeds, seed by seed."""
        for seed in self.seeds:
            for beta in self.betas:
                yield beta, seed

    def path(self, beta: float, seed: int) -> Path:
        """File of a federation."""
        return self.folder / f"{self.source.preset.name}-b{beta:g}-s{seed}.json"

    def run(self, beta: float, seed: int) -> None:
        """Answer the stream in every way, in one federation."""
        # constants come from pilots after the first half of the requests: one calibration serves the whole stream
        half = tuple(range(self.requests // 2))
        bench = Bench(self.source, beta, seed, self.clients, half, removed_share=(0.05, 0.7))
        calibrated = bench.game(self.cost_scale)
        sizes = np.asarray(calibrated.all_sizes, dtype=np.float64)
        game = calibrated.replace(removed=(), costs=self.cost_scale * sizes / sizes.sum())
        whole = self.budget * float(calibrated.full_participation_price)
        streams = {name: self._stream(bench, game, name, whole) for name in ANSWERED_BY}
        about = {"preset": self.source.preset.name, "beta": beta, "seed": seed, "budget": whole}
        write_json(self.path(beta, seed), rounded({**about, "streams": streams}))

    def _stream(self, bench: Bench, game: Any, name: str, budget: float) -> list[dict[str, Any]]:
        requests, found = Requests(game, budget), []
        for number in range(self.requests):
            after: dict[str, Any] = {"request": number}
            known = MECHANISMS[name]
            options = dict(known.options)
            try:
                solution = requests.remove(
                    [number], share=1.0 / (self.requests - number), method=known.method, **options
                )
                shares = {
                    int(k): float(x)
                    for k, x in zip(solution.game.remaining, solution.participation, strict=True)
                }
                trained = bench.train(shares, tuple(range(number + 1)))
                everyone, kept = range(len(trained.losses)), list(shares)
                original = bench.original
                after |= {
                    "spend": float(solution.spend),
                    "takes_part": sum(x > 0 for x in shares.values()),
                    "used": float(solution.game.alpha @ solution.participation),
                    "s": trained.mean(trained.losses, everyone) - original.mean(original.losses, everyone),
                    "s_points": 100
                    * (
                        trained.mean(trained.accuracies, everyone)
                        - original.mean(original.accuracies, everyone)
                    ),
                    "worst_q": float((trained.losses - original.losses)[kept].max()),
                }
            except (InfeasibleError, ConvergenceError, NoEquilibriumError) as error:
                after["without_answer"] = str(error)
                found.append(after)
                break
            found.append(after)
        return found

    def complete(self, finished: Callable[[str], None], out_of_time: Callable[[], bool]) -> bool:
        """Run what is missing until the time is over; True when nothing is left."""
        for beta, seed in self.tasks():
            if self.path(beta, seed).is_file():
                continue
            if out_of_time():
                return False
            with one_thread():
                self.run(beta, seed)
            finished(self.path(beta, seed).stem)
        return True

    def collect(self, out: Path) -> Path:
        """Write all federations as one file."""
        files = [self.path(*task) for task in self.tasks()]
        stored = [json.loads(path.read_text()) for path in files if path.is_file()]
        return write_json(out / f"streams-{self.source.preset.name}.json", {"federations": stored})
