"""Streams of removal requests: who is left, at what quality, at what cost; from the collected file of a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stackfu.errors import FileFormatError
from stackfu_integration.lab.mechanisms import MECHANISMS
from stackfu_integration.lab.report.tables.table import Cell, Table, spread

__all__ = ["stream_table"]


def stream_table(path: Path, requests: tuple[int, ...] = (1, 5, 10)) -> Table:
    """Return the state after some requests of every way to answer them, averaged over federations.

    Parameters
    ----------
    path
        File that ``stackfu-lab study streams`` has written.
    requests
        Numbers of the requests to show, from 1.
    """
    try:
        federations = json.loads(path.read_text())["federations"]
        rows = [
            row
            for name in dict.fromkeys(name for made in federations for name in made["streams"])
            for number in requests
            if (row := _row(federations, name, number)) is not None
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path}: not a collected study of streams ({error!r})") from error
    return Table(
        f"Ten removal requests from one budget, in {len(federations)} federations.",
        (
            "answered by",
            "after request",
            "answered",
            "clients that take part",
            "data used (% of the remaining)",
            "S (points of accuracy)",
            "worst Q (loss)",
            "spent of the budget (%)",
        ),
        tuple(rows),
        "Convex heads, trained again after every request. S and Q are against the head of all clients before any request. Mean "
        "± 95% interval over the federations in which the request was answered.",
    )


def _row(federations: list[dict[str, Any]], name: str, number: int) -> tuple[Cell, ...] | None:
    """Summarise one request; None where no federation got that far."""
    reached, spent = [], []
    for made in federations:
        answers = [item for item in made["streams"].get(name, ()) if "without_answer" not in item]
        if len(answers) >= number:
            reached.append(answers[number - 1])
            spent.append(sum(item["spend"] for item in answers[:number]) / made["budget"])
    if not reached:
        return None
    return (
        MECHANISMS[name].label,
        number,
        f"{len(reached)} of {len(federations)}",
        spread([float(item["takes_part"]) for item in reached], 1),
        spread([item["used"] for item in reached], 0, scale=100),
        spread([item["s_points"] for item in reached], 1, sign=True),
        spread([item["worst_q"] for item in reached], 2, sign=True),
        spread(spent, 0, scale=100),
    )
