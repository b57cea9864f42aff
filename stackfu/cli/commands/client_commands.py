"""Commands that say what the clients do: ``equilibria`` under given payments, and the ``cascade`` of those who leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError
from ..answers import say_json, say_note
from ..app import app, examples
from ..game_files import game_of, load_file, sampled
from ..parsing import AsJson, GameFile, Marginal, Sampling, per_client, utilities
from ..wording import as_typed

if TYPE_CHECKING:
    from ...results import Equilibria, Equilibrium

#: Up to so many remaining clients the whole curve of equilibria is followed within seconds (2 s at 1,000, growing with the cube).
WHOLE_CURVE = 2000


@app.command(
    epilog=examples(
        "stackfu equilibria game.json",
        "stackfu equilibria game.json --payments 0.1,0,0 --caps 1,0.5,1",
        "stackfu equilibria solution.json --prove",
    )
)
def equilibria(
    game_file: GameFile,
    payments: Annotated[
        str | None,
        typer.Option(
            "--payments",
            "-p",
            help="One number per remaining client (a,b,c), York=a,Hull=b and nothing for the others, or a table with the columns "
            "client and payment.",
            show_default="the file's, or nothing",
        ),
    ] = None,
    caps: Annotated[
        str | None,
        typer.Option(
            "--caps",
            help="Largest share of its data that is taken of each remaining client: a,b,c, York=a,Hull=b, or a table with the "
            "columns client and cap.",
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
    sensitivity: Marginal = False,
    as_json: AsJson = False,
) -> int:
    """Return every equilibrium of the clients under given payments and caps, and whether the list is complete."""
    thing = load_file(game_file)
    game = sampled(game_of(thing, game_file), sampling_constant)
    if payments is None and getattr(getattr(thing, "offers", None), "kind", "") == "contract":
        raise InputError(
            "GAME", "its offers are contracts, all or nothing; give --payments and --caps instead"
        )
    paid, taken = getattr(thing, "payments", None), getattr(thing, "caps", None)
    if payments is not None:
        paid = per_client(payments, game, "payments", "payment", 0.0)
    if caps is not None:
        taken = per_client(caps, game, "caps", "cap", 1.0)
    if not one and game.count > WHOLE_CURVE:
        raise InputError(
            "GAME",
            f"has more than {WHOLE_CURVE} remaining clients, and following the whole curve of equilibria would take minutes; "
            "--one finds one of them in seconds",
            value=game.count,
        )
    from ...followers.path import tracing

    if not one and not as_json and game.count > tracing.LARGEST_CHAIN:
        say_note(
            f"{game.count} clients: above {tracing.LARGEST_CHAIN} equilibria are listed, and that none is missing may stay open; "
            "--one finds one of them in seconds"
        )
    found = _only(game.equilibrium(paid, caps=taken)) if one else game.equilibria(paid, caps=taken)
    proofs = [eq.prove() for eq in found] if prove else []
    from ..contributions import contributions, say_contributions

    if as_json:
        record = found.summary()
        for item, proof in zip(record["equilibria"], proofs, strict=False):
            item["proof"] = str(proof)
        for item, eq in zip(record["equilibria"], found, strict=True):
            item |= contributions(eq, sensitivity, False)
        say_json(record)
    else:
        from ..tables import clients_table, console, equilibria_table, game_line, say_guess

        out = console()
        out.print(game_line(game))
        out.print(equilibria_table(found, "Equilibria by total participation"))
        for i, eq in enumerate(found):
            out.print(clients_table(eq, f"E{i + 1}"))
            say_contributions(out, eq, sensitivity, False)
            if eq.face is not None:
                out.print(f"   {eq.face}")
        for i, proof in enumerate(proofs):
            out.print(f"E{i + 1}: {proof}")
        out.print(f"{found.uniqueness.value.capitalize()}: {as_typed(found.reason)}.")
        say_guess(out, game)
    if not found:
        return 3
    whole = (
        found[0].status.proved if one else found.complete
    )  # one was asked for: that there are others is no failure
    return 0 if whole and all(proofs) else 1


def _only(eq: Equilibrium) -> Equilibria:
    """Return one equilibrium as a list, complete if there is proved to be no other."""
    from ...results import Equilibria, Uniqueness

    unique = eq.uniqueness is Uniqueness.UNIQUE
    return Equilibria(eq.game, eq.payments, (eq,), eq.uniqueness, eq.reason, unique, seconds=eq.seconds)


@app.command(
    epilog=examples(
        "stackfu cascade game.json --outside -0.5",
        "stackfu cascade solution.json --outside -0.1,-0.2,-0.1 --order simultaneous --json",
    )
)
def cascade(
    game_file: GameFile,
    outside: Annotated[
        str,
        typer.Option(
            help="Utility outside the federation: one for everybody, one per remaining client (a,b,c), or York=a,Hull=b."
        ),
    ],
    order: Annotated[
        str, typer.Option(help="sequential (who gains most leaves first) or simultaneous.")
    ] = "sequential",
    as_json: AsJson = False,
) -> int:
    """Show departures from the federation in their order, under the file's offers (a game file: without payments)."""
    thing = load_file(game_file)
    game, offers = game_of(thing, game_file), getattr(thing, "offers", None)
    posted: dict[str, Any] = {}
    if offers is not None:
        posted = {"offers": offers}
    elif hasattr(thing, "payments"):
        posted = {"payments": thing.payments, "caps": thing.caps}
    found = game.cascade(outside=utilities(outside, game), order=order, **posted)  # type: ignore[arg-type]
    if as_json:
        say_json(found.summary())
    else:
        from ..tables import and_more, cascade_table, console, game_line, say_guess

        out = console()
        out.print(game_line(game))
        out.print(cascade_table(found, "Departures"))
        stayed = and_more([game.called(k) for k in found.stayed])
        out.print(f"{len(found.stayed)} of {game.count} stay: {stayed}.")
        say_guess(out, game)
    return 0
