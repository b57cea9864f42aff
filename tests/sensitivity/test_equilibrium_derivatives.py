"""Derivatives of equilibria, against differences in 50-digit arithmetic and against games solved again."""

import os

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from precise_games import DIGITS, as_numbers, finite_difference, random_game

import stackfu as sf
from stackfu.sensitivity import OUTPUTS, PARAMETERS, EquilibriumDerivatives

#: Rounding of the double-precision derivatives, relative to the largest of an output.
AGREES = 1e-7
#: Rounding of derivatives that are zero because large terms cancel.
ROUNDING = 1e-12


def status_of(derivatives):
    at = derivatives.at
    names = np.array(["inside"] * at.game.count, dtype=object)
    names[at.full], names[at.out] = "full", "out"
    return list(names)


def along(derivative, direction):
    """The derivative in a direction."""
    return (
        np.tensordot(derivative, direction, np.ndim(direction))
        if np.ndim(direction)
        else derivative * direction
    )


#: Parts of 50 games; ``make properties`` compares 500 games.
PARTS = 10 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 1


@pytest.mark.parametrize("part", range(PARTS))
def test_hundreds_of_games_agree_with_differences_in_fifty_digits(part):
    """Every parameter and every output of many games, in a random direction of all entries of the parameter."""
    rng = np.random.default_rng(part)
    compared = refused = 0
    with mp.workdps(DIGITS):
        while compared < 50:
            game, payments, caps, numbers, gone = random_game(rng)
            eq = game.equilibrium(payments, caps=caps)
            derivatives = EquilibriumDerivatives.of(eq)
            if len(derivatives.at.at_threshold):
                refused += 1
                continue
            rows = np.array(numbers["embeddings"], dtype=float)
            x = [mp.mpf(float(v)) for v in eq.participation]
            for parameter in PARAMETERS:
                direction = rng.normal(size=np.shape(np.array(numbers[parameter], dtype=float)))
                wanted = finite_difference(numbers, gone, status_of(derivatives), x, parameter, direction)
                taken = direction
                if parameter == "embeddings" and game.embeddings.features is None:
                    taken = rows @ direction.T + direction @ rows.T
                for output in OUTPUTS:
                    found = np.atleast_1d(along(derivatives.derivative(parameter, output), taken))
                    off = np.abs(found - wanted[output]).max()
                    scale = np.abs(wanted[output]).max()
                    assert off <= AGREES * scale + ROUNDING * np.abs(taken).max(), (parameter, output)
            compared += 1
    assert refused < 5


@given(st.integers(0, 10**6))
def test_one_sided_derivatives_at_thresholds_are_those_of_games_solved_again(seed):
    """Payments at which clients are exactly at their thresholds: the cheapest for a profile with clients at their caps."""
    rng = np.random.default_rng(seed)
    game, _, _, _, _ = random_game(rng, clients=3, form="features")
    x = rng.choice([0.4, 0.7, 1.0], 3)
    x[int(rng.integers(3))] = 1.0
    try:
        payments = game.payments_for(x)
    except sf.NotInducibleError:
        return
    found = game.equilibria(payments)
    if len(found) != 1 or found.uniqueness is not sf.Uniqueness.UNIQUE:
        return
    eq = found[0]
    derivatives = EquilibriumDerivatives.of(eq)
    if not len(derivatives.at.at_cap):
        return
    with pytest.raises(sf.NotDifferentiableError, match="at a threshold"):
        eq.sensitivity("payments")
    for side, sign in (("up", 1.0), ("down", -1.0)):
        try:
            found = eq.sensitivity("payments", "participation", side)
        except sf.NotDifferentiableError as error:
            assert "jump or split" in str(error)
            return
        scale = max(np.abs(found).max(), 1e-3)
        for j in range(3):
            step = 1e-6 / scale
            changed = np.array(payments)
            changed[j] += sign * step
            if changed[j] < 0:
                continue
            again = sign * (game.equilibrium(changed).participation - eq.participation) / step
            assert np.abs(again - found[:, j]).max() <= 1e-3 * scale


@pytest.mark.parametrize("seed", [1, 15, 55, 124])
def test_one_sided_derivatives_with_caps_are_those_of_games_solved_again(seed):
    """Caps, sizes, costs and weights: thresholds at caps move with them."""
    rng = np.random.default_rng(seed)
    game, _, _, _, _ = random_game(rng, clients=int(rng.integers(2, 5)), form="features")
    caps = rng.choice([0.5, 1.0], game.count)
    x = caps * rng.choice([0.4, 0.7, 1.0, 1.0], game.count)
    payments = game.payments_for(x)
    eq = game.equilibrium(payments, caps=caps)
    derivatives, compared = EquilibriumDerivatives.of(eq), 0
    assert len(derivatives.at.at_cap)
    for side, sign in (("up", 1.0), ("down", -1.0)):
        for parameter in ("caps", "sizes", "costs", "lambda_q", "loss_constant"):
            found = derivatives.derivative(parameter, "participation", side)
            base = {"caps": caps, "sizes": game.all_sizes}.get(parameter, getattr(game, parameter, None))
            base = np.array(base, dtype=float)
            for j in range(base.size):
                column = found[:, j] if base.ndim else found
                step = sign * 1e-6 / max(0.1, np.abs(column).max())
                changed = base + step * np.eye(base.size)[j].reshape(base.shape)
                if parameter == "caps":
                    if changed.max() > 1.0:
                        continue
                    again = game.equilibrium(payments, caps=changed)
                else:
                    other = game.replace(
                        **{"costs": game.costs, parameter: changed if base.ndim else float(changed)}
                    )
                    again = other.equilibrium(payments, caps=caps)
                wanted = (again.participation - eq.participation) / step
                compared += 1
                assert np.abs(wanted - column).max() <= 1e-3 * max(np.abs(column).max(), 0.01), (
                    parameter,
                    side,
                    j,
                )
    assert compared > 10


def test_a_client_about_to_take_part_is_named_and_has_two_derivatives():
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.3]])),
        [1, 1, 1],
        costs=[1.0, 1.0, 1.0],
        names=["York", "Hull", "Bath"],
    )
    low, _ = game.thresholds(game.equilibrium().participation)
    payments = np.array([0.0, 0.0, low[2]])
    eq = game.equilibrium(payments)
    assert eq.participation[2] == 0.0
    with pytest.raises(sf.NotDifferentiableError, match="client Bath out, but about to take part") as caught:
        eq.sensitivity("payments")
    assert caught.value.clients == (2,)
    up, down = (eq.sensitivity("payments", "participation", side)[:, 2] for side in ("up", "down"))
    assert up[2] > 0.1
    assert np.all(down == 0.0)
    more = game.equilibrium(payments + np.array([0, 0, 1e-7]))
    assert (more.participation - eq.participation) / 1e-7 == pytest.approx(up, rel=1e-4)


def test_clients_that_can_trade_are_refused_by_name():
    emb = sf.MeanEmbeddings.from_features(np.array([[0.0], [0.0], [1.0]]))
    game = sf.StackelbergGame(emb, [1, 1, 1], costs=[1.0, 1.0, 1.0], names=["York", "Hull", "Bath"])
    x = game.equilibrium().participation
    spread = np.array([x[0] + x[1], x[0] + x[1], 2 * x[2]]) / 2
    derivatives = EquilibriumDerivatives(game, game.no_payments, spread)
    with pytest.raises(sf.NotDifferentiableError, match="clients York, Hull, Bath can trade"):
        derivatives.derivative("payments")


#: A profile at which the games below have an equilibrium: for one of them it is a turning point.
TURNING = np.array([1.0, 0.2, 0.3])


def turning_game(t):
    """Return a game between two games with determinants of different signs, and payments that make the profile an equilibrium."""
    third = (1 - t) * np.array([0.4, 0.05]) + t * np.array([1.0, 1.0])
    emb = sf.MeanEmbeddings.from_features(np.array([[0.0, 0.0], [1.0, 0.0], third]))
    game = sf.StackelbergGame(emb, [6, 1, 2], costs=[0.001, 50.0, 50.0])
    return game, game.payments_for(TURNING)


def derivatives_at(t):
    return EquilibriumDerivatives(*turning_game(t), TURNING)


@pytest.fixture(scope="module")
def turn():
    """The game with the turning point as equilibrium, by bisection."""

    def sign(t):
        at = derivatives_at(t).at
        assert at.inside.tolist() == [1, 2]
        return np.sign(np.linalg.det(at.slopes[1:, 1:]))

    low, high = 0.0, 1.0
    assert sign(low) != sign(high)
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if sign(middle) == sign(low) else (low, middle)
    return low


def test_a_turning_point_is_refused(turn):
    with pytest.raises(sf.NotDifferentiableError, match="turning point"):
        derivatives_at(turn).derivative("payments")
    near, far = (np.abs(derivatives_at(turn + away).derivative("costs")).max() for away in (1e-4, 1e-1))
    assert near > 100 * far


@pytest.mark.parametrize("power", range(1, 17))
def test_derivatives_near_a_turning_point_are_exact_or_refused(turn, power):
    """Rounding moves an equilibrium near a turning point so far that derivatives there would be wrong by any factor."""
    game, payments = turning_game(turn - 10.0**-power)
    try:
        derivatives = EquilibriumDerivatives(game, payments, TURNING)
        found = derivatives.derivative("costs") @ [1.0, 2.0, -1.0]
    except sf.NotDifferentiableError as error:
        assert "too near" in str(error)
        assert power > 3
        return
    numbers = {name: getattr(game, name) for name in PARAMETERS if hasattr(game, name)}
    numbers |= {
        "payments": payments,
        "caps": np.ones(3),
        "sizes": game.all_sizes,
        "embeddings": game.embeddings.features,
    }
    numbers = {name: as_numbers(value) for name, value in numbers.items()}
    with mp.workdps(DIGITS):
        x = [mp.mpf(float(v)) for v in derivatives.at.x]
        status = status_of(derivatives)
        wanted = finite_difference(numbers, range(0), status, x, "costs", [1.0, 2.0, -1.0])["participation"]
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_nearly_equal_clients_have_exact_derivatives_or_can_trade():
    """Two clients apart by less and less: they trade until rounding no longer tells them apart."""
    outcomes = []
    for power in range(1, 12):
        rows = np.array([[0.0, 0.0], [10.0**-power, 0.0], [1.0, 0.3]])
        game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(rows), [1, 1, 1], costs=[3.0, 3.0, 3.0])
        x = np.array([0.3, 0.4, 0.2])
        payments = game.payments_for(x)
        derivatives = EquilibriumDerivatives(game, payments, x)
        try:
            found = derivatives.derivative("payments") @ [1.0, 2.0, -1.0]
        except sf.NotDifferentiableError as error:
            outcomes.append("trade" in str(error))
            continue
        assert not outcomes
        numbers = {name: getattr(game, name) for name in PARAMETERS if hasattr(game, name)}
        numbers |= {"payments": payments, "caps": np.ones(3), "sizes": game.all_sizes, "embeddings": rows}
        numbers = {name: as_numbers(value) for name, value in numbers.items()}
        with mp.workdps(DIGITS):
            x = [mp.mpf(float(v)) for v in derivatives.at.x]
            status = status_of(derivatives)
            wanted = finite_difference(numbers, range(0), status, x, "payments", [1.0, 2.0, -1.0])
        assert np.abs(found - wanted["participation"]).max() <= 1e-4 * np.abs(wanted["participation"]).max()
    assert outcomes
    assert all(outcomes)


def test_a_client_with_a_cap_of_zero_follows_its_cap():
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1, 2, 1], costs=[1.0, 1.0, 1.0])
    payments, caps, step = [0.3, 0.3, 0.3], np.array([0.0, 1.0, 1.0]), np.array([1e-6, 0.0, 0.0])
    eq = game.equilibrium(payments, caps=caps)
    again = (game.equilibrium(payments, caps=caps + step).participation - eq.participation) / 1e-6
    assert again[0] == pytest.approx(1.0)
    assert eq.sensitivity("caps")[:, 0] == pytest.approx(again, rel=1e-5)
    assert not eq.sensitivity("payments")[0].any()


def test_what_is_no_equilibrium_is_refused():
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    with pytest.raises(sf.InputError, match="is no equilibrium of these payments"):
        EquilibriumDerivatives(game, game.no_payments, np.array([1.0, 1.0]))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("wages",), "parameter = 'wages'"),
        (("payments", "mood"), "of = 'mood'"),
        (("payments", "total", "left"), "side = 'left'"),
    ],
)
def test_unknown_words_are_refused(arguments, named):
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    with pytest.raises(sf.InputError, match=named):
        game.equilibrium().sensitivity(*arguments)


def test_own_losses_are_differentiated_too():
    """Targets that are mixtures or points, and the sampling term, against games solved again."""
    rng = np.random.default_rng(5)
    rows = 0.3 * rng.normal(size=(4, 3))
    sizes = np.array([4.0, 3.0, 5.0, 6.0])
    points = sf.ServerLoss.to_points([[0.1, 0.2, 0.0]], [2.0])
    mixed = sf.ServerLoss.to_mixtures([[0.1, 0.2, 0.3, 0.4]], [0.7])
    for loss in (points, mixed, points.with_sampling()):

        def solved(rows, sizes, loss=loss):
            return sf.StackelbergGame(
                sf.MeanEmbeddings.from_features(rows), sizes, [0], costs=[0.3, 0.2, 0.4], server_loss=loss
            ).equilibrium([0.1, 0.0, 0.2])

        eq, step = solved(rows, sizes), 1e-6
        for parameter, base in (("embeddings", rows), ("sizes", sizes)):
            direction = rng.normal(size=base.shape)
            given = {"rows": rows, "sizes": sizes}
            name = "rows" if parameter == "embeddings" else parameter
            ends = [solved(**{**given, name: base + s * step * direction}) for s in (1, -1)]
            wanted = (ends[0].server_loss - ends[1].server_loss) / (2 * step)
            found = float(np.tensordot(eq.sensitivity(parameter, "server_loss"), direction, base.ndim))
            assert found == pytest.approx(wanted, rel=1e-5, abs=1e-8)
        with pytest.raises(sf.InputError, match="a loss of its own"):
            eq.sensitivity("lambda_v")
