"""Shards of clients (after SISA): each trains its own head; when a client leaves, only its shard is trained anew.

Client k is dealt to shard ``k mod shards``. In training every client is sent the head of its shard, on the layers of the first
model, which stay fixed; the model of the federation is the mean of the heads by samples, and its scores are the mean of their
scores. A row after each round (``shards``) lists the heads by digest, and the clients with data in each.

A request trains the heads that met data of leaving or removed clients anew, from the first weights. The others stay to
the last bit, and their clients are not asked, not paid, and not in the game: their data is in the model already. A shard
without clients or participants has no head any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping

import numpy as np
from flwr.app import ArrayRecord

from stackfu.errors import InputError
from stackfu_integration.flower.convex import flat, head_of, with_head
from stackfu_integration.flower.events import (
    ClientCommitted,
    RemovalRequested,
    RequestAborted,
    RunStarted,
    ShardsTrained,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases.session import Removal, Session, StuckError
from stackfu_integration.flower.robust import Judgement, robust_average
from stackfu_integration.flower.strategy import Judge, RoundOutcome
from stackfu_integration.flower.terms import Terms

__all__ = [
    "METHOD",
    "PHASE",
    "UNTOUCHED",
    "Rounds",
    "affected",
    "check",
    "ensemble",
    "leave_out_untouched",
    "rounds_of",
    "shard_head",
    "state_before",
]

METHOD = PHASE = "shards"
UNTOUCHED = "is in a shard that nobody leaves: its head stays as it is"


# ---- heads in one file


def shard_head(stack: ArrayRecord, shard: int) -> ArrayRecord:
    """Return the head of a shard, out of the file of all."""
    mark = f"{shard}/"
    return ArrayRecord(
        OrderedDict(
            (name.removeprefix(mark), array) for name, array in stack.items() if name.startswith(mark)
        )
    )


def _stacked(heads: Mapping[int, ArrayRecord]) -> ArrayRecord:
    return ArrayRecord(
        OrderedDict((f"{s}/{name}", array) for s in sorted(heads) for name, array in heads[s].items())
    )


def _shards_in(stack: ArrayRecord) -> list[int]:
    return sorted({int(name.partition("/")[0]) for name in stack})


def ensemble(
    first: ArrayRecord, names: Collection[str], stack: ArrayRecord, samples: Mapping[int, int]
) -> ArrayRecord:
    """Return the first model with the mean, by samples, of the heads with data."""
    total = sum(samples.values())
    if total == 0:
        raise StuckError("no shard has a head that anybody trained")
    trained = [s for s in sorted(samples) if samples[s]]
    mean = np.sum([samples[s] / total * flat(shard_head(stack, s)) for s in trained], axis=0)
    return with_head(first, names, mean)


# ---- what the ledger knows


def state_before(ledger: PaymentLedger, request: str) -> ShardsTrained | None:
    """Return the shards as they were before a request: those of the last one that trained some, or of training."""
    known = ledger.requests()
    earlier = known[: known.index(request)] if request in known else known
    carried = [name for name in earlier if not ledger.has(name, RequestAborted)]
    found = [ledger.last(name, ShardsTrained) for name in (RUN, *carried)]
    return next((event for event in reversed(found) if event is not None), None)


def affected(state: ShardsTrained, request: RemovalRequested) -> tuple[int, ...]:
    """Return the shards with heads that met data of leaving or removed clients."""
    left = {*request.removed, *request.gone}
    return tuple(shard for shard, members in state.members.items() if left & set(members))


def check(ledger: PaymentLedger, terms: Terms) -> None:
    """Refuse to unlearn in shards what was not trained in them."""
    run = ledger.last(RUN, ShardsTrained)
    if run is None:
        raise InputError(
            "unlearning",
            "shards are for a model that was trained in shards: train with these terms",
            value=terms.unlearning,
        )
    if len(run.heads) != terms.shards:
        raise InputError("shards", f"the model was trained in {len(run.heads)}", value=terms.shards)


def leave_out_untouched(removal: Removal) -> None:
    """Leave the clients of untouched shards out of the game, without blame."""
    if removal.terms.unlearning != METHOD:
        return
    state = state_before(removal.ledger, removal.name)
    assert state is not None  # the terms were checked
    touched = affected(state, removal.request)
    for client in range(removal.clients):
        stays = client not in removal.request.removed and client not in removal.request.gone
        if stays and removal.terms.shard_of(client) not in touched:
            removal.leave_out(client, PHASE, UNTOUCHED, blame=False)


# ---- rounds


class Rounds:
    """Rounds of training, or of a request, in which every client works on the head of its shard."""

    def __init__(self, session: Session, first: ArrayRecord, request: str = RUN) -> None:
        self._session, self._first, self._request = session, first, request
        terms, start = session.terms, head_of(first, session.terms.head)
        self.retrained: tuple[int, ...] = ()
        self._samples: dict[int, int] = {}
        self._members: dict[int, tuple[int, ...]] = {}
        last = session.ledger.last(request, ShardsTrained)
        if last is not None:
            self.stack = session.models.get(last.model)
            self._samples, self._members = dict(last.samples), dict(last.members)
            self.retrained = last.retrained
        elif isinstance(session, Removal):
            before = state_before(session.ledger, request)
            assert before is not None
            stack = session.models.get(before.model)
            self.retrained = affected(before, session.request)
            committed = {terms.shard_of(c) for c in session.ledger.by_client(request, ClientCommitted)}
            heads = {s: shard_head(stack, s) for s in before.heads if s not in self.retrained}
            self._samples = {s: before.samples[s] for s in heads}
            self._members = {s: before.members[s] for s in heads}
            anew = [s for s in self.retrained if s in committed]
            self.stack = _stacked({**heads, **dict.fromkeys(anew, start)})
            self._samples.update(dict.fromkeys(anew, 0))
            self._members.update(dict.fromkeys(anew, ()))
        else:
            shards = range(terms.shards)
            if session.clients < terms.shards:
                raise InputError("shards", f"are more than the {session.clients} clients", value=terms.shards)
            self.stack = _stacked(dict.fromkeys(shards, start))
            self._samples, self._members = dict.fromkeys(shards, 0), dict.fromkeys(shards, ())

    def view(self, client: int, stack: ArrayRecord) -> ArrayRecord:
        """Return the message to a client: the first model with the head of its shard."""
        return with_head(
            self._first,
            self._session.terms.head,
            flat(shard_head(stack, self._session.terms.shard_of(client))),
        )

    def _by_shard(self, models: Mapping[int, ArrayRecord]) -> dict[int, dict[int, ArrayRecord]]:
        found: dict[int, dict[int, ArrayRecord]] = {}
        for client, model in sorted(models.items()):
            found.setdefault(self._session.terms.shard_of(client), {})[client] = model
        return found

    def judge(self, judge: Judge) -> Judge:
        """Look at the updates of each shard among each other."""

        def judged(
            number: int, models: Mapping[int, ArrayRecord], samples: Mapping[int, int], stack: ArrayRecord
        ) -> dict[int, Judgement]:
            found: dict[int, Judgement] = {}
            for theirs in self._by_shard(models).values():
                found.update(judge(number, theirs, samples, self.view(min(theirs), stack)))
            return found

        return judged

    def step(
        self, models: Mapping[int, ArrayRecord], samples: Mapping[int, int], stack: ArrayRecord
    ) -> ArrayRecord:
        """Average within every shard."""
        terms = self._session.terms
        heads = {shard: shard_head(stack, shard) for shard in _shards_in(stack)}
        factors = {"clip_factor": terms.clip_factor, "trim": terms.trim}
        for shard, theirs in self._by_shard(models).items():
            answered = {client: head_of(model, terms.head) for client, model in theirs.items()}
            heads[shard] = robust_average(answered, samples, heads[shard], terms.aggregation, **factors)
            self._samples[shard] = sum(samples[client] for client in theirs)
            self._members[shard] = tuple(sorted({*self._members[shard], *theirs}))
        return _stacked(heads)

    def entered(self, outcome: RoundOutcome, stored: str) -> str:
        """Write down the heads of a round, and return the name of the model that they make together; within a transaction."""
        stack = outcome.arrays
        heads = {shard: digest(shard_head(stack, shard)) for shard in _shards_in(stack)}
        self._session.ledger.add(
            self._request,
            ShardsTrained(
                outcome.number, stored, heads, dict(self._samples), dict(self._members), self.retrained
            ),
        )
        made = ensemble(self._first, self._session.terms.head, stack, self._samples)
        return self._session.models.put(made)


def rounds_of(session: Session, request: str = RUN) -> Rounds:
    """Go on with the shards of training, or of a request."""
    first = session.models.get(session.ledger.need(RUN, RunStarted).initial)
    return Rounds(session, first, request)
