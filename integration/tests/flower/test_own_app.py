"""An app of one's own: a convolutional network with batch normalisation, in as few lines as promised; documented commands."""

from __future__ import annotations

import glob
import inspect
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scene import Scene
from typer.testing import CliRunner

from stackfu_integration.cli import app
from stackfu_integration.flower.deployment import Deployment
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.simulation import APP_FOLDER, run_in_process
from stackfu_integration.flower.verification import verify

TEMPLATE = APP_FOLDER.parent / "flower-template"
HERE = Path(__file__).resolve().parent
HOWTO = Path(__file__).resolve().parents[3] / "docs" / "howto"


def test_the_users_lines_are_at_most_thirty():
    text = (TEMPLATE / "my_app" / "app.py").read_text()
    own = text.split("# --- yours ---")[1].split("# --- not yours")[0]
    assert len([line for line in own.splitlines() if line.strip()]) <= 30


def test_the_template_trains_and_unlearns_a_network_with_counters(tmp_path):
    run_in_process(TEMPLATE, folder=str(tmp_path / "run"), training_rounds=1, rounds=2)
    facts = json.loads((tmp_path / "run" / "audit-r1.json").read_text())
    assert facts["aborted"] is None
    assert facts["faults"] == []
    assert facts["terms"]["epsilon"] is not None  # private without being told
    assert verify(tmp_path / "run").misfit is None
    model = ModelStore(tmp_path / "run" / "models").get(facts["model_after"])
    counter = model["1.num_batches_tracked"].numpy()
    assert counter.shape == ()
    assert counter.dtype == np.int64
    assert counter > 0


def test_sums_of_updates_have_counters_as_well(tmp_path):
    """The average of a batch normalisation's buffers, seen as a sum alone."""
    given = {"training_rounds": 1, "rounds": 1, "clients": 5, "removed": "0", "aggregation": "secure"}
    run_in_process(TEMPLATE, folder=str(tmp_path / "run"), **given)
    facts = json.loads((tmp_path / "run" / "audit-r1.json").read_text())
    assert facts["aborted"] is None
    assert facts["faults"] == []
    assert verify(tmp_path / "run").misfit is None
    model = ModelStore(tmp_path / "run" / "models").get(facts["model_after"])
    counter = model["1.num_batches_tracked"].numpy()
    assert (counter.shape, counter.dtype) == ((), np.int64)
    assert counter > 0
    assert 0.0 < model["1.running_var"].numpy().min() < 100.0


def documented(programs: str) -> list[str]:
    """Every command of these programs that the pages about Flower show."""
    pages = [*sorted(HOWTO.glob("flower*.md")), HOWTO / "private_embeddings.md", APP_FOLDER / "README.md"]
    found = []
    for page in pages:
        text = page.read_text().replace("\\\n", " ")
        found += re.findall(rf"^\$ ((?:{programs})\b.*)$", text, flags=re.MULTILINE)
    return sorted({re.sub(r"\s+#.*", "", command) for command in found})


SMALL = " clients=4 removed=0 training-rounds=1 rounds=1"


def made_small(words: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The same command, of a size that is done with in seconds."""
    from stackfu_integration.flower import directions, reconstruction

    if words[:2] == ["flower", "load"]:
        return [*words, "--clients", "30", "--kills", "2", "--pairs", "0", "--cuts", "1"]
    if words[:2] == ["flower", "scale"]:
        return [*words[:2], "--clients", "4"]
    if words[:2] == ["flower", "privacy"]:
        whole = reconstruction.measure_privacy
        monkeypatch.setattr(
            reconstruction, "measure_privacy", lambda epsilons, features, draws: whole([4.0], [16], draws=1)
        )
    if words[:2] == ["flower", "directions"]:
        few = directions.measure_directions
        monkeypatch.setattr(
            directions, "measure_directions", lambda seeds: few((0.5,), (0,), (-0.1,), rounds=1)
        )
    return words


@pytest.mark.parametrize(
    "command", [c for c in documented("stackfu-lab") if not c.startswith("stackfu-lab flower deploy")]
)
def test_every_documented_command_runs(command, tmp_path, monkeypatch, sound):
    """In a small federation; the deployment has a test of its own."""
    monkeypatch.chdir(tmp_path)
    words = made_small(shlex.split(command)[1:], monkeypatch)
    if words[:2] == ["flower", "simulate"]:
        at = words.index("-c") + 1
        words[at] = re.sub(r"(clients|removed|rounds)=\S+", "", words[at]) + SMALL
        if "--engine" not in words:
            words += ["--engine", "none"]
        if "--app" in words:
            words[words.index("--app") + 1] = str(HOWTO.parents[1] / words[words.index("--app") + 1])
    elif words[0] == "audit":  # of a run that is there, with what its clients kept
        words = of_the_sound_run(words, sound, tmp_path)
    elif words[0] != "flower":
        place = next(k for k, word in enumerate(words) if word.startswith("runs/"))
        words[place] = str(sound.folder)
        if "--export" in words:
            words[words.index("--export") + 1] = str(tmp_path / "export.json")
    result = CliRunner().invoke(app, words)
    # without all evidence questions are open
    whole = words[0] != "audit" or words[1] in ("verify", "collect") or "--evidence" in words
    assert result.exit_code == (0 if whole else 4), (result.output, result.exception)


def of_the_sound_run(words: list[str], sound: Scene, folder: Path) -> list[str]:
    """The same command of a run that is there, with the evidence of its clients collected."""
    clients = [str(sound.client_folder(client)) for client in range(8)]
    runner = CliRunner()
    runner.invoke(app, ["audit", "collect", str(sound.folder), *clients, "--out", str(folder / "evidence")])
    runner.invoke(app, ["audit", str(sound.folder), "--out", str(folder / "found")])
    runner.invoke(app, ["ledger", str(sound.folder), "--export", str(folder / "export.json")])
    shutil.copytree(sound.client_folder(3), folder / "receipts-of-leeds")
    found = []
    for word in words:
        if word.startswith("runs/") and "*" in word:
            found += clients
        else:
            found.append(str(sound.folder) if word.startswith("runs/") else word)
    return found


def test_the_three_documented_commands_end_with_an_audit_that_fits(tmp_path, monkeypatch):
    """As they are typed, but for the size of the federation; a shell replaces the star."""
    monkeypatch.chdir(tmp_path)
    page = (HOWTO / "flower_trust.md").read_text()
    block = page[page.index("Three commands lead from a request") :]
    commands = re.findall(r"^\$ (stackfu-lab .*)$", block[: block.index("```\n\n")], flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command)[1:]
        if words[:2] == ["flower", "simulate"]:
            at = words.index("-c") + 1
            words[at] = re.sub(r"(clients|removed)=\S+", "", words[at]) + SMALL
            words += ["--engine", "none"]
        typed = [path for word in words for path in (sorted(glob.glob(word)) if "*" in word else [word])]
        result = CliRunner().invoke(app, typed)
        assert result.exit_code == 0, (command, result.output, result.exception)
    assert json.loads((tmp_path / "found" / "found-r1.json").read_text())["verdict"].startswith("Fits")


def test_every_command_of_the_removal_page_works_as_typed(tmp_path, monkeypatch):
    """From the federation to the signed audit in a scratch folder, as the page has it; a deployment has a test of its own."""
    monkeypatch.chdir(tmp_path)
    page = (HOWTO / "removal_request.md").read_text()
    page = page[page.index("## 4.") :].replace("\\\n", " ")
    commands = re.findall(r"^\$ (stackfu-lab .*)$", page, flags=re.MULTILINE)
    commands = [command for command in commands if "deploy" not in command]
    assert len(commands) == 6
    for command in commands:
        words = shlex.split(command)[1:]
        typed = [path for word in words for path in (sorted(glob.glob(word)) if "*" in word else [word])]
        result = CliRunner().invoke(app, typed)
        assert result.exit_code == 0, (command, result.output, result.exception)
    found = json.loads((tmp_path / "found" / "found-leeds-1.json").read_text())
    assert (found["exit_code"], found["open_questions"]) == (0, [])


#: False statements of earlier pages: removed from them, or true now by this test.
ONCE_FALSE = {
    "recomputes everything": None,
    "recomputes all of it": None,
    "ends with 0 if everything fits": None,
    "with 0\nif everything fits": None,
    "cuts the tail, or puts an older head back": None,
    "an open question about the client, not a misfit": None,
    "write-ahead log is emptied": None,
    "refuses a release that would exceed the\ntotal": "test_no_sequence_of_questions_spends_more_than_the_total",
    "no round, and no gradient": "test_only_sums_shows_no_update_no_gradient_and_no_measure",
    "work for another share than it agreed to": "test_the_number_of_samples_follows_from_the_agreed_share",
    "compares its payment with its own": "test_no_new_offer_after_the_first_work",
    "refuses to start with an open interface": "test_a_superlink_with_an_open_door_is_not_started",
    "does not stop the other clients": "test_whoever_claims_a_size_throughout_neither_ends_the_request_nor_chooses_the_bandwidth",
    "signed audit": "test_a_signed_file_is_verified_and_an_edited_one_is_not",
}


@pytest.mark.parametrize("sentence", ONCE_FALSE)
def test_what_was_false_once_is_gone_from_the_pages_or_true_now(sentence):
    pages = [*HOWTO.glob("*.md"), HOWTO.parent / "index.md"]
    said = [page.name for page in pages if sentence in page.read_text()]
    there = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    shown = ONCE_FALSE[sentence]
    assert not said or (shown is not None and f"def {shown}(" in there), said


@pytest.mark.parametrize("command", documented("flwr"))
def test_every_documented_command_of_flowers_is_one(command):
    """Flower's own help knows the command and its options."""
    words = shlex.split(command)[1:]
    names = list(itertools.takewhile(lambda word: re.fullmatch("[a-z-]+", word), words))[:2]
    names = names[:1] if names[0] == "run" else names
    shown = subprocess.run(
        [str(Path(sys.executable).parent / "flwr"), *names, "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "FLWR_TELEMETRY_ENABLED": "0"},
        check=True,
    )
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.stdout)
    assert all(word in plain for word in words if word.startswith("--")), plain


@pytest.mark.parametrize(
    "command",
    documented("flower-superexec|flower-supernode|python -m stackfu_integration.flower.superlink_auth"),
)
def test_what_is_typed_by_hand_is_what_the_deployment_types(command):
    """The test of this page runs every night: the options are the same, and none of an interface is left out."""
    typed = set(re.findall(r'"(--[a-z-]+)"', inspect.getsource(Deployment)))
    options = {word for word in shlex.split(command) if word.startswith("--")}
    assert options <= typed
    if "superlink_auth" in command:
        assert {"--enable-supernode-auth", "--superexec-auth-secret-file", "--operators"} <= options


GUIDES = ("flower.md", "flower_protocol.md", "flower_trust.md", "removal_request.md")


def existing_tests() -> set[str]:
    """Return the names of all tests of this folder."""
    return set(re.findall(r"^def (test_\w+)", "".join(p.read_text() for p in HERE.glob("test_*.py")), re.M))


@pytest.mark.parametrize("guide", GUIDES)
def test_every_test_that_a_guide_names_is_there_and_every_claim_in_its_tables_names_one(guide):
    page = (HOWTO / guide).read_text()
    said, heading = set(re.findall(r"`(test_\w+)`", page)), "## Which test shows it"
    assert said <= existing_tests(), said - existing_tests()
    assert heading in page
    claims = re.findall(r"^\| (?!claim|---)(.*) \|$", page[page.index(heading) :], re.MULTILINE)
    assert len(claims) > 3
    assert all("`test_" in claim for claim in claims)


def test_every_way_of_not_keeping_to_the_protocol_names_its_test():
    page = (HOWTO / "flower_protocol.md").read_text()
    table = page[page.index("| what happens |") :]
    rows = table[: table.index("\n\n")].splitlines()[2:]
    assert len(rows) > 10
    assert all(re.search(r"`test_\w+` \|$", row) for row in rows)
