"""``{peer-tables}``: the committed results of ``python -m stackfu_bench.peers`` as tables, of all peers or of those named."""

from __future__ import annotations

import json
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[2] / "stackfu_bench" / "results"


def parsed(directive: SphinxDirective, lines: list[str]) -> list[nodes.Node]:
    """Markdown made by a directive, as if it stood on the page itself."""
    holder = nodes.Element()
    source = StringList(lines, directive.name)
    directive.state.nested_parse(source, directive.content_offset, holder, match_titles=True)
    return holder.children


class PeerTables(SphinxDirective):
    """One section per results file, with its date, machine and versions; words behind the name choose the peers."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        # the same folder holds measurements of other kinds, without a section
        files = [file for file in sorted(RESULTS.glob("*.json")) if "section" in json.loads(file.read_text())]
        self.env.note_dependency(str(RESULTS))
        lines = [line for file in files for line in self._section(file)]
        if files and not self.arguments:
            lines = [*self._goals(files), "", *lines]
        return parsed(self, lines or ["No results are committed yet."])

    def _goals(self, files: list[Path]) -> list[str]:
        """Return a sentence that counts the goals and those that are met."""
        rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
        goals = [row for row in rows if row["target"] is not None]
        met = sum(row["ratio"] >= row["target"] for row in goals)
        return [f"Of {len(rows)} rows {len(goals)} have a stated goal (*wanted*), and {met} meet it."]

    def _section(self, file: Path) -> list[str]:
        self.env.note_dependency(str(file))
        record = json.loads(file.read_text())
        wanted = self.arguments[0].split() if self.arguments else [""]
        rows = [row for row in record["rows"] if any(word in row["peer"] for word in wanted)]
        if not rows:
            return []
        machine, versions = record["machine"], record["versions"]
        quick = ", a quick run with small sizes" if record.get("quick") else ""
        lines = [
            f"## {record['section'].capitalize()}",
            "",
            f"Measured {record['date'][:10]} on {machine['cpu']} ({machine['cores']} cores, "
            f"load {machine['load_at_start']:.1f} at the start, Python {machine['python']}){quick}. "
            "Ratio is the peer's figure divided by stackfu's: above 1, stackfu is faster or better.",
            "",
            "| task | peer | stackfu | peer's | ratio | wanted | note |",
            "|---|---|---:|---:|---:|---:|---|",
        ]
        for row in rows:
            target = "" if row["target"] is None else f"{row['target']:.3g}"
            cells = [
                row["task"],
                row["peer"],
                f"{row['stackfu']:.4g}\u00a0{row['unit']}",
                f"{row['theirs']:.4g}\u00a0{row['unit']}",
                f"**{row['ratio']:.3g}**",
                target,
                row["note"],
            ]
            lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        packages = ", ".join(f"{name} {number}" for name, number in versions.items())
        return [*lines, "", f"Versions: {packages}.", ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("peer-tables", PeerTables)
    return {"parallel_read_safe": True}
