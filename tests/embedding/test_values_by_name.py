"""Values by name: dictionaries and series say the same as lists in the order of the clients."""

import numpy as np
import pytest

import stackfu as sf
from stackfu.embedding.names import ClientNames, by_name, listed
from stackfu.errors import InputError
from tests.embedding.references import clouds

NAMES = ("York", "Leeds", "Bath, Somerset", "Hull")
SIZES = dict(zip(NAMES, (40.0, 30.0, 20.0, 10.0), strict=True))


@pytest.fixture(scope="module")
def emb():
    return sf.MeanEmbeddings.from_samples(dict(zip(NAMES, clouds(0, [6, 5, 4, 7], 3), strict=True)))


@pytest.fixture(scope="module")
def game(emb):
    return sf.StackelbergGame(emb, list(SIZES.values()), removed="Leeds", cost_scale=1.0)


def test_sizes_and_costs_find_their_clients_by_name(emb, game):
    pandas = pytest.importorskip("pandas")
    back = dict(reversed(SIZES.items()))
    for sizes in (back, pandas.Series(back), pandas.Series(back).sort_index()):
        assert sf.StackelbergGame(emb, sizes, removed="Leeds", cost_scale=1.0) == game
    costs = dict(zip(game.names, game.costs, strict=True))
    assert game.replace(costs=dict(reversed(costs.items()))) == game
    assert game.replace(costs=pandas.Series(costs).sort_index()) == game
    counted = pandas.Series(list(SIZES.values()))  # an index that counts rows names no client
    with pytest.raises(InputError, match="names none of the clients"):
        sf.StackelbergGame(emb, counted, removed="Leeds", cost_scale=1.0)
    assert sf.StackelbergGame(emb, counted.to_numpy(), removed="Leeds", cost_scale=1.0) == game


def test_numbers_are_names_where_there_are_no_others():
    pandas = pytest.importorskip("pandas")
    emb = sf.MeanEmbeddings.from_features(np.eye(3))
    game = sf.StackelbergGame(emb, [3, 2, 1])
    assert sf.StackelbergGame(emb, {2: 1, 1: 2, 0: 3}) == game
    assert sf.StackelbergGame(emb, pandas.Series([1, 2, 3], index=[2, 1, 0])) == game
    rest = game.replace(removed=[0])
    assert rest.check_payments(pandas.Series([0.1, 0.2])).tolist() == [0.1, 0.2]
    assert rest.check_payments({2: 0.2}).tolist() == [0.0, 0.2]


def test_payments_caps_and_outside_utilities_by_name(game):
    pandas = pytest.importorskip("pandas")
    paid = game.equilibrium({"Hull": 0.05}, caps={"York": 0.5})
    assert paid.payments.tolist() == [0.0, 0.0, 0.05]
    assert paid.caps.tolist() == [0.5, 1.0, 1.0]
    shuffled = paid.to_pandas()[["payment", "participation"]].sort_index()
    again = game.equilibrium(shuffled["payment"], caps=paid.caps)
    assert again.participation.tolist() == paid.participation.tolist()
    assert game.server_loss(shuffled["participation"]) == paid.server_loss
    assert 3 not in game.cascade(outside={"Hull": 1.0}).stayed
    told = game.costs_from(shuffled["payment"], shuffled["participation"])
    assert told.low.tolist() == game.costs_from(paid.payments, paid.participation).low.tolist()
    groups = {name: name == "York" for name in reversed(game.names)}
    one = game.solve(0.05, method="grouped", groups=groups)
    two = game.solve(0.05, method="grouped", groups=pandas.Series([True, False, False], index=game.names))
    assert one.payments.tolist() == two.payments.tolist()
    assert len(set((one.payments / game.sizes)[1:].round(12).tolist())) == 1


def test_errors_name_who_is_not_there_missing_or_given_twice(emb, game):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match=r"sizes = 'Ripon': there is no such client; .*\"Bath, Somerset\""):
        sf.StackelbergGame(emb, {**SIZES, "Ripon": 1})
    with pytest.raises(InputError, match=r"sizes\[client Hull\]: is missing"):
        sf.StackelbergGame(emb, dict.fromkeys(NAMES[:3], 1))
    with pytest.raises(InputError, match=r"sizes\[client York\]: is given twice"):
        sf.StackelbergGame(emb, pandas.Series([1, 2, 3, 4], index=["York", "York", "Leeds", "Hull"]))
    with pytest.raises(
        InputError, match=r"payments = 'Leeds': there is no such remaining client, it was removed; .* York"
    ):
        game.equilibrium({"Leeds": 1.0})
    with pytest.raises(InputError, match=r"participation\[client Bath, Somerset\]: is missing"):
        game.server_loss({"York": 1.0, "Hull": 1.0})


def test_distances_by_name(emb):
    assert emb.distance("York", "Hull") == emb.distances()[0, 3]
    with pytest.raises(InputError, match="0 as a position would be 'York', but these clients have names"):
        emb.distance(0, 3)
    with pytest.raises(InputError, match=r"j = 'Ripon': there is no such client"):
        emb.distance("York", "Ripon")
    with pytest.raises(
        InputError, match="j = 'York'|i = 'York': there is no such client; the clients are 0, 1"
    ):
        sf.MeanEmbeddings.from_features(np.eye(2)).distance("York", 0)
    back = dict(reversed(SIZES.items()))
    assert emb.mixture_distance(back, [1, 1, 1, 1]) == emb.mixture_distance(
        list(SIZES.values()), [1, 1, 1, 1]
    )


def test_a_gram_with_names_on_both_sides_keeps_them(emb):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(emb.gram, index=NAMES, columns=NAMES)
    crossed = frame[sorted(NAMES)]  # rows and columns in different orders
    for table in (frame, crossed):
        found = sf.MeanEmbeddings.from_gram(table)
        assert found.names == NAMES
        assert found.distance("York", "Hull") == pytest.approx(emb.distance("York", "Hull"), rel=1e-9)
    assert sf.MeanEmbeddings.from_gram(pandas.DataFrame(emb.gram)).names is None
    with pytest.raises(InputError, match="must name the same clients"):
        sf.MeanEmbeddings.from_gram(frame.rename(columns={"York": "Ripon"}))
    with pytest.raises(InputError, match="names the clients already"):
        sf.MeanEmbeddings.from_gram(frame, names=list("abcd"))


def test_what_has_no_names_stays_as_it_is():
    for values in ([1, 2], (1, 2), np.ones(2), 3.0, None, "text"):
        assert by_name(values, "sizes", ClientNames(2, ("a", "b"))) is values


def test_listed_names_read_back_as_they_were_typed():
    from stackfu.cli.parsing import words

    names = ["York", "Bath, Somerset", 'the "big" one', '"', 'a, "b"', "O'Brien"]
    assert words(listed(names)) == names
    assert listed(names, most=1) == "York, ..."
