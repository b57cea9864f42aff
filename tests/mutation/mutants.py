"""Break every core formula once and see whether a test notices: ``python tests/mutation/mutants.py [part of a path ...]``.

A mutant changes one operator, comparison, constant or function of the mathematics in :data:`TARGETS`: plus
and minus, times and divided by, the direction of a comparison, min and max, a factor, a sign. Each runs in
a forked process on a copy of the package, against the tests of its own stage, until the first failure. A
mutant that no test notices has survived. Compiled kernels run as plain Python here, so that they can be broken
without compiling them again. A module all of whose mutants were tried is written to ``stackfu_bench/results/mutation.json``,
from which ``docs/theory/mutation.md`` is made; ``--again`` tries the survivors named there, after tests were written for them.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import copy
import datetime
import itertools
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "stackfu_bench" / "results" / "mutation.json"
FORMULAS, INVARIANCES, STATEMENTS = (
    f"tests/properties/test_{name}.py" for name in ("formulas", "invariances", "statements")
)
GAME = [FORMULAS, INVARIANCES, STATEMENTS]
PATH, PATH_KERNELS, SWEEPS, SWEEP_KERNELS, DYNAMICS, JUDGES, CAPS = (
    f"tests/followers/test_{name}.py"
    for name in (
        "path",
        "path_kernels",
        "sweeps",
        "sweep_kernels",
        "dynamics",
        "follower_judges",
        "caps_and_sampling",
    )
)
BASELINES, BOUND, CERTIFIED, FRONTIER = (
    f"tests/leader/test_{name}.py" for name in ("baselines", "bound", "certified", "frontier")
)
PRICE, RESPONSES = (f"tests/model/test_{name}.py" for name in ("price", "responses"))
BOUND_JUDGE, COMPLETENESS, SEGMENT_KERNELS, POINT, LIES = (
    f"tests/judging/test_{name}.py"
    for name in ("bound_judge", "completeness", "segment_kernels", "point", "what_lied")
)
ON_THE_PATH = (
    "catalog or touching or square or continuum or everybody_ties or (tiny_weights and 1e-09) or numpy_reference or "
    "level_agrees or overpaid or payments_equal or a_paid_twin or ties_on_a_lattice or the_table_tells or dependent_emb"
)
OPTIMUM = (
    "(two_clients and ([1] or [7] or [12] or [25] or [54])) or (three_clients and ([104] or [117])) or "
    "(lower_bound_for_random and ([200] or [203])) or shadow or cheapest_way or floor_on or zero_budget or early"
)


def chosen(words: str, *files: str) -> list[str]:
    """Return the arguments of pytest: the tests of some files with matching names."""
    return ["-k", words, *files]


#: File: (functions whose bodies are mathematics, tests that must notice). A list that starts with ``-k`` goes to pytest,
#: another one names property tests that are played on games drawn once.
TARGETS: dict[str, tuple[set[str], list[str]]] = {
    "stackfu/model/data.py": ({"lam", "lam_v", "lam_s", "heterogeneity"}, GAME),
    "stackfu/model/game_model.py": (
        {
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
            "thresholds",
            "residual",
            "regrets",
            "full_participation_price",
        },
        GAME,
    ),
    "stackfu/model/responses.py": (
        {"inclinations", "positive_root", "best_responses", "violations", "regrets"},
        chosen("test_", RESPONSES),
    ),
    "stackfu/model/profile.py": ({"variance", "others"}, GAME),
    "stackfu/model/geometry.py": (
        {"__init__", "pairwise", "mixture", "original", "squared_distances", "combine", "scale", "gram"},
        GAME,
    ),
    "stackfu/followers/reference.py": (
        {"follow_slowly", "_solve", "_real_roots", "_last_root"},
        chosen("numpy_reference or profiles_along", PATH),
    ),
    "stackfu/followers/qp.py": (
        {"level_profile", "bisect_total", "_finish"},
        chosen(
            "level_agrees or profiles_along or bisection or qp_counts or (sweeps_and_qp and [0-3])",
            PATH,
            SWEEPS,
            JUDGES,
        ),
    ),
    "stackfu/followers/faces.py": (
        {"equilibrium_face", "_dependences", "furthest", "ranges", "span_of"},
        chosen("face or square or continuum or dependent or twin or span or rough", PATH, JUDGES),
    ),
    "stackfu/followers/homogeneous.py": (
        {"homogeneous_equilibrium", "_with_sampling", "_shared"},
        chosen("homogeneous or sampling_constant_there or trade or only_one", PATH, CAPS),
    ),
    "stackfu/followers/dynamics.py": (
        {"_joint", "_sequential"},
        chosen("rounds or convergence or fall", DYNAMICS),
    ),
    "stackfu/judging/diagnostics.py": (
        {"best_response_jacobian", "sufficient_bounds", "diagnose"},
        chosen("jacobian or simplex or diagnostics or papers or kink or row_sums", JUDGES),
    ),
    "stackfu/judging/equilibrium_check.py": (
        {"_gains", "_numbers", "_largest_gain", "_without", "_search"},
        chosen(
            "true_equilibria or flattering or search or verified_alike or sole or named or tolerance_of or alike_clients",
            JUDGES,
        ),
    ),
    "stackfu/followers/path/tracing.py": (
        {"_largest_total", "_follow", "_shares"},
        chosen(f"{ON_THE_PATH} or almost_alike or largest_total or more_room", PATH),
    ),
    "stackfu/followers/newton.py": ({"newton_polish"}, chosen("newton", SWEEPS, SWEEP_KERNELS)),
    "stackfu/followers/_sweep_kernels.py": (
        {"respond", "violation", "sweep_gram", "sweep_features", "undecided"},
        chosen("test_sweep_kernels or rounds or (sweeps_and_qp and [0-3])", SWEEP_KERNELS, DYNAMICS, SWEEPS),
    ),
    "stackfu/followers/path/_factor.py": (
        {"append", "remove", "drop", "solve"},
        chosen(f"{ON_THE_PATH} or test_path_kernels", PATH_KERNELS, PATH),
    ),
    "stackfu/followers/path/_polynomials.py": (
        {"evaluate", "first_violation", "bracketed_root", "roots_between", "keeps_sign"},
        chosen(f"{ON_THE_PATH} or test_path_kernels", PATH_KERNELS, PATH),
    ),
    "stackfu/followers/path/_piece.py": (
        {"expand", "violation_at", "next_event", "room", "leave", "enter", "exchange", "polish"},
        chosen(f"{ON_THE_PATH} or test_path_kernels", PATH_KERNELS, PATH),
    ),
    "stackfu/followers/path/_zeros.py": (
        {"add", "remember", "note", "record_zeros"},
        chosen(f"{ON_THE_PATH} or test_path_kernels", PATH_KERNELS, PATH),
    ),
    "stackfu/followers/path/_loop.py": (
        {"least_willing", "owned_by_full", "worst_check", "limited", "move_down", "follow"},
        chosen(f"{ON_THE_PATH} or test_path_kernels", PATH_KERNELS, PATH),
    ),
    "stackfu/model/price.py": ({"brackets", "unavoidable", "cheapest_payments"}, chosen("test_", PRICE)),
    "stackfu/leader/haipo.py": (
        {"budget_prices", "responses", "prices_of", "least_ratio", "cuts", "best_iterate"},
        chosen("least_ratio or budget_price or haipo or price_of or alone", BASELINES),
    ),
    "stackfu/leader/uniform.py": ({"best_price", "attempt"}, chosen("uniform", BASELINES)),
    "stackfu/leader/identical_data.py": ({"buy_data"}, chosen("alike", CERTIFIED)),
    "stackfu/leader/certified/payment_bound.py": (
        {"at_best_level", "box_margin", "_constant", "_margin_from_zero", "parabola_minimum", "ball"},
        chosen(f"{OPTIMUM} or test_bound", BOUND, CERTIFIED),
    ),
    "stackfu/judging/stakes.py": (
        {"_in_floats", "_slopes", "_in_balls", "_slopes_in_balls"},
        chosen("bound_holds or floats_and_balls or own_terms or row_by_row or larger", COMPLETENESS, LIES),
    ),
    "stackfu/judging/ball_game.py": (
        {"squares"},
        chosen("floats_and_balls or own_terms or row_by_row or larger", COMPLETENESS, LIES),
    ),
    "stackfu/judging/completeness.py": (
        {"check_alike", "settle"},
        chosen("test_", COMPLETENESS),
    ),
    "stackfu/judging/_segment_kernels.py": (
        {"settle", "several", "strictly_inside", "regular", "vanishes", "cut"},
        chosen("test_", COMPLETENESS, SEGMENT_KERNELS),
    ),
    "stackfu/judging/bound_formula.py": (
        {
            "judge",
            "classify",
            "_constant",
            "_margin",
            "client_sums",
            "_from_zero",
            "ball",
            "_largest",
        },
        chosen("test_", BOUND_JUDGE),
    ),
    "stackfu/judging/bound_multipliers.py": ({"knots", "between", "end"}, chosen("test_", BOUND_JUDGE)),
    "stackfu/judging/bound_verdict.py": ({"parabola"}, chosen("test_", BOUND_JUDGE)),
    "stackfu/judging/point.py": (
        {"objective", "_in_balls", "_squares", "_in_floats"},
        chosen("test_", POINT),
    ),
    # branching order and the guesses of feasible profiles (split, propose, blend) decide how long a search takes, not its answer
    "stackfu/leader/certified/candidates.py": (
        {"realise", "value", "_candidate", "offer"},
        chosen(
            f"{OPTIMUM} or hair or decides or interrupt or time_limit or callback or cap_below or beyond_all",
            CERTIFIED,
        ),
    ),
    "stackfu/results/frontier.py": ({"lower_bounds", "saturation_budget"}, chosen("test_", FRONTIER)),
    "stackfu/judging/solution_check.py": (
        {
            "_problems",
            "judge_point",
            "contradictions",
            "check_bound_present",
            "check_status",
            "promised_gap",
            "measured_against",
        },
        chosen("Verification or not_a_number or wide_gap or early or constraint", CERTIFIED, POINT),
    ),
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
        if isinstance(node, ast.BinOp) and (_tolerance(node.left) or _tolerance(node.right)):
            continue
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


def _tolerance(node: ast.expr) -> bool:
    """Return True for a number about rounding errors, written out or named in capitals: no formula to break."""
    if isinstance(node, ast.UnaryOp):
        return _tolerance(node.operand)
    if isinstance(node, ast.BinOp):
        return _tolerance(node.left) or _tolerance(node.right)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, float) and 0.0 < node.value <= 1e-5
    return isinstance(node, ast.Name) and (node.id == "tolerance" or (len(node.id) > 1 and node.id.isupper()))


def _clock(node: ast.AST) -> bool:
    """Return True if this computes seconds: no formula either."""
    if isinstance(node, ast.keyword):
        return node.arg in ("seconds", "time_limit")
    return isinstance(node, ast.BinOp) and any(
        isinstance(part, ast.Attribute) and part.attr == "perf_counter" for part in ast.walk(node)
    )


#: Variables that decide which of several tied clients moves first, and when that has gone on for too long: any choice is
#: right that ends, and the tests of ties see to it that it does.
TIES = {"idle", "loose", "eager", "harm", "take", "noise"}


def _tie(node: ast.AST) -> bool:
    """Return True if this assignment or test is about the order of ties."""
    if isinstance(node, ast.Assign):
        about: list[ast.AST] = list(node.targets)
    elif isinstance(node, ast.AugAssign):
        about = [node.target]
    elif isinstance(node, (ast.Compare, ast.BoolOp)):
        about = [node]
    else:
        return False
    return any(isinstance(name, ast.Name) and name.id in TIES for part in about for name in ast.walk(part))


def _room(node: ast.AST) -> bool:
    """Return True if this allocates an array: its size changes no number."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("empty", "zeros")
    )


def _mathematics(tree: ast.AST, functions: set[str]) -> list[ast.AST]:
    """Nodes of the chosen functions, without error messages, raised errors and clocks."""
    out: list[ast.AST] = []
    seen: set[int] = set()

    def visit(node: ast.AST) -> None:
        if (
            isinstance(node, (ast.Raise, ast.JoinedStr))
            or _clock(node)
            or _room(node)
            or _tie(node)
            or id(node) in seen
        ):
            return
        seen.add(id(node))
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


#: Extra arguments of property tests, in addition to the play or the game.
SPECIAL = ("twins=False", "max_removed=0", "costs=", "interior=", "below_cost=", "distinct=False")
#: pytest warns of what was imported before it started.
REWRITTEN = "ignore::pytest.PytestAssertRewriteWarning"
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


def first_failure(arguments: list[str]) -> str | None:
    """Return pytest's failure of the chosen tests on the copy, or None if all pass."""
    import pytest

    code = pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-W", REWRITTEN, *arguments])
    return None if code == 0 else str(code)


def run_tests(tree: Path, tests: list[str], plays: list[dict[str, object]], limit: int) -> tuple[str, float]:
    """Fork, run the tests on the copy, and say what happened and how much processor time it took.

    A mutant that loops is stopped by its processor time, so a busy machine does not make one look noticed.
    """
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        null = os.open(os.devnull, os.O_WRONLY)
        if not os.environ.get("MUTANTS_SHOW"):
            os.dup2(null, 1)
            os.dup2(null, 2)
        os.chdir(tree)
        sys.dont_write_bytecode = True
        code = 1
        try:
            for name in [n for n in sys.modules if n.split(".")[0] == "stackfu"]:
                del sys.modules[name]
            sys.path.insert(0, str(tree))
            found = first_failure(tests) if tests[0] == "-k" else notices(tree, tests, plays)
            print(found, flush=True)
            code = 0 if found is None else 1
        finally:
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    outcome = (
        "survived" if code == 0 else "timeout" if code in (-signal.SIGXCPU, -signal.SIGKILL) else "killed"
    )
    return outcome, usage.ru_utime + usage.ru_stime


def owners(tree: ast.AST, functions: set[str]) -> dict[int, str]:
    """The function, or method with its class, that holds each of the nodes of :func:`_mathematics`."""
    named: dict[int, str] = {}

    def visit(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, f"{child.name}.")
            elif isinstance(child, ast.FunctionDef) and child.name in functions:
                for part in ast.walk(child):
                    named.setdefault(id(part), inside + child.name)
            else:
                visit(child, inside)

    visit(tree, "")
    return {number: named[id(node)] for number, node in enumerate(_mathematics(tree, functions))}


def kept(path: Path) -> dict[str, dict[str, Any]]:
    """Return the known results of each module; none for modules that are no longer mutated."""
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return {row["module"]: row for row in rows if row["module"] in TARGETS}


def keep(path: Path, module: str, mutants: int, survivors: list[dict[str, str]]) -> None:
    """Put one module's figures into the file, in the order of :data:`TARGETS`."""
    from stackfu.atomic import write_atomically

    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    row = {"module": module, "mutants": mutants, "noticed": mutants - len(survivors), "survivors": survivors}
    rows = kept(path) | {module: row | {"date": today}}
    text = json.dumps({"rows": [rows[name] for name in TARGETS if name in rows]}, indent=1)
    write_atomically(path, (text + "\n").encode())


def places_again(
    source: str, functions: set[str], places: list[tuple[int, str]], row: dict[str, Any] | None
) -> list[tuple[int, str]] | None:
    """Return the survivors of the last time; None if the module has changed since, so that all have to be tried."""
    if row is None or row["mutants"] != len(places):
        return None
    listed = [(known["change"], known["text"]) for known in row["survivors"]]
    found = [(n, change) for n, change in places if (change, mutate(source, functions, n)[2]) in listed]
    return found if len(found) >= len(listed) else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("modules", nargs="*", help="modules whose paths contain one of these; default: all")
    parser.add_argument("--sample", type=int, default=0, help="at most this many mutants per file (0: all)")
    parser.add_argument(
        "--limit",
        type=int,
        default=60,
        help="processor seconds a mutant may use, if four times its tests are more",
    )
    parser.add_argument("--seconds", type=float, default=0.0, help="stop starting mutants after this long")
    parser.add_argument("--plays", type=int, default=25, help="games to try on every mutant")
    parser.add_argument("--again", action="store_true", help="survivors alone, where the last run names them")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="where modules that were tried wholly are kept"
    )
    parser.add_argument("--verbose", action="store_true", help="one line per mutant")
    arguments = parser.parse_args()
    targets = {
        file: target
        for file, target in TARGETS.items()
        if not arguments.modules or any(part in file for part in arguments.modules)
    }
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1", "HYPOTHESIS_PROFILE": "mutation"}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # what every mutant imports is loaded once, before forking
    import clarabel  # noqa: F401
    import cvxpy  # noqa: F401
    import numba  # noqa: F401
    import pytest  # noqa: F401
    import scipy.optimize  # noqa: F401

    drawn = any(tests[0] != "-k" for _, tests in targets.values())
    plays = draw_plays(arguments.plays) if drawn else []
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("stackfu", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder / name)
    compileall.compile_dir(folder, quiet=2)  # a mutant compiles its own file only
    counts: dict[str, dict[str, int]] = {}
    survived: dict[str, list[dict[str, str]]] = {}
    every: dict[str, int] = {}
    waiting: dict[str, int] = {}
    jobs: list[list[tuple[str, int, str]]] = []
    known = kept(arguments.out)
    for file, (functions, _) in targets.items():
        source = (folder / file).read_text()
        places = sites(ast.parse(source), functions)
        again = places_again(source, functions, places, known.get(file)) if arguments.again else None
        wanted = places if again is None else again
        chosen_places = random.Random(0).sample(wanted, min(arguments.sample or len(wanted), len(wanted)))
        print(f"{file}: {len(chosen_places)} of {len(places)} places", flush=True)
        jobs.append([(file, number, change) for number, change in chosen_places])
        every[file], waiting[file] = len(places), len(wanted)
    broken: set[str] = set()
    limits: dict[str, int] = {}
    # one mutant of every file in turn, so that a run that is cut short has looked at all of them
    for file, number, change in filter(None, itertools.chain(*itertools.zip_longest(*jobs))):
        if file in broken or (arguments.seconds and time.monotonic() - began > arguments.seconds):
            continue
        functions, tests = targets[file]
        if file not in counts:
            outcome, used = run_tests(folder, tests, plays, 900)
            if outcome != "survived":
                print(f"{file}: the tests fail without any mutant", flush=True)
                broken.add(file)
                continue
            limits[file] = min(int(4 * used + 4), arguments.limit)
            counts[file] = {"killed": 0, "survived": 0, "timeout": 0}
            survived[file] = []
            print(f"{file}: {used:.1f} s without a mutant", flush=True)
        source = (folder / file).read_text()
        mutant, line, text = mutate(source, functions, number)
        (folder / file).write_text(mutant)
        outcome, used = run_tests(folder, tests, plays, limits[file])
        (folder / file).write_text(source)
        counts[file][outcome] += 1
        if outcome == "survived":
            owner = owners(ast.parse(source), functions)[number]
            survived[file].append({"function": owner, "change": change, "text": text})
        if arguments.verbose or outcome == "survived":
            print(f"{outcome} {used:.1f} s {file}:{line} {change}: {text}", flush=True)
        waiting[file] -= 1
        if waiting[file] == 0:
            keep(arguments.out, file, every[file], survived[file])
    for file, tally in counts.items():
        print(f"{file}: {tally}", flush=True)
    total = {key: sum(c[key] for c in counts.values()) for key in ("killed", "survived", "timeout")}
    share = 1 - total["survived"] / max(sum(total.values()), 1)
    print(f"total {total}: {share:.1%} caught")
    shutil.rmtree(folder)
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(main())
