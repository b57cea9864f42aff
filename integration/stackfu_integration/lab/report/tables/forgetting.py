"""Is it forgotten: what attacks find, and what convex heads prove."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stackfu_integration.lab.cells import (
    COLD,
    CONVEX,
    ORIGINAL,
    PRIVATE,
    QUICKDROP,
    RETRAIN,
    WARM,
    CellKey,
    PlanKey,
)
from stackfu_integration.lab.intervals import rate_interval
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.tables.rows import every_way
from stackfu_integration.lab.report.tables.table import Table, by_group, spread

__all__ = ["certificate_table", "copy_table", "forgetting_table"]


def forgetting_table(results: Sequence[RunResult]) -> Table:
    """Guarantee, planted backdoors and canaries, membership attack with its power, distance to Retrain."""
    rows = []
    for (preset, beta), runs in by_group(results).items():
        for label, cell in {"before unlearning": ORIGINAL, **every_way(runs[0])}.items():
            present = [run for run in runs if cell in run.cells]
            if not present:
                continue
            infected = cell.with_backdoor()
            planted = [run for run in present if infected in run.cells]
            backdoor = [run.cells[infected] for run in planted]
            canaries = [item["canaries"]["auc"] for item in backdoor if "canaries" in item]
            excess = [value for run in planted if (value := _excess(run, cell)) is not None]
            again = [item["relearning"] for item in backdoor if "relearning" in item]
            distance = [run.cells[cell]["distance"] for run in present if "distance" in run.cells[cell]]
            rows.append(
                (
                    preset,
                    f"{beta:g}",
                    label,
                    present[0].cells[cell].get("guarantee", "–"),
                    spread([item["backdoor_success"] for item in backdoor], 1, scale=100),
                    spread(excess, 1, sign=True, scale=100),
                    spread(canaries, 2),
                    _attack_text(present, cell),
                    _rounds(again),
                    spread([run.cells[cell]["agreement"] for run in present], 1, scale=100),
                    spread(distance, 3),
                )
            )
    return Table(
        "Is it forgotten?",
        (
            "preset",
            "β",
            "method",
            "guarantee",
            "backdoor success (%)",
            "worst client's excess (points)",
            "canary AUC",
            "members found at 1% false accusations (%)",
            "rounds to relearn",
            "agreement with Retrain (%)",
            "distance to Retrain",
        ),
        tuple(rows),
        "Compare every column with Retrain's, and the last two with those of another Retrain. Excess: over the model "
        "that never saw the data and was trained in the same way; an exact method is that model. A canary AUC of 0.5 "
        "is no memory. Members found: pooled over seeds with its 95% interval; an attack without members found before "
        "unlearning has no power. Rounds: median until the backdoor is back. Others: mean ± 95% interval over seeds.",
    )


def _pooled(counts: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Counts of an attack, summed over runs."""
    return {key: sum(int(c[key]) for c in counts) for key in ("members", "found", "strangers", "accused")}


def _sees(counts: dict[str, int]) -> bool:
    """Return True if members are found more often than non-members are accused, beyond chance (95%)."""
    low, _ = rate_interval(counts["found"], counts["members"])
    _, high = rate_interval(counts["accused"], counts["strangers"])
    return low > high


def _attack_text(runs: Sequence[RunResult], cell: CellKey) -> str:
    """Return true positives at 1% false positives, pooled over seeds, or a note if the attack has no power before unlearning."""
    before = [run.cells[ORIGINAL].get("attack") for run in runs if ORIGINAL in run.cells]
    mine = [run.cells[cell].get("attack") for run in runs]
    if not mine or None in mine or None in before:
        return "–"
    if not _sees(_pooled([c for c in before if c])):
        return "cannot tell"
    pooled = _pooled([c for c in mine if c])
    low, high = rate_interval(pooled["found"], pooled["members"])
    return f"{100 * pooled['found'] / pooled['members']:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def _never(run: RunResult, cell: CellKey) -> CellKey:
    """Return the model that never saw the removed data by the same kind of training; an exact method's is its own."""
    if run.cells[cell].get("guarantee") == "exact":
        return cell
    return COLD if cell in (WARM, PRIVATE) and COLD.with_backdoor() in run.cells else RETRAIN


def _excess(run: RunResult, cell: CellKey) -> float | None:
    """Largest excess of a removed client's backdoor over that of the model that never saw it."""
    mine = run.cells[cell.with_backdoor()].get("backdoor_clients")
    theirs = run.cells[_never(run, cell).with_backdoor()].get("backdoor_clients")
    if mine is None or theirs is None:
        return None
    return float(max(a - b for a, b in zip(mine, theirs, strict=True)))


def _rounds(values: Sequence[int | None]) -> str:
    """Median; runs that did not get there within the limit count as later than all others."""
    if not values:
        return "–"
    middle = sorted(math.inf if v is None else v for v in values)[len(values) // 2]
    reached = [v for v in values if v is not None]
    return f"{middle:g}" if math.isfinite(middle) else f"> {max(reached)}" if reached else "not reached"


def certificate_table(results: Sequence[RunResult]) -> Table:
    """Return proofs and costs of convex heads with full participation."""
    rows = []
    starts = {
        "zero, a quarter of the passes": CellKey(CONVEX, PlanKey.full()),
        "zero, to the optimum": COLD,
        "the trained head, to the optimum": WARM,
        "the same with noise": PRIVATE,
    }
    for (preset, beta), runs in by_group(results).items():
        for label, cell in starts.items():
            present = [run for run in runs if cell in run.cells]
            if not present:
                continue
            proofs = [run.cells[cell]["certificate"] for run in present]
            costs = [run.cells[cell]["cost"] for run in present]
            retrain = [run.cells[RETRAIN]["cost"] for run in present]
            prices = [run.cells[cell]["validation"].get("price") for run in present]
            rows.append(
                (
                    preset,
                    f"{beta:g}",
                    label,
                    present[0].cells[cell]["guarantee"],
                    " ".join(f"{value:g}" for value in sorted({proof["l2"] for proof in proofs})),
                    spread([price for price in prices if price is not None], 1, scale=100),
                    float(np.mean([cost["rounds"] for cost in costs])),
                    spread([c["samples"] / r["samples"] for c, r in zip(costs, retrain, strict=True)], 2),
                    spread(
                        [c["cpu_seconds"] / r["cpu_seconds"] for c, r in zip(costs, retrain, strict=True)], 2
                    ),
                    float(np.max([proof["distance"] for proof in proofs])),
                    float(np.max([proof["score_gap"] for proof in proofs])),
                    float(100 * np.mean([proof["sure"] for proof in proofs])),
                )
            )
    return Table(
        "What convex heads prove.",
        (
            "preset",
            "β",
            "start",
            "guarantee",
            "l2",
            "price of l2 (points)",
            "passes",
            "sample gradients / Retrain",
            "CPU / Retrain",
            "distance at most",
            "class scores within",
            "predictions proven equal (%)",
        ),
        tuple(rows),
        "Distance of the weights to the optimum on the remaining data, which never saw the removed ones, and of the "
        "class scores, largest over seeds. From zero nothing needs to be proven. The "
        "price of l2 is accuracy on held-out samples, chosen weight against the best of the grid.",
    )


def copy_table(results: Sequence[RunResult]) -> Table:
    """Return the distance of QuickDrop's synthetic sets from the removed clients' data."""
    rows = []
    for (preset, beta), runs in by_group(results).items():
        found = [
            run.cells[QUICKDROP]["closeness"]
            for run in runs
            if QUICKDROP in run.cells and "closeness" in run.cells[QUICKDROP]
        ]
        if found:
            rows.append(
                (
                    preset,
                    f"{beta:g}",
                    spread([item["moved"] for item in found], 2),
                    spread([item["recognised"] for item in found], 0, scale=100),
                    len(found),
                )
            )
    return Table(
        "What the synthetic sets inspired by QuickDrop keep of the removed clients.",
        (
            "preset",
            "β",
            "moved (neighbour distances)",
            "nearest real sample is their origin (%)",
            "federations",
        ),
        tuple(rows),
        "Synthetic samples of the removed clients after training: median way from the real sample that each began as, in units of "
        "the median distance between neighbouring real samples; and how many are still nearest to it.",
    )
