"""A progress line for long runs, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["reporting"]

Callback = Callable[[dict[str, Any]], None]


@contextmanager
def reporting(title: str, progress: bool | None, callback: Callback | None) -> Iterator[Callback | None]:
    """A callback that feeds both the user's own and a progress line; None when nobody listens."""
    if progress is None:
        progress = sys.stderr.isatty()
    if not progress:
        yield callback
        return
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

        def report(record: dict[str, Any]) -> None:
            shown = "  ".join(
                f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in record.items()
                if isinstance(value, (int, float)) and name != "seconds"
            )
            bar.update(task, state=shown)
            if callback is not None:
                callback(record)

        yield report
