"""Arguments that several commands share, and the values of what was typed for them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from ..game import StackelbergGame

__all__ = [
    "AsJson",
    "Floor",
    "GameFile",
    "Gap",
    "Grouping",
    "Kind",
    "Method",
    "Outside",
    "Own",
    "Quiet",
    "Sampling",
    "SolutionFile",
    "TimeLimit",
    "grouping",
    "number",
    "own_options",
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
    typer.Option("--method", "-m", help="How payments are found; stackfu solve --help lists the mechanisms."),
]
Own = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the method that has none of its own here; the value is JSON, else text. Repeatable.",
        show_default=False,
    ),
]
Grouping = Annotated[
    str | None,
    typer.Option(
        "--groups",
        help="Of method grouped: a label per remaining client (a,b,c), York=north,Hull=south, or a table with the columns client "
        "and group.",
        show_default=False,
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
    names, values = [], []
    for word in typed:
        name, _, value = (part.strip() for part in word.rpartition("="))
        if not name:
            raise InputError(argument, "must name its client, as the others do", value=repr(word))
        names.append(name)
        values.append(number(value, argument))
    return game.client_names.in_order(names, values, argument, others)


def utilities(text: str | None, game: StackelbergGame) -> list[float] | float | None:
    """Outside utilities as they were typed: one for everybody, one per client, or by name (the others have nowhere to go)."""
    if text is None:
        return None
    values = per_client(text, game, "outside", float("-inf"))
    return values[0] if len(values) == 1 and "=" not in text else values


def grouping(text: str | None, game: StackelbergGame) -> list[str] | None:
    """The group of every remaining client, as typed or as a table says."""
    if text is None:
        return None
    if Path(text).is_file():
        from .sample_files import read_columns

        columns = read_columns(Path(text), "groups")
        for name in ("client", "group"):
            if name not in columns:
                raise InputError("groups", f"{text} has no column {name!r}; it has {', '.join(columns)}")
        pairs = [(str(a), str(b)) for a, b in zip(columns["client"], columns["group"], strict=True)]
    else:
        typed = words(text)
        if not any("=" in word for word in typed):
            return typed
        pairs = [(name.strip(), group.strip()) for name, _, group in (word.rpartition("=") for word in typed)]
    return game.client_names.in_order([name for name, _ in pairs], [group for _, group in pairs], "groups")


def own_options(typed: list[str] | None) -> dict[str, Any]:
    """Options of a mechanism as ``name=value``: a value is JSON, and text where it is none.

    >>> own_options(["public_cost=0.5", "solver=cvxpy"])
    {'public_cost': 0.5, 'solver': 'cvxpy'}
    """
    found: dict[str, Any] = {}
    for word in typed or ():
        name, equals, text = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise InputError("option", "must be NAME=VALUE", value=repr(word))
        if name in found:
            raise InputError("option", "is given twice", value=repr(word))
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found
