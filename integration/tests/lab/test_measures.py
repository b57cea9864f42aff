from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score
from tiny import REMOVED

from stackfu_integration.lab.federation import (
    Client,
    LabelledTensors,
    LabFederation,
    LocalTraining,
    train_federation,
)
from stackfu_integration.lab.measures import backdoor_success, evaluate, membership_auc, side_effects
from stackfu_integration.lab.measures.forgetting import separation
from stackfu_integration.lab.measures.performance import logits_on
from stackfu_integration.lab.unlearning import Retrain


def test_performance_is_what_scikit_learn_computes(federation, trained):
    performance = evaluate(federation, trained.final)
    for i, client in enumerate(federation.clients):
        scores = logits_on(federation, trained.final, client.test.x).double()
        expected = log_loss(client.test.y, scores.softmax(1), labels=range(4))
        assert performance.losses[i] == pytest.approx(expected, rel=1e-6)
        assert performance.accuracies[i] == pytest.approx((scores.argmax(1) == client.test.y).double().mean())


def test_side_effects_follow_their_definitions(federation, trained):
    retrained = evaluate(federation, Retrain().unlearn(trained, REMOVED, seed=1).weights)
    original, other = evaluate(federation, trained.final), evaluate(federation, trained.initial)
    n = federation.sizes
    effects = side_effects(other, original, retrained, REMOVED)
    alpha = n[2:] / n[2:].sum()
    assert effects.v_loss == pytest.approx(alpha @ (other.losses - retrained.losses)[2:])
    assert effects.s_loss == pytest.approx((n / n.sum()) @ (other.losses - original.losses))
    np.testing.assert_allclose(effects.q_loss, (other.losses - original.losses)[2:])
    assert effects.v_accuracy == pytest.approx(alpha @ other.accuracies[2:])
    assert effects.as_dict()["q_accuracy_worst"] == (other.accuracies - original.accuracies)[2:].min()
    assert side_effects(retrained, original, retrained, REMOVED).v_loss == 0
    assert side_effects(original, original, retrained, REMOVED).s_loss == 0


def test_separation_is_the_area_under_the_roc_curve():
    generator = torch.Generator().manual_seed(0)
    members = torch.randint(0, 8, (50,), generator=generator).double()
    strangers = torch.randint(0, 6, (70,), generator=generator).double()
    truth = np.r_[np.ones(50), np.zeros(70)]
    expected = roc_auc_score(truth, torch.cat([members, strangers]))
    assert separation(members, strangers) == pytest.approx(expected)


def test_membership_attack_sees_memorised_data_and_retraining_hides_it(federation):
    """Removed clients with random labels can only be fitted by heart."""
    generator = torch.Generator().manual_seed(0)
    clients = list(federation.clients)
    for i in REMOVED:
        train, test = clients[i].train, clients[i].test
        few = LabelledTensors(train.x[:12], torch.randint(0, 4, (12,), generator=generator))
        fresh = LabelledTensors(test.x, torch.randint(0, 4, (len(test),), generator=generator))
        clients[i] = Client(few, fresh)
    noisy = LabFederation(tuple(clients[:2]) * 3, federation.model, federation.device)
    fitted = train_federation(noisy, LocalTraining(epochs=20, batch=8, learning_rate=0.5), 30, seed=0)
    retrained = Retrain().unlearn(
        train_federation(LabFederation(tuple(clients), federation.model), LocalTraining(), 5, seed=0),
        REMOVED,
        1,
    )

    def auc(weights):
        return membership_auc(noisy, weights, evaluate(noisy, weights), REMOVED)

    assert auc(fitted.final) > 0.7
    assert auc(retrained.weights) < auc(fitted.final) - 0.1


def test_backdoor_success_counts_hits(federation, trained):
    x = federation.clients[3].test.x
    predicted = logits_on(federation, trained.final, x).argmax(1)
    for target in range(4):
        hits = float((predicted == target).double().mean())
        assert backdoor_success(federation, trained.final, x, target) == pytest.approx(hits)
