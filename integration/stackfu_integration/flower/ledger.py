"""The ledger: one row per event, in an SQLite file that only grows.

The rules that money depends on are part of the database and not of the code that calls it:

- an event happens once: ``(request, kind, client, round)`` is unique, so nobody is paid twice for one request;
- rows are never changed or deleted;
- work counts only after a commitment to it, and a payment is at most

      price * committed share * rounds delivered / rounds agreed,

  so what was not delivered is not paid;
- the payments of a request stay within its budget.

Every write is a transaction on disk before it returns (write-ahead log, full synchronisation): a server
killed at any moment finds, when it comes back, either all rows of a step or none.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from stackfu.errors import FileFormatError, StackfuError
from stackfu_integration.flower.events import (
    NOBODY,
    ClientEvent,
    ClientFault,
    Event,
    RemovalRequested,
    Row,
    from_row,
    to_row,
)

__all__ = ["RUN", "LedgerError", "PaymentLedger"]

RUN = ""  # the request of events that belong to no request
_VERSION = 1
_COLUMNS = ("seq", "at", "request", "kind", "client", "round", "amount", "detail", "payload")

_AnyEvent = TypeVar("_AnyEvent", bound=Event)
_OfClient = TypeVar("_OfClient", bound=ClientEvent)

_SCHEMA = """
CREATE TABLE events (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    at      TEXT NOT NULL,
    request TEXT NOT NULL,
    kind    TEXT NOT NULL,
    client  INTEGER NOT NULL,
    round   INTEGER NOT NULL,
    amount  REAL,
    detail  TEXT NOT NULL CHECK (json_valid(detail)),
    payload BLOB,
    UNIQUE (request, kind, client, round)
) STRICT;

CREATE TRIGGER rows_stay BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'rows of the ledger are never changed'); END;

CREATE TRIGGER rows_remain BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'rows of the ledger are never deleted'); END;

CREATE TRIGGER work_was_agreed BEFORE INSERT ON events WHEN NEW.kind = 'work'
BEGIN
    SELECT RAISE(ABORT, 'work without a commitment') WHERE NOT EXISTS (
        SELECT 1 FROM events WHERE request = NEW.request AND kind = 'commitment' AND client = NEW.client
            AND NEW.round BETWEEN 1 AND json_extract(detail, '$.rounds'));
END;

CREATE TRIGGER payment_was_earned BEFORE INSERT ON events WHEN NEW.kind = 'payment'
BEGIN
    SELECT RAISE(ABORT, 'a payment needs a positive amount and no round')
        WHERE NEW.amount IS NULL OR NEW.amount <= 0 OR NEW.round <> -1;
    SELECT RAISE(ABORT, 'payment for work that was not delivered')
    WHERE NEW.amount > 1e-300 + (1 + 1e-12) * coalesce((
        SELECT c.amount * json_extract(c.detail, '$.price') / json_extract(c.detail, '$.rounds') * (
            SELECT count(*) FROM events AS w
            WHERE w.request = NEW.request AND w.kind = 'work' AND w.client = NEW.client)
        FROM events AS c
        WHERE c.request = NEW.request AND c.kind = 'commitment' AND c.client = NEW.client), 0);
    SELECT RAISE(ABORT, 'payments above the budget') WHERE NEW.amount + (
        SELECT total(amount) FROM events WHERE request = NEW.request AND kind = 'payment'
    ) > (1 + 1e-9) * coalesce((SELECT amount FROM events WHERE request = NEW.request AND kind = 'game'), 0);
END;
"""


class LedgerError(StackfuError):
    """The ledger refuses a row."""


class PaymentLedger:
    """An open ledger file.

    >>> import tempfile
    >>> from stackfu_integration.flower.events import *
    >>> with tempfile.TemporaryDirectory() as folder, PaymentLedger(Path(folder) / "ledger.sqlite") as ledger:
    ...     ledger.add("r1", GameFounded(budget=10.0, bandwidth=1.0, costs={3: 5.0}, full_price=4.0, clipped=0.0))
    ...     ledger.add("r1", ClientCommitted(client=3, share=0.5, price=4.0, samples=20, rounds=2))
    ...     ledger.add("r1", WorkDelivered(client=3, number=1, samples=20))
    ...     try:
    ...         ledger.add("r1", ClientPaid(client=3, amount=2.0, delivered=2, agreed=2))
    ...     except LedgerError as error:
    ...         print(error)
    ...     ledger.add("r1", ClientPaid(client=3, amount=1.0, delivered=1, agreed=2))
    payment of client 3: payment for work that was not delivered
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        if not create and not path.is_file():
            raise FileFormatError(f"{path}: there is no ledger")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._open_transaction = False
        self._db = sqlite3.connect(path, isolation_level=None, timeout=30.0)
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                self._create()
            elif version != _VERSION:
                raise FileFormatError(f"{path}: a ledger of version {version}, this program knows {_VERSION}")
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise FileFormatError(f"{path}: not a ledger ({error})") from error

    def _create(self) -> None:
        with self.transaction():
            if self._db.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in _statements(_SCHEMA):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> PaymentLedger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        """A ledger that goes away, also one whose opening failed, takes its connection with it (3.13 warns of open ones)."""
        if hasattr(self, "_db"):
            with suppress(sqlite3.ProgrammingError):  # the last reference was dropped in another thread
                self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All rows added inside are written together, or none; inside another one it is a part of that."""
        if self._open_transaction:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        self._open_transaction = True
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        else:
            self._db.execute("COMMIT")
        finally:
            self._open_transaction = False

    # ---------------------------------------------------------------- writing

    def add(self, request: str, event: Event) -> None:
        """Write one event, on its own or as part of the open transaction."""
        if not self._open_transaction:  # a row of its own is a transaction of its own
            with self.transaction():
                self.add(request, event)
            return
        row = to_row(request, event)
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        text = json.dumps(row.detail, sort_keys=True, allow_nan=False)
        try:
            self._db.execute(
                f"INSERT INTO events ({', '.join(_COLUMNS[1:])}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (now, request, row.kind, row.client, row.round, row.amount, text, row.payload),
            )
        except sqlite3.IntegrityError as error:
            who = "" if row.client == NOBODY else f" of client {row.client}"
            what = "is in the ledger already" if "UNIQUE" in str(error) else str(error)
            raise LedgerError(f"{row.kind}{who}: {what}") from error

    def add_fault(self, request: str, client: int, phase: str, problem: str) -> None:
        """Name a client that did not keep to the protocol."""
        earlier = sum(fault.client == client for fault in self.events(request, ClientFault))
        self.add(request, ClientFault(client, number=earlier, phase=phase, problem=problem))

    # ---------------------------------------------------------------- reading

    def rows(self, request: str | None = None, kind: str | None = None) -> list[Row]:
        """Return rows as they are, in the order in which they were written."""
        return self._select(request, kind, "seq")

    def _select(self, request: str | None, kind: str | None, order: str, limit: int = -1) -> list[Row]:
        given = {"request": request, "kind": kind}
        chosen = {column: value for column, value in given.items() if value is not None}
        where = " AND ".join(f"{column} = ?" for column in chosen) or "1"
        found = self._db.execute(
            f"SELECT {', '.join(_COLUMNS)} FROM events WHERE {where} ORDER BY {order} LIMIT ?",
            (*chosen.values(), limit),
        )
        named = (dict(zip(_COLUMNS, row, strict=True)) for row in found)
        return [Row(**{**row, "detail": json.loads(row["detail"])}) for row in named]

    def events(self, request: str, kind: type[_AnyEvent]) -> list[_AnyEvent]:
        """Return the events of this class in the order in which they happened."""
        return [_read(row, kind) for row in self.rows(request, kind.kind)]

    def last(self, request: str, kind: type[_AnyEvent]) -> _AnyEvent | None:
        """Return the event of this class with the highest round, if there is one."""
        found = self._last_row(request, kind)
        return None if found is None else _read(found, kind)

    def need(self, request: str, kind: type[_AnyEvent]) -> _AnyEvent:
        """Return the event of this class with the highest round; without one, nothing can go on."""
        event = self.last(request, kind)
        if event is None:
            raise StackfuError(f"{request or 'the run'}: no {kind.kind} in the ledger")
        return event

    def has(self, request: str, kind: type[Event]) -> bool:
        """Say whether an event of this class has happened."""
        return self._last_row(request, kind) is not None

    def time_of(self, request: str, kind: type[Event]) -> str | None:
        """Return when the last event of this class was written down (UTC)."""
        found = self._last_row(request, kind)
        return None if found is None else found.at

    def by_client(self, request: str, kind: type[_OfClient]) -> dict[int, _OfClient]:
        """Return the events of this class by client, the last round of each."""
        rows = self._select(request, kind.kind, "client, round")
        return {row.client: _read(row, kind) for row in rows}

    def requests(self) -> list[str]:
        """Return the removal requests in the order in which they arrived."""
        return [row.request for row in self.rows(kind=RemovalRequested.kind)]

    def _last_row(self, request: str, kind: type[Event]) -> Row | None:
        found = self._select(request, kind.kind, "round DESC, seq", limit=1)
        return found[0] if found else None


def _read(row: Row, kind: type[_AnyEvent]) -> _AnyEvent:
    event = from_row(row)
    assert isinstance(event, kind)
    return event


def _statements(script: str) -> Iterator[str]:
    """Split a script without leaving the transaction, which ``executescript`` would."""
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
