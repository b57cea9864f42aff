"""The client that is removed, paid or charged is the one that was named, in every spelling of its name."""

import json
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import stackfu as sf
from stackfu.cli import main
from stackfu.embedding.names import ClientNames, Position, by_name, resembling, rows_by_name, visible
from tests.properties.effort import share

pandas = pytest.importorskip("pandas")


@st.composite
def namings(draw, least=3, most=6):
    """Client names as they come in tables: shuffled integers, strings of digits, words, and mixtures of them."""
    count = draw(st.integers(least, most))
    kind = draw(st.sampled_from(["shuffled", "integers", "digits", "words", "mixed", "floats"]))
    if kind == "shuffled":
        return draw(st.permutations(range(draw(st.sampled_from([0, 1])), count + 1)))[:count]
    if kind == "integers":
        return draw(st.lists(st.integers(-3, 30), min_size=count, max_size=count, unique=True))
    if kind == "floats":
        found = draw(st.lists(st.integers(0, 20), min_size=count, max_size=count, unique=True))
        return [k / 2 for k in found]
    digits = st.from_regex(r"\A[0-9]{1,3}\Z")
    words = st.sampled_from(["York", "Hull", "Bath 2", "Leeds, West", "O'Brien", "ward 10", "ward 1"])
    pool = {"digits": digits, "words": words, "mixed": st.one_of(st.integers(0, 9), digits, words)}[kind]
    return draw(st.lists(pool, min_size=count, max_size=count, unique_by=str))


def embeddings(naming):
    return sf.MeanEmbeddings.from_features(dict(zip(naming, np.eye(len(naming)), strict=True)))


#: Every way in which people write the name of a client.
def spellings(name):
    ways = [name, str(name)]
    if isinstance(name, int):
        ways += [np.int64(name), np.int16(name), float(name), np.float64(name), np.array(name)]
        ways += [pandas.Series([name], dtype="Int64")[0], pandas.Index([name])[0]]
    if isinstance(name, float):
        ways += [np.float64(name), pandas.Series([name], dtype="Float64")[0]]
    if isinstance(name, str):
        ways += [np.str_(name), pandas.Series([name], dtype="string")[0], pandas.Categorical([name])[0]]
    return ways


def containers(name):
    """Every way in which people pass one client."""
    yield [name]
    yield (name,)
    yield {name}
    yield np.array([name])
    yield pandas.Series([name, name]).unique()[:1]
    yield pandas.Series([name], index=[7])
    yield pandas.Index([name])


def lone(naming):
    """Names that no other name equals as a number: "1" and "1.0" are two clients only as text."""
    values = [float(n) if _numeric(n) else n for n in naming]
    return [n for n, v in zip(naming, values, strict=True) if values.count(v) == 1]


def _numeric(name):
    text = str(name)
    return text.lstrip("+-").replace(".", "", 1).isdigit() and (
        len(text) < 2 or text[0] != "0" or "." in text
    )


@given(naming=namings(), data=st.data())
@share(0.6)
def test_the_client_that_is_removed_is_the_one_that_was_named(naming, data):
    emb = embeddings(naming)
    name = data.draw(st.sampled_from(naming))
    place = naming.index(name)
    assume(name in lone(naming) or isinstance(name, str))
    for way in spellings(name):
        assert sf.StackelbergGame(emb, [1] * len(naming), removed=way).removed == (place,)
        if not isinstance(way, np.ndarray):
            for held in containers(way):
                assert sf.StackelbergGame(emb, [1] * len(naming), removed=held).removed == (place,)
    assert emb.distance(name, naming[place - 1]) == emb.distance(str(naming[place - 1]), str(name))


def without(held, away):
    """Values of everyone but one client, in the same form."""
    if hasattr(held, "drop"):
        return held[[str(key) != str(away) for key in held.index]]
    return {key: value for key, value in held.items() if str(key) != str(away)}


@given(naming=namings(), data=st.data())
@share(0.4)
def test_values_go_to_the_client_that_was_named(naming, data):
    assume(len(lone(naming)) == len(naming))
    emb = embeddings(naming)
    count = len(naming)
    order = data.draw(st.permutations(range(count)))
    values = [10.0 * (k + 1) for k in range(count)]
    keys, given_ = [naming[k] for k in order], [values[k] for k in order]
    named = [
        dict(zip(keys, given_, strict=True)),
        dict(zip(map(str, keys), given_, strict=True)),
        pandas.Series(given_, index=pandas.Index(keys, name="client")),
        pandas.Series(given_, index=list(map(str, keys))),
        pandas.Series(given_, index=pandas.Index(keys, name="client")).astype("Float64"),
    ]
    away = data.draw(st.sampled_from(naming))
    rest = [values[k] for k in range(count) if naming[k] != away]
    for held in named:
        game = sf.StackelbergGame(emb, held, removed=[away], cost_scale=1.0)
        assert game.all_sizes.tolist() == values
        with pytest.warns(sf.StackfuWarning, match="of removed clients are ignored"):
            assert game.replace(costs=held).costs.tolist() == rest
        assert emb.mixture_distance(held, values) == 0.0
    for held in named:
        part = without(held, away)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert game.replace(costs=part).costs.tolist() == rest
            assert game.check_payments(part).tolist() == rest
    one = next(name for name in naming if name != away)
    place = [k for k in range(count) if naming[k] != away].index(naming.index(one))
    for way in spellings(one):
        if isinstance(way, np.ndarray):
            continue
        expected = [0.5 if k == place else 0.0 for k in range(count - 1)]
        assert game.check_payments({way: 0.5}).tolist() == expected
        assert game.check_payments(pandas.Series({way: 0.5}).rename_axis("client")).tolist() == expected
        assert game.check_caps({way: 0.5}).tolist() == [1.0 - x for x in expected]


@given(naming=namings(), data=st.data())
@share(0.4)
def test_a_series_that_counts_is_taken_only_where_names_and_positions_agree(naming, data):
    emb = embeddings(naming)
    values = data.draw(st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=len(naming), max_size=len(naming)))
    by_label = dict(enumerate(values))
    agree = all(by_label.get(_whole(n)) == v for n, v in zip(naming, values, strict=True))
    try:
        found = sf.StackelbergGame(emb, pandas.Series(values)).all_sizes.tolist()
    except sf.InputError as error:
        assert "could be names of clients or positions" in str(error) or "names none of the clients" in str(
            error
        )
        assert not agree
    else:
        assert found == values
        assert agree


def _whole(name):
    return int(float(name)) if _numeric(name) and float(name).is_integer() else name


@given(naming=namings(), data=st.data())
@share(0.4)
def test_requests_and_results_name_the_same_clients(naming, data):
    assume(len(lone(naming)) == len(naming))
    away = data.draw(st.lists(st.sampled_from(naming), min_size=1, max_size=len(naming) - 2, unique_by=str))
    game = sf.StackelbergGame(embeddings(naming), [1] * len(naming), removed=away[:1])
    again = game.replace(removed=[*game.removed, *away[1:]])
    assert set(again.removed_names) == {
        (str(int(n)) if isinstance(n, float) and n.is_integer() else str(n)) for n in away
    }
    assert again == game.replace(removed=away)
    if away[1:]:
        from stackfu.requests import without

        assert without(game, away[1:]).removed == again.removed


def clients(*names):
    return ClientNames(len(names), names)


def test_a_number_that_could_be_two_clients_is_refused_with_both():
    with pytest.raises(
        sf.InputError, match=r"removed = 1: could mean client '1' or client '1.0'; write the name as text"
    ):
        clients("1", "York", "1.0").position(1, "removed")
    assert clients("1", "York", "1.0").position("1.0", "removed") == 2
    assert clients("07", "7").positions([7, "07"], "removed") == (1, 0)


def test_a_number_that_is_no_name_is_refused_with_the_position_it_would_be():
    with pytest.raises(
        sf.InputError, match="removed = 0: .*; the clients are 1, 2, 3; 0 as a position would be '1', but"
    ):
        clients("1", "2", "3").position(0, "removed")
    with pytest.raises(sf.InputError, match="removed = 4: there is no such client; the clients are 0 to 3"):
        ClientNames(4).position(4, "removed")


def test_all_unknown_extra_and_missing_clients_are_listed():
    who = clients(*"abcd")
    with pytest.raises(
        sf.InputError, match="sizes = 'x', 'y': there are no such clients; the clients are a, b, c, d"
    ):
        by_name({"a": 1, "x": 1, "y": 2}, "sizes", who)
    with pytest.raises(sf.InputError, match="sizes: has no value for b, d"):
        by_name({"a": 1, "c": 1}, "sizes", who)
    many = {f"n{k}": 1 for k in range(20)}
    with pytest.raises(sf.InputError, match=r"'n11', \.\.\.: there are no such clients"):
        by_name(many, "sizes", who)
    rest = ClientNames(4, who.names, np.array([0, 1]))
    with pytest.raises(
        sf.InputError,
        match="costs = 'c': there is no such remaining client, it was removed; .* a, b",
    ):
        by_name({"a": 1, "b": 1, "c": 1}, "costs", rest)
    with pytest.raises(sf.InputError, match="client a.: is given twice"):
        by_name(pandas.Series([1, 2, 3, 4, 5], index=list("abcda")), "sizes", who)


def test_the_stumbles_of_integer_names():
    emb = sf.MeanEmbeddings.from_features(dict(zip([1, 2, 3, 4], np.eye(4), strict=True)))
    table = pandas.DataFrame({"client": [1, 2, 3, 4]})
    for removed in ([1], 1, table["client"].unique()[:1], {1}, np.int64(1), pandas.Series([1]), ["1"], 1.0):
        assert sf.StackelbergGame(emb, [1] * 4, removed=removed).removed_names == ("1",)
    with pytest.raises(sf.InputError, match="sizes = 5: there is no such client"):
        sf.StackelbergGame(emb, pandas.Series([10, 20, 30, 50], index=[5, 4, 3, 2]))
    with pytest.raises(
        sf.InputError, match="the index 0 to 3 of the series could be names of clients or positions"
    ):
        sf.StackelbergGame(emb, pandas.Series([10, 20, 30, 50]))
    shuffled = sf.MeanEmbeddings.from_features(dict(zip([2, 0, 1], np.eye(3), strict=True)))
    with pytest.raises(sf.InputError, match="client '2' would get 30 by name and 10 by position"):
        sf.StackelbergGame(shuffled, pandas.Series([10, 20, 30]))
    assert sf.StackelbergGame(shuffled, pandas.Series([5, 5, 5])).all_sizes.tolist() == [5, 5, 5]
    for bad in (True, None, 1.5, [[1]], b"1", float("nan"), {1: True}):
        with pytest.raises(sf.InputError, match="removed"):
            sf.StackelbergGame(emb, [1] * 4, removed=bad)


def test_a_column_that_counts_its_rows_names_no_client():
    """``read_csv("costs.csv")["cost"]`` has the numbers of the rows as index, whatever the order of the clients in them."""
    emb = sf.MeanEmbeddings.from_features(dict(zip(["York", "Hull", "Ely"], np.eye(3), strict=True)))
    table = pandas.DataFrame({"client": ["Ely", "York", "Hull"], "cost": [1.0, 2.0, 3.0]})
    with pytest.raises(
        sf.InputError,
        match=r"costs: the index 0 to 2 of the series names none of the clients, who are York, Hull, Ely; pass series.to_numpy",
    ):
        sf.StackelbergGame(emb, [1] * 3, costs=table["cost"])
    assert sf.StackelbergGame(emb, [1] * 3, costs=table.set_index("client")["cost"]).costs.tolist() == [
        2.0,
        3.0,
        1.0,
    ]
    bare = sf.MeanEmbeddings.from_features(np.eye(3))
    assert sf.StackelbergGame(bare, [1] * 3, costs=table["cost"]).costs.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "missing",
    [None, float("nan"), np.float32("nan"), pandas.NA, pandas.NaT, float("inf"), "", " \t", "\u200b"],
)
def test_a_missing_name_is_no_name(missing):
    with pytest.raises(sf.InputError, match=r"features\[client 1\] = .*: (a client has no name|is empty)"):
        sf.MeanEmbeddings.from_features({"York": np.eye(3)[0], missing: np.eye(3)[1], "Ely": np.eye(3)[2]})
    with pytest.raises(sf.InputError, match=r"names\[client 0\] = .*: (a client has no name|is empty)"):
        sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], names=[missing, "York"])


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", " 1"), ("York", "York "), ("New  York", "New York"), ("Orl\u00e9ans", "Orle\u0301ans"), ("York", "Yo\u200brk"),
     ("New York", "New\u00a0York"), ("York", "Y\u043erk"), ("ward 1", "ward \uff11"), ("final", "\ufb01nal")],
)  # fmt: skip
def test_names_that_look_the_same_are_refused(one, other):
    with pytest.raises(
        sf.InputError, match=r"features\[client 2\] = .*: looks the same as .*; mend these names"
    ):
        sf.MeanEmbeddings.from_features({one: np.eye(3)[0], "Hull": np.eye(3)[1], other: np.eye(3)[2]})
    alone = sf.MeanEmbeddings.from_features({one: np.eye(3)[0], "Hull": np.eye(3)[1], "Ely": np.eye(3)[2]})
    assert sf.StackelbergGame(alone, [1] * 3, removed=other).removed == (0,)


def test_whole_numbers_that_floating_point_confuses_are_refused():
    large = 2**53
    emb = sf.MeanEmbeddings.from_features(dict(zip([large, large + 1, 7], np.eye(3), strict=True)))
    assert sf.StackelbergGame(emb, [1] * 3, removed=large + 1).removed_names == (str(large + 1),)
    with pytest.raises(sf.InputError, match="removed = 9007199254740992.0: is too large for floating point"):
        sf.StackelbergGame(emb, [1] * 3, removed=float(large + 1))
    with pytest.raises(sf.InputError, match="too large for floating point to be exact; give it as text"):
        sf.MeanEmbeddings.from_features({float(large): np.eye(2)[0], "York": np.eye(2)[1]})


@pytest.mark.parametrize("names", [{"a", "b", "c"}, frozenset("abc"), {"a": 0, "b": 1, "c": 2}, "abc", 3])
def test_names_come_in_an_order(names):
    with pytest.raises(sf.InputError, match="names = .*: must be a sequence with one name per client"):
        sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1] * 3, names=names)


def test_names_from_a_series_are_in_the_order_of_the_clients():
    emb = sf.MeanEmbeddings.from_features(np.eye(3))
    shuffled = pandas.Series(["a", "b", "c"]).sort_values(ascending=False)
    with pytest.raises(sf.InputError, match=r"names = Series: has an index of its own; pass to_list\(\)"):
        sf.StackelbergGame(emb, [1] * 3, names=shuffled)
    for names in (shuffled.to_list(), shuffled.reset_index(drop=True), shuffled.to_numpy()):
        assert sf.StackelbergGame(emb, [1] * 3, names=names).names == ("c", "b", "a")


def test_names_of_the_embeddings_are_not_given_to_other_clients():
    emb = sf.MeanEmbeddings.from_features(dict(zip(["York", "Hull", "Ely"], np.eye(3), strict=True)))
    with pytest.raises(
        sf.InputError,
        match=r"names\[client 0\] = 'Hull': the embeddings name the clients already, and call this one 'York'",
    ):
        sf.StackelbergGame(emb, [1] * 3, names=["Hull", "York", "Ely"], removed="Hull")
    assert sf.StackelbergGame(emb, [1] * 3, names=["York", "Hull", "Ely"], removed="Hull").removed == (1,)
    game = sf.StackelbergGame(emb, [1] * 3, removed="York")
    other = sf.MeanEmbeddings.from_features(dict(zip(["Hull", "York", "Ely"], np.eye(3), strict=True)))
    with pytest.raises(
        sf.InputError, match="embeddings = Hull, York, Ely: name other clients than this game"
    ):
        game.replace(embeddings=other)
    bare = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1] * 3, removed=0)
    with pytest.raises(
        sf.InputError, match="embeddings = Hull, York, Ely: name other clients than this game"
    ):
        bare.replace(embeddings=other)
    assert game.replace(embeddings=sf.MeanEmbeddings.from_features(2 * np.eye(3))).removed_names == ("York",)


def test_a_table_of_clients_is_no_list_of_clients():
    emb = sf.MeanEmbeddings.from_features(dict(zip("abc", np.eye(3), strict=True)))
    with pytest.raises(sf.InputError, match="removed = DataFrame: is a table; pass one of its columns"):
        sf.StackelbergGame(emb, [1] * 3, removed=pandas.DataFrame({"a": [1]}))


@given(naming=namings(), data=st.data())
@share(0.3)
def test_positions_that_a_game_gives_stay_positions(naming, data):
    away = data.draw(st.sampled_from(naming))
    assume(away in lone(naming) or isinstance(away, str))
    game = sf.StackelbergGame(embeddings(naming), [1] * len(naming), removed=away)
    k = data.draw(st.integers(0, game.count - 1))
    assume(game.count > 2)
    for removed in (
        game.remaining[k],
        game.remaining[k : k + 1],
        [game.remaining[k]],
        list(game.remaining)[k],
    ):
        assert game.replace(removed=removed).removed_names == (game.names[k],)
    assert type(game.remaining + 1) is np.ndarray
    assert repr(game.remaining).startswith("array([")
    again = pickle.loads(pickle.dumps(game.remaining))
    assert (again == game.remaining).all()
    assert isinstance(again[0], Position)


def test_rows_of_values_name_clients_in_their_columns():
    who = clients("b", "a")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    assert np.asarray(rows_by_name(frame, "payments", who)).tolist() == [[3.0, 1.0], [4.0, 2.0]]
    rows = [{"a": 1.0, "b": 3.0}, pandas.Series({"b": 4.0, "a": 2.0})]
    assert rows_by_name(rows, "payments", who) == [[3.0, 1.0], [4.0, 2.0]]
    with pytest.raises(sf.InputError, match="payments: is a table|payments = DataFrame: is a table"):
        by_name(frame, "payments", who)


def test_series_by_name_are_refused_where_no_names_are_known():
    offers = sf.Offers.linear(np.array([1.0, 2.0]))
    series = pandas.Series([0.5, 1.0], index=["York", "Hull"])
    with pytest.raises(
        sf.InputError, match="participation = Series: must be one number per client in their order; its index"
    ):
        offers.payouts(series)
    assert offers.payouts(series.reset_index(drop=True)).tolist() == [0.5, 2.0]
    frame = pandas.DataFrame([[0.5, 0.5]], columns=["York", "Hull"])
    with pytest.raises(
        sf.InputError, match="mixtures = DataFrame: must be one share per original client in their order"
    ):
        sf.ServerLoss.to_mixtures(frame, [1.0])
    table = pandas.DataFrame({"client": ["a", "b"], "x": [1.0, 2.0]})
    with pytest.raises(sf.InputError, match="labels: has another index than the table"):
        sf.MeanEmbeddings.from_samples(table, labels=pandas.Series(["p", "q"], index=[1, 0]), kernel="joint")
    features, counts = np.eye(2), pandas.DataFrame([[1, 2], [2, 1]], index=["b", "a"])
    with pytest.raises(
        sf.InputError, match="counts: must name the clients of the features, in the same order"
    ):
        sf.MeanEmbeddings.from_class_features(features, counts, names=["a", "b"])


def test_observed_pilots_and_answers_find_their_clients_in_tables():
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(dict(zip("dabc", np.eye(4), strict=True))),
        [9, 4, 3, 5],
        removed=["d"],
        costs=[1.0] * 3,
    )
    rng = np.random.default_rng(0)
    pilots = pandas.DataFrame(rng.uniform(0.2, 1.0, size=(5, 3)), columns=list("abc"))
    changes = pandas.DataFrame(rng.normal(size=(5, 3)), columns=list("abc"))
    fitted = game.calibrate(pilots.to_numpy(), changes.to_numpy())
    again = game.calibrate(pilots[list("cab")], changes[list("bca")])
    assert again.loss_constant == pytest.approx(fitted.loss_constant, rel=1e-9)
    assert again.sampling_constant == pytest.approx(fitted.sampling_constant, rel=1e-9)
    equilibrium = game.equilibrium({"b": 0.5})
    answers = pandas.DataFrame([equilibrium.participation], columns=list("abc"))
    paid = pandas.DataFrame([equilibrium.payments], columns=list("abc"))
    told = game.costs_from(paid[list("cba")], answers[list("bac")])
    assert told == game.costs_from(equilibrium.payments, equilibrium.participation)


@pytest.mark.parametrize("names", [[1, 2, 3, 4], [3, 0, 2, 1], [10, 7, 8, 9]])
def test_the_command_line_removes_and_pays_the_client_that_was_named(names, tmp_path, capsys):
    rows = [f"{name},{x},{k}" for k, name in enumerate(names) for x in (0.1 * k, 0.5 + k)]
    (tmp_path / "t.csv").write_text("\n".join(["client,a,b", *rows]) + "\n")
    file = str(tmp_path / "g.json")
    for name in map(str, names):
        assert main(["embed", str(tmp_path / "t.csv"), "--removed", name, "-o", file]) == 0
        game = sf.load(file)
        assert game.removed_names == (name,)
        paid = game.names[1]
        capsys.readouterr()
        assert main(["equilibria", file, "--payments", f"{paid}=0.25", "--json"]) in (0, 1)
        record = json.loads(capsys.readouterr().out)
        assert dict(zip(record["names"], record["payments"], strict=True)) == {
            n: 0.25 * (n == paid) for n in game.names
        }
    assert main(["embed", str(tmp_path / "t.csv"), "--removed", "6", "-o", file]) == 2
    assert "there is no such client; the clients are" in " ".join(capsys.readouterr().err.split())


def test_positions_of_results_stay_positions():
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(dict(zip([2, 0, 1, 3], np.eye(4), strict=True))),
        [1] * 4,
        removed=[2],
        costs=[1.0] * 3,
    )
    assert game.removed == (0,)
    assert isinstance(game.removed[0], Position)
    assert game.replace(removed=[*game.removed, 0]).removed_names == ("2", "0")
    departed = game.cascade(outside={0: 10.0, 1: -10.0, 3: -10.0}).departed
    assert game.replace(removed=departed).removed_names == ("0",)


def test_the_command_line_refuses_a_name_that_could_be_several(tmp_path, capsys):
    for name, names in (("several.csv", ["x,y", "x", "y", "z"]), ("one.csv", ["x,y", "x", "z", "w"])):
        rows = [f'"{name}",{k},{k * k}' for k, name in enumerate(names * 2)]
        (tmp_path / name).write_text("client,a,b\n" + "\n".join(rows) + "\n")
    file = str(tmp_path / "g.json")
    assert main(["embed", str(tmp_path / "several.csv"), "--removed", "x,y", "-o", file]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--removed = 'x,y': could mean client 'x,y' or clients 'x' and 'y'" in said
    for typed, gone in (('"x,y"', ("x,y",)), ("x, y", ("x", "y")), ('"x,y",x', ("x,y", "x"))):
        assert main(["embed", str(tmp_path / "several.csv"), "--removed", typed, "-o", file]) == 0
        assert set(sf.load(file).removed_names) == set(gone)
    assert main(["embed", str(tmp_path / "one.csv"), "--removed", "x,y", "-o", file]) == 0
    assert sf.load(file).removed_names == ("x,y",)


@pytest.mark.parametrize(
    "client",
    [
        np.array([1.0, np.nan, 2.0, 3.0]), np.array(["a", "NA", "b", "c"]), np.array(["a", "", "b", "c"]),
        np.array(["1", " 1", "b", "c"]), np.array([9007199254740992.0, 9007199254740994.0, 3.0, 4.0]),
    ],
)  # fmt: skip
def test_the_command_line_refuses_clients_without_a_name_of_their_own(client, tmp_path, capsys):
    np.savez(tmp_path / "t.npz", client=client, a=np.arange(4.0), b=np.arange(4.0) ** 2)
    assert main(["embed", str(tmp_path / "t.npz"), "-o", str(tmp_path / "g.json")]) == 2
    said = capsys.readouterr().err
    assert (
        "has no client in row 2" in said
        or "looks the same as" in said
        or "too large for floating point" in said
    )
    assert not (tmp_path / "g.json").exists()


def test_columns_of_bytes_and_of_whole_floats_name_clients_as_text_does(tmp_path):
    for client, names in (
        (np.array([b"York", b"Hull", b"Ely"]), ("Ely", "Hull", "York")),
        (np.array([10.0, 2.0, 3.5]), ("2", "3.5", "10")),
    ):
        np.savez(tmp_path / "t.npz", client=client, a=np.arange(3.0), b=np.arange(3.0) ** 2)
        assert main(["embed", str(tmp_path / "t.npz"), "-o", str(tmp_path / "g.json")]) == 0
        assert sf.load(tmp_path / "g.json").all_names == names


@pytest.mark.parametrize("name", ["\x1b[2KYork", "York\x08", "\u202ekroY", "Hull\u2067", "\x00"])
def test_names_that_a_terminal_shows_as_others_are_refused(name):
    with pytest.raises(
        sf.InputError, match=r"features\[client 1\] = .*(holds control characters|is empty)"
    ) as error:
        sf.MeanEmbeddings.from_features({"Hull": np.eye(2)[0], name: np.eye(2)[1]})
    assert name not in str(error.value)


@pytest.mark.parametrize(
    ("gone", "stays"),
    [
        ("York", "york"),
        ("St. Albans", "St Albans"),
        ("ward-01", "Ward 1"),
        ("Zürich", "Zurich"),
        ("007", 7),
        ("a  b", "a_b"),
    ],
)
def test_a_client_that_stays_with_nearly_the_name_of_one_that_goes_is_pointed_out(gone, stays):
    emb = sf.MeanEmbeddings.from_features(dict(zip([gone, stays, "Hull", "Ely"], np.eye(4), strict=True)))
    with pytest.warns(
        sf.StackfuWarning, match=f"client '{gone}' is removed and '{stays}' stays; .* remove both"
    ):
        game = sf.StackelbergGame(emb, [1] * 4, removed=gone)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert game.replace(lambda_q=2.0).removed_names == (gone,)  # nobody is named here
        assert sf.StackelbergGame(emb, [1] * 4, removed=[gone, stays]).count == 2
        assert sf.StackelbergGame(emb, [1] * 4, removed="Hull").count == 3
    with pytest.warns(sf.StackfuWarning, match="remove both"):
        sf.Requests(sf.StackelbergGame(emb, [1] * 4), 1.0).remove([gone], method="uniform")


@given(
    names=st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=1), data=st.data()
)
def test_what_is_seen_of_a_name_does_not_change_when_it_is_looked_at_again(names, data):
    (name,) = names
    assert visible(visible(name)) == visible(name)
    assert resembling(visible(name)) == resembling(name)
    if name.isascii():
        assert visible(name) == " ".join(name.split())


@pytest.mark.parametrize(
    ("typed", "meant"), [("york", "York"), (7, "007"), ("st albans", "St. Albans"), ("007.", "007")]
)
def test_an_unknown_name_that_is_nearly_known_is_refused_with_the_one_that_is(typed, meant):
    emb = sf.MeanEmbeddings.from_features(dict(zip(["York", "007", "St. Albans"], np.eye(3), strict=True)))
    with pytest.raises(sf.InputError, match=f"there is no such client; .*; is '{meant}' meant"):
        sf.StackelbergGame(emb, [1] * 3, removed=typed)


def test_errors_about_removed_clients_name_them():
    emb = sf.MeanEmbeddings.from_features(dict(zip(["York", "Hull"], np.eye(2), strict=True)))
    with pytest.raises(sf.InputError, match=r"removed = \('Hull',\): only client York is left"):
        sf.StackelbergGame(emb, [1] * 2, removed="Hull")


@pytest.mark.parametrize("typed", ["", "  ", ","])
def test_the_command_line_refuses_to_forget_nobody(typed, tmp_path, capsys):
    (tmp_path / "t.csv").write_text("client,a\nYork,1\nHull,2\nEly,3\n")
    assert main(["embed", str(tmp_path / "t.csv"), "--removed", typed, "-o", str(tmp_path / "g.json")]) == 2
    assert "names nobody; leave it out if nobody is to be forgotten" in " ".join(
        capsys.readouterr().err.split()
    )
    assert not (tmp_path / "g.json").exists()


def test_the_command_line_shows_names_without_their_types(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("client,a\nYork,1\nYork ,2\nEly,3\n")
    assert main(["embed", str(tmp_path / "t.csv"), "-o", str(tmp_path / "g.json")]) == 2
    assert "= 'York ': looks the same as 'York', and" in " ".join(capsys.readouterr().err.split())
