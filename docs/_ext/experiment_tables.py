"""Directives that show ``integration/results``: ``{experiment-table(s)}``, ``{experiment-figure}`` and ``{stream-table}``."""

from __future__ import annotations

from pathlib import Path

import evidence
import matplotlib
from docutils import nodes
from docutils.parsers.rst import directives
from peer_tables import parsed
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from stackfu_integration.lab.report.tables.streams import stream_table

#: Folder of the drawn figures, next to the pages of the experiments; not committed.
FIGURES = Path("experiments", "generated")


def _condition(text: str) -> dict[str, list[str]]:
    """``column = value | another value``, and with ``;`` more columns."""
    found = {}
    for part in text.split(";"):
        column, values = part.split("=")
        found[column.strip()] = [value.strip() for value in values.split("|")]
    return found


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _lines(made: evidence.Table) -> list[str]:
    """The table as Markdown; a mean stays on one line with its interval."""
    return made.markdown().replace(" ± ", "\u00a0±\u00a0").splitlines()


class _Evidence(SphinxDirective):
    required_arguments = 1

    def depend_on_results(self) -> None:
        self.env.note_dependency(str(evidence.RESULTS))
        for file in evidence.RESULTS.glob("*.json"):
            self.env.note_dependency(str(file))


class ExperimentTable(_Evidence):
    """One table: ``:preset:`` and ``:beta:`` choose runs, ``:where:`` rows, ``:columns:`` columns."""

    option_spec = {  # noqa: RUF012
        "preset": str.split,
        "beta": lambda text: [float(value) for value in text.split()],
        "where": _condition,
        "columns": _names,
    }

    def run(self) -> list[nodes.Node]:
        self.depend_on_results()
        given = self.options
        try:
            made = evidence.table(
                self.arguments[0],
                given.get("preset", ()),
                given.get("beta", ()),
                given.get("where"),
                given.get("columns", ()),
            )
        except ValueError as error:
            raise self.error(str(error)) from error
        return parsed(self, _lines(made))


class ExperimentTables(_Evidence):
    """Every table of one preset, each below a heading of its own."""

    def run(self) -> list[nodes.Node]:
        self.depend_on_results()
        lines: list[str] = []
        for name in evidence.TABLES:
            try:
                made = evidence.table(name, [self.arguments[0]])
            except ValueError as error:
                raise self.error(str(error)) from error
            if made.rows:
                lines += [f"## {name.capitalize()}", "", *_lines(made), ""]
        return parsed(self, lines)


class ExperimentFigure(_Evidence):
    """One figure of one preset, drawn when the page is read."""

    option_spec = {"preset": directives.unchanged_required, "alt": directives.unchanged_required}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        self.depend_on_results()
        kind, preset = self.arguments[0], self.options["preset"]
        try:
            drawn = evidence.figure(kind, preset)
        except ValueError as error:
            raise self.error(str(error)) from error
        name = FIGURES / f"{kind}-{preset}.svg"
        target = Path(self.env.srcdir) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context({"svg.hashsalt": "stackfu"}):  # equal results give equal files
            drawn.savefig(target, metadata={"Date": None})
        return [nodes.image(uri=f"/{name.as_posix()}", alt=self.options["alt"])]


class StreamTable(SphinxDirective):
    """Streams of removal requests in the federations of one preset."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = evidence.RESULTS / "studies" / f"streams-{self.arguments[0]}.json"
        self.env.note_dependency(str(path))
        return parsed(self, _lines(stream_table(path)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("experiment-table", ExperimentTable)
    app.add_directive("experiment-tables", ExperimentTables)
    app.add_directive("experiment-figure", ExperimentFigure)
    app.add_directive("stream-table", StreamTable)
    return {"parallel_read_safe": True}
