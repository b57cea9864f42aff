"""The ledger: one row per event, in an SQLite file that only grows, chained and signed.

The rules that money depends on are part of the database and not of the code that calls it:

- an event happens once: ``(request, kind, client, round)`` is unique, so nobody is paid twice for one request;
- rows are never changed or deleted;
- work counts only after a commitment to it, and a payment is at most

      price * committed share * rounds delivered / rounds agreed,

  so what was not delivered is not paid;
- the payments of a request stay within its budget;
- nothing happens any more in a request that is closed, and only settlement in one that was aborted.

Rules of a database bind whoever asks the database, and nobody who opens the file with another program. So every
row carries the hash of itself and of everything before it,

    hash_i = SHA-256(hash_{i-1}, row_i in canonical JSON),      hash_0 = SHA-256(public key of the server),

and the server signs the last one, the *head*, with its Ed25519 key in the same transaction. Whoever holds the file
and the public key sees a row that was changed, replaced, taken out or cut off (:func:`broken_link`). An older copy of
the file is sound in itself: only a later head that somebody else kept, in a receipt, shows that it is old.

Vectors are kept beside the chain and enter it by a salted hash, ``SHA-256(salt, vector)``: they can be erased
(:meth:`PaymentLedger.erase`), after which the chain still holds and the hash tells nothing.

Every write is a transaction on disk before it returns (write-ahead log, full synchronisation): a server
killed at any moment finds, when it comes back, either all rows of a step or none.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from stackfu.atomic import make_folder
from stackfu.errors import FileFormatError, StackfuError
from stackfu_integration.flower.chain import VERSION, Head, first_link, link, sealed
from stackfu_integration.flower.events import (
    NOBODY,
    ClientEvent,
    ClientFault,
    Event,
    PayloadsErased,
    RemovalRequested,
    Row,
    RunStarted,
    from_row,
    to_row,
)
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.naming import Naming

__all__ = ["RUN", "LedgerError", "PaymentLedger", "broken_link"]

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


class LedgerError(StackfuError):
    """The ledger refuses a row."""


def _other_version(path: Path, version: int) -> str:
    """What is to be done with a ledger that this program does not continue."""
    if version < VERSION:
        return (
            f"{path}: a ledger of version {version}, from before rows were chained and signed; this program continues "
            f"version {VERSION} only. Nobody can vouch for its rows afterwards, so they are not taken over: keep the file, close "
            "its requests with the release that wrote it, and start the next run in a new folder"
        )
    return f"{path}: a ledger of version {version}, newer than this program, which knows {VERSION}: update it"


class PaymentLedger:
    """An open ledger file; whoever writes needs the server's key, by default ``keys/server.key`` beside it.

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
        self._open_transaction = False
        self._tip: tuple[int, str] | None = None  # the last row written in the open transaction
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
        self._open_transaction, self._tip = True, None
        try:
            yield
            self._sign()
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
            who = "" if row.client == NOBODY else f" of client {row.client}"
            raise LedgerError(f"{row.kind}{who}: {error}") from error
        if row.payload is not None:
            self._db.execute("INSERT INTO payloads VALUES (?, ?, ?)", (seq + 1, salt, row.payload))
        self._tip = (seq + 1, hash_)

    def _last_link(self) -> tuple[int, str]:
        if self._tip is not None:
            return self._tip
        found = self._db.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        return (0, first_link(self.key.public)) if found is None else (int(found[0]), str(found[1]))

    def _sign(self) -> None:
        """Put the signed head beside the rows of the open transaction."""
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
        """The hash of a row, if there is one of this number."""
        if not 0 <= seq < 2**63:
            return None
        found = self._db.execute("SELECT hash FROM events WHERE seq = ?", (seq,)).fetchone()
        return None if found is None else str(found[0])

    def erase(self, request: str, kinds: tuple[type[Event], ...]) -> None:
        """Erase the vectors of events of these classes, and write down which rows they were in.

        What is erased is overwritten in the file, and the write-ahead log is emptied. Copies that somebody made
        earlier are out of reach, and so are blocks that a disk keeps to itself.
        """
        rows = [row for kind in kinds for row in self.rows(request, kind.kind) if row.payload is not None]
        with self.transaction():
            what = ", ".join(kind.kind for kind in kinds)
            self.add(request, PayloadsErased(what, rows=tuple(sorted(row.seq for row in rows))))
            self._db.executemany("DELETE FROM payloads WHERE seq = ?", [(r.seq,) for r in rows])
        self.flush()

    def flush(self) -> None:
        """Move everything from the write-ahead log into the file; a reader in its way is waited for, then left."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

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
        where = " AND ".join(f"{column} = ?" for column in chosen) or "1"
        found = self._db.execute(
            f"SELECT {', '.join(_CHAINED[:-1])}, content FROM events LEFT JOIN payloads USING (seq) "
            f"WHERE {where} ORDER BY {order} LIMIT ?",
            (*chosen.values(), limit),
        )
        named = (dict(zip(_CHAINED, row, strict=True)) for row in found)
        return [Row(**{**row, "detail": json.loads(row["detail"])}) for row in named]

    def exported(self) -> dict[str, Any]:
        """Everything that is chained and signed as plain values: rows with their hashes, receipts among them; the head."""
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
        self, request: str, kind: type[_OfClient], client: int, number: int = NOBODY
    ) -> _OfClient | None:
        """Return the event of this class, this client and this round, if there is one."""
        found = self._select(request, kind.kind, "seq", client=client, round=number)
        return _read(found[0], kind) if found else None

    def requests(self) -> list[str]:
        """Return the removal requests in the order in which they arrived."""
        return [row.request for row in self.rows(kind=RemovalRequested.kind)]

    @property
    def naming(self) -> Naming:
        """What the clients are called."""
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
        seq, what = row[0], f"row {row[0]} ({row[3]}{'' if row[4] == NOBODY else f' of client {row[4]}'})"
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
