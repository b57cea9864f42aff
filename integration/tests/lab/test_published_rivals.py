"""NoT, FedOSD and SIFU against their published algorithms, written once more in NumPy for a softmax head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import REMOVED, ROUNDS, SETTINGS
from torch import nn

from stackfu.errors import InputError
from stackfu_integration.lab.federation import UpdateHistory, fedavg, train_federation
from stackfu_integration.lab.federation.local import client_seed
from stackfu_integration.lab.models import HiddenLayer, Identity
from stackfu_integration.lab.models.classifier import Classifier
from stackfu_integration.lab.unlearning import FedOSD, NoT, Sifu, fedosd, negation, sifu
from stackfu_integration.lab.unlearning.fedosd import unlearning_cross_entropy
from stackfu_integration.lab.unlearning.negation import negate_first

CLASSES, FEATURES = 4, 6


def shares(weights, x):
    """Return the predicted shares of a softmax head; its flat weights end with the biases."""
    matrix, bias = weights[: CLASSES * FEATURES].reshape(CLASSES, FEATURES), weights[CLASSES * FEATURES :]
    scores = x @ matrix.T + bias
    odds = np.exp(scores - scores.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def slope(weights, x, y, unlearn):
    """Gradient of the cross-entropy, or of -log(1 - p_y / 2), by the chain rule through the scores."""
    p = shares(weights, x)
    hit = np.eye(CLASSES)[y]
    by_score = p - hit
    if unlearn:
        own = p[np.arange(len(y)), y][:, None]
        by_score = -by_score * (0.5 * own / (1.0 - 0.5 * own))
    by_score /= len(y)
    return np.concatenate([(by_score.T @ x).ravel(), by_score.sum(0)])


@pytest.fixture(scope="module")
def whole_batches(federation):
    """The tiny federation where every local epoch is one step on all samples: no order of batches to repeat."""
    return train_federation(
        federation, replace(SETTINGS, batch=10_000), ROUNDS, seed=0, observers={"history": UpdateHistory()}
    )


def numpy_data(federation, client):
    data = federation.clients[client].train
    return data.x.numpy().astype(np.float64), data.y.numpy()


# ---- FedOSD


def test_fedosd_follows_the_published_steps(whole_batches):
    federation = whole_batches.federation
    remaining = federation.remaining(REMOVED)
    method = FedOSD(rounds=3, rate=2.0, recovery_rate=0.5)
    usual = whole_batches.settings.learning_rate

    start = whole_batches.final.numpy().astype(np.float64)
    w = start.copy()
    for _ in range(3):  # the stage of unlearning
        kept = np.array([slope(w, *numpy_data(federation, i), False) for i in remaining])
        wanted = np.mean([slope(w, *numpy_data(federation, i), True) for i in REMOVED], axis=0)
        # least squares: the residual is the nearest vector orthogonal to all rows
        d = wanted - kept.T @ np.linalg.lstsq(kept.T, wanted, rcond=None)[0]
        w = w - 2.0 * usual * d * np.linalg.norm(wanted) / np.linalg.norm(d)
    for _ in range(3):  # post-training
        away = (w - start) / np.linalg.norm(w - start)
        found = []
        for i in remaining:
            g = slope(w, *numpy_data(federation, i), False)
            flat = g - (g @ away) * away
            found.append(flat * np.linalg.norm(g) / np.linalg.norm(flat))
        w = w - 0.5 * usual * np.mean(found, axis=0)

    outcome = method.unlearn(whole_batches, REMOVED, seed=1)
    moved = np.abs(w - start).max()
    assert moved > 0.05
    np.testing.assert_allclose(outcome.weights.numpy(), w, atol=2e-4 * moved)
    everybody = sum(len(federation.clients[i].train) for i in (*remaining, *REMOVED))
    assert outcome.effort.samples == 3 * everybody + 3 * sum(
        len(federation.clients[i].train) for i in remaining
    )


def test_unlearning_cross_entropy_is_bounded_and_has_the_published_value():
    scores, labels = torch.tensor([[2.0, 0.0, -1.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    p = np.exp(scores.numpy()) / np.exp(scores.numpy()).sum(1, keepdims=True)
    expected = -np.mean([np.log(1 - p[0, 0] / 2), np.log(1 - p[1, 2] / 2)])
    assert unlearning_cross_entropy(scores, labels).item() == pytest.approx(expected, rel=1e-5)
    certain = unlearning_cross_entropy(torch.tensor([[60.0, 0.0]]), torch.tensor([0]))
    assert certain.item() == pytest.approx(np.log(2))


def test_an_unlearning_step_leaves_the_others_losses_to_first_order(whole_batches):
    generator = torch.Generator().manual_seed(0)
    target, others = torch.randn(30, generator=generator), torch.randn(7, 30, generator=generator)
    others[6] = 2 * others[5]  # clients with the same data must not break the inverse
    step = fedosd.orthogonal_direction(target, others)
    assert float((others @ step).abs().max()) < 1e-4
    torch.testing.assert_close(step.norm(), target.norm())
    assert float(step @ target) > 0
    assert not fedosd.orthogonal_direction(others.sum(0), others).any()  # nothing is left to do
    with pytest.raises(InputError, match="recovery_rate"):
        FedOSD(recovery_rate=0.0)


# ---- NoT


def test_not_negates_the_first_layer_only_and_fine_tunes_without_the_removed(trained):
    start = trained.final.clone()
    tuned = fedavg(
        trained.federation.model(0),
        trained.federation.cohort(trained.federation.remaining(REMOVED)),
        -start,
        ROUNDS // 4,
        SETTINGS,
        client_seed(5, 0, 0, negation._FINE_TUNING),
    )
    outcome = NoT().unlearn(trained, REMOVED, seed=5)  # the head is the first layer
    assert torch.equal(outcome.weights, tuned)
    assert torch.equal(trained.final, start)

    deep = Classifier(HiddenLayer(Identity(FEATURES), 5), CLASSES, seed=0)
    x = torch.randn(8, FEATURES, generator=torch.Generator().manual_seed(0))
    first, head = deep.tail[0], deep.head
    before = [p.detach().numpy().copy() for p in (first.weight, first.bias, head.weight, head.bias)]
    negate_first(deep, 1)
    hidden = np.maximum(-(x.numpy() @ before[0].T + before[1]), 0.0)  # units fire where they were silent
    np.testing.assert_allclose(deep(x).detach().numpy(), hidden @ before[2].T + before[3], atol=1e-5)
    with pytest.raises(InputError, match="2 layers"):
        negate_first(deep, 3)
    normed = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2, bias=False))
    scale, weight = normed[0].weight.clone(), normed[1].weight.clone()
    negate_first(normed, 1)
    assert torch.equal(normed[0].weight, scale)  # a normalisation is no layer
    assert torch.equal(normed[1].weight, -weight)


# ---- SIFU


def global_models(trained):
    """Global models and clients' models of every round, from the stored updates."""
    sizes = np.array([len(client.train) for client in trained.federation.clients], dtype=np.float64)
    p = sizes / sizes.sum()
    w = [trained.initial.numpy().astype(np.float64)]
    local = []
    for number in range(trained.rounds):
        updates = trained.observers["history"].updates[number]
        local.append([w[-1] + updates[i].numpy() for i in range(len(p))])
        w.append(np.sum([share * model for share, model in zip(p, local[-1], strict=True)], axis=0))
    return p, w, local


@pytest.mark.parametrize("growth", [1.0, 1.3])
def test_sifu_goes_back_to_the_round_that_the_published_bound_allows(trained, growth):
    p, w, local = global_models(trained)
    psi = np.zeros((ROUNDS + 1, len(p)))
    for t in range(ROUNDS):
        for c in range(len(p)):
            # what round t + 1 would have been without the client is this far from what it was
            others = [i for i in range(len(p)) if i != c]
            without = np.sum([p[i] / p[others].sum() * local[t][i] for i in others], axis=0)
            psi[t + 1, c] = growth * psi[t, c] + np.linalg.norm(w[t + 1] - without)
    worst = psi[:, list(REMOVED)].max(1)
    kept = set()
    for limit in (0.9 * worst[1], *(worst[1:-1] + worst[2:]) / 2, 2 * worst[-1]):
        sigma = limit * np.sqrt(2 * (np.log(1.25) - np.log(0.01))) / 10.0
        method = Sifu(sigma=float(sigma), growth=growth)
        assert method.budget == pytest.approx(limit)
        found, weights = method._rolled_back(trained, REMOVED)
        assert found == np.flatnonzero(worst <= limit).max()
        np.testing.assert_allclose(weights.numpy(), w[found], atol=1e-5)
        kept.add(found)
    assert kept == set(range(ROUNDS + 1))


def test_sifu_adds_its_noise_and_trains_the_rounds_again(trained):
    method = Sifu(sigma=0.1)
    found, weights = method._rolled_back(trained, REMOVED)
    assert 0 < found < ROUNDS
    generator = torch.Generator().manual_seed(client_seed(5, 0, 0, sifu._NOISE))
    noisy = weights + 0.1 * torch.randn(weights.shape, generator=generator)
    federation = trained.federation
    expected = fedavg(
        federation.model(0),
        federation.cohort(federation.remaining(REMOVED)),
        noisy,
        ROUNDS,
        SETTINGS,
        client_seed(5, 0, 0, sifu._TRAINING),
        start=found,
    )
    outcome = method.unlearn(trained, REMOVED, seed=5)
    assert torch.equal(outcome.weights, expected)
    assert outcome.effort.rounds == ROUNDS - found
    assert method.guarantee == "none"


def test_sifu_refuses_what_it_cannot_use(federation):
    bare = train_federation(federation, SETTINGS, 1, seed=0)
    with pytest.raises(InputError, match="UpdateHistory"):
        Sifu().unlearn(bare, REMOVED, seed=0)
    gaps = train_federation(federation, SETTINGS, 3, seed=0, observers={"history": UpdateHistory(2)})
    with pytest.raises(InputError, match="every round"):
        Sifu().unlearn(gaps, REMOVED, seed=0)
    with pytest.raises(InputError, match="delta"):
        Sifu(delta=1.0)
