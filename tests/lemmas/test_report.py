"""The report on a user's own game, and the command that refutes."""

import json

import numpy as np
import pytest

import stackfu as sf
from stackfu import lemmas
from stackfu.lemmas.__main__ import main


def game(**options):
    emb = sf.MeanEmbeddings.from_features(np.array([[0.0, 0.0], [1.0, 0.0], [0.25, 1.0], [0.5, 0.5]]))
    return sf.StackelbergGame(emb, [1, 2, 1, 3], removed=[0], **options)


def test_report_has_a_row_a_statement_and_speaks_of_what_matters():
    found = lemmas.report(game())
    assert [row.name for row in found] == list(lemmas.ALL)
    assert len(found) == len(lemmas.ALL)
    for row in found:
        assert row.holds is None or row.holds, row.name
        assert row.meaning
        assert (row.slack == row.slack) is (row.holds is not None)
    text = str(found)
    for word in ("uniqueness:", "convergence:", "budgets:", "spectral radius"):
        assert word in text
    json.dumps(found.to_dict())


def test_report_at_given_payments_and_participation():
    g = game()
    p = g.payments_for([0.5, 0.5, 1.0])
    found = lemmas.report(g, p, [0.5, 0.5, 1.0])
    assert found["nash-equilibrium"].holds
    off = lemmas.report(g, p, [0.5, 0.5, 0.9])
    assert not off["nash-equilibrium"].holds
    assert not off["characterisation"].applies


def test_homogeneous_game_is_reported_as_such():
    g = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.ones((3, 1))), [1, 1, 1], costs=[1.0, 1.0, 1.0])
    found = lemmas.report(g)
    assert not found["existence"].applies
    assert "alike" in found.uniqueness
    paid = lemmas.report(g, [2.0, 0.0, 0.5])
    assert paid["existence"].holds
    assert paid["homogeneous-clients"].holds


def test_several_equilibria_are_reported():
    example = lemmas.ALL["uniqueness"].refute()
    found = lemmas.report(example.game, example.payments)
    row = found["uniqueness"]
    assert row.stated_applies
    assert not row.stated_holds
    assert not row.applies


def test_stackelberg_equilibrium_is_evaluated_when_asked():
    g = game(cost_scale=0.5)
    best = g.solve(None, payment_weight=1.0, gap=1e-4)
    row = lemmas.report(g, best.payments, best.participation, thorough=True)["stackelberg-equilibrium"]
    assert row.holds is None or row.slack >= -2e-4
    assert lemmas.report(g)["stackelberg-equilibrium"].holds is None


def test_convergence_radius_is_that_of_the_best_responses():
    """Finite differences of the simultaneous best responses in y at the equilibrium."""
    g = game(cost_scale=30.0)
    eq = g.equilibrium()
    inside = np.flatnonzero((eq.participation > 0) & (eq.participation < 1))
    jacobian = np.zeros((len(inside), len(inside)))
    step = 1e-7
    for column, j in enumerate(inside):
        up, down = np.array(eq.participation), np.array(eq.participation)
        up[j] += step / g.alpha[j]
        down[j] -= step / g.alpha[j]
        change = g.alpha * (g.best_response(None, up) - g.best_response(None, down)) / (2 * step)
        jacobian[:, column] = change[inside]
    np.fill_diagonal(jacobian, 0.0)
    radius = np.abs(np.linalg.eigvals(jacobian)).max()
    assert f"spectral radius {radius:.3g}" in lemmas.report(g).convergence


def test_too_many_clients_are_refused():
    emb = sf.MeanEmbeddings.from_features(np.random.default_rng(0).normal(size=(501, 2)))
    with pytest.raises(sf.InputError, match="up to 500"):
        lemmas.report(sf.StackelbergGame(emb, np.ones(501)))


def test_unknown_form_is_named():
    with pytest.raises(sf.InputError, match="form"):
        lemmas.ALL["existence"].holds(game(), form="wished")


def test_command_lists_and_refutes(capsys):
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in lemmas.ALL)
    assert main(["quasiconvexity", "uniqueness"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("violated by") == 3
    assert main(["no-such-lemma"]) == 2
    assert "quasiconvexity" in capsys.readouterr().err


@pytest.mark.parametrize("name", lemmas.ALL)
def test_every_statement_describes_itself(name):
    statement = lemmas.ALL[name]
    text = str(statement)
    assert statement.verdict.value in text
    assert statement.stated.text in text
    if statement.counterexample is None:
        with pytest.raises(sf.InputError):
            statement.refute()


def test_loss_gap_grows_against_the_square_as_the_models_come_closer():
    ratios = (
        lemmas.ALL["loss-difference-bound"].refute().facts["gap / squared distance at x_1 = 0.9, 0.99, 0.999"]
    )
    values = list(ratios.values())
    assert values[1] > 5 * values[0]
    assert values[2] > 5 * values[1]


def test_family_minimises_its_own_loss():
    family = lemmas.exponential.ClientFamily(game())
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    w = family.fit(weights)
    rng = np.random.default_rng(0)
    best = family.regularised(w, weights)
    for _ in range(20):
        assert family.regularised(w + 0.1 * rng.normal(size=len(w)), weights) > best
    # stationarity: expected features under the model plus reg w equal the mean
    scores = family.points @ w
    chance = np.exp(scores - family.log_partition(w))
    assert chance.sum() == pytest.approx(1)
    assert chance @ family.points + family.reg * w == pytest.approx(family.mean(weights), abs=1e-12)
