"""``stackfu-lab``: the commands of the lab and those of the mechanism on Flower, in one program."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.text import Text

from stackfu.errors import StackfuError
from stackfu_integration.flower.cli import app as flower_commands
from stackfu_integration.lab.cli import app as lab_commands

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Federated learning, unlearning and incentives, end to end.",
)
app.add_typer(lab_commands)
app.add_typer(flower_commands)


def main() -> None:
    """Entry point: errors that are made on purpose become one line and exit code 2."""
    try:
        app()
    except StackfuError as error:
        line = Text.assemble(("error:", "bold red"), f" {error}")  # brackets in the message are no markup
        Console(stderr=True).print(line, highlight=False, soft_wrap=True)
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
