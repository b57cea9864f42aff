"""Tables 1 and 2 of the paper next to the measurements here, every method and beta, and which of its claims hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from stackfu_integration.lab.cells import (
    CONVEX,
    FEDERASER,
    HEAD,
    MODE,
    QUICKDROP,
    RETRAIN,
    SCRATCH,
    CellKey,
    PlanKey,
)
from stackfu_integration.lab.intervals import mean_interval
from stackfu_integration.lab.mechanisms import CAPPED_LABELS, CERTIFIED_FINITE, HAIPO, SAME_SHARE, UNIFORM
from stackfu_integration.lab.report.paper import METHODS, MINUTES, RETRAIN_ACCURACY, TABLE_1
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.tables.table import Cell, Table, by_group, by_preset, spread

__all__ = ["claims_table", "paper_table", "paper_time_table"]

_KEYS = ("v_accuracy", "s_accuracy", "q_accuracy_worst")
_NAMES = ("V", "S", "Q")
#: Below this many runs no interval is shown, and no sign is called clear.
ENOUGH_RUNS = 5


def _subject(preset: str) -> str | None:
    """Return the paper's data set that a preset stands for."""
    for name in ("ag-news", "cifar100"):
        if preset.startswith(name) and not preset.endswith("-memory"):
            return name
    return None


def _rows(run: RunResult) -> dict[str, tuple[str, CellKey]]:
    """Rows of the table: the paper's method that each is compared with, and the cell."""
    found = {
        "uniform, head fine-tuning": ("uniform", CellKey(HEAD, run.main_plan(UNIFORM))),
        "FedEraser": ("FedEraser", FEDERASER),
        "MoDe": ("MoDe", MODE),
        "inspired by QuickDrop": ("QuickDrop", QUICKDROP),
        "HAIPO, head fine-tuning": ("Ours", CellKey(HEAD, run.main_plan(HAIPO))),
        "certified finite-sample, head fine-tuning": ("Ours", CellKey(HEAD, run.main_plan(CERTIFIED_FINITE))),
        "full participation, head fine-tuning": ("Ours", CellKey(HEAD, PlanKey.full())),
        "certified finite-sample, retraining": ("Ours", CellKey(SCRATCH, run.main_plan(CERTIFIED_FINITE))),
        "capped labels, retraining": ("Ours", CellKey(SCRATCH, run.main_plan(CAPPED_LABELS))),
        "same share for all, retraining": ("Ours", CellKey(SCRATCH, run.main_plan(SAME_SHARE))),
        "HAIPO, convex head": ("Ours", CellKey(CONVEX, run.main_plan(HAIPO))),
        "certified finite-sample, convex head": ("Ours", CellKey(CONVEX, run.main_plan(CERTIFIED_FINITE))),
        "capped labels, convex head": ("Ours", CellKey(CONVEX, run.main_plan(CAPPED_LABELS))),
        "same share for all, convex head": ("Ours", CellKey(CONVEX, run.main_plan(SAME_SHARE))),
        "full participation, convex head": ("Ours", CellKey(CONVEX, PlanKey.full())),
    }
    assert {name for name, _ in found.values()} == set(METHODS)
    return found


def _same_learner(cell: CellKey) -> CellKey | None:
    """Return the same training with full participation; Retrain for retraining."""
    if cell.plan is None or cell.plan == PlanKey.full():
        return None
    return RETRAIN if cell.method == SCRATCH else CellKey(cell.method, PlanKey.full())


def _points(runs: Sequence[RunResult], cell: CellKey, reference: CellKey, key: str) -> list[float]:
    return [
        100 * (run.cells[cell][key] - run.cells[reference][key])
        for run in runs
        if {cell, reference} <= run.cells.keys()
    ]


def _verdict(paper: float, ours: Sequence[float]) -> str:
    """Agreement in sign of a printed difference with measured ones."""
    if len(ours) < ENOUGH_RUNS:
        return "too few runs"
    mean, half = mean_interval(list(ours))
    if paper == 0.0:
        return "equal within the interval" if abs(mean) <= half else "differs"
    if abs(mean) <= half:
        return "not told from 0"
    return "same sign" if math.copysign(1.0, mean) == math.copysign(1.0, paper) else "opposite sign"


def paper_table(results: Sequence[RunResult]) -> Table:
    """Return Table 1 of the paper and the measured differences, in points against Retrain."""
    rows: list[tuple[Cell, ...]] = []
    for (preset, beta), runs in by_group(results).items():
        subject = _subject(preset)
        if subject is None or (subject, beta) not in TABLE_1:
            continue
        absolute = RETRAIN_ACCURACY[subject, beta]
        retrained = [[100 * run.cells[RETRAIN][key] for run in runs if RETRAIN in run.cells] for key in _KEYS]
        rows.append(
            (
                preset,
                f"{beta:g}",
                "retrain (absolute)",
                " / ".join(f"{value:g}" for value in absolute),
                *(spread(values, 1) for values in retrained),
                "–",
                "–",
                len(retrained[0]),
                "–",
            )
        )
        for label, (method, cell) in _rows(runs[0]).items():
            here = [_points(runs, cell, RETRAIN, key) for key in _KEYS]
            failed = sum(cell in run.diverged for run in runs)
            if not here[0] and not failed:
                continue
            printed = TABLE_1[subject, beta][method]
            agree = [_verdict(a, b) for a, b in zip(printed, here, strict=True)]
            same = _same_learner(cell)
            own = [] if same is None else [_points(runs, cell, same, key) for key in _KEYS[1:]]
            rows.append(
                (
                    preset,
                    f"{beta:g}",
                    label,
                    " / ".join(f"{value:+g}" for value in printed),
                    *(spread(values, 1, sign=True) for values in here),
                    " / ".join(spread(values, 1, sign=True) for values in own) or "–",
                    "; ".join(f"{n}: {v}" for n, v in zip(_NAMES, agree, strict=True)),
                    len(here[0]),
                    f"{failed} of {len(runs)}",
                )
            )
    return Table(
        "Table 1 of the paper and what was measured here.",
        (
            "preset",
            "β",
            "method",
            "paper: V / S / Q",
            "V",
            "S",
            "Q",
            "against the same learner: S / Q",
            "sign of the paper's difference",
            "runs",
            "diverged",
        ),
        tuple(rows),
        "Points of accuracy against Retrain, larger is better; Q is the worst client's. Models and data differ from the paper's, "
        "so signs are compared, not sizes. Payments at half of the full price. Same learner: the same way to train with "
        "everybody's data; a convex head that beats Retrain owes that to the head unless it also beats the convex head with "
        "everybody.",
    )


#: Claims of the abstract and of section 6, with the rows of the paper that they are about: (text, V, S, Q) as needed signs.
_CLAIMS: tuple[tuple[str, str, int], ...] = (
    ("the mechanism improves S over Retrain", "S", 1),
    ("the mechanism improves the worst Q over Retrain", "Q", 1),
    ("the mechanism keeps V", "V", 0),
)
_HOLDERS = (
    "HAIPO, head fine-tuning",
    "certified finite-sample, head fine-tuning",
    "certified finite-sample, retraining",
    "capped labels, retraining",
    "capped labels, convex head",
    "same share for all, convex head",
)
#: A point of accuracy may be lost where a claim is that nothing is.
KEPT = -1.0


def claims_table(results: Sequence[RunResult]) -> Table:
    """Return which claims of the paper hold: by data set, by betas, by mechanism and way to train."""
    rows: list[tuple[Cell, ...]] = []
    for preset, runs in by_preset(results):
        if _subject(preset) is None:
            continue
        cells = _rows(runs[0])
        betas = sorted({run.run["beta"] for run in runs})
        for text, quantity, wanted in _CLAIMS:
            key = _KEYS[_NAMES.index(quantity)]
            for label in _HOLDERS:
                verdicts = [
                    _holds(
                        _points([r for r in runs if r.run["beta"] == beta], cells[label][1], RETRAIN, key),
                        wanted,
                    )
                    for beta in betas
                ]
                if any(verdict != "not run" for verdict in verdicts):
                    rows.append((preset, text, label, *verdicts))
    names = sorted({run.run["beta"] for run in results if _subject(run.run["preset"]) is not None})
    return Table(
        "Which claims of Table 1 hold here.",
        ("preset", "claim", "mechanism and training", *(f"β = {beta:g}" for beta in names)),
        tuple(rows),
        "Holds: the 95% interval over federations is on the side of the claim (for V: above -1 point). In sign: the mean is. "
        "Fails: the mean is on the other side. Too few runs: fewer than five. Runs at the paper's size need a GPU and cannot "
        "be tested here.",
    )


def _holds(values: Sequence[float], wanted: int) -> str:
    if not values:
        return "not run"
    mean, half = mean_interval(list(values))
    least = KEPT if wanted == 0 else 0.0
    if len(values) < ENOUGH_RUNS:
        return "too few runs, " + ("in sign" if mean > least else "fails")
    if mean - half > least:
        return "holds"
    return "in sign" if mean > least else "fails"


def paper_time_table(results: Sequence[RunResult]) -> Table:
    """Return Table 2 of the paper and the processor time here, both as shares of Retrain's."""
    rows: list[tuple[Cell, ...]] = []
    for preset, runs in by_preset(results):
        subject = _subject(preset)
        if subject is None:
            continue
        minutes = MINUTES[subject]
        for label, (method, cell) in _rows(runs[0]).items():
            if method == "uniform":
                continue
            shares = list(_time_shares(runs, cell))
            if shares:
                rows.append(
                    (preset, label, minutes[method] / minutes["retrain"], spread(shares, 2), len(shares))
                )
    return Table(
        "Table 2 of the paper and what was measured here.",
        ("preset", "method", "paper: minutes / Retrain's", "processor seconds / Retrain's", "runs"),
        tuple(rows),
        "Unlearning alone, without the game and its pilots (the table of targets has both).",
    )


def _time_shares(runs: Sequence[RunResult], cell: CellKey) -> Iterator[float]:
    for run in runs:
        if {cell, RETRAIN} <= run.cells.keys():
            spent, whole = (run.cells[key]["cost"].get("cpu_seconds") for key in (cell, RETRAIN))
            if spent is not None and whole and np.isfinite(spent):
                yield float(spent / whole)
