"""The application: its name, its help and its version; :mod:`stackfu.cli.commands` adds the commands."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__

__all__ = ["app", "examples"]

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


def examples(*commands: str) -> str:
    """Commands to copy, below the help of theirs: one per line, so that none is taken for a pipe into the next."""
    return "\n\n".join([f"Example{'s' if len(commands) > 1 else ''}:", *commands])


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
