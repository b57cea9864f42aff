from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import ROUNDS, SETTINGS, observers

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.lab.federation import (
    LabelledTensors,
    LocalTraining,
    aggregate,
    fedavg,
    local_train,
    train_federation,
)
from stackfu_integration.lab.measures import evaluate
from stackfu_integration.lab.models import read_weights, write_weights


def test_training_learns(federation, trained):
    before, after = evaluate(federation, trained.initial), evaluate(federation, trained.final)
    everyone = range(6)
    assert after.mean(after.accuracies, everyone) > before.mean(before.accuracies, everyone) + 0.3


def test_two_runs_with_one_seed_are_bit_identical(federation, trained):
    again = train_federation(federation, SETTINGS, ROUNDS, seed=0, observers=observers())
    assert torch.equal(again.final, trained.final)
    for name in trained.observers:
        assert_same(again.observers[name].state(), trained.observers[name].state())
    other = train_federation(federation, SETTINGS, ROUNDS, seed=1)
    assert not torch.equal(other.final, trained.final)


def assert_same(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b


class KilledError(Exception):
    pass


def test_resuming_gives_the_same_bits_as_not_having_stopped(federation, trained, tmp_path):
    checkpoint = tmp_path / "checkpoint.pt"
    options = {"seed": 0, "checkpoint": checkpoint, "identity": "run", "every": 3}

    def die(round_number):
        if round_number == 7:
            raise KilledError

    with pytest.raises(KilledError):
        train_federation(federation, SETTINGS, ROUNDS, observers=observers(), after_round=die, **options)
    rounds = []
    resumed = train_federation(
        federation, SETTINGS, ROUNDS, observers=observers(), after_round=rounds.append, **options
    )
    assert rounds == list(range(6, ROUNDS))
    assert torch.equal(resumed.final, trained.final)
    assert_same(resumed.observers["distilled"].state(), trained.observers["distilled"].state())
    assert_same(resumed.observers["history"].state(), trained.observers["history"].state())
    with pytest.raises(FileFormatError, match="another run"):
        train_federation(federation, SETTINGS, ROUNDS, **{**options, "identity": "other"})
    checkpoint.write_bytes(b"torn")
    with pytest.raises(FileFormatError, match="not a checkpoint"):
        train_federation(federation, SETTINGS, ROUNDS, **options)


def test_aggregate_does_not_depend_on_arrival_order():
    generator = torch.Generator().manual_seed(0)
    weights = {i: torch.randn(1000, generator=generator) * 10.0**i for i in range(6)}
    sizes = {i: 7 * i + 1 for i in range(6)}
    backwards = dict(reversed(list(weights.items())))
    assert torch.equal(aggregate(weights, sizes), aggregate(backwards, sizes))
    expected = np.average(
        [w.double().numpy() for w in weights.values()], axis=0, weights=list(sizes.values())
    )
    np.testing.assert_allclose(aggregate(weights, sizes).numpy(), expected, rtol=1e-6)
    with pytest.raises(InputError):
        aggregate({}, {})


def test_a_client_trains_alike_whoever_else_takes_part(federation):
    model, data = federation.model(0), federation.cohort(range(6))
    start = read_weights(model)
    alone = fedavg(model, {3: data[3]}, start, 1, SETTINGS, seed=5)
    seen = {}

    class Watch:
        def client_trained(self, round_number, client, data, model, before, after):
            seen[client] = after

    fedavg(model, data, start, 1, SETTINGS, seed=5, observers=(Watch(),))
    assert torch.equal(alone, seen[3])


def test_one_full_batch_step_is_gradient_descent(federation):
    data = federation.clients[2].train
    model = federation.model(0)
    start = read_weights(model)
    loss = torch.nn.functional.cross_entropy(model(data.x), data.y)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    local_train(model, data, 0, LocalTraining(epochs=1, batch=len(data), learning_rate=0.3))
    torch.testing.assert_close(read_weights(model), start - 0.3 * gradient)
    write_weights(model, start)
    local_train(model, data, 0, LocalTraining(epochs=1, batch=len(data), learning_rate=0.3), ascend=True)
    torch.testing.assert_close(read_weights(model), start + 0.3 * gradient)


@pytest.mark.parametrize("ascend", [False, True])
@pytest.mark.parametrize("bare", [False, True])
def test_closed_form_steps_are_those_of_automatic_differentiation(federation, ascend, bare):
    data = federation.clients[3].train
    settings = LocalTraining(epochs=2.5, batch=7, learning_rate=0.1)
    fast, slow = federation.model(0), federation.model(0)
    if bare:
        fast = fast.head
    assert local_train(fast, data, 4, settings, ascend=ascend) > len(data)
    # a tail that computes nothing, but is not recognised as that, takes the general way
    slow.tail = torch.nn.Sequential(torch.nn.Identity())
    local_train(slow, data, 4, settings, ascend=ascend)
    torch.testing.assert_close(read_weights(fast), read_weights(slow), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("epochs", "samples"), [(0.5, 50), (1, 100), (2.25, 225)])
def test_epochs_may_be_fractions(epochs, samples):
    data = LabelledTensors(torch.randn(100, 6), torch.zeros(100, dtype=torch.long))
    model = torch.nn.Linear(6, 2)
    assert local_train(model, data, 0, replace(SETTINGS, epochs=epochs)) == samples


def test_a_share_is_a_uniform_sample_of_whole_samples():
    data = LabelledTensors(torch.arange(200.0)[:, None], torch.zeros(200, dtype=torch.long))
    drawn = torch.cat([data.share(0.25, seed).x.flatten() for seed in range(200)])
    counts = torch.bincount(drawn.long(), minlength=200)
    assert len(drawn) == 200 * 50
    assert counts.min() > 20
    assert counts.max() < 85
    assert torch.equal(data.share(0.25, 1).x, data.share(0.25, 1).x)
    with pytest.raises(InputError, match="share"):
        data.share(1.5, 0)


def test_empty_cohort_is_refused(federation):
    model = federation.model(0)
    with pytest.raises(InputError, match="cohort"):
        fedavg(model, {}, read_weights(model), 1, SETTINGS, seed=0)
