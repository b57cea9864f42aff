"""A federation that trains in a second, with clients that differ enough for unlearning to matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import REMOVED, ROUNDS, SETTINGS, observers

from stackfu_integration.lab.data import Dataset, Partition, Split, dirichlet_partition
from stackfu_integration.lab.federation import (
    LabFederation,
    Trained,
    build_federation,
    train_federation,
)
from stackfu_integration.lab.models import Identity


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def blobs(seed: int, per_class: int, classes: int = 4, dimension: int = 6) -> Split:
    centres = np.random.default_rng(0).normal(size=(classes, dimension)) * 1.5
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), per_class)
    x = centres[y] + rng.normal(size=(len(y), dimension))
    return Split(x.astype(np.float32), y)


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    return Dataset("blobs", "vector", blobs(1, 150), blobs(2, 60), 4, "four Gaussian blobs")


@pytest.fixture(scope="session")
def partition(dataset: Dataset) -> Partition:
    return dirichlet_partition(
        dataset.train.y,
        dataset.test.y,
        beta=0.5,
        seed=0,
        clients=6,
        removed=REMOVED,
        removed_share=(0.2, 0.5),
    )


@pytest.fixture(scope="session")
def federation(dataset: Dataset, partition: Partition) -> LabFederation:
    train, test = (dataset.train.x, dataset.train.y), (dataset.test.x, dataset.test.y)
    return build_federation(partition, train, test, Identity(6), dataset.classes)


@pytest.fixture(scope="session")
def trained(federation: LabFederation) -> Trained:
    return train_federation(federation, SETTINGS, ROUNDS, seed=0, observers=observers())
