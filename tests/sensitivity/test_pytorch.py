"""Equilibria in torch: gradients, batches, and what they are for."""

import numpy as np
import pytest
from precise_games import random_game

import stackfu as sf
from stackfu.sensitivity import EquilibriumDerivatives
from stackfu.sensitivity.pytorch import DIFFERENTIABLE, equilibrium_of

torch = pytest.importorskip("torch", reason="torch is an extra of its own")
DOUBLE = {"dtype": torch.float64, "requires_grad": True}


def parameters_of(game, payments, caps):
    values = {
        "payments": payments,
        "costs": game.costs,
        "caps": caps,
        "sizes": game.all_sizes,
        "embeddings": game.embeddings.features
        if game.embeddings.features is not None
        else game.embeddings.gram,
        **{name: getattr(game, name) for name in DIFFERENTIABLE if name.startswith("lambda")},
        "loss_constant": game.loss_constant,
        "sampling_constant": game.sampling_constant,
    }
    return {name: torch.tensor(np.array(value), **DOUBLE) for name, value in values.items()}


def strict_game(rng, **options):
    while True:
        game, payments, caps, _, _ = random_game(rng, **options)
        payments = np.maximum(payments, 0.01 * game.costs)
        game = game.replace(sampling_constant=max(game.sampling_constant, 0.05))
        eq = game.equilibrium(payments, caps=caps)
        at = EquilibriumDerivatives.of(eq).at
        settled = not len(at.at_threshold) and (at.inside.size == 0 or at.x[at.inside].min() > 1e-3)
        if settled and at.inside.size >= 2 and np.abs(np.diag(at.slopes)).min() > 1e-2:
            return game, payments, caps


@pytest.mark.parametrize("of", ["participation", "samples", "utilities", "total", "server_loss", "spend"])
def test_gradients_pass_gradcheck(of):
    rng = np.random.default_rng(1)
    game, payments, caps = strict_game(rng, clients=3, form="features")
    given = parameters_of(game, payments, caps)
    del given["caps"]

    def output(*values):
        return equilibrium_of(game, of=of, **dict(zip(given, values, strict=True)))

    assert torch.autograd.gradcheck(output, tuple(given.values()), eps=1e-6, atol=1e-5, rtol=1e-4)


def test_a_batch_is_its_games_one_by_one():
    rng = np.random.default_rng(2)
    game, payments, caps = strict_game(rng, clients=4)
    rows = payments * rng.uniform(0.8, 1.2, (5, 4))
    costs = torch.tensor(np.array(game.costs), **DOUBLE)
    together = torch.tensor(rows, **DOUBLE)
    taken = torch.tensor(caps)
    weights = torch.tensor(rng.normal(size=(5, 4)))
    (equilibrium_of(game, payments=together, costs=costs, caps=taken) * weights).sum().backward()
    summed = np.zeros(4)
    for i, row in enumerate(rows):
        eq = game.equilibrium(row, caps=caps)
        assert equilibrium_of(game, payments=together, caps=taken)[i].detach().numpy() == pytest.approx(
            eq.participation, abs=1e-9
        )
        assert together.grad[i].numpy() == pytest.approx(
            weights[i].numpy() @ eq.sensitivity("payments"), rel=1e-7
        )
        summed += weights[i].numpy() @ eq.sensitivity("costs")
    assert costs.grad.numpy() == pytest.approx(summed, rel=1e-7)


def test_inner_products_have_gradients_too():
    game, payments, _ = strict_game(np.random.default_rng(3), clients=3, form="gram")
    gram = torch.tensor(np.array(game.embeddings.gram), **DOUBLE)
    equilibrium_of(game, of="server_loss", payments=torch.tensor(payments), embeddings=gram).backward()
    wanted = game.equilibrium(payments).sensitivity("embeddings", "server_loss")
    assert gram.grad.numpy() == pytest.approx(wanted, rel=1e-6, abs=1e-12)


def test_thresholds_need_a_side():
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1, 1, 1], costs=[2.0, 2.0, 2.0])
    payments = torch.tensor(np.array(game.payments_for([1.0, 0.5, 0.5])), **DOUBLE)
    with pytest.raises(sf.NotDifferentiableError, match="at a threshold"):
        equilibrium_of(game, of="total", payments=payments).backward()
    equilibrium_of(game, of="total", side="up", payments=payments).backward()
    wanted = game.equilibrium(payments.detach().numpy()).sensitivity("payments", "total", "up")
    assert payments.grad.numpy() == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, t: equilibrium_of(g, wages=t), "parameters = 'wages'"),
        (lambda g, t: equilibrium_of(g, of="mood", payments=t), "of = 'mood'"),
        (lambda g, t: equilibrium_of(g, payments=t[None, None]), "payments = .*: needs 1 axes"),
        (lambda g, t: equilibrium_of(g, payments=t[None], costs=t.repeat(2, 1)), "needs a batch of 1"),
        (lambda g, t: equilibrium_of(g, payments=t[None][:0]), "empty batch"),
    ],
)
def test_bad_input_is_named(call, message):
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    with pytest.raises(sf.InputError, match=message):
        call(game, torch.tensor([0.1, 0.1], dtype=torch.float64))


def test_costs_are_recovered_from_observed_answers_by_gradient_descent():
    """All clients inside under every payment: each answer then determines the costs."""
    rng = np.random.default_rng(4)
    rows = np.eye(4) + 0.05 * rng.normal(size=(4, 4))
    true = rng.uniform(0.9, 1.2, 4)
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(rows), [1, 1, 1, 1], costs=true)
    payments = true * rng.uniform(0.2, 0.4, (4, 4))
    observed = torch.tensor(np.array([game.equilibrium(p).participation for p in payments]))
    guess = torch.log(torch.full((4,), 1.0, dtype=torch.float64)).requires_grad_()
    optimiser = torch.optim.LBFGS([guess], max_iter=60, tolerance_grad=1e-14, tolerance_change=1e-16)

    def off():
        optimiser.zero_grad()
        answers = equilibrium_of(game, payments=torch.tensor(payments), costs=guess.exp(), side="up")
        error = ((answers - observed) ** 2).sum()
        error.backward()
        return error

    first = off().item()
    optimiser.step(off)
    assert off().item() < 1e-12 * first
    known = game.costs_from(payments, observed.numpy())
    assert guess.exp().detach().numpy() == pytest.approx(true, rel=1e-4)
    assert guess.exp().detach().numpy()[known.known] == pytest.approx(known.low[known.known], rel=1e-4)


def drawn(rng):
    """A game of a distribution: data, sizes and costs are drawn."""
    rows = rng.normal(size=(6, 3)) * np.array([0.6, 0.3, 0.1])
    sizes = rng.uniform(1.0, 4.0, 6)
    costs = sizes[1:] / sizes[1:].sum() * rng.uniform(0.5, 1.5, 5)
    return sf.StackelbergGame(sf.MeanEmbeddings.from_features(rows), sizes, removed=[0], costs=costs)


def features_of(game):
    """What the policy sees of each client: cost, distance to the mixture without payments, and where its data pull the mixture."""
    profile = game.equilibrium().profile
    pull = game.loss_centre[1] - game.geometry.inner(profile.mixture)
    pull = pull - profile.mixture @ pull  # minus the change of the loss with a little more of a client's data
    far = profile.to_clients
    columns = [game.kappa / game.kappa.mean(), np.sqrt(far / far.mean()), pull / np.abs(pull).max()]
    return torch.tensor(np.stack(columns, axis=1))


def test_a_learned_policy_beats_the_uniform_price_on_games_it_has_not_seen():
    rng = np.random.default_rng(5)
    train, unseen = [drawn(rng) for _ in range(30)], [drawn(rng) for _ in range(20)]
    policy = torch.nn.Linear(3, 1, dtype=torch.float64)
    torch.nn.init.zeros_(policy.weight)
    torch.nn.init.zeros_(policy.bias)
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.1)
    unpaid = [game.equilibrium().server_loss for game in train]
    seen = [features_of(game) for game in train]

    def prices(game, features):
        """The price of all data of each client, a share of its cost."""
        return torch.tensor(np.array(game.costs)) * torch.sigmoid(policy(features)[:, 0] - 1.0)

    for _ in range(40):
        optimiser.zero_grad()
        for game, features, before in zip(train, seen, unpaid, strict=True):
            paid = prices(game, features)
            loss = equilibrium_of(game, of="server_loss", side="up", payments=paid)
            spend = equilibrium_of(game, of="spend", side="up", payments=paid)
            (loss / before + 0.7 * spend / game.full_participation_price).backward()
        optimiser.step()
    policies, uniforms = [], []
    for game in unseen:
        found = game.equilibrium(prices(game, features_of(game)).detach().numpy())
        policies.append(found.server_loss)
        uniforms.append(game.solve(found.spend, "uniform", warn_below=0).server_loss)
    assert np.mean(policies) < 0.8 * np.mean(uniforms)
    assert sum(p < u for p, u in zip(policies, uniforms, strict=True)) >= 14
