"""Data sets on disk, and how they are shared out over the clients."""

from stackfu_integration.lab.data.datasets import Dataset, Split
from stackfu_integration.lab.data.loaders import (
    DATASETS,
    DatasetError,
    find_dataset,
    load_dataset,
    register_dataset,
)
from stackfu_integration.lab.data.partition import ClientIndices, Partition, dirichlet_partition
from stackfu_integration.lab.data.triggers import TRIGGERS, Trigger, trigger_for

__all__ = [
    "DATASETS",
    "TRIGGERS",
    "ClientIndices",
    "Dataset",
    "DatasetError",
    "Partition",
    "Split",
    "Trigger",
    "dirichlet_partition",
    "find_dataset",
    "load_dataset",
    "register_dataset",
    "trigger_for",
]
