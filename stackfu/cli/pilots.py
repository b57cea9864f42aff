"""Pilot trainings as a table: one row per pilot and remaining client, with its participation and how its loss changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..atomic import write_atomically
from ..calibration import pilot_profiles
from ..errors import InputError
from .sample_files import read_columns

if TYPE_CHECKING:
    from ..game import StackelbergGame

__all__ = ["COLUMNS", "read_pilots", "write_plan"]

COLUMNS = ("pilot", "client", "participation", "change")


def write_plan(game: StackelbergGame, count: int, seed: int, path: Path) -> None:
    """Profiles that tell C and A apart, to be trained; what happened goes to the last column."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for pilot, profile in enumerate(pilot_profiles(game, count, seed)):
        writer.writerows(
            (pilot + 1, name, repr(float(x)), "") for name, x in zip(game.names, profile, strict=True)
        )
    write_atomically(path, text.getvalue().encode())


def read_pilots(path: Path, game: StackelbergGame) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Participation and changes, one row per pilot in the order of the file, one column per remaining client."""
    columns = read_columns(path, "PILOTS")
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise InputError("PILOTS", f"{path} has no column {', '.join(missing)}; it has {', '.join(columns)}")
    place = {number: k for k, number in enumerate(game.remaining.tolist())}
    pilots = list(dict.fromkeys(str(pilot) for pilot in columns["pilot"]))
    tables = {name: np.full((len(pilots), game.count), np.nan) for name in COLUMNS[2:]}
    for row, (pilot, client) in enumerate(zip(columns["pilot"], columns["client"], strict=True)):
        k = place[game.client_names.position(client, "PILOTS", remaining=True)]
        p = pilots.index(str(pilot))
        if not np.isnan(tables["participation"][p, k]):
            raise InputError("PILOTS", f"row {row + 1} repeats pilot {pilot}", client=str(client))
        for name, table in tables.items():
            table[p, k] = _number(columns[name][row], name, row, str(client))
    for p, k in np.argwhere(np.isnan(tables["participation"])):
        raise InputError("PILOTS", f"pilot {pilots[p]} has no row for this client", client=game.who(int(k)))
    return tables["participation"], tables["change"]


def _number(cell: Any, name: str, row: int, client: str) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = np.nan
    if not np.isfinite(value):
        raise InputError(
            "PILOTS", f"row {row + 1}: {name} must be a number", client=client, value=repr(str(cell))
        )
    return value
