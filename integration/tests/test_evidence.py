"""The documentation's tables and figures can be made from the committed results, on a machine without torch."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "experiments").rglob("*.md"))
DIRECTIVE = re.compile(r"```\{experiment-(table|tables|figure)\} (\S+)\n((?::.*\n)*)```")


@pytest.fixture(scope="module")
def evidence():
    spec = importlib.util.spec_from_file_location("evidence", ROOT / "docs" / "_ext" / "evidence.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked() -> list[tuple[str, str, str, dict[str, str]]]:
    """Page, kind, name and options of everything that the pages ask for."""
    return [
        (page.name, kind, name, dict(re.findall(r":(\w+): (.*)", options)))
        for page in PAGES
        for kind, name, options in DIRECTIVE.findall(page.read_text())
    ]


def test_the_pages_ask_for_tables_and_figures_that_the_results_fill(evidence):
    kinds = {kind for _, kind, _, _ in asked()}
    assert kinds == {"table", "tables", "figure"}
    for page, kind, name, options in asked():
        if kind == "figure":
            assert evidence.figure(name, options["preset"]).axes, page
        elif kind == "table":
            betas = [float(beta) for beta in options.get("beta", "").split()]
            where = {
                column.strip(): [value.strip() for value in values.split("|")]
                for part in options.get("where", "").split(";")
                for column, equals, values in [part.partition("=")]
                if equals
            }
            columns = [column.strip() for column in options.get("columns", "").split(",") if column.strip()]
            made = evidence.table(name, options.get("preset", "").split(), betas, where, columns)
            assert made.rows, (page, name, where)


def test_every_preset_has_a_page_of_tables(evidence):
    pages = {name for _, kind, name, _ in asked() if kind == "tables"}
    assert pages == set(evidence.all_presets())


def test_a_table_keeps_the_rows_and_columns_that_were_asked_for(evidence):
    whole = evidence.table("duels")
    part = evidence.table("duels", ["digits"], where={"quantity": ["S"], "against": ["haipo", "uniform"]})
    kept = [
        row for row in whole.rows if row[0] == "digits" and row[4] == "S" and row[3] in ("haipo", "uniform")
    ]
    assert part.columns == tuple(c for c in whole.columns if c not in ("preset", "quantity"))
    assert part.rows == tuple((*row[1:4], *row[5:]) for row in kept)
    assert part.note.endswith("Here: quantity = S.")
    assert evidence.table("duels", columns=["q (Benjamini-Hochberg)"]).rows == tuple(
        row[-1:] for row in whole.rows
    )


def test_what_is_not_there_is_refused(evidence):
    with pytest.raises(ValueError, match="no table 'nothing'"):
        evidence.table("nothing")
    with pytest.raises(ValueError, match=r"no run of \['mnist'\]"):
        evidence.table("duels", ["mnist"])
    with pytest.raises(ValueError, match=r"no run of \[0.3\]"):
        evidence.table("duels", ["digits"], [0.3])
    with pytest.raises(ValueError, match="no column taste"):
        evidence.table("duels", columns=["taste"])


def test_results_are_read_without_torch():
    """The documentation is built where only the light package is installed."""
    hide = "import sys; sys.modules.update(dict.fromkeys(('torch', 'flwr', 'sklearn', 'transformers')))"
    read = "import evidence; print(len(evidence.measured()))"
    done = subprocess.run(
        [sys.executable, "-c", f"{hide}; {read}"],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'docs' / '_ext'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(list((ROOT / "integration" / "results").glob("*.json")))


def test_results_are_one_file_per_run_named_by_what_was_run():
    for path in (ROOT / "integration" / "results").glob("*.json"):
        run = json.loads(path.read_text())["run"]
        assert path.name == f"{run['preset']}-b{run['beta']:g}-s{run['seed']}.json"
