"""The theorems about offers as executable statements, on games that seek edges."""

import numpy as np
import pytest
from hypothesis import given, settings

from stackfu import testing
from stackfu.lemmas import Case
from stackfu.lemmas.offer_statements import OFFERS


@pytest.mark.parametrize("name", [n for n, s in OFFERS.items() if not s.expensive])
@given(play=testing.plays(max_clients=4, sampling="any"))
def test_statement_about_offers_holds_where_it_applies(name, play):
    game, _, x = play
    case = Case.of(game, None, x)
    if OFFERS[name].applies(case):
        held = OFFERS[name].holds(case)
        assert held, held.slack


@settings(max_examples=4)
@given(play=testing.plays(max_clients=3, interior=True))
def test_contracts_at_capped_payouts_are_accepted(play):
    game, _, x = play
    case = Case.of(
        game.replace(sampling_constant=0.1 * game.geometry.scale * float(game.sizes.sum())), None, x
    )
    assert OFFERS["accepted-contracts"].holds(case)


def test_every_statement_says_why_and_can_be_printed():
    for name, statement in OFFERS.items():
        assert name == statement.name
        assert statement.why in str(statement)
        assert np.isfinite(len(statement.stated.text))
