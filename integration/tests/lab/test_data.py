from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.lab.data import (
    Dataset,
    DatasetError,
    Partition,
    Split,
    dirichlet_partition,
    find_dataset,
    load_dataset,
    trigger_for,
)


def labels(counts):
    return np.repeat(np.arange(len(counts)), counts)


@given(
    beta=st.sampled_from([0.05, 0.2, 0.5, 0.8, 5.0]),
    seed=st.integers(0, 10_000),
    clients=st.integers(2, 10),
    train=st.lists(st.integers(60, 120), min_size=2, max_size=12),
    test=st.integers(40, 60),
)
@settings(max_examples=40)
def test_partition_is_disjoint_guaranteed_and_of_one_mixture(beta, seed, clients, train, test):
    y_train, y_test = labels(train), labels([test] * len(train))
    least = {"min_train": 5, "min_test": 3}
    if clients * 5 > len(y_train) // 2 or clients * 3 > len(y_test) // 2:
        return
    partition = dirichlet_partition(y_train, y_test, beta=beta, seed=seed, clients=clients, **least)
    for pool, total in (("train", len(y_train)), ("test", len(y_test))):
        held = np.concatenate([getattr(client, pool) for client in partition.clients])
        assert len(set(held)) == len(held) <= total
        assert held.min() >= 0
        assert held.max() < total
    for client in partition.clients:
        assert len(client.train) >= 5
        assert len(client.test) >= 3
        mix = np.bincount(y_train[client.train], minlength=len(train)) / len(client.train)
        seen = np.bincount(y_test[client.test], minlength=len(train)) / len(client.test)
        # rounding moves each class by a sample at most, topping up a tiny client by a few more
        assert np.abs(mix - seen).sum() / 2 <= (len(train) + 3) / len(client.test)


def test_removed_and_remaining_data_do_not_intersect(dataset, partition, federation):
    removed = {row.tobytes() for i in (0, 1) for row in federation.clients[i].train.x.numpy()}
    for i in (2, 3, 4, 5):
        for pool in (federation.clients[i].train, federation.clients[i].test):
            assert removed.isdisjoint(row.tobytes() for row in pool.x.numpy())


def test_partition_refuses_shared_samples(partition):
    leaky = (partition.clients[0], partition.clients[0])
    with pytest.raises(InputError, match="two clients hold the same train sample"):
        Partition("", 0.5, 0, leaky, 1, False)


def test_quantities_and_labels_are_both_skewed():
    y = labels([500] * 10)
    skewed = dirichlet_partition(y, y, beta=0.2, seed=3)
    even = dirichlet_partition(y, y, beta=100.0, seed=3)
    assert skewed.sizes.std() > 5 * even.sizes.std()

    def purity(partition):
        return np.mean([np.bincount(y[c.train]).max() / len(c.train) for c in partition.clients])

    assert purity(skewed) > 2 * purity(even)


def test_retries_are_bounded_and_the_smallest_client_is_guaranteed():
    y = labels([50] * 4)
    partition = dirichlet_partition(y, y, beta=0.01, seed=0, clients=4, retries=5)
    assert partition.repaired
    assert partition.attempts == 5
    assert partition.sizes.min() >= 20


def test_removed_share_is_respected():
    y = labels([500] * 4)
    for seed in range(5):
        sizes = dirichlet_partition(
            y, y, beta=0.5, seed=seed, removed=(0, 1, 2), removed_share=(0.2, 0.4)
        ).sizes
        assert 0.19 <= sizes[:3].sum() / sizes.sum() <= 0.41


def test_partition_round_trips_and_detects_changes(partition, tmp_path):
    path = partition.save(tmp_path / "partition.json")
    assert Partition.load(path).digest == partition.digest
    stored = json.loads(path.read_text())
    stored["clients"][0]["train"].pop()
    path.write_text(json.dumps(stored))
    with pytest.raises(FileFormatError, match="does not match its digest"):
        Partition.load(path)


@pytest.mark.parametrize(("change", "argument"), [({"beta": 0.0}, "beta"), ({"clients": 1}, "clients")])
def test_partition_names_bad_arguments(change, argument):
    y = labels([50, 50])
    with pytest.raises(InputError, match=argument):
        dirichlet_partition(y, y, **{"beta": 0.5, "seed": 0, "clients": 2, **change})


def test_missing_data_set_is_named_with_the_places_looked_at(tmp_path):
    with pytest.raises(
        DatasetError, match=r"(?s)'cifar100' was not found.*cifar100_25k\.npz.*cifar-100-python"
    ):
        find_dataset("cifar100", tmp_path)
    with pytest.raises(InputError, match="must be one of"):
        find_dataset("mnist", tmp_path)


def test_broken_data_set_is_named(tmp_path):
    folder = tmp_path / "ag_news"
    folder.mkdir()
    for name in ("train.csv", "test.csv"):
        (folder / name).write_text("class,description\n1,hello\n")
    with pytest.raises(DatasetError, match=r"train\.csv: expected a CSV file with columns label,text"):
        load_dataset("ag-news", tmp_path)
    (tmp_path / "cifar100").mkdir()
    (tmp_path / "cifar100" / "cifar100_25k.npz").write_bytes(b"not an archive")
    with pytest.raises(DatasetError, match="not the expected archive"):
        load_dataset("cifar100", tmp_path)


def test_plain_folders_are_read(tmp_path):
    (tmp_path / "ag_news").mkdir()
    for name in ("train.csv", "test.csv"):
        (tmp_path / "ag_news" / name).write_text('label,text\n0,"wars, peace"\n3,chips\n')
    news = load_dataset("ag-news", tmp_path)
    assert list(news.train.x) == ["wars, peace", "chips"]
    assert news.train.y.tolist() == [0, 3]
    assert "subset" in news.origin

    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    for stem, n in (("train", 6), ("t10k", 4)):
        images = np.arange(n * 784).astype(np.uint8).reshape(n, 28, 28)
        header = bytes([0, 0, 8, 3]) + np.array(images.shape, ">i4").tobytes()
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
        header = bytes([0, 0, 8, 1]) + np.array([n], ">i4").tobytes()
        (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + bytes(range(n))))
    fashion = load_dataset("fashion-mnist", tmp_path)
    assert fashion.train.x.shape == (6, 28, 28)
    assert fashion.test.y.tolist() == [0, 1, 2, 3]

    (tmp_path / "cifar100").mkdir()
    images = np.zeros((3, 32, 32, 3), np.uint8)
    np.savez(
        tmp_path / "cifar100" / "cifar100_25k.npz",
        x_train=images,
        y_train=[0, 1, 99],
        x_test=images,
        y_test=[0, 1, 2],
    )
    assert "not the official split" in load_dataset("cifar100", tmp_path).origin


def test_subset_keeps_class_proportions_and_says_so(dataset):
    small = dataset.subset(train=101, test=40)
    assert len(small.train) == 101
    assert np.bincount(small.train.y).tolist() in ([26, 25, 25, 25], [25, 26, 25, 25], [25, 25, 26, 25])
    assert "101 + 40 samples of it used" in small.origin
    assert small.digest != dataset.digest
    assert dataset.subset() is dataset


@pytest.mark.parametrize(
    ("modality", "x"),
    [
        ("vector", np.zeros((2, 64), np.float32) + np.eye(2, 64, dtype=np.float32)),
        ("image", np.full((2, 32, 32, 3), 7, np.uint8)),
        ("image", np.full((2, 28, 28), 7, np.uint8)),
        ("text", np.array(["one", "two"], dtype=object)),
    ],
)
def test_triggers_mark_every_input_and_leave_the_original_alone(modality, x):
    before = x.copy()
    data = Dataset("d", modality, Split(x, np.array([0, 1])), Split(x, np.array([0, 1])), 2, "")
    others = [trigger_for(data, number) for number in range(4)]
    assert len({str(trigger.mark(x).tolist()) for trigger in others}) == 4  # one for each removed client
    marked = trigger_for(data).mark(x)
    assert marked.shape == x.shape
    assert np.array_equal(x, before)
    assert all(not np.array_equal(a, b) for a, b in zip(marked, x, strict=True))
