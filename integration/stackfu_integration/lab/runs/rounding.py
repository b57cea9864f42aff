"""Number of stored digits."""

from __future__ import annotations

from typing import Any

__all__ = ["rounded"]


def rounded(value: Any) -> Any:
    """Seven significant digits: more than any of these numbers carries, and half the bytes."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value
