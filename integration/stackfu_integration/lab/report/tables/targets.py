"""Can one row have everything? Every way to unlearn against Retrain, run by run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stackfu_integration.lab.cells import RETRAIN, SCRATCH, CellKey, PlanKey
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.tables.rows import every_way
from stackfu_integration.lab.report.tables.seconds import game_cpu_seconds, game_seconds
from stackfu_integration.lab.report.tables.table import Table, by_preset, spread

__all__ = ["BETTER", "RUNTIME", "Standing", "standings", "target_table"]

#: Share of paired runs in which S and the worst Q must be better than Retrain's.
BETTER = 0.8
#: The paper's headline: what may be used of Retrain's runtime.
RUNTIME = 0.61


@dataclass(frozen=True)
class Standing:
    """One way to unlearn compared with Retrain, one value per federation; differences are paired."""

    label: str
    cell: CellKey
    s: tuple[float, ...]  # S minus Retrain's, in loss
    worst_q: tuple[float, ...]
    value: tuple[float, ...]  # V minus Retrain's, in points of accuracy
    gradients: tuple[float, ...]  # over Retrain's
    cpu: tuple[float, ...]  # of unlearning, over Retrain's; earlier runs did not count it
    cpu_with_game: tuple[float, ...]  # of the runs that counted the game's too
    clock: tuple[float, ...]  # wall clock with the game, over Retrain's
    backdoor: tuple[float, ...]  # success minus Retrain's, in points; none where no backdoor was planted
    spend: tuple[float, ...]  # over the full price; none where nobody is paid
    own_s: tuple[float, ...] = ()  # S minus that of the same learner with everybody's data
    own_q: tuple[float, ...] = ()

    @property
    def reached(self) -> dict[str, bool]:
        """Return for each target whether it is reached, on average over the federations."""
        better = [sum(x < 0 for x in values) / len(values) for values in (self.s, self.worst_q)]
        return {
            "SQ": min(better) >= BETTER,
            "V": bool(np.mean(self.value) >= -1.0),
            "cost": bool(np.mean(self.gradients) <= RUNTIME),
            "time": bool(self.cpu_with_game) and bool(np.mean(self.cpu_with_game) <= RUNTIME),
            "forgets": bool(self.backdoor) and bool(np.mean(self.backdoor) <= 1.0),
        }


def _same_learner(cell: CellKey) -> CellKey:
    """Return the cell trained in the same way with all data; Retrain where no mechanism chose the participation."""
    if cell.plan is None or cell.method == SCRATCH:
        return RETRAIN
    return CellKey(cell.method, PlanKey.full())


def standings(runs: Sequence[RunResult]) -> list[Standing]:
    """Return every way to unlearn that the runs of one preset have, Retrain itself left out."""
    found = []
    for label, cell in every_way(runs[0]).items():
        present = [run for run in runs if cell in run.cells and RETRAIN in run.cells]
        if cell == RETRAIN or not present:
            continue
        same = _same_learner(cell)
        pairs = [(run, run.cells[cell], run.cells[RETRAIN]) for run in present]
        timed = [(run, a["cost"], b["cost"]) for run, a, b in pairs if "cpu_seconds" in b["cost"]]
        marked, reference = cell.with_backdoor(), RETRAIN.with_backdoor()
        found.append(
            Standing(
                label,
                cell,
                s=tuple(a["s_loss"] - b["s_loss"] for _, a, b in pairs),
                worst_q=tuple(a["q_loss_worst"] - b["q_loss_worst"] for _, a, b in pairs),
                value=tuple(100 * (a["v_accuracy"] - b["v_accuracy"]) for _, a, b in pairs),
                gradients=tuple(a["cost"]["samples"] / b["cost"]["samples"] for _, a, b in pairs),
                cpu=tuple(a["cpu_seconds"] / b["cpu_seconds"] for _, a, b in timed),
                cpu_with_game=tuple(
                    (a["cpu_seconds"] + played) / b["cpu_seconds"]
                    for run, a, b in timed
                    if (played := game_cpu_seconds(run, cell)) is not None
                ),
                clock=tuple(
                    (a["cost"]["seconds"] + game_seconds(run, cell)) / b["cost"]["seconds"]
                    for run, a, b in pairs
                ),
                backdoor=tuple(
                    100 * (run.cells[marked]["backdoor_success"] - run.cells[reference]["backdoor_success"])
                    for run in present
                    if {marked, reference} <= run.cells.keys()
                ),
                spend=tuple(
                    run.plan_of(cell)["spend"] / run.game["full_price"]
                    for run in present
                    if "offer" in run.cells[cell]
                ),
                own_s=tuple(
                    run.cells[cell]["s_loss"] - run.cells[same]["s_loss"]
                    for run in present
                    if same != cell and same in run.cells
                ),
                own_q=tuple(
                    run.cells[cell]["q_loss_worst"] - run.cells[same]["q_loss_worst"]
                    for run in present
                    if same != cell and same in run.cells
                ),
            )
        )
    return found


def _won(differences: Sequence[float]) -> str:
    return f"{sum(x < 0 for x in differences)} of {len(differences)}" if differences else "–"


def target_table(results: Sequence[RunResult]) -> Table:
    """Return every mechanism on every way to unlearn against Retrain."""
    rows = [
        (
            preset,
            row.label,
            f"{sum(x < 0 for x in row.s)} of {len(row.s)}",
            f"{sum(x < 0 for x in row.worst_q)} of {len(row.worst_q)}",
            _won(row.own_s),
            _won(row.own_q),
            spread(row.s, 3, sign=True),
            spread(row.worst_q, 3, sign=True),
            spread(row.value, 1, sign=True),
            spread(row.gradients, 2),
            spread(row.cpu, 2),
            spread(row.cpu_with_game, 2),
            spread(row.clock, 2),
            spread(row.backdoor, 1, sign=True),
            spread(row.spend, 2),
            " ".join(name for name, there in row.reached.items() if there) or "–",
        )
        for preset, runs in by_preset(results)
        for row in standings(runs)
    ]
    return Table(
        "Side effects, value, cost and forgetting in one row.",
        (
            "preset",
            "method",
            "S better",
            "worst Q better",
            "S better than the same learner's",
            "worst Q better than the same learner's",
            "difference in S",
            "difference in worst Q",
            "difference in V (points)",
            "sample gradients / Retrain",
            "CPU / Retrain",
            "CPU with the game / Retrain",
            "wall clock / Retrain",
            "backdoor (points)",
            "spend / full price",
            "reached",
        ),
        tuple(rows),
        "Paired with Retrain over all β and seeds; S and Q in loss, smaller is better; wall clock includes the game. SQ: both "
        "better in 80% of the runs. V: not more than a point lower. cost: at most 61% of Retrain's gradients. time: at most "
        "61% of its processor seconds, the game included. forgets: backdoor at most a point above Retrain's. Same "
        "learner: the same way to train with everybody's data. A convex head is regularised and Retrain is not, so "
        "that a part of what it gains over Retrain is the learner's, not the mechanism's.",
    )
