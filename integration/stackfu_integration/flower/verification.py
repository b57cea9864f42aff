"""Everything in a ledger recomputed by somebody who trusts neither server nor clients: the first thing that does not fit.

What is needed is the file, the models' folder and the public keys. In this order, each on the ground of those before:

    chain        every row follows from the one before, and the server signed the last one
    events       every row is an event
    receipts     what clients signed is what the ledger says, with the keys they enrolled with
    outside      receipts and heads that others kept are on this chain
    game         costs, price of full participation and budget follow from sizes and terms
    solution     prices and participation are those of the solution on file, and stackfu's judges accept it
    commitments  shares are what clients answered, at the prices offered, within the budget
    work         every round that passed was committed to and delivered
    payments     every amount is price * share * passed / agreed, and the sum is what was settled
    models       every model that counts is the file that its hash names
    measures     the distance between the models

What cannot be recomputed from these is said in words (:attr:`Report.open_questions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stackfu_integration.flower.events import RunStarted
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.misfit import MisfitError
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.recomputed import STEPS, Case
from stackfu_integration.flower.signed_rows import Evidence, SignedRows

__all__ = ["Evidence", "Report", "verify"]

NO_EVIDENCE = Evidence()  # the keys in the folder are believed, and the report says so

_ALWAYS = (
    "which data the clients trained on. A client that holds a copy of removed data can have used it, and nobody would see it",
    "whether sizes are true: they are the clients' claims, the same ones in training and in the game",
    "what clients measured on their own data: they report it themselves",
    "whether anybody made a copy of the embeddings before they were erased",
)


@dataclass(frozen=True)
class Report:
    """What was checked, the first thing that does not fit (``None``: all fits), and what nobody can check here."""

    checked: tuple[str, ...]
    misfit: str | None
    open_questions: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.misfit is None

    def lines(self) -> list[str]:
        """The report as lines of Markdown."""
        out = ["## Recomputed", ""]
        out += [f"- {what}: fits" for what in self.checked]
        if self.misfit is not None:
            out += ["", f"**Does not fit: {self.misfit}**"]
        out += ["", "Not to be seen from here:", "", *(f"- {question}" for question in self.open_questions)]
        return out


def verify(folder: Path, evidence: Evidence = NO_EVIDENCE, request: str | None = None) -> Report:
    """Recompute a run, or one of its requests; everything that others depend on is part of it."""
    with PaymentLedger(folder / "ledger.sqlite", create=False) as ledger:
        return _verify(ledger, ModelStore(folder / "models"), evidence, request)


def _verify(ledger: PaymentLedger, models: ModelStore, evidence: Evidence, request: str | None) -> Report:
    rows = SignedRows(ledger, evidence)
    checked: list[str] = []
    questions: list[str] = []
    misfit, name = None, ""
    try:
        for name, step in (
            ("chain of rows and signed head", rows.chain),
            ("every row is an event", rows.events),
            ("clients' receipts", rows.receipts),
            ("receipts and heads from outside", rows.outside),
            ("models of the run", partial(_run_models, ledger, models, questions)),
        ):
            step()
            checked.append(name)
        for name in ledger.requests() if request is None else [request]:
            case = Case(ledger, models, name, questions)
            for what, check in STEPS:
                check(case)
                checked.append(f"{name}: {what}")
    except MisfitError as error:
        misfit = str(error)
    except Exception as error:  # whatever is in the file, it is said and not thrown
        misfit = f"{name}: {error or type(error).__name__}"
    return Report(tuple(checked), misfit, tuple(dict.fromkeys([*rows.questions, *questions, *_ALWAYS])))


def _run_models(ledger: PaymentLedger, models: ModelStore, questions: list[str]) -> None:
    run = ledger.last(RUN, RunStarted)
    if run is not None:
        models.get(run.initial)
        if run.adopted:
            questions.append("what the adopted model was trained on: that is the operator's word")
