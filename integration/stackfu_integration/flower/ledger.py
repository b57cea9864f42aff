"""The ledger: one row per event, in an SQLite file that only grows, chained and signed.

The rules that money depends on are part of the database and not of the code that calls it:

- an event happens once: ``(request, kind, client, round)`` is unique, so nobody is paid twice for one request;
- rows are never changed or deleted;
- work counts only after a commitment to it, and a payment is at most

      price * committed share * rounds delivered / rounds agreed,

  so what was not delivered is not paid;
- the payments of a request stay within its budget;
- nothing happens any more in a request that is closed, and only settlement in one that was aborted.

The rules of the database bind programs that use the database, but not those that open the file otherwise. So every
row carries the hash of itself and of everything before it,

    hash_i = SHA-256(hash_{i-1}, row_i in canonical JSON),      hash_0 = SHA-256(public key of the server),

and the server signs the last one, the *head*, with its Ed25519 key in the same transaction. With the file
and the public key, a changed, replaced, removed or cut-off row can be detected (:func:`broken_link`). An older copy of
the file is valid in itself: only a later head in another party's receipt shows that it is old.

Vectors are kept beside the chain and enter it by a salted hash, ``SHA-256(salt, vector)``: they can be erased
(:meth:`PaymentLedger.erase`), after which the chain still holds and the hash tells nothing.

Every write is a transaction on disk before it returns (write-ahead log, full synchronisation): a server
killed at any moment finds, when it comes back, either all rows of a step or none.

Times never go back: where the clock does, rows go on from the time of the last one, at the pace of the process's own
clock, and a row says that (:class:`.ClockSetBack`).

An auditor does not read the file row by row while others may write to it, or while a view computes what it shows:
:meth:`PaymentLedger.snapshot` reads every row once, on one connection and in one transaction, after the tables were compared
with the ones above, and writes nothing.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

from stackfu.atomic import make_folder
from stackfu.errors import FileFormatError, StackfuError
from stackfu_integration.flower.chain import VERSION, Head, first_link, link, sealed
from stackfu_integration.flower.events import (
    NO_CLIENT,
    ClientEvent,
    ClientFault,
    ClockSetBack,
    Event,
    LogEmptied,
    PayloadsErased,
    RemovalRequested,
    Row,
    RunStarted,
    from_row,
    to_row,
)
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.naming import Naming, one_line

__all__ = ["RUN", "LedgerError", "PaymentLedger", "SchemaError", "broken_link", "broken_rule"]

RUN = ""  # the request of events that belong to no request
_CHAINED = ("seq", "at", "request", "kind", "client", "round", "amount", "detail", "payload")

_AnyEvent = TypeVar("_AnyEvent", bound=Event)
_OfClient = TypeVar("_OfClient", bound=ClientEvent)

_SCHEMA = """
CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    at      TEXT NOT NULL,
    request TEXT NOT NULL,
    kind    TEXT NOT NULL,
    client  INTEGER NOT NULL,
    round   INTEGER NOT NULL,
    amount  REAL,
    detail  TEXT NOT NULL CHECK (json_valid(detail)),
    payload TEXT,
    hash    TEXT NOT NULL,
    UNIQUE (request, kind, client, round)
) STRICT;

CREATE TABLE payloads (
    seq     INTEGER PRIMARY KEY REFERENCES events,
    salt    BLOB NOT NULL,
    content BLOB NOT NULL
) STRICT;

CREATE TABLE head (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    seq       INTEGER NOT NULL,
    hash      TEXT NOT NULL,
    key       TEXT NOT NULL,
    signature TEXT NOT NULL
) STRICT;

CREATE TRIGGER rows_stay BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'rows of the ledger are never changed'); END;

CREATE TRIGGER rows_remain BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'rows of the ledger are never deleted'); END;

CREATE TRIGGER rows_follow BEFORE INSERT ON events
BEGIN
    SELECT RAISE(ABORT, 'is in the ledger already') WHERE EXISTS (
        SELECT 1 FROM events
        WHERE request = NEW.request AND kind = NEW.kind AND client = NEW.client AND round = NEW.round);
    SELECT RAISE(ABORT, 'rows of the ledger are added at its end')
        WHERE NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM events);
END;

CREATE TRIGGER payloads_stay BEFORE UPDATE ON payloads
BEGIN SELECT RAISE(ABORT, 'rows of the ledger are never changed'); END;

CREATE TRIGGER payloads_are_given_once BEFORE INSERT ON payloads
WHEN EXISTS (SELECT 1 FROM payloads WHERE seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'rows of the ledger are never changed'); END;

CREATE TRIGGER payloads_are_erased_in_writing BEFORE DELETE ON payloads
WHEN NOT EXISTS (
    SELECT 1 FROM events AS e JOIN events AS g ON g.request = e.request AND g.kind = 'erased' WHERE e.seq = OLD.seq)
BEGIN SELECT RAISE(ABORT, 'an erasure is written down first'); END;

CREATE TRIGGER what_is_over_is_over BEFORE INSERT ON events WHEN NEW.request <> ''
BEGIN
    SELECT RAISE(ABORT, 'the request is closed') WHERE EXISTS (
        SELECT 1 FROM events WHERE request = NEW.request AND kind = 'closed');
    SELECT RAISE(ABORT, 'the request was aborted')
        WHERE NEW.kind NOT IN ('payment', 'settled', 'erased', 'closed') AND EXISTS (
            SELECT 1 FROM events WHERE request = NEW.request AND kind = 'aborted');
    SELECT RAISE(ABORT, 'the request is settled')
        WHERE NEW.kind IN ('work', 'judged', 'commitment', 'payment', 'aborted') AND EXISTS (
            SELECT 1 FROM events WHERE request = NEW.request AND kind = 'settled');
END;

CREATE TRIGGER work_was_agreed BEFORE INSERT ON events WHEN NEW.kind IN ('work', 'judged')
BEGIN
    SELECT RAISE(ABORT, 'work without a commitment') WHERE NOT EXISTS (
        SELECT 1 FROM events WHERE request = NEW.request AND kind = 'commitment' AND client = NEW.client
            AND NEW.round BETWEEN 1 AND json_extract(detail, '$.rounds'));
END;

CREATE TRIGGER payment_was_earned BEFORE INSERT ON events WHEN NEW.kind = 'payment'
BEGIN
    SELECT RAISE(ABORT, 'a payment needs a positive amount and no round')
        WHERE NEW.amount IS NULL OR NEW.amount <= 0 OR NEW.round <> -1;
    SELECT RAISE(ABORT, 'payment for work that was not delivered, or did not pass')
    WHERE NEW.amount > 1e-300 + (1 + 1e-12) * coalesce((
        SELECT c.amount * json_extract(c.detail, '$.price') / json_extract(c.detail, '$.rounds') * (
            SELECT count(*) FROM events AS w
            WHERE w.request = NEW.request AND w.kind = 'judged' AND w.client = NEW.client AND w.amount = 1)
        FROM events AS c
        WHERE c.request = NEW.request AND c.kind = 'commitment' AND c.client = NEW.client), 0);
    SELECT RAISE(ABORT, 'payments above the budget') WHERE NEW.amount + (
        SELECT total(amount) FROM events WHERE request = NEW.request AND kind = 'payment'
    ) > (1 + 1e-9) * coalesce((
        SELECT amount FROM events WHERE request = NEW.request AND kind = 'game' ORDER BY round DESC LIMIT 1), 0);
END;
"""


_CLOCK_SLACK = 1.0  # seconds by which a clock may be corrected without a word
_TABLES = ("events", "payloads", "head")


class LedgerError(StackfuError):
    """The ledger refuses a row."""


class SchemaError(FileFormatError):
    """The tables of a file are not those of a ledger, so that nothing it shows can be believed."""


def _other_version(path: Path, version: int) -> str:
    """Return the advice for a ledger that this program cannot continue."""
    if version < VERSION:
        return (
            f"{path}: a ledger of version {version}, from before rows were chained and signed; this program continues "
            f"version {VERSION} only. Nobody can vouch for its rows afterwards, so they are not taken over: keep the file, close "
            "its requests with the release that wrote it, and start the next run in a new folder"
        )
    return f"{path}: a ledger of version {version}, newer than this program, which knows {VERSION}: update it"


class PaymentLedger:
    """An open ledger file; writing needs the server's key, by default ``keys/server.key`` in the same folder.

    >>> import tempfile
    >>> from stackfu_integration.flower.events import *
    >>> with tempfile.TemporaryDirectory() as folder, PaymentLedger(Path(folder) / "ledger.sqlite") as ledger:
    ...     ledger.add("r1", GameFounded(budget=10.0, bandwidth=1.0, costs={3: 5.0}, full_price=4.0, clipped=0.0))
    ...     ledger.add("r1", ClientCommitted(client=3, share=0.5, price=4.0, samples=20, rounds=2))
    ...     ledger.add("r1", WorkDelivered(client=3, number=1, samples=20))
    ...     ledger.add("r1", WorkJudged(client=3, number=1, passed=True))
    ...     try:
    ...         ledger.add("r1", ClientPaid(client=3, amount=2.0, delivered=2, agreed=2))
    ...     except LedgerError as error:
    ...         print(error)
    ...     ledger.add("r1", ClientPaid(client=3, amount=1.0, delivered=1, agreed=2))
    payment of client 3: payment for work that was not delivered, or did not pass
    """

    def __init__(self, path: Path, *, create: bool = True, key: SigningKey | None = None) -> None:
        if not create and not path.is_file():
            raise FileFormatError(f"{path}: there is no ledger")
        make_folder(path.parent)
        self.path = path
        self._key = key
        self._forget()
        self._db = sqlite3.connect(path, isolation_level=None, timeout=30.0)
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA secure_delete = ON")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                self._create()
            elif version != VERSION:
                raise FileFormatError(_other_version(path, version))
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise FileFormatError(f"{path}: not a ledger ({error})") from error

    def _forget(self) -> None:
        """Begin with nothing known of the file."""
        self._open_transaction = False
        self._tip: tuple[int, str] | None = None  # the last row written in the open transaction
        self._latest: tuple[datetime, float] | None = (
            None  # the time of a row, and when this process learned of it
        )
        self._said_clock = False
        self._is_copy = False
        self._selected: dict[tuple[Any, ...], list[Row]] = {}
        self.logged = False  # of a snapshot: the write-ahead log beside the file was not empty
        self.other_rules: tuple[str, ...] = ()  # of a snapshot: triggers that are not a ledger's

    @classmethod
    def snapshot(cls, path: Path) -> PaymentLedger:
        """Return a copy in memory of the ledger in a file, read once in one transaction; no other file is written.

        A file whose tables are not those of a ledger is refused (:class:`SchemaError`): a view, or a table that computes its
        columns, can show one thing to a check and another to a report.
        """
        if not path.is_file():
            raise FileFormatError(f"{path}: there is no ledger")
        copy = cls.__new__(cls)
        copy.path, copy._key = path, None
        copy._forget()
        copy._is_copy = True
        copy._db = sqlite3.connect(":memory:", isolation_level=None)
        try:
            with _reading(path) as (db, logged):
                copy.logged = logged
                db.execute("BEGIN")
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version != VERSION:
                    raise FileFormatError(_other_version(path, version))
                copy.other_rules = _check_schema(db, path)
                problem = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
                if problem != "ok":
                    raise SchemaError(
                        f"{path}: the file is damaged, or its indexes do not fit its tables ({problem})"
                    )
                for statement in _statements(_SCHEMA):
                    if statement.lstrip().startswith("CREATE TABLE"):
                        copy._db.execute(statement)
                for table in _TABLES:
                    rows = db.execute(f"SELECT * FROM {table}").fetchall()
                    if rows:
                        marks = ", ".join("?" * len(rows[0]))
                        copy._db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
            copy._db.execute(f"PRAGMA user_version = {VERSION}")
        except (
            sqlite3.DatabaseError,
            UnicodeDecodeError,
            OverflowError,
        ) as error:  # the latter of damaged text and numbers
            raise FileFormatError(f"{path}: not a ledger ({one_line(str(error))})") from error
        return copy

    def _create(self) -> None:
        with self.transaction():
            if self._db.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in _statements(_SCHEMA):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> PaymentLedger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        """Close the connection of a ledger that is deleted, also if its opening failed (3.13 warns of open ones)."""
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
        self._open_transaction, self._tip = True, None
        try:
            yield
            self._sign()
        except BaseException:
            self._db.execute("ROLLBACK")
            self._said_clock = False  # a row that said it is gone with the others
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
        now = self._time_of_next_row().isoformat(timespec="milliseconds")
        row = to_row(request, event)
        text = json.dumps(row.detail, sort_keys=True, allow_nan=False)
        seq, previous = self._last_link()
        salt = secrets.token_bytes(32)
        seal = None if row.payload is None else sealed(salt, row.payload)
        amount = None if row.amount is None else float(row.amount)
        stored = (seq + 1, now, request, row.kind, row.client, row.round, amount, text, seal)
        hash_ = link(previous, stored)
        try:
            self._db.execute(
                f"INSERT INTO events ({', '.join(_CHAINED)}, hash) VALUES ({', '.join('?' * 10)})",
                (*stored, hash_),
            )
        except sqlite3.IntegrityError as error:
            who = "" if row.client == NO_CLIENT else f" of client {row.client}"
            raise LedgerError(f"{row.kind}{who}: {error}") from error
        if row.payload is not None:
            self._db.execute("INSERT INTO payloads VALUES (?, ?, ?)", (seq + 1, salt, row.payload))
        self._tip = (seq + 1, hash_)
        self._learn(now)

    def now(self) -> datetime:
        """Return the time: that of the clock, or, where the clock was set back, that of the last row and what has passed since."""
        found = self._db.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        if found is not None:
            self._learn(str(found[0]))
        wall = datetime.now(timezone.utc)
        if self._latest is None:
            return wall
        last, learned = self._latest
        return max(wall, last + timedelta(seconds=time.monotonic() - learned))

    def _learn(self, at: str) -> None:
        """Keep the time of a row that is later than any seen before."""
        with suppress(ValueError):
            when = datetime.fromisoformat(at)
            if when.tzinfo is not None and (self._latest is None or when > self._latest[0]):
                self._latest = (when, time.monotonic())

    def _time_of_next_row(self) -> datetime:
        """Return the time of the next row, and write down that the clock was set back, once for each process that sees it."""
        now = self.now()
        back = (now - datetime.now(timezone.utc)).total_seconds()
        if back > _CLOCK_SLACK and not self._said_clock:
            self._said_clock = True
            self.add(RUN, ClockSetBack(len(self.rows(RUN, ClockSetBack.kind)), back))
            now = self.now()  # which is later than that row
        return now

    def _last_link(self) -> tuple[int, str]:
        if self._tip is not None:
            return self._tip
        found = self._db.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        return (0, first_link(self.key.public)) if found is None else (int(found[0]), str(found[1]))

    def _sign(self) -> None:
        """Store the signed head with the rows of the open transaction."""
        if self._tip is None:
            return
        known = self.head
        if known is not None and known.key != self.key.public:
            raise LedgerError(f"{self.path}: this ledger belongs to another key than the one given")
        head = Head.signed(*self._tip, self.key)
        self._db.execute(
            "INSERT OR REPLACE INTO head VALUES (1, ?, ?, ?, ?)",
            (head.seq, head.hash, head.key, head.signature),
        )

    @property
    def key(self) -> SigningKey:
        """The server's key; a new ledger draws one."""
        if self._key is None:
            path = self.path.parent / "keys" / "server.key"
            if not path.is_file() and self._db.execute("SELECT 1 FROM events").fetchone() is not None:
                raise LedgerError(
                    f"{self.path}: whoever writes needs the server's key, which is not in {path}"
                )
            self._key = SigningKey.load_or_create(path)
        return self._key

    @property
    def head(self) -> Head | None:
        """The last row that the server signed; ``None`` while there are no rows."""
        found = self._db.execute("SELECT seq, hash, key, signature FROM head").fetchone()
        return None if found is None else Head(*found)

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of a row, if there is one of this number."""
        if not 0 <= seq < 2**63:
            return None
        found = self._db.execute("SELECT hash FROM events WHERE seq = ?", (seq,)).fetchone()
        return None if found is None else str(found[0])

    def erase(self, request: str, kinds: tuple[type[Event], ...]) -> None:
        """Erase the vectors of events of these classes, and write down which rows they were in.

        What is erased is overwritten in the file. The write-ahead log may still hold it: :meth:`empty_log` sees to that.
        Earlier copies of the file, and blocks that a disk keeps internally, are out of reach.
        """
        rows = [row for kind in kinds for row in self.rows(request, kind.kind) if row.payload is not None]
        with self.transaction():
            what = ", ".join(kind.kind for kind in kinds)
            self.add(request, PayloadsErased(what, rows=tuple(sorted(row.seq for row in rows))))
            self._db.executemany("DELETE FROM payloads WHERE seq = ?", [(r.seq,) for r in rows])

    def empty_log(self, wait: float = 30.0) -> bool:
        """Empty the write-ahead log and write down that it is, or return ``False`` where a reader is in the way."""
        if not self.flush(wait):
            return False
        self.add(RUN, LogEmptied(len(self.rows(RUN, LogEmptied.kind))))
        return True

    def emptied_after(self, request: str) -> str | None:
        """Return when the log was emptied after the erasure of a request, or ``None`` if nothing says that it was."""
        erased = self.place_of(request, PayloadsErased)
        return next((row.at for row in self.rows(RUN, LogEmptied.kind) if 0 < erased < row.seq), None)

    def is_erased(self, request: str) -> bool:
        """Say if the erased vectors of a request are neither in the file nor in its write-ahead log."""
        if not self.has(request, PayloadsErased):
            return False
        return self.emptied_after(request) is not None or not self.log_has_rows()

    def log_has_rows(self) -> bool:
        """Return True if the write-ahead log of the file holds anything; for a snapshot, if it did when it was read."""
        log = self.path.with_name(f"{self.path.name}-wal")
        return self.logged or (not self._is_copy and log.is_file() and log.stat().st_size > 0)

    def flush(self, wait: float = 30.0) -> bool:
        """Move everything from the write-ahead log into the file; return ``False`` where a reader was in the way for so long."""
        self._db.execute(f"PRAGMA busy_timeout = {round(1000 * wait)}")
        try:
            busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        finally:
            self._db.execute("PRAGMA busy_timeout = 30000")
        return not busy

    def add_fault(self, request: str, client: int, phase: str, problem: str) -> None:
        """Name a client that did not keep to the protocol."""
        earlier = sum(fault.client == client for fault in self.events(request, ClientFault))
        self.add(request, ClientFault(client, number=earlier, phase=phase, problem=problem))

    # ---------------------------------------------------------------- reading

    def rows(self, request: str | None = None, kind: str | None = None) -> list[Row]:
        """Return rows as they are, in the order in which they were written."""
        return self._select(request, kind, "seq")

    def _select(
        self, request: str | None, kind: str | None, order: str, limit: int = -1, **columns: int
    ) -> list[Row]:
        given = {"request": request, "kind": kind, **columns}
        chosen = {column: value for column, value in given.items() if value is not None}
        asked = (*chosen.items(), order, limit)
        if asked not in self._selected:
            where = " AND ".join(f"{column} = ?" for column in chosen) or "1"
            found = self._db.execute(
                f"SELECT {', '.join(_CHAINED[:-1])}, content FROM events LEFT JOIN payloads USING (seq) "
                f"WHERE {where} ORDER BY {order} LIMIT ?",
                (*chosen.values(), limit),
            )
            named = (dict(zip(_CHAINED, row, strict=True)) for row in found)
            rows = [Row(**{**row, "detail": json.loads(row["detail"])}) for row in named]
            if not self._is_copy:  # of a snapshot the same question has the same answer
                return rows
            self._selected[asked] = rows
        return list(self._selected[asked])

    def exported(self) -> dict[str, Any]:
        """Return everything that is chained and signed as plain values: rows with their hashes, receipts among them; the head."""
        names = (*_CHAINED, "hash")
        rows = [dict(zip(names, (*row, hash_), strict=True)) for row, hash_, _, _ in self.links()]
        head = self.head
        return {"version": VERSION, "rows": rows, "head": None if head is None else vars(head)}

    def links(self) -> Iterator[tuple[tuple[Any, ...], str, bytes | None, bytes | None]]:
        """Yield the chained columns of every row, its hash, and salt and content of its vector."""
        for row in self._db.execute(
            f"SELECT {', '.join('e.' + c for c in _CHAINED)}, e.hash, p.salt, p.content "
            "FROM events AS e LEFT JOIN payloads AS p USING (seq) ORDER BY e.seq"
        ):
            yield tuple(row[:9]), row[9], row[10], row[11]

    def events(self, request: str, kind: type[_AnyEvent]) -> list[_AnyEvent]:
        """Return the events of this class in the order in which they happened."""
        return [event for _, event in self.placed(request, kind)]

    def placed(self, request: str, kind: type[_AnyEvent]) -> list[tuple[int, _AnyEvent]]:
        """Return the events of this class with the numbers of their rows."""
        return [(row.seq, _read(row, kind)) for row in self.rows(request, kind.kind)]

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

    def place_of(self, request: str, kind: type[Event]) -> int:
        """Return the number of the row of the last event of this class, 0 if there is none."""
        found = self._last_row(request, kind)
        return 0 if found is None else found.seq

    def time_of(self, request: str, kind: type[Event]) -> str | None:
        """Return when the last event of this class was written down (UTC)."""
        found = self._last_row(request, kind)
        return None if found is None else found.at

    def by_client(self, request: str, kind: type[_OfClient]) -> dict[int, _OfClient]:
        """Return the events of this class by client, the last round of each."""
        rows = self._select(request, kind.kind, "client, round")
        return {row.client: _read(row, kind) for row in rows}

    def of_client(
        self, request: str, kind: type[_OfClient], client: int, number: int = NO_CLIENT
    ) -> _OfClient | None:
        """Return the event of this class, this client and this round, if there is one."""
        found = self._select(request, kind.kind, "seq", client=client, round=number)
        return _read(found[0], kind) if found else None

    def requests(self) -> list[str]:
        """Return the removal requests in the order in which they arrived."""
        return [row.request for row in self.rows(kind=RemovalRequested.kind)]

    @property
    def naming(self) -> Naming:
        """Names of the clients."""
        run = self.last(RUN, RunStarted)
        return Naming() if run is None else Naming(run.names)

    def _last_row(self, request: str, kind: type[Event]) -> Row | None:
        found = self._select(request, kind.kind, "round DESC, seq", limit=1)
        return found[0] if found else None


def broken_link(ledger: PaymentLedger, public_key: str | None = None) -> str | None:
    """Name the first row that does not fit the chain, or say what is wrong with its head; ``None``: all fits.

    Without ``public_key`` the key that the file itself names is believed.
    """
    head = ledger.head
    if head is None:
        return None if not ledger.rows() else "there are rows, and no signed head"
    if public_key is not None and head.key != public_key:
        return f"the head is signed by the key {head.key[:16]}…, not by {public_key[:16]}…"
    previous, last, missing = first_link(head.key), 0, []
    erased = {seq for row in ledger.rows(kind=PayloadsErased.kind) for seq in row.detail.get("rows", ())}
    for row, stored, salt, content in ledger.links():
        seq, what = row[0], f"row {row[0]} ({row[3]}{'' if row[4] == NO_CLIENT else f' of client {row[4]}'})"
        if seq != last + 1:
            return f"row {last + 1} is missing"
        previous = link(previous, row)
        if stored != previous:
            return f"{what}: it, or a row before it, is not what the server wrote"
        if row[8] is not None and content is None and seq not in erased:
            return f"{what}: its vector is gone, and no erasure was written down"
        if content is not None and (salt is None or sealed(salt, content) != row[8]):
            return f"{what}: its vector is not the one that the server received"
        if content is not None and seq in erased:
            missing.append(what)
        last = seq
    if missing:
        return f"{missing[0]}: was declared erased, and is still there"
    if not head.is_signed:
        return "the signature of the head is not the server's"
    if head.seq != last:
        return f"the server signed {head.seq} rows, and there are {last}"
    if head.hash != previous:
        return f"the server signed another row {head.seq}"
    return None


def broken_rule(ledger: PaymentLedger) -> str | None:
    """Return the first row that the rules of the database refuse, with the reason, or ``None``.

    The rows are inserted again, one after the other, into an empty database that has all rules. A file whose rules were removed
    for a while may hold rows that the rules forbid.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for statement in _statements(_SCHEMA):
            db.execute(statement)
        for row, hash_, _, _ in ledger.links():
            try:
                db.execute(
                    f"INSERT INTO events ({', '.join(_CHAINED)}, hash) VALUES ({', '.join('?' * 10)})",
                    (*row, hash_),
                )
            except sqlite3.DatabaseError as error:
                who = "" if row[4] == NO_CLIENT else f" of client {row[4]}"
                return f"row {row[0]} ({one_line(str(row[3]))}{who}): {one_line(str(error))}"
    return None


def _read(row: Row, kind: type[_AnyEvent]) -> _AnyEvent:
    event = from_row(row)
    assert isinstance(event, kind)
    return event


@contextmanager
def _reading(path: Path) -> Iterator[tuple[sqlite3.Connection, bool]]:
    """Open a file for reading and change nothing in its folder; say as well if its write-ahead log holds anything.

    A file without a log is not in use, and is read as it is. With a log it is read concurrently with its writer,
    or, if the folder or the medium does not allow that, from a copy of both.
    """
    log = path.with_name(f"{path.name}-wal")
    address = path.resolve().as_uri()
    if not log.exists():
        before = path.stat()
        with closing(_connected(f"{address}?mode=ro&immutable=1")) as db:
            yield db, False
        after = path.stat()
        if log.exists() or (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            raise FileFormatError(f"{path}: somebody wrote to it while it was read; read it again")
        return
    logged = log.stat().st_size > 0
    try:
        db = _connected(f"{address}?mode=ro")
        db.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder) / "ledger.sqlite"
            shutil.copyfile(path, own)
            shutil.copyfile(log, own.with_name(f"{own.name}-wal"))
            with closing(_connected(own.as_uri())) as db:
                yield db, logged
        return
    with closing(db):
        yield db, logged


def _connected(address: str) -> sqlite3.Connection:
    """Open a file from another party; its pages are checked when they are read."""
    db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=30.0)
    db.execute("PRAGMA cell_size_check = ON")
    return db


def _check_schema(db: sqlite3.Connection, path: Path) -> tuple[str, ...]:
    """Refuse tables that are not a ledger's, and return the names of rules (triggers) that are not, or that are missing."""
    wanted = {" ".join(text.rstrip().rstrip(";").split()) for text in _statements(_SCHEMA)}
    tables = {text for text in wanted if text.startswith("CREATE TABLE")}
    rules, found = wanted - tables, set()
    other = set()
    for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master"):
        text = " ".join(str(sql).split())
        if kind == "index" and sql is None:
            continue  # of a table's own UNIQUE
        if kind == "trigger":
            other |= set() if text in rules else {str(name)}
            rules.discard(text)
        elif kind == "table" and text in tables:
            found.add(text)
        else:
            raise SchemaError(f"{path}: {one_line(str(name))} is a {one_line(str(kind))} that no ledger has")
    if found != tables:
        raise SchemaError(f"{path}: a table of the ledger is missing")
    return tuple(sorted({one_line(name) for name in other} | {text.split()[2] for text in rules}))


def _statements(script: str) -> Iterator[str]:
    """Split a script without leaving the transaction, which ``executescript`` would."""
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
