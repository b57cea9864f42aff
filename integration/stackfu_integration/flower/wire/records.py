"""Vectors, settings and metrics in Flower's records.

A record that is missing raises ``KeyError``, one that holds something else ``TypeError``; who reads an answer
turns both into a refusal (:func:`~stackfu_integration.flower.wire.exchange.decoded`).
"""

from __future__ import annotations

import json
import math
from typing import TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from stackfu_integration.arrays import FloatArray, UIntArray
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.naming import PLAIN_NAME
from stackfu_integration.flower.receipts import Receipt

__all__ = [
    "config",
    "head_in",
    "hidden_or_plain",
    "masked_record",
    "metric",
    "metrics",
    "model_in",
    "optional",
    "read_hidden_or_plain",
    "read_masked",
    "read_vector",
    "receipt_in",
    "request_in",
    "setting",
    "settings_in",
    "show_head",
    "signed",
    "vectors",
]

_LONGEST_STATEMENT = 10_000  # the ledger keeps them; the longest honest one has about a thousand characters

_LONGEST_TEXT = 20_000  # of a setting: names of arrays are the longest that is honest
_LONGEST_OF_A_HEAD = 128  # hexadecimal digits of a signature

_T = TypeVar("_T", str, int, float)


def vectors(**named: FloatArray) -> ArrayRecord:
    """Pack vectors of double precision."""
    return ArrayRecord({name: Array(np.ascontiguousarray(v, dtype=np.float64)) for name, v in named.items()})


def read_vector(record: ArrayRecord, name: str) -> FloatArray:
    """Unpack a vector."""
    return np.asarray(record[name].numpy(), dtype=np.float64)


def masked_record(masked: UIntArray) -> ArrayRecord:
    """Pack a vector behind masks; Flower's arrays know no unsigned numbers of 64 bits."""
    return ArrayRecord({"masked": Array(np.ascontiguousarray(masked).view(np.int64))})


def read_masked(record: ArrayRecord) -> UIntArray:
    """Unpack a vector behind masks."""
    values = record["masked"].numpy()
    if values.dtype != np.int64 or values.ndim != 1:
        raise TypeError("a masked vector is one of whole numbers of 64 bits")
    return np.asarray(values.copy().view(np.uint64))


def hidden_or_plain(masked: UIntArray | None, **plain: FloatArray) -> ArrayRecord:
    """Pack a vector behind masks where there is one, and the plain one where not."""
    return vectors(**plain) if masked is None else masked_record(masked)


def read_hidden_or_plain(record: ArrayRecord, name: str) -> tuple[FloatArray, UIntArray | None]:
    """Unpack either; of a vector behind masks the plain one is empty."""
    return (np.empty(0), read_masked(record)) if "masked" in record else (read_vector(record, name), None)


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


def metrics(**entries: float | int) -> RecordDict:
    """Return an answer that holds these numbers; underscores in names become dashes, as Flower writes them."""
    return RecordDict({"metrics": MetricRecord({k.replace("_", "-"): v for k, v in entries.items()})})


def setting(record: ConfigRecord, name: str, kind: type[_T], most: int = _LONGEST_TEXT) -> _T:
    """Return an entry of a config record as text of at most ``most`` characters, or as a finite number."""
    value = record[name]
    if isinstance(value, (list, bytes)):
        raise TypeError(f"{name} must be one value")
    if isinstance(value, str) and len(value) > most:
        raise ValueError(f"{name} has {len(value)} characters, and {most} are the most")
    read = kind(value)
    if isinstance(read, float) and not math.isfinite(read):
        raise ValueError(f"{name} must be a finite number")
    return read


def request_in(settings: ConfigRecord) -> str:
    """Return the request that a message is about; its name has the form that every request's name has."""
    name = setting(settings, "request", str)
    if not PLAIN_NAME.fullmatch(name):
        raise ValueError("request needs a name of 1 to 64 letters, digits, spaces, dots and dashes")
    return name


def optional(record: ConfigRecord, name: str, kind: type[_T]) -> _T | None:
    """Return an entry of a config record that may be missing."""
    return setting(record, name, kind) if name in record else None


def config(**entries: str | int | float | bool | None) -> ConfigRecord:
    """Return a config record; underscores in names become dashes, as Flower writes them.

    A record cannot hold "nothing": entries of ``None`` are left out.
    """
    given = {name.replace("_", "-"): value for name, value in entries.items() if value is not None}
    return ConfigRecord(given)


# ---- what is signed


def signed(content: RecordDict, receipt: Receipt | None) -> RecordDict:
    """Put a receipt into an answer, if there is one."""
    if receipt is not None:
        statement = json.dumps(dict(receipt.statement), sort_keys=True)
        content["receipt"] = ConfigRecord(
            {"statement": statement, "key": receipt.key, "signature": receipt.signature}
        )
    return content


def receipt_in(content: RecordDict) -> Receipt | None:
    """Return the receipt of an answer, if it has one that can be read."""
    record = content.get("receipt")
    if not isinstance(record, ConfigRecord):
        return None
    statement = json.loads(setting(record, "statement", str, _LONGEST_STATEMENT))
    if not isinstance(statement, dict):
        raise TypeError("a receipt is a statement with names")
    return Receipt(statement, setting(record, "key", str), setting(record, "signature", str))


def show_head(content: RecordDict, head: Head | None) -> RecordDict:
    """Show a client how far the ledger is, among the settings: modifiers of Flower want no second record."""
    if head is not None:
        shown = {
            "head-seq": head.seq,
            "head-hash": head.hash,
            "head-key": head.key,
            "head-signature": head.signature,
        }
        content["config"] = ConfigRecord({**content.config_records.get("config", ConfigRecord()), **shown})
    return content


def head_in(content: RecordDict) -> Head | None:
    """Return the head that the server showed, if it showed one."""
    record = content.config_records.get("config")
    if record is None or "head-seq" not in record:
        return None
    return Head(
        setting(record, "head-seq", int),
        setting(record, "head-hash", str, _LONGEST_OF_A_HEAD),
        setting(record, "head-key", str, _LONGEST_OF_A_HEAD),
        setting(record, "head-signature", str, _LONGEST_OF_A_HEAD),
    )
