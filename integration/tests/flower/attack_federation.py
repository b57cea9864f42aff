"""Random sequences of dishonest steps by servers, clients, colluders and thieves, and an oracle that knows what happened.

A run of five tiny clients is carried out in this process, by one of several methods and rules of averaging, with one request
or two, with some who are dishonest while it lasts. Then its records and the evidence are attacked one step after the other, and
after every step the audit gives its verdict. The oracle shares no code with the audit: it compares the rows of the file, read by
SQLite alone, with what really happened (which the harness wrote down), the
files of models with what they were, and knows who is dishonest. Wrong are

- ``false fit``: exit code 0, though the records or models are false, or a client was paid or asked differently;
- ``fits without evidence``: exit code 0, though some of what clients keep, or a key, was taken out of the evidence;
- ``honest server blamed``: a misfit, though the server was honest and nobody touched its files;
- ``honest client blamed``: a fault, or a contradiction, held against a client that was honest;
- ``honest run not recognised``: anything but 0 where nobody was dishonest and all evidence is there.

    make attack-federation
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import logging
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from dishonest_server import LyingLedger
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from scene import TERMS, Averager, FaultyGrid, client_app, initial
from test_tampering import write_anew

from stackfu.errors import FileFormatError
from stackfu_integration.flower import PaymentLedger, UnlearningMechanism
from stackfu_integration.flower.audit import check_file
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.client_state import ClientState
from stackfu_integration.flower.collected import read_kept
from stackfu_integration.flower.events import (
    ClientEnrolled,
    ClientPaid,
    RequestAborted,
    RunStarted,
    StartPrepared,
    TermsAmended,
    WorkDelivered,
)
from stackfu_integration.flower.keys import SigningKey, canonical, read_public_key
from stackfu_integration.flower.ledger import LedgerError
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.phases import rounds as rounds_module
from stackfu_integration.flower.phases import unlearning
from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.verification import Evidence, verify
from stackfu_integration.flower.wire import EMBED, MEASURE, RESPOND, UNLEARN
from stackfu_integration.flower.wire.records import receipt_in

CLIENTS, ROUNDS, SMALL = 5, 2, replace(TERMS, rounds=2, features=16)
SEQUENCES, STEPS = 7, 7  # of attacks on one run, and steps in each
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # nothing here needs a disk
WRONG = (
    "false fit",
    "fits without evidence",
    "honest server blamed",
    "honest client blamed",
    "honest run not recognised",
    "crash",
)


# ---- what happened


@dataclass
class Truth:
    """The harness's knowledge: every row as intended, the dishonest parties, and the missing evidence."""

    rows: list[tuple] = field(default_factory=list)
    models: dict[str, str] = field(default_factory=dict)  # files and the hashes of their bytes
    server: set[str] = field(default_factory=set)  # what it did that its records do not say
    clients: set[int] = field(default_factory=set)  # who was dishonest, or whose key was stolen
    evidence_touched: bool = False  # something is missing, invented or changed in what the auditor was given
    evidence_missing: bool = False
    files_touched: bool = False

    def copy(self) -> Truth:
        return replace(self, server=set(self.server), clients=set(self.clients))


_COLUMNS = "seq, request, kind, client, round, amount, detail"


def rows_of(path: Path) -> list[tuple] | None:
    """The rows of a file as SQLite alone reads them; times apart, and ``None`` where it cannot."""
    try:
        with closing(sqlite3.connect(path)) as db:
            return db.execute(f"SELECT {_COLUMNS} FROM events ORDER BY seq").fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return None


def models_of(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("*.npz"))}


class Watched(LyingLedger):
    """A ledger that lies, and remembers what it should have said."""

    def __init__(self, path, lies, truth, never=()):
        self.meant, self.never = truth, never
        super().__init__(path, lies)

    def add(self, request, event):
        """Write an event down, unless it is the enrolment of a client that is to have none."""
        if isinstance(event, ClientEnrolled) and event.client in self.never:
            self.meant.server.add("enrolled nobody")
            return
        super().add(request, event)

    def true_rows(self) -> list[tuple]:
        """All rows as they should be."""
        return [
            (
                r.seq,
                r.request,
                r.kind,
                r.client,
                r.round,
                r.amount,
                json.dumps(dict(r.detail), sort_keys=True),
            )
            for r in self.rows()
        ]


# ---- dishonest while it runs: servers


def _lie(kind, change, who=None):
    """A lie in rows of a kind, about one client or all."""

    def lies(event):
        return change(event) if who is None or getattr(event, "client", None) == who else event

    return kind, lies


def _pays_less(rng, live):
    live.lie("payment", lambda e: replace(e, amount=e.amount * 0.5), live.worker(rng))


def _names_a_worker(rng, live):
    worker = live.worker(rng)
    live.lie("request", lambda e: replace(e, removed=tuple(sorted({*e.removed, worker}))))


def _names_nobody_gone(rng, live):
    live.lie("request", lambda e: replace(e, gone=(live.worker(rng),)))


def _states_other_price(rng, live):
    live.lie("offer", lambda e: replace(e, price=e.price * rng.uniform(0.2, 2.0) + 0.01), live.worker(rng))


def _states_other_share(rng, live):
    live.lie("commitment", lambda e: replace(e, share=e.share * 0.5), live.worker(rng))


def _fails_work(rng, live):
    live.lie("judged", lambda e: replace(e, passed=False, problem="no good"), live.worker(rng))


def _was_not_asked(rng, live):
    live.lie("judged", lambda e: replace(e, problem="was not asked in this round"), live.worker(rng))
    live.lie("request", lambda e: replace(e, terms={**e.terms, "strategy": ""}))


def _drops_receipts(rng, live):
    kind = rng.choice(["work", "response", "embedding", "acknowledged"])
    live.lie(kind, lambda e: replace(e, receipt=None), live.worker(rng))


def _states_other_size(rng, live):
    live.lie("embedding", lambda e: replace(e, size=e.size + rng.randint(1, 40)), live.worker(rng))


def _states_other_distance(rng, live):
    live.lie("measured", lambda e: replace(e, distance=e.distance * 0.1))


def _states_other_measures(rng, live):
    live.lie(
        "measure",
        lambda e: replace(e, measures={k: v * 0.5 for k, v in e.measures.items()}),
        live.worker(rng),
    )


def _states_other_model(rng, live):
    live.lie("unlearned", lambda e: replace(e, model=hashlib.sha256(b"x").hexdigest()))


def _states_better_bound(rng, live):
    live.lie("solution", lambda e: replace(e, server_loss=e.server_loss * 0.5))


def _states_budget(rng, live):
    live.lie("game", lambda e: replace(e, budget=e.budget * 3))


def _denies_acknowledgement(rng, live):
    live.lie("acknowledged", lambda e: replace(e, agreed=not e.agreed), live.worker(rng))


def _starts_from_the_trained_model(rng, live):
    """Or from the first one, where the method says that training goes on."""

    def other(removal):
        anew = removal.terms.unlearning == "retrain"
        live.truth.server.add("started from the wrong model")
        first = removal.ledger.need("", RunStarted).initial
        return removal.models.get(removal.request.before if anew else first)

    live.patches.append(patch.object(unlearning, "first_model", other))


def _averages_otherwise(rng, live):
    """The model of a round is the old one, noise, or the average with an update counted twice or from a removed client."""
    wanted, how, honest, calls = (
        1 + rng.randrange(ROUNDS),
        rng.randrange(3),
        rounds_module.robust_average,
        [0],
    )

    def otherwise(models, samples, sent, rule, **factors):
        made = honest(models, samples, sent, rule, **factors)
        calls[0] += 1
        if calls[0] != 1 + wanted:  # one round of training comes first
            return made
        old = made["mean"].numpy()
        new = {0: old + 0.25, 1: old * 1.01 + 1e-3, 2: np.asarray(rng.choices([0.0, 1.0, 5.0], k=3))}[how]
        live.truth.server.add("averaged otherwise")
        return ArrayRecord({"mean": Array(new.astype(np.float32))})

    live.patches.append(patch.object(rounds_module, "robust_average", otherwise))


def _sends_another_model(rng, live):
    """One client is sent something else than the others in a round."""
    victim, number = live.worker(rng), 1 + rng.randrange(ROUNDS)

    class Splits(rounds_module.ParticipationFedAvg):
        def _order(self, client, arrays, round_number, config):
            if self.message_type == UNLEARN and (client, round_number) == (victim, number):
                live.truth.server.add("sent another model")
                arrays = ArrayRecord({"mean": Array(arrays["mean"].numpy() + np.float32(0.5))})
            return super()._order(client, arrays, round_number, config)

    live.patches.append(patch.object(rounds_module, "ParticipationFedAvg", Splits))


def _prepares_a_start(rng, live):
    """The trained model is called prepared for a method that prepares none."""

    def prepared(removal):
        if not removal.ledger.has(removal.name, StartPrepared):
            removal.ledger.add(removal.name, StartPrepared(removal.request.before))
        live.truth.server.add("prepared a start")
        return removal.models.get(removal.request.before)

    live.patches.append(patch.object(unlearning, "first_model", prepared))


def _amends_after_commitments(rng, live):
    """Clients agreed to one method, and another one is carried out and stated."""
    other = "retrain" if live.terms.unlearning == "continue" else "continue"

    def amends(mechanism, phase):
        if phase == "responses":
            stated = replace(live.terms, unlearning=other).stated()
            mechanism.ledger.add(mechanism.ledger.requests()[-1], TermsAmended(0, stated, "an error"))
            live.truth.server.add("amended after commitments")

    live.after.append(amends)


def _enrols_nobody(rng, live):
    """A client works without ever having enrolled: it need not sign anything."""
    live.never.add(live.worker(rng))


def _asks_a_client_that_leaves(rng, live):
    """A client that leaves works by hand, together with the server, and signs it."""

    def asks(mechanism, phase):
        if phase == "responses":
            client = live.removed[0]
            records = ClientState(live.client_folder(client), RecordDict())
            records.sign(
                "work",
                mechanism.ledger.head,
                client=client,
                request="r1",
                number=1,
                model="11" * 32,
                samples=9,
            )
            live.truth.server.add("asked a client that leaves")

    live.after.append(asks)


def _takes_any_size(rng, live):
    """The terms expect a size, and the server takes another one."""
    worker = live.worker(rng)
    live.lie("request", lambda e: replace(e, terms={**e.terms, "sizes": {str(worker): [1, 2]}}))


SERVERS = (
    _prepares_a_start,
    _amends_after_commitments,
    _enrols_nobody,
    _asks_a_client_that_leaves,
    _takes_any_size,
    _pays_less,
    _names_a_worker,
    _names_nobody_gone,
    _states_other_price,
    _states_other_share,
    _fails_work,
    _was_not_asked,
    _drops_receipts,
    _states_other_size,
    _states_other_distance,
    _states_other_measures,
    _states_other_model,
    _states_better_bound,
    _states_budget,
    _denies_acknowledgement,
    _starts_from_the_trained_model,
    _averages_otherwise,
    _sends_another_model,
)


# ---- dishonest while it runs: clients


def _when(kind, act):
    return lambda message, answer: (
        act(message, answer) if message.metadata.message_type == kind else answer(message)
    )


def _signs_otherwise(change, kind):
    """A client signs something else than it sends, with its own key."""

    def make(rng, live, client):
        def act(message, answer):
            reply = answer(message)
            receipt = receipt_in(reply.content)
            if receipt is None:
                return reply
            statement = {**receipt.statement, **change(rng)}
            signer = SigningKey.load(live.client_folder(client) / "client.key")
            reply.content["receipt"] = ConfigRecord(
                {
                    "statement": canonical(statement).decode(),
                    "key": signer.public,
                    "signature": signer.sign(statement),
                }
            )
            return reply

        return _when(kind, act)

    return make


def _sends(record):
    def make(rng, live, client):
        def act(message, answer):
            reply = answer(message)
            reply.content["metrics"] = MetricRecord(record(rng))
            return reply

        return _when(rng.choice([EMBED, RESPOND, UNLEARN, MEASURE]), act)

    return make


def _claims_throughout(rng, live, client):
    """A size of its own making, in training and ever after: the same one everywhere, so that all of its records agree."""
    live.sizes[client] = rng.choice([12, 90, 2_000, 9_999_999])
    return lambda message, answer: answer(message)


def _is_silent(rng, live, client):
    return _when(rng.choice([EMBED, RESPOND, UNLEARN, MEASURE]), lambda message, answer: None)


def _says_nothing(rng, live, client):
    return _when(
        rng.choice([EMBED, RESPOND, UNLEARN, MEASURE]),
        lambda message, answer: Message(RecordDict(), reply_to=message),
    )


def _echoes(rng, live, client):
    def act(message, answer):
        reply = answer(message)
        reply.content["arrays"] = message.content["arrays"]
        return reply

    return _when(UNLEARN, act)


MEN = (
    _signs_otherwise(lambda rng: {"start": rng.choice(["00" * 32, None, 7])}, UNLEARN),
    _signs_otherwise(lambda rng: {"number": rng.choice([0, 99, "x"])}, UNLEARN),
    _signs_otherwise(lambda rng: {"removed": rng.choice([[3], [], "all"])}, RESPOND),
    _signs_otherwise(lambda rng: {"price": rng.uniform(0, 9)}, RESPOND),
    _signs_otherwise(lambda rng: {"unlearning": "continue"}, RESPOND),
    _signs_otherwise(lambda rng: {"after": "00" * 32}, MEASURE),
    _signs_otherwise(lambda rng: {"measures": {"before.loss": 0.0}}, MEASURE),
    _signs_otherwise(lambda rng: {"agreed": False, "owed": rng.uniform(0, 9)}, MEASURE),
    _signs_otherwise(lambda rng: {"head": None}, UNLEARN),
    _signs_otherwise(lambda rng: {"request": "r9"}, EMBED),
    _sends(
        lambda rng: {
            "size": rng.choice([1, 9_999_999]),
            "num-examples": rng.randrange(99),
            "share": rng.random(),
        }
    ),
    _sends(lambda rng: {"share": float("nan"), "server-round": 7}),
    _claims_throughout,
    _is_silent,
    _says_nothing,
    _echoes,
)

#: What runs are of: method, averaging, privacy, coins. Where evidence cannot settle everything the verdict stays open.
RUNS = (
    {},
    {},
    {"unlearning": "continue"},
    {"aggregation": "mean"},
    {"aggregation": "trimmed"},
    {"aggregation": "krum"},
    {"aggregation": "secure"},
    {"epsilon": 4.0},
    {"decimals": 2},
    {"bandwidth": None},
)


class Claims(Averager):
    """A client that may claim a size of its own making in everything that it says."""

    def __init__(self, sizes, context):
        super().__init__(context)
        self.claimed = sizes.get(self.client)

    @property
    def size(self):
        return super().size if self.claimed is None else self.claimed

    def train(self, arrays, share, config):
        made, used = super().train(arrays, share, config)
        return made, used if self.claimed is None else round(share * self.claimed)


class Live:
    """One run, with some who are dishonest while it lasts."""

    def __init__(self, base: Path, seed: int) -> None:
        self.base, self.folder, self.rng = base, base / "run", random.Random(seed)
        self.truth, self.patches, self.lies, self.steps = Truth(), [], {}, []
        self.removed = (0,) if self.rng.random() < 0.5 else (0, 1)
        self.terms = replace(SMALL, **self.rng.choice(RUNS))
        self.second = self.rng.random() < 0.2  # another client leaves with a request of its own
        self.after, self.never, self.sizes = [], set(), {}

    def client_folder(self, client: int) -> Path:
        return self.base / "clients" / str(client)

    def worker(self, rng) -> int:
        return rng.choice([c for c in range(CLIENTS) if c not in self.removed])

    def lie(self, kind, change, who=None) -> None:
        earlier = self.lies.get(kind, lambda event: event)
        lies = _lie(kind, change, who)[1]
        self.lies[kind] = lambda event: lies(earlier(event))

    def carry_out(self) -> Live:
        """Choose who is dishonest, and run."""
        rng, behaviours = self.rng, {}
        who = rng.choices(["nobody", "clients", "server", "colluders"], [3, 4, 4, 1])[0]
        if who in ("clients", "colluders"):
            for client in rng.sample(range(CLIENTS), rng.choice([1, 1, 2])):
                make = rng.choice(MEN)
                behaviours[client] = make(rng, self, client)
                self.truth.clients.add(client)
                self.steps.append(f"client {client}: {getattr(make, '__name__', 'client')}")
        if who in ("server", "colluders"):
            for act in rng.sample(SERVERS, rng.choice([1, 1, 2])):
                act(rng, self)
                self.steps.append(f"server: {act.__name__.strip('_')}")
        nodes = [{"partition-id": c, "client-folder": str(self.client_folder(c))} for c in range(CLIENTS)]
        grid = FaultyGrid(client_app(functools.partial(Claims, self.sizes)), nodes, behaviours)
        mechanism = UnlearningMechanism(self.folder, CLIENTS, self.terms, wait=0.0, timeout=1.0)
        mechanism.after = lambda phase: [act(mechanism, phase) for act in self.after]
        mechanism.ledger.close()
        mechanism.ledger = ledger = Watched(self.folder / "ledger.sqlite", self.lies, self.truth, self.never)
        try:
            with ExitStack() as stack:
                for patched in self.patches:
                    stack.enter_context(patched)
                mechanism.train(grid, initial(), 1)
                mechanism.remove(grid, self.removed)
                if self.second:
                    mechanism.remove(grid, (CLIENTS - 1,), request="r2")
        except Exception as error:  # a lie can be one that the server's own database refuses
            self.truth.server.add(f"ended: {type(error).__name__}")
        if ledger._lies and ledger._truth:
            meant, stated = ledger.true_rows(), rows_of(self.folder / "ledger.sqlite")
            if meant != stated:
                self.truth.server.add("stated otherwise")
        ledger.close()
        self.truth.rows = rows_of(self.folder / "ledger.sqlite") or []
        self.truth.models = models_of(self.folder / "models")
        self.finished = any(row[2] == "closed" for row in self.truth.rows)
        return self

    def evidence(self) -> Evidence:
        """Everything that an auditor can have."""
        folders = [self.client_folder(client) for client in range(CLIENTS)]
        there = [folder for folder in folders if (folder / "receipts.jsonl").is_file()]
        return Evidence(
            read_public_key(self.folder / "keys" / "server.pub"),
            {int(folder.name): read_public_key(folder / "client.pub") for folder in there},
            tuple(receipt for folder in there for receipt in read_kept(folder)),
            works=tuple(folder / "work" for folder in there),
        )


# ---- afterwards: the records and the evidence


@dataclass
class Case:
    """The records, the evidence and the truth, as they stand between two steps."""

    live: Live
    folder: Path
    evidence: Evidence
    truth: Truth
    rng: random.Random

    def spoil(self, *statements: str, rules: bool = True) -> None:
        """Change the file with its rules off, and put them back unless they are to stay off."""
        self.truth.files_touched = True
        with closing(sqlite3.connect(self.folder / "ledger.sqlite")) as db, db:
            known = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for name, _ in known:
                db.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                db.execute(statement)
            for _, sql in known if rules else ():
                db.execute(sql)

    def signer(self, client: int) -> SigningKey:
        return SigningKey.load(self.live.client_folder(client) / "client.key")

    def anybody(self) -> int:
        return self.rng.randrange(CLIENTS)


_EDITS = (
    "UPDATE events SET amount = amount * 0.5 WHERE kind = '{kind}' AND amount IS NOT NULL",
    "UPDATE events SET client = (client + 1) % 5 WHERE kind = '{kind}' AND seq = (SELECT max(seq) FROM events WHERE "
    "kind = '{kind}')",
    "DELETE FROM events WHERE kind = '{kind}'",
    "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events WHERE kind = '{kind}')",
    "UPDATE events SET detail = json_set(detail, '$.problem', 'late') WHERE kind = '{kind}'",
)
_KINDS = (
    "payment",
    "work",
    "judged",
    "offer",
    "commitment",
    "acknowledged",
    "measure",
    "embedding",
    "round",
    "settled",
    "closed",
)


def _thief_edits(case):
    case.spoil(case.rng.choice(_EDITS).format(kind=case.rng.choice(_KINDS)), rules=case.rng.random() < 0.7)


def _thief_cuts(case):
    case.spoil(f"DELETE FROM events WHERE seq > {case.rng.randint(1, max(len(case.truth.rows) - 1, 1))}")


def _thief_makes_a_view(case):
    case.spoil(
        "ALTER TABLE events RENAME TO kept",
        f"CREATE VIEW events AS SELECT * FROM kept WHERE kind <> '{case.rng.choice(_KINDS)}'",
        rules=False,
    )


def _thief_swaps_a_model(case):
    case.truth.files_touched = True
    files = sorted((case.folder / "models").glob("*.npz"))
    one, other = case.rng.choice(files), case.rng.choice(files)
    if one != other:
        shutil.copy(one, other)


def _thief_flips_a_byte(case):
    case.truth.files_touched = True
    path = case.folder / "ledger.sqlite"
    whole = bytearray(path.read_bytes())
    whole[case.rng.randrange(100, len(whole))] ^= 1 << case.rng.randrange(8)
    path.write_bytes(whole)


def _server_rewrites(case):
    """The server has its key: it changes rows, and chains and signs them anew."""
    kind = case.rng.choice(_KINDS)
    case.spoil(case.rng.choice([_EDITS[0], _EDITS[1], _EDITS[4]]).format(kind=kind))
    write_anew(case)
    if (
        rows_of(case.folder / "ledger.sqlite") != case.truth.rows
    ):  # of some kinds there are no rows, or no amounts
        case.truth.server.add("wrote the records anew")


def _server_cuts_and_signs(case):
    last = case.rng.randint(len(case.truth.rows) // 2, max(len(case.truth.rows) - 1, 1))
    case.spoil(f"DELETE FROM payloads WHERE seq > {last}", f"DELETE FROM events WHERE seq > {last}")
    write_anew(case)
    case.truth.server.add("cut the records")


def _server_strips_receipts(case):
    case.spoil(
        "UPDATE events SET detail = json_remove(detail, '$.receipt')",
        "UPDATE events SET detail = json_set(detail, '$.signer', '') WHERE kind = 'enrolled'",
    )
    write_anew(case)
    case.truth.server.add("stripped receipts")


def _client_invents(case, client=None):
    """A client signs a false statement, together with a head that the server really signed."""
    rng = case.rng
    client = case.anybody() if client is None else client
    own = [r for r in case.evidence.receipts if r.key == case.signer(client).public]
    if not own:
        return
    real = rng.choice(own)
    change = rng.choice(
        [
            {"amount": rng.uniform(0, 9)},
            {"price": rng.uniform(0, 9)},
            {"attempt": rng.choice([1, 7, "x"])},
            {"number": rng.choice([0, 1, 2, 99, None])},
            {"model": "ab" * 32},
            {"what": rng.choice(["work", "payment", "share", "nonsense", 7])},
            {"request": rng.choice(["r9", "", None])},
            {"head": rng.choice([None, [1], ["x", 1, "00" * 32, "00" * 32, "00" * 64]])},
            {"share": rng.random(), "samples": rng.randrange(99)},
            {"client": case.anybody()},
        ]
    )
    statement = {**real.statement, **change}
    signer = case.signer(client)
    invented = Receipt(statement, signer.public, signer.sign(statement))
    case.evidence = replace(case.evidence, receipts=(*case.evidence.receipts, invented))
    case.truth.clients.add(client)
    case.truth.evidence_touched = True


def _thief_signs_with_a_stolen_key(case):
    _client_invents(case, case.anybody())


def _somebody_signs_without_the_server(case):
    signer = case.signer(case.anybody()) if case.rng.random() < 0.5 else SigningKey.generate()
    head = Head.signed(case.rng.randrange(50), "00" * 32, SigningKey.generate())
    invented = Receipt.sign(signer, "payment", head, client=case.anybody(), request="r1", amount=1e9)
    case.evidence = replace(case.evidence, receipts=(*case.evidence.receipts, invented))
    case.truth.evidence_touched = True
    case.truth.clients.update(c for c in range(CLIENTS) if case.signer(c).public == signer.public)


def _client_spoils_a_receipt(case):
    receipts = list(case.evidence.receipts)
    if receipts:
        at = case.rng.randrange(len(receipts))
        receipts[at] = replace(receipts[at], statement={**receipts[at].statement, "amount": 7.0})
        case.evidence = replace(case.evidence, receipts=tuple(receipts))
        case.truth.evidence_touched = True


def _client_withholds(case):
    """Receipts, the key, or the models of one client are not there."""
    client = case.anybody()
    key, part = case.signer(client).public, case.rng.randrange(3)
    case.truth.evidence_missing = part < 2 or case.truth.evidence_missing
    if part == 0:
        case.evidence = replace(
            case.evidence, receipts=tuple(r for r in case.evidence.receipts if r.key != key)
        )
    elif part == 1:
        keys = {c: k for c, k in case.evidence.client_keys.items() if c != client}
        case.evidence = replace(case.evidence, client_keys=keys)
    else:
        case.evidence = replace(
            case.evidence, works=tuple(w for w in case.evidence.works if w.parent.name != str(client))
        )
    case.truth.evidence_touched = True


def _client_keeps_other_models(case):
    """A folder of models that were never sent, under the names of those that were."""
    if not case.evidence.works:
        return
    at = case.rng.randrange(len(case.evidence.works))
    forged = case.folder.parent / f"work-{case.rng.random()}"
    store = ModelStore(forged)
    other = store.put(ArrayRecord({"mean": Array(np.ones(3, dtype=np.float32) * case.rng.random())}))
    for path in case.evidence.works[at].glob("*.npz"):
        shutil.copy(forged / f"{other}.npz", forged / path.name)
    works = [forged if k == at else work for k, work in enumerate(case.evidence.works)]
    case.evidence = replace(case.evidence, works=tuple(works))
    case.truth.evidence_touched = True


def _somebody_cuts_receipts(case):
    """Some receipts of one client are taken out of the file that the auditor gets, not the last ones."""
    client = case.anybody()
    own = [r for r in case.evidence.receipts if r.key == case.signer(client).public and r.is_signed]
    if len(own) < 2:
        return
    gone = case.rng.sample(own[:-1], case.rng.randint(1, len(own) - 1))
    case.evidence = replace(
        case.evidence, receipts=tuple(r for r in case.evidence.receipts if r not in gone or r is own[-1])
    )
    case.truth.evidence_touched = case.truth.evidence_missing = True


def _server_adds_a_row_that_is_not_allowed(case):
    """The rules of the database are taken off for one row, which is chained and signed, and put back."""
    with closing(sqlite3.connect(case.folder / "ledger.sqlite")) as db, db:
        known = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in known:
            db.execute(f"DROP TRIGGER {name}")
    case.truth.files_touched = True
    request, event = case.rng.choice(
        [
            ("r1", RequestAborted("operator", "an error")),
            ("r1", WorkDelivered(case.anybody(), ROUNDS + 1, 5, "ab" * 32)),
            ("r1", ClientPaid(0, 3.0, 1, 1)),
            ("r9", WorkDelivered(case.anybody(), 1, 5, "ab" * 32)),
            ("r1", TermsAmended(7, replace(case.live.terms, budget=99.0).stated(), "later")),
        ]
    )
    with PaymentLedger(case.folder / "ledger.sqlite") as ledger, suppress(LedgerError, FileFormatError):
        ledger.add(request, event)
        case.truth.server.add("added a row")
    with closing(sqlite3.connect(case.folder / "ledger.sqlite")) as db, db:
        for _, sql in known:
            db.execute(sql)


def _server_sets_the_clock_back(case):
    """The last row says that it was written long ago."""
    case.spoil(
        "UPDATE events SET at = '2001-01-01T00:00:00.000+00:00' WHERE seq = (SELECT max(seq) FROM events)"
    )
    write_anew(case)
    case.truth.server.add("set the clock back")


def _server_enrols_a_client_twice(case):
    """Two numbers with one key: of one that leaves and one that stays."""
    case.spoil(
        "UPDATE events SET detail = json_set(detail, '$.signer', (SELECT json_extract(detail, '$.signer') FROM events "
        f"WHERE kind = 'enrolled' AND client = 0)) WHERE kind = 'enrolled' AND client = {CLIENTS - 1}"
    )
    write_anew(case)
    case.truth.server.add("enrolled a client twice")


def _server_plays_a_client(case):
    """The auditor got another key from the client than the one that enrolled."""
    client = case.anybody()
    case.evidence = replace(
        case.evidence, client_keys={**case.evidence.client_keys, client: SigningKey.generate().public}
    )
    case.truth.server.add("played a client")


def _server_forks(case):
    server = SigningKey.load(case.folder / "keys" / "server.key")
    client = case.anybody()
    head = Head.signed(case.rng.randint(1, max(len(case.truth.rows) + 3, 2)), "cd" * 32, server)
    forked = Receipt.sign(case.signer(client), "enrolment", head, client=client, nonce="x")
    case.evidence = replace(case.evidence, receipts=(*case.evidence.receipts, forked))
    case.truth.server.add("forked")


def _somebody_edits_the_published_audit(case):
    """Checked by itself: a published file that was edited does not verify."""
    path = case.folder / case.rng.choice(["audit-r1.md", "audit-r1.json"])
    if not path.is_file():
        return
    text = path.read_text()
    place = case.rng.randrange(len(text))
    path.write_text(text[:place] + case.rng.choice("abc019") + text[place + 1 :])
    key = read_public_key(case.folder / "keys" / "server.pub")
    with suppress(FileFormatError):  # which is a refusal as well
        if path.read_text() != text and check_file(path, key)[0] is None and _says_otherwise(path, text):
            raise AssertionError(f"an edited {path.name} verifies")


def _says_otherwise(path: Path, text: str) -> bool:
    """White space in JSON is no edit of what it says."""
    return path.suffix == ".md" or json.loads(path.read_text()) != json.loads(text)


AFTERWARDS = (
    (_client_invents, 6),
    (_client_withholds, 3),
    (_somebody_cuts_receipts, 2),
    (_client_spoils_a_receipt, 3),
    (_client_keeps_other_models, 2),
    (_somebody_signs_without_the_server, 3),
    (_thief_signs_with_a_stolen_key, 2),
    (_somebody_edits_the_published_audit, 2),
    (_server_forks, 1),
    (_server_plays_a_client, 1),
    (_server_adds_a_row_that_is_not_allowed, 2),
    (_server_sets_the_clock_back, 1),
    (_server_enrols_a_client_twice, 1),
    (_server_rewrites, 2),
    (_server_cuts_and_signs, 1),
    (_server_strips_receipts, 1),
    (_thief_edits, 2),
    (_thief_cuts, 1),
    (_thief_makes_a_view, 1),
    (_thief_swaps_a_model, 1),
    (_thief_flips_a_byte, 2),
)
#: Steps that leave the server and its files alone, so that a sequence can go on without any.
HARMLESS = AFTERWARDS[:8]


# ---- the oracle


def books_are_false(case: Case) -> bool:
    """The records and models state something false."""
    if case.truth.server:
        return True
    if not case.truth.files_touched:
        return False
    return (
        rows_of(case.folder / "ledger.sqlite") != case.truth.rows
        or models_of(case.folder / "models") != case.truth.models
    )


_HELD_AGAINST = re.compile(
    r"(?:two statements of|about the [^:]* of|:) client (\d+)(?: disputes| about| signed|:)"
)


def judged(case: Case, report) -> str:
    """Compare a verdict with what happened."""
    truth, code = case.truth, report.code
    false, honest = books_are_false(case), not case.truth.server and not case.truth.files_touched
    if code == 0 and false:
        return "false fit"
    if code == 0 and truth.evidence_missing:
        return "fits without evidence"
    if code == 1 and honest:
        return "honest server blamed"
    if honest:
        said = " | ".join(report.open_questions)
        blamed = {int(found) for found in _HELD_AGAINST.findall(said)} - truth.clients
        if blamed:
            return "honest client blamed"
        faults = {row[3] for row in truth.rows if row[2] == "fault"} - truth.clients
        if faults:
            return "honest client blamed"
    settled = case.live.terms.aggregation != "secure"  # of sums no average can be worked out again
    if settled and honest and not truth.clients and not truth.evidence_touched and code not in (0, 3):
        return "honest run not recognised"
    return {0: "fits", 1: "misfit", 3: "aborted", 4: "open"}[code] + (
        " (records are false)" if false else " (records are true)"
    )


# ---- sequences


def attack_one_run(seed: int) -> tuple[Counter, list[dict]]:
    """Carry out one run and attack it in several sequences; return counts by verdict, and what must not happen."""
    counts, wrong = Counter(), []
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        live = Live(Path(folder) / "live", seed).carry_out()
        evidence = live.evidence()
        for number in range(SEQUENCES):
            rng = random.Random(f"{seed} {number}")
            base = Path(folder) / str(number)
            shutil.copytree(live.folder, base / "run")
            case = Case(live, base / "run", evidence, live.truth.copy(), rng)
            done = list(live.steps)
            pool = HARMLESS if rng.random() < 0.5 else AFTERWARDS
            for step in range(STEPS + 1):
                name = "as it was"
                try:
                    if step:
                        act = rng.choices([a for a, _ in pool], [w for _, w in pool])[0]
                        name = act.__name__.strip("_")
                        try:
                            act(case)
                        except (sqlite3.DatabaseError, UnicodeDecodeError):
                            case.truth.files_touched = (
                                True  # an earlier step left no file that could be edited
                            )
                    done.append(name)
                    verdict = judged(case, _audited(case))
                except Exception:
                    verdict = "crash"
                    wrong.append(
                        {
                            "seed": seed,
                            "sequence": number,
                            "steps": done,
                            "error": traceback.format_exc(limit=-6),
                        }
                    )
                counts[verdict] += bool(step) or (number == 0)
                if verdict in WRONG and verdict != "crash":
                    report = _audited(case)
                    wrong.append(
                        {
                            "seed": seed,
                            "sequence": number,
                            "verdict": verdict,
                            "steps": done,
                            "truth": [sorted(case.truth.server), sorted(case.truth.clients)],
                            "said": [report.misfit, *report.open_questions[:6]],
                        }
                    )
                if verdict in WRONG:
                    break
    return counts, wrong


class _NoLedger:
    """The verdict on a file that is no ledger any more: the command ends with 2."""

    code, misfit, open_questions = 1, "no ledger", ()


def _audited(case: Case):
    try:
        return verify(case.folder, case.evidence)
    except FileFormatError:
        return _NoLedger()


def campaign(steps: int, first_seed: int = 0, show=lambda record: None, jobs: int = 1) -> dict:
    """Attack runs until so many steps were done, and return the record; runs count in the order of their seeds."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    counts, wrong, runs, began = Counter(), [], 0, time.perf_counter()
    pool = ProcessPoolExecutor(jobs, initializer=_quiet) if jobs > 1 else None
    ahead = {}  # what other processes are at work on, by seed
    while sum(counts.values()) < steps:
        seed = first_seed + runs
        if pool is None:
            found, cases = attack_one_run(seed)
        else:
            for later in range(seed, seed + jobs):
                if later not in ahead:
                    ahead[later] = pool.submit(attack_one_run, later)
            found, cases = ahead.pop(seed).result()
        runs += 1
        counts += found
        wrong += cases
        record = {
            "steps": sum(counts.values()),
            "runs": runs,
            "sequences": runs * SEQUENCES,
            "first_seed": first_seed,
            "commit": commit(),
            "seconds": round(time.perf_counter() - began, 1),
            "counts": dict(sorted(counts.items())),
            "false_fits": counts["false fit"],
            "honest_blamed": counts["honest server blamed"] + counts["honest client blamed"],
            "wrong": wrong,
        }
        show(record)
    if pool is not None:
        pool.shutdown(cancel_futures=True)
    return record


def _quiet() -> None:
    logging.getLogger("flwr").setLevel(logging.CRITICAL)


@functools.cache
def commit() -> str:
    """The commit that is attacked, as git says it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or "unknown"


def main() -> int:
    """The command line; exits with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description="Dishonest steps against an oracle that knows what happened")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    def show(record):
        if options.out is not None:  # what was done so far stays if it is ended
            options.out.write_text(json.dumps(record, indent=1, default=str) + "\n")
        print(
            f"\r{record['steps']}/{options.steps}, {len(record['wrong'])} wrong",
            end="",
            file=sys.stderr,
            flush=True,
        )

    record = campaign(options.steps, options.start, show, options.jobs)
    text = json.dumps(record, indent=1, default=str) + "\n"
    print(f"\n{text}", end="")
    return 1 if record["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
