"""The audit of a removal request: who left, what was paid, what is proved, what was forgotten.

Everything is read from the ledger (:mod:`.facts`), so the report (:mod:`.text`) can be written again at any time and says
the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stackfu.errors import InputError
from stackfu_integration.flower.audit.facts import audit
from stackfu_integration.flower.audit.text import render
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.naming import PLAIN_NAME
from stackfu_integration.storage import write_json, write_text

__all__ = ["audit", "render", "write_audit"]


def write_audit(ledger: PaymentLedger, request: str, folder: Path) -> dict[str, Any]:
    """Write ``audit-REQUEST.json`` and ``audit-REQUEST.md`` and return the facts."""
    if not PLAIN_NAME.fullmatch(request):
        raise InputError("request", "no file can have the name of this request", value=request)
    facts = audit(ledger, request)
    write_json(folder / f"audit-{request}.json", facts)
    write_text(folder / f"audit-{request}.md", render(facts))
    return facts
