"""The file of a ledger, and what its server and its clients signed: does it hold together?

chain     every row follows from the one before, and the server signed the last one
events    every row is an event
receipts  what clients signed is what the ledger says, with the keys they enrolled with
outside   receipts and heads that others kept are on this chain
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stackfu.errors import FileFormatError
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.events import (
    NOBODY,
    ClientEnrolled,
    ClientPaid,
    ConsentGiven,
    EmbeddingReceived,
    GradientReported,
    ModelUnlearned,
    PartingWork,
    PaymentAcknowledged,
    PriceOffered,
    ShareAnswered,
    WorkDelivered,
    WorkJudged,
    from_row,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger, broken_link
from stackfu_integration.flower.misfit import MisfitError, need
from stackfu_integration.flower.receipts import (
    CONSENT,
    EMBEDDING,
    GRADIENT,
    PARTING,
    PAYMENT,
    SHARE,
    WORK,
    Receipt,
    fingerprint_of,
    shown,
)

__all__ = ["Evidence", "SignedRows"]


@dataclass(frozen=True)
class Evidence:
    """What somebody brings along who does not trust the folder: keys, and what clients kept.

    ``client_keys`` are public keys by client number.
    """

    server_key: str | None = None
    client_keys: Mapping[int, str] = field(default_factory=dict)
    receipts: tuple[Receipt, ...] = ()
    heads: tuple[Head, ...] = ()


class SignedRows:
    """Checks of a whole ledger, in the order in which they rest on each other; ``questions`` stay open."""

    def __init__(self, ledger: PaymentLedger, evidence: Evidence) -> None:
        self.ledger, self.evidence = ledger, evidence
        self.questions: list[str] = []

    def chain(self) -> None:
        """Every row follows from the one before, and the server signed the last one."""
        problem = broken_link(self.ledger, self.evidence.server_key)
        need(problem is None, str(problem))
        self._hashes = {row[0]: hash_ for row, hash_, _, _ in self.ledger.links()}
        if self.evidence.server_key is None:
            self.questions.append(
                "whether the key in the file is the server's: give the public key that you got from the server otherwise"
            )

    def events(self) -> None:
        """Every row is an event."""
        for row in self.ledger.rows():
            try:
                from_row(row)
            except FileFormatError as error:
                raise MisfitError(str(error)) from error

    # ---------------------------------------------------------------- what clients signed

    def receipts(self) -> None:
        """What clients signed is what the ledger says."""
        enrolled = self.ledger.by_client(RUN, ClientEnrolled)
        self._signers = {client: event.signer for client, event in enrolled.items()}
        for client, key in self.evidence.client_keys.items():
            signer = self._signers.get(client)
            if signer is not None:
                need(signer == key, f"client {client} enrolled with another key than its own")
        strange = sorted(
            c for c, signer in self._signers.items() if signer and c not in self.evidence.client_keys
        )
        if strange:
            self.questions.append(
                f"whether clients {strange} are who they seem: a server that plays them signs with keys of its own; give the "
                "public keys that you got from the clients"
            )
        unsigned = sorted(client for client, signer in self._signers.items() if not signer)
        if unsigned:
            self.questions.append(f"what clients {unsigned} really said: they have no keys and sign nothing")
        for request in self.ledger.requests():
            offers = {(o.client, o.attempt): o for o in self.ledger.events(request, PriceOffered)}
            # of work that was refused nothing follows, whatever was signed
            refused = {(w.client, w.number) for w in self.ledger.events(request, WorkJudged) if not w.passed}
            for row in self.ledger.rows(request):
                event = from_row(row)
                where = f"row {row.seq} ({row.kind} of client {row.client})"
                if isinstance(event, EmbeddingReceived):
                    facts: dict[str, Any] = {"size": event.size, "deviation": event.deviation}
                    if len(event.mean):
                        facts["vector"] = fingerprint_of(event.mean)
                    self._check_receipt(
                        where, event.client, event.receipt, EMBEDDING, request=request, **facts
                    )
                elif isinstance(event, ShareAnswered):
                    receipt = self._check_receipt(
                        where,
                        event.client,
                        event.receipt,
                        SHARE,
                        request=request,
                        number=event.number,
                        share=event.share,
                    )
                    if receipt is not None:
                        offer = offers.get((event.client, int(receipt.statement["attempt"])))
                        price = receipt.statement["price"]
                        need(
                            offer is not None and offer.price == price,
                            f"{where}: the client signed a price of {price!r}, and the ledger offers another",
                        )
                        cap = receipt.statement["cap"]
                        need(
                            offer is not None and offer.cap == cap,
                            f"{where}: the client signed a cap of {cap!r}, and the ledger offers another",
                        )
                elif isinstance(event, WorkDelivered) and (event.client, event.number) not in refused:
                    facts = {"number": event.number, "samples": event.samples, "model": event.model}
                    self._check_receipt(where, event.client, event.receipt, WORK, request=request, **facts)
                elif isinstance(event, ConsentGiven):
                    facts = {"method": event.method}
                    self._check_receipt(where, event.client, event.receipt, CONSENT, request=request, **facts)
                elif isinstance(event, PartingWork):
                    facts = {"number": event.number, "samples": event.samples, "model": event.model}
                    self._check_receipt(where, event.client, event.receipt, PARTING, request=request, **facts)
                elif isinstance(event, GradientReported):
                    facts = {
                        "samples": event.samples,
                        "gradient": fingerprint_of(event.gradient),
                        "model": self.ledger.need(request, ModelUnlearned).model,
                    }
                    self._check_receipt(
                        where, event.client, event.receipt, GRADIENT, request=request, **facts
                    )
                elif isinstance(event, PaymentAcknowledged):
                    facts = {"amount": event.amount, "agreed": event.agreed}
                    self._check_receipt(where, event.client, event.receipt, PAYMENT, request=request, **facts)
                    paid = self.ledger.by_client(request, ClientPaid).get(event.client)
                    amount = 0.0 if paid is None else paid.amount
                    need(
                        amount == event.amount,
                        f"{where}: the client acknowledged {event.amount!r}, and the ledger pays {amount!r}",
                    )

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
        """What others kept is on this chain."""
        if not self.evidence.receipts and not self.evidence.heads:
            self.questions.append(
                "whether this is the newest copy of the ledger: an older copy is sound in itself, and only a receipt or "
                "a head that somebody else kept shows that it is old"
            )
        for head in self.evidence.heads:
            self._on_chain("a head from outside", head)
        by_key = {key: client for client, key in self._signers.items() if key}
        for receipt in self.evidence.receipts:
            need(receipt.is_signed, "a receipt from outside: its signature is wrong")
            client = by_key.get(receipt.key)
            said = receipt.statement
            need(
                client is not None, f"a receipt of key {receipt.key[:16]}…: no such client is in this ledger"
            )
            assert client is not None
            what = str(said.get("what"))
            where = f"a receipt of client {client} about its {shown(what)[1:-1]}"
            self._on_chain(where, receipt.head)
            request = str(said.get("request", RUN))
            other = self._signed_otherwise(client, request, said)
            if other is not None:
                self.questions.append(
                    f"which of two statements of client {client} about its {what} in {request} holds: it signed "
                    f"another one than is in the ledger ({other}). Both are its own, so nothing is held against the server"
                )
            elif said.get("what") == SHARE:
                offered = {
                    o.attempt: o.price
                    for o in self.ledger.events(request, PriceOffered)
                    if o.client == client
                }
                price = offered.get(int(said["attempt"]))
                need(
                    price == said["price"],
                    f"{where}: it was offered {shown(said['price'])}, the ledger says {price!r}",
                )
            elif said.get("what") == PAYMENT:
                paid = self.ledger.by_client(request, ClientPaid).get(client)
                amount = 0.0 if paid is None else paid.amount
                need(
                    amount == said["amount"],
                    f"{where}: it was paid {shown(said['amount'])}, the ledger says {amount!r}",
                )

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
        number = said.get("number", NOBODY)
        if not isinstance(number, int) or not 0 <= number < 2**62:
            number = NOBODY
        event = self.ledger.of_client(request, kind, client, number)
        plain = getattr(event, "receipt", None)
        if plain is None:
            return None
        kept = Receipt.read(plain).statement
        if kept.get("attempt") != said.get("attempt"):
            return None  # it is about another set of offers
        names = sorted((set(kept) | set(said)) - {"head"})
        return next(
            (
                f"{shown(n)[1:-1]}: {shown(kept.get(n))}, not {shown(said.get(n))}"
                for n in names
                if kept.get(n) != said.get(n)
            ),
            None,
        )
