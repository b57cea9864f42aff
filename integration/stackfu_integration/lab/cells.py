"""Names of what an experiment computes, shared by the experiment that writes and the report that reads.

A run plays the game once per :class:`PlanKey` and has one unlearned model with its measures per
:class:`CellKey`. Text such as ``backdoor.head.certified.0.5`` is the name of a file; it is made and read here
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.lab.mechanisms import (
    AWARE,
    CHEAPEST_FIRST,
    FULL,
    PRICE_PER_SAMPLE,
    RANDOM_CLIENTS,
    SAME_SHARE,
)

__all__ = [
    "AGAIN",
    "ANSWERED",
    "ASCENT",
    "AT_EQUAL_SPEND",
    "COLD",
    "CONVEX",
    "FEDERASER",
    "FEDOSD",
    "FEDRECOVERY",
    "HEAD",
    "MODE",
    "NOT",
    "ORIGINAL",
    "PRIVATE",
    "QUICKDROP",
    "RETRAIN",
    "SCRATCH",
    "SHARDS",
    "SIFU",
    "TUNED",
    "WARM",
    "Approach",
    "CellKey",
    "PlanKey",
    "equal_spend",
    "spend_key",
]

#: Rules that are also given what a designed mechanism spends, where that is less than the budget.
AT_EQUAL_SPEND = (SAME_SHARE, RANDOM_CLIENTS, CHEAPEST_FIRST, PRICE_PER_SAMPLE)

Approach = Literal["head", "scratch", "convex", "answered"]
HEAD: Approach = "head"  # fine-tune the trained model's head with the participation of a mechanism
SCRATCH: Approach = "scratch"  # retrain from the first weights with it
CONVEX: Approach = "convex"  # train a regularised head with it from zero, by a few steps of second order
ANSWERED: Approach = (
    "answered"  # the same, with the participation that the measured losses make clients choose
)
_APPROACHES: tuple[str, ...] = (HEAD, SCRATCH, CONVEX, ANSWERED)
_BACKDOOR = "backdoor"


@dataclass(frozen=True)
class PlanKey:
    """A mechanism at a budget, as a fraction of the price of full participation.

    Fractions keep the six digits that their text has, so that a key read from a file equals the one written.

    >>> str(PlanKey("certified", 0.5)), str(PlanKey.full())
    ('certified.0.5', 'full')
    """

    mechanism: str
    fraction: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fraction", float(f"{self.fraction:g}"))
        if self.mechanism == FULL and self.fraction != 1.0:
            raise InputError("fraction", "full participation costs its full price", value=self.fraction)

    @classmethod
    def full(cls) -> PlanKey:
        """Full participation, which has no budget."""
        return cls(FULL)

    @classmethod
    def parse(cls, text: str) -> PlanKey:
        """Read the text of a key.

        >>> PlanKey.parse("uniform.0.25")
        PlanKey(mechanism='uniform', fraction=0.25)
        """
        mechanism, dot, fraction = text.partition(".")
        try:
            key = cls(mechanism, float(fraction)) if dot else cls(mechanism)
        except ValueError as error:
            raise FileFormatError(f"{text!r} names no mechanism at a budget") from error
        if str(key) != text:
            raise FileFormatError(f"{text!r} names no mechanism at a budget")
        return key

    def __str__(self) -> str:
        return FULL if self.mechanism == FULL else f"{self.mechanism}.{self.fraction:g}"


def equal_spend(plans: Mapping[str, Mapping[str, Any]], fraction: float) -> Iterator[PlanKey]:
    """Simple rules with what each designed mechanism spends of its budget, a fraction of the full price, as theirs.

    >>> plans = {"haipo.0.5": {"spend": 0.02, "budget": 0.5}, "certified.0.5": {"spend": 0.0, "budget": 0.5}}
    >>> [str(key) for key in equal_spend(plans, 0.5)][:2]
    ['same-share.0.02', 'random-clients.0.02']
    """
    for mechanism in AWARE:
        plan = plans.get(str(PlanKey(mechanism, fraction)))
        if plan is not None and plan["spend"] > 0:
            for rule in AT_EQUAL_SPEND:
                yield spend_key(rule, plan, fraction)


def spend_key(rule: str, plan: Mapping[str, Any], fraction: float) -> PlanKey:
    """Return the key of a rule with the spend of a plan as its budget."""
    return PlanKey(rule, fraction * plan["spend"] / plan["budget"])


@dataclass(frozen=True)
class CellKey:
    """One unlearned model of a run: by a method of its own, or by an approach with a mechanism's participation.

    ``backdoor`` is the same in the federation with backdoors of the removed clients.

    >>> str(CellKey("federaser")), str(CellKey(HEAD, PlanKey("haipo", 0.1), backdoor=True))
    ('federaser', 'backdoor.head.haipo.0.1')
    """

    method: str
    plan: PlanKey | None = None
    backdoor: bool = False

    def __post_init__(self) -> None:
        if self.method in ("", _BACKDOOR) or "." in self.method:
            raise InputError(
                "method", "must be one word, and not that of a backdoor", value=repr(self.method)
            )
        if (self.method in _APPROACHES) != (self.plan is not None):
            needs = "needs a mechanism" if self.plan is None else "takes no mechanism"
            raise InputError("method", needs, value=self.method)

    @classmethod
    def parse(cls, text: str) -> CellKey:
        """Read the text of a key.

        >>> CellKey.parse("head.full")
        CellKey(method='head', plan=PlanKey(mechanism='full', fraction=1.0), backdoor=False)
        """
        head, dot, rest = text.partition(".")
        backdoor = head == _BACKDOOR
        if backdoor:
            head, dot, rest = rest.partition(".")
        try:
            return cls(head, PlanKey.parse(rest) if dot else None, backdoor)
        except InputError as error:
            raise FileFormatError(f"{text!r} names no cell ({error})") from error

    def with_backdoor(self) -> CellKey:
        """Return the same cell in the federation with a backdoor."""
        return CellKey(self.method, self.plan, backdoor=True)

    def by(self, approach: Approach) -> CellKey:
        """Return the cell of the same mechanism by another approach."""
        return CellKey(approach, self.plan, self.backdoor)

    def __str__(self) -> str:
        parts = ([_BACKDOOR] if self.backdoor else []) + [self.method]
        return ".".join(parts + ([str(self.plan)] if self.plan is not None else []))


ORIGINAL = CellKey("original")  # the trained model, before anybody is removed
RETRAIN, FEDERASER, MODE, QUICKDROP = (
    CellKey(name) for name in ("retrain", "federaser", "mode", "quickdrop")
)
FEDRECOVERY = CellKey("fedrecovery")  # the removed clients' part of every stored round taken off
NOT = CellKey("not")  # the first layer negated, then a few rounds
FEDOSD = CellKey("fedosd")  # steps that leave the remaining clients' losses as they are, then a few rounds
SIFU = CellKey("sifu")  # back to a round that the removed clients have hardly moved, noise, and on
ASCENT = CellKey("ascent")  # the removed clients undo their own training, then a few rounds of the others
AGAIN = CellKey("again")  # retrained with another seed: how far apart two models are that never saw the data
COLD = CellKey("cold")  # the convex head from zero to its optimum, everybody with everything
WARM = CellKey("warm")  # the same from the trained head, with a certificate
PRIVATE = CellKey("private")  # the convex head with the noise of certified removal
TUNED = CellKey("tuned")  # a head from zero on public layers, then a few rounds of all layers
SHARDS = CellKey("shards")  # the mean of heads trained on shards of clients, the affected ones again
