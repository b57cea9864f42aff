"""The file of a ledger, and what its server and its clients signed: does it hold together?

chain     every row follows from the one before, and the server signed the last one
events    every row is an event
receipts  what clients signed is what the ledger says, with the keys they enrolled with
outside   receipts and heads that others kept are on this chain
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from stackfu.errors import FileFormatError
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.events import (
    NO_CLIENT,
    ClientEnrolled,
    ClientExcluded,
    ClientFault,
    ClientMeasured,
    ClientPaid,
    ClockSetBack,
    ConsentGiven,
    EmbeddingReceived,
    Event,
    GradientHidden,
    GradientReported,
    PartingWork,
    PaymentAcknowledged,
    PriceOffered,
    RemovalRequested,
    RoundFinished,
    ShareAnswered,
    WorkDelivered,
    WorkJudged,
    from_row,
    to_row,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger, broken_link, broken_rule
from stackfu_integration.flower.ledger_error import LedgerError, need
from stackfu_integration.flower.naming import PLAIN_NAME, Naming
from stackfu_integration.flower.receipts import (
    CONSENT,
    EMBEDDING,
    GRADIENT,
    PARTING,
    PAYMENT,
    REFUSAL,
    SHARE,
    WORK,
    Receipt,
    fingerprint_of,
    shown,
)

__all__ = ["Evidence", "SignedRows"]


@dataclass(frozen=True)
class Evidence:
    """Evidence from outside the folder: keys, and receipts and models kept by clients.

    ``client_keys`` are public keys by client number; ``works`` are folders in which clients keep the models that they sent.
    """

    server_key: str | None = None
    client_keys: Mapping[int, str] = field(default_factory=dict)
    receipts: tuple[Receipt, ...] = ()
    heads: tuple[Head, ...] = ()
    works: tuple[Path, ...] = ()


class SignedRows:
    """Checks of a whole ledger, in the order in which they rest on each other; ``questions`` stay open."""

    def __init__(self, ledger: PaymentLedger, evidence: Evidence) -> None:
        self.ledger, self.evidence = ledger, evidence
        self.questions: list[str] = []
        self.proved: list[str] = []
        self.incomplete: set[int] = set()  # clients of whom some receipts were brought along, and not all

    def chain(self) -> None:
        """Every row follows from the one before, and the server signed the last one."""
        problem = broken_link(self.ledger, self.evidence.server_key)
        need(problem is None, str(problem))
        self._hashes = {row[0]: hash_ for row, hash_, _, _ in self.ledger.links()}
        if self.evidence.server_key is None:
            self.questions.append(
                "whether the key in the file is the server's: give the public key that you got from the server otherwise"
            )
        if self.ledger.other_rules:
            self.questions.append(
                f"who took the rules {', '.join(self.ledger.other_rules)} of the database off, or put others there: "
                "rows are checked "
                "here without them"
            )
        self._times()

    def _times(self) -> None:
        """Times of rows are the server's word, and go forward."""
        rows = self.ledger.rows()
        for row in rows:
            try:
                datetime.fromisoformat(row.at)
            except ValueError as error:
                raise LedgerError(f"row {row.seq} ({shown(row.kind)}): its time is none") from error
        for before, after in pairwise(rows):
            if after.at < before.at:
                self.questions.append(
                    f"when rows were written: row {after.seq} says {shown(after.at)}, and row {before.seq} before it "
                    f"{shown(before.at)}. "
                    "The server's clock was set back, and deadlines may have passed without a word"
                )
                break
        for event in self.ledger.events(RUN, ClockSetBack):
            self.questions.append(
                f"when rows were written: the server's clock was set back by {event.seconds:.0f} s, and times go on "
                "from the row before"
            )

    def events(self) -> None:
        """Every row is an event, of a request that was opened, in an order that the rules of a ledger allow."""
        opened = set(self.ledger.requests())
        strange = [name for name in opened if not PLAIN_NAME.fullmatch(name)]
        need(
            not strange,
            f"a request is called {shown(strange[0]) if strange else ''}: no request has such a name",
        )
        for row in self.ledger.rows():
            try:
                event = from_row(row)
            except FileFormatError as error:
                raise LedgerError(str(error)) from error
            where = f"row {row.seq} ({row.kind})"
            need(
                row.request == RUN or row.request in opened,
                f"{where} is about {shown(row.request)}, and no such request was opened",
            )
            written = to_row(row.request, event)
            need(
                (written.client, written.round, written.amount) == (row.client, row.round, row.amount),
                f"{where} has a client, a round or an amount that such a row has not",
            )
            unknown = sorted(set(row.detail) - set(getattr(event, "__dataclass_fields__", ())))
            if unknown:
                self.questions.append(
                    f"what {shown(unknown[0])[1:-1]} means in row {row.seq} ({row.kind}): this program knows no such entry"
                )

        refused = broken_rule(self.ledger)
        need(refused is None, f"the rules of a ledger refuse {refused}")

    # ---------------------------------------------------------------- what clients signed

    def receipts(self) -> None:
        """Check that the clients' signed statements are those of the ledger."""
        enrolled, who = self.ledger.by_client(RUN, ClientEnrolled), self.ledger.naming
        self._signers = {client: event.signer for client, event in enrolled.items()}
        self._check_signers(who)
        for request in self.ledger.requests():
            offers = {(o.client, o.attempt): o for o in self.ledger.events(request, PriceOffered)}
            # of work that was refused nothing follows, whatever was signed
            refused = {(w.client, w.number) for w in self.ledger.events(request, WorkJudged) if not w.passed}
            for row in self.ledger.rows(request):
                event = from_row(row)
                signed = self._facts(request, event)
                if signed is None or (
                    isinstance(event, WorkDelivered) and (event.client, event.number) in refused
                ):
                    continue
                where, (what, facts) = f"row {row.seq} ({row.kind} of client {who(row.client)})", signed
                plain = getattr(event, "receipt", None)
                receipt = self._check_receipt(where, row.client, plain, what, request=request, **facts)
                if what == SHARE and receipt is not None:
                    said = receipt.statement
                    _check_offer(where, said, offers.get((row.client, int(said["attempt"]))))
                if isinstance(event, PaymentAcknowledged):
                    amount = self._paid(request, event.client)
                    need(
                        amount == event.amount,
                        f"{where}: the client acknowledged {event.amount!r}, and the ledger pays {amount!r}",
                    )

    def _check_signers(self, who: Naming) -> None:
        """Check that clients enrolled with the keys known from elsewhere; clients without a key sign nothing."""
        for client, key in self.evidence.client_keys.items():
            signer = self._signers.get(client)
            if signer is not None:
                need(signer == key, f"client {who(client)} enrolled with another key than its own")
        strange = sorted(
            c for c, signer in self._signers.items() if signer and c not in self.evidence.client_keys
        )
        if strange:
            self.questions.append(
                f"who is behind {who.all(strange)}: a server that plays clients signs with keys of its own; give the public keys "
                "that you got from the clients"
            )
        unsigned = sorted(client for client, signer in self._signers.items() if not signer)
        if unsigned:
            self.questions.append(
                f"what was really said by {who.all(unsigned)}: without keys nothing is signed"
            )
        owners: dict[str, list[int]] = {}
        for client, signer in self._signers.items():
            owners.setdefault(signer, []).append(client)
        for signer, clients in owners.items():
            if signer and len(clients) > 1:
                self.questions.append(
                    f"if {who.all(clients)} are several: they sign with one key, and what one of them did counts for the other"
                )

    def _facts(self, request: str, event: Event) -> tuple[str, dict[str, Any]] | None:
        """Return the statement that a client signs with an event, and the facts stated by the ledger; ``None`` if unsigned."""
        match event:
            case EmbeddingReceived():
                sent = {"vector": fingerprint_of(event.mean)} if len(event.mean) else {}
                return EMBEDDING, {"size": event.size, "deviation": event.deviation, **sent}
            case ShareAnswered():
                return SHARE, {"number": event.number, "share": event.share}
            case WorkDelivered():
                return WORK, {"number": event.number, "samples": event.samples, "model": event.model}
            case ConsentGiven():
                return CONSENT, {"method": event.method}
            case PartingWork():
                return PARTING, {"number": event.number, "samples": event.samples, "model": event.model}
            case GradientReported() | GradientHidden():
                model = self.ledger.need(request, RoundFinished).model
                return GRADIENT, {"samples": event.samples, "model": model, **_gradient_sent(event)}
            case PaymentAcknowledged():
                return PAYMENT, {"amount": event.amount, "agreed": event.agreed}
        return None

    def _measures(self) -> None:
        """Check that the clients' measures are those they signed with their payment."""
        for request in self.ledger.requests():
            signed = self.ledger.by_client(request, PaymentAcknowledged)
            unsaid = []
            for client, event in self.ledger.by_client(request, ClientMeasured).items():
                said = signed[client].receipt if client in signed else None
                statement = (said or {}).get("statement", {})
                if "measures" not in statement:
                    unsaid.append(client)
                    continue
                need(
                    statement["measures"] == dict(event.measures),
                    f"{request}: client {self.ledger.naming(client)} signed other measures than the ledger states",
                )
            if unsaid:
                self.questions.append(
                    f"{request}: what {self.ledger.naming.all(unsaid)} measured: it is in no receipt, and so the server's word"
                )
            self._left_out(request)

    def _left_out(self, request: str) -> None:
        """Ask about clients that failed or were left out, but for those that signed that they refused the offer."""
        faults = [fault for name in (RUN, request) for fault in self.ledger.events(name, ClientFault)]
        excluded = {
            c: e for c, e in self.ledger.by_client(request, ClientExcluded).items() if e.phase != "shards"
        }
        named = {fault.client for fault in faults} | set(excluded)
        elsewhere = {fault.client for fault in faults if fault.phase != "responses"}
        elsewhere |= {client for client, event in excluded.items() if event.phase != "responses"}
        refused = (self._refusals(request) & named) - elsewhere
        who = self.ledger.naming
        if refused:
            self.proved.append(
                f"{request}: {who.all(sorted(refused))} refused the offer: the receipts say so"
            )
        if named - refused:
            self.questions.append(
                f"{request}: if {who.all(sorted(named - refused))} failed as the ledger says, or was left out for a reason: that "
                "is the server's word"
            )

    def _refusals(self, request: str) -> set[int]:
        """Return the clients that signed, after a head of this ledger, that they refused an offer."""
        owners = {signer: client for client, signer in self._signers.items() if signer}
        found = set()
        for receipt in self.evidence.receipts:
            said, client = receipt.statement, owners.get(receipt.key)
            if (
                client is None
                or not receipt.is_signed
                or (said.get("what"), said.get("request")) != (REFUSAL, request)
            ):
                continue
            head, server = receipt.head, self.ledger.head
            if (
                said.get("client") == client
                and head is not None
                and head.is_signed
                and server
                and head.key == server.key
            ):
                found.add(client)
        return found

    def _paid(self, request: str, client: int) -> float:
        """Return the ledger's payment to a client."""
        paid = self.ledger.by_client(request, ClientPaid).get(client)
        return 0.0 if paid is None else paid.amount

    def _check_receipt(
        self, where: str, client: int, plain: Mapping[str, Any] | None, what: str, **facts: Any
    ) -> Receipt | None:
        signer = self._signers.get(client, "")
        if not signer:
            return None
        need(plain is not None, f"{where}: the client has a key, and there is no receipt")
        assert plain is not None
        receipt = Receipt.read(plain)
        need(receipt.key == signer and receipt.is_signed, f"{where}: the client did not sign this")
        difference = receipt.differs_from(what, client=client, **facts)
        need(difference is None, f"{where}: the receipt {difference}")
        need(receipt.head is not None, f"{where}: the receipt shows no head of the ledger")
        self._on_chain(where, receipt.head)
        return receipt

    def _on_chain(self, who: str, head: Head | None) -> None:
        if head is None:
            return
        key = self.ledger.head.key if self.ledger.head is not None else ""
        need(
            head.is_signed and head.key == key, f"{who}: shows a head that this ledger's server did not sign"
        )
        last = max(self._hashes, default=0)
        need(
            head.seq <= last,
            f"{who}: the server had signed row {head.seq}, and this ledger ends at row {last}: it is an older copy",
        )
        need(
            self._hashes[head.seq] == head.hash,
            f"{who}: the server had signed another row {head.seq} than the one in this ledger",
        )

    def outside(self) -> None:
        """Compare what others kept with this chain.

        A head that the server signed proves something about the server. What a client signed is the client's word: where it
        differs from the ledger a question stays open, and nothing is held against the server.
        """
        if not self.evidence.receipts and not self.evidence.heads:
            self.questions.append(
                "whether this is the newest copy of the ledger: an older copy is sound in itself, and only a receipt or "
                "a head that somebody else kept shows that it is old"
            )
        for head in self.evidence.heads:
            self._is_shown("a head from outside", head)
        self._measures()
        who = self.ledger.naming
        by_key = {key: client for client, key in self._signers.items() if key}
        brought: set[int] = set()
        for receipt in self.evidence.receipts:
            client = by_key.get(receipt.key)
            if not receipt.is_signed:
                self.questions.append("a receipt from outside is signed by nobody: it counts for nothing")
            elif client is None:
                self.questions.append(
                    f"who owns the key {shown(receipt.key)[1:17]}…, which signed a receipt from outside: no client of "
                    "this ledger does"
                )
            else:
                brought.add(client)
                self._compare(client, receipt)
        self._ask_for_kept(by_key)
        silent = sorted(set(by_key.values()) - brought)
        if silent:
            self.questions.append(
                f"if the ledger leaves out anything that {who.all(silent)} did: no receipts of "
                f"{'it' if len(silent) == 1 else 'them'} were "
                "brought along, so that it is the server's word"
            )
        elif by_key and len(by_key) == len(self._signers) and not self.incomplete:
            self.proved.append(
                f"by the receipts of all {len(by_key)} clients nothing that they signed is left out or denied"
            )

    def _ask_for_kept(self, by_key: Mapping[str, int]) -> None:
        """A client keeps everything that it signs, and numbers it: one that is missing may be one that the ledger leaves out."""
        brought: dict[str, set[str]] = {}
        highest: dict[str, int] = {}
        for receipt in self.evidence.receipts:
            if receipt.is_signed:
                number = receipt.statement.get("nth")
                brought.setdefault(receipt.key, set()).add(receipt.signature)
                highest[receipt.key] = max(
                    highest.get(receipt.key, 0), number if isinstance(number, int) else 0
                )
        lacking = {key for key, kept in brought.items() if len(kept) < highest[key]}
        for row in self.ledger.rows():
            plain = row.detail.get("receipt")
            if isinstance(plain, dict) and plain.get("signature") not in brought.get(
                str(plain.get("key")), ()
            ):
                lacking.add(str(plain.get("key")))
        for key, client in sorted(by_key.items(), key=lambda item: item[1]):
            if key in lacking and key in brought:
                self.incomplete.add(client)
                self.questions.append(
                    f"if the ledger leaves out anything that client {self.ledger.naming(client)} did: the receipts of it that "
                    "were brought along are not all that it signed"
                )

    def _is_shown(self, where: str, head: Head | None) -> bool:
        """Check a head from outside that this server signed; one that it did not sign says nothing about it."""
        key = self.ledger.head.key if self.ledger.head is not None else ""
        if head is None or not head.is_signed or head.key != key:
            self.questions.append(
                f"{where} shows no head that this ledger's server signed: it says nothing about the server"
            )
            return False
        self._on_chain(where, head)
        return True

    def _compare(self, client: int, receipt: Receipt) -> None:
        """Compare a client's receipt with the ledger; whatever differs is the client's word against the server's."""
        said, name = receipt.statement, self.ledger.naming(client)
        what, request = str(said.get("what")), str(said.get("request", RUN))
        where = f"a receipt of client {name} about its {shown(what)[1:-1]}"
        if not self._is_shown(where, receipt.head):
            return
        about = f"{shown(what)[1:-1]} in {shown(request)[1:-1]}"
        other = self._signed_otherwise(client, request, said)
        if other is not None:
            self.questions.append(
                f"which of two statements of client {name} about its {about} holds: it signed "
                f"another one than is in the ledger ({other}). Both are its own, so nothing is held against the server"
            )
            return
        denied = self._denied(client, request, what, said)
        if denied is not None:
            self.questions.append(
                f"who is right about the {about} of client {name}: {denied}. It is the client's word against the server's"
            )

    def _denied(self, client: int, request: str, what: str, said: Mapping[str, Any]) -> str | None:
        """Return what a client signed and the ledger does not know, or ``None``."""
        opened = self.ledger.last(request, RemovalRequested)
        if what in (SHARE, WORK, GRADIENT):
            if opened is None:
                return "the ledger has no such request"
            if client in (*opened.removed, *opened.gone):
                return "it signed work, or an answer to an offer, though it had left"
        if what == SHARE:
            offered = {
                o.attempt: o.price for o in self.ledger.events(request, PriceOffered) if o.client == client
            }
            attempt = said.get("attempt")
            price = offered.get(attempt) if isinstance(attempt, int) else None
            if price != said.get("price"):
                return f"it signed that it was offered {shown(said.get('price'))}, the ledger says {price!r}"
        elif what == WORK:
            number = said.get("number")
            faults = {(f.client, f.phase) for f in self.ledger.events(request, ClientFault)}
            known = {(w.client, w.number) for w in self.ledger.events(request, WorkDelivered)}
            if (client, number) not in known and (client, f"unlearning {number}") not in faults:
                return (
                    f"it signed that it worked in round {shown(number)}, and the ledger knows nothing of that"
                )
        elif what == PAYMENT:
            amount = self._paid(request, client)
            if client not in self.ledger.by_client(request, PaymentAcknowledged):
                return "it signed what it was paid and what it measured, and the ledger knows nothing of that"
            if amount != said.get("amount"):
                return f"it signed a payment of {shown(said.get('amount'))}, the ledger says {amount!r}"
        return None

    def _signed_otherwise(self, client: int, request: str, said: Mapping[str, Any]) -> str | None:
        """In what a client's statement differs from one of its own in the ledger about the same thing, if there is one."""
        kinds = {
            SHARE: ShareAnswered,
            WORK: WorkDelivered,
            PAYMENT: PaymentAcknowledged,
            PARTING: PartingWork,
        }
        kind = kinds.get(str(said.get("what")))
        if kind is None:
            return None
        number = said.get("number", NO_CLIENT)
        if not isinstance(number, int) or not 0 <= number < 2**62:
            number = NO_CLIENT
        event = self.ledger.of_client(request, kind, client, number)
        plain = getattr(event, "receipt", None)
        if plain is None:
            return None
        kept = Receipt.read(plain).statement
        if kept.get("attempt") != said.get("attempt"):
            return None  # it is about another set of offers
        names = sorted((set(kept) | set(said)) - {"head", "nth"})
        return next(
            (
                f"{shown(n)[1:-1]}: {shown(kept.get(n))}, not {shown(said.get(n))}"
                for n in names
                if kept.get(n) != said.get(n)
            ),
            None,
        )


def _gradient_sent(event: GradientReported | GradientHidden) -> dict[str, str]:
    """Return the fingerprint of a gradient as it was sent, unless it is erased."""
    if isinstance(event, GradientReported):
        return {"gradient": fingerprint_of(event.gradient)} if len(event.gradient) else {}
    return {"gradient": fingerprint_of(np.frombuffer(event.masked, np.uint8))} if event.masked else {}


def _check_offer(where: str, said: Mapping[str, Any], offer: PriceOffered | None) -> None:
    """A client signed the price and the cap that the ledger offers it."""
    for name in ("price", "cap"):
        need(
            offer is not None and getattr(offer, name) == said[name],
            f"{where}: the client signed a {name} of {said[name]!r}, and the ledger offers another",
        )
