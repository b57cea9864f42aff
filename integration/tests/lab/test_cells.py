from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.lab.cells import (
    FEDERASER,
    FEDOSD,
    HEAD,
    MODE,
    NOT,
    QUICKDROP,
    RETRAIN,
    SCRATCH,
    SIFU,
    CellKey,
    PlanKey,
)
from stackfu_integration.lab.mechanisms import BUDGETED
from stackfu_integration.lab.unlearning import FedEraser, FedOSD, MoDe, NoT, QuickDrop, Retrain, Sifu

plans = st.just(PlanKey.full()) | st.builds(PlanKey, st.sampled_from(BUDGETED), st.floats(1e-9, 10.0))
methods = st.sampled_from(["original", "retrain", "federaser", "mode", "quickdrop"])
cells = st.builds(CellKey, methods, st.none(), st.booleans()) | st.builds(
    CellKey, st.sampled_from([HEAD, SCRATCH]), plans, st.booleans()
)


@given(cells)
def test_a_key_read_back_is_the_key_that_was_written(key):
    assert CellKey.parse(str(key)) == key


@given(cells, cells)
def test_different_cells_have_different_names(a, b):
    assert (str(a) == str(b)) == (a == b)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (RETRAIN, "retrain"),
        (RETRAIN.with_backdoor(), "backdoor.retrain"),
        (CellKey(HEAD, PlanKey.full()), "head.full"),
        (CellKey(HEAD, PlanKey("certified-finite", 0.25)).by(SCRATCH), "scratch.certified-finite.0.25"),
        (CellKey(HEAD, PlanKey("haipo", 1 / 3), backdoor=True), "backdoor.head.haipo.0.333333"),
    ],
)
def test_names_are_those_of_the_files_that_exist(key, name):
    assert str(key) == name


@pytest.mark.parametrize(
    "text", ["", "head", "head.", "head.haipo", "head.haipo.x", "head.full.1", "retrain.full", "backdoor"]
)
def test_names_of_no_cell_are_refused(text):
    with pytest.raises(FileFormatError, match="names no"):
        CellKey.parse(text)


def test_a_cell_needs_a_mechanism_where_its_approach_does():
    with pytest.raises(InputError, match="needs a mechanism"):
        CellKey(HEAD)
    with pytest.raises(InputError, match="takes no mechanism"):
        CellKey("retrain", PlanKey.full())


def test_methods_and_their_cells_have_one_name():
    cells = {Retrain: RETRAIN, FedEraser: FEDERASER, MoDe: MODE, QuickDrop: QUICKDROP}
    cells |= {NoT: NOT, FedOSD: FEDOSD, Sifu: SIFU}
    assert all(method.name == key.method for method, key in cells.items())
