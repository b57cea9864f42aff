import numpy as np
import pytest

from stackfu.embedding import MeanEmbeddings
from stackfu.embedding.samples import Samples
from stackfu.errors import InputError
from tests.embedding.references import clouds, reference_gram

X = clouds(0, [7, 1, 40], 3)


def bad(client, row, column, value):
    samples = [x.copy() for x in X]
    samples[client][row, column] = value
    return samples


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (
            bad(2, 5, 1, np.nan),
            r"samples\[client 2\] = nan: not a finite number in row 5, column 1; .* \(missing='drop'\), or fill gaps",
        ),
        (bad(0, 6, 0, -np.inf), r"samples\[client 0\] = -inf: not a finite number in row 6, column 0"),
        (
            [np.array([[1.0, np.inf]], dtype=np.float32)],
            r"client 0\] = inf: not a finite number in row 0, column 1",
        ),
        (
            [np.array([[1.0, np.nan]], dtype=np.float32)],
            r"client 0\] = nan: not a finite number in row 0, column 1",
        ),
        (
            [np.array([[1, 2**60 + 1]])],
            r"client 0\] = 1152921504606846977: no float64 equals.*row 0, column 1.*offset",
        ),
        (
            [np.array([[1, 2**63 + 1]], dtype=np.uint64)],
            r"client 0\] = 9223372036854775809: no float64 equals",
        ),
        ([X[0], np.array([[-(2**53) - 1, 0, 0]])], r"client 1\] = -9007199254740993: no float64 equals"),
        (bad(0, 6, 0, 1e200), r"client 0\] = 1e\+200: magnitude above 1e\+150 in row 6.*rescale"),
        ([X[0], np.empty((0, 3))], r"client 1\]: is empty"),
        ([X[0], np.empty((4, 0))], r"client 1\]: has no columns"),
        ([X[0], np.ones((4, 2))], r"client 1\]: has 2 columns, but client 0 has 3"),
        ([np.ones(4)], r"client 0\].*two dimensions.*x\[:, None\]"),
        ([np.ones((2, 2, 2))], r"client 0\].*two dimensions"),
        ([np.array([["a"]], dtype=object)], r"client 0\].*dtype object.*convert"),
        ([np.array([["a"]])], r"client 0\].*dtype"),
        ([np.ones((2, 2), dtype=complex)], r"client 0\].*complex128"),
        ([[[1.0], [1.0, 2.0]]], r"client 0\].*not a rectangular array"),
        ([np.ma.masked_array([[1.0, 2.0]], mask=[[0, 1]])], r"client 0\].*masked"),
        ([], "at least one client"),
        (3.0, "sequence with one"),
        ("abc", "sequence with one"),
    ],
)
def test_refusals_name_client_row_and_value(samples, message):
    with pytest.raises(InputError, match=message):
        MeanEmbeddings.from_samples(samples, bandwidth=1.0)


def test_whole_numbers_that_float64_holds_are_welcome_however_large():
    """Nanoseconds since 1970, say, in steps of a microsecond."""
    start = 2**60
    samples = [np.array([[start], [start + 1024]]), np.array([[start + 2048]]), np.array([[-(2**63)]])]
    got = MeanEmbeddings.from_samples(samples, bandwidth=1024.0).gram
    assert np.abs(got - reference_gram(samples, 1024.0)).max() < 1e-12


def test_bandwidths_too_small_to_divide_by_are_refused_and_others_are_not():
    samples = [np.array([[0.0], [1.0]]), np.array([[0.0], [1e-300]])]
    for sigma in (1e-310, 5e-324):
        for options in ({}, {"features": 4}):
            with pytest.raises(InputError, match=r"bandwidth = .*too small to divide by"):
                MeanEmbeddings.from_samples(samples, bandwidth=sigma, **options)
    # samples are equal or infinitely far apart
    got = MeanEmbeddings.from_samples(samples, bandwidth=np.finfo(float).tiny)
    assert got.gram.tolist() == [[0.5, 0.25], [0.25, 0.5]]
    with pytest.raises(InputError, match=r"bandwidth\[client 1\]: is so small relative to the samples"):
        MeanEmbeddings.from_samples([[[0.0]], [[1e9]]], bandwidth=np.finfo(float).tiny, features=64)


def test_small_numbers_whose_squares_underflow_are_told_apart():
    """The ratio of spread and bandwidth decides the arithmetic: it must survive vanishing squares."""
    steps = np.random.default_rng(0).integers(0, 4, size=(2, 30, 2)) * 2.0**-620
    samples = [steps[0], steps[1] + 2.0**-580]
    sigma = 2.0**-619
    got = MeanEmbeddings.from_samples(samples, bandwidth=sigma).gram
    scaled = [x * 2.0**619 for x in samples]
    assert np.abs(got - reference_gram(scaled, 1.0)).max() < 1e-12
    with pytest.raises(InputError, match="squared distances underflow|median distance"):
        MeanEmbeddings.from_samples(samples)


@pytest.mark.parametrize("sigma", [0, -1.0, np.nan, np.inf, "mean", None, [1.0, 2.0]])
def test_bandwidths_that_are_none(sigma):
    with pytest.raises(InputError, match="bandwidth"):
        MeanEmbeddings.from_samples(X, bandwidth=sigma)


def test_constant_data_says_what_to_do():
    same = [np.ones((3, 2)), np.ones((4, 2))]
    with pytest.raises(InputError, match=r"median distance.*is 0.*pass bandwidth="):
        MeanEmbeddings.from_samples(same)
    assert np.array_equal(MeanEmbeddings.from_samples(same, bandwidth=1.0).gram, np.ones((2, 2)))


@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[::-1],
        lambda x: x.astype(x.dtype.newbyteorder()),
        lambda x: x.tolist(),
        lambda x: x.astype(np.longdouble),
        lambda x: np.frombuffer(x.tobytes()).reshape(x.shape),  # read-only
    ],
    ids=[
        "Fortran",
        "every other row",
        "every other column",
        "reversed",
        "byte order",
        "lists",
        "long",
        "read-only",
    ],
)
def test_memory_layouts(convert):
    got = MeanEmbeddings.from_samples([convert(x) for x in X], bandwidth=2.0).gram
    assert np.abs(got - reference_gram(X, 2.0)).max() < 1e-14


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, bool, np.float16])
def test_other_number_types_are_converted(dtype):
    samples = [np.array([[0, 1], [1, 0]], dtype=dtype), np.array([[1, 1]], dtype=dtype)]
    got = MeanEmbeddings.from_samples(samples, bandwidth=2.0).gram
    assert np.abs(got - reference_gram(samples, 2.0)).max() < 1e-6


def test_mixed_precisions_are_computed_in_the_higher():
    samples = [X[0], X[2].astype(np.float32)]
    assert Samples.check(samples).dtype == np.float64
    got = MeanEmbeddings.from_samples(samples, bandwidth=2.0).gram
    assert np.abs(got - reference_gram(samples, 2.0)).max() < 1e-12


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    tensors = [torch.tensor(x, requires_grad=True) for x in X]
    expected = MeanEmbeddings.from_samples(X, bandwidth=2.0)
    assert MeanEmbeddings.from_samples(tensors, bandwidth=2.0) == expected
    half = [torch.tensor(x).to(torch.bfloat16) for x in X]
    assert np.abs(MeanEmbeddings.from_samples(half, bandwidth=2.0).gram - expected.gram).max() < 0.01
    elsewhere = [torch.ones(2, 2, device="meta")]
    with pytest.raises(InputError, match=r"client 0\] = meta.*no data"):
        MeanEmbeddings.from_samples(elsewhere, bandwidth=1.0)
    with pytest.raises(InputError, match=r"client 0\] = meta.*another device"):
        MeanEmbeddings.from_samples(elsewhere, bandwidth=1.0, backend="numpy")


def test_the_input_is_neither_changed_nor_copied():
    before = [x.copy() for x in X]
    checked = Samples.check(X)
    assert all(np.shares_memory(a, x) for a, x in zip(checked.arrays, X, strict=True))
    MeanEmbeddings.from_samples(X)
    assert all(np.array_equal(a, b) for a, b in zip(before, X, strict=True))
