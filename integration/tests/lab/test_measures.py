from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from sklearn.metrics import log_loss, roc_auc_score
from tiny import REMOVED

from stackfu.errors import InputError
from stackfu_integration.lab.federation import (
    Client,
    LabelledTensors,
    LabFederation,
    LocalTraining,
    train_federation,
)
from stackfu_integration.lab.intervals import rate_interval
from stackfu_integration.lab.measures import (
    LikelihoodRatioAttack,
    backdoor_success,
    detection,
    evaluate,
    membership_auc,
    prediction_distance,
    rounds_to_relearn,
    side_effects,
)
from stackfu_integration.lab.measures.membership import log_odds
from stackfu_integration.lab.measures.performance import logits_on
from stackfu_integration.lab.models import Classifier, Identity
from stackfu_integration.lab.unlearning import Retrain
from stackfu_integration.ranks import separation


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


# ---- membership by reference models


def test_log_odds_are_those_of_the_probabilities():
    generator = torch.Generator().manual_seed(0)
    scores, y = torch.randn(20, 5, generator=generator), torch.randint(0, 5, (20,), generator=generator)
    p = scores.double().softmax(1).gather(1, y[:, None]).flatten()
    torch.testing.assert_close(log_odds(scores, y), (p / (1 - p)).log())
    assert torch.isfinite(log_odds(torch.tensor([[500.0, -500.0]]), torch.tensor([0]))).all()


def test_detection_keeps_to_its_false_positives():
    generator = torch.Generator().manual_seed(0)
    strangers = torch.randn(1000, generator=generator)
    found = detection(torch.randn(1000, generator=generator) + 3, strangers)
    assert found.accused <= 10
    assert 0.5 < found.rate < 1
    assert found.sees
    blind = detection(torch.randn(1000, generator=generator), strangers)
    assert not blind.sees
    few = detection(torch.ones(5), torch.arange(50.0) / 100)
    assert (few.found, few.accused) == (5, 0)  # too few strangers for 1%: above all of them
    with pytest.raises(InputError, match="members"):
        detection(torch.ones(0), torch.ones(3))


def test_a_rate_interval_covers():
    for hits, trials in ((0, 20), (3, 20), (20, 20)):
        low, high = rate_interval(hits, trials)
        assert low <= hits / trials <= high
        if 0 < hits < trials:  # the definition: tails of 2.5%
            assert binom.sf(hits - 1, trials, low) == pytest.approx(0.025)
            assert binom.cdf(hits, trials, high) == pytest.approx(0.025)


@pytest.fixture(scope="module")
def by_heart(federation):
    """Removed clients with few samples, random labels and many features of noise: there is nothing but them to learn."""
    generator = torch.Generator().manual_seed(0)

    def noisy(data: LabelledTensors, wrong: bool) -> LabelledTensors:
        x = torch.cat([data.x, 2 * torch.randn(len(data), 40, generator=generator)], 1)
        return LabelledTensors(x, torch.randint(0, 4, (len(data),), generator=generator) if wrong else data.y)

    clients = [
        Client(noisy(c.train.share(0.4, 0), i in REMOVED), noisy(c.test, i in REMOVED))
        for i, c in enumerate(federation.clients)
    ]
    wide = LabFederation(tuple(clients), lambda seed: Classifier(Identity(46), 4, seed))
    return train_federation(wide, LocalTraining(epochs=5, batch=8, learning_rate=0.1), 10, seed=0)


def test_the_attack_sees_what_is_known_by_heart_and_not_what_was_never_seen(by_heart):
    attack = LikelihoodRatioAttack.prepare(by_heart, REMOVED, 4, seed=9)
    before, clients = attack.run(by_heart.federation, by_heart.final)
    assert before.auc > 0.75
    assert set(clients) == set(REMOVED)
    retrained = Retrain().unlearn(by_heart, REMOVED, seed=1).weights
    after, _ = attack.run(by_heart.federation, retrained)
    assert abs(after.auc - 0.5) < 0.15
    assert LikelihoodRatioAttack(**attack.state()).run(by_heart.federation, retrained)[0] == after
    # a plain confidence attack on the same model sees less
    plain = membership_auc(
        by_heart.federation, by_heart.final, evaluate(by_heart.federation, by_heart.final), REMOVED
    )
    assert before.auc > plain
    with pytest.raises(InputError, match="references"):
        LikelihoodRatioAttack.prepare(by_heart, REMOVED, 5, seed=0)


def test_the_score_is_a_likelihood_ratio():
    generator = torch.Generator().manual_seed(0)
    held = torch.tensor([[True, False], [False, True], [True, True], [False, False]])
    phi = torch.randn(4, 2, generator=generator, dtype=torch.float64) + 2.0 * held
    attack = LikelihoodRatioAttack.of({0: phi}, {0: held})
    for j in range(2):
        inside, outside = phi[held[:, j], j], phi[~held[:, j], j]
        assert attack.inside[0][j] == pytest.approx(inside.mean())
        assert attack.outside[0][j] == pytest.approx(outside.mean())
    rest = [phi[held[:, j] == side, j] for j in range(2) for side in (True, False)]
    pooled = sum(float(((r - r.mean()) ** 2).sum()) for r in rest) / (8 - 4)
    assert attack.variance == pytest.approx(pooled)
    value, scale = 0.7, pooled**0.5
    expected = norm.logpdf(value, attack.inside[0][0], scale) - norm.logpdf(
        value, attack.outside[0][0], scale
    )
    inside, outside = float(attack.inside[0][0]), float(attack.outside[0][0])
    assert (inside - outside) * (value - (inside + outside) / 2) / attack.variance == pytest.approx(expected)


# ---- distance and relearning


def test_distance_to_retrain_is_total_variation(federation, trained):
    one, other = (evaluate(federation, w) for w in (trained.final, trained.initial))
    assert prediction_distance(one, one) == 0
    p, q = (torch.cat(list(m.scores)).double().softmax(1) for m in (one, other))
    assert prediction_distance(one, other) == pytest.approx(float((p - q).clamp_min(0).sum(1).mean()))


def test_what_was_not_forgotten_comes_back_at_once(trained):
    def success(weights):
        return -float((weights - trained.final).norm())  # as far as it is from the model before unlearning

    assert rounds_to_relearn(trained, trained.final, REMOVED, 1, 3, success) == 0
    data = trained.federation.cohort(REMOVED)

    def fit(weights):
        hits = [
            (logits_on(trained.federation, weights, d.x).argmax(1) == d.y).double() for d in data.values()
        ]
        return float(torch.cat(hits).mean())

    fresh = rounds_to_relearn(trained, trained.initial, REMOVED, 1, 10, fit)
    assert fresh is not None
    assert fresh > 0
    assert rounds_to_relearn(trained, trained.initial, REMOVED, 1, fresh - 1, fit) is None
    with pytest.raises(InputError, match="limit"):
        rounds_to_relearn(trained, trained.final, REMOVED, 1, -1, fit)
