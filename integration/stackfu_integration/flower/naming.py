"""What requests and clients are called, in words that are fit for a line of a report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stackfu.embedding.names import listed

__all__ = ["PLAIN_NAME", "Naming", "one_line"]

PLAIN_NAME = re.compile(r"\w[\w .-]{0,63}")  # of a request: its audit is a file of that name


def one_line(text: str) -> str:
    """Text that somebody else wrote, without what would end a line, a cell or the text of a page."""
    return re.sub(r"[\s|<>`]+", " ", text)


@dataclass(frozen=True)
class Naming:
    """Clients by the names that a run gave them, and by their numbers where it gave none.

    >>> who = Naming(("Leeds", "York"))
    >>> who(0), who.all([1]), who.all([0, 1]), Naming().all([3, 4])
    ('Leeds', 'client York', 'clients Leeds, York', 'clients 3, 4')
    """

    names: Sequence[str] = ()

    def __call__(self, client: int) -> str:
        """The name of one client."""
        return one_line(str(self.names[client])) if 0 <= client < len(self.names) else str(client)

    def all(self, clients: Iterable[int]) -> str:
        """One client or several, said to be clients."""
        names = [self(client) for client in clients]
        return f"client{'' if len(names) == 1 else 's'} {listed(names, len(names))}"
