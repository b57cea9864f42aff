"""Names of requests and clients, and text that is safe in a line of a report."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stackfu.embedding.names import listed

__all__ = ["PLAIN_NAME", "Naming", "in_one_line", "one_line"]

PLAIN_NAME = re.compile(r"\w[\w .-]{0,63}")  # of a request: its audit is a file of that name


_LONGEST = 2000  # characters of one line of the audit


def one_line(text: str) -> str:
    r"""Return text from another party as plain words: no end of a line, cell or page, no escape sequence, no link or image.

    Control and format characters, which terminals and the order of letters obey, are left out, and so are characters that mark
    text in Markdown. Brackets stay, apart from the round ones that would make them a link.

    >>> one_line("O'Hare [2]"), one_line("![x](http://a) **b** \x1b[2J")
    ("O'Hare [2]", ' [x] (http: //a) b [2J')
    """
    # white space ends no word when format characters are taken out, so it goes first
    spaced = re.sub(r"[\s|<>`*~#!\\]+", " ", text)
    plain = "".join(c for c in spaced if not unicodedata.category(c).startswith("C"))
    plain = re.sub(r"(?<!\w)_+|_+(?!\w)", "", plain)  # emphasis; within a word it marks nothing
    plain = plain.replace("](", "] (").replace("]:", "] :").replace("://", ": //")
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 1]}…"


def in_one_line(value: Any) -> Any:
    """Return a value with every text in it, keys of mappings among them, made fit for a line of the audit."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return {in_one_line(key): in_one_line(held) for key, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_one_line(held) for held in value]
    return value


@dataclass(frozen=True)
class Naming:
    """Clients by the names that a run gave them, and by their numbers where it gave none.

    >>> who = Naming(("Leeds", "York"))
    >>> who(0), who.all([1]), who.all([0, 1]), Naming().all([3, 4])
    ('Leeds', 'client York', 'clients Leeds, York', 'clients 3, 4')
    """

    names: Sequence[str] = ()

    def __call__(self, client: int) -> str:
        """Return the name of one client."""
        return one_line(str(self.names[client])) if 0 <= client < len(self.names) else str(client)

    def all(self, clients: Iterable[int]) -> str:
        """Return one client or several, said to be clients."""
        names = [self(client) for client in clients]
        return f"client{'' if len(names) == 1 else 's'} {listed(names, len(names))}"
