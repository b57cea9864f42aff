"""Arguments that several commands share, and the values of what was typed for them."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from .wording import NUMBERS

if TYPE_CHECKING:
    from ..game import StackelbergGame

__all__ = [
    "AsJson",
    "FewestSamples",
    "Floor",
    "GameFile",
    "Gap",
    "Grouping",
    "Kind",
    "Marginal",
    "Method",
    "Outside",
    "Own",
    "Quiet",
    "Sampling",
    "SolutionFile",
    "TimeLimit",
    "Valued",
    "WarnBelow",
    "Whole",
    "grouping",
    "number",
    "numbers",
    "numbers_of_clients",
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
FewestSamples = Annotated[
    float | None,
    typer.Option("--min-samples", help="Least number of samples that must take part.", show_default="0"),
]
WarnBelow = Annotated[
    float | None,
    typer.Option(
        "--warn-below",
        help="Warn where fewer samples than this are used in all.",
        show_default="one for each client that takes part",
    ),
]
Whole = Annotated[
    bool,
    typer.Option(
        "--whole-samples", help="Round the plan to whole samples too, with the spend and the loss of those."
    ),
]
Marginal = Annotated[
    bool,
    typer.Option("--sensitivity", help="Add what a little more money for each client would bring."),
]
Valued = Annotated[
    bool,
    typer.Option(
        "--values", help="Add what each client's data contribute, Shapley and leave-one-out values."
    ),
]
TimeLimit = Annotated[
    float | None, typer.Option("--time-limit", help="Seconds for each search.", show_default="60")
]
Gap = Annotated[
    float | None,
    typer.Option(
        "--gap",
        help="Gap to close, relative to the objective that is reached and to the one without payments.",
        show_default="by size",
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
    typer.Option(
        "--output",
        "-o",
        help="Solution file to write (.json or .npz), or its table of clients (.csv or .xlsx).",
        show_default=False,
    ),
]


def words(text: str) -> list[str]:
    """Return the parts of a text between commas; a part with a comma is in quotation marks.

    >>> words('York, "Kingston upon Hull, City of"')
    ['York', 'Kingston upon Hull, City of']
    """
    found = next(csv.reader([" ".join(text.splitlines())], skipinitialspace=True), [])
    return [word.strip() for word in found if word.strip()]


def number(word: str, argument: str, client: str | None = None) -> float:
    """Return the number that a word is; an error names argument and word, and how numbers are written.

    >>> number("12000", "budget")
    12000.0
    >>> number("12 000", "budget")
    Traceback (most recent call last):
    stackfu.errors.InputError: budget = '12 000': must be a number; write digits only, with a point for decimals: 12000, 0.5
    """
    try:
        return float(word)
    except ValueError:
        raise InputError(argument, f"must be a number; {NUMBERS}", client=client, value=repr(word)) from None


#: Text that can be read as one number with separators of thousands and as several numbers.
_THOUSANDS = re.compile(r"\s*[-+]?\d{1,3}(,\d{3})+\s*")
#: Three digits right after a digit and a comma that start with 0, as no number of its own is written.
_GROUP = re.compile(r"\d,0\d\d(?!\d)")


def numbers(text: str, argument: str, *, one_makes_sense: bool = True) -> list[float]:
    """Return the numbers that commas separate; what could be one number with separators of thousands is refused.

    Parameters
    ----------
    text
        What was typed.
    argument
        What errors call it.
    one_makes_sense
        Whether a single number could have been meant.

    Examples
    --------
    >>> numbers("0.5, 12, 500", "budgets")
    [0.5, 12.0, 500.0]
    >>> numbers("12,500", "budgets")
    Traceback (most recent call last):
    stackfu.errors.InputError: budgets = '12,500': is 12500, or 12 and 500? Write 12500, or a space after the comma: 12, 500
    """
    typed = words(text)
    groups = _GROUP.search(text)
    if _THOUSANDS.fullmatch(text) and (groups or one_makes_sense):
        together, apart = "".join(typed), ", ".join(typed)
        several = " and ".join([", ".join(typed[:-1]), typed[-1]])
        raise InputError(
            argument,
            f"is {together}, or {several}? Write {together}, or a space after the comma: {apart}",
            value=repr(text),
        )
    if groups:
        problem = "holds commas between thousands, or numbers that begin with 00; write 12000, or a space after the comma: 12, 0"
        raise InputError(argument, problem, value=repr(text))
    return [number(word, argument) for word in typed]


def is_table(text: str) -> bool:
    """Return True if the text is the name of a table, False if it is a list."""
    from .sample_files import TABLES

    return Path(text).suffix in TABLES


def entries_of(text: str, argument: str, column: str, client: str = "client") -> list[tuple[str, str]] | None:
    """Return the clients and what is said of each, from a table or as typed; None where entries come without names.

    A table has a column called ``client`` and one called ``column``, or a single one with that word in its name
    ("Cost (EUR)"). The clients are in the column called "client", or in the only other one.
    """
    if is_table(text):
        from .sample_files import read_columns

        columns = read_columns(Path(text), argument)
        called = next((name for name in (client, "client") if name in columns), None)
        meant = [name for name in columns if name == column] or [
            name for name in columns if column in name.lower() and name != called
        ]
        if called is None and len(columns) == 2 and len(meant) == 1:
            called = next(name for name in columns if name != meant[0])
        if called is None:
            raise InputError(argument, f"{text} has no column {client!r}; it has {', '.join(columns)}")
        if len(meant) != 1:
            raise InputError(argument, f"{text} has no column {column!r}; it has {', '.join(columns)}")
        cells = columns[meant[0]]
        found = [(str(name), str(cell)) for name, cell in zip(columns[called], cells, strict=True)]
    else:
        typed = words(text)
        if not any("=" in word for word in typed):
            return None
        found = []
        for word in typed:
            name, equals, value = (part.strip() for part in word.rpartition("="))
            if not (equals and name):
                raise InputError(
                    argument,
                    "must name its client, as the others do; a name that holds a comma stands in quotation marks",
                    value=repr(word),
                )
            found.append((name, value))
    seen: set[str] = set()
    for name, _ in found:
        if name in seen:
            raise InputError(argument, "is given twice", client=name)
        seen.add(name)
    return found


def numbers_of_clients(
    text: str, argument: str, column: str, client: str = "client"
) -> dict[str, float] | list[float]:
    """Return a number per client, by name where names were given; a list, as typed, where they were not."""
    entries = entries_of(text, argument, column, client)
    if entries is None:
        return numbers(text, argument, one_makes_sense=False)
    return {name: number(value, argument, name) for name, value in entries}


def per_client(text: str, game: StackelbergGame, argument: str, column: str, others: float) -> list[float]:
    """Numbers as they were typed: one per remaining client, ``name=number`` for some, or a table; ``others`` for the rest."""
    entries = entries_of(text, argument, column)
    if entries is None:
        return numbers(text, argument, one_makes_sense=argument == "outside")
    values = [number(word, argument, name) for name, word in entries]
    return game.client_names.in_order([name for name, _ in entries], values, argument, others)


def utilities(text: str | None, game: StackelbergGame) -> list[float] | float | None:
    """Return outside utilities from a text: one for all clients, one per client, or by name (the others have no outside option)."""
    if text is None:
        return None
    values = per_client(text, game, "outside", "outside", float("-inf"))
    return values[0] if len(words(text)) == 1 and "=" not in text and not is_table(text) else values


def grouping(text: str | None, game: StackelbergGame) -> list[str] | None:
    """Return the group of every remaining client, as typed or as a table says."""
    if text is None:
        return None
    entries = entries_of(text, "groups", "group")
    if entries is None:
        return words(text)
    names, labels = [name for name, _ in entries], [label for _, label in entries]
    return game.client_names.in_order(names, labels, "groups")


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
