"""Rounds of summed gradients, in which a softmax head is brought to its optimum (:mod:`..convex`).

The remaining clients are first asked whether their app gives gradients. A client without gradients is
left out of the game; if none gives gradients, the request ends with a reason that lists the available methods.

Rounds end when ``|grad F| / l2`` is at most ``certify_distance``, when the model's precision knows no further step, or with the
last one agreed. The model is the head with the least gradient. With secure aggregation the sums are all that is seen, and
nothing is judged (:mod:`.summed_rounds`). Clients agreed to a price for all rounds: those that worked to the
end are paid for the rounds that were not needed as well, like clients that stand ready.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping

import numpy as np
from flwr.app import Array, ArrayRecord

from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.convex import (
    CURVATURE,
    NEWTON,
    Seen,
    flat,
    head_of,
    in_double,
    next_point,
    of_one_objective,
    unpacked,
    with_curvature,
    with_head,
)
from stackfu_integration.flower.events import ConsentGiven, SlopeSummed, TermsAmended, WorkJudged
from stackfu_integration.flower.methods import METHODS
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.phases.rounds import rounds_done
from stackfu_integration.flower.phases.session import Removal, StuckError
from stackfu_integration.flower.receipts import CONSENT
from stackfu_integration.flower.robust import Judgement, robust_average, within_reach
from stackfu_integration.flower.wire import ConsentAnswer, ConsentQuestion, Refusal
from stackfu_integration.flower.wire.exchange import NO_ANSWER

__all__ = ["NOT_ASKED", "PHASE", "Descent", "ask_for_gradients", "excuse", "without_curvature"]


PHASE = "gradients"
NOT_ASKED = "was not asked in this round"
_ROOM = 0.9  # of the distance: single precision moves a gradient by a little, and the bound is worked out in double


def ask_for_gradients(removal: Removal) -> None:
    """Ask the remaining clients once whether they can work for the method; end the request if none can."""
    ledger, name = removal.ledger, removal.terms.unlearning
    if not METHODS[name].gradients:
        return
    amended = ledger.last(removal.name, TermsAmended)
    number = 0 if amended is None else amended.number + 1
    given = {e.client for e in ledger.events(removal.name, ConsentGiven) if e.method == name}
    away = {*removal.request.removed, *removal.request.gone, *removal.excluded, *given}
    question = ConsentQuestion(removal.name, name, removal.terms.aggregation == "secure")
    asked = {client: question for client in removal.nodes if client not in away}
    problems: dict[int, str] = {}
    for client, answer in removal.ask(asked, ConsentAnswer.decode).items():
        if isinstance(answer, Refusal):
            if answer.problem != NO_ANSWER:  # whoever is away may be back when it is asked for more
                problems[client] = answer.problem
            continue
        facts = {"request": removal.name, "method": name}
        problem = removal.refused_receipt(client, answer.receipt, CONSENT, **facts)
        if problem is not None:
            problems[client] = problem
            continue
        receipt = None if answer.receipt is None else answer.receipt.plain()
        ledger.add(removal.name, ConsentGiven(client, number, name, receipt))
        given.add(client)
    if problems and not given:
        said = "; ".join(f"{removal.name_of(c)}: {problem}" for c, problem in sorted(problems.items()))
        others = ", ".join(n for n, method in METHODS.items() if not (method.leavers or method.gradients))
        raise StuckError(
            f"{METHODS[name].name} needs gradients of the clients that stay, and cannot be had ({said}); without them can "
            f"be had: {others}"
        )
    for client, problem in problems.items():
        removal.leave_out(client, PHASE, problem)


class Descent:
    """The server's side of the rounds: what it makes of the updates of one, and what it writes down."""

    def __init__(self, removal: Removal) -> None:
        self._removal = removal
        self._summed: SlopeSummed | None = None
        self._answers: dict[int, ArrayRecord] = {}

    @property
    def told(self) -> dict[str, str]:
        """The settings of an order."""
        return {"only": ",".join(self._removal.terms.head), "method": self._removal.terms.unlearning}

    @property
    def _newton(self) -> bool:
        return self._removal.terms.unlearning == NEWTON

    def shown(self, model: ArrayRecord) -> ArrayRecord:
        """Return the message to clients: the model, and for Newton's method space for second derivatives."""
        return with_curvature(model, self._removal.terms.head) if self._newton else model

    def judge(
        self,
        found: dict[int, Judgement],
        number: int,
        models: Mapping[int, ArrayRecord],
        samples: Mapping[int, int],
        sent: ArrayRecord,
    ) -> dict[int, Judgement]:
        """Refuse an update that cannot be the gradient of a convex loss, given the same client's update of the round before.

        The gradient of a convex function does not fall along a step: ``<grad f(v) - grad f(w), v - w> >= 0``. Flipped signs do, and
        what is honest never does by more than rounding. Second derivatives of a convex function have no negative direction.
        """
        removal, names = self._removal, self._removal.terms.head
        self._answers = {client: head_of(model, names) for client, model in models.items()}
        if self._newton:
            found = {c: _with_curvature_judged(judged, models[c]) for c, judged in found.items()}
        earlier = removal.ledger.last(removal.name, SlopeSummed)
        if earlier is None:
            return found
        before = removal.models.get(earlier.answers)
        here, there = flat(head_of(sent, names)), flat(head_of(removal.models.get(earlier.at), names))
        step = here - there
        unit = max(float(np.finfo(array.numpy().dtype).eps) for array in head_of(sent, names).values())
        for client, judgement in found.items():
            if str(client) not in before:
                continue
            now, then = flat(self._answers[client]), before[str(client)].numpy().astype(np.float64)
            rise = float(((here - now) - (there - then)) @ step)
            hidden = float(unit * (np.linalg.norm(now) + np.linalg.norm(then)) * np.linalg.norm(step))
            measured = {**judgement.measured, "rise": rise, "flip refused": float(rise > hidden)}
            problem = judgement.problem
            if not problem and rise < -hidden:
                problem = "sent what is no gradient of a convex loss: it falls along the step since the round before"
            found[client] = Judgement(problem == "", problem, measured)
        return found

    def step(
        self, models: Mapping[int, ArrayRecord], samples: Mapping[int, int], sent: ArrayRecord
    ) -> ArrayRecord:
        """Return the model for the next round; from the last round, the one with the least gradient."""
        removal, terms = self._removal, self._removal.terms
        here = in_double(head_of(sent, terms.head))
        heads = {client: in_double(head_of(model, terms.head)) for client, model in models.items()}
        factors = {"clip_factor": terms.clip_factor, "trim": terms.trim}
        averaged = flat(robust_average(heads, samples, here, terms.aggregation, **factors))
        if self._newton:
            averaged = np.concatenate([averaged, _mean_curvature(models, samples, terms.clip_factor)])
        answered = {str(client): Array(flat(head)) for client, head in sorted(self._answers.items())}
        return self.step_from(
            averaged, tuple(sorted(models)), sent, removal.models.put(ArrayRecord(answered))
        )

    def step_from(
        self, averaged: FloatArray, clients: Collection[int], sent: ArrayRecord, answers: str = ""
    ) -> ArrayRecord:
        """The same from the average of the clients' heads, and for Newton's method of their second derivatives behind them."""
        removal, terms = self._removal, self._removal.terms
        assert terms.certify_l2 is not None
        number = rounds_done(removal.ledger, removal.name) + 1
        point = flat(in_double(head_of(sent, terms.head)))
        slope = point - averaged[: len(point)] + terms.certify_l2 * point
        hessian = None
        if self._newton:
            hessian = unpacked(averaged[len(point) :], len(point)) + terms.certify_l2 * np.eye(len(point))
        earlier = of_one_objective(removal.ledger.events(removal.name, SlopeSummed), clients)
        history = [self._read(event) for event in earlier]
        now = Seen(number, point, slope, number)
        base, wanted = next_point(history, now, hessian)
        following = with_head(sent, terms.head, wanted)
        reached = now.norm <= _ROOM * terms.certify_distance * terms.certify_l2
        tried = {digest(sent), *(event.at for event in earlier)}
        sane = bool(np.isfinite(wanted).all()) and within_reach(wanted)
        last = reached or number == terms.rounds or digest(following) in tried or not sane
        if last:
            best = min([now, *history], key=lambda seen: seen.norm)
            following = with_head(sent, terms.head, best.point)
        name, at = removal.models.put(ArrayRecord({"slope": Array(slope)})), removal.models.put(sent)
        self._summed = SlopeSummed(number, now.norm, at, name, answers, tuple(sorted(clients)), base, last)
        return following

    def _read(self, event: SlopeSummed) -> Seen:
        models, head = self._removal.models, self._removal.terms.head
        slope = np.asarray(models.get(event.slope)["slope"].numpy(), dtype=np.float64)
        return Seen(event.number, flat(head_of(models.get(event.at), head)), slope, event.base)

    def write(self) -> None:
        """Enter what was seen in a round, within its transaction; a round in which nothing passed has seen nothing."""
        if self._summed is not None:
            self._removal.ledger.add(self._removal.name, self._summed)
            self._summed = None

    def enough(self) -> bool:
        """Return True if no further round is needed."""
        last = self._removal.ledger.last(self._removal.name, SlopeSummed)
        return last is not None and last.last


def without_curvature(model: ArrayRecord) -> ArrayRecord:
    """Return the model of an answer, of which second derivatives are no part."""
    return ArrayRecord(OrderedDict((name, array) for name, array in model.items() if name != CURVATURE))


def _square(model: ArrayRecord) -> FloatArray:
    triangle = model[CURVATURE].numpy()
    return unpacked(triangle, round((np.sqrt(8 * len(triangle) + 1) - 1) / 2))


def _with_curvature_judged(found: Judgement, model: ArrayRecord) -> Judgement:
    values = np.linalg.eigvalsh(_square(model))
    if found.passed and values[0] < -1e-9 * max(abs(values[0]), abs(values[-1])):
        problem = "sent what are no second derivatives of a convex loss: they fall in some direction"
        return Judgement(False, problem, found.measured)
    return found


def _mean_curvature(
    models: Mapping[int, ArrayRecord], samples: Mapping[int, int], clip_factor: float
) -> FloatArray:
    """Return the mean of second derivatives; none counts for more than ``clip_factor`` times the median trace."""
    traces = {client: float(np.trace(_square(model))) for client, model in models.items()}
    most, total = clip_factor * float(np.median(list(traces.values()))), sum(samples[c] for c in models)
    parts = [
        samples[c]
        / total
        * min(1.0, most / traces[c] if traces[c] > 0.0 else 1.0)
        * models[c][CURVATURE].numpy()
        for c in sorted(models)
    ]
    return np.asarray(sum(parts), dtype=np.float64)


def excuse(removal: Removal) -> None:
    """Count clients with accepted work in the last round as ready in the rounds that were not needed."""
    done = rounds_done(removal.ledger, removal.name)
    judged = removal.ledger.events(removal.name, WorkJudged)
    ready = [work.client for work in judged if work.number == done and work.passed]
    for number in range(done + 1, removal.terms.rounds + 1):
        for client in ready:
            removal.ledger.add(removal.name, WorkJudged(client, number, True, NOT_ASKED))
