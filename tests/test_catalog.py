"""The reference games are correct: the known profiles satisfy the definition."""

from __future__ import annotations

import numpy as np
import pytest

import stackfu as sf
from stackfu import catalog


@pytest.mark.parametrize("entry", catalog.entries(), ids=lambda entry: entry.name)
def test_known_profiles_are_equilibria(entry):
    assert entry.story
    for x in entry.equilibria:
        record = sf.Equilibrium(
            entry.game,
            entry.payments,
            x,
            sf.Status.CONVERGED,
            entry.uniqueness,
            "",
            "known",
            entry.game.regret(entry.payments, x),
            entry.game.residual(entry.payments, x),
        )
        assert record.residual <= 1e-11
        assert record.verify(1e-9)
    assert list(entry.totals) == sorted(entry.totals)


def test_names_are_unique_and_callable():
    names = [entry.name for entry in catalog.entries()]
    assert len(set(names)) == len(names)
    assert all(getattr(catalog, name)().name == name for name in names)


@pytest.mark.parametrize("w", [(2.0, 8.0), (1.0, 1.0), (40.0, 3.0)])
@pytest.mark.parametrize("distance", [0.1, 1.0])
def test_two_clients_follow_the_closed_form(w, distance):
    entry = catalog.two_clients(w, distance)
    np.testing.assert_allclose(entry.game.equilibrium().participation, entry.equilibria[0], rtol=1e-12)


def test_two_clients_refuse_a_binding_cap():
    with pytest.raises(ValueError, match="cap"):
        catalog.two_clients((0.1, 0.1))


def test_seven_clients_have_the_stated_shape():
    game = catalog.seven_clients().game
    np.testing.assert_allclose(game.alpha, np.array(catalog.SEVEN_SHARES) / sum(catalog.SEVEN_SHARES))
    np.testing.assert_allclose(game.heterogeneity, catalog.SEVEN_HETEROGENEITIES)


def test_every_statement_that_fails_has_its_game_here():
    found = catalog.counterexamples()
    wrong = (sf.lemmas.Verdict.CORRECTED, sf.lemmas.Verdict.REFUTED)
    assert set(found) == {name for name, s in sf.lemmas.ALL.items() if s.verdict in wrong}
    for name, example in found.items():
        assert example.violation >= 0, name  # 0 where the paper claims a strict inequality
        assert len(example.payments) == len(example.participation) == example.game.count
