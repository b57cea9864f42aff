"""Commands that check: a saved answer (``verify``), and the published statements at a game (``lemmas``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...errors import InputError
from ..answers import say_json
from ..app import app, examples
from ..game_files import load_file, load_game
from ..parsing import AsJson


@app.command(epilog=examples("stackfu verify solution.json && echo sound"))
def verify(
    solution: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A solution or equilibrium file; - reads standard input.", show_default=False
        ),
    ],
    tolerance: Annotated[float, typer.Option(help="What counts as rounding, relative.")] = 1e-9,
    as_json: AsJson = False,
) -> int:
    """Check a saved solution or equilibrium from scratch; the exit code tells (0 sound, 1 not)."""
    from ...results import Equilibrium, Solution

    thing = load_file(solution)
    if not isinstance(thing, (Equilibrium, Solution)):
        raise InputError(
            "FILE", "holds a game; there is nothing to verify before it is solved", value=str(solution)
        )
    if not 0.0 < tolerance < 1.0:
        raise InputError("tolerance", "must lie between 0 and 1", value=tolerance)
    check = thing.verify(tolerance)
    if as_json:
        say_json(check.summary())
    else:
        from ..tables import console, led_by

        out = console()
        found = f": {check.message} (regret {check.regret:.1e}, residual {check.residual:.1e})."
        out.print(repr(thing))
        out.print(led_by("sound", "green", found) if check else led_by("not sound", "red", found))
    return 0 if check else 1


@app.command(epilog=examples("stackfu lemmas", "stackfu lemmas game.json --json"))
def lemmas(
    game_file: Annotated[
        Path | None,
        typer.Argument(metavar="[GAME]", help="A game file.", show_default="the game of stackfu demo"),
    ] = None,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Also what needs a certified solution of the server's problem.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Return the published statements about the game, each checked: which hold, which do not, and what does."""
    from ...lemmas import report as check_statements

    if game_file is None:
        from ...demo import digits_game

        game = digits_game()
    else:
        game = load_game(game_file)
    report = check_statements(game, thorough=thorough)
    if as_json:
        say_json(report.to_dict())
    else:
        from ..tables import console, game_line, led_by, lemmas_table

        out = console()
        out.print(game_line(game))
        out.print(lemmas_table(report))
        for topic in ("uniqueness", "convergence", "budgets"):
            out.print(led_by(f"{topic.capitalize()}:", "bold", f" {getattr(report, topic)}."))
    return 0 if all(row.holds is None or row.holds for row in report) else 1
