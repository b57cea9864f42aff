"""Every public member of a solution is about what is posted: prices with their caps, contracts, and retainers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import stackfu as sf
from stackfu.catalog import three_equilibria
from stackfu.demo import digits_game
from stackfu.model.offers import capped_offers, contract_offers

#: A client that is not asked for data is kept by a retainer.
KEPT = {"7": 0.0}
QUICK = {"gap": 1e-2, "max_nodes": 200, "progress": False}
CASES = {
    "linear": {},
    "grouped": {"method": "grouped", "groups": list("ababaab")},
    "uniform": {"method": "uniform"},
    "haipo": {"method": "haipo"},
    "posted": {"method": "posted"},
    "capped": {"offers": "capped", "min_total": 0.2},
    "capped, kept": {"offers": "capped", "min_total": 0.2, "outside": KEPT, "payment_weight": 1.0},
    "capped haipo": {"method": "haipo", "offers": "capped"},
    "contract": {"offers": "contract", "min_total": 0.2},
    "contract, kept": {"offers": "contract", "min_total": 0.2, "outside": KEPT, "payment_weight": 1.0},
    "contract uniform": {"method": "uniform", "offers": "contract"},
}


def solved(case):
    asked = dict(CASES[case])
    if asked.get("method", "certified") == "certified":
        asked |= QUICK
    return digits_game(sampling_constant=30.0).solve(0.4 if "outside" in asked else 0.06, **asked)


class Reading:
    """Payouts, utilities and samples, computed from prices, caps and retainers by the definitions alone."""

    def __init__(self, s):
        game, o = s.game, s.offers
        self.x, self.prices, self.caps, self.retainers = s.participation, o.prices, o.caps, o.retainers
        assert np.all(self.x <= self.caps * (1 + 1e-12))
        whole = self.x >= self.caps * (1 - 1e-12)
        per_unit = self.prices * np.minimum(self.x, self.caps)
        self.payouts = np.where(whole, per_unit, 0.0) if o.kind == "contract" else per_unit
        self.payouts = self.payouts + self.retainers
        self.profile = game.profile(self.x)
        drift = game.lam * (self.profile.to_clients + game.sampling / self.profile.total)
        self.utilities = self.payouts - game.costs * self.x - drift
        self.samples = game.sizes * self.x


def same(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def check_equilibria(s, r):
    found = s.equilibria
    assert any(np.allclose(e.participation, r.x, atol=1e-5) for e in found)
    for e in found:
        assert np.all(e.participation <= r.caps * (1 + 1e-9))
        same(e.payouts, s.offers.payouts(e.participation))
        same(e.spend, e.payouts.sum())
    if s.equilibrium.uniqueness is sf.Uniqueness.UNIQUE:
        assert len(found) == 1


def check_pair(s, r):
    losses = [s.server_loss, *(s.game.server_loss(e.participation) for e in s.equilibria)]
    same(s.optimistic, min(losses))
    same(s.pessimistic, max(losses))


def check_spends(s, r):
    low, high = s.spend_range
    spends = [s.offers.payouts(e.participation).sum() for e in s.equilibria]
    assert low <= min(spends) * (1 + 1e-9)
    assert high >= max(spends) * (1 - 1e-9)
    assert high <= s.offers.most * (1 + 1e-9) or s.offers.kind == "linear"


def check_active(s, r):
    who = {int(k): i for i, k in enumerate(s.game.remaining)}
    for name, clients in s.active.items():
        for k in clients:
            x, paid = r.x[who[k]], r.payouts[who[k]]
            assert {"out": x == 0, "partial": 0 < x < 1, "full": x == 1 and paid > 0,
                    "volunteers": x == 1 and paid == 0}[name]  # fmt: skip


def check_values(s, r):
    found = s.values()
    assert found.clients == s.game.names
    same(found.empty - found.whole, s.game.server_loss(r.x))
    same(found.shapley.sum(), found.whole)


def check_sensitivity(s, r):
    if s.offers.kind == "linear":
        return  # tests/sensitivity
    with pytest.raises(sf.InputError):
        s.sensitivity("budget")


def check_marginal_effects(s, r):
    found = s.marginal_effects()
    if s.offers.kind == "contract":
        assert "all or nothing" in found.reason
        return
    if not found.reason:  # a client at its cap brings no more, whatever it is paid
        held = (r.x >= r.caps * (1 - 1e-9)) & (r.x > 0)
        assert not found.own[held].any()


def check_summary(s, r):
    found = s.summary()
    same(found["spend"], r.payouts.sum())
    same(found["equilibrium"]["spend"], r.payouts.sum())
    same(found["equilibrium"]["utilities"], r.utilities)
    same(found["samples"], r.samples)
    same(found["samples_used"], r.samples.sum())
    same(found["equilibrium"]["samples_used"], r.samples.sum())
    if s.offers.kind == "linear":
        assert "offers" not in found
    else:
        assert found["offers"]["kind"] == s.offers.kind
        same(found["offers"]["caps"], r.caps)
        same(found["offers"]["retainers"], r.retainers)


def check_frame(s, r):
    frame = s.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.index) == list(s.game.names)
    for name, values in (("utility", r.utilities), ("participation", r.x)):
        if name in frame:
            same(frame[name], values)
    if s.offers.kind != "linear":
        same(frame["cap"], r.caps)
        same(frame["retainer"], r.retainers)
        same(frame["receives"], r.payouts)


def check_page(s, r):
    page = s._repr_html_()
    assert f"{r.payouts.sum():.4g}" in page
    assert {"linear": "Payments", "capped": "Capped offers", "contract": "Contracts"}[s.offers.kind] in page
    assert "samples" in page
    assert ("for at most" in page) == (s.offers.kind != "linear")


def check_plot(s, r):
    ax = s.plot()
    assert f"spend {r.payouts.sum():.4g}" in ax.get_title()
    ax.figure.clear()


def check_clients(s, r):
    for name, values in (("payment", r.prices), ("participation", r.x), ("samples", r.samples), ("receives", r.payouts),
                         ("utility", r.utilities)):  # fmt: skip
        same([getattr(client, name) for client in s.clients], values)
    if s.offers.kind != "linear":
        same([client.cap for client in s.clients], r.caps)


def check_whole(s, r):
    whole = s.whole_samples()
    assert np.all(np.abs(whole.counts - r.samples) < 1 + 1e-9)
    same(whole.spend, r.prices @ (whole.counts / s.game.sizes) + r.retainers.sum())


def check_price(s, r):
    if s.method != "certified":
        assert np.isnan(s.shadow_price)
    else:
        assert s.shadow_price >= 0.0


def check_saved(s, r, path):
    s.save(path / "s.json")
    loaded = sf.load(path / "s.json")
    assert loaded.offers.kind == s.offers.kind
    same(loaded.spend, s.spend)
    same(loaded.equilibrium.utilities, s.equilibrium.utilities)
    assert loaded.verify(), loaded.verify().message


def check_lies(s, r):
    """Gains from misreporting are computed for mechanisms, of which the certified ones take minutes."""
    if s.method in ("uniform", "posted"):
        assert s.manipulation(kinds=("cost",), factors=(0.9,), clients=[3]).misreports


#: For every public member what it must say; None: it does not depend on what is posted, or is what the others are compared with.
MEMBERS = {
    "offers": None, "game": None, "budget": None, "goal": None, "limits": None, "robust": None, "own_options": None,
    "message": None, "nodes": None, "seconds": None, "history": None, "certificate": None, "method": None, "status": None,
    "lower_bound": None, "proves": None, "outside": None,
    "payments": lambda s, r: same(s.payments, r.prices),
    "posted": lambda s, r: same((s.posted or s.offers).prices, r.prices),
    "caps": lambda s, r: same(s.caps, r.caps),
    "payouts": lambda s, r: same(s.payouts, r.payouts),
    "participation": lambda s, r: same(s.equilibrium.participation, r.x),
    "equilibrium": lambda s, r: (same(s.equilibrium.payouts, r.payouts), same(s.equilibrium.utilities, r.utilities)),
    "spend": lambda s, r: same(s.spend, r.payouts.sum()),
    "samples": lambda s, r: same(s.samples, r.samples),
    "samples_used": lambda s, r: same(s.samples_used, r.samples.sum()),
    "cautions": lambda s, r: s.cautions == [] or pytest.fail(str(s.cautions)),
    "server_loss": lambda s, r: same(s.server_loss, s.game.server_loss(r.x)),
    "objective": lambda s, r: same(
        s.objective, s.goal.value(s.game.loss_of(r.profile, s.goal.finite_sample), r.payouts.sum())),
    "gap": lambda s, r: same(s.gap, max(s.objective - s.lower_bound, 0)),
    "relative_gap": lambda s, r: same(s.relative_gap, s.gap / s.objective),
    "equilibria": check_equilibria,
    "optimistic": check_pair,
    "pessimistic": check_pair,
    "shadow_price": check_price,
    "spend_range": check_spends,
    "active": check_active,
    "raise_for_status": lambda s, r: not s.status.success or s.raise_for_status() is s,
    "options": lambda s, r: s.options["min_total"] == s.goal.min_total,
    "verify": lambda s, r: s.verify() or pytest.fail(s.verify().message),
    "manipulation": check_lies,
    "stated": lambda s, r: s.stated().get("offers", {"kind": "linear"})["kind"] == s.offers.kind,
    "summary": check_summary,
    "to_pandas": check_frame,
    "plot": check_plot,
    "whole_samples": check_whole,
    "save": None, "mechanism": None, "to_excel": None,
    "clients": check_clients,
    "payments_by_name": lambda s, r: same(list(s.payments_by_name.values()), r.prices),
    "to_dict": lambda s, r: same(s.to_dict()["equilibrium"]["utilities"], r.utilities),
    "to_csv": None,  # the table of to_pandas
    "values": check_values,
    "sensitivity": check_sensitivity,
    "marginal_effects": check_marginal_effects,
}  # fmt: skip


def test_every_public_member_is_in_the_list():
    """A new member has to say how it speaks of caps, contracts and retainers."""
    members = {name for name in dir(sf.Solution) if not name.startswith("_")}
    members |= set(sf.Solution.__dataclass_fields__)
    assert members <= set(MEMBERS), members - set(MEMBERS)


@pytest.mark.parametrize("case", CASES)
def test_every_public_member_is_about_what_is_posted(case, tmp_path):
    s = solved(case)
    assert s.status is not sf.Status.FAILED, s.message
    kind = "capped" if case == "posted" else CASES[case].get("offers", "linear")  # posted prices have caps
    assert s.offers.kind == kind
    r = Reading(s)
    for check in MEMBERS.values():
        if check is not None:
            check(s, r)
    check_page(s, r)
    check_saved(s, r, tmp_path)


def test_retainers_count_in_spend_and_utilities():
    s = solved("capped, kept")
    assert s.offers.retainers.any(), "the case is to have retainers"
    same(s.equilibrium.spend, s.payments @ s.participation + s.offers.retainers.sum())
    forged = replace(s, equilibrium=replace(s.equilibrium, retainers=2.0 * s.offers.retainers))
    assert not forged.verify()
    assert "retainers" in forged.verify().message


def test_capped_offers_have_the_equilibria_of_their_caps():
    """Under the prices alone there are three equilibria, under the capped offers of one of them only itself."""
    known = three_equilibria()
    game, every = known.game, known.game.equilibria(known.payments)
    assert len(every) == 3
    offers = capped_offers(game, every[1].profile)
    found = game.equilibria(offers=offers)
    assert len(found) == 1
    assert found[0].participation == pytest.approx(every[1].participation, abs=1e-9)
    with pytest.raises(sf.InputError, match="payments.*part of the offers"):
        game.equilibria(known.payments, offers=offers)


def test_contracts_have_the_equilibria_in_which_some_reject():
    found_some = False
    for seed in range(12):
        rng = np.random.default_rng(seed)
        emb = sf.MeanEmbeddings.from_features(rng.normal(size=(5, 2)))
        game = sf.StackelbergGame(emb, [1, 1, 1, 1, 1], removed=[0], cost_scale=2.0, sampling_constant=0.1)
        offers = contract_offers(game, game.profile(rng.uniform(0.2, 1.0, size=4)))
        found = game.equilibria(offers=offers)
        assert [e.total for e in found] == sorted(e.total for e in found)
        assert any(np.array_equal(e.participation, offers.caps) for e in found)
        for e in found:
            same(
                e.payouts,
                offers.payouts(
                    np.where(e.participation >= offers.caps * (1 - 1e-9), offers.caps, e.participation)
                ),
            )
        found_some = found_some or len(found) > 1
    assert found_some
