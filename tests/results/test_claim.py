"""Certificates name their claim: a file that holds another claim is refused before its proof is read."""

import json

import numpy as np
import pytest
from forging import changed, forgeries, leaves, read_unclaimed

import stackfu as sf
from stackfu.results.claim import claim_digest

#: Fields of a file that are no part of the claim, by the last name on the way to them.
NO_CLAIM = {
    *("bandwidth", "calibrated", "currency", "kernel", "self_similarity", "names", "version", "most"),
    *(
        "participation",
        "status",
        "uniqueness",
        "reason",
        "regret",
        "residual",
        "iterations",
        "seconds",
        "face",
    ),
    *("method", "message", "objective", "limits", "gap", "time_limit", "max_nodes", "robust", "nodes"),
}


@pytest.fixture(scope="module", params=["linear", "capped"])
def saved(request, tmp_path_factory):
    rng = np.random.default_rng(3)
    emb = sf.MeanEmbeddings.from_features(rng.normal(size=(4, 2)) * 0.4)
    game = sf.StackelbergGame(emb, [10, 20, 30, 40], (1,), costs=[0.05, 0.2, 0.1], sampling_constant=0.5)
    path = tmp_path_factory.mktemp("claim") / "true.json"
    game.solve(0.1, offers=request.param, max_nodes=3, progress=False).save(path)
    return path


def open_again(path, record):
    forged = path.with_name("forged.json")
    forged.write_text(json.dumps(record))
    return sf.load(forged)


def test_a_certificate_comes_back_with_its_claim(saved):
    solution, record = sf.load(saved), json.loads(saved.read_text())
    assert record["version"] == 3
    assert record["certificate"]["claim"] == claim_digest(solution)
    compressed = saved.with_suffix(".npz")
    solution.save(compressed)
    assert claim_digest(sf.load(compressed)) == claim_digest(solution)


def test_every_number_of_the_claim_that_is_moved_is_refused(saved):
    record, moved = json.loads(saved.read_text()), 0
    for path, value in leaves(record, but=("certificate", "format", "kind", "dtype", "shape", "own_options")):
        named = [p for p in path if isinstance(p, str) and p != "array"]
        if named[-1] in NO_CLAIM or path == ("budget",) or isinstance(value, (bool, str, dict)):
            continue
        if "offers" in record and path[0] == "equilibrium" and path[1] != "game":
            continue  # said twice, and compared by verify
        for forged in forgeries(value):
            with pytest.raises((sf.FileFormatError, ValueError)):
                open_again(saved, changed(record, path, forged))
            moved += 1
    assert moved > 60


def test_a_certificate_of_another_budget_is_refused_by_name(saved):
    record = json.loads(saved.read_text())
    forged = changed(changed(record, ("budget",), 0.09), ("equilibrium", "seconds"), 0.0)
    forged["goal"]["budget"] = 0.09
    with pytest.raises(sf.FileFormatError, match="for another claim"):
        open_again(saved, forged)


def test_files_of_earlier_versions_need_no_claim_and_newer_ones_do(saved):
    old = read_unclaimed(saved)
    assert open_again(saved, old).lower_bound == sf.load(saved).lower_bound
    assert open_again(saved, {**old, "version": 1}).lower_bound == sf.load(saved).lower_bound
    with pytest.raises(sf.FileFormatError, match="for another claim, 'None'"):
        open_again(saved, {**old, "version": 3})
