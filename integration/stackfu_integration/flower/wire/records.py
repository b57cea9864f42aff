"""Vectors, settings and metrics in Flower's records.

A record that is missing raises ``KeyError``, one that holds something else ``TypeError``; who reads an answer
turns both into a refusal (:func:`~stackfu_integration.flower.wire.exchange.decoded`).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

__all__ = ["config", "metric", "model_in", "read_vector", "setting", "settings_in", "vectors"]

_T = TypeVar("_T", str, int, float)


def vectors(**named: NDArray[np.float64]) -> ArrayRecord:
    """Pack vectors of double precision."""
    return ArrayRecord({name: Array(np.ascontiguousarray(v, dtype=np.float64)) for name, v in named.items()})


def read_vector(record: ArrayRecord, name: str) -> NDArray[np.float64]:
    """Unpack a vector."""
    return np.asarray(record[name].numpy(), dtype=np.float64)


def model_in(content: RecordDict, name: str = "arrays") -> ArrayRecord:
    """Return the arrays of a message: a model, or vectors."""
    record = content[name]
    if not isinstance(record, ArrayRecord):
        raise TypeError(f"{name} must hold arrays")
    return record


def settings_in(content: RecordDict) -> ConfigRecord:
    """Return the settings of a message."""
    record = content["config"]
    if not isinstance(record, ConfigRecord):
        raise TypeError("config must hold settings")
    return record


def metric(content: RecordDict, name: str) -> float | int:
    """Return a number of a reply's ``metrics``."""
    record = content["metrics"]
    if not isinstance(record, MetricRecord):
        raise TypeError("metrics is not a MetricRecord")
    value = record[name]
    if isinstance(value, list):
        raise TypeError(f"{name} is a list")
    number: float | int = value
    return number


def setting(record: ConfigRecord, name: str, kind: type[_T]) -> _T:
    """Return an entry of a config record as text or number."""
    value = record[name]
    if isinstance(value, (list, bytes)):
        raise TypeError(f"{name} must be one value")
    return kind(value)


def config(**entries: str | int | float | bool | None) -> ConfigRecord:
    """Return a config record; underscores in names become dashes, as Flower writes them.

    A record cannot hold "nothing": entries of ``None`` are left out.
    """
    given = {name.replace("_", "-"): value for name, value in entries.items() if value is not None}
    return ConfigRecord(given)
