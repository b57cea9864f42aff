"""Attacks on the audit: a server, a client or a thief makes records that look as if all had gone well.

What evidence proves is said as proved, and what is somebody's word is an open question, in the text, in the JSON and in the exit
code. Each of these ended with "fits" once.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from dishonest_server import (
    LyingLedger,
    changed,
    evidence_of,
    names_a_worker_as_removed,
    run_to_the_end,
    with_lies,
)
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from scene import CLIENTS, REMOVED, TERMS, Averager, Scene, initial
from test_tampering import write_anew
from typer.testing import CliRunner

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.cli import app
from stackfu_integration.flower import PaymentLedger, Terms
from stackfu_integration.flower import ledger as ledger_module
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.client_state import ClientState, read_receipts
from stackfu_integration.flower.events import (
    ClientEnrolled,
    ClientExcluded,
    ClientFault,
    ClientPaid,
    ClockSetBack,
    ConsentGiven,
    EmbeddingReceived,
    Event,
    LogEmptied,
    PartingWork,
    RemovalRequested,
    RequestAborted,
    RunStarted,
    StartPrepared,
    TermsAmended,
    WorkDelivered,
    WorkJudged,
    to_row,
)
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.phases import rounds as rounds_module
from stackfu_integration.flower.phases import unlearning
from stackfu_integration.flower.phases.convex_rounds import NOT_ASKED
from stackfu_integration.flower.receipts import (
    CONSENT,
    ENROLMENT,
    PARTING,
    PAYMENT,
    REFUSAL,
    SHARE,
    WORK,
    Receipt,
)
from stackfu_integration.flower.verification import FITS, MISFIT, OPEN, Evidence, verify

FAULTY = 6


@pytest.fixture
def copy(sound, tmp_path) -> Scene:
    """A copy of a sound run, with its clients' folders, that may be spoilt."""
    shutil.copytree(sound.folder, tmp_path / "run")
    shutil.copytree(sound.client_folder(0).parent, tmp_path / "clients of run")
    return Scene(tmp_path / "run")


def audit(*arguments: object):
    return CliRunner().invoke(app, ["audit", *map(str, arguments), "--plain"], env={"COLUMNS": "200"})


def with_all_evidence(scene: Scene):
    return verify(scene.folder, evidence_of(scene))


def model_of(*numbers: float) -> ArrayRecord:
    return ArrayRecord({"mean": Array(np.array(numbers, dtype=np.float32))})


# ---- all is well


def test_an_honest_run_fits_with_all_evidence_and_says_what_is_proved(sound):
    report = with_all_evidence(sound)
    assert (report.misfit, report.open_questions) == (None, ())
    assert report.code == FITS
    said = " ".join(report.proved)
    assert "clients 0, 1 got no offer, did no work and was paid nothing" in said
    assert "every round started where the one before ended, as clients signed" in said
    assert "every round ended with the average of the models that clients sent and kept" in said
    assert "the released model is that of the last round" in said


@pytest.mark.parametrize(
    ("missing", "word"),
    [
        ({"server_key": None}, "whether the key in the file is the server's"),
        ({"client_keys": {}}, "who is behind"),
        ({"receipts": ()}, "an older copy"),
        ({"works": ()}, "averages of what clients sent"),
    ],
)
def test_each_piece_of_evidence_that_is_missing_leaves_a_question(sound, missing, word):
    report = verify(sound.folder, replace(evidence_of(sound), **missing))
    assert report.misfit is None
    assert report.code == OPEN
    assert any(word in question for question in report.open_questions)


def test_the_receipts_of_one_client_that_are_missing_are_named(sound):
    report = verify(sound.folder, evidence_of(sound, without=(1,)))
    assert report.code == OPEN
    assert any(
        "leaves out anything that client 1 did" in q and "server's word" in q for q in report.open_questions
    )


# ---- a removed client works


def test_a_removed_client_that_worked_is_a_misfit(scene):
    names_a_worker_as_removed(scene)
    report = with_all_evidence(scene)
    assert report.code == MISFIT
    assert "client 1, which left, was made an offer" in report.misfit
    assert "client 1, which left" in verify(scene.folder).misfit  # the ledger alone says it


def test_a_removed_client_whose_gradient_counts_in_the_bound_is_a_misfit(tmp_path):
    from test_gradients import CLASSES, WIDTH, Softmax, arrays_of

    scene = Scene(tmp_path / "run", terms=replace(TERMS, certify_l2=0.1), load=Softmax)
    mechanism, grid = scene.mechanism(), scene.grid()
    with_lies(mechanism, {RemovalRequested.kind: changed(removed=(0, 1))})
    mechanism.train(grid, arrays_of(np.zeros((CLASSES, WIDTH + 1))), 1)
    mechanism.remove(grid, (0,))
    mechanism.ledger.close()
    assert "client 1, which left" in verify(scene.folder).misfit


def test_somebody_who_left_with_an_earlier_request_and_works_is_a_misfit(scene):
    mechanism, grid = scene.mechanism(), scene.grid()
    mechanism.train(grid, initial(), 2)
    mechanism.remove(grid, (0,))
    with_lies(mechanism, {RemovalRequested.kind: lambda event: replace(event, gone=())})
    mechanism.ledger._lies[RemovalRequested.kind] = changed(gone=())
    mechanism.remove(grid, (1,), request="r2")
    mechanism.ledger.close()
    assert "are said to be gone" in verify(scene.folder).misfit


def test_work_that_the_ledger_leaves_out_shows_by_the_receipts_of_the_client_that_left(scene):
    """The server asks a removed client for work by hand, and records nothing of it."""
    scene.run()
    key = SigningKey.load(scene.client_folder(1) / "client.key")
    with scene.ledger() as book:
        head = book.head
    hidden = Receipt.sign(
        key, WORK, head, client=1, request="r1", number=1, start="00" * 32, model="11" * 32, samples=30
    )
    evidence = evidence_of(scene)
    report = verify(scene.folder, replace(evidence, receipts=(*evidence.receipts, hidden)))
    assert report.code == OPEN
    assert any(
        "of client 1: it signed work" in q and "though it had left" in q for q in report.open_questions
    )


# ---- rounds


def test_rounds_that_start_from_the_trained_model_are_a_misfit(scene, monkeypatch):
    monkeypatch.setattr(unlearning, "first_model", lambda removal: removal.models.get(removal.request.before))
    scene.run()
    report = with_all_evidence(scene)
    assert report.code == MISFIT
    assert "in round 1 started from another model than the model that the method starts from" in report.misfit
    assert "started from another model" in verify(scene.folder).misfit


def test_a_round_that_starts_elsewhere_than_the_one_before_ended_is_a_misfit(scene, monkeypatch):
    seen = []

    class Wanders(rounds_module.ParticipationFedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            if self.message_type == unlearning.UNLEARN and server_round == 2:
                seen.append(arrays)
                arrays = model_of(9.0, 9.0, 9.0)
            return super().configure_train(server_round, arrays, config, grid)

    monkeypatch.setattr(rounds_module, "ParticipationFedAvg", Wanders)
    scene.run()
    assert seen
    report = with_all_evidence(scene)
    assert report.code == MISFIT
    assert "in round 2 started from another model than where round 1 ended" in report.misfit


def test_a_start_that_was_prepared_for_a_method_that_prepares_none_is_a_misfit(scene, monkeypatch):
    """The server says that the trained model was "prepared" for retraining, and every client signs that it was sent it."""

    def prepares(removal):
        if not removal.ledger.has(removal.name, StartPrepared):
            removal.ledger.add(removal.name, StartPrepared(removal.request.before))
        return removal.models.get(removal.request.before)

    monkeypatch.setattr(unlearning, "first_model", prepares)
    scene.run()
    report = with_all_evidence(scene)
    assert "a model was prepared for the rounds to start from, and Retraining prepares none" in report.misfit


def test_other_terms_after_the_commitments_are_a_misfit(scene, monkeypatch):
    """Clients agreed to retraining; the server amends the terms afterwards and trains the old model on."""
    mechanism = scene.mechanism()

    def amends(phase):
        if phase == "responses":
            other = replace(TERMS, unlearning="continue").stated()
            mechanism.ledger.add("r1", TermsAmended(0, other, "an error"))

    mechanism.after = amends
    monkeypatch.setattr(unlearning, "first_model", lambda removal: removal.models.get(removal.request.before))
    run_to_the_end(scene, mechanism)
    report = with_all_evidence(scene)
    assert "states other terms than those to which clients are committed" in report.misfit


def test_a_second_start_of_the_run_is_a_misfit(copy):
    """A row that names the trained model as the first one, under a number that such rows do not have."""
    with copy.ledger() as book:
        run, before = book.need("", RunStarted), book.need("r1", RemovalRequested).before
    add_without_rules(copy, "", replace(run, initial=before), round=3)
    assert "a client, a round or an amount that such a row has not" in with_all_evidence(copy).misfit


def add_without_rules(scene: Scene, request: str, event: Event, **columns) -> None:
    """Add a row that the rules of the database may refuse, chained and signed, as only the server can."""
    with closing(sqlite3.connect(scene.folder / "ledger.sqlite")) as db, db:
        rules = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in rules:
            db.execute(f"DROP TRIGGER {name}")
    with pytest.MonkeyPatch.context() as patch, scene.ledger() as book:
        patch.setattr(ledger_module, "to_row", lambda name, told: replace(to_row(name, told), **columns))
        book.add(request, event)
    with closing(sqlite3.connect(scene.folder / "ledger.sqlite")) as db, db:
        for _, sql in rules:
            db.execute(sql)


@pytest.mark.parametrize(
    ("request_", "event", "named"),
    [
        ("r1", RequestAborted("operator", "a change of mind"), "the request is closed"),
        ("r1", WorkDelivered(1, 1, 30, "ab" * 32), "work without a commitment"),
        ("r7", WorkDelivered(1, 1, 30, "ab" * 32), "no such request was opened"),
        ("r7", ClientPaid(1, 5.0, 1, 1), "no such request was opened"),
    ],
)
def test_rows_that_the_rules_of_a_ledger_refuse_are_a_misfit(copy, request_, event, named):
    """Rules taken off the database for a moment and put back leave no trace in the file."""
    add_without_rules(copy, request_, event)
    assert named in with_all_evidence(copy).misfit


def test_a_client_that_never_enrolled_and_works_is_a_misfit(scene):
    """A client without its own number signs nothing, so that its actions could not be compared."""
    mechanism = scene.mechanism()
    mechanism.ledger.close()

    class LeavesOut(LyingLedger):
        def add(self, request, event):
            if not (isinstance(event, ClientEnrolled) and event.client == 7):
                super().add(request, event)

    mechanism.ledger = LeavesOut(mechanism.folder / "ledger.sqlite", {})
    run_to_the_end(scene, mechanism)
    for path in (scene.client_folder(7) / "work").glob("*.npz"):
        shutil.copy(path, scene.folder / "models" / path.name)
    report = verify(scene.folder, evidence_of(scene, without=(7,)))
    assert "client 7, which had not enrolled, was made an offer" in report.misfit


@pytest.mark.parametrize("name", ["Leeds", "Leeds\u200b", "Leeds "])
def test_two_clients_of_one_name_are_a_misfit(scene, name):
    """The text would say that Leeds left, and another Leeds would go on."""
    mechanism = scene.mechanism()
    names = ("Leeds", *(f"c{k}" for k in range(1, CLIENTS - 1)), name)
    with_lies(mechanism, {RunStarted.kind: changed(names=names)})
    run_to_the_end(scene, mechanism)
    assert "names that do not tell them apart" in with_all_evidence(scene).misfit


def test_work_of_those_who_leave_is_a_misfit_where_the_method_asks_for_none(scene):
    mechanism = scene.mechanism()

    def parts(phase):
        if phase == "responses":
            ledger, records = mechanism.ledger, ClientState(scene.client_folder(1), RecordDict())
            told = {"client": 1, "request": "r1"}
            consent = records.sign(CONSENT, ledger.head, method="retrain", **told)
            work = records.sign(PARTING, ledger.head, number=1, samples=30, model="ab" * 32, **told)
            ledger.add("r1", ConsentGiven(1, 0, "retrain", consent.plain()))
            ledger.add("r1", PartingWork(1, 1, 30, "ab" * 32, 0.1, work.plain()))

    mechanism.after = parts
    run_to_the_end(scene, mechanism)
    assert "client 1, which left, worked, and Retraining asks for no work" in with_all_evidence(scene).misfit


def test_one_key_speaks_for_one_client(scene):
    """A client that leaves under one number and stays under another one is refused the second number."""
    SigningKey.load_or_create(scene.client_folder(1) / "client.key")
    shutil.copytree(scene.client_folder(1), scene.client_folder(FAULTY))
    facts = scene.run()
    assert "signs with the key of client 1" in str(facts["faults"]) + str(mechanism_faults(scene))
    with scene.ledger() as book:
        assert FAULTY not in book.by_client("", ClientEnrolled)


def mechanism_faults(scene: Scene):
    with scene.ledger() as book:
        return book.events("", ClientFault)


def test_two_clients_with_one_key_are_a_question(copy):
    """A server enrols a client twice: actions under one number count for the other."""
    with copy.ledger() as book:
        enrolled = book.by_client("", ClientEnrolled)
    add_without_rules(copy, "", replace(enrolled[FAULTY], client=8, signer=enrolled[1].signer))
    assert any("sign with one key" in question for question in with_all_evidence(copy).open_questions)


@pytest.mark.parametrize("what", [ENROLMENT, SHARE, WORK, PAYMENT])
def test_receipts_of_which_some_are_missing_are_an_open_question(sound, what):
    """Receipts were cut out: clients number their statements, and the ledger has some of them."""
    evidence = evidence_of(sound)
    cut = next(r for r in evidence.receipts if (r.statement["client"], r.statement["what"]) == (FAULTY, what))
    few = tuple(receipt for receipt in evidence.receipts if receipt != cut)
    report = verify(sound.folder, replace(evidence, receipts=few))
    assert report.code == OPEN
    assert any("of it that were brought along are not all that it signed" in q for q in report.open_questions)
    assert not any("by the receipts of all" in line for line in report.proved)


def test_work_that_is_in_no_book_shows_by_its_number_though_the_receipt_was_taken_away(scene):
    """The server asks a client that leaves for work, writes nothing down, and hands the auditor all receipts but that one."""
    mechanism = scene.mechanism()

    def asks(phase):
        if phase == "responses":
            records = ClientState(scene.client_folder(1), RecordDict())
            records.sign(
                WORK, mechanism.ledger.head, client=1, request="r1", number=1, samples=30, model="11" * 32
            )

    mechanism.after = asks
    run_to_the_end(scene, mechanism)
    evidence = evidence_of(scene)
    assert any("though it had left" in q for q in verify(scene.folder, evidence).open_questions)
    few = tuple(r for r in evidence.receipts if (r.statement["client"], r.statement["what"]) != (1, WORK))
    report = verify(scene.folder, replace(evidence, receipts=few))
    assert report.code == OPEN
    assert any("client 1 did" in q and "not all that it signed" in q for q in report.open_questions)


def test_every_model_that_is_there_is_the_one_of_its_name(scene):
    """Of two requests: the model before the first one is in the folder, and another one under its name is not taken for none."""
    mechanism, grid = scene.mechanism(), scene.grid()
    mechanism.train(grid, initial(), 2)
    mechanism.remove(grid, (0,))
    mechanism.remove(grid, (1,), request="r2")
    mechanism.ledger.close()
    assert with_all_evidence(scene).code == FITS
    with scene.ledger() as book:
        before, first = book.need("r1", RemovalRequested).before, book.need("", RunStarted).initial
    models = scene.folder / "models"
    assert (models / f"{before}.npz").is_file()
    shutil.copy(models / f"{first}.npz", models / f"{before}.npz")
    assert "does not match its name" in with_all_evidence(scene).misfit


def old_model_in_round(number, monkeypatch, scene):
    """A server that calls the old model the average of a round."""
    honest, count = rounds_module.robust_average, {"calls": 0}

    def lies(models, samples, sent, rule, **factors):
        count["calls"] += 1
        if count["calls"] == 2 + number:  # two rounds of training come first
            with scene.ledger() as book:
                name = book.need("r1", RemovalRequested).before
            return rounds_module_models(scene).get(name)
        return honest(models, samples, sent, rule, **factors)

    monkeypatch.setattr(rounds_module, "robust_average", lies)


def rounds_module_models(scene):
    from stackfu_integration.flower.model_store import ModelStore

    return ModelStore(scene.folder / "models")


@pytest.mark.parametrize("number", [3, 2])
def test_a_round_that_ends_with_the_old_model_is_a_misfit_or_open(scene, monkeypatch, number):
    """With what clients kept of their work the average is worked out again; without, it is called the server's word."""
    old_model_in_round(number, monkeypatch, scene)
    scene.run()
    monkeypatch.undo()
    evidence = evidence_of(scene)
    report = verify(scene.folder, evidence)
    assert report.code == (MISFIT if number == 3 else report.code) != FITS
    if number == 3:
        assert (
            "the model of round 3 is not the average of the models that clients signed and sent"
            in report.misfit
        )
    alone = verify(scene.folder, replace(evidence, works=()))
    assert alone.code == OPEN
    assert any(
        "averages of what clients sent" in q and "the server's word" in q for q in alone.open_questions
    )


def test_the_average_is_worked_out_again_by_every_rule(tmp_path):
    for rule in ("mean", "clipped", "trimmed", "krum"):
        scene = Scene(tmp_path / rule, terms=replace(TERMS, aggregation=rule))
        scene.run()
        report = with_all_evidence(scene)
        assert (report.code, report.misfit, report.open_questions) == (FITS, None, ())


def test_a_client_that_lies_about_where_it_started_is_refused_and_spoils_nobodys_books(scene):
    from scene import UNLEARN
    from test_dishonest import resign, when

    act = resign(lambda statement: statement.update(start="00" * 32))
    act.folder = scene.client_folder(FAULTY)
    scene.behaviours[FAULTY] = when(UNLEARN, act)
    facts = scene.run()
    assert "signed something else than it sent" in str(facts["faults"])
    assert with_all_evidence(scene).misfit is None


# ---- paid for nothing


def test_a_client_that_was_not_asked_is_not_paid_unless_the_terms_state_a_strategy(scene):
    """Operator and client agree that it "was not asked" in any round."""

    class LeavesOut(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            for message in super().configure_train(server_round, arrays, config, grid):
                if message.metadata.dst_node_id != 47514:  # the node of client 6
                    yield message

    strategy = LeavesOut(fraction_evaluate=0.0, min_available_nodes=2)
    mechanism = scene.mechanism()
    with_lies(mechanism, {RemovalRequested.kind: lambda e: replace(e, terms={**e.terms, "strategy": ""})})
    facts = run_to_the_end(scene, mechanism, strategy=strategy)
    paid = next(c for c in facts["clients"] if c["client"] == FAULTY)
    assert (paid["rounds_delivered"], paid["rounds_passed"]) == (0, 3)
    report = with_all_evidence(scene)
    assert report.code == MISFIT
    assert "client 6 is said not to have been asked in round 1" in report.misfit


def test_a_strategy_that_the_terms_state_may_leave_clients_out_and_that_is_the_servers_word(scene):
    mechanism = scene.mechanism()
    run_to_the_end(
        scene, mechanism, strategy=FedAvg(fraction_train=0.5, fraction_evaluate=0.0, min_available_nodes=2)
    )
    with scene.ledger() as book:
        assert book.need("r1", RemovalRequested).terms["strategy"] == "FedAvg"
        assert any(work.problem == NOT_ASKED for work in book.events("r1", WorkJudged))
    report = with_all_evidence(scene)
    assert report.code == OPEN
    assert any("a strategy FedAvg left out" in q and "server's word" in q for q in report.open_questions)


def test_an_offer_after_the_first_work_is_a_misfit(copy):
    """A second offer at price 0, made when the work was there, is no offer."""
    move_rows(copy, "kind = 'offer' AND client = 3", after="kind = 'work' AND client = 7 AND round = 1")
    assert "was to come before it" in verify(copy.folder).misfit


def move_rows(scene: Scene, which: str, after: str) -> None:
    """Put rows elsewhere, and chain and sign all of them anew, as only the server can."""
    with closing(sqlite3.connect(scene.folder / "ledger.sqlite")) as db, db:
        rules = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in rules:
            db.execute(f"DROP TRIGGER {name}")
        moved = [seq for (seq,) in db.execute(f"SELECT seq FROM events WHERE {which} ORDER BY seq")]
        order = [seq for (seq,) in db.execute("SELECT seq FROM events ORDER BY seq") if seq not in moved]
        (place,) = db.execute(f"SELECT max(seq) FROM events WHERE {after}").fetchone()
        at = order.index(place) + 1
        order[at:at] = moved
        for new, old in enumerate(order, start=1):
            db.execute("UPDATE events SET seq = ? WHERE seq = ?", (-new, old))
            db.execute("UPDATE payloads SET seq = ? WHERE seq = ?", (-new, old))
        db.execute("UPDATE events SET seq = -seq")
        db.execute("UPDATE payloads SET seq = -seq")
        for row in db.execute("SELECT seq, detail FROM events WHERE kind = 'erased'").fetchall():
            plain = json.loads(row[1])
            plain["rows"] = sorted(order.index(seq) + 1 for seq in plain["rows"])
            db.execute(
                "UPDATE events SET detail = ? WHERE seq = ?", (json.dumps(plain, sort_keys=True), row[0])
            )
        # without receipts, which would show that their heads are of other rows
        for row in db.execute("SELECT seq, detail FROM events WHERE detail LIKE '%receipt%'").fetchall():
            plain = json.loads(row[1])
            plain.pop("receipt", None)
            db.execute(
                "UPDATE events SET detail = ? WHERE seq = ?", (json.dumps(plain, sort_keys=True), row[0])
            )
        for row in db.execute("SELECT seq, detail FROM events WHERE kind = 'enrolled'").fetchall():
            plain = {k: v for k, v in json.loads(row[1]).items() if k != "signer"}
            db.execute(
                "UPDATE events SET detail = ? WHERE seq = ?", (json.dumps(plain, sort_keys=True), row[0])
            )
        for _, sql in rules:
            db.execute(sql)
    write_anew(scene)


# ---- the file


def test_the_file_that_is_named_is_the_file_that_is_read(copy):
    """A forged ledger next to an honest one was printed with the verdict of the honest one."""
    forged = copy.folder / "leeds.sqlite"
    shutil.copy(copy.folder / "ledger.sqlite", forged)
    with closing(sqlite3.connect(forged)) as db, db:
        db.execute("DROP TRIGGER rows_stay")
        db.execute("UPDATE events SET amount = 2 * amount WHERE kind = 'payment'")
    assert audit(copy.folder).exit_code == OPEN
    result = audit(forged)
    assert result.exit_code == MISFIT
    assert "What was paid" not in result.output


def test_a_view_in_place_of_a_table_is_refused(copy):
    """It can show one thing to a check and another one to a report."""
    with closing(sqlite3.connect(copy.folder / "ledger.sqlite")) as db, db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute("ALTER TABLE events RENAME TO hidden")
        db.execute(
            "CREATE VIEW events AS SELECT * FROM hidden WHERE strftime('%s', 'now') % 2 OR kind <> 'measure'"
        )
    result = audit(copy.folder)
    assert result.exit_code == MISFIT
    assert "no ledger has" in result.output


def test_columns_that_are_computed_are_refused(copy):
    with closing(sqlite3.connect(copy.folder / "ledger.sqlite")) as db, db:
        db.execute("ALTER TABLE events ADD COLUMN other TEXT AS (datetime('now'))")
    assert "no ledger has" in verify(copy.folder).misfit


def test_a_file_with_damaged_text_in_its_tables_names_is_no_ledger(copy):
    path = copy.folder / "ledger.sqlite"
    path.write_bytes(path.read_bytes().replace(b"rows_remain BEFORE", b"rows_rem\xd2in BEFORE"))
    with pytest.raises(FileFormatError, match="not a ledger"):
        verify(copy.folder)


def test_rules_that_were_taken_off_are_a_question(copy):
    with closing(sqlite3.connect(copy.folder / "ledger.sqlite")) as db, db:
        db.execute("DROP TRIGGER rows_stay")
    report = with_all_evidence(copy)
    assert report.code == OPEN
    assert "rows_stay" in report.open_questions[0]


def test_the_audit_is_of_one_moment_while_the_server_works(scene):
    """Every row is read once: what is checked is what is printed."""
    with PaymentLedger(scene.folder / "ledger.sqlite") as ledger:
        ledger.add("", LogEmptied(0))
        with PaymentLedger.snapshot(scene.folder / "ledger.sqlite") as copied:
            ledger.add("", LogEmptied(1))
            assert len(copied.rows()) == 1
        with PaymentLedger.snapshot(scene.folder / "ledger.sqlite") as copied:
            assert len(copied.rows()) == 2


def test_an_audit_changes_nothing_in_the_folder_and_works_where_it_may_only_be_read(
    copy, tmp_path, monkeypatch
):
    def listing():
        return {p: (p.stat().st_size, p.stat().st_mtime_ns) for p in copy.folder.rglob("*")}

    before = listing()
    assert audit(copy.folder).exit_code == OPEN
    assert listing() == before

    def refused(*_):
        raise OSError(30, "Read-only file system")

    (copy.folder / "audit-r1.md").unlink()
    monkeypatch.setattr("stackfu_integration.flower.audit.write_text", refused)
    result = audit(copy.folder)
    assert (result.exit_code, "Removal request r1" in result.output) == (OPEN, True)


def test_a_copy_with_its_log_on_a_medium_that_may_only_be_read(scene, tmp_path, monkeypatch):
    """SQLite cannot open such a pair there by itself."""
    scene.run()
    with PaymentLedger(scene.folder / "ledger.sqlite") as ledger:
        ledger.add("", LogEmptied(7))
        medium = tmp_path / "medium"
        medium.mkdir()
        for name in ("ledger.sqlite", "ledger.sqlite-wal"):
            shutil.copy(scene.folder / name, medium / name)
    honest = ledger_module._connected

    def connected(address):
        if "medium" in address:
            raise sqlite3.OperationalError("unable to open database file")
        return honest(address)

    monkeypatch.setattr(ledger_module, "_connected", connected)
    with PaymentLedger.snapshot(medium / "ledger.sqlite") as copied:
        assert copied.logged
        assert copied.last("", LogEmptied).number == 7


# ---- receipts


@pytest.mark.parametrize(
    ("what", "lie"),
    [
        (SHARE, {"attempt": 7}),
        (SHARE, {"attempt": "x", "price": 1e6}),
        (WORK, {"number": 99}),
        (PAYMENT, {"request": "r9"}),
        (PAYMENT, {"number": 5, "amount": 3.0}),
    ],
)
def test_a_client_that_invents_receipts_makes_no_misfit_of_an_honest_servers_books(sound, what, lie):
    signer = SigningKey.load(sound.client_folder(FAULTY) / "client.key")
    kept = read_receipts(sound.client_folder(FAULTY) / "receipts.jsonl")
    real = next(receipt for receipt in reversed(kept) if receipt.statement["what"] == what)
    statement = {**real.statement, **lie}
    invented = Receipt(statement, signer.public, signer.sign(statement))
    evidence = evidence_of(sound)
    report = verify(sound.folder, replace(evidence, receipts=(*evidence.receipts, invented)))
    assert report.misfit is None
    assert report.code == OPEN
    assert any("client 6" in q for q in report.open_questions)


def test_receipts_without_the_servers_signature_raise_a_question_and_no_misfit(sound):
    signer, stranger = SigningKey.load(sound.client_folder(FAULTY) / "client.key"), SigningKey.generate()
    head = Head.signed(3, "00" * 32, stranger)
    invented = [
        Receipt.sign(signer, PAYMENT, head, client=FAULTY, request="r1", amount=1e9),
        Receipt.sign(signer, PAYMENT, None, client=FAULTY, request="r1", amount=1e9),
        Receipt.sign(stranger, PAYMENT, head, client=FAULTY, request="r1", amount=1e9),
        Receipt({"what": PAYMENT}, signer.public, "00" * 64),
    ]
    for one in invented:
        report = verify(sound.folder, Evidence(receipts=(one,)))
        assert report.misfit is None
        assert report.code == OPEN


class Reserved(Averager):
    """Client 4 shows nothing that is made of fewer than all of its samples."""

    def __init__(self, context):
        super().__init__(context)
        if self.client == 4:
            self.policy = replace(self.policy, least_samples=self.size)


def test_a_client_that_signed_its_refusal_leaves_no_question_and_without_the_receipt_there_is_one(tmp_path):
    scene = Scene(tmp_path / "run", load=Reserved)
    scene.run()
    with scene.ledger() as ledger:
        assert list(ledger.by_client("r1", ClientExcluded)) == [4]
        assert ledger.rows(kind="fault") == []
    evidence = evidence_of(scene)
    report = verify(scene.folder, evidence)
    assert report.misfit is None
    assert not [question for question in report.open_questions if "failed as the ledger says" in question]
    assert any("refused the offer" in line for line in report.proved)
    for receipts in (
        tuple(r for r in evidence.receipts if r.statement["what"] != REFUSAL),
        tuple(
            replace(r, statement={**r.statement, "request": "r2"}) if r.statement["what"] == REFUSAL else r
            for r in evidence.receipts
        ),
    ):
        assert len(receipts) > 10
        report = verify(scene.folder, replace(evidence, receipts=receipts))
        assert [question for question in report.open_questions if "failed as the ledger says" in question]
        assert report.code == OPEN
    for client in (3, 5):
        refused = read_receipts(scene.client_folder(client) / "receipts.jsonl")
        assert REFUSAL not in [r.statement["what"] for r in refused]
    kept = [r.statement["what"] for r in read_receipts(scene.client_folder(4) / "receipts.jsonl")]
    assert kept.count(REFUSAL) == 1


def test_a_server_that_signed_two_rows_of_one_number_is_a_misfit(sound):
    """A rewound or forked ledger: the other head carries the server's own signature."""
    server = SigningKey.load(sound.folder / "keys" / "server.key")
    signer = SigningKey.load(sound.client_folder(FAULTY) / "client.key")
    forked = Receipt.sign(
        signer, PAYMENT, Head.signed(60, "00" * 32, server), client=FAULTY, request="r1", amount=1.0
    )
    assert "the server had signed another row 60" in verify(sound.folder, Evidence(receipts=(forked,))).misfit


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda folder: None, "is no folder"),
        (lambda folder: folder.mkdir(), "holds no public key"),
        (
            lambda folder: (folder.mkdir(), (folder / "42.pub").write_text("ab" * 32)),
            "a key of client 42, and there are 8",
        ),
    ],
)
def test_client_keys_that_are_none_are_errors(sound, tmp_path, make, problem):
    make(tmp_path / "keys")
    assert problem in str(audit(sound.folder, "--client-keys", tmp_path / "keys").exception)


def test_empty_receipts_are_an_error(sound, tmp_path):
    (tmp_path / "receipts.jsonl").write_text("")
    assert "holds no receipt" in str(audit(sound.folder, "--receipts", tmp_path / "receipts.jsonl").exception)


# ---- text


MARKS = "![x](http://evil) [y](http://evil) **bold** \x1b[2J\u202e\u200b <b> `c` | # head"


def test_what_the_server_wrote_is_no_text_of_the_audit(scene):
    """Names, the currency and reasons come from a ledger of unknown origin."""
    mechanism = scene.mechanism()
    with_lies(
        mechanism,
        {
            RunStarted.kind: changed(names=tuple(f"{k}{MARKS}" for k in range(CLIENTS))),
            RemovalRequested.kind: lambda e: replace(e, terms={**e.terms, "currency": MARKS}),
            RequestAborted.kind: changed(reason=MARKS, phase=MARKS),
        },
    )
    mechanism.train(scene.grid(), initial(), 1)
    mechanism.ledger.add(
        "r1",
        RemovalRequested(
            (0, 1), (), mechanism.ledger.need("", rounds_module.RoundFinished).model, TERMS.stated()
        ),
    )
    mechanism.ledger.add("r1", RequestAborted("x", "y"))
    mechanism.ledger.close()
    result = audit(scene.folder)
    shown = result.output + CliRunner().invoke(app, ["ledger", str(scene.folder)]).output
    for mark in ("\x1b", "\u202e", "\u200b", "](http", "**bold", "<b>", "`c`"):
        assert mark not in shown, mark


@pytest.mark.parametrize("currency", ["€\x1b[2J", "[x](http://a)", "a|b", "\u202eEUR"])
def test_a_currency_is_plain_text(currency):
    with pytest.raises(InputError, match="currency"):
        Terms(currency=currency)
    assert Terms(currency="€").currency == "€"


def test_a_name_that_is_a_link_is_refused(tmp_path):
    from stackfu_integration.flower import UnlearningMechanism

    with pytest.raises(InputError, match="name is one line"):
        UnlearningMechanism(tmp_path, ["Leeds", "[x](http://a)"])


# ---- erasure


def test_erased_is_said_only_if_the_log_is_empty_too(scene):
    """The ledger is read while the request closes: the embeddings are still in the write-ahead log."""
    readers, vectors = [], []

    def read(phase):
        if phase == "embeddings":
            with scene.ledger() as book:
                vectors.extend(
                    e.mean.tobytes() for e in book.by_client("r1", EmbeddingReceived).values() if len(e.mean)
                )
            reader = sqlite3.connect(scene.folder / "ledger.sqlite", isolation_level=None)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            readers.append(reader)

    empty = PaymentLedger.flush
    mechanism = scene.mechanism(after=read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PaymentLedger, "flush", lambda self, wait=0.1: empty(self, 0.1))
        mechanism.train(scene.grid(), initial(), 1)
        facts = mechanism.remove(scene.grid(), REMOVED)
    log = (scene.folder / "ledger.sqlite-wal").read_bytes()
    assert any(vector in log for vector in vectors)
    assert facts["erased"] is None
    assert "may still be in its write-ahead log" in (scene.folder / "audit-r1.md").read_text()
    report = verify(scene.folder)
    assert any("if embeddings are erased" in q for q in report.open_questions)
    for reader in readers:
        reader.close()
    mechanism.ledger.close()
    assert not any("if embeddings are erased" in q for q in verify(scene.folder).open_questions)


def test_where_nobody_reads_the_ledger_says_that_the_log_was_emptied(sound):
    with sound.ledger() as book:
        assert book.is_erased("r1")
        assert book.emptied_after("r1") is not None


# ---- published audits


def test_a_published_text_that_was_edited_is_not_overwritten_in_silence(copy):
    path = copy.folder / "audit-r1.md"
    edited = path.read_text().replace("left.", "stayed.")
    path.write_text(edited)
    result = audit(copy.folder)
    assert result.exit_code == OPEN
    assert "who changed audit-r1.md" in result.output
    assert path.read_text() == edited
    result = audit(copy.folder, "--overwrite")
    assert "who changed" not in result.output
    assert path.read_text() != edited


def test_out_writes_elsewhere_and_says_there_what_was_found(copy, tmp_path):
    before = (copy.folder / "audit-r1.md").read_text()
    (copy.folder / "audit-r1.md").unlink()
    result = audit(copy.folder, "--out", tmp_path / "found")
    assert result.exit_code == OPEN
    assert not (copy.folder / "audit-r1.md").exists()
    assert (tmp_path / "found" / "audit-r1.md").read_text() == before
    found = json.loads((tmp_path / "found" / "found-r1.json").read_text())
    assert found["exit_code"] == OPEN
    assert found["open_questions"]
    text = (tmp_path / "found" / "found-r1.md").read_text()
    assert (
        text.index("Open questions")
        < text.index("# Removal request")
        < text.index("Not to be seen from here")
    )


@pytest.mark.parametrize("name", ["audit-r1.md", "audit-r1.json", "export.json"])
def test_a_signed_file_is_verified_and_an_edited_one_is_not(copy, tmp_path, name):
    if name == "export.json":
        CliRunner().invoke(app, ["ledger", str(copy.folder), "--export", str(copy.folder / name)])
    path, key = copy.folder / name, copy.folder / "keys" / "server.pub"

    def check(*arguments):
        return CliRunner().invoke(app, ["audit", "verify", str(path), *map(str, arguments)])

    assert check("--server-key", key).exit_code == 0
    assert check().exit_code == OPEN
    (tmp_path / "other.pub").write_text(SigningKey.generate().public)
    assert check("--server-key", tmp_path / "other.pub").exit_code == MISFIT
    whole = path.read_text()
    place = whole.index("CERTIFIED")
    path.write_text(whole[:place] + "ABANDONED" + whole[place + 9 :])
    assert check("--server-key", key).exit_code == MISFIT


def test_a_signed_file_that_two_programs_read_differently_is_refused(copy, tmp_path):
    """JSON with two entries of one name, unsigned entries, and line ends that a terminal displays differently."""
    run, key = str(copy.folder), copy.folder / "keys" / "server.pub"
    CliRunner().invoke(app, ["ledger", run, "--export", str(tmp_path / "export.json")])

    def check(name, text):
        (tmp_path / name).write_bytes(text.encode())
        return (
            CliRunner()
            .invoke(app, ["audit", "verify", str(tmp_path / name), "--server-key", str(key)])
            .exit_code
        )

    audit_, export = (copy.folder / "audit-r1.json").read_text(), (tmp_path / "export.json").read_text()
    text = (copy.folder / "audit-r1.md").read_text()
    assert [check("a.json", audit_), check("b.json", export), check("c.md", text)] == [0, 0, 0]
    assert check("a.json", audit_.replace("{", '{"paid": 0.0, ', 1)) == MISFIT
    assert check("b.json", export.replace("{", '{"rows": [], ', 1)) == MISFIT
    assert check("b.json", export.replace("{", '{"summary": "nobody was paid", ', 1)) == MISFIT
    assert check("b.json", export.replace('"seq": 2', '"paid": 7, "seq": 2', 1)) == MISFIT
    assert check("c.md", text.replace("\n", "\r", 3)) == MISFIT


def test_an_audit_without_a_signature_is_called_unsigned(copy):
    path = copy.folder / "audit-r1.md"
    path.write_text(path.read_text().partition("\n---\n")[0])
    result = CliRunner().invoke(app, ["audit", "verify", str(path)])
    assert (result.exit_code, "nobody signed it" in result.output) == (OPEN, True)


# ---- exit codes


def test_an_aborted_request_ends_with_three(scene):
    mechanism = scene.mechanism(
        after=lambda phase: phase == "offers" and (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        run_to_the_end(scene, mechanism)
    mechanism = scene.mechanism()
    mechanism.abort("r1", "the clients want to stay")
    mechanism.ledger.close()
    result = audit(scene.folder)
    assert result.exit_code == 3
    assert "Aborted: the removal was not carried out" in result.output


def test_the_codes_are_in_the_help():
    for words in (["audit", "--help"], ["audit", "recompute", "--help"]):
        said = " ".join(CliRunner().invoke(app, words, env={"COLUMNS": "200"}).output.split())
        for code in (
            "0 everything fits",
            "1 something does not fit",
            "3 the request was aborted",
            "4 questions are open",
        ):
            assert code in said


# ---- collecting


def test_three_commands_from_a_run_to_an_audit_that_fits(copy, tmp_path):
    folders = [str(copy.client_folder(client)) for client in range(CLIENTS)]
    out = tmp_path / "evidence"
    result = CliRunner().invoke(app, ["audit", "collect", str(copy.folder), *folders, "--out", str(out)])
    assert result.exit_code == 0, result.exception
    result = audit(copy.folder, "--evidence", out)
    assert result.exit_code == FITS, result.output


def test_keys_are_collected_by_name_and_strangers_are_refused(scene, tmp_path):
    from stackfu_integration.flower import UnlearningMechanism

    names = ["Leeds", "New York", "Bath, Somerset", "a/b", *"efgh"]
    mechanism = UnlearningMechanism(scene.folder, names, TERMS, wait=0.0, timeout=1.0)
    run_to_the_end(scene, mechanism, ["Leeds", "g"])
    out = tmp_path / "evidence"

    def collect(*folders):
        return CliRunner().invoke(
            app, ["audit", "collect", str(scene.folder), *map(str, folders), "--out", str(out)]
        )

    assert (
        collect(f"Leeds={scene.client_folder(0)}", *(scene.client_folder(c) for c in range(1, 8))).exit_code
        == 0
    )
    kept = {path.name for path in (out / "clients").iterdir()}
    assert {"Leeds.pub", "New York.pub", "Bath, Somerset.pub", "a%2Fb.pub", "h.jsonl"} <= kept
    assert audit(scene.folder, "--evidence", out).exit_code == FITS
    assert "of client New York, not of Leeds" in str(collect(f"Leeds={scene.client_folder(1)}").exception)
    stranger = tmp_path / "stranger"
    SigningKey.load_or_create(stranger / "client.key")
    assert "the key of no client" in str(collect(stranger).exception)


def test_clients_that_know_different_servers_are_named(copy, tmp_path):
    state = copy.client_folder(3) / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "server_key": "ab" * 32}))
    folders = [str(copy.client_folder(client)) for client in range(CLIENTS)]
    result = CliRunner().invoke(
        app, ["audit", "collect", str(copy.folder), *folders, "--out", str(tmp_path / "x")]
    )
    assert "know different servers' keys" in str(result.exception)


# ---- clocks


class Clock(datetime):
    """A clock that can be set back."""

    back = timedelta()

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) - cls.back


def test_a_clock_that_is_set_back_moves_no_row_and_no_deadline_and_is_said(scene, monkeypatch):
    monkeypatch.setattr(ledger_module, "datetime", Clock)
    monkeypatch.setattr(Clock, "back", timedelta())
    scene.terms = replace(TERMS, deadline=3600.0)

    def turn(phase):
        if phase == "embeddings":
            Clock.back = timedelta(days=3 * 365)

    facts = scene.run(after=turn)
    with scene.ledger() as book:
        times = [row.at for row in book.rows()]
        assert times == sorted(times)
        assert book.last("", ClockSetBack).seconds > 9e7
    assert facts["clock_set_back"]
    report = with_all_evidence(scene)
    assert report.misfit is None
    assert any("clock was set back" in q for q in report.open_questions)


def test_a_deadline_passes_though_the_clock_was_set_back(scene, monkeypatch):
    monkeypatch.setattr(ledger_module, "datetime", Clock)
    monkeypatch.setattr(Clock, "back", timedelta())
    with PaymentLedger(scene.folder / "ledger.sqlite") as ledger:
        ledger.add("", LogEmptied(0))
        began = ledger.now()
        Clock.back = timedelta(days=1000)
        passed = {"seconds": 0.0}
        real = ledger_module.time.monotonic
        monkeypatch.setattr(
            ledger_module,
            "time",
            type("T", (), {"monotonic": staticmethod(lambda: real() + passed["seconds"])}),
        )
        passed["seconds"] = 500.0
        assert (ledger.now() - began).total_seconds() >= 499.0


def test_times_that_go_back_in_the_rows_are_a_question(copy):
    from test_tampering import spoil

    with copy.ledger() as book:
        last = book.rows()[-1].seq
    early = datetime(2023, 1, 1, tzinfo=timezone.utc).isoformat(timespec="milliseconds")
    spoil(copy, f"UPDATE events SET at = '{early}' WHERE seq = {last}")
    write_anew(copy)
    report = verify(copy.folder)
    assert report.misfit is None
    assert any("clock was set back" in q for q in report.open_questions)
