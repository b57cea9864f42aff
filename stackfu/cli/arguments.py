"""Arguments that several commands share, and the values of what was typed for them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError

__all__ = [
    "AsJson",
    "Floor",
    "GameFile",
    "Gap",
    "Kind",
    "Method",
    "Outside",
    "Quiet",
    "Sampling",
    "SolutionFile",
    "TimeLimit",
    "number",
    "utilities",
    "words",
]

GameFile = Annotated[
    Path,
    typer.Argument(
        metavar="GAME",
        help="A game, equilibrium or solution file (.json or .npz); - reads standard input.",
        show_default=False,
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method", "-m", help="How payments are found: certified, haipo, uniform or a registered mechanism."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON document on standard output instead of tables.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress line, also on a terminal.")]
Floor = Annotated[
    float | None,
    typer.Option(
        "--min-total", help="Least share of the remaining data that must take part.", show_default="0"
    ),
]
TimeLimit = Annotated[
    float | None, typer.Option("--time-limit", help="Seconds for each search.", show_default="60")
]
Gap = Annotated[
    float | None,
    typer.Option(
        "--gap", help="Gap to close, relative to the loss without payments.", show_default="by size"
    ),
]
Kind = Annotated[
    str,
    typer.Option(
        "--offers", help="What is posted: linear (a price), capped (a price and a limit) or contract."
    ),
]
Sampling = Annotated[
    float | None,
    typer.Option(
        "--sampling-constant", help="Loss per 1/samples used, in place of the file's.", show_default=False
    ),
]
Outside = Annotated[
    str | None,
    typer.Option(
        help="Utility outside the federation, one for everybody or one per remaining client: a,b,c.",
        show_default=False,
    ),
]
SolutionFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Solution file to write (.json or .npz).", show_default=False),
]


def words(text: str) -> list[str]:
    """What commas separate."""
    return [word.strip() for word in text.split(",") if word.strip()]


def number(word: str, argument: str) -> float:
    """A number, or an error that names the argument."""
    try:
        return float(word)
    except ValueError:
        raise InputError(argument, "must be a number", value=repr(word)) from None


def utilities(text: str | None) -> list[float] | float | None:
    """Outside utilities as they were typed: one number, or one per client."""
    if text is None:
        return None
    values = [number(word, "outside") for word in words(text)]
    return values[0] if len(values) == 1 else values
