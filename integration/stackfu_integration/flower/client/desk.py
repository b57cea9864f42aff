"""One message at one client: who is asked, its books, and the head that the server shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flwr.app import Context, Message, RecordDict

from stackfu.errors import InputError
from stackfu_integration.flower.books import ClientBooks
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.client.participant import Participant
from stackfu_integration.flower.policy import PolicyError
from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.sum_member import SumMember
from stackfu_integration.flower.wire.records import head_in

__all__ = ["Desk", "question_in"]

_Question = TypeVar("_Question")


class Desk:
    """The participant of a client, its books, and its part in secure sums, while it answers one message."""

    def __init__(self, message: Message, context: Context, load: Callable[[Context], Participant]) -> None:
        self.participant = load(context)
        self.books = ClientBooks(self.participant.folder, context.state, self.participant.policy)
        self.content = message.content
        self.head: Head | None = head_in(message.content)
        self.books.see(self.head)
        self.secret = self.participant.noise_key or self.books.noise_key()
        self.sums = SumMember(self.participant.client, self.secret, self.books)

    def sign(self, what: str, **facts: Any) -> Receipt | None:
        """Sign facts about this client beside the head that was shown; without a key nothing is signed."""
        return self.books.sign(what, self.head, client=self.participant.client, **facts)

    def check_sums(self, what: str, summed: bool) -> None:
        """Clients may show single updates and gradients to nobody."""
        if self.books.policy.only_sums and not summed:
            raise PolicyError(f"this client shows its {what} in sums only")

    def check_curvature(self, summed: bool) -> None:
        """Second derivatives are shown in sums, or by clients whose policy says so."""
        if not (summed or self.books.policy.curvature):
            raise PolicyError("this client shows its second derivatives in sums only")

    def check_rounds(self, count: int, least: int = 0) -> None:
        """The policy says for how many rounds a client works."""
        if not least <= count <= self.books.policy.train_rounds:
            raise PolicyError(f"this client works {self.books.policy.train_rounds} rounds and no more")

    def check_unsettled(self, request: str) -> None:
        """Whoever was told what it is paid does no more work for it."""
        if "paid" in self.books.about(request):
            raise InputError("request", "is settled, and this client does no more work for it", value=request)


def question_in(message: Message, decode: Callable[[RecordDict], _Question]) -> _Question:
    """Read what the server asks, or refuse a message that is none."""
    try:
        return decode(message.content)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(message.metadata.message_type, f"the message is incomplete ({error})") from error
