"""One message at one client: who is asked, its records, and the head that the server shows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto

from stackfu.errors import InputError
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.client.participant import Participant
from stackfu_integration.flower.client_state import ClientState
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.policy import PolicyError
from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.sum_member import SumMember
from stackfu_integration.flower.wire.records import head_in

__all__ = ["Inbox", "mark_of", "question_in"]

_Question = TypeVar("_Question")


class Inbox:
    """The participant of a client, its records, and its part in secure sums, while it answers one message."""

    def __init__(self, message: Message, context: Context, load: Callable[[Context], Participant]) -> None:
        self.participant = load(context)
        self.records = ClientState(self.participant.folder, context.state, self.participant.policy)
        self.content = message.content
        self.head: Head | None = head_in(message.content)
        self.records.see(self.head)

    @cached_property
    def secret(self) -> bytes:
        """The secret from which noise and masks are drawn."""
        return self.participant.noise_key or self.records.noise_key()

    @cached_property
    def sums(self) -> SumMember:
        """The client's part in secure sums."""
        return SumMember(self.participant.client, self.secret, self.records)

    def once(self, slot: str, mark: str, message: Message, answer: Callable[[], Message]) -> Message:
        """Return the reply that was given to this very question before, to the last byte; otherwise answer, and store the reply."""
        stored = self.records.reply_to(slot, mark)
        if stored is not None:
            return Message(recorddict_from_proto(RecordDictProto.FromString(stored)), reply_to=message)
        reply = answer()
        if not reply.has_error():
            self.records.keep_reply(slot, mark, recorddict_to_proto(reply.content).SerializeToString())
        return reply

    def sign(self, what: str, **facts: Any) -> Receipt | None:
        """Sign facts about this client together with the head that was shown; without a key nothing is signed."""
        return self.records.sign(what, self.head, client=self.participant.client, **facts)

    def owed(self, share: float, seed: int) -> dict[str, int | float]:
        """Return the settings of work that follow from an agreed share, whatever the server says that they are."""
        return {"share": share, "seed": seed, "samples": round(share * self.participant.size)}

    def check_sums(self, what: str, summed: bool) -> None:
        """Refuse single updates and gradients if the policy allows sums only."""
        if self.records.policy.only_sums and not summed:
            raise PolicyError(f"this client shows its {what} in sums only")

    def check_curvature(self, summed: bool) -> None:
        """Refuse second derivatives outside sums unless the policy allows them."""
        if not (summed or self.records.policy.curvature):
            raise PolicyError("this client shows its second derivatives in sums only")

    def check_rounds(self, count: int, least: int = 0) -> None:
        """The policy says for how many rounds a client works."""
        if not least <= count <= self.records.policy.train_rounds:
            raise PolicyError(f"this client works {self.records.policy.train_rounds} rounds and no more")

    def check_known(self, holds: bool, name: str, problem: str, value: Any) -> None:
        """Refuse what the records do not hold; without a folder they may have been another run's, if the policy believes that."""
        if not (holds or self.records.in_doubt):
            raise InputError(name, problem, value=value)

    def check_unsettled(self, request: str) -> None:
        """Refuse further work after the payment."""
        if "paid" in self.records.about(request):
            raise InputError("request", "is settled, and this client does no more work for it", value=request)


def mark_of(content: RecordDict) -> str:
    """Return the hash of a message, by which the same one is known when it comes again; the head that is shown is no part of it."""
    sha = hashlib.sha256()
    for name, record in sorted(content.items()):
        sha.update(f"{name}\n".encode())
        if isinstance(record, ArrayRecord):
            sha.update(digest(record).encode())
        elif isinstance(record, ConfigRecord):
            sha.update(
                repr(sorted(entry for entry in record.items() if not entry[0].startswith("head-"))).encode()
            )
        else:
            sha.update(repr(sorted(record.items())).encode())
    return sha.hexdigest()


def question_in(message: Message, decode: Callable[[RecordDict], _Question]) -> _Question:
    """Read what the server asks, or refuse a message that is none."""
    try:
        return decode(message.content)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(message.metadata.message_type, f"the message is incomplete ({error})") from error
