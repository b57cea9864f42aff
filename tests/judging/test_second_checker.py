"""The JavaScript checker of the explorer page: what it proves, what it refuses, what it says that it cannot check."""

import hashlib
import json
import subprocess

import numpy as np
import pytest
from random_solutions import random_solution
from second_checker import CHECKER, NODE, check_again, needs_node, said

import stackfu as sf
from stackfu.results.claim import claim_digest

pytestmark = needs_node
#: Random games that the test suite looks at; ``make verify-anywhere`` looks at a thousand.
GAMES = 30


def verdicts(report):
    return {line["what"]: line["verdict"] for line in report["lines"]}


@pytest.fixture(scope="module")
def random_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    found = {}
    for seed in range(GAMES):
        solution = random_solution(seed)
        if solution is not None:
            solution.save(folder / f"{seed}.json")
            found[folder / f"{seed}.json"] = solution
    return found


def test_both_checkers_agree_on_random_games(random_files):
    kinds = set()
    for report, solution in zip(check_again(random_files), random_files.values(), strict=True):
        assert report["verdict"] in ("proved", "not checked"), said(report)
        assert solution.verify()
        assert report["claim"] == claim_digest(solution)
        left = {line["what"] for line in report["lines"] if line["verdict"] == "not checked"}
        assert left <= {"uniqueness", "face"}, said(report, "not checked")
        kinds.add((solution.offers.kind, report["verdict"]))
    assert len(kinds) >= 3


def test_the_command_says_what_it_found_and_with_which_code(random_files, tmp_path):
    path = next(p for p, s in random_files.items() if s.offers.kind == "capped")
    done = subprocess.run([NODE, CHECKER, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "PROVED")
    record = json.loads(path.read_text())
    record["objective"] *= 1.001
    (tmp_path / "moved.json").write_text(json.dumps(record))
    done = subprocess.run(
        [NODE, CHECKER, tmp_path / "moved.json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split(":")[0]) == (1, "REFUSED")
    assert "as stated" in done.stdout
    for arguments in ([], [tmp_path / "none.json"], [CHECKER]):
        done = subprocess.run([NODE, CHECKER, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2


def test_the_digest_is_sha_256():
    texts = ["", "abc", "a" * 55, "b" * 56, "c" * 64, "d" * 1000]
    digests = f"{json.dumps(texts)}.map((text) => sha256(new TextEncoder().encode(text)))"
    script = f'import {{ sha256 }} from "{CHECKER.as_uri()}"; console.log(JSON.stringify({digests}))'
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", script], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [hashlib.sha256(t.encode()).hexdigest() for t in texts]


def test_contracts_are_not_checked_and_never_waved_through(tmp_path):
    rng = np.random.default_rng(3)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(rng.normal(size=(4, 2))),
        [10, 20, 30, 40],
        costs=[0.1] * 4,
        sampling_constant=0.5,
    )
    game.solve(0.1, offers="contract", max_nodes=2, progress=False).save(tmp_path / "contract.json")
    (report,) = check_again([tmp_path / "contract.json"])
    assert report["verdict"] == "not checked"
    assert verdicts(report)["equilibrium"] == verdicts(report)["bound"] == "not checked"
    assert verdicts(report)["spend"] == verdicts(report)["loss"] == "proved"


def test_thirty_clients_are_checked(tmp_path):
    """The largest size that is promised; the promise of seconds is measured by hand, as no test depends on time."""
    rng = np.random.default_rng(5)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(rng.normal(size=(30, 8)) * 0.3),
        rng.integers(10, 90, 30),
        (0, 1),
        cost_scale=1.0,
    )
    game.solve(0.1 * game.full_participation_price, gap=1e-2, progress=False).save(tmp_path / "thirty.json")
    (report,) = check_again([tmp_path / "thirty.json"])
    assert verdicts(report)["bound"] == "proved", said(report)
