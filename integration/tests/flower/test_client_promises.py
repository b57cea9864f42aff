"""A dishonest server in front of real clients: each promise that the guides make about a client, tried on its handlers."""

from __future__ import annotations

from flwr.app import ConfigRecord, Message, RecordDict
from scene import CLIENTS, REMOVED, Scene

from stackfu_integration.flower.books import read_receipts
from stackfu_integration.flower.events import ModelUnlearned, RemovalRequested
from stackfu_integration.flower.receipts import PAYMENT, SHARE, WORK
from stackfu_integration.flower.wire import RESPOND

CLIENT = 3  # that stays


def heard(scene: Scene, kind: str, client: int = CLIENT) -> list[RecordDict]:
    """Return the list to which every message of a kind to a client is added as it passes."""
    found: list[RecordDict] = []

    def keep(message, answer):
        if message.metadata.message_type == kind:
            found.append(RecordDict(dict(message.content)))
        return answer(message)

    scene.behaviours[client] = keep
    return found


def changed(content: RecordDict, **settings) -> RecordDict:
    """Return a copy of a message with other settings."""
    told = {name.replace("_", "-"): value for name, value in settings.items()}
    return RecordDict({**content, "config": ConfigRecord({**content["config"], **told})})


def sent_by_hand(grid, kind: str, content: RecordDict, client: int = CLIENT) -> Message:
    """Send a client a message that no honest server sends, and return its reply."""
    node = next(n for n, c in grid.contexts.items() if c.node_config["partition-id"] == client)
    return grid.answer(Message(content, dst_node_id=node, message_type=kind))


def refusal(reply: Message) -> str:
    assert reply.has_error(), "the client answered"
    return str(reply.error.reason)


def receipts_of(scene: Scene, what: str, client: int = CLIENT):
    kept = read_receipts(scene.client_folder(client) / "receipts.jsonl")
    return [receipt.statement for receipt in kept if receipt.statement["what"] == what]


# ---- who works, and from which model


def test_a_client_signs_the_models_before_and_after_and_who_leaves(scene):
    scene.run()
    with scene.ledger() as ledger:
        before = ledger.need("r1", RemovalRequested).before
        after = ledger.need("r1", ModelUnlearned).model
    for client in range(CLIENTS):
        (paid,) = receipts_of(scene, PAYMENT, client)
        assert (paid["before"], paid["after"]) == (before, after)
    said = receipts_of(scene, SHARE)[-1]
    assert (said["removed"], said["unlearning"], said["seed"]) == (list(REMOVED), "retrain", 0)
    assert len({round_["start"] for round_ in receipts_of(scene, WORK)}) == scene.terms.rounds


def test_a_client_that_leaves_takes_no_offer(scene):
    offers, grid = heard(scene, RESPOND), scene.grid()
    scene.run(grid)
    own = changed(offers[0], removed="0,3", attempt=7)
    assert "this client leaves" in refusal(sent_by_hand(grid, RESPOND, own))
