"""``{attack-tables}``: what the last committed run of `make attack` counted."""

from __future__ import annotations

import json
from pathlib import Path

from docutils import nodes
from peer_tables import parsed
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[2] / "stackfu_bench" / "results" / "attack"


class AttackTables(SphinxDirective):
    """One table per campaign: how often each verdict was given."""

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for file in sorted(RESULTS.glob("*.json")):
            self.env.note_dependency(str(file))
            record = json.loads(file.read_text())
            wrong = len(record["wrong"])
            lines += [
                f"**{file.stem.capitalize()}**: {record['games']:,} games, {wrong} confident and wrong "
                f"(commit `{record['commit']}`, first seed {record['first_seed']}).",
                "",
                "| verdict | games |",
                "|---|---|",
                *(
                    f"| {verdict} | {count:,} |"
                    for verdict, count in sorted(record["counts"].items(), key=lambda item: -item[1])
                ),
                "",
            ]
        return parsed(self, lines or ["No campaign is committed yet."])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("attack-tables", AttackTables)
    return {"parallel_read_safe": True}
