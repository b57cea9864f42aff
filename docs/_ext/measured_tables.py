"""``{trust-table}``, ``{leader-by-size}``, ``{offers-by-size}`` and others: committed measurements on the pages."""

from __future__ import annotations

import measured
from docutils import nodes
from peer_tables import parsed
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class MeasuredTable(SphinxDirective):
    """A table of :data:`measured.TABLES`, by the directive's name and the word behind it."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = " ".join([self.name, *self.arguments])
        try:
            lines = measured.table(name)
        except ValueError as error:
            raise self.error(str(error)) from error
        # a file that is not there yet is waited for as well
        self.env.note_dependency(str(measured.ROOT / measured.TABLES[name][0]))
        return parsed(self, lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register one directive per family of tables."""
    for name in dict.fromkeys(key.split()[0] for key in measured.TABLES):
        app.add_directive(name, MeasuredTable)
    return {"parallel_read_safe": True}
