"""From result files to tables and figures."""

from stackfu_integration.lab.report.figures import budget_figure, participation_figure, prediction_figure
from stackfu_integration.lab.report.frontier import frontier_figure
from stackfu_integration.lab.report.results import RunResult, collect, load_results
from stackfu_integration.lab.report.tables import TABLES, Table

__all__ = [
    "TABLES",
    "RunResult",
    "Table",
    "budget_figure",
    "collect",
    "frontier_figure",
    "load_results",
    "participation_figure",
    "prediction_figure",
]
