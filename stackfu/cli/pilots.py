"""Pilot trainings as a table: one row per pilot and remaining client, with its samples and the change of its loss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..atomic import write_atomically
from ..calibration import pilot_counts
from ..errors import InputError
from .sample_files import read_columns

if TYPE_CHECKING:
    from ..game import StackelbergGame

__all__ = ["COLUMNS", "read_pilots", "write_plan"]

#: Columns of a table of pilots; of samples and participation one is enough.
COLUMNS = ("pilot", "client", "samples", "participation", "change")
#: Samples and participation of a row agree to this part of the client's samples.
SAME = 1e-6


def write_plan(game: StackelbergGame, count: int, seed: int, path: Path) -> npt.NDArray[np.intp]:
    """Write a plan of pilots to be trained, its last column empty, and return the samples of each client in each of them."""
    import csv
    import io

    plan = pilot_counts(game, count, seed)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for pilot, row in enumerate(plan):
        writer.writerows(
            (pilot + 1, name, int(samples), repr(float(samples / size)), "")
            for name, samples, size in zip(game.names, row, game.sizes, strict=True)
        )
    write_atomically(path, text.getvalue().encode())
    return plan


def read_pilots(path: Path, game: StackelbergGame) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Participation and changes, one row per pilot in the order of the file, one column per remaining client."""
    columns = read_columns(path, "PILOTS")
    missing = [name for name in ("pilot", "client", "change") if name not in columns]
    if "samples" not in columns and "participation" not in columns:
        missing.insert(2, "participation")
    if missing:
        raise InputError("PILOTS", f"{path} has no column {', '.join(missing)}; it has {', '.join(columns)}")
    place = {str(name): k for k, name in enumerate(game.names)}
    pilots = list(dict.fromkeys(str(pilot) for pilot in columns["pilot"]))
    participation, changes = (np.full((len(pilots), game.count), np.nan) for _ in range(2))
    for row, (pilot, client) in enumerate(zip(columns["pilot"], columns["client"], strict=True)):
        k = place.get(str(client))
        if k is None:
            raise InputError("PILOTS", f"row {row + 1}: no such remaining client", value=repr(str(client)))
        p = pilots.index(str(pilot))
        if not np.isnan(participation[p, k]):
            raise InputError("PILOTS", f"row {row + 1} repeats pilot {pilot}", client=str(client))
        participation[p, k] = _share(columns, row, str(client), float(game.sizes[k]))
        changes[p, k] = _number(columns["change"][row], "change", row, str(client))
    for p, k in np.argwhere(np.isnan(participation)):
        raise InputError("PILOTS", f"pilot {pilots[p]} has no row for this client", client=game.label(int(k)))
    return participation, changes


def _share(columns: dict[str, npt.NDArray[Any]], row: int, client: str, size: float) -> float:
    """Return the participation in a row, as a share or as a number of samples, which must say the same where both are there."""
    found = {
        name: _number(columns[name][row], name, row, client)
        for name in ("samples", "participation")
        if name in columns
    }
    share = found["samples"] / size if "samples" in found else found["participation"]
    if abs(share - found.get("participation", share)) > SAME:
        raise InputError(
            "PILOTS",
            f"row {row + 1}: {found['samples']:g} samples of {size:g} are a participation of {share:.6g}, not "
            f"{found['participation']:.6g}; mend one of the two, or leave one column out",
            client=client,
        )
    return share


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
