"""Arguments that several commands share, and the values of what was typed for them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from ..game import StackelbergGame

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
    "per_client",
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
        help="Utility outside the federation: one for everybody, one per remaining client (a,b,c), or York=a,Hull=b.",
        show_default=False,
    ),
]
SolutionFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Solution file to write (.json or .npz).", show_default=False),
]


def words(text: str) -> list[str]:
    """What commas separate; a word that holds one stands in quotation marks.

    >>> words('York, "Kingston upon Hull, City of"')
    ['York', 'Kingston upon Hull, City of']
    """
    found = next(csv.reader([" ".join(text.splitlines())], skipinitialspace=True), [])
    return [word.strip() for word in found if word.strip()]


def number(word: str, argument: str) -> float:
    """A number, or an error that names the argument."""
    try:
        return float(word)
    except ValueError:
        raise InputError(argument, "must be a number", value=repr(word)) from None


def per_client(text: str, game: StackelbergGame, argument: str, others: float) -> list[float]:
    """Numbers as they were typed: one per remaining client, or ``name=number`` for some and ``others`` for the rest."""
    typed = words(text)
    if not any("=" in word for word in typed):
        return [number(word, argument) for word in typed]
    values: dict[str, float] = {}
    for word in typed:
        name, _, value = (part.strip() for part in word.rpartition("="))
        if name not in game.names:
            from ..embedding.names import listed

            problem = "names no remaining client" if name else "must name its client, as the others do"
            raise InputError(argument, f"{problem}; those are {listed(game.names)}", value=repr(word))
        if name in values:
            raise InputError(argument, "is given twice", client=name, value=repr(word))
        values[name] = number(value, argument)
    return [values.get(name, others) for name in game.names]


def utilities(text: str | None, game: StackelbergGame) -> list[float] | float | None:
    """Outside utilities as they were typed: one for everybody, one per client, or by name (the others have nowhere to go)."""
    if text is None:
        return None
    values = per_client(text, game, "outside", float("-inf"))
    return values[0] if len(values) == 1 and "=" not in text else values
