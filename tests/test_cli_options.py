"""Ignored options are refused: every option of every command changes the answer, or is refused by name.

The commands and their options are read from the application itself, so an option that is added must say here by which value
it shows.
"""

import inspect
import json
import shutil
import typing

import numpy as np
import pytest

import stackfu as sf
from stackfu.cli import ExitCode, main
from stackfu.cli.commands import app

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")

#: Options of the display, not of the answer; ``--output`` is checked by the existence of the file.
MANNERS = {"--json", "--quiet", "--output"}
#: Echoes of what was typed, and how long it took: nothing of these shows that an option was used.
ECHOES = {"options", "seconds", "output", "goal", "budget", "own_options", "level"}

OUTSIDE = "-0.05"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A federation of five, one of them to be forgotten, as samples, as a game and with what was solved for it."""
    folder = tmp_path_factory.mktemp("options")
    rng = np.random.default_rng(3)
    rows = ["client,x,y,kind"]
    for i, name in enumerate(["Leeds", "Bath", "York", "Hull", "Ely"]):
        for _ in range(12 + 3 * i):
            rows.append(f"{name},{rng.normal(i)},{rng.normal()},{'uvw'[int(rng.integers(3)) if i else 0]}")
    (folder / "samples.csv").write_text("\n".join(rows) + "\n")
    assert main(["embed", str(folder / "samples.csv"), "--drop", "kind", "--removed", "Leeds",
                 "--cost-scale", "1", "-o", str(folder / "game.json")]) == 0  # fmt: skip
    game = sf.load(folder / "game.json")
    game.solve(0.05).save(folder / "solution.json")
    game.equilibrium(caps=[0.5, 1, 1, 1]).save(folder / "below.json")
    several = sf.catalog.three_equilibria().game
    several.save(folder / "several.json")
    several.equilibrium().save(folder / "one.json")
    return folder


def commands():
    return {command.callback.__name__: command.callback for command in app.registered_commands}


def options_of(command):
    """The options of a command, by the longest of their names."""
    names = {}
    hints = typing.get_type_hints(commands()[command], include_extras=True)
    for parameter in inspect.signature(commands()[command]).parameters.values():
        # Python 3.10 makes what may be None optional once more, around the annotation
        kinds = (hints[parameter.name], *typing.get_args(hints[parameter.name]))
        about = next((kind.__metadata__[0] for kind in kinds if hasattr(kind, "__metadata__")), None)
        if type(about).__name__ == "OptionInfo":
            spelled = [
                word for word in (about.default, *(about.param_decls or ())) if str(word).startswith("--")
            ]
            names[spelled[0] if spelled else f"--{parameter.name.replace('_', '-')}"] = parameter
    return names


@pytest.fixture
def answer(folder, capsys, tmp_path):
    """Return the answer of a command line: its exit code, its error, and all values in JSON and in files."""

    def call(command, *arguments):
        words = [
            str(folder / a) if isinstance(a, str) and (folder / a).is_file() else str(a) for a in arguments
        ]
        if command != "calibrate" or "--plan" not in words:
            words.append("--json")
        page = tmp_path / "out"
        shutil.rmtree(page, ignore_errors=True)
        page.mkdir()
        target = {"demo": page / "d", "embed": page / "g.json", "explore": page / "p.html"}.get(command)
        if target is not None:
            words += ["-o", str(target)]
        elif "--plan" in words:
            words += ["-o", str(page / "plan.csv")]
        code = main([command, *words])
        captured = capsys.readouterr()
        stated = plain(json.loads(captured.out)) if captured.out.startswith("{") else None
        files = {
            path.name: path.read_bytes()
            for path in sorted(page.rglob("*"))
            if path.suffix in (".html", ".csv")
        }
        return code, captured.err, (stated, files)

    return call


def plain(thing):
    if isinstance(thing, dict):
        return {name: plain(value) for name, value in thing.items() if name not in ECHOES}
    return [plain(value) for value in thing] if isinstance(thing, list) else thing


def refused_or_used(answer, command, given, option, value, before):
    """Run with the option; it must be refused by its name, or the answer must be another one."""
    code, complaint, stated = answer(command, *given, option, *([] if value is None else [value]))
    if code == ExitCode.BAD_INPUT:
        word = option.lstrip("-")
        assert word in complaint or word.replace("-", "_") in complaint, (option, complaint)
        return "refused"
    assert (code, stated) != before, f"{command} {' '.join(map(str, given))} ignores {option}"
    return "used"


# -------------------------------------------------------------------- solve: every method, every kind of offer

SOLVE = {
    "--budget": 0.02, "--payment-weight": 0.7, "--min-total": 0.5, "--finite-sample": None, "--robust": None,
    "--gap": 1e-4, "--time-limit": 1e-9, "--outside": OUTSIDE, "--sampling-constant": 30,
    "--groups": "a,b,a,b", "--option": "max_iterations=1", "--min-samples": 60, "--whole-samples": None, "--warn-below": 1e6,
    "--sensitivity": None, "--values": None,
}  # fmt: skip


@pytest.mark.parametrize("offers", ["linear", "capped", "contract"])
@pytest.mark.parametrize("method", ["certified", "haipo", "uniform"])
def test_solve(answer, method, offers):
    given = ["game.json", "--method", method, "--offers", offers]
    base = [*given, "--budget", 0.01]
    if method == "certified":
        # without a floor any mixture costs capped offers nothing; a wide gap is closed at once
        base += ["--min-total", 0.3, "--gap", 0.1, "--time-limit", 4]
    before = answer("solve", *base)[::2]
    assert before[0] in (0, 1)
    seen = {}
    for option, value in SOLVE.items():
        words = base
        if option == "--robust":  # shows where there are several equilibria
            words = ["several.json", *words[1:]]
        seen[option] = refused_or_used(
            answer,
            "solve",
            words,
            option,
            value,
            before if words[0] == base[0] else answer("solve", *words)[::2],
        )
    assert set(SOLVE) | {"--method", "--offers"} | MANNERS == set(options_of("solve"))
    assert seen["--budget"] == seen["--sampling-constant"] == "used"
    if method != "certified":
        assert {option for option, what in seen.items() if what == "refused"} >= {
            "--gap",
            "--time-limit",
            "--min-total",
        }
    if offers == "linear":
        assert seen["--outside"] == "refused"


def test_methods_and_offers_differ(answer):
    base = ["game.json", "--budget", 0.01]
    answers = [answer("solve", *base, "--method", method)[2] for method in ("certified", "haipo", "uniform")]
    answers += [
        answer("solve", *base, "--min-total", 0.3, "--offers", kind)[2] for kind in ("capped", "contract")
    ]
    assert all(a != b for i, a in enumerate(answers) for b in answers[:i])


# -------------------------------------------------------------------- all the others

#: Per command: what it is run with, and the value by which each option shows; a list in front of a value is added to that.
OTHERS = {
    "demo": (["--points", 2], {"--budget": 0.1, "--points": 3}),
    "embed": (
        ["samples.csv", "--drop", "kind"],
        {"--removed": "Bath", "--client": "kind", "--drop": "kind,y", "--labels": "kind", "--kernel": "joint",
         "--bandwidth": 0.3, "--features": 64, "--seed": 1, "--standardise": None, "--cost-scale": 3,
         "--lambda-v": 2, "--lambda-s": 2, "--lambda-q": 2, "--missing": "mean", "--currency": "EUR", "--loss-constant": 2,
         "--costs": "Bath=1,Ely=2,Hull=3,Leeds=4,York=5", "--sizes": "Bath=1,Ely=2,Hull=3,Leeds=4,York=5"},
    ),
    "cheapest": (
        ["game.json", "--max-loss", 0.01, "--offers", "capped", "--min-total", 0.3, "--gap", 0.1],
        {"--max-loss": 0.007, "--offers": "linear", "--outside": OUTSIDE, "--sampling-constant": 30, "--min-total": 0.6,
         "--gap": 0.001, "--time-limit": 1e-9, "--min-samples": 60, "--whole-samples": None, "--warn-below": 1e6,
         "--sensitivity": None, "--values": None},
    ),
    "cascade": (["game.json", "--outside", OUTSIDE], {"--outside": -10, "--order": "simultaneous"}),
    "equilibria": (
        ["several.json"],
        {"--payments": "0.1,0,0", "--caps": "0.1,1,1", "--sampling-constant": 30, "--one": None, "--prove": None,
         "--sensitivity": None},
    ),
    "frontier": (
        ["game.json", "--to", 0.1, "--points", 2],
        {"--budgets": "0.01,0.02", "--to": 0.12, "--points": 3, "--offers": (["--min-total", 0.3], "capped"), "--min-total": 0.5,
         "--gap": 0.4, "--time-limit": 1e-9, "--min-samples": 60, "--warn-below": 1e6},
    ),
    "calibrate": (["game.json", "--plan", 3], {"--plan": 4, "--seed": 1, "--level": 0.5}),
    "values": (
        ["solution.json", "--orders", 20],
        {"--all-data": None, "--empty": 3, "--orders": 30, "--confidence": 0.5, "--seed": 1, "--sampling-constant": 30,
         "--measured": "accuracies.csv"},
    ),
    "verify": (["solution.json"], {"--tolerance": 1e-30}),
    "lemmas": (["game.json"], {"--thorough": None}),
    "explore": (
        ["game.json", "--to", 0.1, "--points", 2, "--compare", "none"],
        {"--to": 0.12, "--points": 3, "--compare": "uniform", "--outside": OUTSIDE, "--title": "Other", "--min-total": 0.5,
         "--time-limit": 1e-9},
    ),
}  # fmt: skip


def test_every_command_is_walked():
    assert set(OTHERS) | {"solve"} == set(commands())
    for command, (_, telling) in OTHERS.items():
        assert set(telling) == set(options_of(command)) - MANNERS, command


@pytest.mark.parametrize("command", sorted(OTHERS))
def test_others(answer, command):
    base, telling = OTHERS[command]
    before = answer(command, *base)
    assert before[0] in (0, 1), before
    for option, value in telling.items():
        refused_or_used(answer, command, base, option, value, before[::2])


def test_kernels_of_labels_alone(answer):
    base = ["samples.csv", "--labels", "kind", "--kernel", "labels"]
    before = answer("embed", *base)[::2]
    ignored = {
        "--bandwidth": 0.3,
        "--features": 64,
        "--standardise": None,
        "--missing": "median",
        "--drop": "x",
    }
    for option, value in ignored.items():
        assert refused_or_used(answer, "embed", base, option, value, before) == "refused"


def test_departures_from_below_caps(answer, folder):
    """Caps that an equilibrium file holds are posted again, not forgotten."""
    open_to_all = answer("cascade", "game.json", "--outside", -10)
    below = answer("cascade", "below.json", "--outside", -10)
    assert open_to_all[0] == below[0] == 0
    assert open_to_all[2] != below[2]
    stated = sf.load(folder / "below.json")
    assert below[2][0]["rounds"][0]["participation"] == pytest.approx(stated.participation.tolist())
