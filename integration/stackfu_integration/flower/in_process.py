"""A Flower ``Grid`` that calls client apps directly: no Ray, no network, no processes.

It runs the same client and server apps as the engines do. Messages pass through Flower's own serialisation
when ``wire=True``, which also counts their bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

__all__ = ["InProcessGrid"]


class InProcessGrid(Grid):
    """Nodes that live in this process.

    ``node_configs`` has one entry per node; node ids are drawn so that they are not the client numbers.
    """

    def __init__(
        self,
        app: ClientApp,
        node_configs: Iterable[dict[str, Any]],
        run_config: dict[str, Any] | None = None,
        *,
        wire: bool = False,
    ) -> None:
        self._app, self._wire = app, wire
        self._run = Run.create_empty(run_id=1)
        # an engine says who the process is before it runs a server app; messages carry it
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self._numbers = itertools.count(1)
        self._inbox: dict[str, Message] = {}
        self.bytes_down: dict[str, int] = {}  # by message type
        self.bytes_up: dict[str, int] = {}
        self.contexts: dict[int, Context] = {}
        for config in node_configs:
            self.join(config, run_config)

    def join(self, node_config: dict[str, Any], run_config: dict[str, Any] | None = None) -> int:
        """Add a node and return its id."""
        node_id = 7919 * (len(self.contexts) + 1) % 1_000_003
        self.contexts[node_id] = Context(1, node_id, node_config, RecordDict(), run_config or {})
        return node_id

    def set_run(self, run: Run) -> None:
        """Take over a run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):  # type: ignore[no-untyped-def]
        """Build a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver messages and keep the replies."""
        ids = []
        for message in messages:
            name = f"m{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = name
            ids.append(name)
            reply = self._deliver(message)
            if reply is not None:
                self._inbox[name] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Hand out the replies to these messages."""
        return [self._inbox.pop(name) for name in list(message_ids) if name in self._inbox]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Deliver messages and return the replies."""
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message) -> Message | None:
        """Let the node answer; a subclass may lose, delay or change what passes."""
        return self.answer(message)

    def answer(self, message: Message) -> Message:
        """Call the client app as an engine does: an exception becomes an error reply."""
        context = self.contexts[message.metadata.dst_node_id]
        kind = message.metadata.message_type
        if self._wire:
            message = self._through_the_wire(message, self.bytes_down, kind)
        try:
            reply = self._app(message, context)
        except Exception as error:
            return Message(Error(code=2, reason=f"{type(error).__name__}: {error}"), reply_to=message)
        return self._through_the_wire(reply, self.bytes_up, kind) if self._wire else reply

    @staticmethod
    def _through_the_wire(message: Message, counter: dict[str, int], kind: str) -> Message:
        data = recorddict_to_proto(message.content)
        counter[kind] = counter.get(kind, 0) + data.ByteSize()
        message.content = recorddict_from_proto(type(data).FromString(data.SerializeToString()))
        return message
