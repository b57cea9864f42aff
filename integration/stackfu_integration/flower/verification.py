"""Recompute everything in a ledger without trust in server or clients, up to the first contradiction.

What is needed is the file, the models' folder and the public keys. In this order, each on the ground of those before:

    chain        every row follows from the one before, and the server signed the last one
    events       every row is an event
    receipts     what clients signed is what the ledger says, with the keys they enrolled with
    outside      receipts and heads that others kept are on this chain
    who left     no removed client was asked, worked or was paid, and the steps were in order
    game         costs, price of full participation and budget follow from sizes and terms
    solution     prices and participation are those of the solution on file, and stackfu's judges accept it
    commitments  shares are what clients answered, at the prices offered, within the budget
    work         every round that passed was committed to and delivered
    rounds       every round starts where the one before ended, and ends with the average of what was sent
    payments     every amount is price * share * passed / agreed, and the sum is what was settled
    models       every model that counts is the file that its hash names
    measures     the distance between the models

A report has four voices: what does not fit (:attr:`Report.misfit`), what evidence could still answer and is only the server's or a
client's word so far (:attr:`Report.open_questions`), what was shown (:attr:`Report.proved`), and what nobody can see from here
(:attr:`Report.limits`). :attr:`Report.code` says it in one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stackfu_integration.flower.events import (
    ModelUnlearned,
    PayloadsErased,
    RequestAborted,
    RequestClosed,
    RoundFinished,
    RunStarted,
    StartPrepared,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger, SchemaError
from stackfu_integration.flower.ledger_error import LedgerError
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.naming import one_line
from stackfu_integration.flower.recomputed import STEPS, Case
from stackfu_integration.flower.signed_rows import Evidence, SignedRows

__all__ = ["ABORTED", "FITS", "MISFIT", "OPEN", "Evidence", "Report", "verify", "verify_ledger"]

NO_EVIDENCE = Evidence()  # the keys in the folder are believed, and the report says so
FITS, MISFIT, ABORTED, OPEN = 0, 1, 3, 4  # exit codes; 2 is a command that was typed wrongly

_ALWAYS = (
    "which data the clients trained on. A client that holds a copy of removed data can have used it, and nobody would see it",
    "whether sizes are true: they are the clients' claims, the same ones in training and in the game",
    "what clients measured on their own data: they report it themselves",
    "whether anybody made a copy of the embeddings before they were erased",
    "what the first weights had met before training: that is the operator's word, and clients sign nothing in training",
)
_VERDICTS = {
    FITS: "Fits: everything that can be recomputed was, and no evidence is missing.",
    MISFIT: "Does not fit",
    ABORTED: "Aborted: the removal was not carried out. What was done until then fits.",
    OPEN: "Open: nothing contradicts the records, and what follows rests on somebody's word until it is answered.",
}


@dataclass(frozen=True)
class Report:
    """The checks, the first contradiction (``None``: all fits), open questions, proved claims, and limits."""

    checked: tuple[str, ...]
    misfit: str | None
    open_questions: tuple[str, ...]
    limits: tuple[str, ...] = ()
    proved: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.misfit is None

    @property
    def code(self) -> int:
        """The exit code: 0 fits with all evidence, 1 something does not fit, 3 a request was aborted, 4 questions are open."""
        if self.misfit is not None:
            return MISFIT
        if self.aborted:
            return ABORTED
        return OPEN if self.open_questions else FITS

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "exit_code": self.code,
            "verdict": _VERDICTS[self.code],
            "misfit": self.misfit,
            "open_questions": list(self.open_questions),
            "aborted": list(self.aborted),
            "proved": list(self.proved),
            "checked": list(self.checked),
            "not_to_be_seen": list(self.limits),
        }

    def first_lines(self) -> list[str]:
        """Return the verdict and what is open as lines of Markdown."""
        said = f"{_VERDICTS[MISFIT]}: {self.misfit}" if self.misfit is not None else _VERDICTS[self.code]
        out = ["## Verdict", "", f"**{said}**", ""]
        if self.aborted:
            out += [*(f"- {line}" for line in self.aborted), ""]
        if self.open_questions:
            out += ["Open questions:", "", *(f"- {question}" for question in self.open_questions), ""]
        return out

    def last_lines(self) -> list[str]:
        """Return the proved and recomputed claims, and the facts that cannot be seen, as lines of Markdown."""
        out = ["## Recomputed", ""]
        if self.proved and self.misfit is None:
            out += ["Proved:", "", *(f"- {line}" for line in self.proved), ""]
        out += [f"- {what}: fits" for what in self.checked]
        return [*out, "", "Not to be seen from here:", "", *(f"- {limit}" for limit in self.limits)]

    def lines(self) -> list[str]:
        """Return the report as lines of Markdown, open questions first."""
        return [*self.first_lines(), *self.last_lines()]


def verify(run: Path, evidence: Evidence = NO_EVIDENCE, request: str | None = None) -> Report:
    """Recompute a run, or one of its requests; everything that others depend on is part of it.

    Parameters
    ----------
    run : Path
        The run's folder, or the file of its ledger; models are in ``models`` in the same folder. Nothing is written there.
    evidence : Evidence, optional
        Keys, receipts, heads and models that were brought along.
    request : str, optional
        The only request to look at; by default all of them.

    Returns
    -------
    Report
        What fits, what does not, and what is open.
    """
    path = run / "ledger.sqlite" if run.is_dir() else run
    try:
        with PaymentLedger.snapshot(path) as ledger:
            return verify_ledger(ledger, evidence, request)
    except SchemaError as error:
        return _report([], str(error), [], [], [], [])


def verify_ledger(
    ledger: PaymentLedger,
    evidence: Evidence = NO_EVIDENCE,
    request: str | None = None,
    *,
    about: str | None = None,
) -> Report:
    """Recompute what a snapshot of a ledger says; see :func:`verify`.

    The verdict says "aborted" where the request ``about`` was, by default the only one looked at or else the last one.
    """
    models, works = ModelStore(ledger.path.parent / "models"), tuple(map(ModelStore, evidence.works))
    rows = SignedRows(ledger, evidence)
    checked: list[str] = []
    questions: list[str] = []
    limits: list[str] = []
    proved: list[str] = []
    aborted: list[str] = []
    misfit, name = None, ""
    try:
        for name, step in (
            ("chain of rows and signed head", rows.chain),
            ("every row is an event", rows.events),
            ("clients' receipts", rows.receipts),
            ("receipts and heads from outside", rows.outside),
            ("models of the run", partial(_run_models, ledger, models, limits)),
        ):
            step()
            checked.append(name)
        for name in ledger.requests() if request is None else [request]:
            case = Case(ledger, models, name, questions, limits, proved, works)
            for what, check in STEPS:
                check(case)
                checked.append(f"{name}: {what}")
            ended = case.last(RequestAborted)
            if ended is not None:
                said = aborted if name == (about or request or ledger.requests()[-1]) else limits
                said.append(f"{name} was aborted ({ended.reason}); what was done until then is checked")
            if not case.has(RequestClosed):
                questions.append(
                    f"{name}: what comes after the last row: the request is not closed, or the end of the records is missing"
                )
            if case.has(PayloadsErased) and not ledger.is_erased(name):
                questions.append(
                    f"{name}: if embeddings are erased: they were deleted, and the write-ahead log beside the ledger "
                    "may still hold them"
                )
    except LedgerError as error:
        misfit = str(error)
    except Exception as error:  # whatever is in the file, it is said and not thrown
        misfit = f"{name}: {error or type(error).__name__}"
    return _report(checked, misfit, [*rows.questions, *questions], limits, [*rows.proved, *proved], aborted)


def _report(
    checked: list[str],
    misfit: str | None,
    questions: list[str],
    limits: list[str],
    proved: list[str],
    aborted: list[str],
) -> Report:
    """Return a report with text from other parties as plain words."""

    def plain(lines: list[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one_line(line) for line in lines))

    return Report(
        plain(checked),
        None if misfit is None else one_line(misfit),
        plain(questions),
        plain([*limits, *_ALWAYS]),
        plain(proved),
        plain(aborted),
    )


def _run_models(ledger: PaymentLedger, models: ModelStore, limits: list[str]) -> None:
    """Every model of a round or a request that is in the folder is the one that its name says; the first one is there."""
    run = ledger.last(RUN, RunStarted)
    if run is not None:
        models.get(run.initial)
        if run.adopted:
            limits.append("what the adopted model was trained on: that is the operator's word")
    for request in (RUN, *ledger.requests()):
        named = [event.model for event in ledger.events(request, RoundFinished)]
        named += [event.model for event in ledger.events(request, StartPrepared)]
        named += [event.model for event in ledger.events(request, ModelUnlearned)]
        for name in named:
            if models.has(name):
                models.get(name)
