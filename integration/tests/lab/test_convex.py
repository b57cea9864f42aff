"""Convex heads: the optimum is the optimum, and the certificate never promises too much."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tiny import REMOVED, SETTINGS
from torch.nn import functional

from stackfu.errors import ConvergenceError, InputError
from stackfu_integration.lab.federation import (
    Client,
    Effort,
    LabelledTensors,
    LabFederation,
    train_federation,
)
from stackfu_integration.lab.federation.convex import (
    certify,
    largest_norm,
    minimise_softmax,
    softmax_hessian,
    softmax_sums,
)
from stackfu_integration.lab.measures.performance import logits_on
from stackfu_integration.lab.models import Classifier, HiddenLayer, Identity
from stackfu_integration.lab.models.classifier import head_matrix
from stackfu_integration.lab.unlearning import ConvexHead, ParticipationRetraining, Retrain, choose_l2


def samples(seed: int, count: int = 40, features: int = 3, classes: int = 4) -> LabelledTensors:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, features, generator=generator)
    return LabelledTensors(x, torch.randint(0, classes, (count,), generator=generator))


def objective(head: torch.Tensor, data: LabelledTensors, l2: float) -> torch.Tensor:
    scores = data.x.double() @ head[:, :-1].t() + head[:, -1]
    return functional.cross_entropy(scores, data.y) + 0.5 * l2 * head.square().sum()


def reference(data: LabelledTensors, classes: int, l2: float) -> torch.Tensor:
    """The optimum by SciPy with automatic derivatives, on the pooled data."""
    shape = (classes, data.x.shape[1] + 1)

    def slope(flat):
        head = torch.from_numpy(flat.copy()).view(shape).requires_grad_()
        value = objective(head, data, l2)
        (gradient,) = torch.autograd.grad(value, head)
        return value.item(), gradient.reshape(-1).numpy()

    found = minimize(
        slope, np.zeros(math.prod(shape)), jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 2000}
    )
    return torch.from_numpy(found.x).view(shape)


def pooled(cohort: dict[int, LabelledTensors]) -> LabelledTensors:
    return LabelledTensors(
        torch.cat([d.x for d in cohort.values()]), torch.cat([d.y for d in cohort.values()])
    )


# ---- the federated optimiser


def test_clients_send_the_derivatives_of_their_losses():
    data, head = samples(0), torch.randn(4, 4, dtype=torch.float64).requires_grad_()
    scores = data.x.double() @ head[:, :-1].t() + head[:, -1]
    loss = functional.cross_entropy(scores, data.y, reduction="sum")
    sums = softmax_sums(data, head.detach())
    assert sums.loss == pytest.approx(loss.item())
    torch.testing.assert_close(sums.gradient, torch.autograd.grad(loss, head)[0])

    def total(flat):
        w = flat.view(4, 4)
        return functional.cross_entropy(data.x.double() @ w[:, :-1].t() + w[:, -1], data.y, reduction="sum")

    exact = torch.autograd.functional.hessian(total, head.detach().reshape(-1))
    torch.testing.assert_close(softmax_hessian(data, head.detach()), exact)
    # with one constant feature the class covariance is the Hessian of the biases
    torch.testing.assert_close(sums.covariance, exact.view(4, 4, 4, 4)[:, 3, :, 3])


@pytest.mark.parametrize("curvature", ["kronecker", "hessian"])
@pytest.mark.parametrize("l2", [1e-1, 1e-3])
def test_the_optimum_is_that_of_the_pooled_data(curvature, l2):
    cohort = {7: samples(1), 2: samples(2, count=5), 4: samples(3, count=90)}
    found = minimise_softmax(cohort, 4, l2=l2, tolerance=1e-7, curvature=curvature)
    expected = reference(pooled(cohort), 4, l2)
    torch.testing.assert_close(found.head.double(), expected, rtol=1e-4, atol=1e-4)
    assert found.objective == pytest.approx(objective(expected, pooled(cohort), l2).item(), abs=1e-10)
    together = minimise_softmax({0: pooled(cohort)}, 4, l2=l2, tolerance=1e-7, curvature=curvature)
    torch.testing.assert_close(found.head, together.head, rtol=1e-4, atol=1e-5)


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.floats(1e-4, 1.0),
    st.floats(0.0, 20.0),
    st.sampled_from([2, 3, 5]),
)
def test_the_certificate_holds_at_any_head(seed, l2, far, classes):
    """However a head was found, the optimum is within its certified distance, and sure predictions agree."""
    data = samples(seed, count=30, classes=classes)
    best = minimise_softmax({0: data}, classes, l2=l2, tolerance=1e-7, curvature="hessian")
    generator = torch.Generator().manual_seed(seed)
    head = (best.head + far * torch.randn(best.head.shape, generator=generator)).float()
    certificate = certify({0: data}, head, l2=l2)
    slack = best.certificate.distance
    assert float((head - best.head).double().norm()) <= certificate.distance + slack
    x = samples(seed + 1, count=50).x * 3
    mine, optimal = (x @ w[:, :-1].t() + w[:, -1] for w in (head, best.head))
    reach = (1 + x.square().sum(1)).sqrt()
    assert bool(((mine - optimal).abs().max(1).values <= (certificate.distance + slack) * reach + 1e-4).all())
    sure = certificate.sure(mine, x)
    assert torch.equal(mine.argmax(1)[sure], optimal.argmax(1)[sure])


def test_a_start_changes_the_way_and_not_the_end():
    cohort = {0: samples(1), 1: samples(2)}
    cold = minimise_softmax(cohort, 4, l2=1e-2, tolerance=1e-7)
    far = minimise_softmax(cohort, 4, l2=1e-2, tolerance=1e-7, start=torch.full((4, 4), 30.0) * torch.eye(4))
    torch.testing.assert_close(cold.head, far.head, rtol=1e-4, atol=1e-5)
    near = minimise_softmax(cohort, 4, l2=1e-2, tolerance=1e-6, start=cold.head)
    assert near.passes < cold.passes


def test_every_pass_is_counted():
    cohort = {0: samples(1, count=10), 1: samples(2, count=30)}
    effort = Effort()
    found = minimise_softmax(cohort, 4, l2=1e-2, effort=effort)
    assert effort.samples == 40 * found.passes
    assert effort.rounds == found.passes
    second_moments = 2 * 4 * 4
    assert effort.bytes_up == 4 * (2 * found.passes * (16 + 16 + 1) + second_moments)


def test_separable_data_have_an_optimum_too():
    x = torch.cat([torch.full((20, 2), -5.0), torch.full((20, 2), 5.0)])
    data = LabelledTensors(x, torch.arange(2).repeat_interleave(20))
    for curvature in ("kronecker", "hessian"):
        found = minimise_softmax({0: data}, 2, l2=1e-6, tolerance=1e-9, curvature=curvature)
        assert found.certificate.distance < 1e-2


def test_what_cannot_be_optimised_is_refused():
    data = samples(0)
    bad = LabelledTensors(data.x.clone().fill_(float("nan")), data.y)
    for cohort, options, named in (
        ({}, {}, "cohort"),
        ({0: data, 5: bad}, {}, "cohort"),
        ({0: data}, {"l2": 0.0}, "l2"),
        ({0: data}, {"tolerance": -1.0}, "tolerance"),
        ({0: data}, {"start": torch.zeros(3, 4)}, "start"),
    ):
        with pytest.raises(InputError, match=named):
            minimise_softmax(cohort, 4, **{"l2": 1e-2, **options})
    with pytest.raises(InputError, match=r"0\.\.2"):
        minimise_softmax({0: data}, 3, l2=1e-2)
    with pytest.raises(ConvergenceError, match="after 2 passes"):
        minimise_softmax({0: data}, 4, l2=1e-2, tolerance=1e-12, max_passes=2)
    with pytest.raises(ConvergenceError):
        minimise_softmax({0: data}, 4, l2=1e-2, tolerance=1e-18)


# ---- as an unlearning method


def without(federation: LabFederation) -> LabFederation:
    """The same federation, with nonsense in place of the removed clients' data."""
    clients = list(federation.clients)
    for i in REMOVED:
        nonsense = LabelledTensors(torch.full_like(clients[i].train.x, 9.0), clients[i].train.y)
        clients[i] = Client(nonsense, clients[i].test)
    return LabFederation(tuple(clients), federation.model, federation.device)


def test_a_cold_start_never_meets_the_removed_data(federation, trained):
    other = train_federation(without(federation), SETTINGS, 2, seed=0)
    assert not torch.equal(other.final, trained.final)
    cold = ConvexHead(passes=4)
    assert cold.guarantee == Retrain().guarantee == ParticipationRetraining().guarantee == "exact"
    a, b = (cold.unlearn(t, REMOVED, seed=1).weights for t in (trained, other))
    assert torch.equal(a, b)


@pytest.mark.parametrize("curvature", ["kronecker", "hessian"])
def test_a_warm_start_ends_within_its_certificate(federation, trained, curvature):
    method = ConvexHead(l2=1e-2, score_gap=1e-2, warm=True, curvature=curvature)
    warm = method.unlearn(trained, REMOVED, seed=1)
    exact = replace(method, warm=False, score_gap=1e-4).unlearn(trained, REMOVED, seed=1)
    assert method.guarantee == "certified"
    assert float((warm.weights - exact.weights).norm()) <= (
        warm.certificate.distance + exact.certificate.distance
    )
    assert warm.certificate.score_gap <= method.score_gap
    x = torch.cat([client.train.x for i, client in enumerate(federation.clients) if i not in REMOVED])
    gap = (logits_on(federation, warm.weights, x) - logits_on(federation, exact.weights, x)).abs().max()
    assert float(gap) <= method.score_gap + exact.certificate.score_gap + 1e-5


def test_shares_choose_the_data(federation, trained):
    remaining = federation.remaining(REMOVED)
    method = ConvexHead(shares=dict.fromkeys(remaining, 0.0) | {remaining[0]: 1.0}, l2=1e-2)
    data = federation.clients[remaining[0]].train
    whole = sum(len(federation.clients[i].train) for i in remaining)
    alone = minimise_softmax({0: data}, 4, l2=1e-2 * whole / len(data), tolerance=1e-6)
    outcome = method.unlearn(trained, REMOVED, seed=1)
    found = head_matrix(outcome.weights, federation.model(0))
    assert float((found - alone.head).norm()) <= outcome.certificate.distance + alone.certificate.distance


@pytest.fixture(scope="module")
def deep(federation):
    """The same clients with a hidden layer that they train."""
    backbone = HiddenLayer(Identity(6), 16)
    layered = LabFederation(federation.clients, lambda seed: Classifier(backbone, 4, seed))
    return train_federation(layered, SETTINGS, 4, seed=0)


def test_layers_that_saw_the_data_are_reset(deep):
    tail = slice(0, 16 * 7)
    assert not torch.equal(deep.final[tail], deep.initial[tail])
    outcome = ConvexHead(l2=1e-2, warm=True).unlearn(deep, REMOVED, seed=1)
    assert torch.equal(outcome.weights[tail], deep.initial[tail])
    other = train_federation(without(deep.federation), SETTINGS, 1, seed=0)
    rounds = ConvexHead(l2=1e-2, rounds=2)
    a, b = (rounds.unlearn(replace(t, rounds=4), REMOVED, seed=1) for t in (deep, other))
    assert torch.equal(a.weights, b.weights)
    assert not torch.equal(a.weights[tail], deep.initial[tail])
    assert a.certificate is None
    for changes in ({"rounds": 2}, {"passes": 5}):
        with pytest.raises(InputError, match="rounds"):
            ConvexHead(warm=True, **changes)
    with pytest.raises(InputError, match="passes"):
        ConvexHead(passes=2)


def test_certified_removal_adds_the_noise_that_its_theorem_asks_for(federation, trained):
    """sigma = tolerance sqrt(2 ln(1.5/delta)) / epsilon on the gradient; the residual stays below the tolerance."""
    private = ConvexHead(l2=1e-2, score_gap=0.5, warm=True, privacy=(1.0, 1e-5))
    plain = replace(private, privacy=None, score_gap=1e-4).unlearn(trained, REMOVED, seed=1)
    cohort = federation.cohort(federation.remaining(REMOVED))
    tolerance = private.score_gap * private.l2 / largest_norm(cohort)
    drawn = []
    for seed in range(40):
        outcome = private.unlearn(trained, REMOVED, seed=seed)
        assert outcome.certificate.gradient_norm <= tolerance
        head = head_matrix(outcome.weights, federation.model(0)).double()
        gradient = certify(cohort, head.float(), l2=1e-2)  # of the objective without noise: minus B, nearly
        drawn.append(gradient.gradient_norm)
    sigma = tolerance * math.sqrt(2 * math.log(1.5e5))
    expected = sigma * math.sqrt(4 * 7)  # root mean square norm of B
    assert np.sqrt(np.mean(np.square(drawn))) == pytest.approx(expected, rel=0.15)
    assert not torch.equal(plain.weights, outcome.weights)
    for privacy in ((0.0, 0.1), (1.0, 1.0)):
        with pytest.raises(InputError, match="privacy"):
            ConvexHead(privacy=privacy)


@pytest.mark.parametrize("passes", [3, 5, 8])
def test_limited_passes_are_kept_to(passes):
    cohort = {0: samples(1), 1: samples(2)}
    effort = Effort()
    found = minimise_softmax(
        cohort, 4, l2=1e-4, tolerance=1e-9, passes=passes, start=torch.full((4, 4), 30.0), effort=effort
    )
    assert found.passes == passes == effort.rounds
    assert certify(cohort, found.head, l2=1e-4) == found.certificate
    start = objective(torch.full((4, 4), 30.0).double(), pooled(cohort), 1e-4)
    assert found.objective == pytest.approx(
        objective(found.head.double(), pooled(cohort), 1e-4).item(), rel=1e-5
    )
    assert found.objective <= start.item()


def test_validation_takes_the_largest_weight_within_a_standard_error(federation):
    cohort = federation.cohort(federation.remaining(REMOVED))
    chosen = choose_l2(cohort, 4, seed=0)
    assert chosen.l2 >= chosen.grid[int(np.argmin(chosen.losses))]
    assert chosen.losses[chosen.grid.index(chosen.l2)] < 1.5 * min(chosen.losses)
    assert 0 <= chosen.price <= 1
    # ten times longer features and a hundred times stronger penalties are the same problem
    longer = {i: LabelledTensors(10 * d.x, d.y) for i, d in cohort.items()}
    assert choose_l2(longer, 4, seed=0).l2 == pytest.approx(100 * chosen.l2, rel=0.5)
    # labels that say nothing about the features call for a strong penalty
    noise = {
        i: LabelledTensors(d.x, d.y[torch.randperm(len(d), generator=torch.Generator().manual_seed(i))])
        for i, d in cohort.items()
    }
    assert choose_l2(noise, 4, seed=0).l2 > chosen.l2
    with pytest.raises(InputError, match="grid"):
        choose_l2(cohort, 4, seed=0, grid=())


def rare_classes(classes: int = 40, features: int = 12, count: int = 1500) -> LabelledTensors:
    """Classes of very different size, some of them with no sample at all, as in a federation without some clients."""
    rng = np.random.default_rng(3)
    shares = rng.dirichlet(np.full(classes, 0.2))
    y = rng.choice(classes, count, p=shares)
    x = rng.normal(size=(classes, features))[y] + rng.normal(size=(count, features))
    return LabelledTensors(torch.from_numpy(x).float(), torch.from_numpy(y))


def test_few_passes_come_close_where_classes_are_rare():
    data, l2 = rare_classes(), 1e-4
    best = minimise_softmax({0: data}, 40, l2=l2, tolerance=1e-6, max_passes=2000).objective
    few = minimise_softmax({0: data}, 40, l2=l2, tolerance=1e-6, passes=15)
    assert (few.objective - best) / (math.log(40) - best) < 0.02  # zero scores cost log 40


def test_single_precision_passes_end_at_the_same_optimum(monkeypatch):
    data, l2 = rare_classes(classes=6), 1e-2
    found = minimise_softmax({0: data}, 6, l2=l2, tolerance=1e-7)
    monkeypatch.setattr("stackfu_integration.lab.federation.convex._VISIBLE", math.inf)
    exact = minimise_softmax({0: data}, 6, l2=l2, tolerance=1e-7)
    apart = (found.head - exact.head).double().norm()
    assert apart <= found.certificate.distance + exact.certificate.distance


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8).filter(lambda p: sum(p) > 0.1))
def test_the_first_steps_curvature_lies_above_every_hessian(weights):
    p = torch.tensor(weights, dtype=torch.float64)
    p = p / p.sum()
    bound = 0.5 * (torch.eye(len(p), dtype=torch.float64) - 1.0 / len(p))
    excess = bound - (torch.diag(p) - torch.outer(p, p))
    assert torch.linalg.eigvalsh(excess).min() > -1e-15 * len(p) * 4
