"""One removal request worked out again from the ledger and the models: steps in the order in which they rest on each other.

leavers      no removed client was asked, worked or was paid, and the steps were in order
game         costs, price of full participation and budget follow from sizes and terms
solutions    prices and participation are those of the solution on file, and stackfu's judges accept it
commitments  shares are what clients answered, at the prices offered, within the budget
work         every round that passed was committed to and delivered
rounds       every round starts where the one before ended, and ends with the average of what was sent
payments     every amount is price * share * passed / agreed, and the sum is what was settled
models       every model that counts is the file that its hash names, and they are as far apart as stated
evidence     the bound on the distance follows from the gradients

Every step raises :class:`~stackfu_integration.flower.ledger_error.LedgerError` where something does not fit.
"""

from __future__ import annotations

from collections.abc import Callable

from stackfu_integration.flower.recomputed import (
    commitments,
    evidence,
    game,
    leavers,
    models,
    payments,
    rounds,
    solutions,
    work,
)
from stackfu_integration.flower.recomputed.case import Case

__all__ = ["STEPS", "Case"]

#: The checks, and their functions.
STEPS: tuple[tuple[str, Callable[[Case], None]], ...] = (
    ("who left", leavers.check),
    ("costs and budget", game.check),
    ("solution, prices and certificate", solutions.check),
    ("commitments", commitments.check),
    ("work", work.check),
    ("rounds", rounds.check),
    ("payments", payments.check),
    ("models and distance", models.check),
    ("evidence of forgetting", evidence.check),
)
