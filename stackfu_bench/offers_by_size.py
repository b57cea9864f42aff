"""Capped plans at every size, compared with the best linear payments and a local search that shares no code with them.

    python -m stackfu_bench.offers_by_size                                  # all sizes, into stackfu_bench/results
    python -m stackfu_bench.offers_by_size 50 200 --only capped --seconds 60

One federation per size (:func:`stackfu_bench.benchmarks.leader.federation_of`) with a sampling constant, a floor on total
participation and a budget of 5 % of the price of full participation. Every part is measured in a process of its own, and what is
measured is added to the row of its size in the file.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

import stackfu as sf
from stackfu_bench.benchmarks.leader import federation_of
from stackfu_bench.by_size import RESULTS, apart, keep, load, make, most_memory, sampled
from stackfu_bench.machine import machine

#: Figures that are losses.
LOSSES = ("loss", "bound", "linear", "linear_bound", "local_search")
#: Part of the full price that may be spent, and of the data that must take part.
BUDGET, FLOOR = 0.05, 0.1
#: Clients, and the seconds by the clock that each part gets.
SIZES = {50: 60.0, 200: 60.0, 1_000: 60.0, 10_000: 60.0, 100_000: 120.0, 1_000_000: 300.0}
#: Seconds for sizes that are not among them, and for a quick run.
LIMIT, QUICK = 60.0, 10.0
#: Clients of the game that is solved first, so that nothing is compiled while the clock runs.
WARM_UP = 50


def width_of(clients: int) -> int:
    """Return the number of features of a federation of this size."""
    return 64 if clients < 10_000 else 128


def game_of(clients: int, width: int) -> tuple[sf.StackelbergGame, float]:
    """The federation of a size, and the budget."""
    game = sampled(federation_of(clients, width)[0])
    return game, BUDGET * game.full_participation_price


@dataclass
class LocalSearch:
    """Augmented Lagrangian with L-BFGS-B in the participation, from several starts; gradients written out."""

    game: sf.StackelbergGame
    budget: float
    deadline: float

    def __post_init__(self) -> None:
        game = self.game
        rows = np.asarray(game.embeddings.features)[game.remaining]
        owned = np.asarray(game.embeddings.features, dtype=rows.dtype)
        every = np.asarray(game.all_sizes)
        self.alpha, self.costs = np.asarray(game.alpha), np.asarray(game.costs)
        self.rows, self.lam = rows, game.lambda_q * game.loss_constant
        self.thin = game.sampling_constant / (game.loss_constant * float(game.sizes.sum()))
        self.targets = [
            (game.lambda_v, self.alpha @ rows),
            (game.lambda_s, every @ owned / every.sum()),
        ]
        self.square = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        self.unit = game.equilibrium().server_loss

    def parts(self, x: np.ndarray) -> tuple[float, float, float, dict[str, Any]]:
        """Loss, spend and total of a plan, and what their gradients need."""
        y = self.alpha * x
        total = float(y.sum())
        z = y / total
        m = z @ self.rows
        d2 = np.maximum(self.square - 2.0 * (self.rows @ m) + float(m @ m), 0.0)
        weight = self.game.loss_constant
        loss = sum(weight * w * (float((m - t) @ (m - t)) + self.thin / total) for w, t in self.targets)
        slope = d2 + 0.5 * self.thin / total
        price = self.costs - 2.0 * self.lam * self.alpha * slope / total
        spend = float(np.maximum(price, 0.0) @ x)
        return loss, spend, total, {"z": z, "m": m, "slope": slope, "price": price}

    def gradients(self, x: np.ndarray, total: float, known: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Of loss and spend in x."""
        m, slope, paid = known["m"], known["slope"], known["price"] > 0.0
        weight = self.game.loss_constant
        toward = sum(2.0 * weight * w * (m - t) for w, t in self.targets)
        thin = sum(weight * w for w, _ in self.targets) * self.thin / total**2
        share = self.alpha / total
        of_loss = share * (self.rows @ toward - float(m @ toward)) - self.alpha * thin
        # spend = sum_paid c x - 2 lam sum_paid z (d^2 + a / 2S): through x itself, through m, through S
        weights = np.where(paid, known["z"], 0.0)
        pull = 2.0 * (float(weights.sum()) * m - weights @ self.rows)
        each = np.where(paid, slope, 0.0) + self.rows @ pull - float(m @ pull)
        common = float(weights @ slope) + float(weights.sum()) * 0.5 * self.thin / total
        of_spend = np.where(paid, self.costs, 0.0) - 2.0 * self.lam * share * (each - common)
        return of_loss, of_spend

    def from_start(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The best plan within budget and floor on the way from one start."""
        best, kept = np.inf, x
        multipliers, penalty = np.zeros(2), 10.0

        def lagrangian(x: np.ndarray) -> tuple[float, np.ndarray]:
            x = np.maximum(x, 1e-12)
            loss, spend, total, known = self.parts(x)
            of_loss, of_spend = self.gradients(x, total, known)
            broken = np.array([spend / self.budget - 1.0, 1.0 - total / FLOOR])
            slopes = [of_spend / self.budget, -self.alpha / FLOOR]
            pushed = np.maximum(multipliers + penalty * broken, 0.0)
            value = loss / self.unit + float((pushed**2 - multipliers**2).sum()) / (2.0 * penalty)
            return value, of_loss / self.unit + pushed[0] * slopes[0] + pushed[1] * slopes[1]

        for _ in range(12):
            if time.perf_counter() > self.deadline:
                break
            found = minimize(
                lagrangian, x, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(x), options={"maxiter": 150},
                callback=self._late,
            )  # fmt: skip
            x = np.asarray(found.x)
            loss, spend, total, _ = self.parts(np.maximum(x, 1e-12))
            broken = np.array([spend / self.budget - 1.0, 1.0 - total / FLOOR])
            multipliers = np.maximum(multipliers + penalty * broken, 0.0)
            if broken.max() > 1e-4:
                penalty *= 2.0
            for feasible in (x, self._cheaper(x)):
                if feasible is None:
                    continue
                loss, spend, total, _ = self.parts(feasible)
                if spend <= self.budget * (1 + 1e-9) and total >= FLOOR * (1 - 1e-9) and loss < best:
                    best, kept = loss, feasible
        return best, kept

    def _late(self, _: Any) -> None:
        if time.perf_counter() > self.deadline:
            raise StopIteration

    def _cheaper(self, x: np.ndarray) -> np.ndarray | None:
        """The plan scaled down until the budget pays for it."""
        low, high = 0.0, 1.0
        for _ in range(30):
            share = 0.5 * (low + high)
            fits = self.parts(np.maximum(share * x, 1e-12))[1] <= self.budget
            low, high = (share, high) if fits else (low, share)
        return np.maximum(low * x, 1e-12) if low > 0 else None

    def run(self) -> tuple[float, int]:
        """The best loss over all starts that there is time for, and how many there were."""
        rng = np.random.default_rng(0)
        n, best, runs = len(self.alpha), np.inf, 0
        starts = [self.game.equilibrium().participation, np.full(n, 0.2), np.ones(n)]
        for start in [*starts, *(rng.uniform(size=n) ** p for p in (1, 4, 1, 4, 9))]:
            if time.perf_counter() > self.deadline:
                break
            best = min(best, self.from_start(np.array(start, dtype=float))[0])
            runs += 1
        return best, runs


def capped(game: sf.StackelbergGame, budget: float, seconds: float) -> dict[str, Any]:
    """The plan, its guarantees, its bound, what it took, and whether it verifies."""
    began, cpu = time.perf_counter(), time.process_time()
    plan = game.solve(budget, offers="capped", min_total=FLOOR, gap=1e-3, time_limit=seconds, progress=False)
    row = {
        "loss": plan.server_loss,
        "bound": plan.lower_bound,
        "status": plan.status.name,
        "unique": plan.equilibrium.uniqueness.name,
        "most_of_budget": plan.offers.most / budget,
        "total": plan.equilibrium.total,
        "nodes": plan.nodes,
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
        "memory_gb": most_memory(),
        "game_gb": np.asarray(game.embeddings.features).nbytes / 1e9,
    }
    began = time.perf_counter()
    return row | {"verified": bool(plan.verify()), "verify_seconds": time.perf_counter() - began}


def linear(game: sf.StackelbergGame, budget: float, seconds: float) -> dict[str, Any]:
    """The best linear payments at the same objective, floor and budget."""
    try:
        found = game.solve(budget, min_total=FLOOR, gap=1e-3, time_limit=seconds, progress=False)
    except sf.StackfuError as error:
        return {"linear": None, "linear_status": type(error).__name__}
    return {
        "linear": found.server_loss,
        "linear_bound": found.lower_bound,
        "linear_status": found.status.name,
        "linear_seconds": found.seconds,
    }


def local(game: sf.StackelbergGame, budget: float, seconds: float) -> dict[str, Any]:
    """The local search, from as many starts as there is time for."""
    began, cpu = time.perf_counter(), time.process_time()
    best, runs = LocalSearch(game, budget, began + seconds).run()
    return {
        "local_search": best,
        "local_starts": runs,
        "local_seconds": time.perf_counter() - began,
        "local_cpu": time.process_time() - cpu,
    }


PARTS = {"capped": capped, "linear": linear, "local": local}


def measure(folder: Path, part: str, seconds: float) -> dict[str, Any]:
    """A part of a row, on the game of a folder; losses are parts of the unpaid one."""
    game, budget = game_of(WARM_UP, 64)
    game.solve(budget, offers="capped", min_total=FLOOR, gap=0.5, time_limit=2.0, progress=False)  # compile
    game = sampled(load(folder))
    unpaid = game.equilibrium().server_loss
    found = PARTS[part](game, BUDGET * game.full_participation_price, seconds)
    scaled = {k: v / unpaid if k in LOSSES and v is not None else v for k, v in found.items()}
    return scaled | {f"{part}_limit": seconds}


def main(given: Sequence[str] | None = None) -> None:
    """Measure the sizes that are named, every part in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("clients", nargs="*", type=int, help=f"default: {', '.join(map(str, SIZES))}")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part of the row; default: all")
    parser.add_argument("--quick", action="store_true", help="the smallest size, ten seconds for each part")
    parser.add_argument("--seconds", type=float, help="for each part; default: by size, 60 to 300")
    parser.add_argument("--out", type=Path, default=RESULTS / "offers_by_size.json")
    options = parser.parse_args(given)
    sizes = options.clients or ([min(SIZES)] if options.quick else list(SIZES))
    for clients in sizes:
        width = width_of(clients)
        seconds = options.seconds or (QUICK if options.quick else SIZES.get(clients, LIMIT))
        row: dict[str, Any] = {"clients": clients, "width": width, "machine": machine()}
        with tempfile.TemporaryDirectory() as folder:
            apart(make, Path(folder), clients, width)
            for part in options.only or PARTS:
                print(f"{clients} clients, {part}, {seconds:g} s ...", flush=True)
                found = apart(measure, Path(folder), part, seconds)
                print("  " + ", ".join(f"{name} {value}" for name, value in found.items()), flush=True)
                keep(options.out, row | found, ["clients"])


if __name__ == "__main__":
    main()
