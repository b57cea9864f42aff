"""Every field of saved solutions, moved one at a time: the file is refused, or the attack's reference finds nothing untrue in it.

Numbers are moved by 1e-6 of themselves, by 1, to NaN and to the other sign, words and switches are swapped; games and
certificates are part of the file. What ``verify`` accepts is judged once more by :mod:`attack_leader`, which shares no code with
it.
"""

import copy
import json

import attack_leader
import numpy as np
import pytest
from forging import changed, forgeries, leaves, read_unclaimed

import stackfu as sf

#: Fields that name the file's own format, not the game.
FORMAT = ("format", "kind", "dtype", "shape", "version")


def plain():
    game = federation(sampling_constant=0.0)
    return game.solve(0.05)


def sampled():
    return federation().solve(0.1, finite_sample=True, min_total=0.3, gap=1e-3)


def unlimited():
    return federation(sampling_constant=0.5).solve(payment_weight=0.3, max_loss=0.5, robust=True)


def alike():
    points = np.array([[0.3, 0.1], [0.2, -0.4], [0.2, -0.4], [0.2, -0.4]])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points), [10, 20, 30, 40], (0,), costs=[0.1, 0.2, 0.15]
    )
    return game.solve(0.25)


def federation(**options):
    points = np.random.default_rng(3).normal(size=(5, 2)) * 0.25
    return sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        [10, 20, 30, 40, 25],
        (1,),
        costs=[0.05, 0.2, 0.1, 0.15],
        **options,
    )


def accepted(folder, record):
    """The solution in a file that can be read and that verifies, else None."""
    path = folder / "forged.json"
    path.write_text(json.dumps(record))
    try:
        solution = sf.load(path)
    except (sf.StackfuError, ValueError):
        return None
    return solution if solution.verify() else None


def untrue(solution):
    """Return the error that the attack's reference finds in a solution, or None."""
    goal = solution.goal.to_dict()
    budget = goal.pop("budget")
    options = {**goal, **({"robust": True} if solution.robust else {})}
    reference = attack_leader.Reference(solution.game, budget, options)
    rng = np.random.default_rng(0)
    word, details = attack_leader.judge(rng, solution.game, budget, options, solution, reference, [])
    return (word, details) if word in attack_leader.WRONG else None


@pytest.mark.parametrize("make", [plain, sampled, unlimited, alike])
def test_every_field_is_caught_or_still_true(make, tmp_path):
    solution = make()
    assert solution.status is sf.Status.CERTIFIED
    solution.save(tmp_path / "true.json")
    record = read_unclaimed(tmp_path / "true.json")
    assert accepted(tmp_path, record) is not None
    assert untrue(solution) is None
    rng = np.random.default_rng(1)
    fields = [(path, value) for path, value in leaves(record, but=FORMAT) if value is not None]
    # a certificate is thousands of numbers of a few kinds: some of each kind
    kinds = {}
    for path, value in fields:
        kinds.setdefault(tuple(p for p in path if not isinstance(p, int)), []).append((path, value))
    caught, wrong = 0, []
    for name, members in kinds.items():
        most = 2 if name[0] == "certificate" else 6
        for k in rng.permutation(len(members))[:most]:
            path, value = members[k]
            for fake in forgeries(value, switches=True):
                solution = accepted(tmp_path, changed(record, path, fake))
                if solution is None:
                    caught += 1
                elif (problem := untrue(solution)) is not None:
                    wrong.append((path, value, fake, problem))
    assert not wrong, wrong[:5]
    assert caught > 40


@pytest.mark.parametrize("make", [plain, sampled, unlimited])
def test_no_certificate_proves_more_than_there_is(make, tmp_path):
    """With a bound above the optimum every change of the certificate, one or many at a time, is refused."""
    solution = make()
    solution.save(tmp_path / "true.json")
    record = read_unclaimed(tmp_path / "true.json")
    too_high = solution.objective * (1 + 1e-9)
    record["lower_bound"] = too_high
    record["certificate"]["lower"] = too_high
    record["objective"] = solution.objective
    fields = [path for path, value in leaves(record["certificate"], but=FORMAT) if isinstance(value, float)]
    rng = np.random.default_rng(2)
    for trial in range(40):
        fake = copy.deepcopy(record)
        for k in rng.choice(len(fields), size=min(len(fields), 1 + trial % 20), replace=False):
            place = fake["certificate"]
            for step in fields[k][:-1]:
                place = place[step]
            place[fields[k][-1]] *= float(1.0 + rng.choice([1e-6, 0.1, 1.0, -2.0, 10.0]))
        assert accepted(tmp_path, fake) is None
