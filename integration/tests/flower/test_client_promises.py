"""A dishonest server in front of real clients: each promise that the guides make about a client, tried on its handlers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from scene import CLIENTS, REMOVED, TERMS, Averager, Scene, initial

from stackfu_integration.flower import InProcessGrid, Offer, Policy, add_mechanism
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.client import training_app
from stackfu_integration.flower.client_state import ClientState, read_receipts
from stackfu_integration.flower.events import ModelUnlearned, RemovalRequested
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.policy import Release, spent_epsilon
from stackfu_integration.flower.receipts import PAYMENT, SHARE, WORK
from stackfu_integration.flower.wire import (
    EMBED,
    MEASURE,
    RESPOND,
    ROLL,
    SPREAD,
    EmbeddingQuestion,
    GradientQuestion,
    MeasureQuestion,
    OfferQuestion,
    SpreadQuestion,
    TrainingOrder,
)
from stackfu_integration.flower.wire.records import config, read_vector
from stackfu_integration.flower.wire.rounds import REPEAT, TRAIN, UNLEARN

CLIENT = 3  # of the scene: 60 samples


class Server:
    """A server that sends any message to one client with the real handlers, records and policy."""

    def __init__(self, folder: Path | None, load=Averager, mods=(), **policy) -> None:
        self.folder, self.policy = folder, policy

        def loaded(context):
            participant = load(context)
            participant.policy = Policy(**{"noiseless": False, **policy})
            return participant

        self.loaded = loaded
        self.app = add_mechanism(training_app(loaded), loaded, mods)
        node = {"partition-id": CLIENT, **({} if folder is None else {"client-folder": str(folder)})}
        self.grid = InProcessGrid(self.app, [node], wire=True)
        (self.node,) = self.grid.get_node_ids()
        self.share = 0.5

    def send(self, kind: str, content: RecordDict) -> Message:
        return self.grid.answer(Message(content, dst_node_id=self.node, message_type=kind))

    def ask(self, question, **settings) -> Message:
        return self.send(question.message_type, changed(question.encode(), **settings))

    def embed(self, request: str = "r1", **settings) -> Message:
        return self.ask(self.embedding(request), **settings)

    @staticmethod
    def embedding(request: str = "r1") -> EmbeddingQuestion:
        return EmbeddingQuestion(initial(), request, 1.5, 16, 0, 1.0, 1e-5, erase=True)

    def offer(self, request: str = "r1", price: float = 2.0, **settings) -> Message:
        """Ask for a share; what the embedding is, the server knows."""
        own = read_vector(self.embed(request).content["arrays"], "mean")
        offer = Offer(price, 1.0, 0.3, 1.0, self.share, 0.8, own * 0.8, own, cap=self.share)
        return self.ask(OfferQuestion(request, offer, rounds=3, unlearning="retrain"), **settings)

    def order(
        self, kind: str = UNLEARN, model: ArrayRecord | None = None, request: str = "r1", **settings
    ) -> Message:
        told = {"request": request, "seed": 0, "samples": 30, **settings}
        order = TrainingOrder(
            model or initial(), told.pop("share", self.share), told.pop("number", 1), config(**told)
        )
        return self.send(kind, order.encode())

    @property
    def state(self) -> dict:
        assert self.folder is not None
        return json.loads((self.folder / "state.json").read_text())

    @property
    def spent(self) -> float:
        return spent_epsilon([Release(**entry) for entry in self.state["releases"].values()], 1e-5)


@pytest.fixture
def server(tmp_path) -> Server:
    return Server(tmp_path / "client")


def changed(content: RecordDict, **settings) -> RecordDict:
    """Return a copy of a message with other settings."""
    told = {name.replace("_", "-"): value for name, value in settings.items()}
    return RecordDict({**content, "config": ConfigRecord({**content["config"], **told})})


def refusal(reply: Message) -> str:
    assert reply.has_error(), "the client answered"
    return str(reply.error.reason)


def answered(reply: Message) -> RecordDict:
    assert not reply.has_error(), reply.error.reason
    return reply.content


def mean_of(reply: Message) -> np.ndarray:
    return answered(reply)["arrays"]["mean"].numpy()


def model_at(value: float) -> ArrayRecord:
    return ArrayRecord({"mean": Array(np.full(3, value, dtype=np.float32))})


# ---- who works, and from which model


def receipts_of(scene: Scene, what: str, client: int = CLIENT):
    kept = read_receipts(scene.client_folder(client) / "receipts.jsonl")
    return [receipt.statement for receipt in kept if receipt.statement["what"] == what]


def test_clients_sign_the_models_before_and_after_and_who_leaves(sound):
    with sound.ledger() as ledger:
        before = ledger.need("r1", RemovalRequested).before
        after = ledger.need("r1", ModelUnlearned).model
    for client in range(CLIENTS):
        (paid,) = receipts_of(sound, PAYMENT, client)
        assert (paid["before"], paid["after"]) == (before, after)
    said = receipts_of(sound, SHARE)[-1]
    assert (said["removed"], said["unlearning"], said["seed"]) == (list(REMOVED), "retrain", 0)
    assert len({work["start"] for work in receipts_of(sound, WORK)}) == TERMS.rounds


def test_a_client_that_leaves_takes_no_offer_and_does_no_work(server):
    assert "this client leaves" in refusal(server.offer(removed=f"0,{CLIENT}"))
    assert "agreed to nothing" in refusal(server.order())


# ---- what is owed follows from the client's own records


def test_the_number_of_samples_follows_from_the_agreed_share(server):
    """The server's number is ignored in rounds and in gradients, and another share than the agreed one is refused."""
    seen = []

    class Counting(Averager):
        def train(self, arrays, share, config):
            seen.append((share, config.get("samples"), config["seed"]))
            return super().train(arrays, share, config)

        def gradient(self, arrays, share, config):
            seen.append((share, config["samples"], config["seed"]))
            return np.zeros(3), int(config["samples"])

    server = Server(server.folder, Counting)
    server.offer()
    for number, samples in ((1, 1), (2, 60)):
        assert not server.order(number=number, samples=samples).has_error()
    gradient = GradientQuestion(initial(), "r1", server.share, 1, 0)
    assert not server.ask(gradient, seed=99).has_error()
    assert seen == [(0.5, 30, 0)] * 3
    for share in (0.49, 0.51, 1 / 60, 1.0):
        assert "agreed to 0.5" in refusal(server.order(number=3, share=share))
    assert "agreed to draw from 0" in refusal(server.order(number=3, seed=1))
    assert "agreed to 3 rounds" in refusal(server.order(number=4))
    assert "no more" in refusal(server.order(number=0))


def test_an_offer_for_too_few_samples_is_refused_unless_only_their_sum_is_seen(server):
    server.share = 1 / 60
    assert "8 are the least" in refusal(server.offer())
    assert "agreed to nothing" in refusal(server.order(share=1 / 60))
    assert not server.offer(attempt=1, summed=1).has_error()
    assert "8 are the least" in refusal(server.order(share=1 / 60))


def test_no_new_offer_after_the_first_work(server):
    server.offer(price=2.0)
    assert not server.order().has_error()
    for attempt in (0, 1):
        assert "works for the offer that it took" in refusal(server.offer(price=0.0, attempt=attempt))
    assert server.state["requests"]["r1"]["offer"]["price"] == 2.0
    told = MeasureQuestion(initial(), model_at(1.0), "r1", 0.0, 1, 3)
    answered(server.ask(told))
    paid = read_receipts(server.folder / "receipts.jsonl")[-1].statement
    assert paid["owed"] == pytest.approx(2.0 * 0.5 / 3)
    assert paid["agreed"] is False


@pytest.mark.parametrize("folder", [True, False], ids=["with a folder", "without a folder"])
@pytest.mark.parametrize("name", ["price", "share", "total", "aggregate", "own", "cap", "lam"])
def test_an_announcement_of_numbers_that_are_none_is_refused(tmp_path, folder, name):
    server = Server(tmp_path / "client" if folder else None)
    own = read_vector(server.embed().content["arrays"], "mean")
    numbers = {"price": 2.0, "cost": 1.0, "alpha": 0.3, "lam": 1.0, "share": 0.5, "total": 0.8}
    offer = Offer(**numbers, aggregate=own * 0.8, own=own)
    bad = replace(offer, **{name: own * np.nan if name in ("aggregate", "own") else np.nan})
    assert "finite" in refusal(server.ask(OfferQuestion("r1", bad, rounds=3)))
    assert "agreed to nothing" in refusal(server.order(share=1.0))


def test_a_client_without_a_folder_works_for_nothing_that_it_did_not_agree_to():
    assert "agreed to nothing" in refusal(Server(None).order())
    assert not Server(None, trusting=True).order().has_error()


# ---- one reply


def test_the_same_order_gets_the_same_bytes_and_noise_is_drawn_once(server):
    """Local differential privacy as a modifier of Flower's: asked 200 times, its noise must not average away."""
    noisy = Server(server.folder, mods=[LocalDpMod(10.0, 1.0, 1.0, 1e-3)])
    noisy.offer()
    first = noisy.order()
    replies = [noisy.order() for _ in range(20)] + [noisy.order(REPEAT) for _ in range(20)]
    assert {digest(answered(reply)["arrays"]) for reply in replies} == {digest(answered(first)["arrays"])}
    assert all(reply.content["receipt"] == first.content["receipt"] for reply in replies)
    other = Server(server.folder, mods=[LocalDpMod(10.0, 1.0, 1.0, 1e-3)])  # the node was started anew
    assert np.array_equal(mean_of(other.order()), mean_of(first))
    assert "from another model" in refusal(other.order(model=model_at(1.0)))
    assert "from another model" in refusal(other.order(learning_rate=0.1))
    assert "has not delivered this round" in refusal(other.order(REPEAT, number=2))


def test_without_a_folder_the_same_order_gets_the_same_bytes_within_a_run():
    noisy = Server(None, mods=[LocalDpMod(10.0, 1.0, 1.0, 1e-3)])
    noisy.offer()
    assert len({mean_of(noisy.order()).tobytes() for _ in range(10)}) == 1


def test_a_round_that_cannot_be_repeated_is_told_and_not_sent_again(server):
    rng = np.random.default_rng(0)

    class Random(Averager):
        def train(self, arrays, share, config):
            return ArrayRecord({"mean": Array(rng.normal(size=3).astype(np.float32))}), 30

    random = Server(server.folder, Random)
    random.offer()
    answered(random.order())
    assert "got another model" in refusal(random.order(REPEAT))


def test_ordinary_training_gives_one_update_for_a_round_of_a_ledger(server):
    key = SigningKey.generate()

    def train(number, model, seq):
        head = Head.signed(seq, "ab" * 32, key)
        shown = {
            "head-seq": seq,
            "head-hash": head.hash,
            "head-key": head.key,
            "head-signature": head.signature,
        }
        settings = ConfigRecord({"server-round": number, "seed": 0, "samples": 1, **shown})
        return server.send(TRAIN, RecordDict({"arrays": model, "config": settings}))

    first = answered(train(1, initial(), 1))
    assert first["metrics"]["num-examples"] == 60
    assert digest(answered(train(1, initial(), 2))["arrays"]) == digest(first["arrays"])
    assert "from another model" in refusal(train(1, model_at(1.0), 3))
    answered(train(2, model_at(1.0), 4))


# ---- privacy


@pytest.mark.parametrize("epsilon", [-1000.0, 0.0, float("nan"), float("inf"), -float("inf")])
def test_an_epsilon_that_is_none_costs_nothing_and_gets_nothing(server, epsilon):
    for question in (SpreadQuestion(initial(), "r1", 1.0), Server.embedding()):
        assert refusal(server.ask(question, epsilon=epsilon))
    assert not (server.folder / "state.json").exists() or server.state["releases"] == {}
    with pytest.raises(ValueError, match="epsilon"):
        Release(epsilon=epsilon if epsilon != 0.0 else -1.0)


@pytest.mark.parametrize("total", [12.0, float("inf")])
def test_an_embedding_without_a_delta_has_no_noise_and_is_refused(tmp_path, total):
    server = Server(tmp_path / "client", total_epsilon=total)
    asked = Server.embedding().encode()
    asked["config"] = ConfigRecord({name: v for name, v in asked["config"].items() if name != "delta"})
    assert "delta" in refusal(server.send(EMBED, asked))


def test_no_sequence_of_questions_spends_more_than_the_total(tmp_path):
    """Whatever is asked, with whatever epsilon: what was answered adds up to no more than the policy allows."""
    server = Server(tmp_path / "client", total_epsilon=3.0)
    rng, got = np.random.default_rng(1), 0
    for number in range(60):
        epsilon = float(rng.choice([-1000.0, -1.0, 0.0, 0.1, 0.5, 1.0, 4.0, 1e9, np.nan, np.inf]))
        if rng.random() < 0.5:
            reply = server.ask(SpreadQuestion(initial(), f"r{number}", 1.0), epsilon=epsilon)
        else:
            reply = server.embed(f"r{number}", epsilon=epsilon)
        got += not reply.has_error()
        if number:
            assert server.spent <= 3.0 * (1 + 1e-9)
    assert 0 < got < 40


def test_changed_data_are_another_release_and_an_old_question_gets_its_old_reply(tmp_path):
    """The same question 40 times while the data change by 1e-9: not 40 noises for one entry in the records."""
    moved = [0.0]

    class Moving(Averager):
        def samples(self, arrays):
            return self.data + moved[0]

    server = Server(tmp_path / "client", Moving, total_epsilon=3.0)
    first = answered(server.embed())["arrays"]
    for step in range(40):
        moved[0] = step * 1e-9
        assert digest(answered(server.embed())["arrays"]) == digest(first)
    assert len(server.state["releases"]) == 1
    for slot in (
        server.folder / "replies"
    ).iterdir():  # without the stored reply every change counts by itself
        slot.unlink()
    for step in range(40):
        moved[0] = (step + 1) * 1e-9
        for slot in (server.folder / "replies").iterdir():
            slot.unlink()
        server.embed()
    assert 1 < len(server.state["releases"]) < 40
    assert server.spent <= 3.0


# ---- what the server sees


def test_only_sums_shows_no_update_no_gradient_and_no_measure(tmp_path):
    server = Server(tmp_path / "client", only_sums=True)
    server.offer()
    plain = RecordDict({"arrays": initial(), "config": ConfigRecord({"server-round": 1, "seed": 0})})
    assert "sums only" in refusal(server.send(TRAIN, plain))
    assert "sums only" in refusal(server.order())
    assert "sums only" in refusal(server.order(REPEAT))
    assert "sums only" in refusal(server.ask(GradientQuestion(initial(), "r1", 0.5, 30, 0)))
    told = answered(server.ask(MeasureQuestion(initial(), model_at(1.0), "r1")))
    assert len(told.metric_records.get("metrics", MetricRecord())) == 0
    assert "receipt" in told


def test_a_server_that_chooses_the_model_reads_rows_out_of_one_update_and_sums_alone_prevent_it(tmp_path):
    """The limit of the policy with single updates: weights that put every row into its own neuron."""
    torch = pytest.importorskip("torch")
    from stackfu_integration.flower.torch_client import TorchParticipant, model_arrays

    rows, width, neurons = 30, 6, 4000
    data = torch.from_numpy(np.random.default_rng(8).normal(size=(rows, width)).astype(np.float32))
    labels = torch.arange(rows) % 2

    class Rows(TorchParticipant):
        def model(self):
            layers = torch.nn.Linear(width, neurons), torch.nn.ReLU(), torch.nn.Linear(neurons, 2)
            return torch.nn.Sequential(*layers).double()

        def data(self):
            return data.double(), labels, data.double(), labels

    trap = Rows(Context(0, 0, {"partition-id": CLIENT}, RecordDict(), {})).model()
    with torch.no_grad():
        trap[0].weight[:] = torch.ones(
            width
        )  # all neurons look along one direction, each from another threshold on
        trap[0].bias[:] = -torch.linspace(-12, 12, neurons)
        trap[2].weight[:] = torch.tensor([[1e-6], [-1e-6]])
        trap[2].bias[:] = 0.0

    def found(reply):
        sent, got = model_arrays(trap), answered(reply)["arrays"]
        weight, bias = (got[name].numpy() - sent[name].numpy() for name in ("0.weight", "0.bias"))
        weight, bias = weight[:-1] - weight[1:], bias[:-1] - bias[1:]
        with np.errstate(all="ignore"):
            read = (weight / bias[:, None])[np.abs(bias) > 1e-10]
        far = np.abs(read[:, None] - data.numpy()[None]).max(2).min(0)
        return int((far < 1e-3).sum())

    content = RecordDict(
        {"arrays": model_arrays(trap), "config": ConfigRecord({"server-round": 1, "seed": 0})}
    )
    assert found(Server(tmp_path / "plain", Rows).send(TRAIN, content)) > 0.8 * rows
    assert "sums only" in refusal(Server(tmp_path / "sums", Rows, only_sums=True).send(TRAIN, content))


def test_handlers_of_the_app_itself_obey_the_policy_whenever_they_are_registered(tmp_path):
    server = Server(tmp_path / "client", only_sums=True)
    server.grid._app = app = add_mechanism(ClientApp(), server.loaded)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict(), reply_to=message)

    @app.train()
    def train(message, context):
        return Message(RecordDict(), reply_to=message)

    @app.train("other")
    def train_otherwise(message, context):
        return Message(RecordDict(), reply_to=message)

    content = RecordDict({"arrays": initial(), "config": ConfigRecord({"server-round": 1})})
    for kind in ("evaluate", "train", "train.default", "train.other"):
        assert "sums only" in refusal(server.send(kind, content))


def test_ordinary_training_on_too_few_samples_is_refused(tmp_path):
    """An update of five samples that the server sees by itself tells what they are, whichever message asks for it."""
    plain = RecordDict({"arrays": initial(), "config": ConfigRecord({"server-round": 1, "seed": 0})})

    class Few(Averager):
        @property
        def size(self):
            return 5

    assert "8 are the least" in refusal(Server(tmp_path / "few", Few).send(TRAIN, plain))
    answered(Server(tmp_path / "allowed", Few, least_samples=5).send(TRAIN, plain))


def test_two_models_are_measured_for_a_request_once(server):
    def measured(before, after, request="r1"):
        reply = answered(server.ask(MeasureQuestion(before, after, request)))
        return dict(reply.metric_records.get("metrics", MetricRecord()))

    assert measured(initial(), model_at(1.0)) == {}  # of a request that it has no part in
    server.offer("r2")
    first = measured(initial(), model_at(1.0), "r2")
    assert set(first) == {"before.loss", "after.loss"}
    assert measured(initial(), model_at(1.0), "r2") == first
    for before, after in ((initial(), model_at(1.1)), (model_at(0.1), model_at(1.0))):
        assert "two other models" in refusal(server.ask(MeasureQuestion(before, after, "r2")))
    server.offer("r3")
    assert "not the model" in refusal(server.ask(MeasureQuestion(model_at(5.0), model_at(1.0), "r3")))


def test_models_are_measured_for_so_many_requests_and_no_more(tmp_path):
    """Embeddings of next to no epsilon cost next to nothing, and every request of such a kind would give two more losses."""
    server, found = Server(tmp_path / "client", measured_requests=3), []
    for number in range(6):
        answered(server.embed(f"r{number}", epsilon=1e-3))
        for _ in range(2):
            reply = answered(server.ask(MeasureQuestion(initial(), model_at(number + 1.0), f"r{number}")))
            found.append(len(reply.metric_records.get("metrics", MetricRecord())))
            assert "receipt" in reply  # the payment is acknowledged all the same
    assert found == [2] * 6 + [0] * 6


# ---- a server that goes back


def test_a_server_that_goes_back_and_writes_other_rows_is_refused(tmp_path):
    key, records = SigningKey.generate(), ClientState(tmp_path, RecordDict())

    def see(seq, hash_):
        ClientState(tmp_path, RecordDict()).see(Head.signed(seq, hash_ * 32, key))

    for seq, hash_ in ((3, "aa"), (5, "bb"), (9, "cc")):
        see(seq, hash_)
    see(5, "bb")  # a message that comes twice
    for seq, hash_, said in (
        (5, "dd", "two different rows"),
        (9, "dd", "two different"),
        (6, "dd", "goes back"),
    ):
        with pytest.raises(ValueError, match=said):
            see(seq, hash_)
    see(10, "ee")
    with pytest.raises(ValueError, match="two different rows"):
        see(3, "dd")
    assert records.state["head"][0] == 10


# ---- lengths


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, "request") for kind in (EMBED, SPREAD, RESPOND, MEASURE, UNLEARN)),
        *((ROLL, "nonce"), (ROLL, "head-key"), (RESPOND, "unlearning"), (EMBED, "kernel"), (UNLEARN, "only")),
    ],
)
def test_every_text_of_a_message_is_of_bounded_length(server, kind, name):
    server.offer()
    before = sum(path.stat().st_size for path in server.folder.rglob("*") if path.is_file())
    settings = {"nonce": "ab", "request": "r1", "server-round": 1, "share": 0.5, "seed": 0}
    if name == "head-key":
        settings |= {"head-seq": 1, "head-hash": "ab", "head-signature": "ab"}
    if kind == RESPOND:
        own = np.zeros(16)
        asked = OfferQuestion("r1", Offer(1.0, 1.0, 0.3, 1.0, 0.5, 0.8, own, own)).encode()
    elif kind in (EMBED, MEASURE):
        question = Server.embedding() if kind == EMBED else MeasureQuestion(initial(), initial(), "r1")
        asked = question.encode()
    else:
        asked = RecordDict({"arrays": initial(), "config": ConfigRecord(settings)})
    asked["config"] = ConfigRecord({**asked["config"], name: "a" * 3_000_000})
    said = refusal(server.send(kind, asked))
    assert name in said
    assert len(said) < 1_000
    after = sum(path.stat().st_size for path in server.folder.rglob("*") if path.is_file())
    assert after - before < 10_000
