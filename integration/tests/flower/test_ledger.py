from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from stackfu.errors import FileFormatError, StackfuError
from stackfu_integration.flower import LedgerError, PaymentLedger
from stackfu_integration.flower.events import (
    ClientCommitted,
    ClientFault,
    ClientPaid,
    GameFounded,
    PriceOffered,
    RequestSettled,
    RoundFinished,
    RunStarted,
    WorkDelivered,
    WorkJudged,
)
from stackfu_integration.flower.ledger import RUN


def commitment(client, share, price):
    return ClientCommitted(client, share, price, samples=10, rounds=2)


def work(client, number):
    return WorkDelivered(client, number, samples=10)


def payment(client, amount):
    return ClientPaid(client, amount, delivered=2, agreed=2)


@pytest.fixture
def ledger(tmp_path):
    with PaymentLedger(tmp_path / "ledger.sqlite") as ledger:
        costs = {1: 5.0, 2: 5.0}
        ledger.add("r1", GameFounded(3.0, bandwidth=1.0, costs=costs, full_price=4.0, clipped=0.0))
        ledger.add("r1", commitment(1, 0.5, 4.0))
        ledger.add("r1", commitment(2, 1.0, 2.0))
        for client in (1, 2):
            for number in (1, 2):
                ledger.add("r1", work(client, number))
                ledger.add("r1", WorkJudged(client, number, passed=True))
        yield ledger


def insert(ledger, **columns):
    """Write a row without the code that knows events, as any program with the file can."""
    row = {"at": "", "request": "r1", "client": -1, "round": -1, "detail": "{}", "hash": "", **columns}
    with closing(sqlite3.connect(ledger.path)) as other, other:
        row.setdefault("seq", other.execute("SELECT max(seq) + 1 FROM events").fetchone()[0])
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        other.execute(f"INSERT INTO events ({names}) VALUES ({marks})", list(row.values()))


def test_nobody_is_paid_twice(ledger):
    ledger.add("r1", payment(1, 1.0))
    with pytest.raises(LedgerError, match=r"client 1.*already"):
        ledger.add("r1", payment(1, 0.5))
    with pytest.raises(sqlite3.IntegrityError, match="no round"):
        insert(ledger, kind="payment", client=1, round=7, amount=0.5)


@pytest.mark.parametrize("amount", [2.001, 1e9, float("inf")])
def test_no_more_than_agreed(ledger, amount):
    with pytest.raises(LedgerError, match="not delivered"):
        ledger.add("r1", payment(1, amount))


@pytest.mark.parametrize("amount", [0.0, -1.0, None])
def test_a_payment_is_positive(ledger, amount):
    with pytest.raises(sqlite3.IntegrityError, match="positive"):
        insert(ledger, kind="payment", client=1, amount=amount)


def test_no_payment_without_commitment_or_work(ledger):
    with pytest.raises(LedgerError, match="not delivered"):
        ledger.add("r1", payment(3, 0.1))
    ledger.add("r1", commitment(4, 1.0, 1.0))
    with pytest.raises(LedgerError, match="not delivered"):
        ledger.add("r1", payment(4, 0.1))
    with pytest.raises(LedgerError, match="not delivered"):
        ledger.add("r2", payment(1, 0.1))  # work for another request


def test_no_work_without_commitment_or_beyond_the_agreed_rounds(ledger):
    with pytest.raises(LedgerError, match="commitment"):
        ledger.add("r1", work(3, 1))
    with pytest.raises(LedgerError, match="commitment"):
        ledger.add("r1", work(1, 3))
    with pytest.raises(LedgerError, match="already"):
        ledger.add("r1", work(1, 2))


def test_payments_stay_within_the_budget(ledger):
    ledger.add("r1", payment(1, 2.0))
    with pytest.raises(LedgerError, match="budget"):
        ledger.add("r1", payment(2, 1.5))
    ledger.add("r1", payment(2, 1.0))


def test_rows_are_neither_changed_nor_deleted_nor_replaced(ledger):
    ledger.add("r1", payment(1, 1.0))
    other = sqlite3.connect(ledger.path)
    for statement in ("UPDATE events SET amount = 9", "DELETE FROM events"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            other.execute(statement)
    other.close()


def test_a_transaction_is_all_or_nothing(ledger):
    count = len(ledger.rows())

    def pay_both():
        with ledger.transaction():
            ledger.add("r1", payment(1, 1.0))
            ledger.add("r1", payment(2, 99.0))

    with pytest.raises(LedgerError):
        pay_both()
    assert len(ledger.rows()) == count
    ledger.add("r1", payment(1, 1.0))


def test_a_process_killed_in_a_transaction_leaves_nothing_of_it(tmp_path):
    """SIGKILL between the rows of one transaction; the file is sound and the transaction never was."""
    path = tmp_path / "ledger.sqlite"
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from stackfu_integration.flower.events import PriceOffered, RunStarted\n"
        "from stackfu_integration.flower.ledger import RUN, PaymentLedger\n"
        "ledger = PaymentLedger(Path(sys.argv[1])); ledger.add(RUN, RunStarted(50, 1, 'model'))\n"
        "with ledger.transaction():\n"
        "    for n in range(50): ledger.add('r1', PriceOffered(n, 0, 1.0))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    with PaymentLedger(path, create=False) as ledger:
        assert [row.kind for row in ledger.rows()] == ["run"]
        ledger.add("r1", PriceOffered(0, 0, 1.0))


def test_two_servers_on_one_ledger_cannot_both_pay(ledger):
    with PaymentLedger(ledger.path) as other:
        other.add("r1", payment(1, 2.0))
        with pytest.raises(LedgerError, match="already"):
            ledger.add("r1", payment(1, 0.5))


def test_files_that_are_no_ledgers(tmp_path):
    with pytest.raises(FileFormatError, match="there is no ledger"):
        PaymentLedger(tmp_path / "nothing.sqlite", create=False)
    (tmp_path / "text").write_text("not a database, but long enough to look at" * 50)
    with pytest.raises(FileFormatError, match="not a ledger"):
        PaymentLedger(tmp_path / "text")
    newer = sqlite3.connect(tmp_path / "newer")
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(FileFormatError, match="version 99"):
        PaymentLedger(tmp_path / "newer")


def test_events_are_found_by_class_request_round_and_client(ledger):
    ledger.add(RUN, RunStarted(clients=3, rounds=2, initial="a"))
    for number, model in ((1, "b"), (2, "c")):
        ledger.add(RUN, RoundFinished(number, model, {0: 4, 10: 5}))
    assert ledger.last(RUN, RoundFinished) == RoundFinished(2, "c", {0: 4, 10: 5})
    assert ledger.last("r1", RoundFinished) is None
    assert not ledger.has("r1", RunStarted)
    assert ledger.time_of(RUN, RunStarted) == ledger.rows(RUN, "run")[0].at
    assert ledger.time_of("r1", RunStarted) is None
    assert ledger.events("r1", WorkDelivered) == [work(1, 1), work(1, 2), work(2, 1), work(2, 2)]
    assert ledger.by_client("r1", WorkDelivered) == {1: work(1, 2), 2: work(2, 2)}
    with pytest.raises(StackfuError, match="the run: no fault in the ledger"):
        ledger.need(RUN, ClientFault)


def test_the_faults_of_a_client_are_counted(ledger):
    for problem in ("late", "later"):
        ledger.add_fault("r1", 1, "unlearning 1", problem)
    ledger.add_fault("r1", 2, "unlearning 1", "late")
    numbered = [(fault.client, fault.number, fault.problem) for fault in ledger.events("r1", ClientFault)]
    assert numbered == [(1, 0, "late"), (1, 1, "later"), (2, 0, "late")]


def test_a_row_that_says_nothing_known_is_named(ledger):
    insert(ledger, kind="settled")
    with pytest.raises(FileFormatError, match="not a whole 'settled'"):
        ledger.last("r1", RequestSettled)


def test_a_ledger_from_before_the_chain_is_refused_with_a_way_out(tmp_path):
    old = sqlite3.connect(tmp_path / "old.sqlite")
    old.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY)")
    old.execute("PRAGMA user_version = 1")
    old.close()
    before = (tmp_path / "old.sqlite").read_bytes()
    with pytest.raises(FileFormatError, match=r"version 1, from before.*start the next run in a new folder"):
        PaymentLedger(tmp_path / "old.sqlite")
    assert len((tmp_path / "old.sqlite").read_bytes()) == len(before)
