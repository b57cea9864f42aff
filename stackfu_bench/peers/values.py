"""Shapley values of clients: stackfu compared with pyDVL, which does not use the structure of the server's loss.

pyDVL gets what favours it: one process, no cache to fill, and a utility that evaluates the loss of a coalition from a few sums,
without a game around it.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

import stackfu as sf
from stackfu.values.coalitions import coalition_loss
from stackfu_bench.peers.table import Row, interleaved

REPEATS = 5
#: Largest difference between both, relative to the value of all clients.
AGREE = 1e-9


def game_of(clients: int) -> sf.StackelbergGame:
    rng = np.random.default_rng(clients)
    emb = sf.MeanEmbeddings.from_features(rng.uniform(-0.5, 0.5, size=(clients, 16)))
    return sf.StackelbergGame(
        emb, rng.uniform(1.0, 5.0, clients), costs=np.ones(clients), sampling_constant=0.1
    )


def pydvl_of(game: sf.StackelbergGame, empty: float, sampler: str, updates: int | None = None):
    """A function that values all clients with pyDVL, from all coalitions or from random orders."""
    from pydvl.valuation import ShapleyValuation, samplers, stopping
    from pydvl.valuation.dataset import Dataset
    from pydvl.valuation.utility.base import UtilityBase

    loss, _ = coalition_loss(game, np.ones(game.count))

    class Fall(UtilityBase):
        """Fall of the server's loss."""

        def __call__(self, sample) -> float:
            members = np.zeros(game.count, dtype=bool)
            if sample is not None:
                members[np.asarray(sample.subset, dtype=int)] = True
            return empty - loss.of_members(members) if members.any() else 0.0

    data = Dataset(np.zeros((game.count, 1)), np.zeros(game.count))

    def run() -> np.ndarray:
        if sampler == "all":
            chosen, until = samplers.DeterministicUniformSampler(batch_size=1), stopping.NoStopping()
        else:
            chosen, until = samplers.PermutationSampler(seed=0), stopping.MinUpdates(updates)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            valuation = ShapleyValuation(Fall(), sampler=chosen, is_done=until, progress=False)
            return np.array(valuation.fit(data).result.values)

    return run


def exact(clients: int, repeats: int) -> Row:
    """All coalitions."""
    game = game_of(clients)
    found = game.values()
    theirs = pydvl_of(game, found.empty, "all")
    if repeats:
        best = interleaved({"stackfu": game.values, "pydvl": theirs}, repeats)
        ours, seconds = best["stackfu"], best["pydvl"]
        values = theirs()
    else:
        ours = interleaved({"stackfu": game.values}, REPEATS)["stackfu"]
        start = time.perf_counter()
        values = theirs()
        seconds = time.perf_counter() - start
    off = float(np.abs(values - found.shapley).max() / found.whole)
    return Row(
        f"exact Shapley values of {clients} clients", "pyDVL", ours, seconds,
        note=f"{2**clients} coalitions; values agree to {off:.0e} of the whole" if off < AGREE else f"apart by {off:.1e}",
        extra={"disagreement": off},
    )  # fmt: skip


def sampled(clients: int, orders: int) -> Row:
    """Root mean square error of estimates from the same number of random orders, against exact values."""
    game = game_of(clients)
    found = game.values()
    away = []
    for seed in range(5):
        estimate = game.values(orders=max(orders // 2, 1), seed=seed)
        away.append(estimate.shapley - found.shapley)
    values = pydvl_of(game, found.empty, "orders", orders)()
    ours = float(np.sqrt(np.mean(np.square(away)))) / found.whole
    theirs = float(np.sqrt(np.mean((values - found.shapley) ** 2))) / found.whole
    return Row(
        f"error of Shapley values of {clients} clients from {orders} random orders", "pyDVL, permutations", ours, theirs,
        unit="of the whole", note="stackfu states intervals that hold together with 95%, pyDVL a standard error",
    )  # fmt: skip


def run(quick: bool) -> list[Row]:
    rows = [exact(8, REPEATS), exact(10, 1 if quick else 2)]
    if not quick:
        rows.append(exact(15, 0))
    rows.append(sampled(10 if quick else 16, 100))
    return rows
