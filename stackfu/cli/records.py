"""``summary()`` of a game or a result as JSON text: numbers, text, lists and dicts; what is not finite becomes null."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

__all__ = ["dump"]


def dump(record: dict[str, Any]) -> str:
    """The record as JSON text that every parser accepts."""
    return json.dumps(plain(record), indent=1, allow_nan=False)


def plain(value: Any) -> Any:
    """Values that strict JSON can hold."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
