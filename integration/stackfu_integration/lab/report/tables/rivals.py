"""Designed mechanisms against simple rules: at equal budget, at equal spend, and what predicts which of them is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stackfu_integration.arrays import FloatArray
from stackfu_integration.lab.cells import (
    AT_EQUAL_SPEND,
    CONVEX,
    SCRATCH,
    Approach,
    CellKey,
    PlanKey,
    spend_key,
)
from stackfu_integration.lab.mechanisms import (
    AWARE,
    BLIND,
    BUDGETED,
    CAPPED_LABELS,
    CERTIFIED_FINITE,
    FULL,
    HAIPO,
    MECHANISMS,
    SHAPLEY,
    UNPAID,
)
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.statistics import POOLED, PRIMARY, Paired, corrected, paired, realised
from stackfu_integration.lab.report.tables.rows import APPROACHES
from stackfu_integration.lab.report.tables.table import Cell, Table, by_preset, spread

__all__ = ["headline_table", "ranking_table", "rival_table", "spend_table"]

_QUANTITIES = ("V + S", "S", "worst Q")
_CHAMPIONS = (CAPPED_LABELS, CERTIFIED_FINITE, HAIPO)


def _difference(found: Paired, digits: int = 3) -> str:
    """Mean difference with its interval, and how many runs diverged."""
    mean, half = found.interval
    text = "–" if math.isnan(mean) else f"{mean:+.{digits}f}"
    if not math.isnan(half):
        text += f" ± {half:.{digits}f}"
    return text + (f" ({found.diverged} diverged)" if found.diverged else "")


def headline_table(results: Sequence[RunResult]) -> Table:
    """Return the comparison that was named beforehand, one row per preset."""
    champion, rule, quantity = PRIMARY
    rows: list[tuple[Cell, ...]] = []
    for preset, runs in by_preset(results):
        first, second = (CellKey(CONVEX, runs[0].main_plan(name)) for name in (champion, rule))
        found = paired(runs, first, second, quantity)
        if not found.count:
            continue
        pooled = paired(runs, first, second, POOLED)
        rows.append(
            (
                preset,
                _difference(found),
                f"{found.better} of {found.count}",
                found.p,
                _difference(pooled),
                f"{pooled.better} of {pooled.count}",
                _points(runs, first, second),
            )
        )
    return Table(
        "Capped offers in the labels view against the same share for everybody.",
        (
            "preset",
            "difference in V + S",
            "better runs",
            "p (Wilcoxon)",
            "difference, pooled test samples",
            "better runs, pooled",
            "difference in S (points of accuracy)",
        ),
        tuple(rows),
        "The one comparison that was named beforehand: convex heads, main budget, V + S in loss, negative is better for the "
        "capped offers; mean ± 95% interval over federations (all β and seeds). Small clients test on few samples of their own; "
        "the pooled columns use the test samples of all clients, weighted by class to each client's mixture. They are another "
        "quantity where clients differ within a class.",
    )


def _points(runs: Sequence[RunResult], first: CellKey, second: CellKey) -> str:
    pairs = [
        100 * (run.cells[first]["s_accuracy"] - run.cells[second]["s_accuracy"])
        for run in runs
        if {first, second} <= run.cells.keys()
    ]
    return spread(pairs, 1, sign=True)


def rival_table(results: Sequence[RunResult]) -> Table:
    """Return designed mechanisms against every simple rule at equal budget."""
    rows: list[tuple[Cell, ...]] = []
    values: list[float | None] = []
    for preset, runs in by_preset(results):
        for approach in (CONVEX, SCRATCH):
            for champion in _CHAMPIONS:
                for rule in (*BLIND, SHAPLEY, UNPAID, FULL):
                    pairs = {
                        quantity: paired(runs, *_cells(runs[0], approach, champion, rule), quantity)
                        for quantity in _QUANTITIES
                    }
                    if not pairs["V + S"].count:
                        continue
                    row: list[Cell] = [preset, APPROACHES[approach], _label(champion), _label(rule)]
                    for quantity in _QUANTITIES:
                        row += [
                            _difference(pairs[quantity]),
                            f"{pairs[quantity].better} of {pairs[quantity].count}",
                        ]
                    rows.append(tuple(row))
                    values.append(pairs["V + S"].p)
    adjusted = corrected([row[0] for row in rows], values)
    return Table(
        "Designed mechanisms against simple rules at equal budget.",
        (
            "preset",
            "unlearning",
            "mechanism",
            "against",
            "V + S",
            "better in V + S",
            "S",
            "better in S",
            "worst Q",
            "better in worst Q",
            "q (V + S)",
        ),
        tuple((*row, q) for row, q in zip(rows, adjusted, strict=True)),
        "Differences in loss at the main budget, negative is better for the mechanism; mean ± 95% interval over federations. "
        "Simple rules play in the calibrated labels view, with the same kinds of offers. Full participation costs its full "
        "price, whatever the budget. q: Wilcoxon's p-values of V + S, corrected by "
        "Benjamini and Hochberg for all rows of the preset.",
    )


def _label(mechanism: str) -> str:
    return MECHANISMS[mechanism].label


def _cells(run: RunResult, approach: Approach, champion: str, rule: str) -> tuple[CellKey, CellKey]:
    second = PlanKey.full() if rule == FULL else run.main_plan(rule)
    return CellKey(approach, run.main_plan(champion)), CellKey(approach, second)


def spend_table(results: Sequence[RunResult]) -> Table:
    """Return designed mechanisms against simple rules with the mechanism's spend as budget."""
    rows: list[tuple[Cell, ...]] = []
    values: list[float | None] = []
    for preset, runs in by_preset(results):
        for champion in AWARE:
            for rule in AT_EQUAL_SPEND:
                pairs: dict[str, list[float]] = {quantity: [] for quantity in _QUANTITIES}
                spends, used = [], []
                for run in runs:
                    plan = run.game["offers"].get(str(run.main_plan(champion)))
                    if plan is None or plan["spend"] <= 0:
                        continue
                    first = CellKey(CONVEX, run.main_plan(champion))
                    key = spend_key(rule, plan, run.main_budget)
                    second = CellKey(CONVEX, key)
                    if str(key) not in run.game["offers"] or realised(run, second, "S") is None:
                        continue
                    for quantity in _QUANTITIES:
                        a, b = realised(run, first, quantity), realised(run, second, quantity)
                        if a is not None and b is not None and not (np.isinf(a) and np.isinf(b)):
                            pairs[quantity].append(a - b)
                    spends.append(plan["spend"] / plan["budget"])
                    alpha = np.array(run.game["alpha"])
                    used.append(float(alpha @ plan["participation"] - alpha @ run.plan(key)["participation"]))
                if not spends:
                    continue
                found = {quantity: Paired(np.array(items)) for quantity, items in pairs.items()}
                row: list[Cell] = [
                    preset,
                    _label(champion),
                    _label(rule),
                    spread(spends, 2),
                    spread(used, 2, sign=True),
                ]
                for quantity in _QUANTITIES:
                    row += [
                        _difference(found[quantity]),
                        f"{found[quantity].better} of {found[quantity].count}",
                    ]
                rows.append(tuple(row))
                values.append(found["V + S"].p)
    adjusted = corrected([row[0] for row in rows], values)
    return Table(
        "Designed mechanisms against simple rules at equal spend.",
        (
            "preset",
            "mechanism",
            "against",
            "spend / budget",
            "more data used",
            "V + S",
            "better in V + S",
            "S",
            "better in S",
            "worst Q",
            "better in worst Q",
            "q (V + S)",
        ),
        tuple((*row, q) for row, q in zip(rows, adjusted, strict=True)),
        "The rule's budget is what the mechanism spends of the main budget. Convex heads; differences in loss, negative is better "
        "for the mechanism. More data used: share of the remaining data, the mechanism's minus the rule's. q as at equal budget.",
    )


# ------------------------------------------------------------------------------- what predicts which mechanism is better


def ranking_table(results: Sequence[RunResult]) -> Table:
    """Return how well the order of mechanisms is predicted before any training, with the amount of data alone as the null model."""
    rows: list[tuple[Cell, ...]] = []
    for preset, runs in by_preset(results):
        for approach in (CONVEX, SCRATCH):
            scores: dict[str, list[float]] = {name: [] for name in PREDICTORS}
            counted: list[float] = []
            for run in runs:
                keys = [run.main_plan(m) for m in BUDGETED if str(run.main_plan(m)) in run.game["offers"]]
                cells = [CellKey(approach, key) for key in keys]
                seen = [(key, realised(run, cell, "V + S")) for key, cell in zip(keys, cells, strict=True)]
                known = [(key, value) for key, value in seen if value is not None]
                if len(known) < 5:
                    continue
                counted.append(len(known))
                for name, predictor in PREDICTORS.items():
                    guess = [
                        predictor(run, approach, np.array(run.plan(key)["participation"])) for key, _ in known
                    ]
                    scores[name].append(_spearman(guess, [value for _, value in known]))
            if counted:
                rows.append(
                    (
                        preset,
                        APPROACHES[approach],
                        f"{np.mean(counted):.0f}",
                        *(spread(scores[name], 2, sign=True) for name in PREDICTORS),
                        len(counted),
                    )
                )
    return Table(
        "Is the best mechanism known before the training?",
        ("preset", "unlearning", "mechanisms", *(f"ρ, {name}" for name in PREDICTORS), "federations"),
        tuple(rows),
        "Spearman's correlation, over all mechanisms at the main budget, of a predicted server loss with the realised V + S; mean "
        "± 95% interval over federations. The amount of data alone, fewer samples being worse, knows nothing about the clients.",
    )


def _spearman(guess: Sequence[float], seen: Sequence[float]) -> float:
    from scipy.stats import rankdata

    a, b = (rankdata(values) for values in (guess, seen))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _loss(run: RunResult, view: str, x: FloatArray) -> tuple[float, float]:
    """Return squared distances to the remaining and to the original mixture, summed, and ``1 / n_used``."""
    squared = np.array(run.game["views"][view]["squared_distances"])
    sizes = np.array(run.run["sizes"], dtype=np.float64)
    remaining = np.array(run.game["remaining"])

    def mixture(amounts: FloatArray) -> FloatArray:
        return np.asarray(amounts / amounts.sum())

    used, rest = np.zeros(len(sizes)), np.zeros(len(sizes))
    used[remaining], rest[remaining] = x * sizes[remaining], sizes[remaining]
    m = mixture(used)
    apart = [m - mixture(rest), m - mixture(sizes)]
    return float(sum(-0.5 * d @ squared @ d for d in apart)), 1.0 / float(used.sum())


def _paper(run: RunResult, approach: Approach, x: FloatArray) -> float:
    return _loss(run, "features", x)[0]


def _labels(run: RunResult, approach: Approach, x: FloatArray) -> float:
    found: Any = run.game["views"]["labels"]["calibration"].get(approach)
    if found is None:
        return float("nan")
    drift, thin = _loss(run, "labels", x)
    return float(found["loss_constant"] * drift + 2.0 * found["sampling_constant"] * thin)


def _data(run: RunResult, approach: Approach, x: FloatArray) -> float:
    return _loss(run, "labels", x)[1]


#: Predictors available before any training, by name: a function of a run, an approach and a participation.
PREDICTORS: dict[str, Callable[[RunResult, Approach, FloatArray], float]] = {
    "paper's loss": _paper,
    "labels, calibrated": _labels,
    "amount of data alone": _data,
}
