"""The outcome of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..html import card, data_frame

__all__ = ["Verification"]


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of recomputing a result from its game by other means than the solver's."""

    passed: bool
    residual: float
    regret: float
    tolerance: float
    message: str

    def __bool__(self) -> bool:
        return self.passed

    def _repr_html_(self) -> str:
        return card("Sound" if self.passed else "Not sound", note=self.message)

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row: the outcome (needs pandas)."""
        return data_frame({name: [value] for name, value in self.summary().items()}, [0], "check")

    def summary(self) -> dict[str, Any]:
        """Return the outcome as plain values."""
        return {
            "passed": self.passed,
            "message": self.message,
            "residual": self.residual,
            "regret": self.regret,
            "tolerance": self.tolerance,
        }
