"""Tolerances have names and reasons: none stands inline, and one name means one number within a room."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import stackfu

ROOT = Path(stackfu.__file__).parent

#: Modules with numbers as cases, examples and wording rather than tolerances of an algorithm.
ELSEWHERE = ("lemmas", "testing", "demo", "catalog.py", "cli")
#: Numbers that may stand inline, by module, with the reason.
ALLOWED = {
    "explorer/__init__.py": ({1e-12}, "steps of a slider: rounding must not add one"),
    "followers/reference.py": ({1e-13, 1e-9}, "the naive reference shares nothing, numbers included"),
    "leader/certified/large.py": ({1e-3, 1e-9}, "when a guess is good enough to go on from"),
    "followers/_at_once.py": ({5e-324}, "the smallest positive float: nothing is divided by zero"),
    "model/game_model.py": ({5e-324}, "the smallest positive float: nothing is divided by zero"),
    "model/responses.py": ({5e-324}, "the smallest positive float: nothing is divided by zero"),
    "model/objective.py": ({1e-6, 1e-5, 1e-3}, "default gaps by number of clients, the method's own subject"),
    "plot/__init__.py": (
        {1e-300},
        "divisors that may be 0 where there are no payments, no rises and no distances",
    ),
}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in ELSEWHERE)
#: Rooms in which a name means one number; elsewhere modules share none.
ROOMS = ("followers", "judging", "leader", "model")


def is_tolerance(node):
    """Return True if a node is a number so small or so large that it has a special reason."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, float)
        and node.value != 0.0
        and not 1e-3 < abs(node.value) < 1e6
    )


def inline(text):
    """Tolerances of a text that have no name: no constant's, no parameter's, no field's. Units in messages are none."""
    tree = ast.parse(text)
    named = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            named += [field for field in node.body if isinstance(field, (ast.Assign, ast.AnnAssign))]
        elif isinstance(node, ast.arguments):
            named += [default for default in (*node.defaults, *node.kw_defaults) if default is not None]
        elif isinstance(node, ast.JoinedStr):
            named.append(node)
    known = {id(inner) for node in named for inner in ast.walk(node)}
    return [node for node in ast.walk(tree) if is_tolerance(node) and id(node) not in known]


def constants(text):
    """A module's numbers in upper case, by name."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs = zip(target.elts, value.elts, strict=True) if several else [(target, value)]
        for name, number in pairs:
            if isinstance(name, ast.Name) and name.id.isupper() and not name.id.startswith("_"):
                parts = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.Load)
                if all(isinstance(part, parts) for part in ast.walk(number)):
                    found[name.id] = eval(ast.unparse(number), {})
    return {name: value for name, value in found.items() if not isinstance(value, str)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_tolerance_stands_inline(path):
    allowed, _ = ALLOWED.get(str(path.relative_to(ROOT)), (set(), ""))
    wrong = [f"line {n.lineno}: {n.value:g}" for n in inline(path.read_text()) if n.value not in allowed]
    assert not wrong, f"{path.name} has numbers without a name and a reason: {wrong}"


@pytest.mark.parametrize("room", ROOMS)
def test_one_name_means_one_number_in_a_room(room):
    values = defaultdict(dict)
    for path in (ROOT / room).rglob("*.py"):
        for name, value in constants(path.read_text()).items():
            values[name].setdefault(value, []).append(path.name)
    twice = {name: found for name, found in values.items() if len(found) > 1}
    assert not twice


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("A = 1e-9", 0),
        ("def f(x, tolerance=1e-9, *, gap=1e-3): pass", 0),
        ("class Limits:\n    gap: float = 1e-6", 0),
        ("f'{size / 1e9:.1f} GB'", 0),
        ("x = f(y)\nif x < 0.5: pass", 0),
        ("def f(x):\n    return x < 1e-9", 1),
        ("def f(x):\n    small = 1e-9\n    return x < -1e300 * small", 2),
        ("class A:\n    def f(self):\n        return solve(gap=1e-3)", 1),
    ],
)
def test_the_walk_sees_what_has_no_name(text, count):
    assert len(inline(text)) == count


def test_the_walk_reads_constants():
    text = "A = 1e-9\nB, C = 2, -(2.0**-3)\nD: float = 4.0\nE = 'a'\n_F = 1\ng = 2\nH = (1, 2)\nI = f(3)\n"
    assert constants(text) == {"A": 1e-9, "B": 2, "C": -0.125, "D": 4.0, "H": (1, 2)}
