"""The strategies build what they promise and reach the edges they seek."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stackfu as sf
from stackfu import testing


@given(testing.plays())
def test_plays_are_valid(play):
    game, p, x = play
    assert game.count >= 2
    assert game.check_payments(p) is not None
    assert game.profile(x).total > 0
    assert game.diameter >= 1 / 16 - 1e-9
    assert not game.is_homogeneous


@given(testing.plays(below_cost=True, interior=True))
def test_below_cost_and_interior_mean_it(play):
    game, p, x = play
    assert np.all(p < game.costs)
    assert np.all((x > 0) & (x < 1))


@given(testing.gram_matrices())
def test_gram_matrices_are_positive_semidefinite(gram):
    np.testing.assert_array_equal(gram, gram.T)
    assert np.linalg.eigvalsh(gram)[0] >= -1e-12


@given(testing.embeddings())
def test_embeddings_have_norm_at_most_one(emb):
    assert isinstance(emb, sf.MeanEmbeddings)
    assert np.all(emb.squared_norms <= 1 + 1e-12)


@given(testing.games(costs="proportional"))
def test_proportional_costs_share_one_kappa(game):
    assert np.ptp(game.kappa) <= 1e-9 * game.kappa.max()


@given(st.data())
def test_mixtures_and_budgets(data):
    game = data.draw(testing.games())
    z = data.draw(testing.mixtures(game))
    assert z.sum() == pytest.approx(1)
    assert np.all(z >= 0)
    assert 0 <= data.draw(testing.budgets(game)) <= 1.5 * game.full_participation_price


EDGES = {
    "same data": lambda g, p, x: g.geometry.pairwise[~np.eye(g.count, dtype=bool)].min() == 0,
    "nearly the same data": lambda g, p, x: (
        0 < g.geometry.pairwise[~np.eye(g.count, dtype=bool)].min() < 1e-7
    ),
    "tiny share": lambda g, p, x: g.alpha.min() < 1e-3,
    "paid its cost": lambda g, p, x: bool(np.any(p == g.costs)),
    "paid more": lambda g, p, x: bool(np.any(p > g.costs)),
    "out and full": lambda g, p, x: bool(np.any(x == 0) and np.any(x == 1)),
    "hardly in": lambda g, p, x: bool(np.any((x > 0) & (x < 1e-6))),
    "removed": lambda g, p, x: bool(g.removed),
    "gram": lambda g, p, x: g.embeddings.features is None,
}


def test_edges_are_reached():
    reached = set()

    @settings(max_examples=120, deadline=None, database=None, derandomize=True)
    @given(testing.plays())
    def look(play):
        reached.update(name for name, edge in EDGES.items() if edge(*play))

    look()
    assert reached == set(EDGES)


@given(testing.games(distinct=False, max_clients=2, max_removed=0))
def test_all_data_may_be_alike_when_asked_for(game):
    assert game.count == 2
