"""Cells behind the rows of a comparison, and the labels of the rows."""

from __future__ import annotations

from stackfu_integration.lab.cells import (
    AGAIN,
    ANSWERED,
    ASCENT,
    COLD,
    CONVEX,
    FEDERASER,
    FEDOSD,
    FEDRECOVERY,
    HEAD,
    MODE,
    NOT,
    PRIVATE,
    QUICKDROP,
    RETRAIN,
    SCRATCH,
    SHARDS,
    SIFU,
    TUNED,
    WARM,
    Approach,
    CellKey,
    PlanKey,
)
from stackfu_integration.lab.mechanisms import (
    AWARE,
    BUDGETED,
    CAPPED_FEATURES,
    CAPPED_LABELS,
    CERTIFIED,
    CERTIFIED_FINITE,
    FULL,
    HAIPO,
    MECHANISMS,
    UNIFORM,
)
from stackfu_integration.lab.report.results import RunResult

__all__ = ["APPROACHES", "compared", "every_way"]


#: Labels of the ways to unlearn with a mechanism's participation.
APPROACHES: dict[Approach, str] = {
    CONVEX: "convex head",
    SCRATCH: "retraining",
    HEAD: "head fine-tuning",
    ANSWERED: "convex head, clients answer as measured",
}


def compared(run: RunResult, approach: Approach = HEAD) -> dict[str, CellKey]:
    """Label of each row of the comparison and the cell it is read from."""

    def paid(*mechanisms: str) -> dict[str, CellKey]:
        return {MECHANISMS[m].label: CellKey(approach, run.main_plan(m)) for m in mechanisms}

    return {
        "retrain": RETRAIN,
        MECHANISMS[FULL].label: CellKey(approach, PlanKey.full()),
        **paid(UNIFORM),
        "FedEraser": FEDERASER,
        "FedRecovery": FEDRECOVERY,
        "projected ascent": ASCENT,
        "SIFU": SIFU,
        "MoDe": MODE,
        "NoT": NOT,
        "FedOSD": FEDOSD,
        "inspired by QuickDrop": QUICKDROP,
        **paid(HAIPO, CERTIFIED, CERTIFIED_FINITE, CAPPED_FEATURES, CAPPED_LABELS),
        **paid(*(rule for rule in BUDGETED if rule not in (UNIFORM, *AWARE))),
    }


def every_way(run: RunResult) -> dict[str, CellKey]:
    """Label and cell of every way to unlearn, the exact ones first, then those on which mechanisms run."""
    rows = {
        "retrain": RETRAIN,
        "retrain again": AGAIN,
        "shards": SHARDS,
        "public layers, head, rounds": TUNED,
        "optimal head, from zero": COLD,
        "optimal head, from the trained one": WARM,
        "optimal head, certified removal": PRIVATE,
        "FedEraser": FEDERASER,
        "FedRecovery": FEDRECOVERY,
        "projected ascent": ASCENT,
        "SIFU": SIFU,
        "MoDe": MODE,
        "NoT": NOT,
        "FedOSD": FEDOSD,
        "inspired by QuickDrop": QUICKDROP,
    }
    plans = [PlanKey.full(), *(run.main_plan(m) for m in BUDGETED)]
    for approach in (CONVEX, SCRATCH, HEAD):
        for plan in plans:
            rows[f"{APPROACHES[approach]}: {MECHANISMS[plan.mechanism].label}"] = CellKey(approach, plan)
    return rows
