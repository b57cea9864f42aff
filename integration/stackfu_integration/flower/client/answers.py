"""The client's answers to the server's questions, each checked against its own records and policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_DOWN, Decimal
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

import stackfu as sf
from stackfu.errors import InputError
from stackfu_integration.arrays import FloatArray, UIntArray
from stackfu_integration.flower import receipts, wire
from stackfu_integration.flower.client.inbox import Inbox
from stackfu_integration.flower.client.participant import Participant
from stackfu_integration.flower.convex import METHOD, NEWTON
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.policy import PolicyError, Release
from stackfu_integration.flower.privacy import add_noise, gaussian_deviation, noise_generator, private_median
from stackfu_integration.flower.receipts import Receipt, fingerprint_of
from stackfu_integration.flower.secure_sum import EMBEDDING_BITS, MODEL_BITS, SumName
from stackfu_integration.flower.wire.measures import plain_measures
from stackfu_integration.flower.wire.records import settings_in
from stackfu_integration.flower.wire.sums import KEYS, OPEN, SHARES

__all__ = ["ANSWERS"]

_SPREAD_SAMPLES = 1000


# ---- who is there


def _roll(inbox: Inbox, asked: wire.RollQuestion) -> wire.RollAnswer:
    return wire.RollAnswer(inbox.participant.client, inbox.sign(receipts.ENROLMENT, nonce=asked.nonce))


# ---- embeddings


def _spread(inbox: Inbox, asked: wire.SpreadQuestion) -> wire.SpreadAnswer:
    inbox.records.policy.check_spread(asked.epsilon)
    points = inbox.participant.samples(asked.model)
    value = (
        _plain_median(inbox, points)
        if asked.epsilon is None
        else _noisy_median(inbox, points, asked, asked.epsilon)
    )
    return wire.SpreadAnswer(value**2, inbox.participant.size)


def _plain_median(inbox: Inbox, points: FloatArray) -> float:
    if len(points) > _SPREAD_SAMPLES:
        points = points[np.random.default_rng(0).choice(len(points), _SPREAD_SAMPLES, replace=False)]
    return float(sf.median_bandwidth([points])) if len(points) > 1 else 0.0


def _noisy_median(inbox: Inbox, points: FloatArray, asked: wire.SpreadQuestion, epsilon: float) -> float:
    name = f"bandwidth {asked.request} {epsilon!r} {digest(asked.model)} {fingerprint_of(points)}"
    inbox.records.account(name, Release(epsilon=epsilon))
    random = noise_generator(inbox.secret, name)
    return private_median(points, epsilon, random) if len(points) > 1 else 0.0


def _embedding(inbox: Inbox, asked: wire.EmbeddingQuestion) -> wire.EmbeddingAnswer:
    """Release an embedding, as far as the policy allows it and the total is not spent."""
    inbox.records.policy.check_embedding(
        epsilon=asked.epsilon,
        delta=asked.delta,
        features=asked.features,
        bandwidth=asked.bandwidth,
        kernel=asked.kernel,
        erase=asked.erase,
    )
    size = inbox.participant.size
    mean, deviation = _released_mean(inbox, asked)
    hidden = None
    if asked.group:
        name = SumName(asked.request, "embeddings")
        hidden = inbox.sums.masked(name, size * mean, EMBEDDING_BITS, asked.group)
    sent = _fingerprint_sent(mean, hidden)
    inbox.records.about(asked.request).update(embedding=sent, size=size, model=digest(asked.model))
    inbox.records.save()
    receipt = inbox.sign(
        receipts.EMBEDDING,
        request=asked.request,
        vector=sent,
        size=size,
        deviation=deviation,
        epsilon=asked.epsilon,
        delta=asked.delta,
    )
    return wire.EmbeddingAnswer(mean, size, deviation, receipt, hidden)


def _released_mean(inbox: Inbox, asked: wire.EmbeddingQuestion) -> tuple[FloatArray, float]:
    """Return the mean of the features, entered into the records before it is computed, and the deviation of the noise in it.

    The release is named by the question and by the data: samples that changed, by however little, are another release.
    """
    points, size = inbox.participant.samples(asked.model), inbox.participant.size
    # everything but the group: asked for again in another group, it is the same release
    what = (
        asked.request,
        asked.bandwidth,
        asked.features,
        asked.seed,
        asked.epsilon,
        asked.delta,
        asked.kernel,
        digest(asked.model),
        fingerprint_of(points),
    )
    if asked.epsilon is None or asked.delta is None:
        deviation, cost = 0.0, math.inf
    else:
        deviation = gaussian_deviation(asked.epsilon, asked.delta, size)
        cost = 2.0 / size / deviation
    inbox.records.account(f"embedding {what!r}", Release(mu=cost))
    mean = sf.client_features(points, asked.bandwidth, asked.features, asked.seed)
    return add_noise(mean, deviation, inbox.secret, *what), deviation


def _fingerprint_sent(plain: FloatArray, hidden: UIntArray | None) -> str:
    return fingerprint_of(plain if hidden is None else hidden)


# ---- offers


def _response(inbox: Inbox, asked: wire.OfferQuestion) -> wire.ShareAnswer:
    """Check what the server says of this client, decide, and sign."""
    participant, records, offer = inbox.participant, inbox.records, asked.offer
    stated = {
        "cost": offer.cost,
        "price": offer.price,
        "cap": offer.cap,
        "rounds": asked.rounds,
        "decimals": asked.decimals,
        **receipts.signable_clients(asked.removed),
        "unlearning": asked.unlearning,
        "seed": asked.seed,
    }
    _check_offer(inbox, asked)
    _check_own_embedding(inbox, asked)
    _check_own_cost(inbox, asked)
    _check_unchanged(inbox, asked, stated)
    own_view = offer if participant.cost is None else replace(offer, cost=participant.cost)
    share = float(participant.decide(own_view))
    if not math.isfinite(
        share
    ):  # the client's own app failed to decide: nothing is agreed, and nothing signed
        records.about(asked.request).pop("offer", None)
        records.save()
        return wire.ShareAnswer(share)
    _check_least(inbox, asked, share)
    answered = {"attempt": asked.attempt, "number": asked.number, "share": share, **stated}
    records.about(asked.request)["offer"] = {
        **answered,
        "announced": offer.share,
        "removed": sorted(asked.removed),
    }
    records.save()
    return wire.ShareAnswer(share, inbox.sign(receipts.SHARE, request=asked.request, **answered))


def _check_least(inbox: Inbox, asked: wire.OfferQuestion, share: float) -> None:
    """Refuse an offer for fewer samples than the policy shows, by the announced share and by the decided one."""
    most = round(max(share, asked.offer.share) * inbox.participant.size)
    if most > 0:
        try:
            inbox.records.policy.check_samples(most, asked.summed)
        except PolicyError as error:
            _sign_refusal(inbox, asked.request, str(error))
            raise


def _sign_refusal(inbox: Inbox, request: str, problem: str) -> None:
    """Keep a signed statement, one per request, that this client refused the offer: else the audit has only the server's word."""
    known = inbox.records.about(request)
    if not known.get("refused"):
        known["refused"] = True
        inbox.sign(receipts.REFUSAL, request=request, problem=problem)
        inbox.records.save()


def _check_own_embedding(inbox: Inbox, asked: wire.OfferQuestion) -> None:
    """The server quotes the embedding that this client sent."""
    known = inbox.records.about(asked.request)
    inbox.check_known(
        "embedding" in known, "own", "this client sent no embedding for the request", asked.request
    )
    if "embedding" in known and known["embedding"] != fingerprint_of(asked.offer.own):
        raise InputError("own", "the server did not repeat the embedding that this client sent")


def _check_own_cost(inbox: Inbox, asked: wire.OfferQuestion) -> None:
    """The cost that the server reckons with is this client's, or its interval holds it."""
    own, most = inbox.participant.cost, asked.offer.cost
    if own is not None:
        least = most if asked.least_cost is None else asked.least_cost
        if not least * (1 - 1e-9) - 1e-12 <= own <= most * (1 + 1e-9) + 1e-12:
            raise InputError("cost", f"this client's cost is {own:g}", value=most)


def _check_unchanged(inbox: Inbox, asked: wire.OfferQuestion, stated: dict[str, Any]) -> None:
    """Within one attempt an offer stays what it was."""
    before = inbox.records.about(asked.request).get("offer")
    if before is not None and before["attempt"] == asked.attempt:
        for name, value in stated.items():
            if before.get(name, value) != value:
                raise InputError(name, f"the server said {before[name]} before", value=value)


def _check_offer(inbox: Inbox, asked: wire.OfferQuestion) -> None:
    """An offer that can be meant, for work that this client does, as one that stays; after the first work there is no other one."""
    if inbox.participant.client in asked.removed:
        raise InputError("removed", "this client leaves, and does no work for the removal of its own data")
    inbox.check_rounds(asked.rounds, least=1)
    inbox.check_unsettled(asked.request)
    if inbox.records.about(asked.request).get("orders"):
        raise InputError("request", "this client works for the offer that it took", value=asked.request)
    if "parting" in inbox.records.about(asked.request):
        raise InputError("request", "this client was asked to work as one that leaves", value=asked.request)
    offer = asked.offer
    meant = offer.price >= 0 and 0 < offer.alpha <= 1 and 0 <= offer.cap <= 1 and 0 <= offer.share <= 1
    if not (meant and offer.lam > 0 and offer.total >= 0):
        raise InputError("offer", "is none that can be meant", value=offer.price)
    for name in ("aggregate", "own"):
        if not np.isfinite(getattr(offer, name)).all():
            raise InputError(name, "must be finite numbers")
    if offer.aggregate.shape != offer.own.shape:
        raise InputError(
            "aggregate", "has another length than this client's embedding", value=offer.aggregate.shape
        )


# ---- consent


def _consent(inbox: Inbox, asked: wire.ConsentQuestion) -> wire.ConsentAnswer:
    if asked.method in (METHOD, NEWTON):
        _consent_to_gradients(inbox, asked)
    else:
        _consent_to_parting(inbox, asked)
    return wire.ConsentAnswer(inbox.sign(receipts.CONSENT, request=asked.request, method=asked.method))


def _consent_to_gradients(inbox: Inbox, asked: wire.ConsentQuestion) -> None:
    """Answer in advance whether this client can work for a method of gradients."""
    if type(inbox.participant).gradient is Participant.gradient:
        raise InputError("gradient", "this client's app gives none")
    if asked.method == NEWTON and type(inbox.participant).curvature is Participant.curvature:
        raise InputError("curvature", "this client's app gives no second derivatives")
    inbox.check_sums("updates", asked.summed)
    if asked.method == NEWTON:
        inbox.check_curvature(asked.summed)
    inbox.records.about(asked.request)["gradients"] = asked.method
    inbox.records.save()


def _consent_to_parting(inbox: Inbox, asked: wire.ConsentQuestion) -> None:
    """Answer in advance whether this leaving client works for the method; it then cannot stay."""
    inbox.records.policy.check_parting(asked.method)
    known = inbox.records.about(asked.request)
    if "offer" in known:
        raise InputError("request", "this client was made an offer as one that stays", value=asked.request)
    known["parting"] = asked.method
    inbox.records.save()


# ---- evidence


def _gradient(inbox: Inbox, asked: wire.GradientQuestion) -> wire.GradientAnswer:
    _check_gradient(inbox, asked)
    owed = inbox.owed(
        asked.share, inbox.records.about(asked.request).get("offer", {}).get("seed", asked.seed)
    )
    inbox.records.policy.check_samples(int(owed["samples"]), bool(asked.group))
    settings = ConfigRecord({**settings_in(inbox.content), **owed})
    vector, used = inbox.participant.gradient(asked.model, asked.share, settings)
    hidden = _hidden_gradient(inbox, asked, vector) if asked.group else None
    receipt = inbox.sign(
        receipts.GRADIENT,
        request=asked.request,
        model=digest(asked.model),
        gradient=_fingerprint_sent(vector, hidden),
        samples=used,
    )
    return wire.GradientAnswer(vector, used, receipt, hidden)


def _check_gradient(inbox: Inbox, asked: wire.GradientQuestion) -> None:
    """One gradient per request: at one model, with the share that this client worked with."""
    inbox.check_sums("gradients", bool(asked.group))
    known = inbox.records.about(asked.request)
    worked = known.get("share") == asked.share
    inbox.check_known(worked, "share", "this client worked with another one", asked.share)
    if known.setdefault("gradient of", digest(asked.model)) != digest(asked.model):
        raise InputError("model", "this client has told its gradient at another one", value=asked.request)
    inbox.records.save()


def _hidden_gradient(inbox: Inbox, asked: wire.GradientQuestion, vector: FloatArray) -> UIntArray:
    """Refuse a second sum with a gradient: two sums that differ in one member would reveal it."""
    if inbox.records.about(asked.request).setdefault("gradient sum", asked.number) != asked.number:
        raise InputError("number", "this client has told its gradient in another sum", value=asked.number)
    inbox.records.save()
    name = SumName(asked.request, "gradient", asked.number)
    return inbox.sums.masked(name, vector, MODEL_BITS, asked.group)


# ---- payment and measures


def _measure(inbox: Inbox, asked: wire.MeasureQuestion) -> wire.MeasureAnswer:
    shown = _may_measure(inbox, asked)
    inbox.records.forget_reply(f"work {asked.request}")
    if asked.amount > 0.0:
        inbox.participant.paid(asked.amount, settings_in(inbox.content))
    found = plain_measures(
        {
            f"{which}.{name}": value
            for which, model in (("before", asked.before), ("after", asked.after))
            for name, value in (inbox.participant.measure(model) if shown else {}).items()
        }
    )
    return wire.MeasureAnswer(found, _acknowledgement(inbox, asked, found))


def _may_measure(inbox: Inbox, asked: wire.MeasureQuestion) -> bool:
    """Say if the models may be measured: those of a request that this client has a part in, two of them once.

    Losses at models of the server's choice would add up to a gradient.
    """
    if inbox.records.policy.only_sums:
        return False  # a payment is acknowledged all the same
    known, models = inbox.records.about(asked.request), [digest(asked.before), digest(asked.after)]
    measured = sum("measured" in other for other in inbox.records.state["requests"].values())
    if "measured" not in known and measured >= inbox.records.policy.measured_requests:
        return False
    if known.setdefault("measured", models) != models:
        raise InputError(
            "after", "this client has measured two other models for the request", value=asked.request
        )
    if "model" not in known:
        return inbox.records.in_doubt
    if known["model"] != models[0]:
        raise InputError("before", "is not the model that this client was shown before", value=asked.request)
    return True


def _acknowledgement(inbox: Inbox, told: wire.MeasureQuestion, measures: dict[str, float]) -> Receipt | None:
    """Compare a payment with what the client's own records say it is owed, and sign the outcome with what was measured."""
    known = inbox.records.about(told.request)
    owed, delivered = _owed(known, told), len(known.get("delivered", {}))
    known["paid"] = {"amount": told.amount, "owed": owed, "passed": told.passed, "delivered": delivered}
    inbox.records.save()
    # a client that stood ready and was not asked in a round is paid for it all the same
    agreed = told.passed >= delivered and math.isclose(told.amount, owed, rel_tol=1e-9, abs_tol=1e-12)
    models = {"before": digest(told.before), "after": digest(told.after)}
    facts = {**known["paid"], **models, "measures": measures}
    return inbox.sign(receipts.PAYMENT, request=told.request, agreed=agreed, **facts)


def _owed(known: dict[str, Any], told: wire.MeasureQuestion) -> float:
    """Return the payment for the accepted rounds by the rules of the offer, which later statements do not change."""
    offer = known.get("offer")
    if offer is None:
        return 0.0
    rounds, decimals = offer.get("rounds", told.agreed), offer.get("decimals", told.decimals)
    owed: float = offer["price"] * known.get("share", 0.0) / max(rounds, 1) * told.passed
    if decimals >= 0:
        coin = Decimal(1).scaleb(-decimals)
        owed = float(Decimal(repr(owed)).quantize(coin, rounding=ROUND_DOWN))
    return owed


#: Questions of the server, their decoders, and the functions that answer.
ANSWERS: tuple[tuple[str, Callable[[RecordDict], Any], Callable[[Inbox, Any], Any]], ...] = (
    (wire.ROLL, wire.RollQuestion.decode, _roll),
    (wire.SPREAD, wire.SpreadQuestion.decode, _spread),
    (KEYS, wire.KeysQuestion.decode, lambda inbox, asked: inbox.sums.keys(asked.name, inbox.head)),
    (SHARES, wire.SharesQuestion.decode, lambda inbox, asked: inbox.sums.shares(asked)),
    (OPEN, wire.OpenQuestion.decode, lambda inbox, asked: inbox.sums.opened(asked)),
    (wire.EMBED, wire.EmbeddingQuestion.decode, _embedding),
    (wire.RESPOND, wire.OfferQuestion.decode, _response),
    (wire.CONSENT, wire.ConsentQuestion.decode, _consent),
    (wire.GRADIENT, wire.GradientQuestion.decode, _gradient),
    (wire.MEASURE, wire.MeasureQuestion.decode, _measure),
)
