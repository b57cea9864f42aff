"""Many payment vectors in one call: every row is what a single call returns, and bad rows are named."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu.followers import at_once
from stackfu.results import Status, Uniqueness


def game_of(seed, count=5, names=None):
    rng = np.random.default_rng(seed)
    embeddings = sf.MeanEmbeddings.from_features(rng.normal(size=(count + 1, 3)), names=names)
    return sf.StackelbergGame(
        embeddings, rng.integers(1, 100, count + 1), removed=[names[0] if names else 0], cost_scale=3.0
    )


@given(st.integers(0, 2**32 - 1), st.sampled_from(["none", "one", "each", "zeros"]))
def test_every_row_equals_the_single_call(seed, limited):
    rng = np.random.default_rng(seed)
    game, rows = game_of(seed % 1000, int(rng.integers(2, 9))), int(rng.integers(1, 7))
    payments = game.costs * rng.uniform(0.0, 1.3, (rows, game.count))
    payments[0] = rng.choice([0.0, 1.0], game.count) * game.costs  # paid just its cost: faces and ties
    shape = {"none": None, "one": (game.count,), "each": (rows, game.count), "zeros": (rows, game.count)}[
        limited
    ]
    caps = None if shape is None else rng.uniform(0.05, 1.0, shape)
    if limited == "zeros":
        caps[:, 0] = 0.0
    batch = sf.equilibria_of(game, payments, caps=caps)
    assert len(batch) == rows
    for i in range(rows):
        most = caps if caps is None or caps.ndim == 1 else caps[i]
        try:
            single = game.equilibrium(payments[i], caps=most)
        except sf.NoEquilibriumError:  # only one client may take part
            assert batch.statuses[i] is Status.NO_EQUILIBRIUM
            continue
        assert batch[i] == single
        assert np.array_equal(batch.participation[i], single.participation)
        assert (batch.statuses[i], batch.uniqueness[i]) == (single.status, single.uniqueness)
        assert (batch.residuals[i], batch.regrets[i]) == (single.residual, single.regret)
        np.testing.assert_allclose(batch.server_losses[i], single.server_loss, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(batch.totals[i], single.total, rtol=1e-14)
        np.testing.assert_allclose(batch.spends[i], single.spend, rtol=1e-14)


def test_rows_on_several_threads_are_those_on_one(monkeypatch):
    game = game_of(3)
    payments = game.costs * np.random.default_rng(1).uniform(0.0, 1.2, (9, game.count))
    one = sf.equilibria_of(game, payments)
    monkeypatch.setattr(at_once, "ROWS_PER_BLOCK", 2)
    monkeypatch.setattr(at_once, "cores", lambda: 3)
    several = sf.equilibria_of(game, payments)
    assert several == one
    assert np.array_equal(several.participation, one.participation)


def test_many_games_of_different_sizes():
    games = [game_of(1, 3), game_of(2, 6), game_of(1, 3)]
    batch = sf.equilibria_of(games)
    assert [len(x) for x in batch.participation] == [3, 6, 3]
    assert [batch[i] for i in range(3)] == [game.equilibrium() for game in games]
    np.testing.assert_allclose(
        batch.server_losses, [game.equilibrium().server_loss for game in games], rtol=1e-12
    )
    paid = sf.equilibria_of(games[::2], [game.costs for game in games[::2]])
    assert paid.participation.shape == (2, 3)
    assert batch.game(1) is games[1]


def test_rows_by_name_and_tables():
    game = game_of(4, 3, names=["Hull", "Leeds", "York", "Ely"])
    by_name = sf.equilibria_of(game, [{"York": 0.1}, {"Ely": 0.2, "Leeds": 0.1}])
    assert by_name.payments.tolist() == [[0.0, 0.1, 0.0], [0.1, 0.0, 0.2]]
    frame = pd.DataFrame({"Ely": [0.0, 0.2], "York": [0.1, 0.0], "Leeds": [0.0, 0.1]})
    assert sf.equilibria_of(game, frame).payments.tolist() == by_name.payments.tolist()
    table = by_name.to_pandas()
    assert list(table["status"]) == ["CERTIFIED", "CERTIFIED"]
    assert table["total"].tolist() == by_name.totals.tolist()


def test_a_row_without_an_equilibrium_raises_when_it_is_asked_for():
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.ones((2, 1))), [1, 1], costs=[1.0, 1.0])
    batch = sf.equilibria_of(game, [[2.0, 0.0], [0.0, 0.0]])
    assert batch.statuses == (Status.CERTIFIED, Status.NO_EQUILIBRIUM)
    assert batch.uniqueness == (Uniqueness.UNIQUE, Uniqueness.UNKNOWN)
    assert np.isnan(batch.server_losses[1])
    assert np.isnan(batch.participation[1]).all()
    assert batch[0].participation.tolist() == [1.0, 0.0]
    with pytest.raises(sf.NoEquilibriumError, match="row 1: all clients own the same data"):
        batch[1]
    again = pickle.loads(pickle.dumps(batch))
    assert again == batch
    assert copy.deepcopy(batch) == batch
    with pytest.raises(sf.NoEquilibriumError, match="row 1"):
        again[-1]


@pytest.mark.parametrize(
    ("payments", "message"),
    [
        ([[0.0, 0.0], [0.0, -1.0]], r"payments\[row 1\]\[client 2\] = -1.0: must not be negative"),
        ([[0.0, np.nan]], r"payments\[row 0\]\[client 2\] = nan: must be finite"),
        ([[0.0, 0.0], [0.0, 0.0, 0.0]], r"payments\[row 1\]: needs 2 numbers"),
        ([0.0, 0.0], "payments: needs rows of 2 numbers"),
        (np.zeros((0, 2)), "payments: needs rows of 2 numbers"),
        (None, "payments: must have a row for each payment vector"),
        ([["a", "b"]], "payments"),
        ([{3: 1.0}], "payments"),
    ],
)
def test_bad_payments_are_named_by_row_and_client(payments, message):
    with pytest.raises(sf.InputError, match=message):
        sf.equilibria_of(game_of(1, 2), payments)


@pytest.mark.parametrize(
    ("caps", "message"),
    [
        ([[0.5, 0.5], [0.5, 1.5]], r"caps\[row 1\]\[client 2\] = 1.5: must lie in \[0, 1\]"),
        ([[0.5, 0.5], [0.0, 0.0]], r"caps\[row 1\] = 0: nothing is taken from anybody"),
        (np.ones((3, 2)), "caps: needs one row or 2"),
    ],
)
def test_bad_caps_are_named_by_row_and_client(caps, message):
    with pytest.raises(sf.InputError, match=message):
        sf.equilibria_of(game_of(1, 2), np.zeros((2, 2)), caps=caps)


@pytest.mark.parametrize(
    ("games", "payments", "message"),
    [
        (3, None, "games"),
        ([], None, "games"),
        ("two", [[0.0, 0.0]], "games"),
        ("one and none", None, r"games\[1\]"),
        ("two", [[0.0, -1.0], [0.0, 0.0]], r"payments\[row 0\]\[client 2\]"),
        ("two", [[0.0, 0.0]], "payments: must have a row for each of the 2 games"),
        ("two", [[0.0, 0.0], [0.0]], r"payments"),
    ],
)
def test_bad_games_are_named(games, payments, message):
    known = {"two": [game_of(1, 2), game_of(2, 2)], "one and none": [game_of(1, 2), None]}
    with pytest.raises(sf.InputError, match=message):
        sf.equilibria_of(known.get(games, games) if isinstance(games, str) else games, payments)


def test_a_row_is_asked_for_by_number():
    batch = sf.equilibria_of(game_of(1, 2), np.zeros((2, 2)))
    assert batch[-1] == batch[1]
    with pytest.raises(IndexError, match="row 2 of 2"):
        batch[2]
    with pytest.raises(sf.InputError, match="row"):
        batch["first"]
