"""Break every core formula once and see whether a test notices: ``python tests/mutation/mutants.py``.

A mutant changes one operator, comparison, constant or function of the mathematics in :data:`TARGETS`: plus
and minus, times and divided by, the direction of a comparison, min and max, a factor, a sign. Each runs in
a forked process on a copy of the package, against the tests of its own stage, until the first failure. A
mutant that no test notices has survived.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GAME = ["tests/properties/test_formulas.py", "tests/properties/test_invariances.py"]
FOLLOWERS = ["tests/followers", "tests/properties/test_solvers.py"]
PRICE = ["tests/leader/test_price.py", "tests/leader/test_baselines.py", "tests/properties/test_solvers.py"]
LEADER = ["tests/leader/test_certified.py", "tests/properties/test_solvers.py"]

#: File: (functions whose bodies are mathematics, tests that must notice).
TARGETS: dict[str, tuple[set[str], list[str]]] = {
    "stackfu/game.py": (
        {
            "lam",
            "lam_v",
            "lam_s",
            "heterogeneity",
            "profile",
            "reluctance",
            "inclination",
            "client_impacts",
            "client_utilities",
            "server_loss",
            "server_utility",
            "effectiveness_bound",
            "stability_bound",
            "change_bounds",
            "finite_sample_penalty",
            "best_response",
            "_responses",
            "thresholds",
            "residual",
            "regrets",
            "full_participation_price",
        },
        GAME,
    ),
    "stackfu/profile.py": ({"variance", "others"}, GAME),
    "stackfu/geometry.py": (
        {"__init__", "pairwise", "mixture", "original", "squared_distances", "combine", "scale", "gram"},
        GAME,
    ),
    "stackfu/followers/homogeneous.py": ({"homogeneous_equilibrium"}, FOLLOWERS),
    "stackfu/followers/verification.py": ({"_without", "_search", "gain"}, FOLLOWERS),
    "stackfu/followers/sweeps.py": ({"newton_polish"}, FOLLOWERS),
    "stackfu/followers/path.py": ({"_follow", "_shares"}, FOLLOWERS),
    "stackfu/leader/price.py": ({"brackets", "unavoidable", "cheapest_payments"}, PRICE),
    "stackfu/leader/haipo.py": ({"budget_price", "_response"}, PRICE),
    "stackfu/leader/relaxation.py": ({"of", "squared_distances", "least_loss", "_least", "_values"}, LEADER),
}
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Lt: ast.Gt, ast.Gt: ast.Lt,
    ast.LtE: ast.GtE, ast.GtE: ast.LtE,
}  # fmt: skip
NAMES = {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "cbrt": "sqrt"}


def sites(tree: ast.AST, functions: set[str]) -> list[tuple[int, str]]:
    """Places that can be mutated, as numbers of nodes in the order of a walk, with what happens there."""
    found: list[tuple[int, str]] = []
    for number, node in enumerate(_mathematics(tree, functions)):
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in SWAPS:
            found.append((number, f"{type(node.op).__name__} -> {SWAPS[type(node.op)].__name__}"))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            found.append((number, f"{type(node.ops[0]).__name__} -> {SWAPS[type(node.ops[0])].__name__}"))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            found.append((number, "drop the minus sign"))
        elif (
            isinstance(node, ast.Constant)
            and type(node.value) in (int, float)
            and node.value in (2.0, 0.5, 3.0, 3)
        ):
            found.append((number, f"{node.value} -> {node.value + 1}"))
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            found.append((number, f"{node.attr} -> {NAMES[node.attr]}"))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
            found.append((number, f"{node.func.id} -> {NAMES[node.func.id]}"))
    return found


def _mathematics(tree: ast.AST, functions: set[str]) -> list[ast.AST]:
    """Nodes of the chosen functions, without error messages and raised errors."""
    out: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.Raise, ast.JoinedStr)):
            return
        out.append(node)
        for child in ast.iter_child_nodes(node):
            visit(child)

    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in functions:
            for statement in node.body:
                visit(statement)
    return out


def mutate(source: str, functions: set[str], number: int) -> tuple[str, int, str]:
    """The source with one site changed, its line, and the line's text before."""
    tree = ast.parse(source)
    node = _mathematics(tree, functions)[number]
    line = getattr(node, "lineno", 0)
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare):
        node.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd()
    elif isinstance(node, ast.Constant):
        node.value = node.value + 1  # type: ignore[operator]
    elif isinstance(node, ast.Attribute):
        node.attr = NAMES[node.attr]
    elif isinstance(node, ast.Call):
        node.func = ast.Name(NAMES[node.func.id], ast.Load())  # type: ignore[attr-defined]
    return (
        ast.unparse(ast.fix_missing_locations(copy.deepcopy(tree))),
        line,
        source.splitlines()[line - 1].strip(),
    )


def run_tests(tree: Path, tests: list[str], limit: float) -> str:
    """Fork, run the tests on the copy, and say what happened; a timeout counts as noticed."""
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.chdir(tree)
        sys.path.insert(0, str(tree))
        sys.dont_write_bytecode = True
        import pytest

        code = 3
        try:
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml", *tests]))
        finally:
            os._exit(code)
    began = time.monotonic()
    while time.monotonic() - began < limit:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "killed"
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sample", type=int, default=0, help="at most this many mutants a file (0: all)")
    parser.add_argument("--only", default="", help="only files whose name contains this")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds a mutant may run")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop starting mutants after this long")
    parser.add_argument("--verbose", action="store_true", help="a line a mutant")
    arguments = parser.parse_args()
    os.environ["HYPOTHESIS_PROFILE"] = "mutation"
    # what every mutant imports is loaded once, before forking
    import clarabel  # noqa: F401

    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("stackfu", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder / name)
    counts: dict[str, dict[str, int]] = {}
    for file, (functions, wanted) in TARGETS.items():  # the cheapest tests come first
        if arguments.only not in file:
            continue
        tests = [t for t in wanted if any((folder / t).rglob("test_*.py")) or (folder / t).is_file()]
        source = (folder / file).read_text()
        if run_tests(folder, tests, 900) != "survived":
            print(f"{file}: the tests fail without any mutant", flush=True)
            continue
        places = sites(ast.parse(source), functions)
        if arguments.sample and len(places) > arguments.sample:
            places = sorted(random.Random(0).sample(places, arguments.sample))
        for number, change in places:
            if arguments.seconds and time.monotonic() - began > arguments.seconds:
                break
            mutant, line, text = mutate(source, functions, number)
            (folder / file).write_text(mutant)
            outcome = run_tests(folder, tests, arguments.limit)
            (folder / file).write_text(source)
            tally = counts.setdefault(file, {"killed": 0, "survived": 0, "timeout": 0})
            tally[outcome] += 1
            if arguments.verbose:
                print(f"{outcome} {file}:{line} {change}", flush=True)
            if outcome == "survived":
                print(f"SURVIVED {file}:{line} {change}: {text}", flush=True)
        print(f"{file}: {counts.get(file)}", flush=True)
    total = {key: sum(c[key] for c in counts.values()) for key in ("killed", "survived", "timeout")}
    share = 1 - total["survived"] / max(sum(total.values()), 1)
    print(f"total {total}: {share:.1%} caught")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
