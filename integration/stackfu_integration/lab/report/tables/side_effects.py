"""V, S and Q of every way to unlearn, beside Retrain's; and whether one row has everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stackfu_integration.lab.cells import CONVEX, HEAD, RETRAIN, SCRATCH, Approach, CellKey, PlanKey
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.tables.rows import compared, every_way
from stackfu_integration.lab.report.tables.seconds import game_seconds
from stackfu_integration.lab.report.tables.table import Cell, Table, by_group, by_preset, spread

__all__ = ["accuracy_table", "convex_table", "loss_table", "scratch_table", "target_table"]


def accuracy_table(results: Sequence[RunResult], approach: Approach = HEAD) -> Table:
    """Table 1 of the paper: V, S and Q in accuracy."""
    quantities = {
        "V (%)": ("v_accuracy", 2, 100.0),
        "S (%)": ("s_accuracy", 2, 100.0),
        "Q, worst client (%)": ("q_accuracy_worst", 2, 100.0),
    }
    return Table(
        "V, S and Q in accuracy.",
        ("preset", "β", "method", *quantities),
        tuple(_compare(results, quantities, approach)),
        "Retrain: absolute; others: difference from Retrain. Larger is better. Mean ± 95% interval over "
        "seeds.",
    )


def scratch_table(results: Sequence[RunResult]) -> Table:
    """Table 1 with retraining from scratch in place of head fine-tuning, for the runs that have it."""
    full = CellKey(SCRATCH, PlanKey.full())
    return accuracy_table([run for run in results if full in run.cells], SCRATCH)


def convex_table(results: Sequence[RunResult]) -> Table:
    """Table 1 with convex heads in place of head fine-tuning, for the runs that have them."""
    full = CellKey(CONVEX, PlanKey.full())
    return accuracy_table([run for run in results if full in run.cells], CONVEX)


def loss_table(results: Sequence[RunResult], approach: Approach = HEAD) -> Table:
    """V, S and Q in loss."""
    quantities = {
        "V": ("v_loss", 3, 1.0),
        "S": ("s_loss", 3, 1.0),
        "Q, worst client": ("q_loss_worst", 3, 1.0),
    }
    return Table(
        "V, S and Q in loss.",
        ("preset", "β", "method", *quantities),
        tuple(_compare(results, quantities, approach)),
        "Retrain: absolute (its V is 0); others: difference from Retrain. Smaller is better.",
    )


def _compare(
    results: Sequence[RunResult], quantities: dict[str, tuple[str, int, float]], approach: Approach
) -> list[Any]:
    """Rows preset, beta, method and, per quantity, Retrain's value or the difference from it."""
    rows = []
    for (preset, beta), runs in by_group(results).items():
        for label, cell in compared(runs[0], approach).items():
            present = [run for run in runs if cell in run.cells]
            failed = sum(cell in run.diverged for run in runs)
            shown = f"{label} ({failed} of {len(runs)} diverged)" if failed else label
            row: list[Cell] = [preset, f"{beta:g}", shown]
            if not present:
                if failed:
                    rows.append((*row, *["–"] * len(quantities)))
                continue
            for key, digits, scale in quantities.values():
                values = [run.cells[cell][key] for run in present]
                if cell == RETRAIN:
                    row.append(spread(values, digits, scale=scale))
                else:
                    reference = [run.cells[RETRAIN][key] for run in present]
                    differences = [v - r for v, r in zip(values, reference, strict=True)]
                    row.append(spread(differences, digits, sign=True, scale=scale))
            rows.append(tuple(row))
    return rows


def target_table(results: Sequence[RunResult]) -> Table:
    """Every mechanism on every way to unlearn against Retrain, run by run: can one row have everything?"""
    rows = []
    for preset, runs in by_preset(results):
        for label, cell in every_way(runs[0]).items():
            present = [run for run in runs if cell in run.cells and RETRAIN in run.cells]
            if cell == RETRAIN or not present:
                continue
            pairs = [(run.cells[cell], run.cells[RETRAIN]) for run in present]
            infected = [
                100
                * (
                    run.cells[cell.with_backdoor()]["backdoor_success"]
                    - run.cells[RETRAIN.with_backdoor()]["backdoor_success"]
                )
                for run in present
                if {cell.with_backdoor(), RETRAIN.with_backdoor()} <= run.cells.keys()
            ]
            value = [100 * (a["v_accuracy"] - b["v_accuracy"]) for a, b in pairs]
            stable = [a["s_loss"] < b["s_loss"] for a, b in pairs]
            worst = [a["q_loss_worst"] < b["q_loss_worst"] for a, b in pairs]
            gradients = [a["cost"]["samples"] / b["cost"]["samples"] for a, b in pairs]
            worked = [
                a["cost"]["cpu_seconds"] / b["cost"]["cpu_seconds"]
                for a, b in pairs
                if "cpu_seconds" in b["cost"]  # earlier runs did not count it
            ]
            clock = [
                (a["cost"]["seconds"] + game_seconds(run, cell)) / b["cost"]["seconds"]
                for run, (a, b) in zip(present, pairs, strict=True)
            ]
            spend = [
                run.plan_of(cell)["spend"] / run.game["full_price"]
                for run in present
                if "offer" in run.cells[cell]
            ]
            met = (
                np.mean(stable) >= 0.8 and np.mean(worst) >= 0.8,
                np.mean(value) >= -1.0,
                np.mean(gradients) <= 0.61,
                np.mean(clock) <= 0.61,
                bool(infected) and np.mean(infected) <= 1.0,
            )
            rows.append(
                (
                    preset,
                    label,
                    f"{sum(stable)} of {len(stable)}",
                    f"{sum(worst)} of {len(worst)}",
                    spread([a["s_loss"] - b["s_loss"] for a, b in pairs], 3, sign=True),
                    spread([a["q_loss_worst"] - b["q_loss_worst"] for a, b in pairs], 3, sign=True),
                    spread(value, 1, sign=True),
                    spread(gradients, 2),
                    spread(worked, 2),
                    spread(clock, 2),
                    spread(infected, 1, sign=True),
                    spread(spend, 2),
                    " ".join(
                        name
                        for name, there in zip(("SQ", "V", "cost", "time", "forgets"), met, strict=True)
                        if there
                    )
                    or "–",
                )
            )
    return Table(
        "Side effects, value, cost and forgetting in one row.",
        (
            "preset",
            "method",
            "S better",
            "worst Q better",
            "difference in S",
            "difference in worst Q",
            "difference in V (points)",
            "sample gradients / Retrain",
            "CPU / Retrain",
            "wall clock / Retrain",
            "backdoor (points)",
            "spend / full price",
            "reached",
        ),
        tuple(rows),
        "Paired with Retrain over all β and seeds; S and Q in loss, smaller is better; CPU is that of unlearning, "
        "wall clock includes the game. SQ: both better in 80% of the runs. V: not more than a point lower. cost: at most 61% of "
        "Retrain's gradients. time: at most 61% of its wall clock. forgets: backdoor at most a point above Retrain's.",
    )
