"""Gradient embeddings against automatic differentiation, sample by sample."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stackfu.errors import InputError
from stackfu_integration.lab.federation import LabelledTensors
from stackfu_integration.lab.gradients import gradient_embeddings
from stackfu_integration.lab.payments import build_game

CLASSES, FEATURES = 3, 2


def _federation(seed: int, clients: int = 3) -> list[LabelledTensors]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(clients):
        count = int(rng.integers(1, 6))
        x = torch.from_numpy(rng.normal(size=(count, FEATURES)).astype(np.float32))
        made.append(LabelledTensors(x, torch.from_numpy(rng.integers(0, CLASSES, count))))
    return made


def _loss(head: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    inputs = torch.cat([x.double(), torch.ones(len(x), 1, dtype=torch.float64)], 1)
    return torch.nn.functional.cross_entropy(inputs @ head.t(), y)


def _gradients(data: LabelledTensors, head: torch.Tensor) -> np.ndarray:
    """One flat gradient per sample."""
    found = []
    for j in range(len(data)):
        leaf = head.clone().requires_grad_()
        _loss(leaf, data.x[j : j + 1], data.y[j : j + 1]).backward()
        found.append(leaf.grad.reshape(-1).numpy())
    return np.array(found)


def _kernel_means(clients: list[LabelledTensors], head: torch.Tensor, curvature: np.ndarray):
    inverse = np.linalg.inv(curvature)
    gradients = [_gradients(data, head) for data in clients]
    gram = np.array([[np.mean(a @ inverse @ b.T) for b in gradients] for a in gradients])
    own = np.array([np.mean(np.diag(a @ inverse @ a.T)) for a in gradients])
    return gram, own


@given(seed=st.integers(0, 10**6), l2=st.sampled_from([1e-3, 0.1, 2.0]))
def test_they_are_kernel_means_of_single_gradients(seed, l2):
    clients = _federation(seed)
    head = torch.from_numpy(np.random.default_rng(seed + 1).normal(size=(CLASSES, FEATURES + 1)))
    x = torch.cat([data.x for data in clients]).double()
    inputs = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1).numpy()
    chances = torch.softmax(torch.from_numpy(inputs) @ head.t(), 1).numpy()
    spread = np.mean([np.diag(p) - np.outer(p, p) for p in chances], axis=0)
    moment = np.mean([np.outer(z, z) for z in inputs], axis=0)
    curvature = np.kron(spread, moment) + l2 * np.eye(CLASSES * (FEATURES + 1))
    gram, own = _kernel_means(clients, head, curvature)
    found = gradient_embeddings(clients, head, l2)
    np.testing.assert_allclose(found.gram, gram, rtol=1e-8, atol=1e-8 * np.abs(gram).max())
    np.testing.assert_allclose(found.mean_self_similarity, own, rtol=1e-8)


@given(seed=st.integers(0, 10**6))
def test_at_the_zero_head_the_curvature_is_the_hessian(seed):
    """There all classes have one chance, so that the two factors are independent and their product is exact."""
    clients, l2 = _federation(seed), 0.05
    x, y = torch.cat([data.x for data in clients]), torch.cat([data.y for data in clients])
    head = torch.zeros(CLASSES, FEATURES + 1, dtype=torch.float64)

    def objective(w: torch.Tensor) -> torch.Tensor:
        return _loss(w, x, y) + 0.5 * l2 * w.square().sum()

    size = CLASSES * (FEATURES + 1)
    hessian = torch.autograd.functional.hessian(objective, head).reshape(size, size).numpy()
    gram, own = _kernel_means(clients, head, hessian)
    found = gradient_embeddings(clients, head, l2)
    np.testing.assert_allclose(found.gram, gram, rtol=1e-8, atol=1e-8 * np.abs(gram).max())
    np.testing.assert_allclose(found.mean_self_similarity, own, rtol=1e-8)


def test_they_see_other_names_for_the_same_things_and_histograms_do_not():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    names, others = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])
    clients = [LabelledTensors(x, names), LabelledTensors(x, names), LabelledTensors(x, others)]
    head = torch.zeros(3, 3)
    gradients = gradient_embeddings(clients, head, 1e-3)
    samples, labels = [data.x.numpy() for data in clients], [data.y.numpy() for data in clients]
    games = {
        view: build_game(samples, (0,), labels=labels, view=view, gradients=gradients)
        for view in ("features", "labels", "gradients", "labels+gradients")
    }
    for view in ("features", "labels"):
        assert games[view].embeddings.distance(1, 2) == pytest.approx(0.0, abs=1e-7)
    assert games["gradients"].embeddings.distance(0, 1) == 0.0
    assert games["gradients"].embeddings.distance(1, 2) > 1.0
    both = games["labels+gradients"].embeddings
    expected = (
        games["labels"].embeddings.distance(1, 2) ** 2 + games["gradients"].embeddings.distance(1, 2) ** 2
    )
    assert both.distance(1, 2) ** 2 == pytest.approx(expected)
    assert both.mean_self_similarity is not None


def test_what_cannot_be_embedded_is_refused():
    data, head = LabelledTensors(torch.zeros(2, 2), torch.tensor([0, 1])), torch.zeros(2, 3)
    with pytest.raises(InputError, match="l2"):
        gradient_embeddings([data], head, 0.0)
    with pytest.raises(InputError, match="2 features"):
        gradient_embeddings([LabelledTensors(torch.zeros(2, 1), data.y)], head, 0.1)
    with pytest.raises(InputError, match="labels"):
        gradient_embeddings([LabelledTensors(data.x, torch.tensor([0, 2]))], head, 0.1)
    with pytest.raises(InputError, match="no samples"):
        gradient_embeddings([data, LabelledTensors(data.x[:0], data.y[:0])], head, 0.1)
    for view in ("gradients", "labels+gradients"):
        with pytest.raises(InputError, match="gradients"):
            build_game([np.zeros((2, 2))] * 2, (0,), labels=[[0, 1]] * 2, view=view)
