"""Mathematics that renders without a network: MathJax, one file from an installed package, is copied into the pages.

``tex-svg.js`` carries its fonts, so the browser asks for nothing else.
"""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path
from shutil import copyfile

from sphinx.application import Sphinx

NAME = "tex-svg.js"


def copy_mathjax(app: Sphinx, failed: Exception | None) -> None:
    """Put MathJax where ``mathjax_path`` says."""
    if failed is None and app.builder.format == "html":
        package = distribution("sphinx-mathjax-offline")
        source = Path(str(package.locate_file(f"sphinx-mathjax-offline/static/mathjax/{NAME}")))
        target = Path(app.outdir) / "_static" / "mathjax" / NAME
        target.parent.mkdir(parents=True, exist_ok=True)
        copyfile(source, target)


def setup(app: Sphinx) -> dict[str, bool]:
    """Copy after everything else has been written."""
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
