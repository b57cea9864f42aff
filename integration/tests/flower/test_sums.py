"""Secure sums: what the server sees is the sum, also when members drop out, lie, or the server itself does."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from flwr.clientapp.mod import LocalDpMod
from hypothesis import given
from hypothesis import strategies as st
from scene import CLIENTS, REMOVED, TERMS, Averager, Killed, Scene, client_app, initial

from stackfu.errors import InputError
from stackfu_integration.flower import InProcessGrid, Policy, Terms, UnlearningMechanism, add_mechanism
from stackfu_integration.flower.client_state import ClientState
from stackfu_integration.flower.events import GroupSumReceived, SumAgreed, SumHeard, WorkDelivered
from stackfu_integration.flower.policy import PolicyError
from stackfu_integration.flower.receipts import SUM_KEYS, Receipt
from stackfu_integration.flower.secure_sum import (
    MODEL_BITS,
    Keys,
    Member,
    SumError,
    SumGroup,
    SumName,
    put_together,
    split,
    threshold_of,
)
from stackfu_integration.flower.sum_member import SumMember
from stackfu_integration.flower.verification import verify
from stackfu_integration.flower.wire import EMBED, SUMMED
from stackfu_integration.flower.wire.records import masked_record
from stackfu_integration.flower.wire.sums import KEYS, OPEN, SHARES, OpenQuestion, SharesQuestion

NAME = SumName("r1", "round", 1)
SECURE = replace(TERMS, aggregation="secure")


class Sum:
    """A sum in which everything is at hand."""

    def __init__(self, members, vectors, gone=()):
        self.members = {k: Member(b"secret %d" % k, k, NAME) for k in members}
        self.group = {k: member.keys for k, member in self.members.items()}
        self.threshold = threshold_of(len(self.group))
        self.sealed = {k: m.sealed_shares(self.group, self.threshold) for k, m in self.members.items()}
        self.alive = [k for k in members if k not in gone]
        self.sent = {k: self.members[k].masked(vectors[k], MODEL_BITS, self.group) for k in self.alive}

    def shares_for(self, k):
        return {j: self.sealed[j][k] for j in self.group if j != k}

    def opened(self, k, alive=None):
        alive = self.alive if alive is None else alive
        return self.members[k].opened(self.shares_for(k), self.group, self.group, self.threshold, alive)

    def total(self, helpers=None, **changed):
        opened = {k: self.opened(k) for k in (self.alive if helpers is None else helpers)}
        opened.update(changed.get("opened", {}))
        masked = np.sum([self.sent[k] for k in sorted(self.sent)], axis=0, dtype=np.uint64)
        group = SumGroup(NAME, self.group, self.threshold)
        return group.unmasked(masked, sorted(self.sent), opened, MODEL_BITS)


@given(st.data(), st.lists(st.integers(0, 300), min_size=2, max_size=7, unique=True), st.integers(1, 9))
def test_the_sum_is_exact_whoever_drops_out_and_whoever_helps(data, members, length):
    """As long as more than half are left, to the last of the bits that are sent."""
    threshold = threshold_of(len(members))
    gone = data.draw(st.lists(st.sampled_from(members), max_size=len(members) - threshold, unique=True))
    rng = np.random.default_rng(length)
    vectors = {k: rng.normal(size=length) * 1000 for k in members}
    there = Sum(members, vectors, gone)
    helpers = data.draw(st.permutations(there.alive))[: data.draw(st.integers(threshold, len(there.alive)))]
    exact = sum(np.rint(vectors[k] * 2.0**MODEL_BITS) for k in there.alive) / 2.0**MODEL_BITS
    assert np.array_equal(there.total(helpers), exact)


@given(st.binary(min_size=1, max_size=32), st.integers(2, 6), st.data())
def test_a_threshold_of_shares_is_the_secret_and_one_less_fits_any_secret(secret, threshold, data):
    members = data.draw(
        st.lists(st.integers(0, 400), min_size=threshold, max_size=threshold + 3, unique=True)
    )
    shares = split(secret, threshold, members, b"source")
    chosen = data.draw(st.permutations(members))[:threshold]
    assert put_together({k: shares[k] for k in chosen}, len(secret)) == secret
    # any other secret is as possible, given one share less: some share of the last member leads to it
    few, last = {k: shares[k] for k in chosen[:-1]}, chosen[-1]
    other = bytes(32)
    zero, one = (int.from_bytes(put_together({**few, last: v}, 66), "big") for v in (0, 1))
    prime = 2**521 - 1
    needed = (int.from_bytes(other, "big") - zero) * pow(one - zero, -1, prime) % prime
    assert put_together({**few, last: needed}) == other


def test_what_one_client_sends_is_uniform_to_whoever_lacks_the_secrets():
    """A vector of zeros: bytes of what is sent are spread like random ones, and other names give other masks."""
    there = Sum([0, 1, 2], {k: np.zeros(20_000) for k in range(3)})
    counts = np.bincount(there.sent[1].view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * np.sqrt(2 * 255)
    again = Member(b"secret 1", 1, replace(NAME, number=2))
    group = {k: Member(b"secret %d" % k, k, replace(NAME, number=2)).keys for k in range(3)}
    assert (again.masked(np.zeros(20_000), MODEL_BITS, group) == there.sent[1]).mean() < 1e-3


def test_with_one_seed_missing_the_rest_is_noise():
    """All pairwise masks cancel, and still nothing is seen of two vectors without the seeds of both."""
    there = Sum([0, 1], {0: np.ones(50), 1: np.ones(50)})
    total = there.sent[0] + there.sent[1]
    assert np.abs(total.view(np.int64) / 2.0**MODEL_BITS).max() > 1e6


def test_wrong_shares_of_a_member_are_made_up_for_by_the_others():
    members = [0, 1, 2, 3, 4]
    there = Sum(members, {k: np.full(3, float(k)) for k in members}, gone=[4])
    lies = {0: dict.fromkeys(members, "123456")}
    assert np.array_equal(there.total(opened=lies), [6.0, 6.0, 6.0])
    with pytest.raises(SumError, match="do not give what client"):
        there.total(opened={**lies, 1: dict.fromkeys(members, "99")})


@pytest.mark.parametrize("liars", [[0], [23], [0, 5, 11]])
def test_wrong_shares_are_made_up_for_in_large_groups_too(liars):
    """The first member must not be part of every tried choice of shares."""
    members = list(range(24))
    there = Sum(members, {k: np.full(2, float(k)) for k in members}, gone=[7])
    lies = {liar: dict.fromkeys(members, f"{liar + 1:x}") for liar in liars}
    assert np.array_equal(there.total(opened=lies), [269.0, 269.0])


def test_a_member_that_sends_something_else_than_its_vector_is_noticed_and_not_found():
    there = Sum([0, 1, 2], {k: np.ones(20) for k in range(3)})
    there.sent[1] = np.random.default_rng(0).integers(0, 2**64, 20, dtype=np.uint64)
    with pytest.raises(SumError, match="none that vectors can have"):
        there.total()


def test_nonsense_that_a_member_sealed_is_not_passed_on():
    """Otherwise the answers of honest members would be refused for it."""
    there = Sum(range(4), {k: np.full(2, float(k)) for k in range(4)})
    liar = there.members[2]
    for text in ('["zz", "qq"]', "[1]", "nonsense", '["-5", "1 2"]'):
        box = ChaCha20Poly1305(liar._sealing(2, 0, there.group))
        there.sealed[2][0] = box.encrypt(b"\0" * 12, text.encode(), None).hex()
        opened = there.opened(0)
        assert set(opened) == {0, 1, 3}
        assert all(int(share, 16) >= 0 for share in opened.values())
    assert np.array_equal(there.total(), [6.0, 6.0])  # three others have a share of every secret


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**31])
def test_numbers_that_cannot_be_summed_are_not_sent(value):
    with pytest.raises(InputError, match="too large, or not finite"):
        Sum([0, 1], {0: np.array([value]), 1: np.zeros(1)})


# ---- a server that lies about who dropped out


@pytest.fixture
def inbox(tmp_path):
    """Client 1 of five with its records, up to the point where it has sent its vector."""
    there = Sum(range(5), {k: np.full(2, float(k)) for k in range(5)})
    member = SumMember(1, b"secret 1", ClientState(tmp_path, {}))
    member.shares(SharesQuestion(NAME, there.group, there.threshold, {}))
    assert np.array_equal(member.masked(NAME, np.ones(2), MODEL_BITS, there.group), there.sent[1])
    return member, there


def test_nobody_opens_a_sum_twice_for_different_members(inbox, tmp_path):
    """With the seed and the mask key of client 4 the server would read what it sent."""
    member, there = inbox
    asked = OpenQuestion(NAME, tuple(range(5)), there.shares_for(1))
    first = member.opened(asked)
    assert (
        SumMember(1, b"secret 1", ClientState(tmp_path, {})).opened(asked) == first
    )  # after a restart as well
    with pytest.raises(InputError, match="has opened it for other members"):
        member.opened(replace(asked, alive=(0, 1, 2, 3)))
    with pytest.raises(InputError, match="fewer than 3"):
        member.opened(replace(asked, alive=(0, 1)))
    with pytest.raises(InputError, match="others than those"):
        member.opened(replace(asked, alive=(0, 2, 3, 4)))


def test_nobody_sends_two_vectors_behind_the_same_masks(inbox):
    member, there = inbox
    with pytest.raises(InputError, match="has sent another vector"):
        member.masked(NAME, np.full(2, 2.0), MODEL_BITS, there.group)
    fewer = {k: there.group[k] for k in (0, 1, 2)}
    with pytest.raises(InputError, match="has sent another vector, or to other members"):
        member.masked(NAME, np.ones(2), MODEL_BITS, fewer)
    with pytest.raises(InputError, match="made shares for another group"):
        member.shares(SharesQuestion(NAME, {k: there.group[k] for k in range(4)}, 3, {}))
    swapped = {**there.group, 2: Member(b"the server's own", 2, NAME).keys}
    with pytest.raises(InputError, match="is not the one that this client made shares for"):
        member.masked(NAME, np.ones(2), MODEL_BITS, swapped)


@pytest.mark.parametrize("threshold", [1, 2, 6])
def test_half_of_the_members_are_not_enough(tmp_path, threshold):
    there = Sum(range(5), {k: np.zeros(1) for k in range(5)})
    member = SumMember(1, b"secret 1", ClientState(tmp_path, {}))
    with pytest.raises(InputError, match="too low or too high"):
        member.shares(SharesQuestion(NAME, there.group, threshold, {}))


def test_whoever_knows_its_peers_accepts_no_keys_of_the_servers_making(tmp_path):
    records = {k: ClientState(tmp_path / str(k), {}) for k in range(3)}
    members = {k: SumMember(k, b"secret %d" % k, records[k]) for k in range(3)}
    told = {k: member.keys(NAME, None) for k, member in members.items()}
    group = {k: answer.keys for k, answer in told.items()}
    signatures = {k: answer.receipt.plain() for k, answer in told.items()}
    knowing = Policy(peers=(records[1].key.public, records[2].key.public))
    careful = SumMember(0, b"secret 0", ClientState(tmp_path / "0", {}, knowing))
    asked = SharesQuestion(NAME, group, 2, signatures)
    assert set(careful.shares(asked).sealed) == {1, 2}
    invented = Member(b"the server's own", 2, NAME).keys
    for forged in (
        replace(asked, group={**group, 2: invented}),
        replace(asked, signatures={1: signatures[1]}),
        replace(
            asked,
            group={**group, 2: invented},
            signatures={
                **signatures,
                2: Receipt.sign(
                    records[0].key,
                    SUM_KEYS,
                    None,
                    client=2,
                    request="r1",
                    sum="round",
                    number=1,
                    keys=str(invented),
                ).plain(),
            },
        ),
    ):
        with pytest.raises(PolicyError, match="client 2"):
            careful.shares(forged)


# ---- rounds of unlearning


def shares_of(facts):
    return {c["client"]: (c["share"], c["rounds_passed"], c["paid"]) for c in facts["clients"]}


def test_summed_rounds_end_at_the_mean_and_the_server_sees_no_update(scene):
    """The same as the plain mean, to single precision; what passes the wire is no client's model."""
    plain = Scene(scene.folder.parent / "plain", terms=replace(TERMS, aggregation="mean"))
    models, seen = {}, []

    def look(message, answer):
        reply = answer(message)
        if message.metadata.message_type == SUMMED:
            assert list(reply.content["arrays"]) == ["masked"]
            seen.append(reply.content["arrays"]["masked"].numpy())
        return reply

    scene.terms, scene.behaviours = SECURE, dict.fromkeys(range(CLIENTS), look)
    ours, theirs = scene.run(), plain.run()
    assert shares_of(ours) == shares_of(theirs)
    for which in (scene, plain):
        models[which.folder] = which.mechanism().model("r1")["mean"].numpy()
    assert models[scene.folder] == pytest.approx(models[plain.folder], rel=1e-6)
    assert len(seen) == 18
    assert all(np.abs(part / 2.0**MODEL_BITS).max() > 1e6 for part in seen)
    assert verify(scene.folder).misfit is None
    text = (scene.folder / "audit-r1.md").read_text()
    assert "the server saw the sum of the updates, and no single one" in text
    assert "nothing was looked at before it was paid" in text
    with scene.ledger() as ledger:
        assert all(not event.shares for event in ledger.events("r1", SumAgreed))  # erased with the embeddings


def test_clients_without_folders_hide_their_parts_too(scene):
    """Their secrets live as long as the run."""

    class Folderless(Averager):
        def __init__(self, context):
            super().__init__(context)
            self.folder = None

    scene.load, scene.terms = Folderless, SECURE
    facts = scene.run()
    assert facts["aborted"] is None
    assert facts["faults"] == []
    assert facts["only_as_sum"] == list(REMOVED)


@pytest.mark.parametrize("kind", [SHARES, SUMMED, OPEN])
def test_a_drop_out_at_any_step_is_made_up_for(scene, kind):
    """Client 6 falls silent at one step of the first round; the others' sum is what it is without it."""
    turns = []

    def silent(message, answer):
        if (
            message.metadata.message_type == kind
            and message.content["config"].get("what", "round") == "round"
        ):
            turns.append(1)
            if len(turns) == 1:
                return None
        return answer(message)

    scene.terms, scene.behaviours = SECURE, {6: silent}
    facts = scene.run()
    passed = {c["client"]: c["rounds_passed"] for c in facts["clients"] if c["share"] > 0}
    assert passed.pop(6) == (3 if kind == OPEN else 2)
    assert set(passed.values()) == {3}
    assert verify(scene.folder).misfit is None
    if kind == SUMMED:
        with scene.ledger() as ledger:
            first = {w.client: w.samples for w in ledger.events("r1", WorkDelivered) if w.number == 1}
            agreed = next(e for e in ledger.events("r1", SumAgreed) if e.number == 1)
        assert set(agreed.keys) == {str(c) for c in first} | {"6"}


def test_keys_that_are_none_are_refused_before_anybody_else_stumbles_over_them(scene):
    """A key of zeros makes every agreement fail; its sender is named, and no other client."""

    class Stumbling(Averager):
        def __init__(self, context):
            super().__init__(context)
            if self.client == 4:
                self.folder, self.noise_key = None, b"x" * 32

    def zeros(message, answer):
        reply = answer(message)
        if message.metadata.message_type == KEYS:
            told = Keys.read(reply.content["config"]["keys"])
            reply.content["config"]["keys"] = str(replace(told, mask="00" * 32))
        return reply

    scene.load, scene.terms, scene.behaviours = Stumbling, SECURE, {4: zeros}
    facts = scene.run()
    assert facts["aborted"] is None
    assert {f["client"] for f in facts["faults"]} == {4}
    assert "announced keys that nobody can use" in str(facts["faults"])
    assert all(c["rounds_passed"] == 3 for c in facts["clients"] if c["share"] > 0 and c["client"] != 4)


def test_more_than_half_gone_in_one_round_ends_the_request(scene):
    gone = dict.fromkeys([3, 4, 5, 6], lambda m, a: None if m.metadata.message_type == SUMMED else a(m))
    scene.terms, scene.behaviours = SECURE, gone
    facts = scene.run()
    assert "round 1: 2 of 6 members delivered, 4 are needed" in facts["aborted"]["reason"]
    assert verify(scene.folder).misfit is None


def test_a_spoilt_sum_ends_the_request_and_nobody_is_blamed(scene):
    def spoil(message, answer):
        reply = answer(message)
        if message.metadata.message_type == SUMMED:
            length = reply.content["arrays"]["masked"].numpy().size
            noise = np.random.default_rng(1).integers(0, 2**64, length, dtype=np.uint64)
            reply.content["arrays"] = masked_record(noise)
        return reply

    class Unsigned(Averager):
        def __init__(self, context):
            super().__init__(context)
            if self.client == 4:
                self.folder, self.noise_key = None, b"x" * 32

    scene.load, scene.terms, scene.behaviours = Unsigned, SECURE, {4: spoil}
    facts = scene.run()
    assert "none that vectors can have" in facts["aborted"]["reason"]
    assert facts["faults"] == []
    assert facts["paid"] == 0.0


def test_a_client_that_shows_sums_only_does_no_other_work(scene):
    class Shy(Averager):
        def __init__(self, context):
            super().__init__(context)
            if self.client == 5:
                self.policy = replace(Policy.open(), only_sums=True)

    scene.load = Shy
    facts = scene.run()
    assert {f["problem"] for f in facts["faults"] if f["client"] == 5} == {
        "failed: PolicyError: this client shows its updates in sums only"
    }
    hidden = Scene(scene.folder.parent / "hidden", terms=SECURE, load=Shy)
    # ordinary training shows single updates in any case, so that this client takes part in what is summed alone
    assert {f["phase"] for f in hidden.run()["faults"]} == {"train 1", "train 2"}


def test_modifiers_come_before_the_masks(scene):
    app = add_mechanism(client_app(mechanism=False), Averager, mods=[LocalDpMod(1.0, 1.0, 5.0, 1e-5)])
    nodes = [{"partition-id": i, "client-folder": str(scene.client_folder(i))} for i in range(CLIENTS)]
    mechanism = UnlearningMechanism(scene.folder, CLIENTS, SECURE, wait=0.0, timeout=1.0)
    grid = InProcessGrid(app, nodes)
    mechanism.train(grid, initial(), 1)
    facts = mechanism.remove(grid, REMOVED)
    assert facts["aborted"] is None
    assert facts["faults"] == []
    noisy = mechanism.model("r1")["mean"].numpy()
    assert np.isfinite(noisy).all()
    plain = Scene(scene.folder.parent / "plain", terms=SECURE)
    plain.run()
    assert not np.allclose(noisy, plain.mechanism().model("r1")["mean"].numpy(), atol=1e-3)


@pytest.mark.parametrize("kind", ["sum", "heard", "work", "round", "judged"])
def test_killed_in_the_middle_of_a_sum_the_server_goes_on_with_it(scene, monkeypatch, kind):
    """After the row, and just before it: a client takes part once, and is not asked for a second sum of a round."""
    from stackfu_integration.flower import PaymentLedger

    reference = Scene(scene.folder.parent / "reference", terms=SECURE)
    reference.run()
    scene.terms = SECURE

    add = PaymentLedger.add
    left = [2]

    def dying(self, request, event):
        if event.kind == kind and request == "r1":
            left[0] -= 1
            if left[0] == 0 and kind in ("heard", "round", "work"):
                raise Killed
        add(self, request, event)
        if event.kind == kind and request == "r1" and left[0] == 0 and not self._open_transaction:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(PaymentLedger, "add", dying)
        with suppress(Killed):
            scene.run()
    facts = scene.run()
    assert facts["aborted"] is None
    once = ("payment", "settled", "commitment", "embedding", "work", "judged", "sum", "heard")
    assert scene.records(*once) == reference.records(*once)
    assert scene.final_model() == reference.final_model()
    assert facts["faults"] == []


def test_spot_checks_and_strategies_would_see_single_updates(scene):
    with pytest.raises(InputError, match="spot_checks"):
        Terms(aggregation="secure", spot_checks=0.1)
    from flwr.serverapp.strategy import FedAvg

    scene.terms = SECURE
    mechanism, grid = scene.mechanism(), scene.grid()
    mechanism.train(grid, initial(), 1)
    with pytest.raises(InputError, match="nobody does"):
        mechanism.remove(grid, REMOVED, strategy=FedAvg())


# ---- embeddings of those who leave


def removal_of(scene, leaving):
    mechanism, grid = scene.mechanism(), scene.grid()
    mechanism.train(grid, initial(), 1)
    facts = mechanism.remove(grid, leaving)
    mechanism.ledger.close()
    return facts


def test_whoever_drops_out_of_those_who_leave_is_missing_from_the_sum(scene):
    """Three leave; one falls silent after the keys were exchanged, and is not asked a second time."""
    asked = []

    def silent(message, answer):
        if message.metadata.message_type == EMBED:
            asked.append("client 0")
            return None
        return answer(message)

    def count(message, answer):
        if message.metadata.message_type == EMBED:
            asked.append("client 1")
        return answer(message)

    scene.behaviours = {0: silent, 1: count}
    facts = removal_of(scene, (0, 1, 2))
    assert facts["only_as_sum"] == [1, 2]
    assert facts["aborted"] is None
    assert asked.count("client 1") == 1
    with scene.ledger() as ledger:
        group, heard = ledger.need("r1", GroupSumReceived), ledger.need("r1", SumHeard)
    assert group.clients == heard.clients == (1, 2)


def test_of_two_who_leave_one_that_drops_out_takes_the_sum_with_it(scene):
    """A sum of one would be its embedding: it is left out instead, and that is no fault of its."""
    scene.behaviours = {0: lambda m, a: None if m.metadata.message_type == EMBED else a(m)}
    facts = removal_of(scene, (0, 1))
    assert facts["only_as_sum"] == []
    assert facts["aborted"] is None
    assert facts["faults"] == []
    with scene.ledger() as ledger:
        assert not {0, 1} & {row.client for row in ledger.rows("r1", "embedding")}


def test_a_part_of_another_size_is_left_out_of_the_sum(scene):
    def lie(message, answer):
        reply = answer(message)
        if message.metadata.message_type == EMBED:
            reply.content["metrics"]["size"] = 10**6
        return reply

    scene.behaviours = {0: lie}
    facts = removal_of(scene, (0, 1, 2))
    assert facts["only_as_sum"] == [1, 2]
    assert "claims 1000000 samples" in str(facts["faults"])
