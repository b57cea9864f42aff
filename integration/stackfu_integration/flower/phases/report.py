"""The request is closed and its audit written."""

from __future__ import annotations

from stackfu_integration.flower.audit import write_audit
from stackfu_integration.flower.events import RequestClosed
from stackfu_integration.flower.phases.session import Removal

__all__ = ["PHASE", "run"]

PHASE = "report"


def run(removal: Removal) -> None:
    """Close the request; the audit can be written again from the ledger at any time."""
    removal.ledger.add(removal.name, RequestClosed())
    write_audit(removal.ledger, removal.name, removal.folder)
