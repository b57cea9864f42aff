"""Names on the wire: message types, and the records that the messages carry.

=====================  ===========================================  =========================================
message                server sends                                 client replies
=====================  ===========================================  =========================================
``query.stackfu_roll``     nothing                                  its client number
``query.stackfu_spread``   the model                                median squared distance in its own data
``query.stackfu_embed``    the model, bandwidth, D, seed, privacy   D numbers, its size, the noise's deviation
``query.stackfu_respond``  price, public sum, its own embedding     the share it would take part with
``train.stackfu_unlearn``  the model, its share                     the trained model, samples used
``evaluate.stackfu_measure`` model before and after, its payment    measures on its own data
=====================  ===========================================  =========================================

Ordinary training uses Flower's own ``train`` message with ``arrays`` and ``config``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

__all__ = [
    "EMBED",
    "MEASURE",
    "RESPOND",
    "ROLL",
    "SPREAD",
    "TRAIN",
    "UNLEARN",
    "Refusal",
    "ask",
    "config",
    "messages_to",
    "metric",
    "numbers",
    "read_numbers",
    "setting",
    "sort_replies",
]

ROLL = "query.stackfu_roll"
SPREAD = "query.stackfu_spread"
EMBED = "query.stackfu_embed"
RESPOND = "query.stackfu_respond"
TRAIN = "train"
UNLEARN = "train.stackfu_unlearn"
MEASURE = "evaluate.stackfu_measure"


@dataclass(frozen=True)
class Refusal:
    """Why a client's answer does not count."""

    problem: str


def numbers(**vectors: NDArray[np.float64]) -> ArrayRecord:
    """Pack vectors of double precision."""
    return ArrayRecord(
        {name: Array(np.ascontiguousarray(v, dtype=np.float64)) for name, v in vectors.items()}
    )


def read_numbers(record: ArrayRecord, name: str) -> NDArray[np.float64]:
    """Unpack a vector."""
    return np.asarray(record[name].numpy(), dtype=np.float64)


def messages_to(
    nodes: Mapping[int, int], message_type: str, contents: Mapping[int, RecordDict]
) -> list[Message]:
    """Return one message a client, in ascending client number."""
    return [
        Message(contents[client], dst_node_id=nodes[client], message_type=message_type)
        for client in sorted(contents)
    ]


def sort_replies(
    replies: Iterable[Message],
    nodes: Mapping[int, int],
    asked: Iterable[int],
    check: Callable[[int, RecordDict], str | None] = lambda client, answer: None,
) -> dict[int, RecordDict | Refusal]:
    """Return what every client that was asked answered, in ascending client number.

    Who answers is known from the node that the reply comes from, which Flower authenticates, and never from
    what the reply says. Of several replies the first one counts in which ``check`` finds nothing wrong.
    """
    clients = {node: client for client, node in nodes.items()}
    answers: dict[int, RecordDict | Refusal] = {client: Refusal("did not answer") for client in sorted(asked)}
    for reply in replies:
        client = clients.get(reply.metadata.src_node_id)
        if client is None or not isinstance(answers.get(client), Refusal):
            continue
        if reply.has_error():
            answers[client] = Refusal(f"failed: {_first_line(reply.error.reason)}")
        else:
            problem = check(client, reply.content)
            answers[client] = reply.content if problem is None else Refusal(problem)
    return answers


def _first_line(reason: str | None) -> str:
    lines = [line.strip() for line in (reason or "").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no reason given"


def ask(
    grid: Grid,
    nodes: Mapping[int, int],
    message_type: str,
    contents: Mapping[int, RecordDict],
    timeout: float,
) -> dict[int, RecordDict | Refusal]:
    """Send each client its content and return the answers that came in time."""
    if not contents:
        return {}
    replies = grid.send_and_receive(messages_to(nodes, message_type, contents), timeout=timeout)
    return sort_replies(replies, nodes, contents)


def metric(content: RecordDict, name: str) -> float | int:
    """Return a number of a reply's ``metrics``; raises ``KeyError`` or ``TypeError`` if there is none."""
    record = content["metrics"]
    if not isinstance(record, MetricRecord):
        raise TypeError("metrics is not a MetricRecord")
    value = record[name]
    if isinstance(value, list):
        raise TypeError(f"{name} is a list")
    number: float | int = value
    return number


_T = TypeVar("_T", str, int, float)


def setting(record: ConfigRecord, name: str, kind: type[_T]) -> _T:
    """Return an entry of a config record as text or number."""
    value = record[name]
    if isinstance(value, (list, bytes)):
        raise TypeError(f"{name} must be one value")
    return kind(value)


def config(**entries: str | int | float | bool) -> ConfigRecord:
    """Return a config record; underscores in names become dashes, as Flower writes them."""
    return ConfigRecord({name.replace("_", "-"): value for name, value in entries.items()})
