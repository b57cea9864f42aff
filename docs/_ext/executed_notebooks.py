"""The notebooks below gallery pages come with their output: six of them are run, each in a process of its own.

What a kernel would send is put in: printed text, pictures, and the page of a last expression that has one (``_repr_html_``).
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

#: Notebooks for readers to work through.
NOTEBOOKS = (
    "plot_from_csv",
    "plot_caps",
    "plot_own_mechanism",
    "plot_more_money",
    "plot_policy",
    "plot_values",
)


def execute(path: Path) -> None:
    """Run the cells of a notebook in order and write their output into it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.close("all")  # only pictures of the notebook are put into it
    notebook = json.loads(path.read_text())
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        source = "".join(cell["source"])
        if source.strip() == "%matplotlib inline":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            last = _run(source, names)
        outputs: list[dict[str, Any]] = []
        if printed.getvalue():
            outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
        for number in plt.get_fignums():
            picture = io.BytesIO()
            plt.figure(number).savefig(picture, format="png", dpi=80)
            data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": "<Figure>"}
            outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
        plt.close("all")
        if hasattr(last, "_repr_html_"):
            data = {"text/html": last._repr_html_(), "text/plain": repr(last)}
            outputs.append(
                {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data}
            )
        cell["execution_count"], cell["outputs"] = count, outputs
    path.write_text(json.dumps(notebook, indent=1) + "\n")


def _run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    return (
        None if last is None else eval(compile(ast.Expression(body=last.value), "<cell>", "eval"), names)  # type: ignore[attr-defined]
    )


def execute_all(app) -> None:
    """After the gallery was written; a cell that fails ends the build."""
    if not app.config.sphinx_gallery_conf[
        "plot_gallery"
    ]:  # by then it is what was asked for, as a truth value
        return
    root = str(Path(__file__).parents[2])
    for name in NOTEBOOKS:
        subprocess.run(
            [sys.executable, __file__, str(Path(app.srcdir) / "gallery" / f"{name}.ipynb")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])},
            check=True,
        )


def setup(app) -> dict[str, bool]:
    """The gallery is written at the same event, earlier."""
    app.connect("builder-inited", execute_all, priority=900)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    execute(Path(sys.argv[1]))
