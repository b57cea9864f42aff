"""A forger's test: every field of a saved solution, moved one at a time, is caught or still true.

Fields are numbers (moved by 1e-6 of themselves, by 1, to NaN, to the other sign) and words (swapped). *Caught* means that the
file does not load or that ``verify`` refuses it. What passes must be in :data:`STILL_TRUE`, with the reason and, where only
some forgeries are still true, the condition.
"""

import copy
import json
import math
import re

import numpy as np
import pytest
from forging import changed, forgeries, leaves, name_of, read_unclaimed

import stackfu as sf

#: Harmless changes, by the field's path, with the reason.
STILL_TRUE = (
    (
        r"\.seconds$|\.nodes$|\.iterations$|^seconds$|^nodes$|^iterations$",
        "effort, not a claim about the game",
    ),
    (r"message$|reason$|method$", "free text; what it is about is checked by itself"),
    (r"bandwidth|calibrated|\.version$|^version$", "how the embeddings came about; distances are stored"),
    (
        r"^certificate",
        "moved multipliers and cuts prove a bound of their own, and the checker proves it again",
    ),
    (r"limits\.(time_limit|max_nodes)", "how long the search was allowed to take"),
    (r"limits\.gap", "a wider gap than was reached is still kept"),
    (r"lower_bound", "a smaller bound is proved by the same certificate"),
    (r"own_options|names", "labels"),
    (
        r"\.(regret|residual)$",
        "moved by less than rounding",
        lambda value, forged: abs(forged - value) <= 1e-12,
    ),
    (r"equilibrium\.game\.", "another game, of which every claim was proved again from the file"),
    (r"uniqueness$", "UNKNOWN claims nothing", lambda value, forged: forged == "UNKNOWN"),
    (r"status$", "a status that claims less than what is proved; one that claims more is refused, see below"),
    (
        r"^outside$",
        "the same offers keep who has less outside, and those that have enough to spare",
        lambda value, forged: not isinstance(forged, dict),
    ),
    (
        r"goal\.(max_loss|min_total|budget|payment_weight|loss_weight)",
        "a request that the same payments meet as well",
    ),
)


def solution():
    rng = np.random.default_rng(3)
    points = rng.normal(size=(5, 2)) * 0.4
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points), [10, 20, 30, 40, 25], (1,), costs=[0.05, 0.2, 0.1, 0.15]
    )
    return game.solve(0.05)


def still_true(name, value, forged):
    return any(
        re.search(pattern, name) and all(holds(value, forged) for holds in condition)
        for pattern, _, *condition in STILL_TRUE
    )


def plan(kind):
    """Capped offers that keep all clients, or contracts."""
    rng = np.random.default_rng(3)
    points = rng.normal(size=(5, 2)) * 0.4
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        [10, 20, 30, 40, 25],
        (1,),
        costs=[0.05, 0.2, 0.1, 0.15],
        sampling_constant=0.5,
    )
    kept = {"outside": [-np.inf, -0.55, -2.0, -1.0]} if kind == "capped" else {"max_nodes": 2}
    return game.solve(0.1, offers=kind, gap=1e-2, progress=False, **kept)


@pytest.fixture(scope="module", params=["capped", "contract"])
def saved_plan(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    plan(request.param).save(folder / "true.json")
    return folder, read_unclaimed(folder / "true.json")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forgery")
    solution().save(folder / "true.json")
    return folder, read_unclaimed(folder / "true.json")


def verdict(folder, record):
    """Return the reader's verdict on a file: not readable, refused, or accepted."""
    (folder / "forged.json").write_text(json.dumps(record))
    try:
        thing = sf.load(folder / "forged.json")
    except (sf.StackfuError, ValueError):
        return "unreadable"
    return "accepted" if thing.verify() else "refused"


def test_the_true_file_is_accepted(saved):
    folder, record = saved
    assert verdict(folder, record) == "accepted"


def test_every_field_that_is_moved_is_caught_or_still_true(saved):
    caught, wrong = walk(*saved)
    assert not wrong, wrong[:20]
    assert caught > 60


def test_every_field_of_a_plan_that_is_moved_is_caught_or_still_true(saved_plan):
    folder, record = saved_plan
    assert verdict(folder, record) == "accepted"
    caught, wrong = walk(folder, record)
    assert not wrong, wrong[:20]
    assert caught > 60


def walk(folder, record):
    """Return how many forgeries are caught, and those that are not and claim something untrue."""
    caught, true, wrong = 0, 0, []
    for path, value in leaves(
        {k: v for k, v in record.items() if k not in ("format", "kind", "certificate")}
    ):
        name = name_of(path)
        if name.endswith(("dtype", "kind", "format")) or "shape" in path:
            continue
        for forged in forgeries(value):
            if verdict(folder, changed(record, path, forged)) != "accepted":
                caught += 1
            elif still_true(name, value, forged):
                true += 1
            else:
                wrong.append((name, value, forged))
    return caught, wrong


@pytest.mark.parametrize("field", ["objective", "lower_bound", "budget"])
def test_claims_cannot_be_improved(saved, field):
    improve(*saved, field)


@pytest.mark.parametrize("field", ["objective", "lower_bound", "budget"])
def test_claims_of_a_plan_cannot_be_improved(saved_plan, field):
    improve(*saved_plan, field)


def improve(folder, record, field):
    better = {"objective": 0.999, "lower_bound": 1.001, "budget": 0.5}[field]
    assert verdict(folder, changed(record, (field,), record[field] * better)) != "accepted"


def test_a_certificate_of_another_game_is_refused(saved):
    folder, record = saved
    rng = np.random.default_rng(0)
    forged = copy.deepcopy(record)
    for knot in forged["certificate"]["knot_numbers"]["array"]:
        knot[4] += 0.5 * abs(knot[4]) + rng.uniform()
    if math.isfinite(record["lower_bound"]):
        assert verdict(folder, forged) != "accepted"


@pytest.mark.parametrize("status", [s for s in sf.Status if s is not sf.Status.CERTIFIED])
def test_a_solution_without_proof_cannot_become_certified(tmp_path, status):
    from dataclasses import replace

    true = solution()
    weak = replace(true, certificate=None, lower_bound=-np.inf, status=status)
    weak.save(tmp_path / "weak.json")
    record = read_unclaimed(tmp_path / "weak.json")
    assert verdict(tmp_path, changed(record, ("status",), "CERTIFIED")) == "refused"
