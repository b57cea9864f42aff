"""Mechanisms at equal budgets, against each other, with clients that may leave or answer as measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stackfu_integration.lab.cells import ANSWERED, CONVEX, HEAD, SCRATCH, Approach, CellKey, PlanKey
from stackfu_integration.lab.mechanisms import (
    BUDGETED,
    CAPPED_FEATURES,
    CAPPED_LABELS,
    CERTIFIED,
    CERTIFIED_FINITE,
    FULL,
    HAIPO,
    MECHANISMS,
    SAME_SHARE,
    UNIFORM,
)
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.statistics import Paired, corrected
from stackfu_integration.lab.report.tables.rows import APPROACHES
from stackfu_integration.lab.report.tables.table import Table, by_group, by_preset, spread

__all__ = ["answer_table", "budget_table", "duel_table", "staying_table"]


def budget_table(results: Sequence[RunResult]) -> Table:
    """Mechanisms at equal budgets: what they predict and what is realised."""
    rows = []
    for (preset, beta), runs in by_group(results).items():
        fractions = runs[0].run["settings"]["budgets"]
        cells = [
            (approach, fraction, mechanism, CellKey(approach, PlanKey(mechanism, fraction)))
            for approach in (CONVEX, HEAD)
            for fraction in sorted(fractions)
            for mechanism in BUDGETED
        ]
        for approach, fraction, mechanism, cell in cells:
            present = [run for run in runs if cell in run.cells]
            if not present:
                continue
            plans = [run.plan_of(cell) for run in present]
            used = [
                float(np.dot(run.game["alpha"], plan["participation"]))
                for run, plan in zip(present, plans, strict=True)
            ]
            relative = [
                plan["spend"] / run.game["full_price"] for run, plan in zip(present, plans, strict=True)
            ]
            rows.append(
                (
                    preset,
                    f"{beta:g}",
                    APPROACHES[approach],
                    f"{fraction:g}",
                    mechanism,
                    spread(relative, 2),
                    spread(used, 2),
                    float(np.mean([plan["server_loss"] for plan in plans])),
                    spread([run.cells[cell]["v_loss"] for run in present], 3, sign=True),
                    spread([run.cells[cell]["s_loss"] for run in present], 3, sign=True),
                    spread([run.cells[cell]["q_loss_worst"] for run in present], 3, sign=True),
                )
            )
    return Table(
        "Mechanisms at equal budgets.",
        (
            "preset",
            "β",
            "unlearning",
            "budget / full price",
            "mechanism",
            "spend / full price",
            "data used",
            "predicted server loss",
            "realised V",
            "realised S",
            "realised worst Q",
        ),
        tuple(rows),
        "Budgets in units of the paper's price of full participation, the same money for all mechanisms. Predicted in the "
        "mechanism's own view; V, S, Q in loss, smaller is better.",
    )


_CHAMPIONS = (CERTIFIED, CERTIFIED_FINITE, CAPPED_FEATURES, CAPPED_LABELS)


_RIVALS = (HAIPO, UNIFORM, CERTIFIED_FINITE, CAPPED_FEATURES, SAME_SHARE)


def duel_table(results: Sequence[RunResult]) -> Table:
    """Certified optima against the others and each other, paired by run and budget.

    Budgets of one run share everything but the payments, so a run counts once: its difference is the mean
    over its budgets, and interval and test are taken over runs.
    """
    rows = []
    quantities = {"V": "v_loss", "S": "s_loss", "worst Q": "q_loss_worst"}
    pairs = [
        (champion, rival)
        for k, champion in enumerate(_CHAMPIONS)
        for rival in _RIVALS
        if rival not in _CHAMPIONS[k:]
    ]
    for preset, runs in by_preset(results):
        for approach in (CONVEX, SCRATCH, HEAD, ANSWERED):
            for champion, rival in pairs:
                for name, key in quantities.items():
                    paired = [_differences(run, approach, champion, rival, key) for run in runs]
                    paired = [differences for differences in paired if differences]
                    if not paired:
                        continue
                    means = [float(np.mean(differences)) for differences in paired]
                    rows.append(
                        (
                            preset,
                            APPROACHES[approach],
                            champion,
                            rival,
                            name,
                            spread([m for m in means if np.isfinite(m)], 4, sign=True),
                            f"{sum(m < 0 for m in means)} of {len(means)}",
                            Paired(np.array(means)).p,
                        )
                    )
    return Table(
        "Mechanisms against each other at equal budget.",
        (
            "preset",
            "unlearning",
            "mechanism",
            "against",
            "quantity",
            "difference in loss",
            "better runs",
            "p (Wilcoxon)",
            "q (Benjamini-Hochberg)",
        ),
        tuple(
            (*row, q)
            for row, q in zip(
                rows, corrected([row[0] for row in rows], [row[-1] for row in rows]), strict=True
            )
        ),
        "Negative is better for the first. A run's difference is its mean over budgets (the main one only where there "
        "is one); mean ± 95% interval and p are over runs (all β and seeds); q is p corrected for all rows of the preset. A run in "
        "which one of the two diverged is lost for it.",
    )


def _differences(run: RunResult, approach: Approach, champion: str, rival: str, key: str) -> list[float]:
    """Champion minus rival at every budget that both were measured at."""
    cells = [
        (CellKey(approach, PlanKey(champion, fraction)), CellKey(approach, PlanKey(rival, fraction)))
        for fraction in run.run["settings"]["budgets"]
    ]
    values = [
        tuple(math.inf if cell in run.diverged else run.cells.get(cell, {}).get(key) for cell in pair)
        for pair in cells
    ]
    return [a - b for a, b in values if a is not None and b is not None and math.isfinite(min(a, b))]


def staying_table(results: Sequence[RunResult]) -> Table:
    """Return the clients that stay in the federation if leaving means to train a model alone."""
    rows = []
    for preset, known in by_preset(results):
        runs = [run for run in known if "staying" in run.game]
        for name in ("unpaid", FULL, *BUDGETED, "retention"):
            present = [run for run in runs if name in run.game["staying"]]
            if not present:
                continue
            found = [run.game["staying"][name] for run in present]
            count = [len(run.game["remaining"]) for run in present]
            stayed = [len(item["stay"]) / n for item, n in zip(found, count, strict=True)]
            rows.append(
                (
                    preset,
                    MECHANISMS[name].label if name in MECHANISMS else name,
                    spread(stayed, 0, scale=100),
                    f"{sum(s == 1 for s in stayed)} of {len(runs)}",
                    f"{sum(s == 0 for s in stayed)} of {len(runs)}",
                    spread(
                        [
                            item["spend"] / run.game["full_price"]
                            for item, run in zip(found, present, strict=True)
                        ],
                        2,
                    ),
                )
            )
    return Table(
        "Who stays?",
        ("preset", "offers", "stay (%)", "all stay", "falls apart", "spend / full price"),
        tuple(rows),
        "Clients leave one after another while a model trained on their own data alone (measured) is worth more to them "
        "than what they are offered and the model that they expect (labels, calibrated). Retention: capped offers with "
        "retainers at the main budget, counted where the budget can keep all clients.",
    )


def answer_table(results: Sequence[RunResult]) -> Table:
    """Return the results of mechanisms if clients answer by measured losses."""
    rows = []
    for preset, runs in by_preset(results):
        for mechanism in BUDGETED:
            cell = CellKey(ANSWERED, runs[0].main_plan(mechanism))
            present = [run for run in runs if cell in run.cells]
            if not present:
                continue
            answers = [run.cells[cell]["answer"] for run in present]
            price = [run.game["full_price"] for run in present]
            used = [
                float(np.dot(run.game["alpha"], answer["participation"]))
                for run, answer in zip(present, answers, strict=True)
            ]
            planned = [run.plan_of(cell)["spend"] / full for run, full in zip(present, price, strict=True)]
            spend = [answer["spend"] / full for answer, full in zip(answers, price, strict=True)]
            over = [
                a["spend"] > (1 + 1e-6) * run.plan_of(cell)["budget"]
                for run, a in zip(present, answers, strict=True)
            ]
            rows.append(
                (
                    preset,
                    MECHANISMS[mechanism].label,
                    spread(planned, 2),
                    spread(spend, 2),
                    f"{sum(over)} of {len(over)}",
                    spread(used, 2),
                    spread([run.cells[cell]["v_loss"] for run in present], 3, sign=True),
                    spread([run.cells[cell]["s_loss"] for run in present], 3, sign=True),
                    spread([run.cells[cell]["q_loss_worst"] for run in present], 3, sign=True),
                    f"{sum(answer['settled'] for answer in answers)} of {len(answers)}",
                )
            )
    return Table(
        "Clients that answer as measured losses say.",
        (
            "preset",
            "mechanism",
            "planned spend / full price",
            "spend / full price",
            "over budget",
            "data used",
            "V",
            "S",
            "worst Q",
            "settled",
        ),
        tuple(rows),
        "Every client looks at models trained with other participation of its own before it answers; neither model of "
        "the game plays a part. Convex heads at the main budget; V, S, Q in loss, smaller is better.",
    )
