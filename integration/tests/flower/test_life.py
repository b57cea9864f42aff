"""The life of a request: it ends, whatever clients do; its terms can change; money is money; clients look for themselves."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord
from scene import CLIENTS, REMOVED, SIZES, TERMS, TRAINING_ROUNDS, Averager, Killed, Scene, initial

from stackfu.errors import InputError
from stackfu_integration.flower import Terms, UnlearningMechanism
from stackfu_integration.flower.client_state import read_receipts
from stackfu_integration.flower.events import (
    ClientCommitted,
    ClientEnrolled,
    ClientPaid,
    GameFounded,
    GameSolved,
    PriceOffered,
    RequestAborted,
    RequestClosed,
    TermsAmended,
)
from stackfu_integration.flower.keys import SigningKey, read_public_key
from stackfu_integration.flower.ledger import RUN
from stackfu_integration.flower.phases import offers, responses, session
from stackfu_integration.flower.phases.enrolment import NotEnoughNodesError
from stackfu_integration.flower.receipts import PAYMENT
from stackfu_integration.flower.verification import verify
from stackfu_integration.flower.wire import EMBED, MEASURE, RESPOND, ROLL, UNLEARN

FAULTY = 5


def when(kind, act):
    return lambda message, answer: (
        act(message, answer) if message.metadata.message_type == kind else answer(message)
    )


def silence(message, answer):
    return None


def with_terms(scene: Scene, **changes) -> Scene:
    scene.terms = replace(scene.terms, **changes)
    return scene


def settings_changed(**entries):
    """Let a client hear something else than the server wrote down."""

    def act(message, answer):
        message.content["config"] = ConfigRecord({**message.content["config"], **entries})
        return answer(message)

    return act


# ---- every request ends


def check_aborted(scene: Scene, facts, reason: str) -> None:
    assert reason in facts["aborted"]["reason"]
    assert facts["closed"] is not None
    assert reason in (scene.folder / "audit-r1.md").read_text()
    assert verify(scene.folder).misfit is None


def test_one_client_is_left(scene):
    for client in range(CLIENTS):
        if client not in (*REMOVED, FAULTY):
            scene.behaviours[client] = when(EMBED, silence)
    facts = scene.run()
    check_aborted(scene, facts, "two remaining clients")
    assert facts["paid"] == 0.0


def test_the_budget_buys_nothing(scene):
    """No client brings a whole sample: with costs this high none gains by taking part."""
    with_terms(scene, budget=0.0, cost_scale=1e5, method="uniform")
    check_aborted(scene, scene.run(), "whole sample")


def test_clients_quit_one_after_the_other(scene):
    leaving = itertools.cycle(range(2, CLIENTS))
    turn = {"who": None, "asked": 0}

    def quits(client):
        def act(message, answer):
            turn["asked"] += 1
            if turn["who"] is None:
                turn["who"] = next(leaving)
            if turn["who"] == client:
                turn["who"] = None
                return None
            return answer(message)

        return when(RESPOND, act)

    scene.behaviours = {client: quits(client) for client in range(2, CLIENTS)}
    check_aborted(scene, scene.run(), "two remaining clients")
    assert turn["asked"] < 100


class Fickle(Averager):
    turns = itertools.count()

    def decide(self, offer):
        return float(next(self.turns) % 2) if self.client == FAULTY else super().decide(offer)


def test_answers_that_drip_end_an_attempt_in_time(scene, monkeypatch):
    """Every answer comes in time and none is the last one; the clock is the test's."""
    clock = itertools.count(0.0, 50.0)
    monkeypatch.setattr(
        responses, "time", type("Clock", (), {"monotonic": staticmethod(lambda: next(clock))})
    )
    scene.load = Fickle
    facts = with_terms(scene, announcements=10**9, attempt_seconds=1000.0).run()
    assert facts["closed"] is not None
    assert next(clock) < 40 * 1000.0


def test_a_request_past_its_deadline_is_aborted_and_what_was_delivered_is_paid(scene, monkeypatch):
    import time

    def die(message, answer):
        if message.content["config"]["server-round"] == 2:
            raise Killed
        return answer(message)

    scene.behaviours[FAULTY] = when(UNLEARN, die)
    with pytest.raises(Killed):
        scene.run()
    later = type("Clock", (), {"time": staticmethod(lambda: time.time() + TERMS.deadline + 1.0)})
    monkeypatch.setattr(session, "time", later)
    facts = scene.run()
    check_aborted(scene, facts, "deadline")
    assert 0 < facts["paid"] < facts["responses"]["regret"] + facts["budget"]
    paid = {c["client"]: c for c in facts["clients"] if c["paid"] > 0}
    assert all(c["rounds_passed"] == 1 and c["rounds_agreed"] == 3 for c in paid.values())


def test_nobody_delivers_any_more(scene):
    scene.behaviours = {client: when(UNLEARN, silence) for client in range(CLIENTS)}
    check_aborted(scene, scene.run(), "no usable model")


def test_an_operator_aborts_and_the_clients_stay(scene):
    def die(phase):
        if phase == "offers":
            raise Killed

    with pytest.raises(Killed):
        scene.run(after=die)
    mechanism, grid = scene.mechanism(), scene.grid()
    with pytest.raises(InputError, match="reason"):
        mechanism.abort("r1", " ")
    facts = mechanism.abort("r1", "the clients took it back")
    check_aborted(scene, facts, "the clients took it back")
    assert "did not" in (scene.folder / "audit-r1.md").read_text()
    with pytest.raises(InputError, match="not open"):
        mechanism.abort("r1", "again")
    again = mechanism.remove(grid, (*REMOVED, 3), request="r2")  # 0 and 1 are still there to be removed
    assert again["aborted"] is None
    assert verify(scene.folder).misfit is None


def test_killed_while_aborting_the_rest_is_done_later(scene, monkeypatch):
    def die(*_):
        raise Killed

    with_terms(scene, budget=0.0, cost_scale=1e5, method="uniform")
    monkeypatch.setattr(UnlearningMechanism, "_wind_up", die)
    with pytest.raises(Killed):
        scene.run()
    monkeypatch.undo()
    with scene.ledger() as ledger:
        assert ledger.has("r1", RequestAborted)
        assert not ledger.has("r1", RequestClosed)
    check_aborted(scene, scene.run(), "whole sample")


# ---- other terms


def test_terms_are_amended_with_a_reason_before_anybody_is_committed(scene):
    def die(phase):
        if phase == "offers":
            raise Killed

    with pytest.raises(Killed):
        scene.run(after=die)
    amended = replace(scene.terms, budget=0.01, currency="EUR")
    mechanism = scene.mechanism()
    with pytest.raises(InputError, match="cannot be amended"):
        mechanism.amend("r1", replace(amended, features=32), "fewer numbers")
    mechanism.amend("r1", amended, "the board cut the budget")
    with pytest.raises(InputError, match="other clients or other terms"):
        scene.mechanism().remove(scene.grid(), REMOVED)  # the old terms do not hold any more
    facts = mechanism.remove(scene.grid(), REMOVED)
    assert facts["budget"] == 0.01
    assert facts["paid"] <= 0.01 * (1 + 1e-9)
    assert facts["offers_made"] == 2
    text = (scene.folder / "audit-r1.md").read_text()
    assert "the board cut the budget" in text
    assert "0.01 EUR" in text
    with scene.ledger() as ledger:
        assert ledger.need("r1", GameFounded).amendment == ledger.need("r1", TermsAmended).number == 0
        assert ledger.need("r1", GameSolved).limit == 0.01
    assert verify(scene.folder).misfit is None
    with pytest.raises(InputError, match="not open"):
        mechanism.amend("r1", amended, "too late")


# ---- money


def test_a_budget_of_zero_is_zero_wherever_it_is_stated():
    assert Terms.from_config({"budget": 0.0}).budget == 0.0
    assert Terms.from_config({"budget": "0"}).budget == 0.0
    assert Terms.from_config({"budget": ""}).budget is None
    assert Terms.from_config({"epsilon": "none"}).epsilon is None
    assert Terms.from_config({"epsilon": ""}).epsilon == Terms().epsilon
    with pytest.raises(InputError, match="must be a number"):
        Terms.from_config({"budget": "much"})
    read = Terms.from_config({"costs": "Leeds=3.5, 2=4", "cost-intervals": "York=1:2", "decimals": "2"})
    assert read.costs == {"Leeds": 3.5, "2": 4.0}
    assert read.cost_intervals == {"York": (1.0, 2.0)}
    assert Terms.restated(read.stated()) == read


def test_stated_costs_are_planned_with_and_payments_are_in_whole_coins(scene):
    with_terms(scene, costs={"4": 0.4}, cost_intervals={"6": (0.5, 1.5)}, currency="EUR", decimals=3)
    facts = scene.run()
    with scene.ledger() as ledger:
        founded = ledger.need("r1", GameFounded)
        payments = ledger.by_client("r1", ClientPaid)
        commitments = ledger.by_client("r1", ClientCommitted)
    assert founded.costs[4] == 0.4
    assert founded.costs[6] == 1.5
    assert founded.costs[7] == pytest.approx(20.0 * SIZES[7] / sum(SIZES))
    for client, paid in payments.items():
        agreed = commitments[client].price * commitments[client].share
        assert 0 <= agreed - paid.amount < 1e-3
        assert paid.amount == round(paid.amount, 3)
    assert sum(p.amount for p in payments.values()) == pytest.approx(facts["paid"])
    assert verify(scene.folder).misfit is None


@pytest.mark.parametrize("true_cost", [0.5, 1.5])
def test_a_client_whose_cost_is_in_the_interval_is_not_taken_for_a_cheat(scene, true_cost):
    class Frugal(Averager):
        @property
        def cost(self):
            return true_cost if self.client == 6 else None

    scene.load = Frugal
    facts = with_terms(scene, cost_intervals={"6": (0.5, 1.5)}).run()
    assert facts["faults"] == []
    assert facts["paid"] <= facts["budget"] * (1 + 1e-9)


def test_a_client_refuses_an_offer_that_quotes_another_cost_than_its_own(scene):
    class Proud(Averager):
        @property
        def cost(self):
            return 9.0 if self.client == FAULTY else None

    scene.load = Proud
    facts = scene.run()
    (fault,) = facts["faults"]
    assert fault["client"] == FAULTY
    assert "this client's cost is 9" in fault["problem"]
    stated = with_terms(Scene(scene.folder.parent / "stated"), costs={str(FAULTY): 9.0})
    stated.load = Proud
    assert stated.run()["faults"] == []


def test_offers_are_capped_unless_the_terms_or_the_method_say_otherwise():
    assert Terms().offers == "capped"
    assert Terms(method="uniform").offers == "linear"
    assert Terms.from_config({"offers": "linear"}).offers == "linear"
    assert Terms.restated(Terms().stated()) == Terms()
    assert Terms(finite_sample=False, min_total=0.2).offers == "capped"
    with pytest.raises(InputError, match=r"finite_sample.*a floor"):
        Terms(finite_sample=False)


def test_capped_offers(scene):
    """No client is paid for more than its cap, and the plan is the clients' answer."""
    facts = with_terms(scene, offers="capped", finite_sample=True).run()
    assert facts["aborted"] is None
    assert facts["faults"] == []
    with scene.ledger() as ledger:
        offers = ledger.by_client("r1", PriceOffered)
        shares = {c: e.share for c, e in ledger.by_client("r1", ClientCommitted).items()}
    assert any(offer.cap < 1 for offer in offers.values())
    assert all(share <= offers[c].cap + 1e-9 for c, share in shares.items())
    assert verify(scene.folder).misfit is None


@pytest.mark.parametrize("method", ["uniform", "haipo"])
def test_other_methods_post_their_plans_as_capped_offers(scene, method):
    facts = with_terms(scene, offers="capped", method=method, finite_sample=False).run()
    assert facts["aborted"] is None
    assert facts["faults"] == []
    with scene.ledger() as ledger:
        offers = ledger.by_client("r1", PriceOffered)
        shares = {c: e.share for c, e in ledger.by_client("r1", ClientCommitted).items()}
        solved = ledger.last("r1", GameSolved)
    assert solved.uniqueness == "UNIQUE"
    assert any(offer.cap < 1 for offer in offers.values())
    assert all(share == pytest.approx(offers[c].cap, abs=1e-6) for c, share in shares.items())
    assert verify(scene.folder).misfit is None


def test_caps_that_are_not_those_of_the_solution_are_named(scene, monkeypatch):
    """A server that takes less than its solution says, with everything signed and in order otherwise."""
    honest = offers.PriceOffered
    monkeypatch.setattr(
        offers, "PriceOffered", lambda client, attempt, price, cap: honest(client, attempt, price, cap / 2)
    )
    with_terms(scene, offers="capped", finite_sample=True).run()
    assert "the caps offered are not those of the solution" in str(verify(scene.folder).misfit)


# ---- clients look for themselves


@pytest.mark.parametrize("what", ["price", "cap", "rounds", "decimals"])
def test_a_client_notices_another_price_cap_or_rule_under_way(scene, what):
    class Slow(Averager):
        def decide(self, offer):  # not at its best response at once, so that there are several announcements
            return 0.5 * (offer.best_response() + 0.1) if self.client == 3 else super().decide(offer)

    seen = itertools.count()

    def cheat(message, answer):
        if next(seen) >= 1:
            stated = message.content["config"][what]
            other = stated / 2 if isinstance(stated, float) else stated + 1
            return settings_changed(**{what: other})(message, answer)
        return answer(message)

    scene.load = Slow
    scene.behaviours[FAULTY] = when(RESPOND, cheat)
    facts = scene.run()
    problems = [f["problem"] for f in facts["faults"] if f["client"] == FAULTY]
    assert any(what in problem and "the server said" in problem for problem in problems)


def test_a_client_disputes_a_payment_that_is_not_what_it_agreed_to(scene):
    """A relay of the message halves the amount: the client signs the amount it received, and it does not fit."""
    grid = scene.grid()

    def halve(message, answer):
        amount = message.content["config"]["amount"]
        return settings_changed(amount=amount / 2)(message, answer)

    grid.behaviours[3] = when(MEASURE, halve)
    facts = scene.run(grid)
    assert any("signed something else" in f["problem"] for f in facts["faults"] if f["client"] == 3)
    clients = {c["client"]: c for c in facts["clients"]}
    assert clients[3]["acknowledged"] is None
    assert clients[4]["acknowledged"] is True


@pytest.mark.parametrize(("agreed", "decimals"), [(300, -1), (3, 0)])
def test_a_payment_by_other_rules_than_the_offer_stated_is_disputed(scene, agreed, decimals):
    """More rounds than were agreed to, of which few are done, or whole coins where there were none: both pay next to nothing."""

    def cheaper(message, answer):
        paid = message.content["config"]["amount"] * 3 / agreed
        less = paid if decimals < 0 else float(int(paid))
        return settings_changed(amount=less, agreed=agreed, decimals=decimals)(message, answer)

    scene.behaviours = {client: when(MEASURE, cheaper) for client in range(2, CLIENTS)}
    facts = scene.run()
    owed = {c["client"]: c["paid"] for c in facts["clients"]}
    assert sum(owed.values()) > 0
    for client in range(2, CLIENTS):
        receipts = read_receipts(scene.client_folder(client) / "receipts.jsonl")
        said = [r.statement for r in receipts if r.statement["what"] == PAYMENT][-1]
        assert said["owed"] == pytest.approx(owed[client])
        assert said["agreed"] is (said["amount"] == said["owed"])


@pytest.mark.parametrize(("what", "value"), [("rounds", 7), ("decimals", 0)])
def test_a_client_signs_the_rules_that_it_was_told(scene, what, value):
    scene.behaviours[FAULTY] = when(RESPOND, settings_changed(**{what: value}))
    facts = scene.run()
    assert any(f"says {what} = {value}" in f["problem"] for f in facts["faults"] if f["client"] == FAULTY)


def test_a_server_that_refuses_rounds_is_disputed(scene):
    facts = with_terms(scene, least_norm=1e3).run()  # the server finds fault with everybody
    refused = [c for c in facts["clients"] if c["rounds_delivered"] > c["rounds_passed"]]
    assert refused
    assert all(c["acknowledged"] is False for c in refused)
    assert "disputed" in (scene.folder / "audit-r1.md").read_text()
    disputes = [question for question in verify(scene.folder).open_questions if "disputes" in question]
    assert disputes
    assert not any(re.search(r"\d{11}", question) for question in disputes)
    for question in disputes:  # sums agree, and are not said to be in dispute
        assert "disputes what passed, not the sum" in question


def test_a_misquoted_embedding_is_noticed_after_a_restart_of_the_client(scene):
    """The node's memory is gone, the client's records are not; an honest quotation is accepted."""
    grid = scene.grid()

    def forget(message, answer):
        context = grid.contexts[message.metadata.dst_node_id]
        context.state.clear()
        if context.node_config["partition-id"] == FAULTY:
            arrays = message.content["arrays"]
            own = arrays["own"].numpy().copy()
            own[0] += 1e-3
            message.content["arrays"] = ArrayRecord({"aggregate": arrays["aggregate"], "own": Array(own)})
        return answer(message)

    grid.behaviours.update({client: when(RESPOND, forget) for client in range(2, CLIENTS)})
    facts = scene.run(grid)
    assert {f["client"] for f in facts["faults"]} == {FAULTY}
    assert "did not repeat the embedding" in facts["faults"][0]["problem"]


def test_a_client_works_for_the_share_that_it_agreed_to_and_no_other(scene):
    scene.behaviours[FAULTY] = when(UNLEARN, settings_changed(share=0.9))
    facts = scene.run()
    assert any("this client agreed to" in f["problem"] for f in facts["faults"] if f["client"] == FAULTY)
    assert next(c for c in facts["clients"] if c["client"] == FAULTY)["paid"] == 0.0


def test_another_server_with_another_key_is_not_obeyed(scene, tmp_path):
    scene.run()
    other = Scene(tmp_path / "other" / "run")
    other.client_folder = scene.client_folder
    other.mechanism().ledger.add(RUN, ClientEnrolled(0, 1, ""))  # so that it has a head to show
    with pytest.raises(NotEnoughNodesError, match="0 of 8 clients"):
        other.run()


# ---- names, and who is who


NAMES = ["Leeds", "York", "Hull", "Ripon", "Selby", "Whitby", "Malton", "Thirsk"]


def test_clients_have_names(scene):
    mechanism = UnlearningMechanism(scene.folder, NAMES, scene.terms, wait=0.0, timeout=1.0)
    grid = scene.grid()
    mechanism.train(grid, initial(), 1)
    facts = mechanism.remove(grid, ["York", "Leeds"])
    assert facts["removed"] == [0, 1]
    text = (scene.folder / "audit-r1.md").read_text()
    assert "Clients Leeds, York left" in text
    assert "| Whitby | remaining" in text
    (question,) = [q for q in verify(scene.folder).open_questions if q.startswith("who is behind")]
    assert question.startswith("who is behind clients Leeds, York, Hull, Ripon")
    assert [mechanism.number_of(client) for client in (" York ", "Ripon")] == [1, 3]
    for stranger in ("Oslo", "8", "02", "3", 5):
        with pytest.raises(InputError, match="there is no such client; the clients are Leeds, York"):
            mechanism.remove(grid, [stranger], request="r2")
    with pytest.raises(InputError, match="3 as a position would be 'Ripon', but these clients have names"):
        mechanism.remove(grid, ["3"], request="r2")
    with pytest.raises(InputError, match="some, not all, of clients Hull, Ripon"):
        mechanism.remove(grid, ["Leeds"], request="r2")
    with pytest.raises(InputError, match="other names"):
        scene.mechanism().train(grid, initial(), 1)
    with pytest.raises(InputError, match="have this name"):
        UnlearningMechanism(scene.folder, ["a", "a"])


def test_numbers_are_names_where_clients_are_called_by_numbers(scene):
    names = ["3", "0", "2", "1", "7", "5", "6", "4"]
    scene.terms = replace(scene.terms, costs={"3": 0.4, "0.0": 0.5}, cost_intervals={"2": (0.1, 0.3)})
    mechanism = UnlearningMechanism(scene.folder, names, scene.terms, wait=0.0, timeout=1.0)
    grid = scene.grid()
    mechanism.train(grid, initial(), 1)
    facts = mechanism.remove(grid, [1])
    assert facts["removed"] == [names.index("1")]
    costs = mechanism.ledger.need("r1", GameFounded).costs
    assert (costs[0], costs[1], costs[2]) == (0.4, 0.5, 0.3)
    assert verify(scene.folder)


def test_one_client_that_leaves_is_one(scene):
    mechanism = UnlearningMechanism(scene.folder, NAMES, scene.terms, wait=0.0, timeout=1.0)
    grid = scene.grid()
    mechanism.train(grid, initial(), 1)
    mechanism.remove(grid, ["Leeds"])
    assert "\nClient Leeds left.\n" in (scene.folder / "audit-r1.md").read_text()


@pytest.mark.parametrize("terms", [{"costs": {"Oslo": 3.0}}, {"cost_intervals": {"02": (1.0, 2.0)}}])
def test_a_cost_of_somebody_who_is_no_client_is_refused(scene, terms):
    """A client with a mistyped name was left out silently and got another cost than stated."""
    mechanism = with_terms(scene, **terms).mechanism()
    mechanism.train(scene.grid(), initial(), 1)
    with pytest.raises(InputError, match="there is no such client; the clients are 0, 1, 2"):
        mechanism.remove(scene.grid(), [0])
    mechanism.terms = TERMS
    mechanism.remove(scene.grid(), [0])
    with pytest.raises(InputError, match="there is no such client"):
        mechanism.amend("r1", scene.terms, "another cost")


def test_the_first_node_gets_a_number_and_not_the_one_with_the_lowest_id(scene):
    """The intruder is there before the roll is called, with a lower id; it registered later."""
    grid = scene.grid()
    first = next(n for n, c in grid.contexts.items() if c.node_config["partition-id"] == FAULTY)
    stranger = {"partition-id": FAULTY, "client-folder": str(scene.folder.parent / "stranger")}
    intruder = grid.join(stranger)
    grid.contexts[1] = grid.contexts.pop(intruder)
    grid.contexts[1].node_id = 1
    scene.mechanism().train(grid, initial(), 1)
    with scene.ledger() as ledger:
        assert ledger.by_client(RUN, ClientEnrolled)[FAULTY].node == first > 1


def test_only_keys_that_the_operator_knows_are_let_in(scene):
    scene.run()  # by which the clients have keys
    keys = {c: read_public_key(scene.client_folder(c) / "client.pub") for c in range(CLIENTS)}
    fresh = Scene(scene.folder.parent / "fresh")
    fresh.client_folder = lambda client: scene.folder.parent / "fresh clients" / str(client)
    for client in range(CLIENTS):
        folder = fresh.client_folder(client)
        folder.mkdir(parents=True)
        if client != FAULTY:
            os.link(scene.client_folder(client) / "client.key", folder / "client.key")
    mechanism = fresh.mechanism(client_keys=keys)
    mechanism.train(fresh.grid(), initial(), 1)
    with fresh.ledger() as ledger:
        assert set(ledger.by_client(RUN, ClientEnrolled)) == set(range(CLIENTS)) - {FAULTY}
        assert "not this client's" in ledger.rows(RUN, "fault")[0].detail["problem"]


def test_a_node_that_answers_the_roll_with_somebody_elses_signature_is_not_heard(scene):
    other = SigningKey.generate()

    def forge(message, answer):
        reply = answer(message)
        reply.content["receipt"]["key"] = other.public
        return reply

    scene.behaviours[FAULTY] = when(ROLL, forge)
    facts = scene.run()
    assert next(c for c in facts["clients"] if c["client"] == FAULTY)["role"] == "left out"


# ---- what the audit says


def test_the_bound_is_stated_of_what_it_bounds(scene):
    """With the finite-sample term the objective is more than the loss, and the bound is one of the objective."""
    facts = with_terms(scene, finite_sample=True).run()
    proof = facts["certificate"]
    assert proof["proves"] == "objective"
    assert proof["lower_bound"] <= proof["objective"]
    text = (scene.folder / "audit-r1.md").read_text()
    assert f"objective {proof['objective']:.8g}; no payments within the budget have one below" in text
    assert f"server loss {proof['server_loss']:.8g}; no payments" not in text


def test_training_rounds_are_known_to_the_tests():
    assert TRAINING_ROUNDS == 2


def test_terms_state_one_cost_per_client(tmp_path):
    assert Terms(costs={3: 1.0, 1.0: 2.0}).costs == {"3": 1.0, "1": 2.0}
    for costs in ({1: 3.0, "1": 4.0}, {"York": 3.0, " York": 4.0}):
        with pytest.raises(InputError, match=r"costs\[client (1|York)\]: is given twice"):
            Terms(costs=costs)
    with pytest.raises(InputError, match=r"costs\[client York\]: is given twice"):
        Terms.from_config({"costs": "York=3,York=4"})
    with pytest.raises(InputError, match=r"costs = .*must be by client name"):
        Terms(costs=[3.0, 4.0])
    with pytest.raises(InputError, match=r"cost_intervals\[client York\] = '3': must be a number, or two"):
        Terms(cost_intervals={"York": "3"})


def test_names_that_look_the_same_are_no_clients(tmp_path):
    for names in (
        ["York", "York ", "Hull"],
        ["York", "York", "Hull"],
        ["York", None, "Hull"],
        {"York", "Hull"},
    ):
        with pytest.raises(InputError, match=r"^clients"):
            UnlearningMechanism(tmp_path, names)


@pytest.mark.parametrize("names", [["3", "1", "2"], [3, 1, 2], ["2", "0", "1"]])
def test_a_number_means_the_client_of_that_name(tmp_path, names):
    mechanism = UnlearningMechanism(tmp_path, names, wait=0.0, timeout=1.0)
    for k, name in enumerate(names):
        for way in (name, str(name), int(name), float(name), np.int64(name)):
            assert mechanism.number_of(way) == k
    mechanism.ledger.close()
