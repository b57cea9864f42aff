"""Regimes in which designed payments matter: costs, budgets, heterogeneity, numbers of clients; in the game, then trained.

A *regime* fixes how much participation costs (``cost_scale``, the cost of all data in units of loss), how much unit costs differ
(``cost_spread``, the sigma of their lognormal factor), the budget as a part of the price of full participation, Dirichlet's beta,
and how many clients there are and leave. In every regime the capped offers of the calibrated labels game are compared with every
simple rule: predicted by the game alone, then with a training each. Where all clients take part unpaid there is nothing to buy,
and the regime is marked as such.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stackfu.errors import ConvergenceError, InfeasibleError, NoEquilibriumError
from stackfu.game import StackelbergGame
from stackfu_integration.lab.mechanisms import (
    BLIND,
    CAPPED_LABELS,
    FULL,
    SHAPLEY,
    UNPAID,
)
from stackfu_integration.lab.payments import plan_payments
from stackfu_integration.lab.runs.rounding import rounded
from stackfu_integration.lab.runs.source import Source
from stackfu_integration.lab.studies.bench import Bench, one_thread
from stackfu_integration.storage import write_json

__all__ = ["CENTRE", "PLAYED", "Regime", "Regimes", "grid"]

#: Mechanisms of the map: the designed one, every rule, and the two ends.
PLAYED = (CAPPED_LABELS, *BLIND, SHAPLEY, UNPAID, FULL)
_COSTS = 4000  # seed stream


@dataclass(frozen=True)
class Regime:
    """One setting of the map."""

    cost_scale: float = 10.0
    cost_spread: float = 0.0
    budget: float = 0.5
    beta: float = 0.5
    clients: int = 10
    removed: int = 3
    half: int | None = None

    @property
    def federation(self) -> tuple[float, int, int, int | None]:
        """Parameters of the federation; the others are the game's."""
        return self.beta, self.clients, self.removed, self.half


#: Around which one thing at a time is changed.
CENTRE = Regime(cost_spread=1.0, budget=0.25, beta=0.2)


def grid(
    scales: Sequence[float],
    spreads: Sequence[float],
    budgets: Sequence[float],
    betas: Sequence[float],
    sizes: Sequence[tuple[int, int]] = (),
    halves: Sequence[int] = (),
) -> Iterator[Regime]:
    """Every combination of costs, budgets and betas; then other numbers of clients and other data around the centre.

    >>> len(list(grid([1.0, 10.0], [0.0, 1.0], [0.25], [0.2, 0.8], [(20, 3)], [0, 1])))
    11
    """
    for beta in betas:
        for scale in scales:
            for spread in spreads:
                for budget in budgets:
                    yield Regime(scale, spread, budget, beta)
    for clients, removed in sizes:
        yield Regime(CENTRE.cost_scale, CENTRE.cost_spread, CENTRE.budget, CENTRE.beta, clients, removed)
    for half in halves:
        yield Regime(CENTRE.cost_scale, CENTRE.cost_spread, CENTRE.budget, CENTRE.beta, half=half)


@dataclass
class Regimes:
    """The map of one preset: a file per federation, each written once."""

    source: Source
    folder: Path
    regimes: tuple[Regime, ...]
    seeds: tuple[int, ...]

    def tasks(self) -> Iterator[tuple[tuple[float, int, int, int | None], int]]:
        """Federations and seeds, seed by seed."""
        for seed in self.seeds:
            for federation in dict.fromkeys(regime.federation for regime in self.regimes):
                yield federation, seed

    def path(self, federation: tuple[float, int, int, int | None], seed: int) -> Path:
        """File of a federation."""
        beta, clients, removed, half = federation
        part = "" if half is None else f"-half{half}"
        return self.folder / f"{self.source.preset.name}-b{beta:g}-n{clients}-r{removed}{part}-s{seed}.json"

    def run(self, federation: tuple[float, int, int, int | None], seed: int) -> bool:
        """Compute all regimes of a federation; False if the file is there."""
        path = self.path(federation, seed)
        if path.is_file():
            return False
        beta, clients, removed, half = federation
        bench = Bench(self.source, beta, seed, clients, tuple(range(removed)), half)
        known: dict[tuple[float, ...], dict[str, float]] = {}
        found = [
            self._played(bench, regime, known) for regime in self.regimes if regime.federation == federation
        ]
        about = {
            "preset": self.source.preset.name,
            "seed": seed,
            "loss_constant": bench.calibration.loss_constant,
            "sampling_constant": bench.calibration.sampling_constant,
            "sizes": bench.federation.sizes.tolist(),
        }
        write_json(path, rounded({**about, "regimes": found}))
        return True

    def _played(
        self, bench: Bench, regime: Regime, known: dict[tuple[float, ...], dict[str, float]]
    ) -> dict[str, Any]:
        rng = np.random.default_rng([bench.seed, _COSTS])
        game = bench.game(regime.cost_scale)
        game = game.replace(costs=game.costs * rng.lognormal(sigma=regime.cost_spread, size=game.count))
        price = float(game.full_participation_price)
        if price <= 0.0:
            return {"regime": asdict(regime), "full_price": 0.0, "played": {}}
        budget = regime.budget * price
        played: dict[str, Any] = {}
        for name in PLAYED:
            try:
                plan = plan_payments(game, name, budget)
            except (InfeasibleError, ConvergenceError, NoEquilibriumError) as error:
                played[name] = {"without_answer": str(error)}
                continue
            x = np.asarray(plan.participation)
            key = tuple(np.round(x, 9).tolist())
            if key not in known:
                known[key] = self._trained(bench, game, x)
            played[name] = {
                "predicted": predicted(game, x),
                "spend": plan.spend / budget,
                "used": float(game.alpha @ x),
                **known[key],
            }
        return {"regime": asdict(regime), "full_price": price, "played": played}

    @staticmethod
    def _trained(bench: Bench, game: StackelbergGame, x: np.ndarray[Any, Any]) -> dict[str, float]:
        shares = {int(k): float(share) for k, share in zip(game.remaining, x, strict=True)}
        try:
            return bench.effects(bench.train(shares))
        except ConvergenceError:
            return {"diverged": 1.0}

    def collect(self, out: Path) -> Path:
        """Write all federations as one file."""
        files = [self.path(federation, seed) for federation, seed in self.tasks()]
        stored = [json.loads(path.read_text()) for path in files if path.is_file()]
        return write_json(out / f"regimes-{self.source.preset.name}.json", {"federations": stored})

    def complete(self, finished: Callable[[str], None], out_of_time: Callable[[], bool]) -> bool:
        """Run what is missing until the time is over; True when nothing is left."""
        for federation, seed in self.tasks():
            if self.path(federation, seed).is_file():
                continue
            if out_of_time():
                return False
            with one_thread():
                self.run(federation, seed)
            finished(self.path(federation, seed).stem)
        return True


def predicted(game: StackelbergGame, x: np.ndarray[Any, Any]) -> float:
    """Return the part of V + S that the game predicts from the participation; constants of the federation are left out."""
    return float(game.loss_of(game.profile(x)))
