"""The ledger: one row an event, in an SQLite file that only grows.

The rules that money depends on are part of the database and not of the code that calls it:

- an event happens once: ``(request, kind, client, round)`` is unique, so nobody is paid twice for one
request; - rows are never changed or deleted; - work counts only after a commitment to it, and a payment is at
most

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
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from stackfu.errors import FileFormatError, StackfuError

__all__ = ["Event", "LedgerError", "PaymentLedger"]

NOBODY = -1  # an event of the server, or one that belongs to no round
_VERSION = 1
_COLUMNS = ("seq", "at", "request", "kind", "client", "round", "amount", "detail", "payload")

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


@dataclass(frozen=True)
class Event:
    """One row."""

    seq: int
    at: str
    request: str
    kind: str
    client: int
    round: int
    amount: float | None
    detail: dict[str, Any]
    payload: bytes | None = field(repr=False)


class PaymentLedger:
    """An open ledger file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, PaymentLedger(Path(folder) / "ledger.sqlite") as ledger:
    ...     ledger.add("r1", "game", amount=10.0)
    ...     ledger.add("r1", "commitment", client=3, amount=0.5, price=4.0, rounds=2)
    ...     ledger.add("r1", "work", client=3, round=1, amount=20)
    ...     try:
    ...         ledger.add("r1", "payment", client=3, amount=2.0)
    ...     except LedgerError as error:
    ...         print(error)
    ...     ledger.add("r1", "payment", client=3, amount=1.0)
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

    def add(
        self,
        request: str,
        kind: str,
        *,
        client: int = NOBODY,
        round: int = NOBODY,
        amount: float | None = None,
        payload: bytes | None = None,
        **detail: Any,
    ) -> None:
        """Write one event, on its own or as part of the open transaction."""
        if not self._open_transaction:  # a row of its own is a transaction of its own
            with self.transaction():
                self.add(request, kind, client=client, round=round, amount=amount, payload=payload, **detail)
            return
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        text = json.dumps(detail, sort_keys=True, allow_nan=False)
        try:
            self._db.execute(
                f"INSERT INTO events ({', '.join(_COLUMNS[1:])}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (now, request, kind, client, round, None if amount is None else float(amount), text, payload),
            )
        except sqlite3.IntegrityError as error:
            who = "" if client == NOBODY else f" of client {client}"
            what = "is in the ledger already" if "UNIQUE" in str(error) else str(error)
            raise LedgerError(f"{kind}{who}: {what}") from error

    def events(self, request: str | None = None, kind: str | None = None) -> list[Event]:
        """Return events in the order in which they happened."""
        where, values = [], []
        for column, value in (("request", request), ("kind", kind)):
            if value is not None:
                where.append(f"{column} = ?")
                values.append(value)
        condition = f"WHERE {' AND '.join(where)}" if where else ""
        rows = self._db.execute(f"SELECT {', '.join(_COLUMNS)} FROM events {condition} ORDER BY seq", values)
        named = (dict(zip(_COLUMNS, row, strict=True)) for row in rows)
        return [Event(**{**row, "detail": json.loads(row["detail"])}) for row in named]

    def last(self, request: str, kind: str) -> Event | None:
        """Return the event of this kind with the highest round, if there is one."""
        found = self.events(request, kind)
        return max(found, key=lambda event: event.round) if found else None

    def by_client(self, request: str, kind: str) -> dict[int, Event]:
        """Return the events of this kind by client, the last round of each."""
        found = sorted(self.events(request, kind), key=lambda event: (event.client, event.round))
        return {event.client: event for event in found}

    def requests(self) -> list[str]:
        """Return the removal requests in the order in which they arrived."""
        return [event.request for event in self.events(kind="request")]

    def add_fault(self, request: str, client: int, phase: str, problem: str) -> None:
        """Name a client that did not keep to the protocol."""
        count = sum(event.client == client for event in self.events(request, "fault"))
        self.add(request, "fault", client=client, round=count, phase=phase, problem=problem)


def _statements(script: str) -> Iterator[str]:
    """Split a script without leaving the transaction, which ``executescript`` would."""
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
