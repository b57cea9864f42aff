"""The commands. Heavy imports wait until a command runs, so that ``--help`` and completion are quick."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from .. import __version__
from ..errors import FileFormatError, InputError

if TYPE_CHECKING:
    from ..game import StackelbergGame
    from ..results import Equilibria, Equilibrium, Frontier, Solution, Status

__all__ = ["app"]

app = typer.Typer(
    name="stackfu",
    help="Federated unlearning as a Stackelberg game, solved with proof.",
    epilog=(
        "Exit codes: 0 done and proved; 1 an answer that is not proved, or a check that failed; 2 bad input; "
        "3 infeasible or no equilibrium; 70 a defect; 130 interrupted. Start with: stackfu demo"
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: Up to so many remaining clients the whole curve of equilibria is followed within seconds (2 s at 1,000, growing with the cube).
WHOLE_CURVE = 2000

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


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stackfu {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Federated unlearning as a Stackelberg game, solved with proof."""


# -------------------------------------------------------------------- demo


@app.command(epilog="Example: stackfu demo --budget 0.1 --output /tmp/demo")
def demo(
    budget: Annotated[
        float, typer.Option("--budget", "-b", help="Largest spend: payment times participation, summed.")
    ] = 0.05,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")] = Path(
        "stackfu-demo"
    ),
    points: Annotated[int, typer.Option(help="Most budgets on the explorer page.", min=2)] = 17,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """The whole story on embedded data: ten clients share handwritten digits, three ask to be forgotten."""
    from ..demo import digits_federation, digits_game
    from ..explorer import write_explorer

    federation = digits_federation()
    with _status("embedding, solving, checking (the first run compiles)", quiet or as_json):
        game = digits_game()
        unpaid = game.equilibrium()
        best = game.solve(budget, progress=False)
        haipo = game.solve(budget, method="haipo")
        uniform = game.solve(budget, method="uniform")
        frontier = _frontier(game, _even_grid(game, None, points), progress=False)
        check = best.verify()

    output.mkdir(parents=True, exist_ok=True)
    written = {
        "game": output / "game.json",
        "certified": output / "certified.json",
        "haipo": output / "haipo.json",
        "uniform": output / "uniform.json",
        "frontier": output / "frontier.csv",
        "explorer": output / "explorer.html",
    }
    game.save(written["game"])
    for name, solution in (("certified", best), ("haipo", haipo), ("uniform", uniform)):
        solution.save(written[name])
    _write_frontier(frontier, written["frontier"])
    # uniform prices take a second per budget: the table above has them for one
    write_explorer(frontier, written["explorer"], "Handwritten digits over ten clients", compare=["haipo"])

    code = _proved(best.status) if check else 1
    if as_json:
        from .records import dump

        record = {
            "game": game.summary(),
            "unpaid": unpaid.summary(),
            **{s.method: s.summary() for s in (best, haipo, uniform)},
            "verification": check.summary(),
            "files": {name: str(path) for name, path in written.items()},
        }
        typer.echo(dump(record))
        return code

    from .tables import clients_table, comparison_table, console, game_line

    out = console()
    out.print(f"[bold]1. The federation.[/] {game_line(game)}")
    out.print(
        f"   Digits are spread with Dirichlet(0.2) over labels and quantities; the kernel has bandwidth "
        f"{game.embeddings.bandwidth:.3g} (median distance)."
    )
    _labels(out, federation)
    out.print(
        f"[bold]2. Without payments[/] the clients settle where {unpaid.total:.1%} of the remaining data "
        f"takes part; that is {unpaid.uniqueness.value}."
    )
    share = budget / game.full_participation_price
    out.print(
        f"[bold]3. A budget of {budget:g}[/], {share:.0%} of what it costs to have everybody take part fully."
    )
    rows: list[tuple[str, Equilibrium, Solution | None]] = [
        ("none", unpaid, None),
        ("uniform price", uniform.equilibrium, uniform),
        ("HAIPO", haipo.equilibrium, haipo),
        ("certified", best.equilibrium, best),
    ]
    out.print(comparison_table(rows, "What the budget buys"))
    out.print(clients_table(best.equilibrium, "The certified payments, client by client"))
    out.print("[bold]4. The certificate.[/] " + best_in_words(best))
    out.print(f"   Checked again from scratch: {check.message}.")
    _say_guess(out, game)
    out.print(f"[bold]5. Files[/] in {output}: {', '.join(path.name for path in written.values())}.")
    out.print(
        f"   Open {written['explorer']} in a browser; check with: stackfu verify {written['certified']}"
    )
    return code


def _labels(out: Any, federation: Any) -> None:
    """A small heat map of who owns which digit."""
    import numpy as np
    from rich.text import Text

    shades = " ░▒▓█"
    table = np.array([np.bincount(labels, minlength=10) for labels in federation.labels])
    out.print("   client   digits 0 to 9   samples")
    for i, counts in enumerate(table):
        cells = "".join(shades[int(np.ceil(4 * c / counts.max()))] for c in counts)
        gone = i in federation.removed
        out.print(
            Text(
                f"   {i:>6}   {cells}      {counts.sum():>7}{'   to be forgotten' if gone else ''}",
                style="dim" if gone else "",
            )
        )
    out.print()


def best_in_words(solution: Solution) -> str:
    """What is proved about a solution, in a sentence."""
    if solution.lower_bound == -float("inf"):
        return f"{solution.method} proves nothing about how good its payments are."
    limit = f"a budget of {solution.budget:g}" if solution.budget < float("inf") else "any budget"
    posted = "payments" if solution.offers.kind == "linear" else f"{solution.offers.kind} offers"
    text = (
        f"No {posted} within {limit} bring the {solution.proves} below {solution.lower_bound:.6g}; "
        f"these bring it to {solution.objective:.6g} (gap {solution.gap:.1e})."
    )
    several = solution.equilibrium.uniqueness.name
    if several == "UNIQUE":
        return text + " They have exactly one equilibrium."
    if solution.offers.kind != "linear":
        return f"{text} {solution.message[:1].upper()}{solution.message[1:]}."
    return text + (
        f" Their equilibrium is {solution.equilibrium.uniqueness.value}: the server loss lies between "
        f"{solution.optimistic:.6g} and {solution.pessimistic:.6g}."
    )


# -------------------------------------------------------------------- embed


@app.command(
    epilog="Examples: stackfu embed clients.csv --removed 0,1,2 -o game.json | "
    "stackfu embed vectors.parquet --client hospital --labels diagnosis --kernel joint --removed Leeds -o game.npz | "
    "stackfu embed vectors.parquet --client hospital --drop diagnosis --features 1024 -o game.npz"
)
def embed(
    samples: Annotated[
        Path,
        typer.Argument(
            metavar="SAMPLES",
            help="Samples with a client column: .npz, .csv, .tsv or .parquet; - reads a .csv from standard input.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Game file to write (.json or .npz).")
    ] = Path("game.json"),
    removed: Annotated[
        str, typer.Option(help="Clients to forget, as they are called in the file: a,b,c.")
    ] = "",
    client: Annotated[str, typer.Option(help="Column (or array) that says whose sample it is.")] = "client",
    drop: Annotated[str, typer.Option(help="Columns to leave out: a,b,c.")] = "",
    labels: Annotated[
        str | None,
        typer.Option(help="Column (or array) of the samples' classes.", metavar="COLUMN", show_default=False),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="What is compared: features (rbf), labels, or features within classes "
            "(joint, the default with --labels).",
            show_default=False,
        ),
    ] = None,
    bandwidth: Annotated[str, typer.Option(help='Bandwidth of the kernel, or "median".')] = "median",
    features: Annotated[
        int | None,
        typer.Option(help="Random Fourier features instead of exact inner products.", show_default=False),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random features.", show_default="0")] = None,
    standardise: Annotated[
        bool, typer.Option("--standardise", help="Every column in units of its own spread.")
    ] = False,
    cost_scale: Annotated[float, typer.Option(help="Cost of taking part, per share of all data.")] = 10.0,
    lambda_v: Annotated[float, typer.Option(help="Weight of unlearning effectiveness.")] = 1.0,
    lambda_s: Annotated[float, typer.Option(help="Weight of global stability.")] = 1.0,
    lambda_q: Annotated[float, typer.Option(help="Weight of a client's own performance.")] = 1.0,
    as_json: AsJson = False,
) -> int:
    """Turn samples into a game file: mean embeddings, sizes, and who is to be forgotten."""
    from ..embedding import MeanEmbeddings
    from ..game import StackelbergGame
    from .sample_files import read_samples, scale_note, standardised

    _writable(output, ".json", ".npz")
    if seed is not None and features is None:
        raise InputError("--seed", "is that of random features; ask for some with --features", value=seed)
    width: float | str = bandwidth if bandwidth == "median" else _number(bandwidth, "bandwidth")
    chosen: Any = kernel or ("rbf" if labels is None else "joint")
    table = read_samples(samples, client, _words(drop), labels, labels_only=chosen == "labels")
    for option, typed in (("--standardise", standardise), ("--drop", drop)):
        if typed and chosen == "labels":
            raise InputError(option, "is about coordinates; the kernel looks at labels alone", value=chosen)
    table = standardised(table) if standardise else table
    note = scale_note(table)
    embeddings = MeanEmbeddings.from_samples(
        None if chosen == "labels" else table.samples,
        bandwidth=width,
        features=features,
        seed=seed or 0,
        labels=table.labels,
        kernel=chosen,
        names=table.names,
    )
    game = StackelbergGame(
        embeddings,
        table.sizes,
        _words(removed),
        cost_scale=cost_scale,
        lambda_v=lambda_v,
        lambda_s=lambda_s,
        lambda_q=lambda_q,
    )
    game.save(output)
    if as_json:
        from .records import dump

        notes = [note] if note else []
        about = {"output": str(output), "all_names": list(game.all_names), "notes": notes}
        typer.echo(dump({**about, **game.summary()}))
        return 0
    if note:
        _note(note)
    from .tables import console, game_line

    out = console()
    width_line = "" if embeddings.bandwidth is None else f" Bandwidth {float(embeddings.bandwidth):.4g}."
    out.print(f"{game_line(game)}{'' if chosen == 'rbf' else f' Kernel: {chosen}.'}{width_line}")
    out.print(
        f"Full participation of all that remain costs {game.full_participation_price:.6g}. Written: {output}"
    )
    return 0


# -------------------------------------------------------------------- solve, equilibria, frontier


@app.command(
    epilog="Examples: stackfu solve game.json --budget 0.05 -o solution.json | "
    "stackfu solve game.json --budget 0.05 --min-total 0.5 --json | "
    "stackfu solve game.json --payment-weight 1"
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
    outside: Annotated[
        str | None,
        typer.Option(
            help="Utility outside the federation, one for everybody or one per remaining client: a,b,c.",
            show_default=False,
        ),
    ] = None,
    sampling_constant: Sampling = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Solution file to write (.json or .npz).", show_default=False),
    ] = None,
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
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Payments that minimise the server's loss within a budget, with a lower bound for all payments."""
    game = _sampled(_game(game_file), sampling_constant)
    if output is not None:
        _writable(output, ".json", ".npz")
    options: dict[str, Any] = {
        "payment_weight": payment_weight,
        "min_total": min_total,
        "finite_sample": finite_sample or None,
        "robust": robust or None,
        "gap": gap,
        "time_limit": time_limit,
        "offers": offers,
        "outside": _outside(outside),
    }
    with _status(f"{method} payments", quiet or as_json or method == "certified"):
        solution = _solve(game, budget, method, options, _progress(quiet, as_json))
    if output is not None:
        solution.save(output)
    if as_json:
        from .records import dump

        typer.echo(dump(solution.summary()))
    else:
        from .tables import clients_table, comparison_table, console, game_line, offers_table

        out = console()
        out.print(game_line(game))
        out.print(
            comparison_table(
                [("none", game.equilibrium(), None), (solution.method, solution.equilibrium, solution)], ""
            )
        )
        if solution.offers.kind == "linear":
            out.print(clients_table(solution.equilibrium, "Client by client"))
        else:
            out.print(offers_table(solution, "Client by client"))
        out.print(best_in_words(solution))
        _say_guess(out, game)
        if not solution.status.success:
            out.print(f"[yellow]{solution.status.value}.[/] {solution.message}")
        if output is not None:
            out.print(f"Written: {output}")
    return _proved(solution.status)


@app.command(
    epilog="Examples: stackfu cheapest game.json --max-loss 0.02 --min-total 0.3 | "
    "stackfu cheapest game.json --max-loss 0.1 --sampling-constant 30 --json"
)
def cheapest(
    game_file: GameFile,
    max_loss: Annotated[float, typer.Option("--max-loss", help="Largest server loss allowed.")],
    offers: Kind = "linear",
    outside: Annotated[
        str | None,
        typer.Option(
            help="Utility outside the federation, one for everybody or one per remaining client: a,b,c.",
            show_default=False,
        ),
    ] = None,
    sampling_constant: Sampling = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Solution file to write (.json or .npz).", show_default=False),
    ] = None,
    min_total: Floor = None,
    gap: Gap = None,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """The least spend for a given server loss, with a lower bound for all offers of the kind."""
    game = _sampled(_game(game_file), sampling_constant)
    if output is not None:
        _writable(output, ".json", ".npz")
    options = {"min_total": min_total, "gap": gap, "time_limit": time_limit, "outside": _outside(outside)}
    solution = game.cheapest(max_loss, offers=offers, progress=_progress(quiet, as_json), **options)  # type: ignore[arg-type]
    if output is not None:
        solution.save(output)
    if as_json:
        from .records import dump

        typer.echo(dump(solution.summary()))
    else:
        from .tables import console, game_line, offers_table

        out = console()
        out.print(game_line(game))
        out.print(offers_table(solution, f"Least spend for a loss of at most {max_loss:g}"))
        out.print(best_in_words(solution))
        _say_guess(out, game)
        if output is not None:
            out.print(f"Written: {output}")
    return _proved(solution.status)


@app.command(
    epilog="Examples: stackfu cascade game.json --outside -0.5 | "
    "stackfu cascade solution.json --outside -0.1,-0.2,-0.1 --order simultaneous --json"
)
def cascade(
    game_file: GameFile,
    outside: Annotated[
        str,
        typer.Option(
            help="Utility outside the federation, one for everybody or one per remaining client: a,b,c."
        ),
    ],
    order: Annotated[
        str, typer.Option(help="sequential (who gains most leaves first) or simultaneous.")
    ] = "sequential",
    as_json: AsJson = False,
) -> int:
    """Who leaves the federation, in which order, under the file's offers (a game file: under no payments)."""
    thing = _load(game_file)
    game, offers = _game_of(thing, game_file), getattr(thing, "offers", None)
    posted: dict[str, Any] = {}
    if offers is not None:
        posted = {"payments": offers.prices, "retainers": offers.retainers}
        posted |= {} if offers.kind == "linear" else {"caps": offers.caps}
    elif hasattr(thing, "payments"):
        posted = {"payments": thing.payments, "caps": thing.caps}
    found = game.cascade(outside=_outside(outside), order=order, **posted)  # type: ignore[arg-type]
    if as_json:
        from .records import dump

        typer.echo(dump(found.summary()))
    else:
        from .tables import cascade_table, console, game_line

        out = console()
        out.print(game_line(game))
        out.print(cascade_table(found, "Departures"))
        stayed = ", ".join(map(game.called, found.stayed)) or "nobody"
        out.print(f"{len(found.stayed)} of {game.count} stay: {stayed}.")
        _say_guess(out, game)
    return 0


def _only(eq: Equilibrium) -> Equilibria:
    """One equilibrium as a list, complete if there is proved to be no other."""
    from ..results import Equilibria, Uniqueness

    unique = eq.uniqueness is Uniqueness.UNIQUE
    return Equilibria(eq.game, eq.payments, (eq,), eq.uniqueness, eq.reason, unique, seconds=eq.seconds)


@app.command(
    epilog="Examples: stackfu equilibria game.json | stackfu equilibria game.json --payments 0.1,0,0 --caps 1,0.5,1 | "
    "stackfu equilibria solution.json --prove"
)
def equilibria(
    game_file: GameFile,
    payments: Annotated[
        str | None,
        typer.Option(
            "--payments",
            "-p",
            help="One number per remaining client: a,b,c.",
            show_default="the file's, or nothing",
        ),
    ] = None,
    caps: Annotated[
        str | None,
        typer.Option(
            "--caps",
            help="Largest share of its data that is taken of each remaining client: a,b,c.",
            show_default="the file's, or everything",
        ),
    ] = None,
    sampling_constant: Sampling = None,
    one: Annotated[
        bool,
        typer.Option(
            "--one", help="One equilibrium instead of all: seconds, however many clients there are."
        ),
    ] = False,
    prove: Annotated[bool, typer.Option("--prove", help="Prove each one in ball arithmetic.")] = False,
    as_json: AsJson = False,
) -> int:
    """Every equilibrium of the clients under given payments and caps, and whether the list is complete."""
    thing = _load(game_file)
    game = _sampled(_game_of(thing, game_file), sampling_constant)
    if payments is None and getattr(getattr(thing, "offers", None), "kind", "") == "contract":
        raise InputError(
            "GAME", "its offers are contracts, all or nothing; give --payments and --caps instead"
        )
    paid, taken = getattr(thing, "payments", None), getattr(thing, "caps", None)
    if payments is not None:
        paid = [_number(word, "payments") for word in _words(payments)]
    if caps is not None:
        taken = [_number(word, "caps") for word in _words(caps)]
    if not one and game.count > WHOLE_CURVE:
        raise InputError(
            "GAME",
            f"has more than {WHOLE_CURVE} remaining clients, and following the whole curve of equilibria would take minutes; "
            "--one finds one of them in seconds",
            value=game.count,
        )
    found = _only(game.equilibrium(paid, caps=taken)) if one else game.equilibria(paid, caps=taken)
    proofs = [eq.prove() for eq in found] if prove else []
    if as_json:
        from .records import dump

        record = found.summary()
        for item, proof in zip(record["equilibria"], proofs, strict=False):
            item["proof"] = str(proof)
        typer.echo(dump(record))
    else:
        from .tables import clients_table, console, equilibria_table, game_line

        out = console()
        out.print(game_line(game))
        out.print(equilibria_table(found, "Equilibria by total participation"))
        for i, eq in enumerate(found):
            out.print(clients_table(eq, f"E{i + 1}"))
            if eq.face is not None:
                out.print(escape(f"   {eq.face}"))
        for i, proof in enumerate(proofs):
            out.print(escape(f"E{i + 1}: {proof}"))
        out.print(escape(f"{found.uniqueness.value.capitalize()}: {found.reason}."))
    if not found:
        return 3
    return 0 if found.complete and all(proofs) else 1


@app.command(
    epilog="Examples: stackfu frontier game.json --points 20 -o frontier.csv | "
    "stackfu frontier game.json --budgets 0,0.05,0.1 --json"
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
    min_total: Floor = None,
    gap: Gap = None,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """What a budget buys: certified payments along a list of budgets."""
    if output is not None:
        _writable(output, ".csv", ".json")
    for name, value in (("to", to), ("points", points)):
        if budgets is not None and value is not None:
            raise InputError(f"--{name}", "describes a grid; with --budgets there is none", value=value)
    game = _game(game_file)
    values = (
        [_number(word, "budgets") for word in _words(budgets)]
        if budgets is not None
        else _grid(game, to, points or 11, min_total=min_total, gap=gap, time_limit=time_limit)
    )
    traced = _frontier(
        game, values, _progress(quiet, as_json), min_total=min_total, gap=gap, time_limit=time_limit
    )
    if output is not None:
        _write_frontier(traced, output)
    if as_json:
        from .records import dump

        typer.echo(dump(traced.summary()))
    else:
        from .tables import console, frontier_table, game_line

        out = console()
        out.print(game_line(game))
        out.print(frontier_table(traced, "What a budget buys"))
        out.print(f"Full participation of everybody would cost {traced.full_participation_price:.6g}.")
        _say_guess(out, game)
        if output is not None:
            out.print(f"Written: {output}")
    return max(_proved(solution.status) for solution in traced)


# -------------------------------------------------------------------- calibrate


@app.command(
    epilog="Examples: stackfu calibrate game.json --plan 8 -o pilots.csv | "
    "stackfu calibrate game.json pilots.csv -o calibrated.json"
)
def calibrate(
    game_file: GameFile,
    pilots: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PILOTS]",
            help="What pilot trainings did: a table with the columns pilot, client, participation and change.",
            show_default=False,
        ),
    ] = None,
    plan: Annotated[
        int | None,
        typer.Option(
            help="Write a table of this many pilots to train, its column change left empty.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the plan.", show_default="0")] = None,
    level: Annotated[float | None, typer.Option(help="Level of the intervals.", show_default="0.95")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Calibrated game to write (.json or .npz); with --plan, the table (.csv).",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Fit the constants C and A to pilot trainings: how much loss a unit of drift, and using fewer samples, makes."""
    from .pilots import read_pilots, write_plan

    if (plan is None) == (pilots is None):
        raise InputError("PILOTS", "give a table of pilots, or --plan to have one made", value=str(pilots))
    if plan is not None:
        if level is not None or as_json:
            raise InputError(
                "--plan", "only writes a table: --level and --json say nothing to it", value=plan
            )
        if output is None:
            raise InputError("--output", "must name the table that --plan writes (.csv)")
        _writable(output, ".csv")
        write_plan(_game(game_file), plan, seed or 0, output)
        typer.echo(
            f"Written: {output}. Train a model per pilot, fill in how each client's loss changed, then run: "
            f"stackfu calibrate {game_file} {output} -o calibrated.json"
        )
        return 0
    assert pilots is not None
    if seed is not None:
        raise InputError("--seed", "is that of a plan; a fit has nothing random", value=seed)
    if output is not None:
        _writable(output, ".json", ".npz")
    game = _game(game_file)
    participation, changes = read_pilots(pilots, game)
    found = game.calibrate(participation, changes, level=level or 0.95)
    if output is not None and found.identified:
        game.recalibrated(found).save(output)
    if as_json:
        from .records import dump

        typer.echo(dump(found.summary()))
    else:
        from .tables import console

        out = console()
        out.print(escape(f"{found}."))
        if not found.identified:
            out.print("[yellow]The pilots do not tell C from zero:[/] run more of them; no game was written.")
        elif output is not None:
            out.print(f"Written: {output}")
    return 0 if found.identified else 1


# -------------------------------------------------------------------- verify, lemmas, explore


@app.command(epilog="Example: stackfu verify solution.json && echo sound")
def verify(
    solution: Annotated[
        Path, typer.Argument(metavar="FILE", help="A solution or equilibrium file.", show_default=False)
    ],
    tolerance: Annotated[float, typer.Option(help="What counts as rounding, relative.")] = 1e-9,
    as_json: AsJson = False,
) -> int:
    """Check a saved solution or equilibrium from scratch; the exit code tells (0 sound, 1 not)."""
    from ..results import Equilibrium, Solution

    thing = _load(solution)
    if not isinstance(thing, (Equilibrium, Solution)):
        raise InputError(
            "FILE", "holds a game; there is nothing to verify before it is solved", value=str(solution)
        )
    if not 0.0 < tolerance < 1.0:
        raise InputError("tolerance", "must lie between 0 and 1", value=tolerance)
    check = thing.verify(tolerance)
    if as_json:
        from .records import dump

        typer.echo(dump(check.summary()))
    else:
        from .tables import console

        out = console()
        word = "[green]sound[/]" if check else "[red]not sound[/]"
        out.print(escape(repr(thing)))
        out.print(
            f"{word}: {escape(check.message)} (regret {check.regret:.1e}, residual {check.residual:.1e})."
        )
    return 0 if check else 1


@app.command(epilog="Examples: stackfu lemmas | stackfu lemmas game.json --json")
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
    """The published statements about the game, each checked: which hold, which do not, and what does."""
    from ..lemmas import report as check_statements

    if game_file is None:
        from ..demo import digits_game

        game = digits_game()
    else:
        game = _game(game_file)
    report = check_statements(game, thorough=thorough)
    if as_json:
        from .records import dump

        typer.echo(dump(report.to_dict()))
    else:
        from .tables import console, game_line, lemmas_table

        out = console()
        out.print(game_line(game))
        out.print(lemmas_table(report))
        for topic in ("uniqueness", "convergence", "budgets"):
            out.print(f"[bold]{topic.capitalize()}:[/] {escape(getattr(report, topic))}.")
    return 0 if all(row.holds is None or row.holds for row in report) else 1


@app.command(
    epilog="Examples: stackfu explore game.json -o explorer.html --points 25 | "
    "stackfu explore game.json --compare haipo,capped --outside -0.05"
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
        typer.Option(
            help="Most budgets on the slider.", min=2, show_default="13; 5 with hundreds of clients"
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            help="Lines beside the certified payments: uniform,haipo,capped, or none.",
            show_default="all; none with hundreds of clients",
        ),
    ] = None,
    outside: Annotated[
        str | None,
        typer.Option(
            help="Utility outside the federation, one for everybody or one per remaining client: who would leave is marked.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Heading of the page.", show_default="name of the file")
    ] = None,
    min_total: Floor = None,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Write one HTML page to explore the game with a budget slider; it needs no network and no server."""
    from ..explorer import MOST_CLIENTS, write_explorer
    from ..model.offers import check_outside

    game = _game(game_file)
    if output is None and str(game_file) == "-":
        raise InputError(
            "--output", "is needed: a game from standard input has no name to put the page beside"
        )
    target = output or game_file.with_suffix(".html")
    _writable(target, ".html", ".htm")
    lines = None if compare is None else [] if compare == "none" else _words(compare)
    apart = check_outside(game, _outside(outside))
    if game.count > MOST_CLIENTS:
        # the slider needs a search per budget: a page in seconds beats narrow gaps, and the page says how wide they are
        points, limit = points or 5, time_limit or 5.0
        if time_limit is None and not as_json:
            _note(
                f"{game.count} clients: {points} budgets at most, {limit:g} s for each search; "
                "--points and --time-limit ask for more"
            )
        time_limit = limit
    budgets = _even_grid(game, to, points or 13, min_total=min_total, time_limit=time_limit)
    traced = _frontier(game, budgets, _progress(quiet, as_json), min_total=min_total, time_limit=time_limit)
    with _status("lines to compare with", quiet or as_json):
        write_explorer(traced, target, title or game_file.stem, compare=lines, outside=apart)
    if as_json:
        from .records import dump

        typer.echo(dump({"output": str(target), **traced.summary()}))
    else:
        typer.echo(f"Written: {target}")
    return max(_proved(solution.status) for solution in traced)


# -------------------------------------------------------------------- between the words typed and the library


def _load(path: Path) -> Any:
    from ..io import load, loads

    return loads(sys.stdin.buffer.read(), "standard input") if str(path) == "-" else load(path)


def _game_of(thing: Any, path: Path) -> StackelbergGame:
    from ..game import StackelbergGame

    game = thing if isinstance(thing, StackelbergGame) else getattr(thing, "game", None)
    if not isinstance(game, StackelbergGame):
        raise FileFormatError(f"{path}: holds no game")
    return game


def _game(path: Path) -> StackelbergGame:
    return _game_of(_load(path), path)


def _writable(path: Path, *endings: str) -> None:
    """Refuse a file that could not be written, before anything is computed for it."""
    if path.suffix not in endings:
        raise InputError("output", f"must end in {' or '.join(endings)}", value=str(path))
    if not path.parent.is_dir():
        raise InputError("output", f"there is no folder {path.parent}", value=str(path))
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError("output", "cannot be written", value=str(path))


def _sampled(game: StackelbergGame, constant: float | None) -> StackelbergGame:
    return game if constant is None else game.replace(sampling_constant=constant)


def _outside(text: str | None) -> list[float] | float | None:
    """Outside utilities as they were typed: one number, or one per client."""
    if text is None:
        return None
    values = [_number(word, "outside") for word in _words(text)]
    return values[0] if len(values) == 1 else values


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _number(word: str, argument: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InputError(argument, "must be a number", value=repr(word)) from None


def _proved(status: Status) -> Literal[0, 1, 130]:
    """The exit code that a solver's status deserves."""
    if status.name == "INTERRUPTED":
        return 130
    return 0 if status.success else 1


def _progress(quiet: bool, as_json: bool) -> bool:
    return sys.stderr.isatty() and not quiet and not as_json


@contextmanager
def _status(text: str, silent: bool) -> Iterator[None]:
    if silent or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def _top(game: StackelbergGame, to: float | None, **options: Any) -> float:
    """The end of a grid of budgets: ``to``, by default what the best payments without a budget spend."""
    if to is None:
        return game.solve(None, progress=False, **options).spend
    if not 0 < to < float("inf"):
        raise InputError("to", "must be positive", value=to)
    return to


def _grid(game: StackelbergGame, to: float | None, points: int, **options: Any) -> list[float]:
    """Budgets up to the top, denser near 0."""
    top = _top(game, to, **options)
    if not top > 0:
        return [0.0]  # the best that can be had comes for free: no budget changes anything
    return [top * (i / points) ** 2 for i in range(1, points + 1)]


def _even_grid(game: StackelbergGame, to: float | None, points: int, **options: Any) -> list[float]:
    """Budgets in even round steps that reach the top; exactly, where it was typed."""
    from ..explorer import even_budgets

    top = _top(game, to, **options)
    if not top > 0:
        return [0.0]
    return even_budgets(top, points) if to is None else [top * i / points for i in range(1, points + 1)]


def _note(text: str) -> None:
    """Something worth knowing, on standard error."""
    print(f"stackfu: note: {text}", file=sys.stderr)


def _say_guess(out: Any, game: StackelbergGame) -> None:
    from .tables import guess_line

    if line := guess_line(game):
        out.print(line)


def _solve(
    game: StackelbergGame, budget: float | None, method: str, options: dict[str, Any], progress: bool
) -> Solution:
    """``game.solve`` with errors that name what was typed; a progress line where the mechanism has one."""
    from ..leader.mechanisms import mechanism

    if "progress" in mechanism(method).options:
        options = {**options, "progress": progress}
    try:
        return game.solve(budget, method=method, **options)
    except InputError as error:
        if error.argument in options or error.argument in ("method", "budget"):
            name = f"--{error.argument.replace('_', '-')}"
            raise InputError(name, error.problem, client=error.client, value=error.value) from None
        raise


def _frontier(game: StackelbergGame, budgets: Sequence[float], progress: bool, **options: Any) -> Frontier:
    return game.frontier(budgets, progress=progress, **options)


def _write_frontier(frontier: Frontier, path: Path) -> None:
    """One row per budget; payments and participation one column per client."""
    from ..atomic import write_atomically
    from .records import dump

    record = frontier.summary()
    if path.suffix == ".json":
        write_atomically(path, dump(record).encode())
        return
    plain = json.loads(dump(record))
    names = ["budget", "spend", "server_loss", "lower_bound", "total", "status"]
    who = plain["names"]
    lines = [",".join([*names, *(f"payment_{k}" for k in who), *(f"participation_{k}" for k in who)])]
    for point in plain["points"]:
        cells = [point[name] for name in names] + point["payments"] + point["participation"]
        lines.append(
            ",".join("" if cell is None else cell if isinstance(cell, str) else repr(cell) for cell in cells)
        )
    write_atomically(path, ("\n".join(lines) + "\n").encode())
