"""``summary()`` of a game or a result as text: JSON in which what is not finite becomes null, and a frontier as a table."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..atomic import write_atomically

if TYPE_CHECKING:
    from ..results import Frontier

__all__ = ["dump", "write_frontier"]


def dump(record: dict[str, Any]) -> str:
    """Return the record as JSON text that every parser accepts."""
    return json.dumps(plain(record), indent=1, allow_nan=False)


def plain(value: Any) -> Any:
    """Values that strict JSON can hold."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_frontier(frontier: Frontier, path: Path) -> None:
    """As .json, or as .csv with one row per budget; payments and participation have one column per client."""
    record = frontier.summary()
    if path.suffix == ".json":
        write_atomically(path, dump(record).encode())
        return
    strict = plain(record)
    currency = [] if strict["currency"] is None else [strict["currency"]]
    names = ["budget", "spend", "server_loss", "lower_bound", "total", "samples_used", "status"]
    who = strict["names"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    of_clients = [f"{what}_{k}" for what in ("payment", "participation") for k in who]
    writer.writerow([*names, *(["currency"] if currency else []), *of_clients])
    writer.writerows(
        [point[name] for name in names] + currency + point["payments"] + point["participation"]
        for point in strict["points"]
    )
    write_atomically(path, text.getvalue().encode())
