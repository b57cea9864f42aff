"""The models before and after, what lies between them, and how far they are apart."""

from __future__ import annotations

import numpy as np

from stackfu.errors import FileFormatError
from stackfu_integration.flower.convex import METHOD, NEWTON
from stackfu_integration.flower.events import (
    DistanceBounded,
    MeasuresClosed,
    ModelUnlearned,
    NoiseDrawn,
    NoisePromised,
    PayloadsErased,
    RemovalRequested,
    RoundFinished,
    ShardsTrained,
    StartPrepared,
    WorkJudged,
)
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.ledger import RUN
from stackfu_integration.flower.ledger_error import LedgerError, need
from stackfu_integration.flower.methods import METHODS
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases import shards
from stackfu_integration.flower.phases.convex_rounds import NOT_ASKED
from stackfu_integration.flower.phases.measures import distance
from stackfu_integration.flower.phases.release import deviation_of, key_file, with_noise
from stackfu_integration.flower.phases.start import descent_start, recovered_from
from stackfu_integration.flower.recomputed.case import Case, same

__all__ = ["check"]

#: Methods, apart from those of gradients, for which a model is made that the rounds start from.
_PREPARED = ("fedrecovery", "gradient-ascent", "quickdrop")


def check(case: Case) -> None:
    """The model that rounds start from, the unlearned one, and all that was not to be touched."""
    opened, prepared = case.needed(RemovalRequested), case.last(StartPrepared)
    if prepared is not None:
        _check_start(case, opened, prepared.model)
    if case.has(RoundFinished) and case.terms.unlearning in ("federaser", "fedrecovery"):
        case.questions.append(
            f"{case.request}: what clients sent in training, from which {METHODS[case.terms.unlearning].name} works: they sign "
            "nothing there, and so it is the server's word"
        )
    unlearned = case.last(ModelUnlearned)
    if unlearned is None:
        return
    last, method = case.needed(RoundFinished), case.terms.unlearning
    if method == NEWTON:
        _check_release(case, last.model, unlearned.model)
    else:
        need(
            last.model == unlearned.model,
            f"{case.request}: the unlearned model is not that of the last round",
        )
    if method == shards.METHOD:
        _check_shards(case, opened, unlearned.model)
    _check_before_and_after(case, opened.before, unlearned.model)


def _check_before_and_after(case: Case, before_name: str, after_name: str) -> None:
    """Only what was to be trained has changed, and by as much as is stated."""
    after = case.models.get(after_name)
    try:
        before = case.models.get(before_name)
    except FileFormatError:
        kept = {case.ledger.need(other, RemovalRequested).before for other in case.ledger.requests()[-1:]}
        if before_name in kept:
            raise
        case.limits.append(f"{case.request}: the model before it, which was deleted after a later request")
        return
    # layers that never met the removed data, or the bound is of nothing
    anew = METHODS[case.terms.unlearning].gradients or case.terms.unlearning == shards.METHOD
    stays, head = case.first_model() if anew else before, case.terms.head
    other = [name for name in stays if head and name not in head]
    changed = [n for n in other if not np.array_equal(stays[n].numpy(), after[n].numpy())]
    need(not changed, f"{case.request}: {', '.join(changed)} changed, and only the head was to be trained")
    measured = case.last(MeasuresClosed)
    if measured is not None:
        moved = distance(before, after)
        need(
            same(measured.distance, moved),
            f"{case.request}: the weights moved by {moved!r}, not {measured.distance!r}",
        )


def _check_start(case: Case, opened: RemovalRequested, name: str) -> None:
    """The model that a method made to start from; FedRecovery's is worked out again from the kept updates."""
    start, terms = case.models.get(name), case.terms
    if METHODS[terms.unlearning].gradients:
        head = "a head of zeros" if terms.unlearning == METHOD else "the head before the request"
        need(
            digest(descent_start(case.ledger, case.models, opened, terms)) == name,
            f"{case.request}: the rounds do not start from the first weights and {head}",
        )
    need(
        METHODS[terms.unlearning].gradients or terms.unlearning in _PREPARED,
        f"{case.request}: a model was prepared for the rounds to start from, and {METHODS[terms.unlearning].name} prepares none",
    )
    if METHODS[terms.unlearning].leavers:
        case.questions.append(
            f"{case.request}: if the model that the rounds start from was made of the work of those who leave alone: that is the "
            "server's word"
        )
    if terms.unlearning == "fedrecovery":
        again = recovered_from(case.ledger, case.models, opened, terms)
        need(
            all(np.allclose(a.numpy(), again[n].numpy(), rtol=1e-5, atol=1e-6) for n, a in start.items()),
            f"{case.request}: the model that the rounds start from is not what FedRecovery makes of the kept updates",
        )


# ---- noise


def _check_release(case: Case, noiseless: str, released: str) -> None:
    """The noise of a released head: so much as the terms say, and drawn from what was promised, where that is still there."""
    drawn = case.last(NoiseDrawn)
    if drawn is None:
        raise LedgerError(f"{case.request}: the head was released without noise")
    promised, finished, bounded = (
        case.place_of(kind) for kind in (NoisePromised, RoundFinished, DistanceBounded)
    )
    first = min(place for place, _ in case.placed(RoundFinished))
    need(
        promised < first and finished < drawn.beside == bounded,
        f"{case.request}: the noise was not promised before the first round and drawn after the bound",
    )
    need(
        (drawn.noiseless, drawn.model) == (noiseless, released),
        f"{case.request}: the noise was added to another head, or another one was released",
    )
    deviation = deviation_of(case.terms)
    need(
        same(drawn.deviation, deviation),
        f"{case.request}: the noise has the deviation {drawn.deviation!r}, by the terms it is {deviation!r}",
    )
    if case.has(PayloadsErased):
        case.limits.append(
            f"{case.request}: whether the noise in the released head was drawn as stated: its key and the head without it are "
            "erased, so that nobody can take it off, and that is the server's word"
        )
    else:
        _check_drawn(case, drawn)


def _check_drawn(case: Case, drawn: NoiseDrawn) -> None:
    """The noise drawn again with the promised key."""
    key = SigningKey.load(key_file(case.ledger.path.parent, case.request))
    need(
        key.public == case.needed(NoisePromised).key,
        f"{case.request}: the key of the noise is not the one that was promised",
    )
    beside = str(case.ledger.hash_at(drawn.beside))
    again = with_noise(case.models.get(drawn.noiseless), case.terms.head, drawn.deviation, key, beside)
    need(
        digest(again) == drawn.model,
        f"{case.request}: the noise in the released head is not the one that was promised",
    )


# ---- shards


def _check_shards(case: Case, opened: RemovalRequested, unlearned: str) -> None:
    """Check that heads of unaffected shards stay, that the others met no removed client, and that the model is the mean of all."""
    before, trained = shards.state_before(case.ledger, case.request), case.last(ShardsTrained)
    if before is None or trained is None:
        raise LedgerError(f"{case.request}: nothing was trained in shards")
    _check_trained_in_shards(case)
    retrained = shards.affected(before, opened)
    need(
        trained.retrained == retrained,
        f"{case.request}: shards {list(trained.retrained)} were trained anew, those that had met somebody who left are "
        f"{list(retrained)}",
    )
    _check_untouched(case, before, trained)
    _check_retrained(case, trained)
    stack = case.models.get(trained.model)
    for shard, head in trained.heads.items():
        need(
            digest(shards.shard_head(stack, shard)) == head,
            f"{case.request}: the head of shard {shard} in the file is not the one in the ledger",
        )
    need(
        digest(shards.ensemble(case.first_model(), case.terms.head, stack, trained.samples)) == unlearned,
        f"{case.request}: the unlearned model is not the mean of the shards' heads",
    )


def _check_untouched(case: Case, before: ShardsTrained, trained: ShardsTrained) -> None:
    """Check the shards without leaving clients."""
    for shard, head in before.heads.items():
        if shard not in trained.retrained:
            kept = (trained.heads.get(shard), trained.samples.get(shard), trained.members.get(shard))
            need(
                kept == (head, before.samples[shard], before.members[shard]),
                f"{case.request}: shard {shard}, which nobody left, is not as it was",
            )


def _check_retrained(case: Case, trained: ShardsTrained) -> None:
    """Check that retrained shards met the clients with accepted work only."""
    passed: dict[int, set[int]] = {}
    for work in case.events(WorkJudged):
        if work.passed and work.problem != NOT_ASKED:
            passed.setdefault(case.terms.shard_of(work.client), set()).add(work.client)
    for shard in trained.retrained:
        need(
            set(trained.members.get(shard, ())) == passed.get(shard, set()),
            f"{case.request}: shard {shard} is said to have met others than those whose work passed",
        )


def _check_trained_in_shards(case: Case) -> None:
    """By the ledger's rounds of training, each head met the clients that were dealt to its shard."""
    met: dict[int, set[int]] = {}
    for finished in case.ledger.events(RUN, RoundFinished):
        for client in finished.samples or {}:
            met.setdefault(case.terms.shard_of(client), set()).add(client)
    trained = case.ledger.need(RUN, ShardsTrained)
    need(
        all(set(held) == met.get(shard, set()) for shard, held in trained.members.items()),
        "the shards are said to have met other clients than were trained with",
    )
    case.limits.append(
        "whether the heads of shards met in training what the ledger says: clients sign nothing in training"
    )
