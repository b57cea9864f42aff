"""Commands that make a game: from samples (``embed``), and from what pilot trainings did (``calibrate``)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import InputError, warn
from ...html import money
from ..answers import say_json, say_note
from ..app import app, examples
from ..game_files import load_game, writable
from ..parsing import AsJson, GameFile, is_table, number, numbers_of_clients, words

#: With more clients than this, all distances between them are a lot of text.
LARGE = 500
#: With more clients than this, their inner products take longer and more room than random features do.
CROWD = 2000


@app.command(
    epilog=examples(
        "stackfu embed clients.csv --removed 0,1,2 -o game.json",
        "stackfu embed clients.csv --removed Leeds --costs costs.csv --currency EUR --missing median --standardise -o game.json",
        "stackfu embed vectors.parquet --client hospital --labels diagnosis --kernel joint --removed Leeds -o game.npz",
        "stackfu embed vectors.parquet --client hospital --drop diagnosis --features 1024 -o game.npz",
    )
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
        str | None,
        typer.Option(
            help="Clients to forget, as they are called in the file: a,b,c; a name that holds a comma in quotation marks.",
            show_default=False,
        ),
    ] = None,
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
    missing: Annotated[
        str,
        typer.Option(
            help="What is done about missing values: refuse, drop (leave out rows that have any) or median (of the client's own "
            "values in the column)."
        ),
    ] = "refuse",
    standardise: Annotated[
        bool,
        typer.Option(
            "--standardise",
            help="Every column in units of its spread over all clients, those to forget included.",
        ),
    ] = False,
    costs: Annotated[
        str | None,
        typer.Option(
            help="What taking part with all its data costs each client: a table with the columns client and cost, a column of "
            "SAMPLES, or York=900,Hull=1200.",
            show_default="by size, see --cost-scale",
        ),
    ] = None,
    cost_scale: Annotated[
        float | None,
        typer.Option(
            help="What all data of all clients together would cost, where no costs are given.",
            show_default="10",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="How much data each client has: a table with the columns client and size, a column of SAMPLES, or "
            "York=900,Hull=1200.",
            show_default="its rows",
        ),
    ] = None,
    currency: Annotated[
        str | None,
        typer.Option(
            help="The unit of costs, payments and budgets, as all tables name it: EUR.", show_default=False
        ),
    ] = None,
    loss_constant: Annotated[
        float, typer.Option(help="C, loss per squared distance; stackfu calibrate fits it to trainings.")
    ] = 1.0,
    lambda_v: Annotated[float, typer.Option(help="Weight of unlearning effectiveness.")] = 1.0,
    lambda_s: Annotated[float, typer.Option(help="Weight of global stability.")] = 1.0,
    lambda_q: Annotated[
        float, typer.Option(help="Price of a unit of a client's own loss: money, in the unit of the costs.")
    ] = 1.0,
    as_json: AsJson = False,
) -> int:
    """Turn samples into a game file: mean embeddings, sizes, and who is to be forgotten."""
    from ...embedding import MeanEmbeddings
    from ...embedding.preparation import check_missing, prepare
    from ...game import StackelbergGame
    from ...model.units import unit_doubts
    from ..sample_files import read_samples
    from ..wording import as_typed

    writable(output, ".json", ".npz")
    if seed is not None and features is None:
        raise InputError("--seed", "is that of random features; ask for some with --features", value=seed)
    width: float | str = bandwidth if bandwidth == "median" else number(bandwidth, "bandwidth")
    chosen: Any = kernel or ("rbf" if labels is None else "joint")
    if costs is not None and cost_scale is not None:
        raise InputError(
            "--cost-scale", "is for costs by size; --costs gives those of each client", value=cost_scale
        )
    check_missing(missing)
    labels_only = chosen == "labels"
    for option, typed in (
        ("--standardise", standardise),
        ("--drop", drop),
        ("--missing", missing != "refuse"),
    ):
        if typed and labels_only:
            raise InputError(option, "is about coordinates; the kernel looks at labels alone", value=chosen)
    each = {"costs": costs, "sizes": sizes}
    table = read_samples(
        samples,
        client,
        words(drop),
        labels,
        labels_only=labels_only,
        gaps=missing != "refuse",
        of_clients={
            name: text.strip() for name, text in each.items() if text is not None and _is_column(text)
        },
    )
    given: dict[str, Any] = {
        name: table.numbers[name]
        if name in table.numbers
        else numbers_of_clients(text, name, name[:-1], client)
        for name, text in each.items()
        if text is not None
    }
    prepared = None
    if not labels_only:
        coordinates, choice = table.coordinates, missing
        prepared = prepare(table.samples, table.labels, table.names, coordinates, choice, standardise)  # type: ignore[arg-type]
    count = len(table.names)
    if features is None and chosen == "rbf" and count > CROWD and not as_json:
        say_note(
            f"{count} clients: the inner products of all pairs are a file of {8e-6 * count**2:.0f} MB; --features 256 keeps 256 "
            "numbers of each client instead"
        )
    asked: dict[str, Any] = {"labels": table.labels, "names": table.names} if prepared is None else {}
    with warnings.catch_warnings(record=as_json) as caught:
        embeddings = MeanEmbeddings.from_samples(
            prepared, bandwidth=width, features=features, seed=seed or 0, kernel=chosen, **asked
        )
        game = StackelbergGame(
            embeddings,
            given.get("sizes"),
            () if removed is None else _named(removed, table.names),
            costs=given.get("costs"),
            cost_scale=10.0 if cost_scale is None else cost_scale,
            currency=currency,
            loss_constant=loss_constant,
            lambda_v=lambda_v,
            lambda_s=lambda_s,
            lambda_q=lambda_q,
        )
        for doubt in unit_doubts(game):
            warn(doubt)
    if output.suffix == ".json" and len(game.all_names) > LARGE and not as_json:
        say_note(
            f"{len(game.all_names)} clients make a large .json file; .npz is smaller, and read in a moment"
        )
    game.save(output)
    if as_json:
        about: dict[str, Any] = {"output": str(output), "all_names": list(game.all_names)}
        if prepared is not None:
            about["preparation"] = prepared.summary()
        about["notes"] = [as_typed(str(one.message), ["embed"]) for one in caught or ()]
        say_json({**about, **game.summary()})
        return 0
    from ..tables import console, game_line

    out = console()
    width_line = "" if embeddings.bandwidth is None else f" Bandwidth {float(embeddings.bandwidth):.4g}."
    out.print(f"{game_line(game)}{'' if chosen == 'rbf' else f' Kernel: {chosen}.'}{width_line}")
    if prepared is not None and (prepared.changed or standardise):
        out.print(f"Prepared: {prepared}.")
    price = money(game.full_participation_price, game.currency)
    out.print(f"Full participation of all that remain costs {price}. Written: {output}")
    return 0


def _named(text: str, names: Sequence[str]) -> list[str]:
    """Return the typed clients: one name, possibly with commas, or several; ambiguous input is refused."""
    typed, whole = words(text), text.strip()
    if not typed:
        raise InputError(
            "--removed", "names nobody; leave it out if nobody is to be forgotten", value=repr(text)
        )
    if whole not in names or typed == [whole]:
        return typed
    if len(typed) > 1 and all(word in names for word in typed):
        apart = " and ".join(map(repr, typed))
        raise InputError(
            "--removed",
            f"could mean client {whole!r} or clients {apart}; write '\"{whole}\"' for the one, '{', '.join(typed)}' for the others",
            value=repr(text),
        )
    return [whole]


def _is_column(text: str) -> bool:
    """Return True if the text can only be the name of a column: it is no table, no list by name and no list of numbers."""
    if is_table(text) or "=" in text:
        return False
    try:
        return not [float(word) for word in words(text)]
    except ValueError:
        return True


@app.command(
    epilog=examples(
        "stackfu calibrate game.json --plan 8 -o pilots.csv",
        "stackfu calibrate game.json pilots.csv -o calibrated.json",
    )
)
def calibrate(
    game_file: GameFile,
    pilots: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PILOTS]",
            help="What pilot trainings did: a table with the columns pilot, client, samples (or participation) and change; "
            "- reads standard input.",
            show_default=False,
        ),
    ] = None,
    plan: Annotated[
        int | None,
        typer.Option(
            help="Write a table of this many pilots to train, in whole samples, its column change left empty.",
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
    from ..pilots import read_pilots, write_plan

    if (plan is None) == (pilots is None):
        raise InputError("PILOTS", "give a table of pilots, or --plan to have one made", value=str(pilots))
    if plan is not None:
        if level is not None or as_json:
            raise InputError(
                "--plan", "only writes a table: --level and --json say nothing to it", value=plan
            )
        if output is None:
            raise InputError("--output", "must name the table that --plan writes (.csv)")
        writable(output, ".csv")
        game = load_game(game_file)
        counts = write_plan(game, plan, seed or 0, output)
        from ..tables import console, pilots_table

        console().print(pilots_table(counts, game, "Pilots to train"))
        typer.echo(
            f"Written: {output}. Train a model per pilot, fill in how each client's loss changed, then run: "
            f"stackfu calibrate {game_file} {output} -o calibrated.json"
        )
        return 0
    assert pilots is not None
    if seed is not None:
        raise InputError("--seed", "is that of a plan; a fit has nothing random", value=seed)
    if output is not None:
        writable(output, ".json", ".npz")
    game = load_game(game_file)
    participation, changes = read_pilots(pilots, game)
    found = game.calibrate(participation, changes, level=level or 0.95)
    calibrated = game.recalibrated(found) if found.identified else None
    if output is not None and calibrated is not None:
        calibrated.save(output)
    if as_json:
        say_json(found.summary())
    else:
        from ..tables import console, led_by

        out = console()
        out.print(f"{found}.")
        if not found.identified:
            out.print(
                led_by(
                    "The pilots do not tell C from zero:", "yellow", " run more of them; no game was written."
                )
            )
        elif output is not None:
            out.print(f"Written: {output}")
    return 0 if found.identified and found.predicts else 1
