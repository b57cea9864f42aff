"""The command that says what each client contributes: ``values``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError
from ..answers import say_json
from ..app import app, examples
from ..game_files import game_of, load_file, sampled, writable
from ..parsing import AsJson, GameFile, Sampling

if TYPE_CHECKING:
    from ...game import StackelbergGame


@app.command(
    epilog=examples(
        "stackfu values game.json",
        "stackfu values solution.json --json",
        "stackfu values game.json --orders 2000 --confidence 0.99 -o values.csv",
        "stackfu values game.json --measured accuracies.csv",
    )
)
def values(
    game_file: GameFile,
    all_data: Annotated[
        bool,
        typer.Option("--all-data", help="Value all data of the clients, not what they bring in the file."),
    ] = False,
    measured: Annotated[
        Path | None,
        typer.Option(
            help="Value something that was measured instead of the server's loss: a table with a column per client (1: its data "
            "were used, 0: not) and a column value, one row for every coalition, the empty one included.",
            show_default=False,
        ),
    ] = None,
    empty: Annotated[
        float | None,
        typer.Option(
            help="Server loss of a model without any data.", show_default="the largest of a single client"
        ),
    ] = None,
    orders: Annotated[
        int | None,
        typer.Option(
            help="Estimate from this many random orders of the clients.",
            show_default="exact up to 20 clients",
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Probability that the intervals of all estimates hold at once.", show_default="0.95"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random orders.", show_default="0")] = None,
    sampling_constant: Sampling = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Table to write (.csv).", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show what each client's data contribute: Shapley values, and the loss without each client.

    Exit code 0: all coalitions were evaluated; 1: values were estimated, within intervals of a stated confidence.
    """
    if output is not None:
        writable(output, ".csv")
    thing = load_file(game_file)
    game = sampled(game_of(thing, game_file), sampling_constant)
    asked = {"empty": empty, "orders": orders, "confidence": confidence, "seed": seed}
    options: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    receives = None
    if measured is not None:
        for name in (*options, *(["all_data"] if all_data else [])):
            raise InputError(f"--{name.replace('_', '-')}", "says nothing about values that were measured")
        found = _of_table(measured, game)
    else:
        given = getattr(thing, "participation", None)
        brings = None if all_data else given
        receives = None if brings is None else thing.payouts
        found = game.values(brings, **options)
    if output is not None:
        found.to_csv(output)
    if as_json:
        say_json({**found.summary(), "currency": game.currency})
    else:
        from ...html import NOTHING
        from ..contributions import say_values
        from ..tables import console, game_line, say_guess

        out = console()
        out.print(game_line(game))
        say_values(out, found, receives, NOTHING * game.costs, game.currency)
        if measured is None:
            say_guess(out, game)
        if output is not None:
            out.print(f"Written: {output}")
    return 0 if found.exact else 1


def _of_table(path: Path, game: StackelbergGame) -> Any:
    """Return the values of a measure of all coalitions that a table holds."""
    from ...values import values_of_measure
    from ..sample_files import read_columns

    columns = read_columns(path, "measured")
    clients = [name for name in columns if name != "value"]
    names = [str(game.label(k)) for k in range(game.count)]
    if unknown := [name for name in clients if name not in names]:
        raise InputError("measured", f"has a column {unknown[0]!r}, which is no remaining client", value=path)
    if "value" not in columns or not clients:
        raise InputError("measured", "needs a column per client and a column value", value=path)
    known: dict[tuple[str, ...], float] = {}
    for i, number in enumerate(columns["value"]):
        there = []
        for name in clients:
            if (cell := str(columns[name][i]).strip()) not in ("0", "1", "0.0", "1.0"):
                raise InputError("measured", f"must say 0 or 1 in row {i + 1}", client=name, value=cell)
            if cell[0] == "1":
                there.append(name)
        coalition = tuple(there)
        if coalition in known:
            raise InputError("measured", f"holds the coalition of {_told(coalition)} twice", value=path)
        try:
            known[coalition] = float(number)
        except ValueError:
            raise InputError("measured", f"needs a number as value in row {i + 1}", value=number) from None

    def measure(coalition: tuple[str, ...]) -> float:
        if coalition not in known:
            raise InputError("measured", f"does not hold the coalition of {_told(coalition)}", value=path)
        return known[coalition]

    return values_of_measure(measure, clients, name="what was measured")


def _told(coalition: tuple[str, ...]) -> str:
    return " and ".join(coalition) or "no client"
