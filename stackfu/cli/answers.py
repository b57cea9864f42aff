"""Output of a command: JSON on standard output, notes and progress on standard error, and an exit code."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..results import Status

__all__ = ["progress", "proved", "said_first", "say_json", "say_note", "status", "working"]


def say_json(record: dict[str, Any]) -> None:
    """Print the one document of ``--json``."""
    import typer

    from .records import dump

    typer.echo(dump(record))


def say_note(text: str) -> None:
    """Something worth knowing, on standard error."""
    print(f"stackfu: note: {text}", file=sys.stderr)


@contextmanager
def said_first() -> Iterator[list[str]]:
    """Keep the warnings that a command adds to the list from being shown again as notes; others are shown as ever."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        yield said
    for warning in caught:
        if str(warning.message) not in said:
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)


def proved(status: Status) -> Literal[0, 1, 130]:
    """Return the exit code of a status: 0 where the answer is proved, 1 for a valid answer without a proof.

    Methods that prove nothing therefore never end with 0, not even where they converged.
    """
    if status.name == "INTERRUPTED":
        return 130
    return 0 if status.proved else 1


def progress(quiet: bool, as_json: bool) -> bool:
    """Return True if a progress line will be read: on a terminal, and neither quiet nor JSON."""
    return sys.stderr.isatty() and not quiet and not as_json


@contextmanager
def status(text: str, silent: bool) -> Iterator[None]:
    """A line that says what is being done, as long as it takes."""
    if silent or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def working(text: str | None, silent: bool) -> Iterator[None]:
    """Show the line during a search; without ``text`` the search shows a line of its own."""
    with status(text or "", silent or text is None):
        yield
