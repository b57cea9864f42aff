"""Paired comparisons: corrected for their number, with diverged runs as failures and no interval of three runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackfu_integration.lab.cells import CONVEX, CellKey, PlanKey
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.statistics import PRIMARY, Paired, benjamini_hochberg, paired, realised
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
