"""Something in a ledger does not fit."""

from __future__ import annotations

__all__ = ["LedgerError", "need"]


class LedgerError(Exception):
    """Something does not fit, and what."""


def need(holds: bool, what: str) -> None:
    """Go on only where something holds."""
    if not holds:
        raise LedgerError(what)
