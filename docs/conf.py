"""Sphinx configuration."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import stackfu

project = "stackfu"
author = "The stackfu developers"
copyright = "The stackfu developers"
version = release = stackfu.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "executed_notebooks",
    "offline_math",
    "peer_tables",
    "asv_tables",
    "attack_tables",
    "experiment_tables",
    "measured_tables",
]
exclude_patterns = ["_build", "examples", "**/README.md"]
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"stackfu {release}"
html_static_path = ["_static"]
html_js_files = ["accessible.js"]
templates_path: list[str] = []

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = False
# the build must work without a network: cross-references to other projects stay plain text
intersphinx_mapping: dict[str, tuple[str, None]] = {}

# copied into the pages by offline_math; the default would be fetched from a network
mathjax_path = "mathjax/tex-svg.js"

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "download_all_examples": False,
    "show_memory": False,
    "capture_repr": ("_repr_html_",),
    "write_computation_times": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "doc_module": ("stackfu",),
}
suppress_warnings = ["config.cache"]


def show_formulas(_app, _what, _name, _object, _options, lines: list[str]) -> None:
    """Set the indented formulas of a docstring as they are typed, instead of as quotations."""
    text, before = [], ""
    for line in lines:
        formula = line.startswith("    ") and text and not text[-1].strip()
        if (
            formula
            and before
            and not before.startswith((" ", "-", ":", "..", ">>>"))
            and not before.endswith("::")
        ):
            text += ["::", ""]
        text.append(line)
        before = line or before
    lines[:] = text


def setup(app) -> None:
    """Before napoleon, which would take the formulas for paragraphs."""
    app.connect("autodoc-process-docstring", show_formulas, priority=400)
