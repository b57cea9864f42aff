"""Commands that find payments: ``solve``, ``cheapest`` and ``frontier``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError
from ...html import money
from ..answers import progress, proved, said_first, say_json, say_note, working
from ..app import app, examples
from ..budgets import MANY, grid, open_note
from ..game_files import load_game, sampled, solution_writable, writable, write_solution
from ..parsing import (
    AsJson,
    FewestSamples,
    Floor,
    GameFile,
    Gap,
    Grouping,
    Kind,
    Marginal,
    Method,
    Outside,
    Own,
    Quiet,
    Sampling,
    SolutionFile,
    TimeLimit,
    Valued,
    WarnBelow,
    Whole,
    grouping,
    numbers,
    own_options,
    utilities,
)
from ..wording import as_typed

if TYPE_CHECKING:
    from ...game import StackelbergGame
    from ...results import Solution


class _WithMechanisms(typer.core.TyperCommand):
    """A command with the registered mechanisms in its help; they are looked up when the help is printed."""

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
        "stackfu solve game.json --budget 0.05 --sensitivity --values",
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
    min_samples: FewestSamples = None,
    finite_sample: Annotated[
        bool, typer.Option("--finite-sample", help="Count the noise of using few samples.")
    ] = False,
    robust: Annotated[bool, typer.Option("--robust", help="Prefer payments with one equilibrium.")] = False,
    gap: Gap = None,
    time_limit: TimeLimit = None,
    groups: Grouping = None,
    option: Own = None,
    whole_samples: Whole = False,
    sensitivity: Marginal = False,
    values: Valued = False,
    warn_below: WarnBelow = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Return payments that minimise the server's loss within a budget, with a lower bound for all payments.

    Exit code 0: proved to be within the gap; 1: a valid answer without that proof (methods other than certified never give one).
    """
    game = sampled(load_game(game_file), sampling_constant)
    if output is not None:
        solution_writable(output)
    options: dict[str, Any] = {
        "payment_weight": payment_weight,
        "min_total": min_total,
        "min_samples": min_samples,
        "finite_sample": finite_sample or None,
        "robust": robust or None,
        "gap": gap,
        "time_limit": time_limit,
        "offers": offers,
        "outside": utilities(outside, game),
        "groups": grouping(groups, game),
        "warn_below": warn_below,
    }
    own, cautions = own_options(option), list[str]()
    for name in own:
        if name in options or name in ("budget", "method"):
            raise InputError("option", f"{name} has an option of its own, --{name.replace('_', '-')}")
    with working(None if method == "certified" else f"{method} payments", quiet or as_json):
        solution = _solve(game, budget, method, {**options, **own}, progress(quiet, as_json), own, cautions)
    if output is not None:
        write_solution(solution, output, whole_samples)
    _answer(solution, "Client by client", output, as_json, whole_samples, cautions, sensitivity, values)
    return proved(solution.status)


def _answer(
    solution: Solution,
    title: str,
    output: Path | None,
    as_json: bool,
    whole: bool,
    cautions: list[str],
    sensitivity: bool = False,
    values: bool = False,
) -> None:
    """Print a solution for programs or for people; cautions come first."""
    if not as_json:
        _say(solution, title, output, whole, cautions, sensitivity, values)
        return
    from ..contributions import contributions

    for text in cautions:
        say_note(text)
    more = {"whole_samples": solution.whole_samples().summary()} if whole else {}
    say_json(
        {**solution.summary(), "cautions": cautions, **more, **contributions(solution, sensitivity, values)}
    )


def _say(
    solution: Solution,
    title: str,
    output: Path | None,
    whole: bool,
    cautions: list[str],
    sensitivity: bool,
    values: bool,
) -> None:
    """Print the game, the effect of the payments compared with none, a row per client, and the proved claims."""
    from ..contributions import say_contributions
    from ..tables import (
        best_in_words,
        clients_table,
        comparison_table,
        console,
        game_line,
        led_by,
        offers_table,
        say_guess,
        whole_in_words,
    )

    game: Any = solution.game
    out = console()
    for text in cautions:
        out.print(led_by("Caution:", "bold yellow", f" {text}."))
    out.print(game_line(game))
    rows = [("none", game.equilibrium(), None), (solution.method, solution.equilibrium, solution)]
    out.print(comparison_table(rows, ""))
    if solution.offers.kind == "linear":
        counts = solution.whole_samples().counts if whole else None
        out.print(clients_table(solution.equilibrium, title, counts))
    else:
        out.print(offers_table(solution, title, whole))
    if whole:
        out.print(whole_in_words(solution))
    say_contributions(out, solution, sensitivity, values)
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
    cautions: list[str],
) -> Solution:
    """``game.solve`` with errors that name what was typed; a progress line where the mechanism has one.

    What should be known before the solution is used is added to ``cautions``, in the words of the command line.
    """
    from ...leader.mechanisms import mechanism
    from ...results.cautions import cautions_of

    if "progress" in mechanism(method).options:
        options = {**options, "progress": progress}
    try:
        with said_first() as said:
            found = game.solve(budget, method=method, **options)
            said += cautions_of(found, options.get("warn_below"))
        cautions += [as_typed(text, ["solve"]) for text in said]
        return found
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
    min_samples: FewestSamples = None,
    gap: Gap = None,
    time_limit: TimeLimit = None,
    whole_samples: Whole = False,
    sensitivity: Marginal = False,
    values: Valued = False,
    warn_below: WarnBelow = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Return the least spend for a given server loss, with a lower bound for all offers of the kind.

    Exit code 0: proved to be within the gap; 1: a valid answer without that proof.
    """
    game = sampled(load_game(game_file), sampling_constant)
    if output is not None:
        solution_writable(output)
    options = {
        "min_total": min_total,
        "min_samples": min_samples,
        "gap": gap,
        "time_limit": time_limit,
        "outside": utilities(outside, game),
        "warn_below": warn_below,
    }
    from ...results.cautions import cautions_of

    with said_first() as said:
        solution = game.cheapest(max_loss, offers=offers, progress=progress(quiet, as_json), **options)  # type: ignore[arg-type]
        said += cautions_of(solution, warn_below)
    cautions = [as_typed(text, ["cheapest"]) for text in said]
    if output is not None:
        write_solution(solution, output, whole_samples)
    title = f"Least spend for a loss of at most {max_loss:g}"
    _answer(solution, title, output, as_json, whole_samples, cautions, sensitivity, values)
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
    min_samples: FewestSamples = None,
    gap: Gap = None,
    time_limit: TimeLimit = None,
    warn_below: WarnBelow = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Show the loss that each budget can reach: certified payments, or other offers, along a list of budgets."""
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
        "min_samples": min_samples,
        "gap": gap,
        "time_limit": time_limit,
    }
    from ...results.cautions import caution_of_frontier

    with working(None, quiet or as_json), said_first() as said:
        values = numbers(budgets, "budgets") if budgets is not None else grid(game, to, points or 11, **asked)
        traced = game.frontier(values, progress=progress(quiet, as_json), warn_below=warn_below, **asked)
        said += filter(None, [caution_of_frontier(traced, warn_below)])
    if output is not None:
        from ..records import write_frontier

        write_frontier(traced, output)
    if (note := open_note(traced, time_limit)) and not as_json:
        say_note(note)
    cautions = [as_typed(text, ["frontier"]) for text in said]
    if as_json:
        for text in cautions:
            say_note(text)
        say_json({**traced.summary(), "cautions": cautions})
    else:
        from ..tables import console, frontier_table, game_line, led_by, say_guess

        out = console()
        for text in cautions:
            out.print(led_by("Caution:", "bold yellow", f" {text}."))
        out.print(game_line(game))
        out.print(frontier_table(traced, "What a budget buys"))
        out.print(
            f"Full participation of everybody would cost {money(traced.full_participation_price, game.currency)}."
        )
        say_guess(out, game)
        if output is not None:
            out.print(f"Written: {output}")
    return max(proved(solution.status) for solution in traced)
