"""Costs: a method's work and clients, and the game's share of the wall clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stackfu_integration.lab.cells import ORIGINAL, RETRAIN, CellKey
from stackfu_integration.lab.mechanisms import CERTIFIED, FULL, MECHANISMS, PAPER_VIEW
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.tables.rows import every_way
from stackfu_integration.lab.report.tables.table import Cell, Table, by_preset, spread

__all__ = ["clock_table", "cost_table", "game_cpu_seconds", "game_seconds", "game_share", "wall_clock"]


_COOPERATION = {
    "FedOSD": "train every round of unlearning",
    "MoDe": "train every round",
    "projected ascent": "undo their training",
    "inspired by QuickDrop": "distilled while training",
    "shards": "none; trained in shards",
}


def cost_table(results: Sequence[RunResult]) -> Table:
    """Table 2 of the paper: what unlearning costs, relative to Retrain, averaged over beta and seeds."""
    rows = []
    for preset, runs in by_preset(results):
        for label, cell in every_way(runs[0]).items():
            present = [run for run in runs if cell in run.cells]
            if not present:
                continue
            costs = [run.cells[cell]["cost"] for run in present]
            reference = [run.cells[RETRAIN]["cost"] for run in present]
            game = [game_seconds(run, cell) for run in present]
            wall = [(c["seconds"] + g) / r["seconds"] for c, g, r in zip(costs, game, reference, strict=True)]
            spend = [run.plan_of(cell)["spend"] for run in present if "offer" in run.cells[cell]]
            rows.append(
                (
                    preset,
                    label,
                    float(np.mean([c["seconds"] + g for c, g in zip(costs, game, strict=True)])),
                    spread(wall, 2),
                    float(np.mean([c["client_seconds"] for c in costs])),
                    float(
                        np.mean([c["samples"] / r["samples"] for c, r in zip(costs, reference, strict=True)])
                    ),
                    float(np.mean([(c["bytes_down"] + c["bytes_up"]) / 1e6 for c in costs])),
                    float(np.mean([c["stored_bytes"] / 1e6 for c in costs])),
                    float(np.mean(spend)) if spend else None,
                    _COOPERATION.get(label, "none"),
                )
            )
    return Table(
        "What unlearning costs.",
        (
            "preset",
            "method",
            "seconds",
            "wall clock / Retrain",
            "client seconds",
            "sample gradients / Retrain",
            "traffic (MB)",
            "stored history (MB)",
            "payments",
            "help of removed clients",
        ),
        tuple(rows),
        "Means over all β and seeds; seconds of a mechanism include embedding and solving its game.",
    )


def game_seconds(run: RunResult, cell: CellKey) -> float:
    """Seconds that the game of a cell's payments took: embedding and solver; nothing where no game was played."""
    if cell.plan is None or cell.plan.mechanism == FULL:
        return 0.0
    view = MECHANISMS[cell.plan.mechanism].view or PAPER_VIEW
    seen = run.game.get("views", {}).get(view, run.game)  # earlier runs played in the paper's view alone
    return float(seen["embedding_seconds"] + run.plan_of(cell)["seconds"])


def game_cpu_seconds(run: RunResult, cell: CellKey) -> float | None:
    """Return the same in processor seconds, which other work on the machine does not stretch; earlier runs did not count them."""
    if cell.plan is None or cell.plan.mechanism == FULL:
        return 0.0
    view = MECHANISMS[cell.plan.mechanism].view or PAPER_VIEW
    seen, plan = run.game.get("views", {}).get(view, run.game), run.plan_of(cell)
    if "embedding_cpu_seconds" not in seen or "cpu_seconds" not in plan:
        return None
    return float(seen["embedding_cpu_seconds"] + plan["cpu_seconds"])


_STAGES = ("extraction", "training", "unlearning", "measuring", "embedding", "certified", "baselines")


_GAME = ("embedding", "certified")


def clock_table(results: Sequence[RunResult]) -> Table:
    """Return the game's share of the wall clock."""
    rows: list[tuple[Cell, ...]] = []
    for preset, runs in by_preset(results):
        clocks = [wall_clock(run) for run in runs]
        means = [float(np.mean([clock[stage] for clock in clocks])) for stage in _STAGES]
        shares = [
            100 * float(np.mean([game_share(clock, cached=cached) for clock in clocks]))
            for cached in (False, True)
        ]
        rows.append((preset, *means, *shares))
    return Table(
        "Where the time goes.",
        (
            "preset",
            "extraction (s)",
            "training (s)",
            "unlearning (s)",
            "measuring (s)",
            "embedding (s)",
            "certified solves (s)",
            "HAIPO and uniform (s)",
            "the game (%)",
            "the game, features cached (%)",
        ),
        tuple(rows),
        "Means per run over all methods, mechanisms and budgets. The game is the embedding and six certified "
        "solves. A federation extracts its features once; the runs of a preset share them, and the last column "
        "is the share in a run that found them on disk.",
    )


def game_share(clock: dict[str, float], *, cached: bool = False) -> float:
    """Return the game's part of a run's seconds, with or without the extraction of features."""
    total = sum(clock.values()) - (clock["extraction"] if cached else 0.0)
    return sum(clock[stage] for stage in _GAME) / total


def wall_clock(run: RunResult) -> dict[str, float]:
    """Seconds of a run by stage; ``certified`` and ``baselines`` are the solvers of the game.

    ``extraction`` is what the features cost when they were computed, also if this run found them on disk.
    """
    cells, plans = run.cells.values(), run.game["offers"].values()
    certified = sum(plan["seconds"] for plan in plans if MECHANISMS[plan["mechanism"]].method == CERTIFIED)
    unlearned = [cell for key, cell in run.cells.items() if "cost" in cell and key != ORIGINAL]
    return {
        "extraction": run.run.get("extraction_seconds", 0.0),
        "training": run.cells[ORIGINAL]["cost"]["seconds"]
        + sum(cell.get("training_seconds", 0.0) for cell in cells),
        "unlearning": sum(cell["cost"]["seconds"] for cell in unlearned)
        + sum(cell.get("unlearning_seconds", 0.0) for cell in cells),
        "measuring": sum(cell.get("measuring_seconds", 0.0) for cell in cells),
        "embedding": run.game["embedding_seconds"],
        "certified": certified,
        "baselines": run.game["solver_seconds"] - certified,
    }
