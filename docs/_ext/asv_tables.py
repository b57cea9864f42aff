"""``{asv-tables}``: the newest committed pass of the asv suite, as tables."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from docutils import nodes
from peer_tables import parsed
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[2] / "stackfu_bench" / "results" / "asv"


def shown(value: float | None, kind: str, unit: str) -> str:
    """A number with a unit that fits it."""
    if value is None:
        return "n/a"
    if kind == "peakmem":
        return f"{value / 1e6:.0f} MB"
    if kind != "time" and unit not in ("s", "seconds"):
        return f"{value:.3g}"
    for factor, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:.3g} {name}"
    return f"{value:.2g} s"


def rows(name: str, result: list[Any], about: dict[str, Any]) -> list[str]:
    """Lines of one benchmark: one value per combination of parameters."""
    values, params = result[0] or [None], result[1]
    kind, unit = about["name"].split(".")[-1].split("_")[0].replace("timeraw", "time"), about.get("unit", "")
    combinations = list(itertools.product(*params)) if params else [()]
    lines = []
    for value, combination in zip(values, combinations, strict=True):
        setting = ", ".join(
            f"{p} = {v.strip(chr(39))}" for p, v in zip(about["param_names"], combination, strict=True)
        )
        extra = f" ({unit})" if kind == "track" and unit not in ("unit", "s") else ""
        lines.append(f"| `{name}`{extra} | {setting} | {shown(value, kind, unit)} |")
    return lines


class AsvTables(SphinxDirective):
    """One table per module of the suite."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(RESULTS))
        files = [f for f in RESULTS.glob("*/*.json") if f.name != "machine.json"]
        lines = self._tables(files) if files else ["No pass is committed yet."]
        return parsed(self, lines)

    def _tables(self, files: list[Path]) -> list[str]:
        # of passes over parts of the suite, made to compare two commits, the most complete one
        records = {f: json.loads(f.read_text()) for f in files}
        chosen = max(files, key=lambda f: (len(records[f]["results"]), records[f]["date"]))
        self.env.note_dependency(str(chosen))
        record = records[chosen]
        about = json.loads((RESULTS / "benchmarks.json").read_text())
        results = {name: r for name, r in sorted(record["results"].items()) if name in about}
        started = [result[3] for result in results.values() if len(result) > 3]
        date = datetime.fromtimestamp(max(started) / 1000, tz=timezone.utc).date()
        machine = record["params"]
        lines = [
            f"Measured {date} on {machine['cpu']} ({machine['num_cpu']} cores), commit "
            f"`{record['commit_hash'][:10]}`, every benchmark once (`make bench`), so seconds are rough.",
            "",
        ]
        for module, names in itertools.groupby(results, key=lambda name: name.split(".")[0]):
            table = [row for name in names for row in rows(name.split(".", 1)[1], results[name], about[name])]
            # folded, so that the page is of readable length
            lines += ["<details>", f"<summary>{module}: {len(table)} values</summary>", ""]
            lines += ["| benchmark | parameters | value |", "|---|---|---:|", *table, "", "</details>", ""]
        return lines


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("asv-tables", AsvTables)
    return {"parallel_read_safe": True}
