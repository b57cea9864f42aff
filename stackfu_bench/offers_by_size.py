"""Capped plans at every size, beside the best linear payments and beside a local search that shares no code with them.

    python -m stackfu_bench.offers_by_size 50 200 1000 10000 --seconds 60 --out stackfu_bench/results/offers_by_size.json

One federation per size (:func:`stackfu_bench.benchmarks.leader.federation_of`) with a sampling constant, a floor on total
participation and a budget of 5 % of the price of full participation. What is measured is added to the row of its size in the file.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

import stackfu as sf
from stackfu_bench.benchmarks.leader import federation_of

#: Figures that are losses.
LOSSES = ("loss", "bound", "linear", "linear_bound", "local_search")
#: Part of the full price that may be spent, and of the data that must take part.
BUDGET, FLOOR = 0.05, 0.1
#: Sampling constant, in units of the clients' spread and of the number of samples.
SAMPLING = 0.002


def game_of(clients: int) -> tuple[sf.StackelbergGame, float]:
    """The federation of a size, and the budget."""
    game, _ = federation_of(clients, 64 if clients < 10_000 else 128)
    sampled = game.replace(sampling_constant=SAMPLING * game.geometry.scale * float(game.sizes.sum()))
    return sampled, BUDGET * sampled.full_participation_price


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
        "memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "features_gb": np.asarray(game.embeddings.features).nbytes / 2**30,
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


def main() -> None:
    """Measure the sizes that are named; losses are parts of the unpaid one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="+", type=int)
    parser.add_argument("--only", choices=PARTS, action="append", help="a part of the row; default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each part")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    game, budget = game_of(50)
    game.solve(budget, offers="capped", min_total=FLOOR, gap=0.5, time_limit=2.0, progress=False)  # compile
    for clients in options.clients:
        game, budget = game_of(clients)
        unpaid = game.equilibrium().server_loss
        row: dict[str, Any] = {"clients": clients}
        for name in options.only or PARTS:
            found = PARTS[name](game, budget, options.seconds) | {f"{name}_limit": options.seconds}
            row |= {k: v / unpaid if k in LOSSES and v is not None else v for k, v in found.items()}
        print(json.dumps(row, indent=1), flush=True)
        if options.out is not None:
            keep(options.out, row)


def keep(path: Path, row: dict[str, Any]) -> None:
    """Add what was measured to the row of its size."""
    rows = {r["clients"]: r for r in (json.loads(path.read_text()) if path.exists() else [])}
    rows[row["clients"]] = rows.get(row["clients"], {}) | row
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps([rows[n] for n in sorted(rows)], indent=1) + "\n")
    partial.replace(path)


if __name__ == "__main__":
    main()
