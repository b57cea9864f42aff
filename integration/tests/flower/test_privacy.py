from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scene import CLIENTS, TERMS, Averager, Scene, initial
from scipy.stats import norm

import stackfu as sf
from stackfu.errors import InputError
from stackfu_integration.flower import Terms, gaussian_deviation, unbiased_gram
from stackfu_integration.flower.events import EmbeddingReceived
from stackfu_integration.flower.privacy import add_noise, largest_honest_norm, nearest_gram
from stackfu_integration.flower.wire import RESPOND, OfferQuestion

privacy = {"epsilon": st.floats(0.01, 20.0), "delta": st.floats(1e-10, 0.1), "size": st.integers(1, 10**6)}


@given(**privacy)
def test_the_noise_is_enough_and_no_more(epsilon, delta, size):
    """The privacy profile of the Gaussian mechanism, computed by other means, is delta at that noise."""
    sigma, s = gaussian_deviation(epsilon, delta, size), 2.0 / size

    def spent(sigma):
        a, b = s / (2 * sigma), epsilon * sigma / s
        return norm.cdf(a - b) - np.exp(epsilon + norm.logcdf(-a - b))

    assert spent(sigma) == pytest.approx(delta, rel=1e-5, abs=1e-15)
    assert spent(0.9 * sigma) > delta


@given(**privacy)
def test_it_is_less_than_the_textbook_asks_for(epsilon, delta, size):
    if epsilon <= 1:
        assert (
            gaussian_deviation(epsilon, delta, size) <= 2 / size * np.sqrt(2 * np.log(1.25 / delta)) / epsilon
        )


@pytest.mark.parametrize(
    "wrong", [(0.0, 1e-5, 10), (1.0, 0.0, 10), (1.0, 1.0, 10), (1.0, 1e-5, 0), (np.nan, 0.1, 9)]
)
def test_impossible_wishes_are_refused(wrong):
    with pytest.raises(InputError):
        gaussian_deviation(*wrong)


def test_the_bias_in_squared_distances_is_what_is_stated_and_is_taken_back():
    """Over many draws: noisy squared distances exceed by D (s_i^2 + s_j^2), corrected ones are right."""
    rng, draws, features = np.random.default_rng(0), 4000, 40
    rows = rng.normal(size=(3, features)) * 0.1
    deviations = np.array([0.05, 0.1, 0.0])
    noisy, corrected = np.zeros((3, 3)), np.zeros((3, 3))
    for _ in range(draws):
        seen = rows + deviations[:, None] * rng.normal(size=rows.shape)
        noisy += ((seen[:, None] - seen[None]) ** 2).sum(-1) / draws
        gram = unbiased_gram(seen, deviations)
        corrected += (np.diag(gram)[:, None] + np.diag(gram)[None] - 2 * gram) / draws
    true = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    bias = features * (deviations[:, None] ** 2 + deviations[None] ** 2) * (1 - np.eye(3))
    assert noisy - true == pytest.approx(bias, abs=0.02 * bias.max())
    assert corrected == pytest.approx(true, abs=0.02 * bias.max())


def test_the_nearest_gram_is_one():
    rng = np.random.default_rng(1)
    rough = unbiased_gram(rng.normal(size=(6, 4)), np.full(6, 0.8))
    mended, moved = nearest_gram(rough)
    assert np.linalg.eigvalsh(mended)[0] > -1e-12
    assert moved == pytest.approx(np.linalg.norm(mended - rough))
    again, nothing = nearest_gram(mended)
    assert again == pytest.approx(mended)
    assert nothing < 1e-12


def test_asking_twice_gives_the_same_noise_and_asking_for_something_else_does_not():
    mean = np.full(8, 0.1)
    first = add_noise(mean, 0.5, b"key", "r1", 1.5)
    assert np.array_equal(first, add_noise(mean, 0.5, b"key", "r1", 1.5))
    for other in (
        add_noise(mean, 0.5, b"key", "r2", 1.5),
        add_noise(mean, 0.5, b"other", "r1", 1.5),
        add_noise(mean + 1e-9, 0.5, b"key", "r1", 1.5),
        add_noise(mean, 0.5, None, "r1", 1.5),
    ):
        assert not np.allclose(first, other, atol=1e-3)
    assert add_noise(mean, 0.0, None) is mean


def test_honest_noisy_embeddings_pass_the_norm_check():
    rng = np.random.default_rng(2)
    direction = rng.normal(size=64)
    for _ in range(1000):
        noisy = direction / np.linalg.norm(direction) + 0.3 * rng.normal(size=64)
        assert np.linalg.norm(noisy) <= largest_honest_norm(0.3, 64)


@pytest.mark.parametrize("epsilon", [5.0, 50.0])
def test_a_run_with_noise(tmp_path, epsilon):
    """Noisy embeddings give a playable game, and noise alone makes no client look dishonest."""
    exact = Scene(tmp_path / "exact").run()
    scene = Scene(tmp_path / "noisy", terms=Terms(**{**vars(Scene(tmp_path).terms), "epsilon": epsilon}))
    facts = scene.run()
    assert facts["closed"]
    assert facts["faults"] == []
    assert facts["paid"] <= facts["budget"] * (1 + 1e-9)
    with scene.ledger() as ledger:
        for received in ledger.events("r1", EmbeddingReceived):
            expected = gaussian_deviation(epsilon, 1e-5, received.size)
            assert received.deviation == pytest.approx(expected)
    assert "differentially private" in (scene.folder / "audit-r1.md").read_text().replace("-\n", "-")
    assert facts["full_price"] != exact["full_price"]


def test_the_correction_brings_the_game_closer_to_the_noiseless_one():
    """Squared distances between all pairs of clients, with and without the correction, over many draws."""
    from flwr.app import Context, RecordDict

    import stackfu as sf

    data = [Averager(Context(1, 1, {"partition-id": i}, RecordDict(), {})).data for i in range(CLIENTS)]
    means = np.array([sf.client_features(x, 1.5, 64, 0) for x in data])
    sigma = np.array([gaussian_deviation(5.0, 1e-5, len(x)) for x in data])
    true = ((means[:, None] - means[None]) ** 2).sum(-1)
    rng, errors = np.random.default_rng(3), []
    for _ in range(50):
        seen = means + sigma[:, None] * rng.normal(size=means.shape)
        raw = ((seen[:, None] - seen[None]) ** 2).sum(-1)
        gram, _ = nearest_gram(unbiased_gram(seen, sigma))
        mended = np.diag(gram)[:, None] + np.diag(gram)[None] - 2 * gram
        errors.append((np.abs(raw - true).mean(), np.abs(mended - true).mean()))
    raw_error, mended_error = np.mean(errors, axis=0)
    assert mended_error < raw_error / 2


def test_of_two_clients_that_remain_each_can_work_out_the_other_and_the_audit_says_so(tmp_path):
    """The announced sum minus one's own part is the other's."""
    scene, told = Scene(tmp_path / "run", terms=replace(TERMS, budget_share=0.9)), {}

    def look(message, answer):
        if message.metadata.message_type == RESPOND:
            told.setdefault("first", message)
        return answer(message)

    scene.behaviours[3] = look
    mechanism, grid = scene.mechanism(), scene.grid()
    mechanism.train(grid, initial(), 1)
    mechanism.remove(grid, tuple(c for c in range(8) if c not in (3, 5)))
    mechanism.ledger.close()
    text = (scene.folder / "audit-r1.md").read_text()
    assert "each can work out the other's embedding" in text
    asked = OfferQuestion.decode(told["first"].content).offer
    others = asked.aggregate - asked.alpha * asked.share * asked.own
    weight = asked.total - asked.alpha * asked.share
    truth = sf.client_features(Averager.data_of(5), TERMS.bandwidth, TERMS.features, TERMS.seed)
    assert weight > 0
    assert others / weight == pytest.approx(truth, abs=1e-9)
