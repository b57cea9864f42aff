"""Games that an attack found a wrong answer, or a crash, on; each must come out right, or say that it does not know."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import stackfu as sf
from stackfu.judging.completeness import coincide


def game_of(features, sizes, **options):
    return sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.asarray(features)), sizes, **options)


def test_a_listed_equilibrium_is_where_the_exact_one_is():
    """A client ten million times larger that is paid its cost but for a millionth: within a billionth of its stakes many totals
    would do, and the list once said UNIQUE beside one that was off by 1.7e-4."""
    game = game_of(
        [
            [0.06509150191944538, -0.07866083247745843, 0.18111980822858473, -0.05997357124528453],
            [-0.0050538152181624565, -0.04945038443091422, -0.07980159169842463, 0.08891950800766818],
            [-0.11462427008945293, 0.047410564141837516, -0.20169791116483113, -0.04576677813981548],
        ],
        [1.0447081912882514, 1.3790046261557825, 10184130.45515041],
        costs=[2.0206075195225832e-14, 1.920725791706514e-14, 1.468399624372856e-07],
    )
    payments = [0.0, 1.9207238709807222e-14, 1.4683981559732316e-07]
    (eq,) = game.equilibria(payments)
    assert eq.participation == pytest.approx([1.0, 1.0, 0.413159474966302], rel=1e-9)
    assert eq.residual < 1e-9
    assert game.equilibrium(payments).participation == pytest.approx(eq.participation, rel=1e-12)


def test_near_twins_beside_somebody_who_may_not_take_part_are_not_alike():
    """Their distance is 4e-8, and the third client's, from whom nothing is taken, is no yardstick for it."""
    game = game_of(
        [[2.007527225383292], [2.0075272694391617], [1.2002668589212016]],
        [0.6063305201445726, 1.4684099762499576, 1.14284860895254],
        costs=[0.4932107656108311, 5.222029209469013e-05, 2.538317326779633e-06],
    )
    payments = [0.24660538280541555, 5.222023987439803e-05, 2.5383173267821717e-06]
    caps = [0.1, 0.6659450755175282, 0.0]
    found = game.equilibria(payments, caps=caps)
    assert found.complete
    assert [eq.participation for eq in found] == [
        pytest.approx([1.4718794471584317e-19, 6.499574409648832e-15, 0.0], rel=1e-9)
    ]


def test_rounded_points_on_a_line_are_not_on_a_line():
    """Paid exactly its cost, a client stays inside only where the mixture is its own data; stored rows never are, by 1e-18."""
    rows = [
        [-0.004185531628849658, 0.027002450363692084, -0.022314690616371313, 0.026832285159195016],
        [-0.00965449993885592, 0.062284837029621024, -0.05147187939195094, 0.06189232776148203],
        [0.00907019249334824, -0.0585152483146044, 0.04835671003533337, -0.05814649440295792],
        [-0.02134869877805222, 0.1377285444721878, -0.11381818381462556, 0.13686060079968662],
    ]
    exact = [[Fraction(v) for v in row] for row in rows]
    u, v = ([a - b for a, b in zip(exact[k], exact[0], strict=True)] for k in (2, 3))
    assert any(u[i] * v[j] != u[j] * v[i] for i in range(4) for j in range(4))
    costs = [0.054844940442634466, 0.02479856553795752, 0.050341335053345246, 0.06843681606746937]
    game = game_of(
        rows,
        [1.3976760004646924, 0.7157154415428642, 1.0783160847748605, 1.111506372145431],
        costs=costs,
    )
    caps = [0.798460077867665, 8.27228265589373e-07, 0.009219972287393097, 0.9284901362365734]
    found = game.equilibria([costs[0], 0.0, 0.050341335053294904, 0.0], caps=caps)
    assert found.uniqueness is sf.Uniqueness.UNIQUE
    assert found[0].participation == pytest.approx([caps[0], 0.0, caps[2], 0.0], rel=1e-12)


@pytest.mark.parametrize(
    ("sizes", "kappa"), [([12, 15, 16, 13, 3], [3, 1, 1, 1, 1]), ([11, 2, 18], [1, 1, 1])]
)
def test_equally_reluctant_clients_can_trade_whatever_their_last_digit(sizes, kappa):
    """Costs per sample are the same whole numbers; the quotients cost / share differ by a rounding."""
    sizes = np.array(sizes, float)
    game = game_of(np.ones((len(sizes), 1)), sizes, costs=sizes * kappa, sampling_constant=1e-2)
    found = game.equilibria()
    assert found.uniqueness is sf.Uniqueness.CONTINUUM
    inside = np.flatnonzero(np.array(kappa) == 1)
    assert set(found[0].face.clients) == set(inside.tolist())


def test_clients_alike_to_the_last_bit_but_one_are_told_apart():
    """Stored embeddings differ, so an equilibrium with a participant exists; equal ones have none."""
    row = np.array([1.25, -0.5, 2.0])
    other = row * (1 + 2.0**-52)
    game = game_of([row, other], [1.0, 1.0], costs=[1e-3, 1e-3])
    assert not coincide(game)
    found = game.equilibria()
    square = float(((other - row) ** 2).sum())
    # two clients with equal reluctance w settle at S = D / (4 w), half each
    assert found.complete
    assert found[0].total == pytest.approx(square / (4 * game.reluctance()[0]), rel=1e-9)
    alike = game_of([row, row], [1.0, 1.0], costs=[1e-3, 1e-3])
    assert coincide(alike)
    assert alike.equilibria().complete
    with pytest.raises(sf.NoEquilibriumError):
        alike.equilibrium()


def test_a_tiny_cap_hides_no_wrong_decision():
    """What is taken of a client is at most 1e-9, so leaving it out costs it less than a billionth: that is no proof that it should
    stay out, and a visible residual never stands beside CERTIFIED."""
    game = game_of([[0.0], [1.0], [5.0]], [1.0, 1.0, 1.0], costs=[0.3, 0.2, 1e-3])
    eq = game.equilibrium(caps=[1.0, 1.0, 1e-10])
    assert eq.participation[2] == 1e-10
    away = replace(eq, participation=np.array([*eq.participation[:2], 0.0]))
    assert not away.verify()


@pytest.mark.parametrize(
    ("scale", "lambda_q", "constant", "sizes"),
    [
        (1e-150, 1.0, 0.0, [1.0, 1.0, 1.0]),
        (1e150, 1.0, 0.0, [1.0, 1.0, 1.0]),
        (1.0, 1e-300, 0.0, [1.0, 2.0, 3.0]),
        (1.0, 1e300, 0.0, [1.0, 2.0, 3.0]),
        (1.0, 1.0, 1e300, [1.0, 2.0, 3.0]),
        (1.0, 1.0, 1e-300, [1.0, 2.0, 3.0]),
        (1.0, 1.0, 0.0, [1e-200, 1.0, 1e90]),
    ],
)
@pytest.mark.parametrize("method", ["path", "sweeps", "qp"])
@pytest.mark.filterwarnings("error")
def test_numbers_at_the_ends_of_floats_are_solved_or_given_up(scale, lambda_q, constant, sizes, method):
    points = scale * np.array([[0.0, 0.0], [1.0, 0.0], [0.25, 1.0]])
    game = game_of(points, sizes, costs=[0.1, 0.2, 0.3], lambda_q=lambda_q, sampling_constant=constant)
    for payments in ([0.0, 0.0, 0.0], [0.1, 0.2, 0.3], [0.05, 1e200, 0.0]):
        try:
            eq = game.equilibrium(payments, method=method)
            every = game.equilibria(payments)
        except sf.StackfuError:
            continue
        for one in (eq, *every):
            if one.status is sf.Status.CERTIFIED:
                check = one.verify()
                assert check, check.message
