"""Gaps filled or left out, columns on one scale: against the definition, alike for arrays, dictionaries and tables."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import stackfu as sf
from stackfu.errors import InputError, StackfuWarning

nan = np.nan


@st.composite
def federations(draw):
    """Clients with gaps, at least one value in every column."""
    width = draw(st.integers(1, 4))
    clients = [
        draw(
            arrays(
                np.float64,
                (draw(st.integers(1, 6)), width),
                elements=st.one_of(st.floats(-1e6, 1e6), st.just(nan)),
            )
        )
        for _ in range(draw(st.integers(1, 4)))
    ]
    together = np.concatenate(clients)
    for j in np.flatnonzero(np.isnan(together).all(axis=0)):
        clients[0][0, j] = draw(st.floats(-1e6, 1e6))
    return clients


def slow_median(clients, k, j):
    own = [v for v in clients[k][:, j].tolist() if v == v]
    return float(np.median(own or [v for one in clients for v in one[:, j].tolist() if v == v]))


@settings(deadline=None)
@given(federations())
def test_medians_are_the_clients_own(clients):
    found = sf.prepare_samples(clients, missing="median")
    for k, one in enumerate(clients):
        for i in range(len(one)):
            for j in range(one.shape[1]):
                expected = slow_median(clients, k, j) if np.isnan(one[i, j]) else one[i, j]
                assert found.samples[k][i, j] == expected
        assert found.filled[k].tolist() == np.isnan(one).sum(axis=0).tolist()
        assert found.borrowed[k].tolist() == np.isnan(one).all(axis=0).tolist()
    assert found.counts == found.rows == tuple(map(len, clients))


@settings(deadline=None)
@given(federations())
def test_rows_with_gaps_are_left_out_and_counted(clients):
    kept = [one[[not np.isnan(row).any() for row in one]] for one in clients]
    if not all(map(len, kept)):
        with pytest.raises(InputError, match=r"missing\[client \d\] = 'drop': no row of this client"):
            sf.prepare_samples(clients, missing="drop")
        return
    found = sf.prepare_samples(clients, missing="drop")
    for one, expected in zip(found.samples, kept, strict=True):
        np.testing.assert_array_equal(one, expected)
    assert [a - b for a, b in zip(found.rows, found.dropped, strict=True)] == [len(one) for one in kept]


@settings(deadline=None)
@given(federations(), st.floats(0.01, 100.0), st.floats(-100.0, 100.0))
def test_standardised_columns_have_mean_0_and_spread_1_whatever_the_unit(clients, factor, offset):
    found = sf.prepare_samples(clients, missing="median", standardise=True)
    together = np.concatenate(found.samples)
    for j in range(together.shape[1]):
        filled = np.concatenate(sf.prepare_samples(clients, missing="median").samples)[:, j]
        largest = np.abs(filled).max()
        if np.ptp(filled) == 0:
            assert (together[:, j] == 0).all()
        elif filled.std() > 1e-6 * largest:
            assert together[:, j].mean() == pytest.approx(0, abs=1e-6)
            assert together[:, j].std() == pytest.approx(1, abs=1e-6)
    other = sf.prepare_samples([factor * one + offset for one in clients], missing="median", standardise=True)
    spreads = np.concatenate(sf.prepare_samples(clients, missing="median").samples).std(axis=0)
    told = spreads > 1e-3  # of what the offset leaves of smaller ones rounding is the larger part
    for a, b in zip(found.samples, other.samples, strict=True):
        np.testing.assert_allclose(a[:, told], b[:, told], atol=1e-6)


def test_one_implementation_for_arrays_dictionaries_tables_and_embeddings():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    data = {"Hull": rng.normal(size=(9, 3)), "York": rng.normal(size=(7, 3)) + 1}
    data["Hull"][2, 1] = data["York"][0, 0] = nan
    frame = pandas.concat(
        [pandas.DataFrame(v, columns=list("abc")).assign(client=k) for k, v in data.items()]
    )
    for missing in ("drop", "median"):
        asked = {"missing": missing, "standardise": True}
        first = sf.prepare_samples(data, **asked)
        for samples in (list(data.values()), frame):
            found = sf.prepare_samples(samples, **asked)
            for a, b in zip(first.samples, found.samples, strict=True):
                np.testing.assert_array_equal(a, b)
            assert found.dropped == first.dropped
            assert (found.filled == first.filled).all()
        emb = sf.MeanEmbeddings.from_samples(frame, 1.5, **asked)
        assert emb == sf.MeanEmbeddings.from_samples(first, 1.5)
        assert emb.sample_counts == first.counts


def test_nullable_numbers_of_pandas_may_be_missing():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"client": ["a", "a", "b"], "x": pandas.array([1, None, 3], dtype="Int64")})
    with pytest.raises(InputError, match="row 2 of column 'x' is missing, and 1 of 3 rows have gaps"):
        sf.MeanEmbeddings.from_samples(frame, 1.0)
    assert sf.prepare_samples(frame, missing="drop").counts == (1, 1)


def test_labels_go_with_their_rows():
    x = {"a": [[1.0], [nan], [3.0]], "b": [[nan], [5.0]]}
    y = {"a": ["u", "v", "u"], "b": ["u", "v"]}
    found = sf.prepare_samples(x, labels=y, missing="drop")
    assert [one.tolist() for one in found.labels] == [["u", "u"], ["v"]]
    whole = sf.MeanEmbeddings.from_samples(
        {"a": [[1.0], [3.0]], "b": [[5.0]]}, 1.0, labels={"a": ["u", "u"], "b": ["v"]}, kernel="joint"
    )
    assert sf.MeanEmbeddings.from_samples(x, 1.0, labels=y, kernel="joint", missing="drop") == whole
    assert sf.MeanEmbeddings.from_samples(found, 1.0, kernel="joint") == whole


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"missing": "mean"}, "missing = 'mean': must be \"refuse\", \"drop\" or \"median\""),
        ({"missing": None}, "missing = None: must be"),
        ({"standardise": "yes"}, "standardise = 'yes': must be True or False"),
        ({}, r"client b\] = nan: not a finite number"),
        ({"missing": "drop"}, r"missing\[client b\] = 'drop': no row of this client is without gaps"),
        ({"missing": "median", "labels": {"a": [1], "b": [1]}}, r"labels\[client a\] = \(1,\): must hold one label per sample"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(asked, said):
    with pytest.raises(InputError, match=said):
        sf.prepare_samples({"a": [[1.0, 2.0], [1.0, 3.0]], "b": [[nan, 2.0]]}, **asked)


def test_a_column_without_any_value_is_named():
    for missing in ("drop", "median"):
        with pytest.raises(InputError, match="no value at all in column 1; leave it out"):
            sf.prepare_samples([[[1.0, nan]], [[2.0, nan]]], missing=missing)


def test_infinite_values_are_no_gaps():
    for missing in ("drop", "median"):
        with pytest.raises(InputError, match=r"client 1\] = inf: not a finite number"):
            sf.prepare_samples([[[1.0]], [[np.inf]]], missing=missing)


def test_prepared_samples_are_not_prepared_again():
    found = sf.prepare_samples({"a": [[1.0]], "b": [[2.0]]})
    for asked in ({"missing": "drop"}, {"standardise": True}, {"client": "x"}, {"names": ["a", "b"]}):
        with pytest.raises(InputError, match=f"{next(iter(asked))}: is part of the prepared samples"):
            sf.MeanEmbeddings.from_samples(found, 1.0, **asked)
    for asked in ({"missing": "drop"}, {"standardise": True}):
        with pytest.raises(InputError, match=f"{next(iter(asked))} = .*: is about coordinates"):
            sf.MeanEmbeddings.from_samples(None, labels=[[1], [2]], kernel="labels", **asked)


def test_what_may_not_be_meant_is_a_warning():
    with pytest.warns(StackfuWarning, match=r"leaves out most rows of some clients: b 2 of 3"):
        sf.MeanEmbeddings.from_samples({"a": [[1.0]], "b": [[nan], [nan], [2.0]]}, 1.0, missing="drop")
    with pytest.warns(
        StackfuWarning, match=r"no value of their own, and so the median of all clients: b in 1 column"
    ):
        sf.MeanEmbeddings.from_samples({"a": [[1.0], [2.0]], "b": [[nan]]}, 1.0, missing="median")
    with pytest.warns(StackfuWarning, match="more than half of the values in column '0' were missing"):
        sf.MeanEmbeddings.from_samples(
            {"a": [[1.0], [nan]], "b": [[nan], [nan], [3.0]]}, 1.0, missing="median"
        )
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"client": list("aabb"), "wide": [1e6, 2e6, 3e6, 5e6], "small": [1.0, 2.0, 1.0, 3.0]}
    )
    with pytest.warns(
        StackfuWarning, match=r"column 'wide' spreads .* distances hardly see the second; standardise=True"
    ):
        sf.MeanEmbeddings.from_samples(frame, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sf.MeanEmbeddings.from_samples(frame, 1.0, standardise=True)


def test_tensors_are_prepared_where_they_can_be():
    torch = pytest.importorskip("torch")
    data = [np.array([[1.0], [nan], [3.0]]), np.array([[2.0]])]
    found = sf.prepare_samples([torch.tensor(one) for one in data], missing="median", standardise=True)
    for a, b in zip(
        found.samples, sf.prepare_samples(data, missing="median", standardise=True).samples, strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_single_precision_stays_single():
    data = [np.array([[1.0], [nan], [3.0]], dtype=np.float32), np.array([[2.0]], dtype=np.float32)]
    found = sf.prepare_samples(data, missing="median", standardise=True)
    assert {one.dtype for one in found.samples} == {np.dtype(np.float32)}


def test_counts_are_told_per_client_and_column():
    pandas = pytest.importorskip("pandas")
    found = sf.prepare_samples(
        {"a": [[1.0, nan], [2.0, 3.0]], "b": [[nan, 4.0], [nan, 2.0], [5.0, nan]]}, missing="median"
    )
    assert str(found) == ("4 of 10 cells were filled with medians (by client: b 3, a 1; by column: 0 2, 1 2)")
    assert found.summary()["filled_per_column"] == {"0": 2, "1": 2}
    frame = found.to_pandas()
    assert frame.loc["b", "filled 0"] == 2
    assert frame.loc["a", "rows"] == 2
    assert isinstance(frame, pandas.DataFrame)
    assert str(sf.prepare_samples([[[1.0]], [[2.0]]])) == "nothing was changed"
