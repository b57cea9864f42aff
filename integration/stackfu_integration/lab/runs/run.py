"""The cells of a run: which there are, by which method each is unlearned, and what is written about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from stackfu.errors import ConvergenceError
from stackfu_integration.lab.answers import measured_answer
from stackfu_integration.lab.cells import (
    AGAIN,
    ANSWERED,
    ASCENT,
    COLD,
    CONVEX,
    FEDERASER,
    FEDOSD,
    FEDRECOVERY,
    HEAD,
    MODE,
    NOT,
    ORIGINAL,
    PRIVATE,
    QUICKDROP,
    RETRAIN,
    SCRATCH,
    SHARDS,
    SIFU,
    TUNED,
    WARM,
    Approach,
    CellKey,
    PlanKey,
)
from stackfu_integration.lab.measures import evaluate, pooled_losses, rounds_to_relearn
from stackfu_integration.lab.mechanisms import MECHANISMS
from stackfu_integration.lab.runs.materials import UNLEARNING_SEED, Materials
from stackfu_integration.lab.runs.measuring import Measuring
from stackfu_integration.lab.runs.playing import Playing
from stackfu_integration.lab.runs.rounding import rounded
from stackfu_integration.lab.runs.source import Source
from stackfu_integration.lab.unlearning import (
    ConvexHead,
    FedEraser,
    FedOSD,
    FedRecovery,
    GradientAscent,
    HeadFineTuning,
    MoDe,
    NoT,
    ParticipationRetraining,
    QuickDrop,
    Retrain,
    Shards,
    Sifu,
    UnlearningMethod,
)
from stackfu_integration.lab.unlearning.participation import ParticipationMethod
from stackfu_integration.storage import write_json

__all__ = ["Run"]


_PRIVACY = (1.0, 1e-4)  # epsilon and delta of certified removal


class Run:
    """One preset at one heterogeneity and one seed: a cell per unlearned model, each a file that is written once."""

    def __init__(self, source: Source, beta: float, seed: int) -> None:
        self.materials = Materials(source, beta, seed)
        self.playing, self.measuring = Playing(self.materials), Measuring(self.materials)

    def _cells(self) -> Iterator[tuple[CellKey, Callable[[], dict[str, Any]]]]:
        yield (
            ORIGINAL,
            lambda: self.measuring.measure(
                self.materials.trained.final, {"seconds": self.materials.trained.seconds}
            ),
        )
        yield (
            RETRAIN,
            lambda: {**self.measuring.measure(*self.materials.retrained), "guarantee": Retrain().guarantee},
        )
        methods = dict(self._methods())
        for key in methods:
            yield key, partial(self._unlearn, key)
        plans = list(self.playing.plans())
        main = [plan for plan in plans if plan.fraction in (1.0, self.materials.settings.budgets[0])]
        for plan in plans:
            if self._tunes(plan):
                yield CellKey(HEAD, plan), partial(self._participate, CellKey(HEAD, plan))
            yield CellKey(CONVEX, plan), partial(self._participate, CellKey(CONVEX, plan))
            if self.materials.preset.retraining and plan in main:
                yield CellKey(SCRATCH, plan), partial(self._participate, CellKey(SCRATCH, plan))
            if self.materials.preset.answers and plan in main and plan != PlanKey.full():
                yield CellKey(ANSWERED, plan), partial(self._answer, CellKey(ANSWERED, plan))
        if not self.materials.preset.backdoor:
            return
        infected = [ORIGINAL, RETRAIN, *(key for key in methods if key != AGAIN)]
        infected += [
            CellKey(approach, plan)
            for plan in main
            for approach in (HEAD, CONVEX)
            if approach == CONVEX or self._tunes(plan)
        ]
        for key in infected:
            yield key.with_backdoor(), partial(self._backdoor, key)

    def _tunes(self, plan: PlanKey) -> bool:
        """Return True for the paper's game only: other results of methods that do not forget are not shown."""
        return self.materials.preset.fine_tuning and MECHANISMS[plan.mechanism].view is None

    def _methods(self) -> Iterator[tuple[CellKey, UnlearningMethod]]:
        """Yield the methods that need no mechanism, without Retrain."""
        if not self.materials.preset.rivals:
            return
        if self.materials.preset.history:
            yield FEDERASER, FedEraser()
            yield FEDRECOVERY, FedRecovery()
            yield ASCENT, GradientAscent()
            yield SIFU, Sifu()
        yield MODE, MoDe()
        yield NOT, NoT()
        yield FEDOSD, FedOSD()
        if self.materials.preset.distil_interval:
            yield QUICKDROP, QuickDrop()
        yield AGAIN, Retrain()
        yield COLD, self.materials.convex_head()
        yield WARM, self.materials.convex_head(warm=True)
        yield PRIVATE, self.materials.convex_head(warm=True, privacy=_PRIVACY)
        if self.materials.preset.train == "head":
            yield SHARDS, Shards()
        else:
            rounds = max(1, self.materials.preset.rounds // 4)
            yield TUNED, self.materials.convex_head(passes=self.materials.preset.passes, rounds=rounds)

    def _method(self, key: CellKey) -> UnlearningMethod:
        """Return the method of a cell, with the participation that a mechanism's payments led to if it has one."""
        if key.plan is None:
            return Retrain() if key == RETRAIN else dict(self._methods())[key]
        return self._by_shares(key, self.playing.played["offers"][str(key.plan)]["participation"])

    def _by_shares(self, key: CellKey, participation: Sequence[float]) -> ParticipationMethod:
        shares = dict(zip(self.playing.played["remaining"], participation, strict=True))
        made: dict[Approach, Callable[..., ParticipationMethod]] = {
            HEAD: HeadFineTuning,
            SCRATCH: ParticipationRetraining,
            CONVEX: partial(self.materials.convex_head, passes=self.materials.preset.passes),
            ANSWERED: partial(self.materials.convex_head, passes=self.materials.preset.passes),
        }
        return made[cast("Approach", key.method)](shares=shares)

    def _path(self, key: CellKey) -> Path:
        return self.materials.folder / f"{key}.json"

    def complete(self) -> None:
        """Compute what is missing, one file per cell, then forget the checkpoints."""
        if not (self.materials.folder / "run.json").is_file():
            self.materials.describe()
        cells = [(key, compute) for key, compute in self._cells() if not self._path(key).is_file()]
        if cells:
            self.materials.describe()
        for number, (key, compute) in enumerate(cells):
            self.materials.reporter.begin(f"{self.materials.folder.name}: {key}", len(cells))
            self.materials.reporter.advance(number)
            try:
                cell = compute()
            except ConvergenceError as error:  # a method that fails is a result too
                cell = {"diverged": str(error)}
                self.materials.reporter.note(f"{self.materials.folder.name}: {key}: {error}")
            write_json(self._path(key), rounded({"cell": str(key), **cell}))
        shutil.rmtree(self.materials.scratch, ignore_errors=True)

    def _unlearn(self, key: CellKey, method: UnlearningMethod | None = None) -> dict[str, Any]:
        method = self._method(key) if method is None else method
        # another seed than Retrain's: how far apart two models are that differ in nothing else
        seed = self.materials.seed + UNLEARNING_SEED + (key == AGAIN)
        outcome = method.unlearn(self.materials.trained, self.materials.removed, seed)
        cell = {
            **self.measuring.measure(outcome.weights, outcome.cost),
            "cooperation": method.cooperation,
            "guarantee": method.guarantee,
        }
        if isinstance(method, QuickDrop):
            cell["closeness"] = self.measuring.closeness()
        if isinstance(method, ConvexHead):
            cell["validation"] = self.materials.validation
        if outcome.certificate is not None:
            cell["certificate"] = {
                **outcome.certificate.as_dict(),
                "sure": self.measuring.sure(outcome.weights, outcome.certificate),
            }
        return cell

    def _participate(self, key: CellKey) -> dict[str, Any]:
        return {"offer": str(key.plan), **self._unlearn(key)}

    def _answer(self, key: CellKey) -> dict[str, Any]:
        """Return the outcome of a mechanism's offers if clients evaluate trained models before they answer."""
        plan = self.playing.played["offers"][str(key.plan)]
        federation, seed = self.materials.trained.federation, self.materials.seed + UNLEARNING_SEED

        def losses(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            method = self._by_shares(key, x.tolist())
            weights = method.unlearn(self.materials.trained, self.materials.removed, seed).weights
            return np.asarray(
                pooled_losses(federation, evaluate(federation, weights))[self.playing.played["remaining"]]
            )

        payments, caps = np.array(plan["payments"]), np.array(plan["caps"])
        found = measured_answer(
            losses, payments, caps, np.array(self.playing.played["costs"]), np.array(plan["participation"])
        )
        return {
            "offer": str(key.plan),
            "answer": {
                "participation": found.participation.tolist(),
                "spend": float(payments @ found.participation),
                "settled": found.settled,
                "trainings": found.trainings,
            },
            **self._unlearn(key, self._by_shares(key, found.participation.tolist())),
        }

    def _backdoor(self, key: CellKey) -> dict[str, Any]:
        trained = self.materials.infected
        weights, seconds = trained.final, 0.0
        if key != ORIGINAL:
            outcome = self._method(key).unlearn(
                trained, self.materials.removed, self.materials.seed + UNLEARNING_SEED
            )
            weights, seconds = outcome.weights, outcome.seconds
        performance = evaluate(trained.federation, weights)
        rates = self.measuring.planted(weights)
        return {
            "backdoor_success": float(np.mean(rates)),
            "backdoor_clients": rates,
            "relearning": rounds_to_relearn(
                trained,
                weights,
                self.materials.removed,
                self.materials.seed + UNLEARNING_SEED,
                self.materials.preset.relearning,
                lambda found: float(np.mean(self.measuring.planted(found))),
            ),
            "canaries": self.measuring.remembered(weights),
            "accuracy": performance.mean(performance.accuracies, range(len(performance.losses))),
            "training_seconds": trained.seconds if key == ORIGINAL else 0.0,
            "unlearning_seconds": seconds,
        }
