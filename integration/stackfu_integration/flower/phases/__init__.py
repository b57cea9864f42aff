"""The phases of a run, one module each, named like the phase.

    train -> request -> embeddings -> offers -> responses -> unlearning -> settlement -> measures -> report

Before the first message :mod:`.enrolment` calls the roll. Every phase of a removal ends with an event in the
ledger and begins by looking for it (:data:`REMOVAL`). A phase that was interrupted starts again and finds in the
ledger for completed work: it asks no client twice, and pays none twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stackfu_integration.flower.events import (
    CommitmentsClosed,
    Event,
    GameFounded,
    GameSolved,
    MeasuresClosed,
    ModelUnlearned,
    RequestClosed,
    RequestSettled,
)
from stackfu_integration.flower.phases import (
    embeddings,
    measures,
    offers,
    report,
    request,
    responses,
    settlement,
    train,
    unlearning,
)
from stackfu_integration.flower.phases.session import Removal

__all__ = ["PHASES", "REMOVAL", "Phase"]


@dataclass(frozen=True)
class Phase:
    """One phase of a removal: its name, what it does, and the event that says that it is done."""

    name: str
    run: Callable[[Removal], None]
    closed_by: type[Event]


REMOVAL = (
    Phase(embeddings.PHASE, embeddings.run, GameFounded),
    Phase(offers.PHASE, offers.run, GameSolved),
    Phase(responses.PHASE, responses.run, CommitmentsClosed),
    Phase(unlearning.PHASE, unlearning.run, ModelUnlearned),
    Phase(settlement.PHASE, settlement.run, RequestSettled),
    Phase(measures.PHASE, measures.run, MeasuresClosed),
    Phase(report.PHASE, report.run, RequestClosed),
)

PHASES = (train.PHASE, request.PHASE, *(phase.name for phase in REMOVAL))
