"""Lines of Markdown: numbers and tables."""

from __future__ import annotations

from typing import Any

__all__ = ["capital", "number", "table"]


def capital(sentence: str) -> str:
    """Return a sentence that begins with a capital letter."""
    return sentence[:1].upper() + sentence[1:]


def number(value: Any, digits: int = 4) -> str:
    """So many digits of a number, and nothing where there is none."""
    return "" if value is None else f"{value:.{digits}g}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return a table."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(r) + " |" for r in rows),
    ]
