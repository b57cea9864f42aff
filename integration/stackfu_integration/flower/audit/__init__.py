"""The audit of a removal request: who left, what was paid, what is proved, what was forgotten.

Everything is read from the ledger (:mod:`.facts`), so the report (:mod:`.text`) can be written again at any time and says
the same. The server signs it (:mod:`.signature`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stackfu.errors import InputError
from stackfu_integration.flower.audit.facts import audit
from stackfu_integration.flower.audit.signature import check_file, signed_json, signed_text
from stackfu_integration.flower.audit.text import render
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.naming import PLAIN_NAME
from stackfu_integration.storage import write_text

__all__ = ["audit", "check_file", "publish", "render", "write_audit"]


def write_audit(ledger: PaymentLedger, request: str, folder: Path) -> dict[str, Any]:
    """Write ``audit-REQUEST.json`` and ``audit-REQUEST.md``, signed with the server's key, and return the facts."""
    facts = audit(ledger, request)
    publish(ledger, request, facts, folder, ledger.key, overwrite=True)
    return facts


def publish(
    ledger: PaymentLedger,
    request: str,
    facts: dict[str, Any],
    folder: Path,
    key: SigningKey | None,
    *,
    overwrite: bool = False,
) -> list[Path]:
    """Write an audit, signed where the key is at hand, and return the files that say something else and were left alone.

    A file with the same content is left as it is: its signature may not be reproducible here.
    """
    if not PLAIN_NAME.fullmatch(request):
        raise InputError("request", "no file can have the name of this request", value=request)
    text, plain = render(facts), facts
    if key is not None:
        text, plain = signed_text(ledger, request, text, key), signed_json(ledger, request, facts, key)
    written = {
        folder / f"audit-{request}.json": json.dumps(plain, indent=1, sort_keys=True, allow_nan=False) + "\n",
        folder / f"audit-{request}.md": text,
    }
    different = []
    for path, content in written.items():
        there = path.read_bytes() if path.is_file() else None
        if there is None or overwrite:
            if there != content.encode():
                write_text(path, content)
        elif not _says(there, content, facts):
            different.append(path)
    return different


def _says(there: bytes, content: str, facts: dict[str, Any]) -> bool:
    """Say if a published file has this content, its signature apart."""
    if there == content.encode():
        return True
    try:
        plain = json.loads(there)
    except ValueError:
        return there.decode(errors="replace").rpartition("\n---\n\nSigned by")[0] == render(facts)
    return isinstance(plain, dict) and {k: v for k, v in plain.items() if k != "signed"} == json.loads(
        json.dumps(facts)
    )
