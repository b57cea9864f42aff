"""Every method must do something: the tests fail if a method returns the model it was given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import REMOVED, ROUNDS, SETTINGS, observers

from stackfu.errors import ConvergenceError, InputError
from stackfu_integration.lab.data import trigger_for
from stackfu_integration.lab.federation import Client, LabelledTensors, LabFederation, train_federation
from stackfu_integration.lab.measures import agreement, backdoor_success, evaluate
from stackfu_integration.lab.measures.forgetting import _confidence
from stackfu_integration.lab.measures.performance import logits_on
from stackfu_integration.lab.models.classifier import read_weights, write_weights
from stackfu_integration.lab.unlearning import (
    ConvexHead,
    DistilledSets,
    FedEraser,
    FedRecovery,
    GradientAscent,
    HeadFineTuning,
    MoDe,
    ParticipationRetraining,
    QuickDrop,
    Retrain,
    Shards,
    participants,
)
from stackfu_integration.lab.unlearning.federaser import rescale
from stackfu_integration.lab.unlearning.quickdrop import gradient_distance

# A dozen rounds on a few hundred samples need a stronger ascent than the published one
ASCENT = QuickDrop(ascent_rate=10.0)
METHODS = [
    Retrain(),
    FedEraser(),
    GradientAscent(),
    MoDe(),
    ASCENT,
    ParticipationRetraining(),
    HeadFineTuning(),
    ConvexHead(),
    Shards(),
]


@pytest.fixture(scope="module")
def poisoned(federation, dataset):
    """Removed clients label marked copies of their samples with class 0; also returns marked test inputs."""
    mark = lambda x: torch.cat([x[:, :-1], torch.full((len(x), 1), 6.0)], 1)  # noqa: E731
    clients = list(federation.clients)
    for i in REMOVED:
        data = clients[i].train
        x, y = torch.cat([data.x, mark(data.x)]), torch.cat([data.y, torch.zeros_like(data.y)])
        clients[i] = Client(LabelledTensors(x, y), clients[i].test)
    infected = LabFederation(tuple(clients), federation.model, federation.device)
    tests = torch.cat([c.test.x[c.test.y != 0] for c in clients])
    return train_federation(infected, SETTINGS, 25, seed=0, observers=observers()), mark(tests)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_the_backdoor_of_removed_clients_is_weakened(poisoned, method):
    trained, marked = poisoned
    before = backdoor_success(trained.federation, trained.final, marked, 0)
    outcome = method.unlearn(trained, REMOVED, seed=1)
    after = backdoor_success(trained.federation, outcome.weights, marked, 0)
    assert before > 0.6
    assert after < before - 0.1
    assert outcome.effort.samples > 0
    assert outcome.effort.bytes_up > 0
    assert outcome.seconds >= outcome.effort.client_seconds > 0
    assert method.cooperation


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_confidence_in_the_removed_clients_labels_falls(poisoned, method):
    trained, _ = poisoned
    outcome = method.unlearn(trained, REMOVED, seed=1)

    def confidence(weights):
        data = [trained.federation.clients[i].train for i in REMOVED]
        parts = [_confidence(logits_on(trained.federation, weights, d.x), d.y) for d in data]
        return float(torch.cat(parts).mean())

    assert confidence(outcome.weights) < confidence(trained.final) - 0.02


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_the_model_stays_useful_to_those_who_remain(federation, trained, method):
    outcome = method.unlearn(trained, REMOVED, seed=1)
    after, untrained = evaluate(federation, outcome.weights), evaluate(federation, trained.initial)
    remaining = federation.remaining(REMOVED)
    gained = after.mean(after.accuracies, remaining) - untrained.mean(untrained.accuracies, remaining)
    assert gained > 0.2


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_one_seed_gives_one_result(trained, method):
    first, second = (method.unlearn(trained, REMOVED, seed=3) for _ in range(2))
    assert torch.equal(first.weights, second.weights)


@pytest.mark.parametrize("removed", [(), (9,), tuple(range(6))])
def test_bad_requests_are_refused(trained, removed):
    with pytest.raises(InputError, match="removed"):
        Retrain().unlearn(trained, removed, seed=0)


def test_retrain_never_sees_the_removed_clients(federation, trained):
    clients = list(federation.clients)
    for i in REMOVED:
        nonsense = LabelledTensors(torch.full_like(clients[i].train.x, 99.0), clients[i].train.y)
        clients[i] = Client(nonsense, clients[i].test)
    other = LabFederation(tuple(clients), federation.model, federation.device)
    same_start = train_federation(other, SETTINGS, 1, seed=0)
    object.__setattr__(same_start, "rounds", trained.rounds)
    a = Retrain().unlearn(trained, REMOVED, seed=1).weights
    b = Retrain().unlearn(same_start, REMOVED, seed=1).weights
    assert torch.equal(a, b)


# ---- FedEraser


def test_federaser_with_full_recalibration_is_retrain(trained):
    exact = (
        FedEraser(calibration=1.0, norm="none", trust_first=False).unlearn(trained, REMOVED, seed=1).weights
    )
    retrained = Retrain().unlearn(trained, REMOVED, seed=1).weights
    torch.testing.assert_close(exact, retrained, rtol=1e-4, atol=1e-5)


def test_federaser_moves_in_the_direction_of_retrain(poisoned):
    trained, _ = poisoned
    retrained = Retrain().unlearn(trained, REMOVED, seed=1).weights

    def alignment(weights):
        moved, wanted = weights - trained.initial, retrained - trained.initial
        return float(torch.nn.functional.cosine_similarity(moved, wanted, dim=0))

    for norm in ("layer", "global"):
        for average_first in (False, True):
            method = FedEraser(calibration=1.0, norm=norm, average_first=average_first)
            erased = method.unlearn(trained, REMOVED, seed=1).weights
            assert 1 - alignment(erased) < 0.5 * (1 - alignment(trained.final))


def test_federaser_reports_the_history_it_needed(trained):
    parameters = trained.final.numel()
    every = FedEraser().unlearn(trained, REMOVED, seed=1).effort
    third = FedEraser(interval=3).unlearn(trained, REMOVED, seed=1).effort
    assert every.stored_bytes == 4 * parameters * 6 * ROUNDS
    assert third.stored_bytes == every.stored_bytes // 3
    assert third.samples < every.samples / 2


def test_rescale_keeps_direction_and_takes_length():
    generator = torch.Generator().manual_seed(0)
    new, stored = torch.randn(10, generator=generator), torch.randn(10, generator=generator)
    parts = (slice(0, 4), slice(4, 10))
    scaled = rescale(new, stored, parts)
    for part in parts:
        torch.testing.assert_close(scaled[part].norm(), stored[part].norm())
        cosine = torch.nn.functional.cosine_similarity(scaled[part], new[part], dim=0)
        torch.testing.assert_close(cosine, torch.tensor(1.0))
    assert torch.equal(rescale(torch.zeros(10), stored, parts), torch.zeros(10))


def test_methods_say_what_they_need(federation):
    bare = train_federation(federation, SETTINGS, 1, seed=0)
    for method, need in ((FedEraser(), "UpdateHistory"), (QuickDrop(), "DistilledSets")):
        with pytest.raises(InputError, match=need):
            method.unlearn(bare, REMOVED, seed=0)


# ---- MoDe


def test_mode_without_degradation_and_guidance_changes_nothing(trained):
    weights = MoDe(rounds=0).unlearn(trained, REMOVED, seed=1).weights
    assert torch.equal(weights, trained.final)


def test_mode_degrades_by_momentum(trained):
    """Without local steps only the degradation is left: M = lambda^6 M + (1 - lambda^6) M_de."""
    method = MoDe(epochs=0.0)
    weights = method.unlearn(trained, REMOVED, seed=1).weights
    fresh = MoDe(epochs=0.0, momentum=0.0).unlearn(trained, REMOVED, seed=1).weights
    kept = method.momentum**method.degradation_rounds
    assert not torch.equal(fresh, trained.initial)
    torch.testing.assert_close(weights, kept * trained.final + (1 - kept) * fresh, rtol=1e-4, atol=1e-5)


def test_mode_guides_with_the_degraded_models_labels(poisoned):
    """Guidance alone (momentum 1) must weaken a backdoor that the removed clients' own labels would keep."""
    trained, marked = poisoned
    guided = MoDe(momentum=1.0).unlearn(trained, REMOVED, seed=1).weights
    before = backdoor_success(trained.federation, trained.final, marked, 0)
    assert backdoor_success(trained.federation, guided, marked, 0) < before - 0.1


# ---- QuickDrop


def test_distillation_brings_gradients_closer(federation, trained):
    """The synthetic sets must match real gradients better than the real samples that they started from."""
    distilled, model = trained.observers["distilled"], federation.model(0)
    matrix = [model.head.weight]
    closer = []
    for client, data in federation.cohort(range(6)).items():
        fresh = observers()["distilled"]
        fresh._begin(client, data)
        for label in data.y.unique():
            real = distilled._gradient(model, matrix, data.x[data.y == label], label, False)
            distances = []
            for samples in (fresh.samples(client), distilled.samples(client)):
                fake = distilled._gradient(model, matrix, samples.x[samples.y == label], label, False)
                distances.append(float(gradient_distance(fake, real)))
            closer.append(distances[1] - distances[0])
    assert np.mean(closer) < 0
    assert np.mean(np.array(closer) < 1e-9) > 0.6


def test_synthetic_sets_are_small_and_cover_the_classes(federation, trained):
    distilled = trained.observers["distilled"]
    for client, data in federation.cohort(range(6)).items():
        samples = distilled.samples(client)
        classes, counts = data.y.unique(return_counts=True)
        assert samples.y.unique().tolist() == classes.tolist()
        assert len(samples) == int(torch.ceil(counts * 0.05).sum())


def test_quickdrop_ascent_hurts_and_recovery_heals(federation, trained):
    hurt = QuickDrop(recovery_rounds=0, ascent_rate=20.0).unlearn(trained, REMOVED, seed=1).weights
    healed = QuickDrop(recovery_rounds=5, ascent_rate=20.0).unlearn(trained, REMOVED, seed=1).weights
    remaining = federation.remaining(REMOVED)
    losses = [evaluate(federation, w) for w in (trained.final, hurt, healed)]
    start, worst, better = (p.mean(p.losses, remaining) for p in losses)
    assert worst > start
    assert better < worst


# ---- participation


def test_participation_one_is_retrain(trained):
    ones = dict.fromkeys(trained.federation.remaining(REMOVED), 1.0)
    full = ParticipationRetraining(shares=ones).unlearn(trained, REMOVED, seed=1)
    assert torch.equal(full.weights, Retrain().unlearn(trained, REMOVED, seed=1).weights)


def test_shares_decide_how_much_data_is_used(trained):
    remaining = trained.federation.remaining(REMOVED)
    shares = dict(zip(remaining, (0.0, 0.5, 1.0, 0.25), strict=True))
    cohort = participants(trained, REMOVED, shares, seed=1)
    sizes = {i: len(trained.federation.clients[i].train) for i in remaining}
    assert {i: len(data) for i, data in cohort.items()} == {
        i: round(x * sizes[i]) for i, x in shares.items() if x > 0
    }
    outcome = HeadFineTuning(shares=shares).unlearn(trained, REMOVED, seed=1)
    epochs = SETTINGS.epochs * trained.rounds
    assert outcome.effort.samples == sum(round(x * sizes[i]) for i, x in shares.items()) * epochs
    few = participants(trained, REMOVED, shares, seed=1, min_share=0.3)
    assert set(few) == {remaining[1], remaining[2]}
    with pytest.raises(InputError, match="nobody takes part"):
        participants(trained, REMOVED, dict.fromkeys(remaining, 0.0), seed=1)
    with pytest.raises(InputError, match="exactly the remaining"):
        participants(trained, REMOVED, {0: 1.0}, seed=1)


def test_who_takes_part_decides_whom_the_model_serves(federation, trained):
    remaining = federation.remaining(REMOVED)
    losses = {}
    for favourite in remaining:
        shares = {i: 1.0 if i == favourite else 0.0 for i in remaining}
        weights = ParticipationRetraining(shares=shares).unlearn(trained, REMOVED, seed=1).weights
        losses[favourite] = evaluate(federation, weights).losses
    for favourite in remaining:
        others = np.mean([losses[i][favourite] for i in remaining if i != favourite])
        assert losses[favourite][favourite] < others


def test_agreement_with_retrain(federation, trained):
    retrained = Retrain().unlearn(trained, REMOVED, seed=1).weights
    reference, before, after = (evaluate(federation, w) for w in (retrained, trained.initial, trained.final))
    assert agreement(reference, reference) == 1.0
    assert agreement(before, reference) < agreement(after, reference)


def test_trigger_target(dataset):
    assert trigger_for(dataset, 2).target == 2


def test_a_method_that_diverges_says_so(trained):
    with pytest.raises(ConvergenceError, match="mode diverged"):
        MoDe(momentum=1e30, rounds=3).unlearn(trained, (0,), seed=1)


def test_mode_takes_plain_steps_whatever_the_federation_trained_with(trained):
    with_momentum = replace(trained, settings=replace(trained.settings, momentum=0.9, weight_decay=0.1))
    a, b = (MoDe(rounds=2).unlearn(t, (0,), seed=1).weights for t in (trained, with_momentum))
    assert torch.equal(a, b)


# ---- FedRecovery and projected ascent


def test_residuals_of_all_rounds_leave_the_stored_way_of_the_others(trained, federation):
    """Without weights and noise FedRecovery is the sum of the remaining clients' stored average updates."""
    outcome = FedRecovery(noise=0.0, weighted=False).unlearn(trained, REMOVED, seed=1)
    sizes = {i: len(federation.clients[i].train) for i in federation.remaining(REMOVED)}
    total = sum(sizes.values())
    expected = trained.initial.double()
    for kept in trained.observers["history"].updates.values():
        expected = expected + sum(kept[i].double() * n / total for i, n in sizes.items())
    torch.testing.assert_close(outcome.weights.double(), expected, rtol=1e-4, atol=1e-5)
    assert outcome.effort.samples == 0
    assert outcome.effort.stored_bytes == trained.observers["history"].nbytes


def test_fedrecovery_takes_a_part_of_the_residuals_and_adds_its_noise(trained):
    plain, same = (FedRecovery(noise=0.0).unlearn(trained, REMOVED, seed=s).weights for s in (1, 2))
    assert torch.equal(plain, same)
    whole = FedRecovery(noise=0.0, weighted=False).unlearn(trained, REMOVED, seed=1).weights
    assert 0 < (plain - trained.final).norm() < (whole - trained.final).norm()
    noisy = FedRecovery(noise=0.5).unlearn(trained, REMOVED, seed=1).weights
    assert (noisy - plain).std() == pytest.approx(0.5, rel=0.3)
    with pytest.raises(InputError, match="noise"):
        FedRecovery(noise=-1.0)


def test_ascent_stays_in_its_ball_and_raises_the_loss(trained, federation):
    method = GradientAscent(rate=0.5, stop_below=-1.0)
    model, data = federation.model(0), federation.clients[0].train
    reference, radius = trained.final + 0.1, 1.0
    before = float(torch.nn.functional.cross_entropy(logits_on(federation, trained.final, data.x), data.y))
    write_weights(model, trained.final)
    processed = method._ascend(model, data, reference, radius, 0, 16)
    assert processed == 5 * len(data)
    moved = read_weights(model)
    assert (moved - reference).norm() <= radius * (1 + 1e-5)
    assert float(torch.nn.functional.cross_entropy(logits_on(federation, moved, data.x), data.y)) > before
    write_weights(model, trained.final)
    assert GradientAscent(stop_below=1.0)._ascend(model, data, reference, radius, 0, 16) == 16  # at once


@pytest.mark.parametrize("method", [FedRecovery(), GradientAscent()], ids=lambda m: m.name)
def test_methods_that_replay_need_what_was_stored(federation, method):
    bare = train_federation(federation, SETTINGS, 1, seed=0)
    with pytest.raises(InputError, match="UpdateHistory"):
        method.unlearn(bare, REMOVED, seed=0)


# ---- shards


def test_one_shard_is_retraining_and_unaffected_shards_cost_nothing(trained):
    from stackfu_integration.lab.federation import fedavg
    from stackfu_integration.lab.federation.local import client_seed
    from stackfu_integration.lab.unlearning.shards import _SHARD

    federation = trained.federation
    whole = Shards(count=1).unlearn(trained, REMOVED, seed=1)
    cohort = federation.cohort(federation.remaining(REMOVED))
    stream = client_seed(1, 0, 0, _SHARD)
    expected = fedavg(federation.model(0), cohort, trained.initial, ROUNDS, SETTINGS, stream)
    torch.testing.assert_close(whole.weights, expected)
    assert Shards().guarantee == "exact"
    three = Shards(count=3).unlearn(trained, REMOVED, seed=1)
    affected = [3, 4]  # clients 0 and 1 leave shards {0, 3} and {1, 4}; nobody leaves {2, 5}
    assert three.effort.samples == sum(2 * ROUNDS * len(federation.clients[i].train) for i in affected)
    with pytest.raises(InputError, match="count"):
        Shards(count=0).unlearn(trained, REMOVED, seed=1)


# ---- what QuickDrop keeps


def test_synthetic_sets_are_compared_with_the_samples_they_began_as(trained):
    distilled = trained.observers["distilled"]
    for client, held in enumerate(trained.federation.clients):
        close = distilled.closeness(client, held.train)
        origin = held.train.take(distilled._origins(client, held.train))
        assert torch.equal(origin.y, distilled.sets[client]["y"])
        apart = (distilled.sets[client]["x"] - origin.x).norm(dim=1).median()
        nearest = min(
            (a - b).norm() for a in held.train.x for b in held.train.x if a is not b and not a.equal(b)
        )
        assert 0 < close["moved"] <= float(apart / nearest) * (1 + 1e-5)
        assert 0 <= close["recognised"] <= 1
    untouched = DistilledSets(seed=0, scale=0.05)
    untouched._begin(0, trained.federation.clients[0].train)
    assert untouched.closeness(0, trained.federation.clients[0].train) == {"moved": 0.0, "recognised": 1.0}
