"""The bound on the distance to a model that never met the removed data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.convex import NEWTON, head_of
from stackfu_integration.flower.events import (
    ClientCommitted,
    DistanceBounded,
    GradientHidden,
    GradientReported,
    PayloadsErased,
    RoundFinished,
    SumAgreed,
    SumOpened,
)
from stackfu_integration.flower.ledger_error import need
from stackfu_integration.flower.methods import METHODS
from stackfu_integration.flower.phases.evidence import (
    bound_on_distance,
    bound_on_summed,
    is_head,
    name_of_sum,
)
from stackfu_integration.flower.phases.sums import read_group, read_shares
from stackfu_integration.flower.recomputed.case import Case, same
from stackfu_integration.flower.secure_sum import MODEL_BITS
from stackfu_integration.flower.terms import Terms

__all__ = ["check"]


def check(case: Case) -> None:
    """The bound follows from the gradients that clients reported or hid in a sum."""
    bound = case.last(DistanceBounded)
    if bound is None:
        return
    terms = case.terms_at(case.place_of(DistanceBounded))
    hidden, plain = case.by_client(GradientHidden), case.by_client(GradientReported)
    reported: Mapping[int, GradientHidden | GradientReported] = hidden or plain
    strangers = sorted(set(reported) - set(case.by_client(ClientCommitted)))
    need(
        not strangers, f"{case.request}: {case.naming.all(strangers)} reported gradients without a commitment"
    )
    need(bound.l2 == terms.certify_l2, f"{case.request}: the bound has another l2 than the terms")
    need(
        bound.clients == tuple(sorted(reported))
        and bound.samples == sum(event.samples for event in reported.values()),
        f"{case.request}: the bound is of other clients or samples than reported gradients",
    )
    if terms.unlearning == NEWTON and case.has(PayloadsErased):
        case.limits.append(
            f"{case.request}: whether the bound follows from the gradients that clients signed: they are erased, as they tell "
            "where the head was before the noise"
        )
        return
    model = case.models.get(case.needed(RoundFinished).model)
    if METHODS[terms.unlearning].gradients:
        model = head_of(model, terms.head)
    need(is_head(model), f"{case.request}: a bound is stated for a model that is not a softmax head")
    if hidden:
        total = _sum_of(case, hidden, terms)
        norm, far = bound_on_summed(model, total, bound.clients, bound.samples, bound.l2)
    else:
        gradients = {client: event.gradient for client, event in plain.items()}
        norm, far = bound_on_distance(model, gradients, bound.samples, bound.l2)
    need(
        same(bound.gradient_norm, norm) and same(bound.distance, far),
        f"{case.request}: the gradients bound the distance by {far!r}, the ledger says {bound.distance!r}",
    )
    case.limits.append(
        f"{case.request}: whether the gradients behind the bound are those of the data they claim: clients report them"
    )


def _sum_of(case: Case, hidden: Mapping[int, GradientHidden], terms: Terms) -> FloatArray:
    """Return the sum of masked gradients, put together again from what clients signed."""
    name = name_of_sum(case.request, terms.rounds)
    agreed = next(event for event in case.events(SumAgreed) if event.number == name.number)
    opened = next(event for event in case.events(SumOpened) if event.number == name.number)
    vectors = [np.frombuffer(hidden[client].masked, "<u8") for client in sorted(hidden)]
    total = np.array(vectors, dtype=np.uint64).sum(axis=0, dtype=np.uint64)
    return read_group(name, agreed).unmasked(total, list(hidden), read_shares(opened), MODEL_BITS)
