"""The tables of the experiments by name; a module per question that they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.tables.forgetting import certificate_table, copy_table, forgetting_table
from stackfu_integration.lab.report.tables.mechanisms import (
    answer_table,
    budget_table,
    duel_table,
    staying_table,
)
from stackfu_integration.lab.report.tables.paper import claims_table, paper_table, paper_time_table
from stackfu_integration.lab.report.tables.predicted import later_table, prediction_table, transfer_table
from stackfu_integration.lab.report.tables.rivals import (
    headline_table,
    ranking_table,
    rival_table,
    spend_table,
)
from stackfu_integration.lab.report.tables.seconds import clock_table, cost_table, game_share, wall_clock
from stackfu_integration.lab.report.tables.side_effects import (
    accuracy_table,
    convex_table,
    loss_table,
    scratch_table,
)
from stackfu_integration.lab.report.tables.table import Table
from stackfu_integration.lab.report.tables.targets import target_table

__all__ = ["TABLES", "Table", "accuracy_table", "game_share", "wall_clock"]


TABLES: dict[str, Callable[[Sequence[RunResult]], Table]] = {
    "accuracy": accuracy_table,
    "loss": loss_table,
    "scratch": scratch_table,
    "convex": convex_table,
    "targets": target_table,
    "certificates": certificate_table,
    "forgetting": forgetting_table,
    "copies": copy_table,
    "cost": cost_table,
    "budgets": budget_table,
    "duels": duel_table,
    "headline": headline_table,
    "rivals": rival_table,
    "spend": spend_table,
    "ranking": ranking_table,
    "paper": paper_table,
    "claims": claims_table,
    "paper-time": paper_time_table,
    "predictions": prediction_table,
    "later": later_table,
    "transfer": transfer_table,
    "staying": staying_table,
    "answers": answer_table,
    "clock": clock_table,
}
