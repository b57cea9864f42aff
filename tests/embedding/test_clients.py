"""Samples by name: dictionaries and tables."""

import pickle
import subprocess
import sys
import warnings
from itertools import chain

import numpy as np
import pytest

import stackfu as sf
from stackfu.cli import main
from stackfu.embedding import MeanEmbeddings, median_bandwidth
from stackfu.errors import InputError
from tests.embedding.references import clouds

X = clouds(0, [6, 5, 4], 3)
Y = [["b", "a"] * 3, ["b"] * 5, ["c", "a", "a", "a"]]
NAMES = ("Bath", "Leeds", "York")


def table(pandas, shuffled=True):
    frame = pandas.DataFrame(np.concatenate(X), columns=["u", "v", "w"])
    frame["town"] = np.repeat(NAMES, [6, 5, 4])
    frame["kind"] = list(chain.from_iterable(Y))
    order = np.concatenate([[11, 6, 0], np.delete(np.arange(15), [0, 6, 11])[::-1]])
    return frame.iloc[order] if shuffled else frame


@pytest.mark.parametrize("kernel", ["rbf", "labels", "joint"])
def test_dictionaries_and_tables_say_the_same_as_lists(kernel):
    pandas = pytest.importorskip("pandas")
    seen = kernel != "rbf"
    wide = {} if kernel == "labels" else {"bandwidth": 2.0}
    by_list = MeanEmbeddings.from_samples(X, labels=Y if seen else None, kernel=kernel, names=NAMES, **wide)
    assert by_list.names == NAMES
    pairs = dict(zip(NAMES, X, strict=True)), dict(zip(reversed(NAMES), reversed(Y), strict=True))
    by_name = MeanEmbeddings.from_samples(pairs[0], labels=pairs[1] if seen else None, kernel=kernel, **wide)
    assert by_name == by_list
    frame = table(pandas) if seen else table(pandas).drop(columns="kind")
    labels = "kind" if seen else None
    by_row = MeanEmbeddings.from_samples(frame, client="town", labels=labels, kernel=kernel, **wide)
    assert by_row.names == NAMES
    np.testing.assert_allclose(by_row.gram, by_list.gram, atol=1e-14)
    if seen:  # one label per row, in addition to the table
        frame = table(pandas)
        beside = MeanEmbeddings.from_samples(
            frame.drop(columns="kind"), client="town", labels=frame["kind"], kernel=kernel, **wide
        )
        assert beside == by_row
    if kernel == "labels":  # other columns need not be numbers
        frame["remark"] = "fine"
        assert MeanEmbeddings.from_samples(frame, client="town", labels="kind", kernel=kernel) == by_row
        assert MeanEmbeddings.from_samples(None, labels=pairs[1], kernel=kernel).names == NAMES[::-1]


def test_the_bandwidth_of_a_table():
    pandas = pytest.importorskip("pandas")
    frame = table(pandas).drop(columns="kind")
    assert median_bandwidth(frame, client="town") == pytest.approx(float(median_bandwidth(X)), rel=1e-14)
    assert median_bandwidth(dict(zip(NAMES, X, strict=True))) == median_bandwidth(X)


def test_names_belong_to_the_value():
    plain = MeanEmbeddings.from_features(np.eye(3))
    named = MeanEmbeddings.from_features(np.eye(3), names=NAMES)
    assert plain.names is None
    assert named != plain
    assert named == MeanEmbeddings.from_features(dict(zip(NAMES, np.eye(3), strict=True)))
    assert hash(named) == hash(MeanEmbeddings.from_features(np.eye(3), names=list(NAMES)))
    assert pickle.loads(pickle.dumps(named)) == named
    assert pickle.loads(pickle.dumps(named)).names == NAMES
    assert MeanEmbeddings.from_gram(np.eye(3), names=NAMES).names == NAMES
    counts = dict(zip(NAMES, np.eye(3) + 1, strict=True))
    assert MeanEmbeddings.from_counts(counts).names == NAMES
    assert MeanEmbeddings.from_samples({1: X[0], 2: X[1]}, 1.0).names == ("1", "2")


def test_counts_from_a_cross_table():
    pandas = pytest.importorskip("pandas")
    frame = table(pandas)
    emb = MeanEmbeddings.from_counts(pandas.crosstab(frame["town"], frame["kind"]))
    assert emb.names == ("Bath", "Leeds", "York")
    same = MeanEmbeddings.from_samples(None, labels=Y, kernel="labels")
    np.testing.assert_allclose(emb.distances(), same.distances(), atol=1e-14)


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_files_keep_names_kernel_and_self_similarity(tmp_path, ending):
    for emb in (
        MeanEmbeddings.from_samples(X, 2.0, labels=Y, kernel="joint", names=NAMES),
        MeanEmbeddings.from_samples(X, 2.0, 12, labels=Y, kernel="joint", names=NAMES),
        MeanEmbeddings.from_samples(None, labels=Y, kernel="labels"),
        MeanEmbeddings.from_samples(X, 2.0, names=NAMES),
        MeanEmbeddings.from_gram(np.eye(3), self_similarity=[1, 2, 3]),
    ):
        game = sf.StackelbergGame(emb, [6, 5, 4])
        path = tmp_path / f"game.{ending}"
        game.save(path)
        back = sf.load(path)
        assert back.embeddings == emb
        assert back.embeddings.names == emb.names
        assert back.embeddings.kernel == emb.kernel
        assert np.array_equal(back.embeddings.distances(), emb.distances())
        assert back.equilibrium().participation.tolist() == game.equilibrium().participation.tolist()


def test_files_from_before_there_were_kernels(tmp_path):
    import json

    game = sf.StackelbergGame(MeanEmbeddings.from_samples(X, 2.0), [6, 5, 4])
    path = tmp_path / "game.json"
    game.save(path)
    record = json.loads(path.read_text())
    for key in ("names", "kernel", "self_similarity"):
        del record["embeddings"][key]
    path.write_text(json.dumps(record))
    assert sf.load(path).embeddings == game.embeddings


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        ({"a": X[0], "b": np.empty((0, 3))}, {}, r"samples\[client b\]: is empty"),
        ({"a": X[0], "b": X[1][:, :2]}, {}, r"samples\[client b\]: has 2 columns, but client a has 3"),
        ({1: X[0], "1": X[1]}, {}, r"samples\[client 1\] = '1': two clients have this name"),
        ({" ": X[0]}, {}, r"samples\[client 0\].*is empty"),
        ({}, {}, "at least one client"),
        ({"a": X[0]}, {"names": ["a"]}, "names the clients already"),
        ({"a": X[0]}, {"labels": [Y[0]], "kernel": "joint"}, "must be a dictionary"),
        ({"a": X[0]}, {"labels": {}, "kernel": "joint"}, r"labels\[client a\]: are missing"),
        ({"a": X[0]}, {"labels": {"a": Y[0], "b": Y[1]}, "kernel": "joint"}, r"labels\[client b\].*no samples"),
        ({"a": X[0]}, {"labels": {"a": Y[1]}, "kernel": "joint"}, r"labels\[client a\]: 5 labels for 6"),
        (X, {"names": ["a", "b"]}, "names = 2: must hold one name per client"),
        (X, {"names": "abc"}, "one name per client"),
        (X, {"client": "town"}, "client = 'town'.*not a DataFrame"),
    ],
)  # fmt: skip
def test_refusals_name_the_client(samples, options, message):
    with pytest.raises(InputError, match=message):
        MeanEmbeddings.from_samples(samples, 1.0, **options)


def without_a_client(frame):
    frame = frame.reset_index(drop=True)
    frame.loc[4, "town"] = None
    return frame


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda f: f, {"client": "city"}, "client = 'city': there is no such column; the table has u, v, w"),
        (lambda f: f, {"client": "town"}, "column 'kind' has dtype .*no numbers"),
        (without_a_client, {"client": "town"}, "column 'town' has no client in row 5"),
        (lambda f: f.iloc[:0], {"client": "town"}, "no rows"),
        (lambda f: f, {"client": "town", "labels": "sort", "kernel": "joint"}, "labels = 'sort': there is no"),
        (lambda f: f, {"client": "town", "labels": [1, 2], "kernel": "joint"}, "one label per row"),
        (lambda f: f[["town", "kind"]], {"client": "town", "labels": "kind", "kernel": "joint"}, "no column of samples"),
        (lambda f: f.assign(kind=[None] + ["a"] * 14), {"client": "town", "labels": "kind", "kernel": "joint"},
         "labels: column 'kind' has no label in row 1"),
        (lambda f: f.assign(u=np.nan), {"client": "town", "labels": "kind", "kernel": "joint"},
         "row 1 of column 'u' is missing, and 15 of 15 rows have gaps"),
        (lambda f: f, {"client": "town", "names": NAMES}, "names the clients already"),
    ],
)  # fmt: skip
def test_refusals_of_tables(change, options, message):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match=message):
        MeanEmbeddings.from_samples(change(table(pandas)), 1.0, **options)


def test_clients_of_a_table_are_numbered_as_on_the_command_line(tmp_path):
    pandas = pytest.importorskip("pandas")
    from stackfu.cli.sample_files import read_samples

    for owners in (["ward 10", "ward 2", "Hull", "ward 10"], [10, 2, 33, 2], ["a", "B", "b", "a"]):
        frame = pandas.DataFrame({"client": owners, "x": [1.0, 2.0, 4.0, 8.0]})
        frame.to_csv(tmp_path / "t.csv", index=False)
        emb = MeanEmbeddings.from_samples(frame, 1.0)
        assert emb.names == read_samples(tmp_path / "t.csv").names


@pytest.mark.parametrize("broken", ["x", "client"])
def test_rows_of_a_table_are_counted_as_on_the_command_line(tmp_path, broken):
    pandas = pytest.importorskip("pandas")
    from stackfu.cli.sample_files import read_samples

    frame = pandas.DataFrame({"client": ["b", "a", "b", "a"], "x": [1.0, 2.0, 4.0, 8.0]})
    frame.loc[2, broken] = np.nan if broken == "x" else None
    frame.to_csv(tmp_path / "t.csv", index=False, na_rep="nan" if broken == "x" else "")
    said = []
    for read in (lambda: MeanEmbeddings.from_samples(frame, 1.0), lambda: read_samples(tmp_path / "t.csv")):
        with pytest.raises(InputError) as refused:
            read()
        said.append(refused.value.problem.split(".csv: ")[-1])
    assert said[0] == said[1]
    assert "row 3" in said[0]


def test_embedded_samples_know_how_many_they_were():
    emb = MeanEmbeddings.from_samples(X, 1.0)
    assert emb.sample_counts == pickle.loads(pickle.dumps(emb)).sample_counts == (6, 5, 4)
    assert MeanEmbeddings.from_samples(None, labels=Y, kernel="labels").sample_counts == (6, 5, 4)
    assert sf.StackelbergGame(emb, removed=[0]).all_sizes.tolist() == [6, 5, 4]
    with pytest.raises(InputError, match="sizes: must say how much data each client has"):
        sf.StackelbergGame(MeanEmbeddings.from_features(np.eye(3)))


def test_neither_pandas_nor_torch_is_imported():
    code = (
        "import sys, numpy as np, stackfu as sf\n"
        "x = {'a': np.zeros((2, 1)), 'b': np.ones((2, 1))}\n"
        "sf.MeanEmbeddings.from_samples(x, 1.0, 8, labels={'a': [0, 1], 'b': [1, 1]}, kernel='joint')\n"
        "assert not {'pandas', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_column_that_names_nearly_every_row_is_pointed_out(tmp_path, capsys):
    pandas = pytest.importorskip("pandas")

    rows = pandas.DataFrame(
        {"patient": [f"p{k % 27}" for k in range(32)], "ward": ["a", "b"] * 16, "x": np.arange(32.0)}
    )
    said = "client column 'patient' names 27 clients in 32 rows"
    with pytest.warns(sf.StackfuWarning, match=said):
        sf.MeanEmbeddings.from_samples(rows.drop(columns="ward"), client="patient")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sf.MeanEmbeddings.from_samples(rows.drop(columns="patient"), client="ward")
    rows.to_csv(tmp_path / "t.csv", index=False)
    typed = [
        "embed",
        str(tmp_path / "t.csv"),
        "--client",
        "patient",
        "--drop",
        "ward",
        "-o",
        str(tmp_path / "g.json"),
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert main(typed) == 0
    shown = [str(w.message) for w in caught if issubclass(w.category, sf.StackfuWarning)]
    assert said in " ".join([*shown, *capsys.readouterr().err.split()])
