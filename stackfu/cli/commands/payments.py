"""Commands that find payments: ``solve``, ``cheapest`` and ``frontier``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError
from ...pages import money
from ..answers import progress, proved, say_json, say_note, working
from ..app import app, examples
from ..arguments import (
    AsJson,
    Floor,
    GameFile,
    Gap,
    Grouping,
    Kind,
    Method,
    Outside,
    Own,
    Quiet,
    Sampling,
    SolutionFile,
    TimeLimit,
    grouping,
    numbers,
    own_options,
    utilities,
)
from ..budgets import MANY, grid, open_note
from ..game_files import load_game, sampled, solution_writable, writable, write_solution

if TYPE_CHECKING:
    from ...game import StackelbergGame
    from ...results import Solution


class _WithMechanisms(typer.core.TyperCommand):
    """A command whose help lists the mechanisms that are registered; they are looked up when somebody asks."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Fill in the names, then write the help."""
        from ...leader.mechanisms import mechanism_names

        for parameter in self.params:
            if parameter.name == "method":
                parameter.help = f"How payments are found: {', '.join(mechanism_names())}."  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


@app.command(
    cls=_WithMechanisms,
    epilog=examples(
        "stackfu solve game.json --budget 0.05 -o solution.json",
        "stackfu solve game.json --budget 0.05 --min-total 0.5 --json",
        "stackfu solve game.json --payment-weight 1",
        "stackfu solve game.json --budget 0.05 --method grouped --groups York=north,Hull=north,Bath=south",
        "stackfu solve game.json --budget 0.05 --method posted --option public_cost=0.5",
    ),
)
def solve(
    game_file: GameFile,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            "-b",
            help="Largest spend: payment times participation, summed.",
            show_default="no limit",
        ),
    ] = None,
    method: Method = "certified",
    offers: Kind = "linear",
    outside: Outside = None,
    sampling_constant: Sampling = None,
    output: SolutionFile = None,
    payment_weight: Annotated[
        float | None,
        typer.Option(help="Minimise loss plus this weight times the spend.", show_default="0"),
    ] = None,
    min_total: Floor = None,
    finite_sample: Annotated[
        bool, typer.Option("--finite-sample", help="Count the noise of using few samples.")
    ] = False,
    robust: Annotated[bool, typer.Option("--robust", help="Prefer payments with one equilibrium.")] = False,
    gap: Gap = None,
    time_limit: TimeLimit = None,
    groups: Grouping = None,
    option: Own = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Payments that minimise the server's loss within a budget, with a lower bound for all payments."""
    game = sampled(load_game(game_file), sampling_constant)
    if output is not None:
        solution_writable(output)
    options: dict[str, Any] = {
        "payment_weight": payment_weight,
        "min_total": min_total,
        "finite_sample": finite_sample or None,
        "robust": robust or None,
        "gap": gap,
        "time_limit": time_limit,
        "offers": offers,
        "outside": utilities(outside, game),
        "groups": grouping(groups, game),
    }
    own = own_options(option)
    for name in own:
        if name in options or name in ("budget", "method"):
            raise InputError("option", f"{name} has an option of its own, --{name.replace('_', '-')}")
    with working(None if method == "certified" else f"{method} payments", quiet or as_json):
        solution = _solve(game, budget, method, {**options, **own}, progress(quiet, as_json), own)
    if output is not None:
        write_solution(solution, output)
    if as_json:
        say_json(solution.summary())
    else:
        _say(solution, "Client by client", output)
    return proved(solution.status)


def _say(solution: Solution, title: str, output: Path | None) -> None:
    """The game, what the payments reach beside none, client by client, and what is proved."""
    from ..tables import (
        best_in_words,
        clients_table,
        comparison_table,
        console,
        game_line,
        led_by,
        offers_table,
        say_guess,
    )

    game: Any = solution.game
    out = console()
    out.print(game_line(game))
    rows = [("none", game.equilibrium(), None), (solution.method, solution.equilibrium, solution)]
    out.print(comparison_table(rows, ""))
    if solution.offers.kind == "linear":
        out.print(clients_table(solution.equilibrium, title))
    else:
        out.print(offers_table(solution, title))
    out.print(best_in_words(solution))
    say_guess(out, game)
    if not solution.status.success:
        out.print(led_by(f"{solution.status.value.capitalize()}.", "yellow", f" {solution.message}".rstrip()))
    if output is not None:
        out.print(f"Written: {output}")


def _solve(
    game: StackelbergGame,
    budget: float | None,
    method: str,
    options: dict[str, Any],
    progress: bool,
    own: Collection[str],
) -> Solution:
    """``game.solve`` with errors that name what was typed; a progress line where the mechanism has one."""
    from ...leader.mechanisms import mechanism

    if "progress" in mechanism(method).options:
        options = {**options, "progress": progress}
    try:
        return game.solve(budget, method=method, **options)
    except InputError as error:
        if error.argument not in own:
            raise
        name = f"--option {error.argument}"
        raise InputError(name, error.problem, client=error.client, value=error.value) from None


@app.command(
    epilog=examples(
        "stackfu cheapest game.json --max-loss 0.02 --min-total 0.3",
        "stackfu cheapest game.json --max-loss 0.1 --sampling-constant 30 --json",
    )
)
def cheapest(
    game_file: GameFile,
    max_loss: Annotated[float, typer.Option("--max-loss", help="Largest server loss allowed.")],
    offers: Kind = "linear",
    outside: Outside = None,
    sampling_constant: Sampling = None,
    output: SolutionFile = None,
    min_total: Floor = None,
    gap: Gap = None,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """The least spend for a given server loss, with a lower bound for all offers of the kind."""
    game = sampled(load_game(game_file), sampling_constant)
    if output is not None:
        solution_writable(output)
    options = {
        "min_total": min_total,
        "gap": gap,
        "time_limit": time_limit,
        "outside": utilities(outside, game),
    }
    solution = game.cheapest(max_loss, offers=offers, progress=progress(quiet, as_json), **options)  # type: ignore[arg-type]
    if output is not None:
        write_solution(solution, output)
    if as_json:
        say_json(solution.summary())
    else:
        _say(solution, f"Least spend for a loss of at most {max_loss:g}", output)
    return proved(solution.status)


@app.command(
    epilog=examples(
        "stackfu frontier game.json --points 20 -o frontier.csv",
        "stackfu frontier game.json --budgets 0,0.05,0.1 --json",
    )
)
def frontier(
    game_file: GameFile,
    budgets: Annotated[
        str | None, typer.Option("--budgets", "-b", help="Budgets: a,b,c.", show_default="a grid up to --to")
    ] = None,
    to: Annotated[
        float | None,
        typer.Option(help="Largest budget of the grid.", show_default="what unlimited money would spend"),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(help="Budgets of the grid, which is denser near 0.", min=2, show_default="11"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Table to write (.csv or .json).", show_default=False),
    ] = None,
    offers: Kind = "linear",
    min_total: Floor = None,
    gap: Gap = None,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """What a budget buys: certified payments, or other offers, along a list of budgets."""
    if output is not None:
        writable(output, ".csv", ".json")
    for name, value in (("to", to), ("points", points)):
        if budgets is not None and value is not None:
            raise InputError(f"--{name}", "describes a grid; with --budgets there is none", value=value)
    game = load_game(game_file)
    if game.count > MANY and time_limit is None and not as_json:
        say_note(
            f"{game.count} clients: a search per budget, each as long as it takes; --time-limit 5 ends each after 5 s with "
            "the gap it has, --points asks for fewer"
        )
    asked: dict[str, Any] = {
        "offers": offers,
        "min_total": min_total,
        "gap": gap,
        "time_limit": time_limit,
    }
    with working(None, quiet or as_json):
        values = numbers(budgets, "budgets") if budgets is not None else grid(game, to, points or 11, **asked)
        traced = game.frontier(values, progress=progress(quiet, as_json), **asked)
    if output is not None:
        from ..records import write_frontier

        write_frontier(traced, output)
    if (note := open_note(traced, time_limit)) and not as_json:
        say_note(note)
    if as_json:
        say_json(traced.summary())
    else:
        from ..tables import console, frontier_table, game_line, say_guess

        out = console()
        out.print(game_line(game))
        out.print(frontier_table(traced, "What a budget buys"))
        out.print(
            f"Full participation of everybody would cost {money(traced.full_participation_price, game.currency)}."
        )
        say_guess(out, game)
        if output is not None:
            out.print(f"Written: {output}")
    return max(proved(solution.status) for solution in traced)
