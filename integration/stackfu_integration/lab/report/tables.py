"""The tables: V, S and Q; forgetting; cost; mechanisms by budget; predicted against realised change."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stackfu_integration.lab.cells import (
    AGAIN,
    ANSWERED,
    ASCENT,
    COLD,
    CONVEX,
    FEDERASER,
    FEDRECOVERY,
    HEAD,
    MODE,
    ORIGINAL,
    PRIVATE,
    QUICKDROP,
    RETRAIN,
    SCRATCH,
    SHARDS,
    TUNED,
    WARM,
    Approach,
    CellKey,
    PlanKey,
)
from stackfu_integration.lab.intervals import mean_interval, rate_interval
from stackfu_integration.lab.mechanisms import (
    BUDGETED,
    CAPPED_FEATURES,
    CAPPED_LABELS,
    CERTIFIED,
    CERTIFIED_FINITE,
    FULL,
    HAIPO,
    MECHANISMS,
    PAPER_VIEW,
    UNIFORM,
)
from stackfu_integration.lab.report.predictions import ENOUGH, MODELS, gather, score
from stackfu_integration.lab.report.results import RunResult

__all__ = ["TABLES", "Table"]

Cell = str | float | int | None


@dataclass(frozen=True)
class Table:
    """Rows of plain values, and how to show them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """A Markdown table below a line of explanation."""
        lines = [f"**{self.title}** {self.note}".strip(), ""]
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("|" + "|".join("---" for _ in self.columns) + "|")
        lines += ["| " + " | ".join(_shown(value) for value in row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """Comma-separated values with a header."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return stream.getvalue()

    def json(self) -> str:
        """A list of records."""
        records = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return json.dumps({"title": self.title, "note": self.note, "rows": records}, indent=1) + "\n"


def _shown(value: Cell) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _spread(values: Sequence[float], digits: int, sign: bool = False, scale: float = 1.0) -> str:
    """Mean and confidence interval as text.

    >>> _spread([0.01, 0.02, 0.03], 1, sign=True, scale=100)
    '+2.0 ± 2.5'
    """
    if not values:
        return "–"
    mean, half = mean_interval([scale * v for v in values])
    text = f"{mean:{'+' if sign else ''}.{digits}f}"
    return text if math.isnan(half) else f"{text} ± {half:.{digits}f}"


def _groups(results: Sequence[RunResult]) -> dict[tuple[str, float], list[RunResult]]:
    groups: dict[tuple[str, float], list[RunResult]] = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    return groups


def _methods(run: RunResult, approach: Approach = HEAD) -> dict[str, CellKey]:
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
        "MoDe": MODE,
        "QuickDrop": QUICKDROP,
        **paid(HAIPO, CERTIFIED, CERTIFIED_FINITE, CAPPED_FEATURES, CAPPED_LABELS),
    }


def _everything(run: RunResult) -> dict[str, CellKey]:
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
        "MoDe": MODE,
        "QuickDrop": QUICKDROP,
    }
    plans = [PlanKey.full(), *(run.main_plan(m) for m in BUDGETED)]
    for approach in (CONVEX, SCRATCH, HEAD):
        for plan in plans:
            rows[f"{APPROACHES[approach]}: {MECHANISMS[plan.mechanism].label}"] = CellKey(approach, plan)
    return rows


#: What tables call the ways to unlearn with a mechanism's participation.
APPROACHES: dict[Approach, str] = {
    CONVEX: "convex head",
    SCRATCH: "retraining",
    HEAD: "head fine-tuning",
    ANSWERED: "convex head, clients answer as measured",
}


def _compare(
    results: Sequence[RunResult], quantities: dict[str, tuple[str, int, float]], approach: Approach
) -> list[Any]:
    """Rows preset, beta, method and, per quantity, Retrain's value or the difference from it."""
    rows = []
    for (preset, beta), runs in _groups(results).items():
        for label, cell in _methods(runs[0], approach).items():
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
                    row.append(_spread(values, digits, scale=scale))
                else:
                    reference = [run.cells[RETRAIN][key] for run in present]
                    differences = [v - r for v, r in zip(values, reference, strict=True)]
                    row.append(_spread(differences, digits, sign=True, scale=scale))
            rows.append(tuple(row))
    return rows


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


def _pooled(counts: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Counts of an attack, summed over runs."""
    return {key: sum(int(c[key]) for c in counts) for key in ("members", "found", "strangers", "accused")}


def _sees(counts: dict[str, int]) -> bool:
    """Whether members are found more often than strangers are accused, beyond what chance explains (95%)."""
    low, _ = rate_interval(counts["found"], counts["members"])
    _, high = rate_interval(counts["accused"], counts["strangers"])
    return low > high


def _attack_text(runs: Sequence[RunResult], cell: CellKey) -> str:
    """True positives at 1% false positives, pooled over seeds; without power before unlearning it says so."""
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
    """The model that never saw the removed data by the same kind of training; an exact method's is its own."""
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


def forgetting_table(results: Sequence[RunResult]) -> Table:
    """Guarantee, planted backdoors and canaries, membership attack with its power, distance to Retrain."""
    rows = []
    for (preset, beta), runs in _groups(results).items():
        for label, cell in {"before unlearning": ORIGINAL, **_everything(runs[0])}.items():
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
                    _spread([item["backdoor_success"] for item in backdoor], 1, scale=100),
                    _spread(excess, 1, sign=True, scale=100),
                    _spread(canaries, 2),
                    _attack_text(present, cell),
                    _rounds(again),
                    _spread([run.cells[cell]["agreement"] for run in present], 1, scale=100),
                    _spread(distance, 3),
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
        "Read every column beside Retrain's, and the last two beside those of another Retrain. Excess: over the model "
        "that never saw the data and was trained in the same way; an exact method is that model. A canary AUC of 0.5 "
        "is no memory. Members found: pooled over seeds with its 95% interval; where the attack finds nobody before "
        "unlearning it cannot tell. Rounds: median until the backdoor is back. Others: mean ± 95% interval over seeds.",
    )


def _rounds(values: Sequence[int | None]) -> str:
    """Median; runs that did not get there within the limit count as later than all others."""
    if not values:
        return "–"
    middle = sorted(math.inf if v is None else v for v in values)[len(values) // 2]
    reached = [v for v in values if v is not None]
    return f"{middle:g}" if math.isfinite(middle) else f"> {max(reached)}" if reached else "not reached"


def certificate_table(results: Sequence[RunResult]) -> Table:
    """What convex heads prove and what they cost, everybody with everything."""
    rows = []
    starts = {
        "zero, a quarter of the passes": CellKey(CONVEX, PlanKey.full()),
        "zero, to the optimum": COLD,
        "the trained head, to the optimum": WARM,
        "the same with noise": PRIVATE,
    }
    for (preset, beta), runs in _groups(results).items():
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
                    _spread([price for price in prices if price is not None], 1, scale=100),
                    float(np.mean([cost["rounds"] for cost in costs])),
                    _spread([c["samples"] / r["samples"] for c, r in zip(costs, retrain, strict=True)], 2),
                    _spread(
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


def target_table(results: Sequence[RunResult]) -> Table:
    """Every mechanism on every way to unlearn against Retrain, run by run: can one row have everything?"""
    rows = []
    for preset in dict.fromkeys(result.run["preset"] for result in results):
        runs = [result for result in results if result.run["preset"] == preset]
        for label, cell in _everything(runs[0]).items():
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
                (a["cost"]["seconds"] + _game_seconds(run, cell)) / b["cost"]["seconds"]
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
                    _spread([a["s_loss"] - b["s_loss"] for a, b in pairs], 3, sign=True),
                    _spread([a["q_loss_worst"] - b["q_loss_worst"] for a, b in pairs], 3, sign=True),
                    _spread(value, 1, sign=True),
                    _spread(gradients, 2),
                    _spread(worked, 2),
                    _spread(clock, 2),
                    _spread(infected, 1, sign=True),
                    _spread(spend, 2),
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


_COOPERATION = {
    "MoDe": "train every round",
    "projected ascent": "undo their training",
    "QuickDrop": "distilled while training",
    "shards": "none; trained in shards",
}


def cost_table(results: Sequence[RunResult]) -> Table:
    """Table 2 of the paper: what unlearning costs, relative to Retrain, averaged over beta and seeds."""
    rows = []
    for preset in dict.fromkeys(result.run["preset"] for result in results):
        runs = [result for result in results if result.run["preset"] == preset]
        for label, cell in _everything(runs[0]).items():
            present = [run for run in runs if cell in run.cells]
            if not present:
                continue
            costs = [run.cells[cell]["cost"] for run in present]
            reference = [run.cells[RETRAIN]["cost"] for run in present]
            game = [_game_seconds(run, cell) for run in present]
            wall = [(c["seconds"] + g) / r["seconds"] for c, g, r in zip(costs, game, reference, strict=True)]
            spend = [run.plan_of(cell)["spend"] for run in present if "offer" in run.cells[cell]]
            rows.append(
                (
                    preset,
                    label,
                    float(np.mean([c["seconds"] + g for c, g in zip(costs, game, strict=True)])),
                    _spread(wall, 2),
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


def _game_seconds(run: RunResult, cell: CellKey) -> float:
    if cell.plan is None or cell.plan.mechanism == FULL:
        return 0.0
    view = MECHANISMS[cell.plan.mechanism].view or PAPER_VIEW
    seen = run.game.get("views", {}).get(view, run.game)  # earlier runs played in the paper's view alone
    return float(seen["embedding_seconds"] + run.plan_of(cell)["seconds"])


def budget_table(results: Sequence[RunResult]) -> Table:
    """Mechanisms at equal budgets: what they predict and what is realised."""
    rows = []
    for (preset, beta), runs in _groups(results).items():
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
                    _spread(relative, 2),
                    _spread(used, 2),
                    float(np.mean([plan["server_loss"] for plan in plans])),
                    _spread([run.cells[cell]["v_loss"] for run in present], 3, sign=True),
                    _spread([run.cells[cell]["s_loss"] for run in present], 3, sign=True),
                    _spread([run.cells[cell]["q_loss_worst"] for run in present], 3, sign=True),
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
        "Budgets in units of the paper's price of full participation, the same money for everybody. Predicted in the "
        "mechanism's own view; V, S, Q in loss, smaller is better.",
    )


_CHAMPIONS = (CERTIFIED, CERTIFIED_FINITE, CAPPED_FEATURES, CAPPED_LABELS)
_RIVALS = (HAIPO, UNIFORM, CERTIFIED_FINITE, CAPPED_FEATURES)


def duel_table(results: Sequence[RunResult]) -> Table:
    """Certified optima against the others and each other, paired by run and budget.

    Budgets of one run share everything but the payments, so a run counts once: its difference is the mean
    over its budgets, and interval and test are taken over runs.
    """
    from scipy.stats import wilcoxon

    rows = []
    quantities = {"V": "v_loss", "S": "s_loss", "worst Q": "q_loss_worst"}
    pairs = [
        (champion, rival)
        for k, champion in enumerate(_CHAMPIONS)
        for rival in _RIVALS
        if rival not in _CHAMPIONS[k:]
    ]
    for preset in dict.fromkeys(result.run["preset"] for result in results):
        runs = [result for result in results if result.run["preset"] == preset]
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
                            _spread(means, 4, sign=True),
                            f"{sum(m < 0 for m in means)} of {len(means)}",
                            float(wilcoxon(means).pvalue) if len(means) > 1 and np.any(means) else None,
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
        ),
        tuple(rows),
        "Negative is better for the first. A run's difference is its mean over budgets (the main one only where there "
        "is one); mean ± 95% interval and p are over runs (all β and seeds) and not corrected for the number of rows.",
    )


def _differences(run: RunResult, approach: Approach, champion: str, rival: str, key: str) -> list[float]:
    """Champion minus rival at every budget that both were measured at."""
    cells = [
        (CellKey(approach, PlanKey(champion, fraction)), CellKey(approach, PlanKey(rival, fraction)))
        for fraction in run.run["settings"]["budgets"]
    ]
    return [run.cells[a][key] - run.cells[b][key] for a, b in cells if {a, b} <= run.cells.keys()]


def prediction_table(results: Sequence[RunResult]) -> Table:
    """Rank correlation and R2 of predicted against realised changes of the clients' losses, by model."""
    rows = []
    for preset in dict.fromkeys(result.run["preset"] for result in results):
        runs = [result for result in results if result.run["preset"] == preset]
        for approach in (SCRATCH, CONVEX):
            for kind in ("own", "pooled"):
                for model in MODELS:
                    found = [gather(run, approach, model, kind) for run in runs]
                    evidence = [item for item in found if item is not None]
                    if len(evidence) < 2:
                        continue
                    made = score(evidence)
                    constants = made.constants.mean(axis=0)
                    rows.append(
                        (
                            preset,
                            APPROACHES[approach],
                            kind,
                            model,
                            _spread(made.within, 2, sign=True),
                            _spread(made.across, 2, sign=True),
                            made.r2,
                            made.r2_paid,
                            made.r2_enough,
                            made.r2_pilots,
                            float(constants[0]),
                            float(constants[1]) if len(constants) > 1 else None,
                            made.runs,
                        )
                    )
    return Table(
        "Does the game predict what happens?",
        (
            "preset",
            "unlearning",
            "test samples",
            "model",
            "ρ within a training",
            "ρ across trainings",
            "R² (all trainings)",
            "R² (mechanisms)",
            "R² (enough samples)",
            "R² (own pilots)",
            "C",
            "A",
            "federations",
        ),
        tuple(rows),
        "Realised Q of every remaining client in every training with a mechanism's shares and in every pilot, against "
        "predictions with constants from trainings that are not predicted. ρ: Spearman's, over the clients of a training "
        "and over the trainings for a client, mean ± 95% interval over federations (all β and seeds). R²: constants from the "
        "other federations; mechanisms: fitted and scored on their trainings alone, without pilots; enough samples: "
        f"{ENOUGH} per class or more, which C and A are shown for; own pilots: the mechanisms' trainings with enough samples, with "
        "constants of the same federation's pilots. Saturating: the sampling term ends at what a model that knows nothing would "
        "lose. Test samples: a client's own, or everybody's in "
        "its label mixture.",
    )


def staying_table(results: Sequence[RunResult]) -> Table:
    """Who stays in the federation when leaving means a model of one's own."""
    rows = []
    for preset in dict.fromkeys(result.run["preset"] for result in results):
        runs = [r for r in results if r.run["preset"] == preset and "staying" in r.game]
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
                    _spread(stayed, 0, scale=100),
                    f"{sum(s == 1 for s in stayed)} of {len(runs)}",
                    f"{sum(s == 0 for s in stayed)} of {len(runs)}",
                    _spread(
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
        "retainers at the main budget, counted where the budget can keep everybody.",
    )


def answer_table(results: Sequence[RunResult]) -> Table:
    """What mechanisms are worth when clients answer as measured losses say."""
    rows = []
    for preset in dict.fromkeys(result.run["preset"] for result in results):
        runs = [result for result in results if result.run["preset"] == preset]
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
                    _spread(planned, 2),
                    _spread(spend, 2),
                    f"{sum(over)} of {len(over)}",
                    _spread(used, 2),
                    _spread([run.cells[cell]["v_loss"] for run in present], 3, sign=True),
                    _spread([run.cells[cell]["s_loss"] for run in present], 3, sign=True),
                    _spread([run.cells[cell]["q_loss_worst"] for run in present], 3, sign=True),
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


_STAGES = ("extraction", "training", "unlearning", "measuring", "embedding", "certified", "baselines")
_GAME = ("embedding", "certified")


def clock_table(results: Sequence[RunResult]) -> Table:
    """The game's share of the wall clock."""
    rows = []
    for preset in dict.fromkeys(result.run["preset"] for result in results):
        clocks = [wall_clock(result) for result in results if result.run["preset"] == preset]
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
    """The game's part of a run's seconds, with or without the extraction of features."""
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


TABLES: dict[str, Callable[[Sequence[RunResult]], Table]] = {
    "accuracy": accuracy_table,
    "loss": loss_table,
    "scratch": scratch_table,
    "convex": convex_table,
    "targets": target_table,
    "certificates": certificate_table,
    "forgetting": forgetting_table,
    "cost": cost_table,
    "budgets": budget_table,
    "duels": duel_table,
    "predictions": prediction_table,
    "staying": staying_table,
    "answers": answer_table,
    "clock": clock_table,
}
