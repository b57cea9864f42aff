"""Effects of a sampling constant on the paper's statements."""

import numpy as np
import pytest
from hypothesis import given

import stackfu as sf
from stackfu import lemmas, testing
from stackfu.lemmas import Case, Verdict
from stackfu.lemmas.sampling_statements import SAMPLING


@pytest.mark.parametrize("name", SAMPLING)
@given(play=testing.plays(max_clients=4, sampling="some"))
def test_statement_holds_where_it_applies(name, play):
    case = Case.of(play.game, play.payments)
    if SAMPLING[name].applies(case):
        held = SAMPLING[name].holds(case)
        assert held, held.slack


@pytest.mark.parametrize("name", ["existence-with-samples", "nobody-falls", "homogeneous-with-samples"])
@given(play=testing.plays(distinct=False, max_clients=3, max_dimension=1, sampling="some"))
def test_statement_holds_where_all_data_may_be_alike(name, play):
    case = Case.of(play.game, play.payments)
    if SAMPLING[name].applies(case):
        assert SAMPLING[name].holds(case)


@pytest.mark.parametrize("name", [n for n, s in lemmas.ALL.items() if s.with_samples])
@given(play=testing.plays(max_clients=4, sampling="some"))
def test_statements_of_the_paper_that_survive(name, play):
    case = Case.of(play.game, play.payments)
    statement = lemmas.ALL[name]
    if name == "nash-equilibrium" or statement.applies(case):
        assert statement.holds(case)


@pytest.mark.parametrize("name", [n for n, s in SAMPLING.items() if s.verdict is Verdict.CORRECTED])
def test_what_is_corrected_has_a_counterexample(name):
    statement = SAMPLING[name]
    found = statement.refute()
    assert found.violation > 0
    case = Case.of(found.game, found.payments, found.participation)
    assert statement.applies(case, form="stated")
    assert not statement.holds(case, form="stated")
    assert not statement.applies(case) or statement.holds(case)


def test_statements_that_know_no_samples_say_that_they_do_not_apply():
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.array([[0.0, 0.0], [1.0, 0.0], [0.25, 1.0]])),
        [1, 2, 1],
        costs=[1.0, 1.0, 2.0],
        sampling_constant=0.5,
    )
    report = lemmas.report(game)
    assert "A = 0" in report["characterisation"].meaning
    assert report["existence"].holds
    assert "spectral radius" in report.convergence
