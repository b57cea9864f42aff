"""Whatever is given for offers is used or refused by name, client and value, before anything is searched."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stackfu as sf
from stackfu.cli import main
from stackfu.demo import digits_game
from stackfu.leader.acceptance import Acceptance, acceptance
from stackfu.leader.contract import worst_equilibrium
from stackfu.leader.posted_prices import PostedPrices, regret_curve
from stackfu.leader.truthful import posted_offers

NAMES = ["Leeds", "Oslo", "Bath", "York", "Hull", "Rome", "Bonn", "Lyon", "Graz", "Linz"]
GAME = digits_game(sampling_constant=30.0).replace(names=NAMES)  # York, ..., Linz remain
COSTS = GAME.costs
ONES, HALF, NOTHING = np.ones(7), np.full(7, 0.5), np.zeros(7)
QUICK = {"gap": 0.3, "max_nodes": 200, "progress": False}


def but(values, place, value):
    """A list with one entry exchanged."""
    return [value if k == place else float(v) for k, v in enumerate(values)]


@pytest.fixture
def no_search(monkeypatch):
    """Bad input is refused before work starts: searches are not even begun."""

    def worked(*_, **__):
        raise AssertionError("a search was begun")

    for place in (  # what only searches call, by the name under which they call it
        "stackfu.leader.capped.capped_offers._optimise",
        "stackfu.leader.certified.certified_payments._optimise",
        "stackfu.leader.contract._improve",
        "stackfu.followers.solve._binding",
        "stackfu.followers.below_caps.running_mixture",
        "stackfu.followers.contracts.best_responses",
    ):
        monkeypatch.setattr(place, worked)


#: One bad entry of a vector with one number per client: what stands at Lyon's place, and what is said about it.
ENTRIES = {
    "nan": (np.nan, "= nan: must be"),
    "infinite": (np.inf, "= inf: must be"),
    "text": ("much", "= 'much': must be a number"),
    "number as text": ("0.5", "= '0.5': must be a number"),
    "complex": (0.5j, "= 0.5j: must be a number"),
    "a list": ([0.5], r"= \[0.5\]: must be a number"),
    "beyond float64": (10**400, "must be a number"),
}
#: Not one number per client at all.
SHAPES = {
    "short": [0.5] * 6,
    "long": [0.5] * 8,
    "nested": [[0.5] * 7, [0.5]],
    "text": "much",
    "numbers in text": "0.5,0.5,0.5,0.5,0.5,0.5,0.5",
    "of a stranger": {"Paris": 0.5},
    "dates": np.full(7, np.datetime64("2020-01-01")),
    "complex": np.full(7, 0.5j),
    "an object": object(),
}
#: Every argument with one number per client: what it is called, and a call with it.
VECTORS = {
    "caps of an equilibrium": ("caps", lambda v: GAME.equilibrium(caps=v)),
    "caps of equilibria": ("caps", lambda v: GAME.equilibria(caps=v)),
    "caps of dynamics": ("caps", lambda v: next(GAME.dynamics(caps=v))),
    "caps of a cascade": ("caps", lambda v: GAME.cascade(caps=v, outside=0.0)),
    "caps of posted offers": (
        "caps",
        lambda v: GAME.cascade(offers=sf.Offers("contract", HALF, v, NOTHING), outside=0.0),
    ),
    "caps of answers": ("caps", lambda v: GAME.costs_from(NOTHING, 0.2 * ONES, caps=v)),
    "caps of a plan": ("caps", lambda v: acceptance(GAME, v)),
    "payments of a cascade": ("payments", lambda v: GAME.cascade(v, outside=0.0)),
    "prices of posted offers": (
        "payments",
        lambda v: GAME.cascade(offers=sf.Offers("contract", v, ONES, NOTHING), outside=0.0),
    ),
    "payments of answers": ("payments", lambda v: GAME.costs_from(v, HALF)),
    "retainers": ("retainers", lambda v: GAME.cascade(outside=0.0, retainers=v)),
    "outside of capped offers": ("outside", lambda v: GAME.solve(0.5, offers="capped", outside=v, **QUICK)),
    "outside of contracts": ("outside", lambda v: GAME.solve(0.5, offers="contract", outside=v, **QUICK)),
    "outside of a baseline": ("outside", lambda v: GAME.solve(0.5, "uniform", offers="capped", outside=v)),
    "outside of the least spend": (
        "outside",
        lambda v: GAME.cheapest(0.1, offers="capped", outside=v, **QUICK),
    ),
    "outside of a cascade": ("outside", lambda v: GAME.cascade(outside=v)),
    "lower costs": (
        "costs_between",
        lambda v: GAME.solve(0.5, offers="capped", costs_between=(v, 9 * ONES), **QUICK),
    ),
    "upper costs": (
        "costs_between",
        lambda v: GAME.solve(0.5, offers="capped", costs_between=(0.01 * COSTS, v), **QUICK),
    ),
    "lower costs of a loop": ("low", lambda v: PostedPrices(GAME, v, 9 * ONES, 0.1)),
    "upper costs of a loop": ("high", lambda v: PostedPrices(GAME, 0.01 * COSTS, v, 0.1)),
    "answers": ("participation", lambda v: GAME.costs_from(NOTHING, v)),
}


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("vector", VECTORS)
def test_an_entry_that_is_no_number_is_told_by_client(vector, entry):
    (name, call), (value, words) = VECTORS[vector], ENTRIES[entry]
    with pytest.raises(sf.InputError, match=rf"^{name}\[client Lyon\] {words if words[0] == '=' else ''}"):
        call(but(HALF, 4, value))


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("vector", VECTORS)
def test_what_is_not_one_number_per_client_is_refused(vector, shape):
    name, call = VECTORS[vector]
    with pytest.raises(sf.InputError, match=rf"^{name}\b"):
        call(SHAPES[shape])


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GAME.equilibrium(caps=but(ONES, 2, 1.5)), r"caps\[client Rome\] = 1.5: must lie in \[0, 1\]"),
        (lambda: GAME.equilibria(caps=but(ONES, 0, -0.1)), r"caps\[client York\] = -0.1: must lie in \[0, 1\]"),
        (lambda: GAME.equilibrium(caps=NOTHING), "caps = 0: nothing is taken from anybody"),
        (lambda: GAME.cascade(outside=0.0, retainers=but(ONES, 1, -2)), r"retainers\[client Hull\] = -2.0: must not be"),
        (lambda: GAME.cascade(but(ONES, 1, -2), outside=0.0), r"payments\[client Hull\] = -2.0: must not be negative"),
        (lambda: GAME.cascade(outside=None), "outside: must say what each client has"),
        (lambda: GAME.cascade(outside=0.0, order=ONES), "order = .*must be .sequential. or .simultaneous."),
        (lambda: GAME.cascade(outside=0.0, offers=ONES), "offers = .*must be Offers"),
        (lambda: GAME.cascade(outside=0.0, offers=sf.Offers("gift", ONES, ONES, ONES)), "offers = 'gift'"),
        (lambda: GAME.cascade(ONES, outside=0.0, offers=sf.Offers.linear(ONES)), "payments: are part of the offers"),
        (lambda: GAME.solve(None, offers="capped", payment_weight=1.0, outside=but(ONES, 6, 1e300)),
         r"outside\[client Linz\] = 1e\+300: is more than any budget can meet"),
        (lambda: GAME.solve(0.1, outside=0.0), "outside: .*ask for offers=.capped."),
        (lambda: GAME.solve(0.1, costs_between=(COSTS, COSTS)), "costs_between: .*ask for offers=.capped."),
        (lambda: GAME.solve(0.1, offers="contract", costs_between=(COSTS, COSTS)), "costs_between: is not an option"),
        (lambda: GAME.solve(0.1, offers="capped", costs_between=COSTS), "costs_between: must be two vectors"),
        (lambda: GAME.solve(0.1, offers="capped", costs_between=3.0), "costs_between: must be two vectors"),
        (lambda: GAME.solve(0.1, offers="capped", costs_between=(but(COSTS, 5, 9), COSTS)),
         r"costs_between\[client Graz\] = \(9, .*: must go from a smaller to a larger positive cost"),
        (lambda: GAME.solve(0.1, offers="capped", costs_between=(NOTHING, but(COSTS, 5, 0))),
         r"costs_between\[client Graz\] = \(0, 0\)"),
        (lambda: GAME.solve(0.1, offers="capped", costs_between=(but(COSTS, 5, -1), COSTS)),
         r"costs_between\[client Graz\] = \(-1, "),
        (lambda: GAME.solve(0.1, offers=ONES), "offers = .*must be .linear., .capped. or .contract."),
        (lambda: GAME.solve(0.1, offers="contract", time_limit="long"), "time_limit = 'long': must be a number"),
        (lambda: GAME.solve(0.1, offers="capped", start=[[0.5] * 7, [0.5]]), "start = .*must be a participation profile"),
        (lambda: GAME.solve(0.1, offers="capped", start=but(ONES, 3, 2)), r"participation\[client Bonn\] = 2.0"),
        (lambda: GAME.solve("much", offers="capped"), "budget = 'much': must be a number or None"),
        (lambda: GAME.solve(10**400, offers="capped"), "budget = .*must be a number or None"),
        (lambda: GAME.solve(np.nan, "posted"), "budget = nan: must not be negative or NaN"),
        (lambda: GAME.cheapest(np.array([1.0, 2.0]), offers="capped"), r"max_loss = array\(.*must be a number"),
        (lambda: posted_offers(GAME, 1.0).payouts([1.0, 2.0]), r"participation = \(2,\): needs 7 numbers"),
        (lambda: Acceptance(GAME, NOTHING, ONES, (), True).transfers(2.0), r"premium = 2.0: must lie in \[0, 1\]"),
        (lambda: Acceptance(GAME, NOTHING, ONES, (), True).transfers("much"), "premium = 'much': must be a number"),
        (lambda: worst_equilibrium(GAME, HALF, premium=np.nan), "premium = nan: must lie"),
    ],
)  # fmt: skip
def test_values_that_make_no_sense_are_refused(call, words):
    with pytest.raises(sf.InputError, match=words):
        call()


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize("offers", ["capped", "contract"])
def test_outside_utilities_that_the_budget_cannot_meet_name_the_client_before_any_search(offers):
    with pytest.raises(sf.InfeasibleError, match=r"at least 5.02.*client Lyon, whose outside utility is 5\)"):
        GAME.solve(0.5, offers=offers, outside=but(np.full(7, -np.inf), 4, 5.0), **QUICK)


def test_least_keeping_is_what_every_plan_costs_at_least():
    """Whatever is taken of whom, retention pays at least that: by hand lam a + o_k, where positive."""
    outside = np.linspace(-0.1, 0.2, 7)
    least = np.maximum(GAME.lambda_q * 30.0 / GAME.sizes.sum() + outside, 0.0).sum()
    rng = np.random.default_rng(0)
    for _ in range(50):
        x = rng.uniform(size=7) * (rng.uniform(size=7) < 0.7)
        x[rng.integers(7)] = 1.0
        for make in (sf.model.offers.capped_offers, sf.model.offers.contract_offers):
            assert make(GAME, GAME.profile(x), outside).most >= least


def test_contracts_without_a_floor_that_keep_everybody_are_found_or_cost_too_much():
    """Errors about contracts do not mention that capped offers need a floor."""
    outside = np.full(7, -0.01)
    kept = GAME.solve(1.2, offers="contract", outside=outside, gap=0.3, max_nodes=20, progress=False)
    assert kept.verify(), kept.verify().message
    assert GAME.cascade(offers=kept.offers, outside=outside).stable
    with pytest.raises((sf.ConvergenceError, sf.InfeasibleError), match="0.12"):
        GAME.solve(0.12, offers="contract", outside=outside, gap=0.3, max_nodes=20, progress=False)


# -------------------------------------------------------------------- what answers reveal, and prices that learn


@pytest.mark.parametrize(
    ("payments", "participation", "words"),
    [
        (NOTHING, NOTHING, "participation = 0: nobody takes part"),
        (NOTHING, but(HALF, 2, 1.5), r"participation\[client Rome\] = 1.5: must lie in \[0, 1\]"),
        (but(NOTHING, 2, -1), HALF, r"payments\[client Rome\] = -1.0: must not be negative"),
        ([NOTHING, 9 * ONES], [0.9 * ONES, 0.1 * ONES],
         r"participation\[client York\]: contradicts an earlier answer: its cost would be at least 9.* and at most 0.0"),
        ([NOTHING, NOTHING], [HALF], "participation = 1: needs 2 rows"),
        (np.zeros((1, 2, 7)), np.zeros((1, 2, 7)), "payments: needs 7 numbers"),
        ([], [], "payments: needs 7 numbers"),
    ],
)  # fmt: skip
def test_answers_that_reveal_nothing_or_too_much_are_refused(payments, participation, words):
    with pytest.raises(sf.InputError, match=words):
        GAME.costs_from(payments, participation)


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PostedPrices("game", COSTS, COSTS, 0.1), "game = 'game': must be a StackelbergGame"),
        (lambda: PostedPrices(GAME, but(COSTS, 5, 9), COSTS, 0.1), r"low and high\[client Graz\] = \(9, "),
        (lambda: PostedPrices(GAME, COSTS, COSTS, "much"), "budget = 'much': must be a number"),
        (lambda: PostedPrices(GAME, COSTS, COSTS, -1.0), "budget = -1.0: must not be negative"),
        (lambda: PostedPrices(GAME, COSTS, COSTS, np.nan), "budget = nan: must not be negative"),
        (lambda: PostedPrices(GAME, COSTS, COSTS, [0.1]), r"budget = \[0.1\]: must be a number"),
        (lambda: PostedPrices(GAME, COSTS, COSTS, 0.1, probe=[0.5]), r"probe = \[0.5\]: must be a number"),
        (lambda: PostedPrices(GAME, COSTS, COSTS, 0.1, probe=np.nan), "probe = nan: must lie"),
        (lambda: PostedPrices(GAME, COSTS, COSTS, 0.1).post(costs_between=(COSTS, COSTS)), "costs_between: are what"),
        (lambda: PostedPrices(GAME, COSTS, COSTS, 0.1).post(offers="linear"), "offers: is not an option"),
        (lambda: PostedPrices(GAME, COSTS, COSTS, 0.1).answer(COSTS), "true_costs: nothing has been posted"),
        (lambda: regret_curve(GAME, COSTS, COSTS, 0.1, requests=0), "requests = 0: must be a whole number of at least 1"),
        (lambda: regret_curve(GAME, COSTS, COSTS, 0.1, requests=1.5), "requests = 1.5: must be a whole number of at least 1"),
        (lambda: regret_curve(GAME, COSTS, COSTS, 0.1, linear_guesses=[1.0, np.nan]), "linear_guesses = nan"),
        (lambda: regret_curve(GAME, COSTS, COSTS, 0.1, linear_guesses="ab"), "linear_guesses = 'ab'"),
        (lambda: regret_curve(GAME, COSTS, COSTS, 0.1, colour=1), "colour: is not an option"),
    ],
)  # fmt: skip
def test_a_loop_that_learns_is_told_what_is_wrong_before_it_posts(call, words):
    with pytest.raises(sf.InputError, match=words):
        call()


def test_a_loop_refuses_answers_that_cannot_be():
    loop = PostedPrices(GAME, 0.5 * COSTS, 2.0 * COSTS, 0.1)
    offers = loop.post(gap=0.3, progress=False)
    before = loop.intervals
    for answer, words in (
        (NOTHING, "nobody takes part"),
        (but(offers.caps, 4, np.nan), r"participation\[client Lyon\] = nan"),
        (but(offers.caps, 0, 1.0), r"participation\[client York\] = 1.0: is more than the cap"),
        ("all of it", "participation = 'all of it'"),
    ):
        with pytest.raises(sf.InputError, match=words):
            loop.observe(answer)
    with pytest.raises(sf.InputError, match=r"costs\[client Lyon\] = -1.0"):
        loop.answer(but(COSTS, 4, -1))
    assert loop.intervals is before
    assert not loop.history


# -------------------------------------------------------------------- manipulation and several requests


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"factors": 2.0}, "factors = 2.0: must be a list of factors"),
        ({"factors": [[2.0]]}, r"factors = \[2.0\]: must be a number"),
        ({"factors": [None]}, "factors = None: must be a number"),
        ({"factors": [0.0]}, "factors = 0.0: must be positive"),
        ({"kinds": 3}, "kinds = 3: must be a list of cost, size, embedding"),
        ({"kinds": [None]}, "kinds = None: must be among"),
        ({"clients": 4}, "clients = 4: there is no such remaining client; .*4 as a position would be 'Hull'"),
        ({"clients": ["Leeds"]}, "clients = 'Leeds': there is no such remaining client"),
        ({"clients": [None]}, "clients = None: must hold client numbers or names"),
    ],
)
def test_lies_that_nobody_can_tell_are_refused(options, words):
    posted = GAME.solve(0.06, "posted")
    with pytest.raises(sf.InputError, match=words):
        posted.manipulation(**options)


def test_what_lying_pays_is_asked_of_solutions_of_the_game():
    posted = GAME.solve(0.06, "posted")
    for other in (None, "posted", GAME.equilibrium(), posted.offers):
        with pytest.raises(sf.InputError, match=r"^result = .*must be a solution of this game"):
            GAME.manipulation(other)
    with pytest.raises(sf.InputError, match="must be a solution of this game"):
        GAME.replace(lambda_q=2.0).manipulation(posted)


def test_lists_may_be_given_in_any_way_that_can_be_iterated():
    posted = GAME.solve(0.06, "posted")
    once = posted.manipulation(kinds=["cost"], clients=["York"], factors=[2.0])
    again = posted.manipulation(
        kinds=(k for k in ["cost"]), clients=(k for k in ["York"]), factors=np.array([2.0])
    )
    assert once.summary() == again.summary()


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize(
    ("budget", "clients", "options", "words"),
    [
        (-1.0, ["York"], {}, "budget = -1.0: must not be negative or NaN"),
        (np.nan, ["York"], {}, "budget = nan: must not be negative or NaN"),
        ([1.0], ["York"], {}, r"budget = \[1.0\]: must be a number"),
        (1.0, ["York", "York"], {}, "removed = 'York': names a client twice"),
        (1.0, ["York", "York "], {}, "removed = 'York': names a client twice"),
        (
            1.0,
            ["York", 3],
            {},
            "removed = 3: there is no such remaining client; .*3 as a position would be 'York'",
        ),
        (1.0, ["Paris"], {}, "removed = 'Paris': there is no such remaining client"),
        (1.0, "Leeds", {}, "removed = 'Leeds': there is no such remaining client"),
        (1.0, [-1], {}, "removed = -1: there is no such remaining client"),
        (1.0, None, {}, "removed = None: must hold client numbers or names"),
        (1.0, 3.5, {}, "removed = 3.5: there is no such remaining client"),
        (1.0, NAMES[3:], {}, "removed = .*: nobody is left"),
        (1.0, NAMES[3:9], {}, "removed = .*: only client Linz is left"),
        (1.0, ["York"], {"share": 2.0}, r"share = 2.0: must lie in \(0, 1\]"),
        (1.0, ["York"], {"share": "half"}, "share = 'half': must be a number"),
        (1.0, ["York"], {"share": [0.5]}, r"share = \[0.5\]: must be a number"),
        (1.0, ["York"], {"offers": "caped"}, "offers = 'caped': must be"),
        (1.0, ["York"], {"outside": [0.0] * 7}, "outside = .*needs 6 numbers"),
        (1.0, ["York"], {"colour": 1}, "colour: is not an option"),
    ],
)
def test_removals_that_cannot_be_are_refused(budget, clients, options, words):
    with pytest.raises(sf.InputError, match=words):
        sf.Requests(GAME, budget).remove(clients, **{"offers": "capped", **options})


# -------------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["solve", "-b", "0.1", "--offers", "caped"], 2, "--offers = 'caped': must be"),
        (["solve", "-b", "0.1", "--offers", "capped", "--outside", "much"], 2, "--outside = 'much': must be a number"),
        (["solve", "-b", "0.1", "--offers", "capped", "--outside", "York=nan"], 2, "--outside[client York] = nan"),
        (["solve", "-b", "0.1", "--offers", "capped", "--outside", "1e300"], 2, "--outside[client York] = 1e+300: is more"),
        (["solve", "-b", "0.1", "--offers", "capped", "--outside", "Leeds=1"], 2, "'Leeds': there is no such remaining client"),
        (["solve", "-b", "0.1", "--offers", "contract", "--outside", "Lyon=5"], 3, "client Lyon, whose outside utility is 5"),
        (["solve", "-b", "0.1", "--outside", "0"], 2, "--outside: clients are kept by capped offers or contracts"),
        (["solve", "-b", "nan", "--offers", "capped"], 2, "--budget = nan: must not be negative or NaN"),
        (["cheapest", "--max-loss", "nan", "--offers", "capped"], 2, "--max-loss = nan: must not be negative"),
        (["cheapest", "--max-loss", "0.1", "--offers", "gift"], 2, "--offers = 'gift': must be"),
        (["cascade", "--outside", "1,2"], 2, "--outside = 1,2: needs 7 numbers"),
        (["cascade", "--outside", "inf"], 2, "--outside[client York] = inf"),
        (["cascade", "--outside", "0", "--order", "any"], 2, "--order = 'any': must be"),
        (["equilibria", "--caps", "York=2"], 2, "--caps[client York] = 2.0: must lie in [0, 1]"),
        (["equilibria", "--caps", "nan,1,1,1,1,1,1"], 2, "--caps[client York] = nan: must be finite"),
    ],
)  # fmt: skip
def test_the_command_line_names_what_was_typed(arguments, code, said, tmp_path, capsys):
    file = tmp_path / "game.json"
    GAME.save(file)
    assert main([arguments[0], str(file), *arguments[1:]]) == code
    assert said in " ".join(capsys.readouterr().err.split())


# -------------------------------------------------------------------- anything at all


def in_order(values, others):
    """Values given by name, in the clients' order."""
    return [values.get(name, others) for name in GAME.names] if isinstance(values, dict) else values


ODD = st.one_of(
    st.floats(),
    st.integers(-(10**400), 10**400),
    st.text(max_size=5),
    st.none(),
    st.booleans(),
    st.complex_numbers(),
    st.binary(max_size=3),
)
GARBAGE = st.one_of(
    ODD,
    st.lists(ODD, min_size=7, max_size=7),
    st.lists(st.floats(-0.5, 1.5), min_size=7, max_size=7),
    st.recursive(ODD, lambda inner: st.lists(inner, max_size=4), max_leaves=10),
    st.dictionaries(st.sampled_from(NAMES), ODD, max_size=3),
    st.lists(st.floats(), min_size=14, max_size=14).map(lambda v: np.array(v).reshape(2, 7)),
)


@settings(max_examples=150)
@given(GARBAGE)
def test_any_caps_are_refused_or_kept(caps):
    try:
        found = GAME.equilibrium(caps=caps)
    except sf.InputError as error:
        assert error.argument == "caps"
        return
    except (sf.NoEquilibriumError, sf.ConvergenceError):
        return
    kept = np.ones(7) if caps is None else np.asarray(in_order(caps, 1.0), dtype=float)
    assert found.participation.shape == (7,)
    assert (found.participation <= kept).all()


@settings(max_examples=100)
@given(GARBAGE)
def test_any_outside_utilities_are_refused_or_mean_what_they_say(outside):
    try:
        found = GAME.cascade(0.5 * COSTS, outside=outside, order="simultaneous")
    except sf.InputError as error:
        assert error.argument == "outside"
        return
    except sf.ConvergenceError:
        return
    assert {*found.departed, *found.stayed} == set(range(3, 10))
    there = np.broadcast_to(np.asarray(in_order(outside, -np.inf), dtype=float), 7)
    for departure in found:
        assert len(departure.utilities) == len(departure.clients)
        assert np.isfinite(there[[k - 3 for k in departure.leaving]]).all() or not np.isfinite(
            departure.server_loss
        )


@settings(max_examples=150)
@given(GARBAGE, GARBAGE, st.booleans())
def test_any_intervals_are_refused_or_hold_costs(low, high, swapped):
    for ends in ((low, 9 * ONES), (0.001 * COSTS, high), (low, high)):
        try:
            loop = PostedPrices(GAME, *(ends[::-1] if swapped else ends), 0.1)
        except sf.InputError as error:
            assert error.argument in ("low", "high", "low and high")
            continue
        known = loop.intervals
        assert (known.low >= 0).all()
        assert (known.low <= known.high).all()
        assert np.isfinite(known.high).all()
        assert (known.high > 0).all()


@settings(max_examples=100)
@given(GARBAGE, GARBAGE, st.one_of(st.none(), GARBAGE))
def test_any_answers_are_refused_or_reveal_intervals(payments, participation, caps):
    try:
        known = GAME.costs_from(payments, participation, caps)
    except sf.InputError as error:
        assert error.argument in ("payments", "participation", "caps")
        return
    assert (known.low <= known.high).all()


@pytest.mark.parametrize("offers", ["linear", "capped"])
def test_time_need_not_be_limited(offers):
    found = GAME.solve(0.1, offers=offers, gap=0.3, time_limit=np.inf, progress=False)
    assert found.status is sf.Status.CERTIFIED
