"""The torch path against the formulas and against the compiled path, on CPU tensors."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stackfu.embedding import MeanEmbeddings, bandwidth, mmd
from stackfu.embedding.bandwidth import median_of
from stackfu.embedding.gram import choose_arithmetic
from stackfu.errors import InputError
from tests.embedding.references import clouds, reference_gram, reference_joint_gram, tight_clusters

torch = pytest.importorskip("torch")

from stackfu.embedding import on_device  # noqa: E402

shapes = st.tuples(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(1, 20))


def tensors(samples):
    return [torch.tensor(x) for x in samples]


@settings(max_examples=30)
@given(
    shapes,
    st.sampled_from([np.float32, np.float64]),
    st.floats(-3, 3),
    st.integers(1, 60),
    st.integers(0, 2**32 - 1),
)
@example(([1] * 40, 5), np.float32, 0.0, 7, 0)
@example(([33, 31, 9, 7], 65), np.float64, 0.0, 16, 0)
def test_gram_has_the_promised_accuracy_at_any_shape_and_bandwidth(shape, dtype, log_sigma, rows, seed):
    sizes, d = shape
    samples = clouds(seed, sizes, d, dtype)
    sigma = 10.0**log_sigma * np.sqrt(d)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_device, "_TILE_ROWS", rows)
        patch.setattr(on_device, "_TILE_NUMBERS", rows * d)
        emb = MeanEmbeddings.from_samples(tensors(samples), sigma, backend="torch")
        labels = [np.arange(n) % 3 for n in sizes]
        joint = MeanEmbeddings.from_samples(
            tensors(samples), sigma, labels=labels, kernel="joint", backend="torch"
        )
        random = MeanEmbeddings.from_samples(tensors(samples), sigma, 16, backend="torch")
    accuracy = 1e-6 if dtype == np.float32 else 1e-12
    assert np.abs(emb.gram - reference_gram(samples, sigma)).max() < accuracy
    expected = reference_joint_gram(samples, [y.tolist() for y in labels], sigma)
    assert (np.abs(joint.gram - expected) <= accuracy * np.maximum(expected, 1)).all()
    # phases of 1e6 and more differ by rounding between two matrix products
    np.testing.assert_allclose(
        random.features,
        MeanEmbeddings.from_samples(samples, sigma, 16).features,
        atol=1e-12 * max(1.0, 1e3 / sigma),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("distance", [30.0, 1e4, 1e12])
def test_two_tight_clusters_far_apart(dtype, distance):
    samples, sigma = tight_clusters(dtype, distance)
    got = MeanEmbeddings.from_samples(tensors(samples), sigma, backend="torch").gram
    assert np.abs(got - reference_gram(samples, sigma)).max() < (1e-6 if dtype == np.float32 else 1e-12)


def test_extreme_values_neither_overflow_nor_warn():
    far = tensors([np.array([[1e149], [-1e149]]), np.array([[0.0]])])
    assert np.allclose(MeanEmbeddings.from_samples(far, 1e-3, backend="torch").gram, [[0.5, 0.0], [0.0, 1.0]])
    assert np.allclose(MeanEmbeddings.from_samples(far, 1e149, backend="torch").gram[0, 1], np.exp(-0.5))


def test_arrays_of_the_cpu_are_shared_and_take_the_compiled_path(monkeypatch):
    def unexpected(*arguments):
        raise AssertionError("the torch path was taken")

    monkeypatch.setattr(on_device, "mean_complements", unexpected)
    samples = clouds(0, [7, 5], 3)
    assert MeanEmbeddings.from_samples(tensors(samples), 1.0) == MeanEmbeddings.from_samples(samples, 1.0)
    with pytest.raises(AssertionError, match="torch path"):
        MeanEmbeddings.from_samples(tensors(samples), 1.0, backend="torch")


class Elsewhere:
    """A tensor that says it lives on another device, as one on a GPU does; everything else is the CPU's."""

    def __init__(self, tensor):
        self.tensor = tensor

    device = torch.device("cuda", 0)

    def __getattr__(self, name):
        return getattr(self.tensor, name)


def test_tensors_elsewhere_take_the_torch_path_by_themselves(monkeypatch):
    seen = []
    real = on_device._check_tensor
    monkeypatch.setattr(
        on_device, "_check_tensor", lambda sample, *rest: seen.append(sample) or real(sample.tensor, *rest)
    )
    samples = clouds(0, [7, 5], 3)
    elsewhere = [Elsewhere(tensor) for tensor in tensors(samples)]
    expected = MeanEmbeddings.from_samples(samples, 1.0)
    np.testing.assert_allclose(MeanEmbeddings.from_samples(elsewhere, 1.0).gram, expected.gram, atol=1e-12)
    assert mmd(*elsewhere, 1.0) == pytest.approx(expected.distance(0, 1), rel=1e-9)
    assert len(seen) == 4
    with pytest.raises(InputError, match=r"client 0\] = cuda:0: is on another device; pass x.cpu\(\)"):
        MeanEmbeddings.from_samples(elsewhere, 1.0, backend="numpy")


def test_nothing_but_sums_leaves_the_device(monkeypatch):
    """No tensor of samples is turned into an array: what is, has one number per pair of clients."""
    sizes = []
    real = torch.Tensor.numpy
    monkeypatch.setattr(
        torch.Tensor, "numpy", lambda self, *rest: sizes.append(self.numel()) or real(self, *rest)
    )
    samples = tensors(clouds(0, [300, 200], 3))
    MeanEmbeddings.from_samples(samples, 1.0, backend="torch")
    MeanEmbeddings.from_samples(samples, 1.0, 16, backend="torch")
    MeanEmbeddings.from_samples(
        samples, 1.0, labels=[[0, 1] * 150, [0] * 200], kernel="joint", backend="torch"
    )
    assert sizes
    assert max(sizes) <= 2 * 16


@pytest.mark.parametrize(
    "samples",
    [
        clouds(0, [60, 41], 3),
        [np.random.default_rng(0).integers(0, 3, size=(150, 2)).astype(float)],  # many ties
        clouds(1, [90, 70], 3, np.float32, offset=1e5),
        [np.concatenate([1e-5 * clouds(2, [80], 2)[0], 1e6 + clouds(3, [4], 2)[0]])],
        [np.array([[0.0], [3.0]])],
    ],
    ids=["clouds", "ties", "far from the origin", "outliers", "one pair"],
)
@pytest.mark.parametrize("rows", [7, 2048])
def test_the_median_is_the_same(samples, rows, monkeypatch):
    monkeypatch.setattr(on_device, "_TILE_ROWS", rows)
    checked = on_device.TensorSamples.check(tensors(samples))
    expected = bandwidth.median_bandwidth(samples, "exact")
    found = median_of(checked, "exact")
    assert found == pytest.approx(float(expected), rel=1e-13)
    assert found.pairs == expected.pairs
    sampled = median_of(checked, "sampled", pairs=500)
    assert sampled == pytest.approx(
        float(bandwidth.median_bandwidth(samples, "sampled", pairs=500)), rel=1e-12
    )
    monkeypatch.setattr(bandwidth, "_likely_bracket", lambda samples: (1e-9, 2e-9))
    assert median_of(checked, "exact") == pytest.approx(float(expected), rel=1e-13)


def test_half_precision_and_whole_numbers_are_converted_a_tile_at_a_time():
    x = np.arange(12).reshape(6, 2) % 5
    expected = reference_gram([x[:4], x[4:]], 2.0)
    for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int64, torch.float64):
        parts = [torch.tensor(x[:4], dtype=dtype), torch.tensor(x[4:], dtype=dtype)]
        got = MeanEmbeddings.from_samples(parts, 2.0, backend="torch").gram
        assert np.abs(got - expected).max() < 1e-6
    mixed = [torch.tensor(x[:4], dtype=torch.int64), torch.tensor(x[4:], dtype=torch.float32)]
    assert np.abs(MeanEmbeddings.from_samples(mixed, 2.0, backend="torch").gram - expected).max() < 1e-12
    truth = [torch.tensor(x[:4] > 2), torch.tensor(x[4:] > 2)]
    got = MeanEmbeddings.from_samples(truth, 2.0, backend="torch").gram
    assert np.abs(got - reference_gram([x[:4] > 2, x[4:] > 2], 2.0)).max() < 1e-12


def test_products_that_torch_rounds_are_not_used():
    samples = on_device.TensorSamples.check(tensors(clouds(0, [9, 9], 2, np.float32)))
    assert on_device._single_precision_is_kept(samples.device)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert not on_device._single_precision_is_kept(samples.device)
        assert choose_arithmetic(samples, 5.0, "auto", single=False)[0] == np.float64
        got = on_device.mean_complements(samples, 5.0)
    finally:
        torch.set_float32_matmul_precision(before)
    assert np.abs(1 - got - reference_gram([t.numpy() for t in samples.tensors], 5.0)).max() < 1e-14


X = clouds(0, [3, 2], 2)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([torch.tensor(X[0]), X[1]], r"client 1\]: is ndarray, not a torch tensor"),
        ([torch.ones(3)], r"client 0\].*two dimensions.*x\[:, None\]"),
        ([torch.ones(0, 3)], r"client 0\]: is empty"),
        ([torch.ones(3, 0)], r"client 0\]: has no columns"),
        ([torch.ones(3, 2), torch.ones(3, 1)], r"client 1\]: has 1 columns"),
        ([torch.tensor([[0.0, 1.0], [torch.nan, 0.0]])], r"client 0\] = nan: not a finite number in row 1, column 0"),
        ([torch.tensor([[0.0, -torch.inf]])], r"client 0\] = -inf: not a finite number in row 0, column 1"),
        ([torch.tensor([[1e200]], dtype=torch.float64)], "magnitude above"),
        ([torch.ones(2, 2, dtype=torch.complex64)], "dtype torch.complex64"),
        ([torch.tensor([[0, 2**60 + 1]])], r"client 0\] = 1152921504606846977: no float64 equals .*row 0, column 1"),
        ([torch.ones(2, 2), torch.ones(2, 2, device="meta")], r"client 1\] = meta.*another device than client 0"),
        ([], "at least one client"),
    ],
)  # fmt: skip
def test_refusals_name_client_row_and_value(samples, message):
    with pytest.raises(InputError, match=message):
        MeanEmbeddings.from_samples(samples, bandwidth=1.0, backend="torch")


def test_large_whole_numbers_that_are_exact_are_welcome():
    samples = [torch.tensor([[2**60], [2**60 + 512]]), torch.tensor([[-(2**63)]])]
    got = MeanEmbeddings.from_samples(samples, 512.0, backend="torch").gram
    np.testing.assert_allclose(got, [[(1 + np.exp(-0.5)) / 2, 0], [0, 1]], atol=1e-12)


def test_an_unknown_backend_is_refused():
    with pytest.raises(InputError, match="backend = 'jax'"):
        MeanEmbeddings.from_samples(X, 1.0, backend="jax")
