"""Files that commands read and write: a game, or what holds one; and whether a file can be written at all."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FileFormatError, InputError

if TYPE_CHECKING:
    from ..game import StackelbergGame
    from ..results import Solution

__all__ = ["game_of", "load_file", "load_game", "sampled", "solution_writable", "writable", "write_solution"]


def load_file(path: Path) -> Any:
    """Return the game or result in a file; ``-`` is standard input."""
    from ..io import load, loads

    if str(path) == "-":
        return loads(sys.stdin.buffer.read(), "standard input")
    if path.suffix in (".csv", ".tsv", ".parquet") and path.is_file():
        raise FileFormatError(f"{path}: a table, not a game; make one of it first: stackfu embed {path}")
    return load(path)


def game_of(thing: Any, path: Path) -> StackelbergGame:
    """Return the game that a file's content is, or belongs to."""
    from ..game import StackelbergGame

    game = thing if isinstance(thing, StackelbergGame) else getattr(thing, "game", None)
    if not isinstance(game, StackelbergGame):
        raise FileFormatError(f"{path}: holds no game")
    return game


def load_game(path: Path) -> StackelbergGame:
    """Return the game in a file, whether it stands alone or in a result."""
    return game_of(load_file(path), path)


def writable(path: Path, *endings: str) -> None:
    """Refuse a file that could not be written, before anything is computed for it."""
    if path.suffix not in endings:
        raise InputError("output", f"must end in {' or '.join(endings)}", value=str(path))
    if not path.parent.is_dir():
        raise InputError("output", f"there is no folder {path.parent}", value=str(path))
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError("output", "cannot be written", value=str(path))


#: Packages that tables of a solution need, by the ending of the file.
_TABLES = {".csv": ("pandas",), ".xlsx": ("pandas", "openpyxl")}


def solution_writable(path: Path) -> None:
    """Refuse a file that a solution or its table could not be written to, before anything is computed for it."""
    writable(path, ".json", ".npz", *_TABLES)
    for package in _TABLES.get(path.suffix, ()):
        if find_spec(package) is None:
            raise InputError(
                "output", f"{path.suffix} tables need {package}; pip install {package}", value=str(path)
            )


def write_solution(solution: Solution, path: Path, whole: bool = False) -> None:
    """Write a solution, or its table with a row per client (.csv, .xlsx); the file is complete or not there.

    ``whole`` adds to the table what each client brings in whole samples, and what it receives for them.
    """
    if path.suffix not in _TABLES:
        solution.save(path)
        return
    from ..results.access import write_csv, write_excel

    table = solution.to_pandas()
    if whole:
        plan = solution.whole_samples()
        table = table.assign(**{"whole samples": plan.counts, "receives for whole samples": plan.payouts})
    (write_csv if path.suffix == ".csv" else write_excel)(table, path)


def sampled(game: StackelbergGame, constant: float | None) -> StackelbergGame:
    """Return the game with the sampling constant that was typed, if one was."""
    return game if constant is None else game.replace(sampling_constant=constant)
