"""A progress line for long runs: on a terminal, and in a notebook without any package that is not there already."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import Any

__all__ = ["Callback", "reporting"]

Callback = Callable[[dict[str, Any]], None]

#: A notebook's line is sent through its kernel: seconds between two of them.
PAUSE = 0.25


@contextmanager
def reporting(title: str, progress: bool | None, callback: Callback | None) -> Iterator[Callback | None]:
    """Yield a callback that feeds the user's own and a progress line; None if there is no listener.

    ``progress=None`` shows the line where somebody sees it change: on a terminal, or in a notebook.
    """
    show = _in_notebook()
    if progress is None:
        progress = show is not None or sys.stderr.isatty()
    if not progress:
        yield callback
        return
    with _notebook_line(title, show) if show is not None else _terminal_line(title) as write:

        def report(record: dict[str, Any]) -> None:
            write(
                "  ".join(
                    f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
                    for name, value in record.items()
                    if isinstance(value, (int, float)) and name != "seconds"
                )
            )
            if callback is not None:
                callback(record)

        yield report


def _in_notebook() -> Any:
    """Return IPython's ``display`` module if this runs in a notebook with a front end that draws; else None."""
    # a notebook has loaded it already
    loaded = sys.modules.get("IPython")
    if loaded is None or not hasattr(loaded.get_ipython(), "kernel"):
        return None
    return import_module("IPython.display")


@contextmanager
def _notebook_line(title: str, show: Any) -> Iterator[Callable[[str], None]]:
    """One line that is written over, and taken away at the end."""
    handle, began, last = show.display(show.HTML(escape(title)), display_id=True), time.perf_counter(), 0.0

    def write(text: str) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= PAUSE:
            last = now
            handle.update(show.HTML(f"{escape(title)}: {escape(text)} ({now - began:.0f} s)"))

    try:
        yield write
    finally:
        handle.update(show.HTML(""))


@contextmanager
def _terminal_line(title: str) -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, state="")
        yield lambda text: bar.update(task, state=text)
