"""``stackfu explore``: one HTML page with a slider over budgets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError
from ..answers import progress, proved, say_json, say_note, status, working
from ..app import app, examples
from ..budgets import MANY, even_grid, open_note
from ..game_files import game_of, load_file, writable
from ..parsing import AsJson, Floor, GameFile, Quiet, utilities, words

if TYPE_CHECKING:
    from ...results import Solution


@app.command(
    epilog=examples(
        "stackfu explore game.json -o explorer.html --points 25",
        "stackfu explore game.json --compare haipo,capped --outside -0.05",
    )
)
def explore(
    game_file: GameFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="HTML file to write.", show_default="GAME with .html"),
    ] = None,
    to: Annotated[
        float | None,
        typer.Option(help="Largest budget of the slider.", show_default="what unlimited money would spend"),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(help="Most budgets on the slider.", min=2, show_default="13; 5 above 50 clients"),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            help="Lines beside the certified payments: uniform,haipo,capped, or none.",
            show_default="all; none above 50 clients",
        ),
    ] = None,
    outside: Annotated[
        str | None,
        typer.Option(
            help="Utility outside the federation: one for everybody, one per remaining client (a,b,c), or York=a,Hull=b; "
            "who would leave is marked.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Heading of the page.", show_default="name of the file")
    ] = None,
    min_total: Floor = None,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", help="Seconds for each search.", show_default="60; 5 above 50 clients"),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Write one HTML page to explore the game with a budget slider; it needs no network and no server."""
    from ...explorer import write_explorer
    from ...model.offers import check_outside
    from ...results import Solution

    held = load_file(game_file)
    game = game_of(held, game_file)
    # A solution's budget is one of the stops, the page opens there, and every search minimises what the solution minimised
    opening = held.budget if isinstance(held, Solution) and 0 < held.budget < float("inf") else None
    asked = _objective_options(held) if isinstance(held, Solution) else {}
    if min_total is not None:
        asked["min_total"] = min_total
    if output is None and str(game_file) == "-":
        raise InputError(
            "--output",
            "is needed: a game from standard input has no file name to derive the page's name from",
        )
    target = output or game_file.with_suffix(".html")
    writable(target, ".html", ".htm")
    lines = None if compare is None else [] if compare == "none" else words(compare)
    if isinstance(held, Solution) and held.offers.kind != "linear":
        if lines is None and game.count > MANY and held.offers.kind == "capped":
            lines = ["capped"]
        if not as_json:
            say_note(
                f"{game_file} holds {held.offers.kind} offers; the page's slider shows prices per unit"
                + (", with capped offers as a line to compare" if lines is None or "capped" in lines else "")
            )
    apart = check_outside(game, utilities(outside, game))
    if game.count > MANY:
        # the slider needs a search per budget: a page in seconds beats narrow gaps, and the page says how wide they are
        points, limit, lines = points or 5, time_limit or 5.0, lines or []
        if time_limit is None and not as_json:
            say_note(
                f"{game.count} clients: {points} budgets at most, {limit:g} s for each search; "
                "--points, --time-limit and --compare ask for more"
            )
        time_limit = limit
    with working(None, quiet or as_json):
        budgets = even_grid(game, to, points or 13, time_limit=time_limit, **asked)
        if opening is not None:
            budgets = sorted({*budgets, opening})
        traced = game.frontier(budgets, progress=progress(quiet, as_json), time_limit=time_limit, **asked)
    with status("lines to compare with", quiet or as_json):
        write_explorer(traced, target, title or game_file.stem, compare=lines, outside=apart, budget=opening)
    if (note := open_note(traced, time_limit)) and not as_json:
        say_note(note)
    if as_json:
        say_json({"output": str(target), **traced.summary()})
    else:
        typer.echo(f"Written: {target}")
    return max(proved(solution.status) for solution in traced)


def _objective_options(solution: Solution) -> dict[str, Any]:
    """Return the solution's floor, weights and limit on the loss as options of ``frontier``; defaults are left out."""
    from ...model import Objective

    defaults = Objective().to_dict()
    asked = solution.goal.to_dict()
    return {name: value for name, value in asked.items() if name != "budget" and value != defaults[name]}
