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
FORMULAS, INVARIANCES, STATEMENTS, SOLVERS = (
    f"tests/properties/test_{name}.py" for name in ("formulas", "invariances", "statements", "solvers")
)
GAME = [FORMULAS, INVARIANCES, STATEMENTS]
FOLLOWERS = [SOLVERS, STATEMENTS]
LEADER = [SOLVERS]

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
    "stackfu/leader/price.py": ({"brackets", "unavoidable", "cheapest_payments"}, LEADER),
    "stackfu/leader/haipo.py": ({"budget_price", "_response"}, LEADER),
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


#: Extra arguments of property tests, beside the play or the game.
SPECIAL = ("twins=False", "max_removed=0", "costs=", "interior=", "below_cost=", "distinct=False")
ARGUMENTS: dict[str, object] = {"money": 7.0, "length": 2.0, "amount": 3.0, "shift": 0.25, "what": "costs"}


def draw_plays(count: int) -> list[dict[str, object]]:
    """Plays drawn once, as plain arrays, so that every mutant can rebuild them with its own classes."""
    from hypothesis import HealthCheck, Phase, given, settings

    from stackfu import testing

    drawn: list[dict[str, object]] = []

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(testing.plays(max_clients=4))
    def collect(play: testing.Play) -> None:
        game, payments, x = play
        known = game.embeddings.features
        drawn.append(
            {
                "features": known is not None,
                "data": game.embeddings.gram if known is None else known,
                "sizes": game.all_sizes,
                "removed": game.removed,
                "costs": game.costs,
                "weights": {
                    n: getattr(game, n) for n in ("lambda_v", "lambda_s", "lambda_q", "loss_constant")
                },
                "payments": payments,
                "x": x,
            }
        )

    collect()
    return drawn


def rebuild(record: dict[str, object]) -> object:
    """A play from plain arrays."""
    import stackfu as sf
    from stackfu import testing

    make = sf.MeanEmbeddings.from_features if record["features"] else sf.MeanEmbeddings.from_gram
    game = sf.StackelbergGame(
        make(record["data"]),
        record["sizes"],
        removed=record["removed"],
        costs=record["costs"],
        **record["weights"],  # type: ignore[arg-type]
    )
    return testing.Play(game, record["payments"], record["x"])


def notices(tree: Path, tests: list[str], plays: list[dict[str, object]]) -> str | None:
    """The first property test that fails on the copy with the drawn plays, or None."""
    import importlib.util
    import inspect
    import random

    from hypothesis.errors import UnsatisfiedAssumption

    for name in [n for n in sys.modules if n.split(".")[0] == "stackfu" and not n.endswith("_kernels")]:
        del sys.modules[name]
    sys.path.insert(0, str(tree))
    sys.path.insert(0, str(tree / "tests/properties"))
    rebuilt = [rebuild(record) for record in plays]
    for file in tests:
        spec = importlib.util.spec_from_file_location(Path(file).stem, tree / file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, test in vars(module).items():
            inner = getattr(getattr(test, "hypothesis", None), "inner_test", None)
            if inner is None:
                continue
            # the drawn plays are of the general kind; tests that ask for special ones are left out
            decorators = inspect.getsource(test).split("def ")[0]
            if any(word in decorators for word in SPECIAL):
                continue
            wanted = list(inspect.signature(inner).parameters)
            for play in rebuilt:
                values = {"play": play, "game": play.game, "random": random.Random(0), **ARGUMENTS}  # type: ignore[attr-defined]
                if not set(wanted) <= set(values):
                    break
                if "form=" in decorators and play.game.embeddings.features is None:  # type: ignore[attr-defined]
                    continue
                try:
                    inner(**{key: values[key] for key in wanted})
                except UnsatisfiedAssumption:
                    continue
                except BaseException as error:
                    return f"{name}: {type(error).__name__}"
    return None


def run_tests(tree: Path, tests: list[str], plays: list[dict[str, object]], limit: float) -> str:
    """Fork, run the tests on the copy, and say what happened; a timeout counts as noticed."""
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        if not os.environ.get("MUTANTS_SHOW"):
            os.dup2(null, 1)
            os.dup2(null, 2)
        os.chdir(tree)
        sys.dont_write_bytecode = True
        code = 1
        try:
            found = notices(tree, tests, plays)
            print(found, flush=True)
            code = 0 if found is None else 1
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
    parser.add_argument("--plays", type=int, default=25, help="games to try on every mutant")
    parser.add_argument("--verbose", action="store_true", help="a line a mutant")
    arguments = parser.parse_args()
    # what every mutant imports is loaded once, before forking
    import clarabel  # noqa: F401

    plays = draw_plays(arguments.plays)
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
        source = (folder / file).read_text()
        if run_tests(folder, wanted, plays, 900) != "survived":
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
            outcome = run_tests(folder, wanted, plays, arguments.limit)
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
