"""The payment, and measures of the model before and after."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

from flwr.app import ArrayRecord, MetricRecord, RecordDict

from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.wire.records import (
    config,
    model_in,
    receipt_in,
    request_in,
    setting,
    settings_in,
    signed,
)

__all__ = ["MEASURE", "MeasureAnswer", "MeasureQuestion", "plain_measures"]

MEASURE = "evaluate.stackfu_measure"

_PLAIN_NAME, _MEASURES = re.compile(r"[A-Za-z0-9_-]{1,40}"), 20


def plain_measures(found: Mapping[str, Any]) -> dict[str, float]:
    """Return some finite numbers about the models before and after, with names that are fit for a table, and nothing else.

    >>> plain_measures({"before.loss": 2, "after.loss": float("nan"), "before.x |": 1.0})
    {'before.loss': 2.0}
    """
    plain: dict[str, float] = {}
    for name, value in found.items():
        which, _, what = name.partition(".")
        if which not in ("before", "after") or not _PLAIN_NAME.fullmatch(what) or len(plain) == _MEASURES:
            continue
        if not isinstance(value, list) and isfinite(value):
            plain[name] = float(value)
    return plain


@dataclass(frozen=True)
class MeasureQuestion:
    """You were paid ``amount`` for ``passed`` of ``agreed`` rounds; look at the model before and after.

    ``decimals`` is to how many places the amount was rounded down, -1 for none.
    """

    message_type: ClassVar[str] = MEASURE

    before: ArrayRecord
    after: ArrayRecord
    request: str
    amount: float = 0.0
    passed: int = 0
    agreed: int = 0
    decimals: int = -1

    def encode(self) -> RecordDict:
        """Return two models and the settings."""
        settings = config(
            request=self.request,
            amount=self.amount,
            passed=self.passed,
            agreed=self.agreed,
            decimals=self.decimals,
        )
        return RecordDict({"before": self.before, "after": self.after, "config": settings})

    @classmethod
    def decode(cls, content: RecordDict) -> MeasureQuestion:
        """Read models and settings."""
        settings = settings_in(content)
        counts = (setting(settings, name, int) for name in ("passed", "agreed", "decimals"))
        before, after = model_in(content, "before"), model_in(content, "after")
        return cls(before, after, request_in(settings), setting(settings, "amount", float), *counts)


@dataclass(frozen=True)
class MeasureAnswer:
    """A client's measures, named ``before.loss``, ``after.loss`` and so on."""

    measures: Mapping[str, float]
    receipt: Receipt | None = None

    def encode(self) -> RecordDict:
        """Return one metric per measure, and the payment, acknowledged or disputed."""
        content = RecordDict({"metrics": MetricRecord({k: float(v) for k, v in self.measures.items()})})
        return signed(content, self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> MeasureAnswer:
        """Take some finite numbers about the two models, with names that are fit for a table, and nothing else."""
        found = plain_measures(content.metric_records.get("metrics", MetricRecord()))
        return cls(found, receipt_in(content))
