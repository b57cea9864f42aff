"""Every code block of the documentation is run: examples by doctest, command lines here, the gallery by the build."""

import csv
import importlib.util
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stackfu as sf
from stackfu.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if not {"_build", "gallery"} & set(page.relative_to(ROOT).parts)]

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")


def blocks(page, language):
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page):
    """The command lines of a page, continued lines joined, comments gone."""
    for block in blocks(page, "console"):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if line.startswith("$ ") and not line.startswith("$ #"):
                yield re.sub(r"\s+#\s.*", "", line[2:])


def test_examples_stand_where_doctest_finds_them():
    """A page with examples is one that pytest reads, and an example without prompts at least compiles."""
    settings = (ROOT / "pyproject.toml").read_text()
    read = re.findall(r'"([^"]+)"', re.search(r"testpaths = \[(.*?)\]", settings)[1])
    found = 0
    for page in PAGES:
        here = str(page.relative_to(ROOT))
        for block in blocks(page, "python"):
            found += 1
            if ">>>" in block:
                assert any(here == path or here.startswith(path + "/") for path in read), here
            else:
                compile(block, here, "exec")
    assert found > 40


def test_what_is_typed_at_a_prompt_exists():
    """Targets of make, extras of pip; lines of ``stackfu`` are run below, those of the second package in its own tests."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {"stackfu", "stackfu-lab", "make", "pip", "python", "cat"}
    flower = {"flwr", "flower-superexec", "flower-supernode", "export", "head"}
    for page in PAGES:
        for line in commands(page):
            words = shlex.split(line)
            assert words[0] in known | (flower if "flower" in page.name else set()), (page, line)
            if words[0] == "make":
                assert words[1] in targets, line


#: Most characters in a line of prose; it is wrapped at 120, and a word that was put in since need not move all others.
LONGEST = 140
#: A word, or what is not broken at its spaces: code, links, formulas.
WORD = re.compile(r"(?:`[^`]*`|!?\[[^\]]*\]\([^)]*\)|\$[^$]+\$|\S)+")
#: Blocks that are no prose: fences, formulas, tables.
BLOCKS = re.compile(r"^ *(```|\$\$).*?\1 *$|^ *\|[^\n]*$", re.DOTALL | re.MULTILINE)


def long_lines(text):
    """Numbers of the lines of prose that are too long and could be broken."""
    prose = BLOCKS.sub(lambda block: "\n" * block[0].count("\n"), text)
    lines = enumerate(prose.splitlines(), 1)
    return [number for number, line in lines if len(line) > LONGEST and len(WORD.findall(line)) > 1]


def test_lines_of_prose_are_of_readable_length():
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        assert not long_lines(page.read_text()), page


def test_a_long_line_is_seen_and_what_cannot_be_broken_is_not():
    long = "word " * 30
    table, formula, fence = f"| {long} |", f"$$ {long}\n{long} $$", f"```console\n$ {long}\n```"
    assert long_lines(f"words\n\n{table}\n{formula}\n{fence}\n{long}\n") == [9]
    assert long_lines(f"a formula $ {long} $ that could stand on its own line") == [1]
    assert long_lines(f"![{long}](picture.svg)\n`{long}`,\n$ {long} $") == []


# -------------------------------------------------------------------- command lines


def shell(line, capsys, monkeypatch):
    """Run a line as a shell would: ``&&``, pipes and ``<`` around ``stackfu``, ``cat``, ``jq .name`` and ``echo``."""
    out = ""
    for part in line.split("&&"):
        given = ""
        for step in part.split("|"):
            words = shlex.split(step)
            if "<" in words:
                at = words.index("<")
                given, words = Path(words[at + 1]).read_text(), words[:at]
            if words[0] == "stackfu":
                monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
                code = main(words[1:])
                captured = capsys.readouterr()
                assert code in (0, 1), (line, captured.err)
                given = captured.out
                if code == 1:  # done, but not proved: what comes after && is not run
                    return given
            elif words[0] == "cat":
                given = Path(words[1]).read_text()
            elif words[0] == "jq":
                given = str(json.loads(given)[words[1].lstrip(".")])
            else:
                assert words[0] == "echo", line
                given = " ".join(words[1:])
            out = given
    return out


def write_samples(path, column, names, rng):
    """A table of samples with three coordinates and a class per row."""
    lines = [f"{column},a,b,c" + (",digit" if column == "client" else "")]
    for i, name in enumerate(names):
        for _ in range(15 + 5 * i):
            cells = rng.normal(0.3 * i, 1.0, 3).tolist() + (
                [int(rng.integers(3))] if column == "client" else []
            )
            lines.append(",".join([str(name), *map(repr, cells)]))
    path.write_text("\n".join(lines) + "\n")


def fill_in(path, game, rng):
    """Fill in the measurements of pilots with C = 2 and A = 0.2."""
    truth = game.replace(loss_constant=2.0, sampling_constant=0.2)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    for pilot in {row["pilot"] for row in rows}:
        mine = [row for row in rows if row["pilot"] == pilot]
        changes = truth.impacts([float(row["participation"]) for row in mine]).clients
        for row, change in zip(mine, changes, strict=True):
            row["change"] = repr(float(change * (1 + 0.01 * rng.normal())))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize("page", ["docs/cli.md", "docs/howto/removal_request.md"])
def test_command_lines_of_a_page_run_one_after_another(page, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    write_samples(tmp_path / "clients.csv", "client", range(6), rng)
    write_samples(tmp_path / "patients.csv", "hospital", ["Leeds", "York", "Hull", "Ripon", "Selby"], rng)
    ran = 0
    for line in commands(ROOT / page):
        if line.startswith("stackfu-lab"):
            continue
        if "pilots.csv -o" in line and "--plan" not in line:
            fill_in(tmp_path / "pilots.csv", sf.load("leeds.json"), rng)
        out = shell(line, capsys, monkeypatch)
        assert out, line
        if "echo sound" in line:
            assert out == "sound", line
        ran += 1
    assert ran >= 8


def test_every_command_is_on_the_page_of_commands():
    from stackfu.cli.commands import app

    page = (ROOT / "docs" / "cli.md").read_text()
    for command in app.registered_commands:
        assert f"| `stackfu {command.callback.__name__}" in page


# -------------------------------------------------------------------- notebooks


def test_a_notebook_is_given_what_a_kernel_would_send(tmp_path):
    spec = importlib.util.spec_from_file_location("executed", ROOT / "docs/_ext/executed_notebooks.py")
    executed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(executed)
    cells = [
        ("markdown", "words"),
        ("code", "import stackfu as sf\ngame = sf.catalog.three_equilibria().game\nprint(game.count)"),
        ("code", "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nNone"),
        ("code", "game"),
        ("code", "x = 1"),
    ]
    blank = {"execution_count": None, "outputs": []}
    made = [
        {"cell_type": kind, "source": [text], **(blank if kind == "code" else {})} for kind, text in cells
    ]
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": made}))
    executed.execute(path)
    first = path.read_text()
    _, counted, drawn, shown, silent = json.loads(first)["cells"]
    assert counted["outputs"][0]["text"].strip().isdecimal()
    assert "image/png" in drawn["outputs"][0]["data"]
    assert "<table" in shown["outputs"][0]["data"]["text/html"]
    assert (silent["outputs"], silent["execution_count"]) == ([], 4)
    executed.execute(path)
    assert path.read_text() == first  # once more changes nothing
    for name in executed.NOTEBOOKS:
        assert (ROOT / "docs/examples" / f"{name}.py").exists()


def test_a_notebook_that_fails_says_so(tmp_path):
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": ["1 / 0"]}]}))
    done = subprocess.run(
        [sys.executable, ROOT / "docs/_ext/executed_notebooks.py", path], capture_output=True, check=False
    )
    assert done.returncode != 0
    assert b"ZeroDivisionError" in done.stderr
