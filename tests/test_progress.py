"""Progress is shown on a terminal and in a notebook only."""

import sys
import types

import numpy as np
import pytest

import stackfu as sf
from stackfu import progress
from stackfu.progress import reporting


class Notebook:
    """The drawings of a front end: IPython's display, with a handle that is written over."""

    def __init__(self, monkeypatch, kernel=True):
        self.shown = []
        shell = types.SimpleNamespace(**({"kernel": object()} if kernel else {}))
        display = types.ModuleType("IPython.display")
        display.HTML, display.display = str, self.display
        package = types.ModuleType("IPython")
        package.display, package.get_ipython = display, lambda: shell
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", display)
        monkeypatch.setattr(progress, "PAUSE", 0.0)

    def display(self, html, display_id):
        assert display_id is True
        self.shown.append(html)
        return types.SimpleNamespace(update=self.shown.append)


def test_in_a_notebook_one_line_is_written_over_and_taken_away(monkeypatch):
    notebook, seen = Notebook(monkeypatch), []
    with reporting("certified <b>", None, seen.append) as report:
        report({"gap": 0.5, "nodes": 3, "seconds": 1.0, "words": "no"})
    assert seen == [{"gap": 0.5, "nodes": 3, "seconds": 1.0, "words": "no"}]
    assert notebook.shown[0] == "certified &lt;b&gt;"
    assert "gap 0.5  nodes 3 (" in notebook.shown[1]
    assert notebook.shown[-1] == ""


def test_the_line_goes_also_when_the_work_is_interrupted(monkeypatch):
    notebook = Notebook(monkeypatch)
    with pytest.raises(KeyboardInterrupt), reporting("certified", None, None):
        raise KeyboardInterrupt
    assert notebook.shown == ["certified", ""]


def test_a_notebook_is_not_flooded(monkeypatch):
    notebook = Notebook(monkeypatch)
    monkeypatch.setattr(progress, "PAUSE", 1e9)
    with reporting("certified", True, None) as report:
        for i in range(100):
            report({"nodes": i})
    assert len(notebook.shown) <= 3


def test_solvers_report_to_notebooks(monkeypatch):
    notebook = Notebook(monkeypatch)
    rng = np.random.default_rng(0)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(rng.normal(size=(5, 3))), [3, 4, 5, 6, 7], removed=[0]
    )
    assert game.solve(0.05).status.success
    assert notebook.shown[0] == "certified"
    assert notebook.shown[-1] == ""
    count = len(notebook.shown)
    assert game.solve(0.05, progress=False).status.success
    assert len(notebook.shown) == count


@pytest.mark.parametrize("ipython", [True, False])
def test_where_nobody_looks_nothing_is_shown(monkeypatch, capsys, ipython):
    """IPython on a terminal has no kernel, and standard error that is no terminal has no reader."""
    notebook = Notebook(monkeypatch, kernel=False)
    if not ipython:
        monkeypatch.delitem(sys.modules, "IPython")
    with reporting("certified", None, None) as report:
        assert report is None
    assert notebook.shown == []
    assert capsys.readouterr().err == ""


def test_a_line_that_is_asked_for_goes_to_standard_error(capsys):
    seen = []
    with reporting("certified", True, seen.append) as report:
        report({"nodes": 1})
    assert seen == [{"nodes": 1}]
    assert capsys.readouterr().out == ""
