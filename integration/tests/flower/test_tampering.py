"""The file of a ledger can be changed by its holder; with the public keys the change is detected."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from scene import Scene
from typer.testing import CliRunner

from stackfu_integration.cli import app
from stackfu_integration.flower import PaymentLedger
from stackfu_integration.flower.chain import Head, first_link, link
from stackfu_integration.flower.client_state import read_receipts
from stackfu_integration.flower.events import EmbeddingReceived, ModelUnlearned, PayloadsErased
from stackfu_integration.flower.keys import SigningKey, read_public_key
from stackfu_integration.flower.ledger import broken_link
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.verification import Evidence, verify


@pytest.fixture
def copy(sound, tmp_path) -> Scene:
    """A copy of a sound run that may be spoilt."""
    with sound.ledger() as ledger:
        ledger.flush()
    shutil.copytree(sound.folder, tmp_path / "run")
    return Scene(tmp_path / "run")


def public_key(scene: Scene) -> str:
    return read_public_key(scene.folder / "keys" / "server.pub")


def receipts_of(scene: Scene, client: int):
    return tuple(read_receipts(scene.client_folder(client) / "receipts.jsonl"))


def spoil(scene: Scene, *statements: str) -> None:
    """Change the file with all rules of the database taken off, and put them back afterwards."""
    with closing(sqlite3.connect(scene.folder / "ledger.sqlite")) as db, db:
        rules = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in rules:
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            db.execute(statement)
        for _, sql in rules:
            db.execute(sql)


def write_anew(scene: Scene) -> None:
    """Chain and sign the spoilt rows again, as only the server itself can."""
    key = SigningKey.load(scene.folder / "keys" / "server.key")
    with PaymentLedger(scene.folder / "ledger.sqlite", create=False) as ledger:
        rows = list(ledger.links())
    previous, changes = first_link(key.public), []
    for row, *_ in rows:
        previous = link(previous, row)
        changes.append(f"UPDATE events SET hash = '{previous}' WHERE seq = {row[0]}")
    head = Head.signed(rows[-1][0][0], previous, key)
    changes.append(f"UPDATE head SET seq = {head.seq}, hash = '{head.hash}', signature = '{head.signature}'")
    spoil(scene, *changes)


def misfit(scene: Scene, **evidence) -> str | None:
    return verify(scene.folder, Evidence(server_key=public_key(scene), **evidence)).misfit


def test_a_sound_run_fits(sound):
    keys = {c: read_public_key(sound.client_folder(c) / "client.pub") for c in range(8)}
    kept = tuple(receipt for client in range(8) for receipt in receipts_of(sound, client))
    report = verify(sound.folder, Evidence(public_key(sound), keys, kept))
    assert report.misfit is None
    assert len(report.checked) == 14
    assert len(kept) > 20


def test_replacing_a_row_is_refused(sound):
    """``INSERT OR REPLACE`` deletes without asking the rule against deletion."""
    with closing(sqlite3.connect(sound.folder / "ledger.sqlite")) as db:
        columns = "seq, at, request, kind, client, round, amount, detail, payload, hash"
        for amount, seq in (("amount / 2", "seq"), ("amount / 2", "(SELECT max(seq) + 1 FROM events)")):
            with pytest.raises(sqlite3.IntegrityError, match=r"already|closed"):
                db.execute(
                    f"INSERT OR REPLACE INTO events ({columns}) SELECT {seq}, at, request, kind, client, round, {amount}, "
                    "detail, payload, hash FROM events WHERE kind = 'payment'"
                )


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE events SET amount = amount / 2 WHERE kind = 'payment'", "(payment of client"),
        (
            "UPDATE events SET detail = replace(detail, 'CERTIFIED', 'FAILED') WHERE kind = 'solution'",
            "(solution)",
        ),
        ("UPDATE events SET at = '2020' WHERE kind = 'closed'", "(closed)"),
        ("DELETE FROM events WHERE kind = 'fault' OR kind = 'measure'", "is missing"),
        ("DELETE FROM events WHERE kind = 'closed'", "rows, and there are"),
        ("DELETE FROM events WHERE seq > 60", "no erasure was written down"),
        ("DELETE FROM head", "no signed head"),
        (
            "UPDATE head SET seq = 60, hash = (SELECT hash FROM events WHERE seq = 60)",
            "signature of the head",
        ),
        (
            "INSERT OR REPLACE INTO payloads SELECT seq, x'00', x'00' FROM events WHERE kind = 'embedding' AND payload IS NOT NULL",
            "(embedding of client",
        ),
        ("DELETE FROM payloads WHERE seq IN (SELECT seq FROM events WHERE kind = 'solution')", "no erasure"),
    ],
    ids=[
        "halved",
        "status",
        "time",
        "taken out",
        "cut",
        "cut deep",
        "no head",
        "old head",
        "vector",
        "vector gone",
    ],
)
def test_a_change_of_the_file_is_named(copy, statement, named):
    assert misfit(copy) is None
    spoil(copy, statement)
    assert named in misfit(copy)


def test_a_row_added_at_the_end_is_not_signed(copy):
    spoil(
        copy,
        "INSERT INTO events SELECT seq + 1, at, request, 'fault', 3, 9, NULL, detail, NULL, hash FROM events "
        "ORDER BY seq DESC LIMIT 1",
    )
    assert "not what the server wrote" in misfit(copy)


def test_a_cut_tail_with_a_head_of_another_key(copy):
    spoil(copy, "DELETE FROM events WHERE seq > 60")
    stranger = SigningKey.generate()
    with PaymentLedger(copy.folder / "ledger.sqlite", create=False) as ledger:
        head = Head.signed(60, list(ledger.links())[-1][1], stranger)
    spoil(
        copy,
        f"UPDATE head SET seq = 60, hash = '{head.hash}', key = '{head.key}', signature = '{head.signature}'",
    )
    assert "the head is signed by the key" in misfit(copy)
    assert verify(copy.folder).misfit is not None  # the key is part of the chain


def test_an_older_copy_is_sound_in_itself_and_a_receipt_shows_that_it_is_old(tmp_path):
    """Undetectable without outside evidence, as the report states."""
    scene = Scene(tmp_path / "run")

    def copy(phase):
        if phase == "responses":
            with scene.ledger() as ledger:
                ledger.flush()
            shutil.copytree(scene.folder, tmp_path / "old" / "run")

    scene.run(after=copy)
    old = Scene(tmp_path / "old" / "run")
    report = verify(old.folder, Evidence(public_key(scene)))
    assert report.misfit is None
    assert any("older copy" in question for question in report.open_questions)
    for client in (2, 7):
        assert "it is an older copy" in misfit(old, receipts=receipts_of(scene, client))
        state = json.loads((scene.client_folder(client) / "state.json").read_text())
        assert "it is an older copy" in misfit(old, heads=(Head(*state["head"]),))
    assert misfit(scene, receipts=receipts_of(scene, 2)) is None


def test_another_model_under_the_name_of_the_right_one(copy):
    with copy.ledger() as ledger:
        name = ledger.need("r1", ModelUnlearned).model
    other = ModelStore(copy.folder / "models").put(ArrayRecord({"mean": Array(np.ones(3, dtype=np.float32))}))
    (copy.folder / "models" / f"{other}.npz").replace(copy.folder / "models" / f"{name}.npz")
    assert "does not match its name" in misfit(copy)


def test_a_model_that_is_gone(copy):
    with copy.ledger() as ledger:
        name = ledger.need("r1", ModelUnlearned).model
    (copy.folder / "models" / f"{name}.npz").unlink()
    assert "not a model" in misfit(copy)


# ---- the server itself, which has the key, writes its records anew


HALVED = (
    "UPDATE events SET amount = amount / 2 WHERE kind IN ('payment', 'settled')",
    "UPDATE events SET amount = amount / 2 WHERE kind = 'acknowledged' AND amount > 0",
)


def test_a_server_that_halves_payments_contradicts_what_clients_signed(copy):
    spoil(copy, HALVED[0])
    write_anew(copy)
    with copy.ledger() as ledger:
        assert broken_link(ledger, public_key(copy)) is None
    assert "acknowledged" in misfit(copy)
    spoil(copy, HALVED[1])
    write_anew(copy)
    assert "the server had signed another row" in misfit(copy)


def test_a_server_that_drops_the_receipts_owes_what_it_offered(copy):
    with copy.ledger() as ledger:
        kept = [row.seq for row in ledger.rows() if row.kind != "acknowledged"]
    moves = [f"UPDATE events SET seq = {new} WHERE seq = {old}" for new, old in enumerate(kept, start=1)]
    spoil(copy, HALVED[0], "DELETE FROM events WHERE kind = 'acknowledged'", *moves)
    write_anew(copy)
    assert "is owed" in misfit(copy)


def test_a_server_that_changes_prices_everywhere_contradicts_the_heads_that_it_showed(copy):
    """Prices, commitments and payments fit each other again; what clients signed in between does not."""
    spoil(
        copy,
        "UPDATE events SET amount = amount / 2 WHERE kind IN ('offer', 'payment', 'settled')",
        "UPDATE events SET detail = json_set(detail, '$.price', json_extract(detail, '$.price') / 2) WHERE kind = 'commitment'",
        HALVED[1],
    )
    write_anew(copy)
    assert "the server had signed another row" in misfit(copy)


def test_a_client_key_from_outside_must_be_the_one_that_signed(copy):
    assert "another key than its own" in misfit(copy, client_keys={3: SigningKey.generate().public})


# ---- erasure


def test_embeddings_are_gone_from_the_file_and_the_chain_says_so(tmp_path):
    scene, sent = Scene(tmp_path / "run"), {}

    def look(phase):
        if phase == "responses":
            with scene.ledger() as ledger:
                sent.update(ledger.by_client("r1", EmbeddingReceived))

    scene.run(after=look)
    with scene.ledger() as ledger:
        erased = ledger.need("r1", PayloadsErased)
        kept = ledger.by_client("r1", EmbeddingReceived)
    assert len(erased.rows) == 10  # eight clients, the sum of the two that left, and their sealed shares
    assert all(len(event.mean) == 0 for event in kept.values())
    vectors = [event.mean.tobytes() for event in sent.values() if len(event.mean)]
    assert len(vectors) == 6  # of those who leave, only the sum was ever seen
    for path in scene.folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(vector in content for vector in vectors), path
    assert misfit(scene) is None


def test_vectors_are_not_deleted_without_a_word(sound):
    with (
        closing(sqlite3.connect(sound.folder / "ledger.sqlite")) as db,
        pytest.raises(sqlite3.IntegrityError),
    ):
        db.execute("UPDATE payloads SET content = x'00'")
    with PaymentLedger(sound.folder.parent / "other" / "ledger.sqlite") as ledger:
        ledger.add("r1", EmbeddingReceived(1, 5, np.ones(3), 0.0))
        with pytest.raises(sqlite3.IntegrityError, match="written down first"):
            ledger._db.execute("DELETE FROM payloads")


def test_whoever_writes_needs_the_key(copy):
    (copy.folder / "keys" / "server.key").unlink()
    with pytest.raises(Exception, match="needs the server's key"):
        copy.mechanism().remove(copy.grid(), (3,), request="r2")


# ---- the command


def audit(*arguments: str):
    return CliRunner().invoke(app, ["audit", *arguments, "--plain"], env={"COLUMNS": "200"})


def test_the_exit_code_tells(copy):
    key = str(copy.folder / "keys" / "server.pub")
    sound = audit(str(copy.folder), "--server-key", key)
    assert sound.exit_code == 4  # nothing but the server's key was brought along
    assert "payments: fits" in sound.output
    spoil(copy, HALVED[0])
    spoilt = audit(str(copy.folder), "--server-key", key)
    assert spoilt.exit_code == 1
    assert "Does not fit: row" in spoilt.output
    assert "What was paid" not in spoilt.output


def test_receipts_and_keys_are_brought_along(sound, tmp_path):
    for client in range(8):
        shutil.copy(sound.client_folder(client) / "client.pub", tmp_path / f"{client}.pub")
    folder = str(sound.client_folder(4))
    result = audit(str(sound.folder), "--client-keys", str(tmp_path), "--receipts", folder)
    assert result.exit_code == 4, result.output  # the other clients' receipts are missing, and that is said
    assert "who is behind" not in result.output


def test_the_ledger_is_exported_with_its_hashes_and_receipts(sound, tmp_path):
    out = tmp_path / "export.json"
    result = CliRunner().invoke(app, ["ledger", str(sound.folder), "--export", str(out)])
    assert result.exit_code == 0
    exported = json.loads(out.read_text())
    previous = first_link(exported["head"]["key"])
    for row in exported["rows"]:
        previous = link(previous, [row[name] for name in CHAINED])
        assert previous == row["hash"]
    assert Head(**exported["head"]).is_signed
    assert sum("receipt" in json.loads(row["detail"]) for row in exported["rows"]) > 20


CHAINED = ("seq", "at", "request", "kind", "client", "round", "amount", "detail", "payload")
