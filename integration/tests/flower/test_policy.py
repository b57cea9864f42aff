"""The client's policy: what leaves is what the client allows, whatever the server asks."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scene import CLIENTS, REMOVED, TERMS, Averager, Killed, Scene
from scipy.stats import norm

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.flower import Policy, Terms
from stackfu_integration.flower.events import EmbeddingReceived, GroupSumReceived
from stackfu_integration.flower.policy import PolicyError, Release, spent_epsilon
from stackfu_integration.flower.privacy import DISTANCES, gaussian_deviation, private_median
from stackfu_integration.flower.reconstruction import measure_privacy
from stackfu_integration.flower.wire import EMBED

STRICT = 3


class Careful(Averager):
    """One client with the default policy, or the one in its folder."""

    def __init__(self, context):
        super().__init__(context)
        if self.client == STRICT:
            self.policy = None


def faults(facts) -> str:
    return "; ".join(f["problem"] for f in facts["faults"] if f["client"] == STRICT)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"epsilon": None}, "no embedding without noise"),
        ({"epsilon": 1e6}, "epsilon up to 4"),
        ({"epsilon": 1.0, "delta": 0.1}, "delta up to"),
        ({"epsilon": 1.0, "features": 1000}, "up to 256 features"),
        ({"epsilon": 1.0, "bandwidth": 1e-6}, "bandwidths between"),
        ({"epsilon": 1.0, "erase": False}, "erased after settlement"),
        ({"epsilon": None, "bandwidth": None}, "nothing of its distances without noise"),
    ],
    ids=["no noise", "epsilon", "delta", "features", "bandwidth", "erasure", "spread"],
)
def test_a_client_refuses_what_its_policy_does_not_allow(scene, terms, said):
    scene.load, scene.terms = Careful, replace(TERMS, method="uniform", **terms)
    facts = scene.run()
    assert said in faults(facts)
    assert next(c for c in facts["clients"] if c["client"] == STRICT)["role"] == "left out"


def test_the_default_terms_ask_for_what_the_default_policy_allows(tmp_path):
    """Private by default, without anything being set anywhere."""

    class Plain(Averager):
        def __init__(self, context):
            super().__init__(context)
            self.policy = None

    scene = Scene(tmp_path / "run", terms=Terms(rounds=1), load=Plain)
    facts = scene.run()
    assert facts["faults"] == []
    assert facts["terms"]["epsilon"] == Policy().epsilon
    assert facts["bandwidth_asked"]


def test_releases_are_counted_over_requests_and_the_one_too_many_is_refused(tmp_path):
    """Differently named requests would average the noise away; here the records outlive the server and its ledger."""
    (tmp_path / "clients of run" / str(STRICT)).mkdir(parents=True)
    (tmp_path / "clients of run" / str(STRICT) / "policy.toml").write_text(
        "epsilon = 1.0\ntotal_epsilon = 2.0\n"
    )
    scene = Scene(
        tmp_path / "run",
        terms=replace(TERMS, epsilon=1.0, method="uniform", rounds=1, announcements=2),
        load=Careful,
    )
    scene.run()
    refused = []
    for number, leaving in ((2, 2), (3, 4), (4, 6)):
        mechanism, grid = scene.mechanism(), scene.grid()
        facts = mechanism.remove(grid, (leaving,), request=f"r{number}")
        mechanism.ledger.close()
        refused.append("in all" in faults(facts))
    assert refused == [False, False, True] or refused == [False, True, True]
    state = json.loads((scene.client_folder(STRICT) / "state.json").read_text())
    spent = spent_epsilon([Release(**entry) for entry in state["releases"].values()], 1e-5)
    assert 1.0 < spent <= 2.0


def test_the_same_question_costs_once(scene):
    scene.load, scene.terms = Careful, replace(TERMS, epsilon=1.0)

    def die(message, answer):
        answer(message)
        raise Killed

    scene.behaviours[STRICT] = lambda m, a: die(m, a) if m.metadata.message_type == EMBED else a(m)
    with pytest.raises(Killed):
        scene.run()
    scene.behaviours.clear()
    scene.run()
    state = json.loads((scene.client_folder(STRICT) / "state.json").read_text())
    assert len(state["releases"]) == 1


@given(mus=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=6), delta=st.floats(1e-8, 1e-2))
def test_the_accountant_adds_gaussian_releases_exactly(mus, delta):
    """Against the definition: the likelihood ratio of all releases together is that of one with the summed squares."""
    epsilon = spent_epsilon([Release(mu=mu) for mu in mus], delta)
    mu = float(np.sqrt(np.sum(np.square(mus))))
    reached = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    assert reached <= delta * (1 + 1e-5)
    if epsilon > 1e-6:
        assert reached == pytest.approx(delta, rel=1e-4)
    assert spent_epsilon([*[Release(mu=m) for m in mus], Release(epsilon=0.5)], delta) == pytest.approx(
        epsilon + 0.5
    )


@given(epsilon=st.floats(0.1, 8.0), size=st.integers(1, 1000))
def test_one_release_costs_what_it_was_made_for(epsilon, size):
    mu = 2.0 / size / gaussian_deviation(epsilon, 1e-5, size)
    assert spent_epsilon([Release(mu=mu)], 1e-5) == pytest.approx(epsilon, rel=1e-6)


def test_without_noise_everything_is_spent():
    assert spent_epsilon([Release(mu=np.inf)], 1e-5) == np.inf
    with pytest.raises(PolicyError, match="in all"):
        Policy(noiseless=True).check_total([], Release(mu=np.inf))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("epsilon = 'much'", InputError),
        ("mercy = 1", InputError),
        ("epsilon = -1.0", InputError),
        ("nonsense", FileFormatError),
    ],
)
def test_policies_that_say_nothing_sensible_are_refused(tmp_path, text, error):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(error):
        Policy.load(tmp_path / "policy.toml")


def test_a_policy_is_read(tmp_path):
    (tmp_path / "policy.toml").write_text('epsilon = 1\nkernels = ["rbf", "labels"]\nerase = false\n')
    assert Policy.load(tmp_path / "policy.toml") == Policy(epsilon=1, kernels=("rbf", "labels"), erase=False)
    assert Policy.load(tmp_path / "none.toml") == Policy()


# ---- the bandwidth


@given(seed=st.integers(0, 10**6), replaced=st.integers(0, 39), epsilon=st.floats(0.2, 3.0))
def test_replacing_a_sample_changes_no_probability_of_a_bandwidth_by_more_than_epsilon(
    seed, replaced, epsilon
):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(40, 2))
    other = points.copy()
    other[replaced] = 100.0 * rng.normal(size=2)

    class Recorder:
        def choice(self, values, p):
            self.p = p
            return values[0]

    chances = []
    for data in (points, other):
        recorder = Recorder()
        private_median(data, epsilon, recorder)
        chances.append(recorder.p)
    assert len(chances[0]) == len(DISTANCES)
    assert np.abs(np.log(chances[0]) - np.log(chances[1])).max() <= epsilon * (1 + 1e-9)


# ---- those who leave


def test_of_clients_that_leave_the_server_sees_the_sum(sound):
    with sound.ledger() as ledger:
        group = ledger.need("r1", GroupSumReceived)
        received = ledger.by_client("r1", EmbeddingReceived)
    assert group.clients == REMOVED
    assert group.size == sum(received[c].size for c in REMOVED)


def test_a_sum_gives_the_same_game_as_its_parts(scene, sound):
    """The game needs one mixture of the leaving clients, however it was summed."""
    scene.terms = replace(TERMS, secure_sum=False)
    scene.run()
    ours, theirs = ([row[4] for row in s.records("offer", "payment")] for s in (scene, sound))
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)
    assert CLIENTS == 8


# ---- what an embedding gives away


def test_by_default_members_cannot_be_told_from_others_and_without_noise_they_can():
    """Non-negative least squares over a pool of candidates, on the digits federation."""
    (bare,) = measure_privacy([None], [256], cost=False)
    assert bare["auc_mean"] > 0.85
    assert bare["auc_worst"] > 0.99
    assert bare["class_mix_error"] < 0.05
    (private,) = measure_privacy([Terms().epsilon], [Terms().features], draws=2, cost=False)
    assert private["auc_worst"] <= 0.6
    assert private["class_mix_error"] > 0.2
