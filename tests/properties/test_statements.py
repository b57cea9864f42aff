"""Every statement: true wherever its hypotheses hold, and its counterexample one step outside them."""

import numpy as np
import pytest
from effort import share
from hypothesis import assume, example, given, reject

import stackfu as sf
from stackfu import lemmas, testing
from stackfu.lemmas import Case, Verdict
from stackfu.lemmas.client_statements import no_cap_margin, paper_margin

#: Statements that speak of an equilibrium; the others hold at every profile.
AT_EQUILIBRIUM = {"existence", "characterisation", "uniqueness", "nash-equilibrium", "homogeneous-clients"}
SLOW = {"quasiconvexity", "metric-bounds", "budget-transformation", "uniqueness"}


#: Where squared distances are this small beside somebody's reluctance, that client's share is too small to be resolved; the
#: solvers may then say that they failed.
HARDLY_ANYBODY = 1e-9


def case_of(name, play):
    game, payments, x = play
    try:
        case = Case.of(game, payments, None if name in AT_EQUILIBRIUM else x)
        failed = name in AT_EQUILIBRIUM and any(not eq.status.success for eq in case.equilibria)
    except sf.ConvergenceError:
        failed = True
    if failed:
        assert game.geometry.scale < HARDLY_ANYBODY * game.reluctance(payments).max()
        reject()
    return case


def from_gram(gram, sizes, costs, x, removed=()):
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_gram(np.array(gram)), sizes, removed, costs=costs)
    return testing.Play(game, np.zeros(game.count), np.array(x))


#: Answers so steep that the last digit of a price overspends.
STEEP = from_gram(
    np.kron([[0.0, 0.0], [0.0, 0.03515625]], np.ones((2, 2))),
    [1, 1, 1, 30],
    [0.002197265625, 0.02197265625, 0.06591796875],
    [0.125, 0.125, 1.0],
    (0,),
)
#: Losses that differ by less than their rounding errors.
ALMOST_ALONE = from_gram([[0.0, 0.0], [0.0, 0.00390625]], [1, 1], [0.00390625] * 2, [1e-9, 1.0])
#: An equilibrium with hardly any participation.
ALMOST_ALIKE = from_gram([[0.0, 0.0], [0.0, 1e-16]], [1, 1], [0.00390625] * 2, [0.125, 0.125])


def check(name, play, form=None):
    case = case_of(name, play)
    statement = lemmas.ALL[name]
    if statement.applies(case, form=form):
        held = statement.holds(case, form=form)
        assert held, f"{name}: slack {held.slack}"


@pytest.mark.parametrize("name", [n for n, s in lemmas.ALL.items() if not s.expensive and n not in SLOW])
@given(play=testing.plays())
def test_statement_holds_where_it_applies(name, play):
    check(name, play)


@pytest.mark.parametrize("name", sorted(SLOW))
@share(0.5)
@given(play=testing.plays(max_clients=5))
@example(play=STEEP)
@example(play=ALMOST_ALONE)
def test_costly_statement_holds_where_it_applies(name, play):
    check(name, play)


@pytest.mark.parametrize("name", ["existence", "homogeneous-clients", "concavity", "non-increasing-impact"])
@given(play=testing.plays(distinct=False, max_clients=3, max_dimension=1))
def test_statement_holds_where_all_data_may_be_alike(name, play):
    check(name, play)


def test_what_cannot_be_resolved_is_refused_and_not_invented():
    """Embeddings 1e-8 apart and ordinary costs: the equilibrium's total is of the order of 1e-14."""
    game, payments, _ = ALMOST_ALIKE
    try:
        found = game.equilibrium(payments)
    except sf.ConvergenceError:
        return
    assert found.verify(), found.verify().message


@pytest.mark.parametrize(
    "name", [n for n, s in lemmas.ALL.items() if s.verdict in (Verdict.TRUE, Verdict.DEFINITION)]
)
def test_what_is_true_as_stated_has_no_counterexample(name):
    assert lemmas.ALL[name].counterexamples == []
    assert lemmas.ALL[name].corrected is None


@pytest.mark.parametrize(
    "name", [n for n, s in lemmas.ALL.items() if s.verdict in (Verdict.CORRECTED, Verdict.REFUTED)]
)
def test_every_correction_has_a_counterexample_that_meets_the_hypotheses(name):
    statement = lemmas.ALL[name]
    assert statement.corrected is not None
    assert statement.counterexamples
    for found in statement.counterexamples:
        strict = statement.stated.strict
        assert found.violation > 1e-9 or (strict and found.violation >= 0)
        assert "recomputed" in str(found)


@pytest.mark.parametrize(
    "name",
    [
        "loss-difference-bound",
        "metric-bounds",
        "non-increasing-impact",
        "participation-impact",
        "performance-change",
        "existence",
        "uniqueness",
        "homogeneous-clients",
        "approximation-error",
        "spend-monotonicity",
        "larger-data-sets",
        "budget-transformation",
        "budget-price",
    ],
)
def test_stated_form_fails_and_corrected_form_survives_at_the_counterexample(name):
    statement = lemmas.ALL[name]
    found = statement.refute()
    case = Case.of(found.game, found.payments, found.participation)
    if statement.applies(case, form="stated"):
        assert not statement.holds(case, form="stated")
    if statement.applies(case):
        assert statement.holds(case)


# -------------------------------------------------------------------- edges, one step inside and outside


@given(testing.plays())
def test_participation_impact_needs_its_factor_exactly_where_lam_is_not_one(play):
    game, p, x = play
    case = Case.of(game, p, x)
    statement = lemmas.ALL["participation-impact"]
    if not statement.applies(case):
        return
    stated = statement.holds(case, form="stated")
    if game.lam == 1.0:
        assert stated
    elif (
        max(
            np.sum((case.mean_of_others(k) - case.points[k]) ** 2) * min(game.alpha[k] / case.rest(k), 1)
            for k in case.facing_somebody
        )
        > 1e-6
    ):
        assert not stated


@given(testing.games(min_clients=3, costs="free"))
def test_paper_condition_below_cost_means_no_cap_and_hardly_any_participation(game):
    """Scale the costs to the edge of the condition: the repaired theorem applies there already."""
    case = Case.of(game)
    a = game.alpha
    diameter = np.sqrt(game.geometry.pairwise.max())
    edge = game.lam / 3.0 * (diameter / (0.75 * a * (1 - a) ** 2)) ** 2
    inside = Case.of(game.replace(costs=edge * (1 + 1e-9)))
    outside = Case.of(game.replace(costs=edge * (1 - 1e-9)))
    assert paper_margin(inside) > 0 > paper_margin(outside)
    assert no_cap_margin(inside) > 0.9
    eq = inside.game.equilibrium()
    assert np.all(eq.participation < 1)
    taking = eq.participation > 0
    assert eq.total < np.min((27.0 / 8.0) * a[taking] ** 3 * (1 - a[taking]) ** 4) * (1 + 1e-6)
    assert eq.total <= 0.0284
    assert case.game.count == game.count


@given(testing.games(costs="free"))
def test_no_cap_binds_just_inside_the_repaired_condition(game):
    a = game.alpha
    total = np.minimum(3 * a, 1.0)
    needed = game.geometry.pairwise.max(axis=1) * (1 - a / total) ** 2 / total
    tight = game.replace(costs=2 * game.lam * a * needed * (1 + 1e-6))
    case = Case.of(tight)
    assert no_cap_margin(case) > 0
    assert np.all(case.participation < 1)
    assume(case.equilibria.uniqueness is not sf.Uniqueness.UNKNOWN)
    assert lemmas.ALL["uniqueness"].holds(case)


def test_repaired_condition_is_sharp_for_two_clients():
    """A client with a third of the data reaches its cap at once beyond the condition."""
    emb = sf.MeanEmbeddings.from_features(np.array([[0.0], [1.0]]))
    # S = 1 = 3 alpha_0: client 1 is paid to take part fully, client 0 sits at the threshold
    at = 8.0 / 27.0
    for factor, full in ((1.0 - 1e-6, True), (1.0 + 1e-6, False)):
        game = sf.StackelbergGame(emb, [1, 2], costs=[at * factor, 1.0])
        x = game.equilibrium([0.0, 2.0]).participation
        assert bool(x[0] == 1.0) is full


@pytest.mark.parametrize("net", [-1e-9, 0.0, 1e-9])
def test_homogeneous_clients_at_their_cost(net):
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.ones((3, 1))), [1, 2, 3], costs=[1.0, 2.0, 3.0]
    )
    p = game.costs * (1 + net)
    case = Case.of(game, p)
    statement = lemmas.ALL["homogeneous-clients"]
    assert bool(statement.applies(case, form="stated"))
    assert bool(statement.applies(case)) is (net > 0)
    assert bool(statement.holds(case, form="stated")) is (net > 0)
    assert bool(lemmas.ALL["existence"].applies(case)) is (net >= 0)


@given(testing.plays(max_clients=4))
@share(0.5)
def test_price_of_a_mixture_is_a_duality_gap(play):
    """Equal kappa, no caps, smallest S: the price is 2 lam (max d_k^2 - Var z), zero if no client is paid."""
    game, _, x = play
    z = game.profile(x).mixture
    d2 = game.profile(x).to_clients
    # one kappa so large that no cap ever binds
    kappa = 4.0 * game.lam * game.geometry.scale / game.alpha.min()
    homo = game.replace(costs=kappa * game.alpha)
    total = 2.0 * game.lam * d2.max() / kappa
    profile = total * z / game.alpha
    p = homo.payments_for(profile)
    assert p @ profile == pytest.approx(2 * game.lam * (d2.max() - z @ d2), rel=1e-9, abs=1e-12)
    unpaid = homo.equilibrium().profile
    assert unpaid.to_clients.max() == pytest.approx(unpaid.variance, rel=1e-9)
    assert unpaid.to_clients.max() <= d2.max() * (1 + 1e-9)  # the minimum enclosing ball


@given(testing.games(costs="proportional"))
@share(0.5)
def test_equal_reluctance_is_a_concave_potential(game):
    """Under one w the equilibrium maximises psi(y) - w S^2 / 2 over the box."""
    eq = game.equilibrium()
    w = game.reluctance()[0]

    def potential(x):
        profile = game.profile(x)
        return profile.total * profile.variance - w * profile.total**2 / 2

    rng = np.random.default_rng(0)
    best = potential(eq.participation)
    for x in rng.random((40, game.count)):
        assert potential(x) <= best + 1e-12
        assert potential(0.99 * eq.participation + 0.01 * x) <= best + 1e-12


@given(testing.plays(below_cost=True, max_clients=4))
@share(0.5)
@example(
    testing.Play(
        sf.StackelbergGame(
            sf.MeanEmbeddings.from_features(np.array([[0.0], [1.0]])), [1, 1], costs=[4.0, 4.0]
        ),
        np.zeros(2),
        np.ones(2),
    )
)
def test_equilibrium_without_caps_is_the_weighted_enclosing_ball(play):
    """min_m max_k d_k^2 / w_k is reached at the equilibrium's mean, with value S."""
    game, p, _ = play
    eq = game.equilibrium(p)
    if np.any(eq.participation == 1):
        return
    w = game.reluctance(p)
    assert (eq.profile.to_clients / w).max() == pytest.approx(eq.total, rel=1e-8)
    rng = np.random.default_rng(1)
    for z in rng.dirichlet(np.ones(game.count), size=30):
        d2 = game.geometry.mixture(z).to_clients
        assert (d2 / w).max() >= eq.total * (1 - 1e-9)
