"""The forgeries of ``tests/forgeries``, and malformed files: both checkers refuse them and give a reason."""

import json
import re
import sys
from pathlib import Path

import pytest
from second_checker import check_again, needs_node, said

import stackfu as sf

CORPUS = Path(__file__).parents[1] / "forgeries"
sys.path.insert(0, str(CORPUS))
from expand import forged_text, forgeries, honest  # noqa: E402

FORGERIES = forgeries()
HONEST = sorted(path.stem for path in (CORPUS / "honest").glob("*.json"))


def judged(path):
    """Return whether our own checker accepts a file, and what it says."""
    try:
        found = sf.load(path).verify()
    except (sf.StackfuError, ValueError) as error:
        return False, str(error)
    return bool(found), found.message


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forged")
    for name, forgery in FORGERIES.items():
        (folder / f"{name}.json").write_text(forged_text(forgery))
    return {name: folder / f"{name}.json" for name in FORGERIES}


def test_the_corpus_moves_everything_that_a_file_claims():
    assert len(FORGERIES) > 180
    moved = {
        path[-1] if isinstance(path[-1], str) else path[-2]
        for f in FORGERIES.values()
        for path, _ in f.get("changes", ())
    }
    assert len(moved) > 20
    assert all(f["moved"] and f["claim"] in ("again", "kept") for f in FORGERIES.values())


def test_our_checker_refuses_every_forgery_and_says_what_it_should(files):
    for name, forgery in FORGERIES.items():
        accepted, message = judged(files[name])
        assert accepted == ("still_true" in forgery), (name, message)
        assert re.search(forgery["python"], message), (name, message)


def test_our_checker_accepts_the_honest_files():
    for name in HONEST:
        assert judged(CORPUS / "honest" / f"{name}.json")[0], name


@needs_node
def test_the_second_checker_refuses_every_forgery_and_says_what_it_should(files):
    for (name, forgery), report in zip(FORGERIES.items(), check_again(files.values()), strict=True):
        accepted = report["verdict"] in ("proved", "not checked")
        assert accepted == ("still_true" in forgery), (name, said(report))
        assert re.search(forgery["javascript"], said(report)), (name, said(report))


@needs_node
def test_the_second_checker_proves_what_it_can_of_the_honest_files():
    reports = check_again([CORPUS / "honest" / f"{name}.json" for name in HONEST])
    for name, report in zip(HONEST, reports, strict=True):
        left = {line["what"] for line in report["lines"] if line["verdict"] == "not checked"}
        assert report["verdict"] == ("not checked" if left else "proved"), said(report)
        assert left <= {"uniqueness"}, (name, left)


def enormous(kinds, splits):
    """Return a file with an enormous tree."""
    record = honest("linear")
    certificate = record["certificate"]
    leaves = kinds.count(2)
    certificate["node_kinds"] = {"array": kinds, "dtype": "int8", "shape": [len(kinds)]}
    certificate["node_splits"] = {"array": splits, "dtype": "float64", "shape": [len(splits)]}
    certificate["leaf_ends"] = {"array": [0] * leaves, "dtype": "int64", "shape": [leaves]}
    certificate["leaf_steps"] = {"array": [], "dtype": "int64", "shape": [0, 2]}
    return json.dumps(record)


@needs_node
def test_files_that_nobody_could_mean_get_a_clear_refusal(tmp_path):
    million = 10**6
    texts = {
        "empty": "",
        "null": "null",
        "list": "[]",
        "deep": "[" * 100_000,
        "zip": "PK\x03\x04",
        "words": '{"format": "stackfu", "version": 3, "kind": "solution"}',
        "numbers": json.dumps({**honest("linear"), "equilibrium": 7}),
        "nan": (CORPUS / "honest" / "linear.json")
        .read_text()
        .replace('"objective":', '"objective":NaN,"other":'),
        "leaves": enormous([2] * million, []),
        "chain": enormous([0, 2] * 60_000 + [2], [0.9 * 0.9998**i for i in range(60_000)]),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.json").write_text(text)
    reports = check_again([tmp_path / f"{name}.json" for name in texts])
    for name, report in zip(texts, reports, strict=True):
        if name in ("leaves", "chain"):
            assert report["verdict"] == "not checked", name
            assert "takes trees of up to" in said(report, "not checked")
        else:
            assert report["verdict"] == "unreadable", name
            assert said(report), name
        assert not judged(tmp_path / f"{name}.json")[0], name
