"""V, S and Q of every way to unlearn, compared with Retrain's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stackfu_integration.lab.cells import CONVEX, HEAD, RETRAIN, SCRATCH, Approach, CellKey, PlanKey
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.tables.rows import compared
from stackfu_integration.lab.report.tables.table import Cell, Table, by_group, spread

__all__ = ["accuracy_table", "convex_table", "loss_table", "scratch_table"]


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
