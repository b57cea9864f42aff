"""``python -m stackfu_bench.peers [section ...] [--quick] [--json DIR | --no-json]``."""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import os
from pathlib import Path

from rich.console import Console
from rich.table import Table

from stackfu_bench.machine import machine
from stackfu_bench.peers import SECTIONS, Row

RESULTS = Path(__file__).parents[1] / "results"
PACKAGES = ("stackfu", "numpy", "scipy", "numba", "llvmlite", "scikit-learn", "torch", "pykeops", "cvxpy",
            "clarabel", "scs", "ecos", "casadi", "cvxpylayers", "diffcp",
            "pyDVL", "nashopt", "nashpy", "pygambit", "quantecon")  # fmt: skip


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def show(console: Console, title: str, rows: list[Row]) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("task", "peer"):
        table.add_column(name)
    for name in ("stackfu", "peer's", "ratio", "target"):
        table.add_column(name, justify="right")
    table.add_column("note")
    for row in rows:
        target = "" if row.target is None else f"{row.target:g}"
        style = "" if row.target is None else "green" if row.ratio >= row.target else "red"
        ratio = f"{row.ratio:.2f}"
        table.add_row(row.task, row.peer, f"{row.ours:.4g} {row.unit}", f"{row.theirs:.4g} {row.unit}",
                      f"[{style}]{ratio}[/]" if style else ratio, target, row.note)  # fmt: skip
    console.print(table)


def write(path: Path, section: str, rows: list[Row], facts: dict[str, object], quick: bool) -> None:
    record = {
        "section": section,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "quick": quick,
        **facts,
        "rows": [
            {"task": r.task, "peer": r.peer, "stackfu": r.ours, "theirs": r.theirs, "unit": r.unit,
             "ratio": round(r.ratio, 3), "target": r.target, "note": r.note, **r.extra}
            for r in rows
        ],
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(temporary, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m stackfu_bench.peers", description="stackfu beside its peers"
    )
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="default: all that exist")
    parser.add_argument("--quick", action="store_true", help="small sizes, a minute in all")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="DIR", help="where the figures go")
    parser.add_argument("--no-json", action="store_true", help="print only")
    args = parser.parse_args()
    console = Console(width=None if Console().is_terminal else 150)
    facts: dict[str, object] = {"machine": machine(), "versions": versions()}
    console.print(facts["machine"], facts["versions"])
    for section in args.sections or SECTIONS:
        if not args.sections and importlib.util.find_spec(SECTIONS[section]) is None:
            continue
        rows = importlib.import_module(SECTIONS[section]).run(quick=args.quick)
        show(console, section, rows)
        if not args.no_json:
            write(args.json / f"{section}.json", section, rows, facts, args.quick)


if __name__ == "__main__":
    main()
