from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from stackfu.errors import FileFormatError
from stackfu_integration.flower import LedgerError, PaymentLedger


@pytest.fixture
def ledger(tmp_path):
    with PaymentLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.add("r1", "game", amount=3.0)
        ledger.add("r1", "commitment", client=1, amount=0.5, price=4.0, rounds=2)
        ledger.add("r1", "commitment", client=2, amount=1.0, price=2.0, rounds=2)
        for client in (1, 2):
            for number in (1, 2):
                ledger.add("r1", "work", client=client, round=number, amount=10)
        yield ledger


def test_nobody_is_paid_twice(ledger):
    ledger.add("r1", "payment", client=1, amount=1.0)
    with pytest.raises(LedgerError, match=r"client 1.*already"):
        ledger.add("r1", "payment", client=1, amount=0.5)
    with pytest.raises(LedgerError, match="no round"):
        ledger.add("r1", "payment", client=1, round=7, amount=0.5)


@pytest.mark.parametrize("amount", [2.001, 1e9, float("inf")])
def test_no_more_than_agreed(ledger, amount):
    with pytest.raises(LedgerError, match="not delivered"):
        ledger.add("r1", "payment", client=1, amount=amount)


@pytest.mark.parametrize("amount", [0.0, -1.0, None])
def test_a_payment_is_positive(ledger, amount):
    with pytest.raises(LedgerError, match="positive"):
        ledger.add("r1", "payment", client=1, amount=amount)


def test_no_payment_without_commitment_or_work(ledger):
    with pytest.raises(LedgerError, match="not delivered"):
        ledger.add("r1", "payment", client=3, amount=0.1)
    ledger.add("r1", "commitment", client=4, amount=1.0, price=1.0, rounds=2)
    with pytest.raises(LedgerError, match="not delivered"):
        ledger.add("r1", "payment", client=4, amount=0.1)
    with pytest.raises(LedgerError, match="not delivered"):
        ledger.add("r2", "payment", client=1, amount=0.1)  # work for another request


def test_no_work_without_commitment_or_beyond_the_agreed_rounds(ledger):
    with pytest.raises(LedgerError, match="commitment"):
        ledger.add("r1", "work", client=3, round=1)
    with pytest.raises(LedgerError, match="commitment"):
        ledger.add("r1", "work", client=1, round=3)
    with pytest.raises(LedgerError, match="already"):
        ledger.add("r1", "work", client=1, round=2)


def test_payments_stay_within_the_budget(ledger):
    ledger.add("r1", "payment", client=1, amount=2.0)
    with pytest.raises(LedgerError, match="budget"):
        ledger.add("r1", "payment", client=2, amount=1.5)
    ledger.add("r1", "payment", client=2, amount=1.0)


def test_rows_are_neither_changed_nor_deleted_nor_replaced(ledger):
    ledger.add("r1", "payment", client=1, amount=1.0)
    other = sqlite3.connect(ledger.path)
    for statement in ("UPDATE events SET amount = 9", "DELETE FROM events"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            other.execute(statement)
    other.close()


def test_a_transaction_is_all_or_nothing(ledger):
    count = len(ledger.events())

    def pay_both():
        with ledger.transaction():
            ledger.add("r1", "payment", client=1, amount=1.0)
            ledger.add("r1", "payment", client=2, amount=99.0)

    with pytest.raises(LedgerError):
        pay_both()
    assert len(ledger.events()) == count
    ledger.add("r1", "payment", client=1, amount=1.0)


def test_a_process_killed_in_a_transaction_leaves_nothing_of_it(tmp_path):
    """SIGKILL between the rows of one transaction; the file is sound and the transaction never was."""
    path = tmp_path / "ledger.sqlite"
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from stackfu_integration.flower.ledger import PaymentLedger\n"
        "ledger = PaymentLedger(Path(sys.argv[1])); ledger.add('', 'run')\n"
        "with ledger.transaction():\n"
        "    for n in range(50): ledger.add('r1', 'offer', client=n, amount=1.0)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    with PaymentLedger(path, create=False) as ledger:
        assert [event.kind for event in ledger.events()] == ["run"]
        ledger.add("r1", "offer", client=0, amount=1.0)


def test_two_servers_on_one_ledger_cannot_both_pay(ledger):
    with PaymentLedger(ledger.path) as other:
        other.add("r1", "payment", client=1, amount=2.0)
        with pytest.raises(LedgerError, match="already"):
            ledger.add("r1", "payment", client=1, amount=0.5)


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
