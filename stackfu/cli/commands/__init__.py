"""The commands, one module per group. Heavy imports wait until a command runs, so that ``--help`` and completion are quick."""

from ..app import app

from . import demo, games, payments, client_commands, values, checks, explore  # isort: skip  (the order of the help)

__all__ = ["app", "checks", "client_commands", "demo", "explore", "games", "payments", "values"]
