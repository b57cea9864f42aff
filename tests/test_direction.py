"""The house has a direction: every import, lazy ones and those for type checkers included, points down, and none goes round."""

import ast
import importlib
from pathlib import Path

import pytest

import stackfu

ROOT = Path(stackfu.__file__).parent

#: From the ground up. A module may import from its own room and from those before it.
ROOMS = (
    ("errors", "atomic", "background_compiler", "jit", "html", "progress", "threads"),
    ("embedding",),
    ("model",),
    ("calibration",),
    ("results",),
    ("judging",),
    ("followers",),
    ("sensitivity",),
    ("values",),
    ("leader",),
    ("game",),
    ("requests",),
    ("io",),
    ("lemmas", "demo"),
    ("catalog", "testing", "plot", "explorer"),
    ("cli", "__main__"),
)
#: The package's own front, which loads names when they are asked for.
DOOR = "stackfu"
#: The modules that import from later stages: a thin facade with methods that call files, and embeddings that draw themselves.
FACADE = "stackfu.game"
UPWARD = {FACADE: {"stackfu.io", "stackfu.plot"}, "stackfu.embedding.mean_embeddings": {"stackfu.plot"}}


def module_name(path):
    parts = ["stackfu", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in ROOT.rglob("*.py")}


def imports(name, path, text=None):
    """Every stackfu module that a module's text imports, wherever the statement stands, or names as an address.

    What is taken from the package's front door comes from behind it.
    """
    found = set()
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text() if text is None else text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                found.add(
                    inner
                    if inner in MODULES
                    else stackfu._HOME.get(alias.name, DOOR)
                    if source == DOOR
                    else source
                )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.partition(":")[0])
    return {other for other in found if other in MODULES} - {name}


def graph():
    return {name: imports(name, path) for name, path in MODULES.items()}


def room(name):
    part = name.split(".")[1]
    return next(i for i, names in enumerate(ROOMS) if part in names)


def test_every_module_has_a_room():
    for name in MODULES:
        if name != DOOR:
            room(name)


@pytest.mark.parametrize("part", sorted({part for names in ROOMS for part in names} - {"__main__"}))
def test_the_page_for_contributors_names_every_room(part):
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    kind = "/" if (ROOT / part).is_dir() else ".py"
    assert f"`{part}{kind}`" in page


@pytest.mark.parametrize("name", sorted(set(MODULES) - {DOOR}))
def test_imports_point_down(name):
    wrong = {
        other
        for other in imports(name, MODULES[name]) - {DOOR}
        if room(other) > room(name) and other not in UPWARD.get(name, ())
    }
    assert not wrong, f"{name} imports {sorted(wrong)}, which stand above it"


def test_judges_share_no_code_with_the_solvers_they_judge():
    for name in MODULES:
        if name.startswith("stackfu.judging"):
            for other in imports(name, MODULES[name]):
                assert not other.startswith(("stackfu.followers", "stackfu.leader", "stackfu.game")), (
                    name,
                    other,
                )


def test_no_import_goes_round_in_a_circle():
    links = {
        name: {o for o in others if o != DOOR and o not in UPWARD.get(name, ())}
        for name, others in graph().items()
        if name != DOOR
    }
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return
        path.append(name)
        # importing a.b.c runs a.b first, but a package's front gathers its own rooms: that is no dependence of theirs on it
        for other in sorted(links.get(name, ())):
            visit(other)
        path.pop()
        done.add(name)

    for name in sorted(links):
        visit(name)


def test_no_module_is_hidden_by_a_name_of_its_package():
    """An export with the name of a module would hide the module."""
    for name in set(MODULES) - {DOOR, f"{DOOR}.__main__", f"{DOOR}.lemmas.__main__"}:
        package, _, own = name.rpartition(".")
        module = importlib.import_module(name)
        assert getattr(importlib.import_module(package), own) is module, name


def test_the_walk_sees_lazy_imports():
    assert "stackfu.io" in imports(FACADE, MODULES[FACADE])


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("def f():\n    from ..leader import solve", "stackfu.leader"),
        ("if TYPE_CHECKING:\n    from ..leader.mechanisms import Mechanism", "stackfu.leader.mechanisms"),
        ("from .. import StackelbergGame", "stackfu.game"),
        ("from stackfu import load", "stackfu.io"),
        ("import stackfu.leader.uniform as u", "stackfu.leader.uniform"),
        ("import_module('stackfu.leader.uniform')", "stackfu.leader.uniform"),
        ("announce('x', 'stackfu.leader.uniform:uniform')", "stackfu.leader.uniform"),
        ("import stackfu", "stackfu"),
        ("import stackfu as sf", "stackfu"),
    ],
)
def test_no_way_to_import_is_overlooked(text, seen):
    name = "stackfu.judging.proof"
    assert imports(name, MODULES[name], text) == {seen}


@pytest.mark.parametrize("name", sorted(set(MODULES) - {DOOR}))
def test_nobody_goes_out_and_in_again_by_the_front_door(name):
    """A module that holds the whole package could reach anything; only the version is in the front itself."""
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            assert DOOR not in {alias.name for alias in node.names}, name
        elif isinstance(node, ast.ImportFrom) and (node.level, node.module) in (
            (len(name.split(".")) - 1, None),
            (0, DOOR),
        ):
            names = {alias.name for alias in node.names}
            assert names <= {"__version__"} | {module.rpartition(".")[2] for module in MODULES}, name


def imports_what_is_computed(text):
    """Return True if a text imports modules by computed names; a name that begins with a dot depends on a package."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__", "exec", "eval")
        and not (
            node.args
            and isinstance(node.args[0], ast.Constant)
            and not str(node.args[0].value).startswith(".")
        )
        for node in ast.walk(ast.parse(text))
    )


def test_what_is_imported_by_a_computed_name_is_the_users():
    """The registry imports the modules of a user's own mechanisms, the background compiler those it is asked to compile."""
    computed = {name for name, path in MODULES.items() if imports_what_is_computed(path.read_text())}
    assert computed == {DOOR, "stackfu.background_compiler", "stackfu.leader.mechanisms"}


@pytest.mark.parametrize(
    ("text", "computed"),
    [
        ("import_module('..leader', __package__)", True),
        ("importlib.import_module('.leader', 'stackfu')", True),
        ("import_module(name)", True),
        ("import_module(name=where)", True),
        ("import_module('stackfu.leader')", False),
    ],
)
def test_names_that_begin_with_a_dot_are_computed_too(text, computed):
    assert imports_what_is_computed(text) is computed
