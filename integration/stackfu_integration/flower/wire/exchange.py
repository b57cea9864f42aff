"""Send questions, and assign the answers to clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from flwr.app import Message, RecordDict

from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.wire.records import show_head

if TYPE_CHECKING:  # clients read this module too, and need nothing of the server's
    from flwr.serverapp import Grid

__all__ = ["NO_ANSWER", "Question", "Refusal", "ask", "decoded", "messages_to", "sort_replies"]

NO_ANSWER = "did not answer"
_Answer = TypeVar("_Answer")


class Question(Protocol):
    """Something that the server asks a client."""

    @property
    def message_type(self) -> str:
        """Flower's name for it, which decides who handles it."""

    def encode(self) -> RecordDict:
        """Return the records to send."""


#: Name of the error that clients raise where their policy forbids an answer, :class:`.policy.PolicyError`.
_BY_POLICY = "PolicyError"


@dataclass(frozen=True)
class Refusal:
    """Reason why a client's answer does not count."""

    problem: str

    @property
    def by_policy(self) -> bool:
        """True if the client says that its own policy does not allow the answer."""
        return _BY_POLICY in self.problem


def messages_to(
    nodes: Mapping[int, int], message_type: str, contents: Mapping[int, RecordDict]
) -> list[Message]:
    """Return one message per client, in ascending client number."""
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
    answers: dict[int, RecordDict | Refusal] = {client: Refusal(NO_ANSWER) for client in sorted(asked)}
    for reply in replies:
        client = clients.get(reply.metadata.src_node_id)
        if client is None or not isinstance(answers.get(client), Refusal):
            continue
        if reply.has_error():
            answers[client] = Refusal(f"failed: {_last_line(reply.error.reason)}")
        else:
            try:
                problem = check(client, reply.content)
            except Exception as error:
                problem = _unreadable(error)
            answers[client] = reply.content if problem is None else Refusal(problem)
    return answers


def _last_line(reason: str | None) -> str:
    lines = [line.strip() for line in (reason or "").splitlines() if line.strip()]
    # it becomes a line of the audit, in which a client has no headings and no tables to make
    return re.sub(r"[^\w .,:;/()='-]+", " ", lines[-1])[:200] if lines else "no reason given"


def _unreadable(error: Exception) -> str:
    return f"the reply is incomplete ({_last_line(str(error))})"


def decoded(content: RecordDict, decode: Callable[[RecordDict], _Answer]) -> _Answer | Refusal:
    """Read an answer; one that cannot be read is refused, for whatever reason: no client stops the server."""
    try:
        return decode(content)
    except Exception as error:
        return Refusal(_unreadable(error))


def ask(
    grid: Grid,
    nodes: Mapping[int, int],
    questions: Mapping[int, Question],
    decode: Callable[[RecordDict], _Answer],
    timeout: float,
    head: Head | None = None,
) -> dict[int, _Answer | Refusal]:
    """Ask each client its question and return the answers that came in time, read by ``decode``.

    ``head`` is shown with every question: how far the ledger is.
    """
    if not questions:
        return {}
    (message_type,) = {question.message_type for question in questions.values()}
    contents = {client: show_head(question.encode(), head) for client, question in questions.items()}
    replies = grid.send_and_receive(messages_to(nodes, message_type, contents), timeout=timeout)
    return {
        client: answer if isinstance(answer, Refusal) else decoded(answer, decode)
        for client, answer in sort_replies(replies, nodes, contents).items()
    }
