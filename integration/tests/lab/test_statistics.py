"""Paired comparisons: corrected for their number, with diverged runs as failures and no interval of three runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackfu.errors import FileFormatError
from stackfu_integration.lab.cells import CONVEX, CellKey, PlanKey
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.statistics import (
    POOLED,
    PRIMARY,
    Paired,
    benjamini_hochberg,
    paired,
    realised,
)
from stackfu_integration.lab.report.tables.streams import stream_table
from stackfu_integration.lab.report.tables.table import spread

FIRST, SECOND = (CellKey(CONVEX, PlanKey(name, 0.5)) for name in PRIMARY[:2])


def run(seed, first, second):
    cells, failed = {}, {}
    for cell, value in ((FIRST, first), (SECOND, second)):
        if value is None:
            failed[cell] = "diverged"
        else:
            cells[cell] = {"v_loss": value, "s_loss": 0.0, "q_loss_worst": value}
    return RunResult(f"r{seed}", {"settings": {"budgets": [0.5]}}, {}, cells, failed)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30))
def test_q_values_are_those_of_the_definition(values):
    found = benjamini_hochberg(values)
    ordered = sorted(values)
    for p, q in zip(values, found, strict=True):
        naive = min(other * len(values) / (rank + 1) for rank, other in enumerate(ordered) if other >= p)
        assert q == pytest.approx(min(naive, 1.0))
        assert q >= p * (1 - 1e-12)


def test_a_run_in_which_one_method_diverged_is_lost_for_it():
    runs = [run(k, 0.0, 1.0) for k in range(6)]
    clean = paired(runs, FIRST, SECOND, "V + S")
    assert (clean.better, clean.count, clean.diverged) == (6, 6, 0)
    lost = paired([*runs, run(6, None, 1.0), run(7, None, None)], FIRST, SECOND, "V + S")
    assert (lost.better, lost.count, lost.diverged) == (6, 7, 1)
    assert lost.interval[0] == clean.interval[0] == -1.0
    assert lost.p > clean.p
    assert realised(run(0, None, 1.0), FIRST, "S") == np.inf


def test_few_runs_have_neither_interval_nor_p_value():
    assert Paired(np.array([-1.0, -2.0, -3.0])).p is None
    assert "±" not in spread([1.0, 2.0, 3.0], 1)
    assert "±" in spread([1.0, 2.0, 3.0, 4.0, 5.0], 1)


def test_an_interval_counts_only_federations_in_which_neither_diverged():
    kept = Paired(np.array([-1.0, -2.0, -3.0, -4.0, np.inf, np.inf]))
    assert kept.interval[0] == -2.5
    assert np.isnan(kept.interval[1])  # four finite differences
    assert kept.p is not None  # six federations, two of them lost
    assert Paired(np.array([-1.0, -2.0, -3.0, -4.0, -5.0])).interval[1] > 0


def test_pooled_differences_are_those_of_v_and_s():
    """References cancel: V is a mean over the remaining clients, S over all clients, each weighted by data size."""
    about = {"settings": {"budgets": [0.5]}, "sizes": [10, 30, 60], "removed": [1]}
    first, second = np.array([0.4, 2.0, 0.9]), np.array([0.7, 1.0, 1.3])
    stored = {FIRST: {"pooled_losses": first.tolist()}, SECOND: {"pooled_losses": second.tolist()}}
    found = paired([RunResult("r", about, {}, stored)], FIRST, SECOND, POOLED)
    apart = first - second
    v = (10 * apart[0] + 60 * apart[2]) / 70
    s = (10 * apart[0] + 30 * apart[1] + 60 * apart[2]) / 100
    assert found.differences == pytest.approx([v + s])
    lost = RunResult("r", about, {}, {SECOND: stored[SECOND]}, {FIRST: "diverged"})
    assert paired([lost], FIRST, SECOND, POOLED).diverged == 1


def test_streams_are_averaged_over_the_federations_that_answered(tmp_path):
    def answer(spend, points):
        return {"spend": spend, "takes_part": 3, "used": 0.2, "s_points": points, "worst_q": 0.5}

    streams = [
        {"unpaid": [answer(0.5, -1.0), answer(0.5, -3.0)]},
        {"unpaid": [answer(1.0, -2.0), {"without_answer": "nobody"}]},
    ]
    path = tmp_path / "streams-digits.json"
    path.write_text(json.dumps({"federations": [{"budget": 2.0, "streams": made} for made in streams]}))
    rows = stream_table(path, (1, 2, 3)).rows
    assert rows == (
        (
            "unpaid",
            1,
            "2 of 2",
            "3.0 (3.0 to 3.0)",
            "20 (20 to 20)",
            "-1.5 (-2.0 to -1.0)",
            "+0.50 (+0.50 to +0.50)",
            "38 (25 to 50)",
        ),
        ("unpaid", 2, "1 of 2", "3.0", "20", "-3.0", "+0.50", "50"),
    )
    path.write_text("{}")
    with pytest.raises(FileFormatError, match="streams"):
        stream_table(path)
