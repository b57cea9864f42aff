"""Events of the ledger: one class per kind of row.

A row of the ledger has the columns

    request | kind | client | round | amount | detail (JSON) | payload (bytes)

and every class below says which of its fields go where: a field marked with a column lives there, every other
one is an entry of ``detail`` under its own name. :mod:`.rows` translates. A new
event is a new class with a new ``kind``; the ledger, its command line and the audit read it
without further ado.

==============  ==========================================================================================
in a run        RunStarted, ClientEnrolled, RoundFinished, UpdatesKept, ShardsTrained, ClientFault; ClockSetBack and LogEmptied
request         RemovalRequested; TermsAmended and RequestAborted may follow at any time before it is closed;
                ConsentGiven, where those who leave are to work, or those who stay to send gradients
embeddings      BandwidthAgreed, EmbeddingReceived, ClientExcluded; of those who leave SumAgreed, SumHeard,
                GroupSumReceived; closed by GameFounded
offers          PriceOffered; closed by GameSolved
responses       ParticipationAnnounced, ShareAnswered, ClientCommitted; closed by CommitmentsClosed
unlearning      PartingWork, StartPrepared, NoisePromised; WorkDelivered, WorkJudged, WorkRepeated, SlopeSummed, ShardsTrained,
                RoundFinished; in sums SumAgreed, SumHeard; GradientReported, DistanceBounded, NoiseDrawn; closed by
                ModelUnlearned
settlement      ClientPaid; closed by RequestSettled
measures        ClientMeasured, PaymentAcknowledged, GradientReported, DistanceBounded; in sums SumAgreed, GradientHidden,
                SumHeard, SumOpened; closed by MeasuresClosed
report          PayloadsErased; closed by RequestClosed
==============  ==========================================================================================

A ``receipt`` is what a client signed (:mod:`.receipts`): the statement and its signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from stackfu_integration.flower.rows import (
    EVENTS,
    NO_CLIENT,
    Amount,
    ClientEvent,
    ClientNumbers,
    Content,
    Count,
    CountPerClient,
    CountPerShard,
    Event,
    KeysPerClient,
    Lengths,
    NamePerClient,
    NamePerShard,
    Names,
    Number,
    NumberPerClient,
    NumbersPerShard,
    OtherNumbers,
    Row,
    Signed,
    Vector,
    Verdict,
    from_row,
    to_row,
)

__all__ = [
    "EVENTS",
    "NO_CLIENT",
    "BandwidthAgreed",
    "ClientCommitted",
    "ClientEnrolled",
    "ClientEvent",
    "ClientExcluded",
    "ClientFault",
    "ClientMeasured",
    "ClientPaid",
    "ClockSetBack",
    "CommitmentsClosed",
    "ConsentGiven",
    "DistanceBounded",
    "EmbeddingReceived",
    "Event",
    "GameFounded",
    "GameSolved",
    "GradientHidden",
    "GradientReported",
    "GroupSumReceived",
    "LogEmptied",
    "MeasuresClosed",
    "ModelUnlearned",
    "NoiseDrawn",
    "NoisePromised",
    "ParticipationAnnounced",
    "PartingWork",
    "PayloadsErased",
    "PaymentAcknowledged",
    "PriceOffered",
    "RemovalRequested",
    "RequestAborted",
    "RequestClosed",
    "RequestSettled",
    "RoundFinished",
    "Row",
    "RunStarted",
    "ShardsTrained",
    "ShareAnswered",
    "SlopeSummed",
    "StartPrepared",
    "SumAgreed",
    "SumHeard",
    "SumOpened",
    "TermsAmended",
    "UpdatesKept",
    "WorkDelivered",
    "WorkJudged",
    "WorkRepeated",
    "from_row",
    "to_row",
]


@dataclass(frozen=True)
class RunStarted(Event, kind="run"):
    """A federation of ``clients`` clients trains ``rounds`` rounds from the model ``initial``.

    ``adopted`` says that the model was trained elsewhere: what it has seen is the operator's word.
    """

    clients: int
    rounds: int
    initial: str
    names: Names = ()
    adopted: bool = False


@dataclass(frozen=True)
class ClientEnrolled(ClientEvent, kind="enrolled"):
    """A client number belongs to this node, and to this public key (its SHA-256) where nodes have keys.

    ``signer`` is the Ed25519 key with which the client signs receipts, empty where it has none.
    """

    node: int
    key: str
    signer: str = ""


@dataclass(frozen=True)
class RoundFinished(Event, kind="round"):
    """A round gave this model; in training, from so many samples per client.

    ``lengths`` are the norms of every client's update in training, array by array: what FedEraser needs of them.
    """

    number: Number
    model: str
    samples: CountPerClient = None
    lengths: Lengths = None


@dataclass(frozen=True)
class UpdatesKept(Event, kind="updates"):
    """The clients' models of a round of training are kept, for methods that need all of them."""

    number: Number
    models: NamePerClient


@dataclass(frozen=True)
class ClientFault(ClientEvent, kind="fault"):
    """A client did not keep to the protocol; ``number`` counts its faults in a request from 0."""

    number: Number
    phase: str
    problem: str


@dataclass(frozen=True)
class RemovalRequested(Event, kind="request"):
    """Clients ``removed`` leave under these terms; ``gone`` left earlier, ``before`` is the model as it is.

    ``terms`` are plain values: a report repeats them as they were stated, whatever terms may be stated today.
    """

    removed: ClientNumbers
    gone: ClientNumbers
    before: str
    terms: Mapping[str, Any]


@dataclass(frozen=True)
class TermsAmended(Event, kind="amended"):
    """From here on other terms hold, and why."""

    number: Number
    terms: Mapping[str, Any]
    reason: str


@dataclass(frozen=True)
class RequestAborted(Event, kind="aborted"):
    """The request is not carried any further, and why; what was delivered and passed is still paid."""

    phase: str
    reason: str


@dataclass(frozen=True)
class BandwidthAgreed(Event, kind="bandwidth"):
    """The kernel's bandwidth as the clients' own distances suggest it."""

    bandwidth: Amount


@dataclass(frozen=True, eq=False)
class EmbeddingReceived(ClientEvent, kind="embedding"):
    """A client's mean embedding of ``numbers`` numbers with noise of this deviation, and its sample count."""

    size: Count
    mean: Vector
    deviation: float
    receipt: Signed = None
    numbers: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", len(self.mean))


@dataclass(frozen=True, eq=False)
class GroupSumReceived(Event, kind="group"):
    """The sum of removed clients' embeddings, each times its size: more was not seen of them."""

    clients: ClientNumbers
    size: Count
    total: Vector
    deviation: float


@dataclass(frozen=True)
class SumAgreed(Event, kind="sum"):
    """Clients hide what they send in a sum: the embeddings of those who leave (0), or the updates of a round.

    ``keys`` are what they announced, ``shares`` their sealed shares by receiver and sender: with them a server that was
    killed goes on, and whoever drops out is made up for (:mod:`.secure_sum`).
    """

    number: Number
    threshold: int
    keys: KeysPerClient
    shares: Content


@dataclass(frozen=True)
class SumHeard(Event, kind="heard"):
    """These members of a sum delivered; ``total`` is the file of the sum of what they sent, which masks still hide."""

    number: Number
    clients: ClientNumbers
    total: str


@dataclass(frozen=True)
class SumOpened(Event, kind="opened"):
    """Shares from the delivering clients that open a sum (JSON, by giver and owner): they unmask the sum, but no summand."""

    number: Number
    shares: Content


@dataclass(frozen=True)
class ClientExcluded(ClientEvent, kind="excluded"):
    """A client is left out of the game from now on."""

    phase: str
    problem: str


@dataclass(frozen=True)
class GameFounded(Event, kind="game"):
    """The facts that departures no longer change: budget and costs.

    ``clipped`` is how far the noisy inner products were from a matrix of inner products. Amended terms found the
    game again; ``amendment`` is then their number.
    """

    budget: Amount
    bandwidth: float
    costs: NumberPerClient
    full_price: float
    clipped: float
    amendment: Number = NO_CLIENT


@dataclass(frozen=True)
class GameSolved(Event, kind="solution"):
    """The game among the clients that are there, solved within ``limit``, for the ``attempt``-th time from 0.

    ``lower_bound`` is one of what ``proves`` names. ``solution`` is stackfu's own file of the solution with its game
    and its certificate: it can be verified on its own. ``predicted`` is the change of each remaining
    client's loss that the game expects of the solution, a guess unless its constants were ``calibrated``.
    """

    attempt: Number
    limit: Amount
    participation: NumberPerClient
    method: str
    status: str
    meaning: str
    server_loss: float
    lower_bound: float | None
    gap: float | None
    spend: float
    regret: float
    residual: float
    uniqueness: str
    total: float
    seconds: float
    objective: float = 0.0
    proves: str = ""
    solution: Content = b""
    predicted: NumberPerClient = field(default_factory=dict)
    calibrated: bool = False

    def certificate(self) -> dict[str, Any]:
        """Return the proved claims about the equilibrium, as plain values."""
        other = ("attempt", "limit", "participation", "solution", "predicted", "calibrated")
        return {name: value for name, value in asdict(self).items() if name not in other}


@dataclass(frozen=True)
class PriceOffered(ClientEvent, kind="offer"):
    """The price of a client's full participation, and the largest share that is taken from it."""

    attempt: Number
    price: Amount
    cap: float = 1.0


@dataclass(frozen=True)
class ParticipationAnnounced(Event, kind="announced"):
    """The server announced the expected total of all clients, ``total = alpha . x``."""

    number: Number
    total: Amount
    attempt: int


@dataclass(frozen=True)
class ShareAnswered(ClientEvent, kind="response"):
    """The share of its data that a client would bring, given an announcement."""

    number: Number
    share: Amount
    receipt: Signed = None


@dataclass(frozen=True)
class ClientCommitted(ClientEvent, kind="commitment"):
    """A client brings a share, ``samples`` samples, for ``rounds`` rounds at a price."""

    share: Amount
    price: float
    samples: int
    rounds: int


@dataclass(frozen=True)
class CommitmentsClosed(Event, kind="committed"):
    """All clients have answered: the cost, and the distance from an equilibrium and from the certified one."""

    spend: Amount
    settled: bool
    move: float
    from_certified: float
    regret: float
    residual: float
    server_loss: float
    announcements: int

    def outcome(self) -> dict[str, Any]:
        """Return everything but the money, as plain values."""
        return {name: value for name, value in asdict(self).items() if name != "spend"}


@dataclass(frozen=True)
class ConsentGiven(ClientEvent, kind="consent"):
    """A client will work for the method that makes the model forget; ``number`` counts amendments of the terms.

    Those who leave are asked where the method cannot do without them, and those who stay where it needs their gradients.
    """

    number: Number
    method: str
    receipt: Signed = None


@dataclass(frozen=True)
class PartingWork(ClientEvent, kind="parting"):
    """Work of a leaving client for a round, 0 before the first: a model (its digest), and the distance ``moved``."""

    number: Number
    samples: Count
    model: str
    moved: float
    receipt: Signed = None


@dataclass(frozen=True)
class StartPrepared(Event, kind="start"):
    """The model that the rounds start from, where a method makes one of its own."""

    model: str


@dataclass(frozen=True)
class NoisePromised(Event, kind="promised"):
    """Noise will be drawn from the private key of this public one, and from a row that does not exist yet."""

    key: str


@dataclass(frozen=True)
class NoiseDrawn(Event, kind="noise"):
    """The model ``noiseless`` got noise of this deviation in every number of its head, and is released as ``model``.

    It was drawn from the promised key and the hash of row ``beside`` (:mod:`.phases.release`).
    """

    deviation: Amount
    noiseless: str
    model: str
    beside: int


@dataclass(frozen=True)
class ShardsTrained(Event, kind="shards"):
    """The heads of all shards after a round are in the file ``model``; by shard their digests, samples, and known clients.

    ``retrained`` are the shards that a request trained anew (:mod:`.phases.shards`).
    """

    number: Number
    model: str
    heads: NamePerShard
    samples: CountPerShard
    members: NumbersPerShard
    retrained: OtherNumbers = ()


@dataclass(frozen=True)
class WorkDelivered(ClientEvent, kind="work"):
    """A client delivered a round of unlearning: a model (its digest) trained with so many samples."""

    number: Number
    samples: Count
    model: str = ""
    receipt: Signed = None


@dataclass(frozen=True)
class WorkJudged(ClientEvent, kind="judged"):
    """Result of the check of a round's work, its measurements, and the reason of a refusal; only accepted work is paid."""

    number: Number
    passed: Verdict
    problem: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkRepeated(ClientEvent, kind="repeated"):
    """A client was asked to do a round again from the same model and seed: did the same model come out?"""

    number: Number
    same: Verdict
    problem: str = ""


@dataclass(frozen=True)
class SlopeSummed(Event, kind="slope"):
    """The gradient of a convex head's objective at the model ``at``, of the samples of these clients, is in the file ``slope``.

    ``base`` is the round of the point that the next step begins from (:mod:`.convex`); after the ``last`` one there is none. The
    heads that all clients answered with, whether or not they passed, are in the file ``answers``.
    """

    number: Number
    norm: Amount
    at: str
    slope: str
    answers: str
    clients: ClientNumbers
    base: int
    last: bool


@dataclass(frozen=True)
class ModelUnlearned(Event, kind="unlearned"):
    """All rounds are done, and this is the model."""

    model: str


@dataclass(frozen=True)
class ClientPaid(ClientEvent, kind="payment"):
    """A client is paid for the rounds it delivered of those agreed."""

    amount: Amount
    delivered: int
    agreed: int


@dataclass(frozen=True)
class PaymentAcknowledged(ClientEvent, kind="acknowledged"):
    """A client was told what it is paid, and signed whether that is what it is owed by its own records."""

    amount: Amount
    agreed: bool
    receipt: Signed = None


@dataclass(frozen=True)
class RequestSettled(Event, kind="settled"):
    """All clients paid; ``paid`` is the total."""

    paid: Amount


@dataclass(frozen=True)
class ClientMeasured(ClientEvent, kind="measure"):
    """Measures of the models ``before.`` and ``after.`` on a client's own data."""

    measures: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class GradientReported(ClientEvent, kind="gradient"):
    """The sum of the gradients of a participant's losses at the unlearned model, over the samples that it works with."""

    samples: Count
    gradient: Vector
    receipt: Signed = None


@dataclass(frozen=True)
class GradientHidden(ClientEvent, kind="hidden"):
    """A participant's masked part of a sum of which only the total is revealed."""

    samples: Count
    masked: Content
    receipt: Signed = None


@dataclass(frozen=True)
class DistanceBounded(Event, kind="bound"):
    """Bound on the distance of the unlearned head from the optimum on the samples behind the reported gradients."""

    distance: Amount
    gradient_norm: float
    l2: float
    samples: int
    clients: ClientNumbers


@dataclass(frozen=True)
class MeasuresClosed(Event, kind="measured"):
    """The measures are complete; ``distance`` is the distance that the weights moved."""

    distance: Amount


@dataclass(frozen=True)
class PayloadsErased(Event, kind="erased"):
    """The vectors of these rows are no longer in the file; their salted hashes stay in the chain."""

    what: str
    rows: OtherNumbers


@dataclass(frozen=True)
class LogEmptied(Event, kind="emptied"):
    """The write-ahead log was empty: what was erased before this row is nowhere in the files of the ledger any more."""

    number: Number


@dataclass(frozen=True)
class ClockSetBack(Event, kind="clock"):
    """The server's clock was behind the last row by so many seconds; times go on from that row."""

    number: Number
    seconds: Amount


@dataclass(frozen=True)
class RequestClosed(Event, kind="closed"):
    """The request is carried out."""
