"""Names that prose sets as code exist: in docstrings of both packages, and on the pages of the documentation."""

import ast
import builtins
import keyword
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("stackfu", "integration/stackfu_integration")
CODE = [
    file
    for folder in (*PACKAGES, "stackfu_bench", "tests", "integration/tests", "integration/flower-app", "docs")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if "_build" not in file.parts
]
PAGES = [
    page
    for page in (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    if not {"_build", "gallery"} & set(page.parts)
]
#: One name, perhaps with what owns it; anything else set as code is a formula, a file or a command line.
NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*(\(\))?")
#: A symbol of the mathematics with its index: ``z_k``, ``A_O``, ``kappa_k``, ``bound_k``.
SYMBOL = re.compile(r"[A-Za-z]+_[A-Za-z0-9]{1,2}")
#: Names of other packages, and prefixes of names.
ELSEWHERE = {"executescript", "time_", "peakmem_", "track_"}


@cache
def parsed(file):
    return ast.parse(file.read_text())


def docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


def words_of_code():
    """Every identifier and every word of a string that is no docstring: options, columns and keys are named by strings."""
    words = {*dir(builtins), *keyword.kwlist, *ELSEWHERE}
    for file in CODE:
        tree = parsed(file)
        prose = {id(value) for value in docstrings(tree)}
        words |= set(file.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                words |= set(re.findall(r"\w+", node.value))
            for field in ("id", "attr", "arg", "name", "asname"):
                value = getattr(node, field, None)
                if isinstance(value, str):
                    words |= set(value.split("."))
            if isinstance(node, ast.ImportFrom) and node.module:
                words |= set(node.module.split("."))
    return words


WORDS = words_of_code()


def unknown(name):
    """Return True if nothing in the code has this name, or one of its parts."""
    parts = name.removesuffix("()").strip("~.").split(".")
    longest = max(parts, key=len)
    return len(longest) > 2 and not SYMBOL.fullmatch(longest) and not WORDS.issuperset(parts)


def names_in_docstring(text):
    for found in re.finditer(r":[a-z]+:`(?:[^`<]*<)?([~.\w]+)>?`|(?<![:`])``([^`]+)``", text):
        name = found[1] or found[2]
        if found[1] or NAME.fullmatch(name):
            yield name


def names_on_page(text):
    """Code within lines; blocks are run elsewhere, and roles that name pages are checked by the build."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for found in re.finditer(r"(\{\w+\})?(?<!`)`([^`\n]+)`(?!`)", text):
        if found[1] not in ("{doc}", "{ref}") and NAME.fullmatch(found[2].lstrip("~.")):
            yield found[2].lstrip("~.")


def expect_known(named):
    """All names exist in the code; ``named`` are pairs of a file and a name in it, and there are many."""
    named = list(named)
    lost = [f"{file.relative_to(ROOT)}: {name}" for file, name in named if unknown(name)]
    assert len(named) > 300
    assert not lost


@pytest.mark.parametrize("package", PACKAGES)
def test_names_in_docstrings_exist(package):
    expect_known(
        (file, name)
        for file in sorted((ROOT / package).rglob("*.py"))
        for value in docstrings(parsed(file))
        for name in names_in_docstring(str(value.value))
    )


def test_names_on_pages_exist():
    expect_known((page, name) for page in PAGES for name in names_on_page(page.read_text()))


def test_folders_and_files_that_the_map_names_exist():
    """Names in CONTRIBUTING.md that look like paths are paths, from the top or within a package."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    inside = ["", "stackfu", "integration/stackfu_integration"]
    inside += [f"integration/stackfu_integration/{room}" for room in ("lab", "flower")]
    named = re.findall(r"(?<!`)`([\w./-]+/|[\w./-]+\.(?:py|md|toml|cff))`", text)
    assert len(named) > 20
    # what runs leave, and patterns, are not there
    for name in set(named) - {"dist/", "docs/_build/html/asv"}:
        assert any((ROOT / folder / name).exists() for folder in inside), name


def test_a_name_that_is_gone_is_seen():
    gone = "_".join(
        ["nothing", "has", "this", "name"]
    )  # put together here: a string would be a word of the code
    assert list(names_in_docstring(f":func:`.{gone}` and ``Frontier.{gone}``")) == [
        f".{gone}",
        f"Frontier.{gone}",
    ]
    assert list(names_on_page(f"`{gone}()`, {{doc}}`{gone}`, `{gone} --help`")) == [f"{gone}()"]
    assert all(unknown(name) for name in (gone, f".{gone}", f"Frontier.{gone}", f"{gone}()"))
    assert not any(unknown(name) for name in ("Frontier", "Frontier.losses", "z_k", "solve()"))
