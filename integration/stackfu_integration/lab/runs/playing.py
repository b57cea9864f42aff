"""The game of a run: views, pilots, constants, planned payments, and who stays."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stackfu.calibration import Calibration, pilot_profiles
from stackfu.errors import ConvergenceError, InfeasibleError, NoEquilibriumError
from stackfu.game import StackelbergGame
from stackfu_integration.arrays import FloatArray
from stackfu_integration.lab.cells import CONVEX, SCRATCH, Approach, PlanKey, equal_spend
from stackfu_integration.lab.federation import LabelledTensors
from stackfu_integration.lab.gradients import gradient_embeddings
from stackfu_integration.lab.mechanisms import BUDGETED, CAPPED_LABELS, MECHANISMS, PAPER_VIEW, VIEWS, View
from stackfu_integration.lab.models.classifier import head_matrix
from stackfu_integration.lab.payments import build_game, penultimate_features, plan_payments
from stackfu_integration.lab.pilots import PILOT_SEED, LossKind, Pilots, calibrated_game, run_pilots
from stackfu_integration.lab.runs.materials import Materials
from stackfu_integration.lab.runs.rounding import rounded
from stackfu_integration.lab.unlearning import ParticipationRetraining
from stackfu_integration.lab.unlearning.participation import ParticipationMethod
from stackfu_integration.storage import write_json

__all__ = ["Playing", "pilot_plan"]


_GAME_FILE = "game.json"
_PILOT_FILE = "pilots.json"


class _Clock:
    """Wall-clock and processor seconds since it was made."""

    def __init__(self) -> None:
        self._start, self._used = time.perf_counter(), time.process_time()

    def read(self, prefix: str = "") -> dict[str, float]:
        return {
            f"{prefix}seconds": time.perf_counter() - self._start,
            f"{prefix}cpu_seconds": time.process_time() - self._used,
        }


def pilot_plan(materials: Materials) -> FloatArray:
    """Return the participation of the pilots of a run, one row each; it follows from who holds how many samples of which class."""
    y_train, _ = materials.labels()
    labels = [y_train[client.train] for client in materials.partition.clients]
    game = build_game(labels, materials.removed, labels=labels, view="labels", loss_constant=1.0)
    return np.asarray(pilot_profiles(game, materials.preset.pilots, materials.seed + PILOT_SEED))


class Playing:
    """The game of a run in every view, its pilots, and the payments planned in it."""

    def __init__(self, materials: Materials) -> None:
        self.materials = materials
        self._embedding_seconds: dict[View, dict[str, float]] = {}

    @cached_property
    def views(self) -> dict[View, StackelbergGame]:
        """The game in every view, with C = 1 and A = 0."""
        federation = self.materials.trained.federation
        samples = penultimate_features(federation, self.materials.trained.final)
        labels = [client.train.y.numpy() for client in federation.clients]
        clock = _Clock()
        gradients = gradient_embeddings(
            [
                LabelledTensors(torch.from_numpy(x), client.train.y)
                for x, client in zip(samples, federation.clients, strict=True)
            ],
            head_matrix(self.materials.trained.final, federation.model(0)),
            self.materials.validation["l2"],
        )
        common = clock.read("embedding_")
        games = {}
        for view in VIEWS:
            clock = _Clock()
            games[view] = build_game(
                samples,
                self.materials.removed,
                labels=labels,
                view=view,
                gradients=gradients,
                loss_constant=1.0,
                cost_scale=self.materials.settings.cost_scale,
            )
            self._embedding_seconds[view] = {
                key: seconds + common[key] * view.endswith("gradients")
                for key, seconds in clock.read("embedding_").items()
            }
        return games

    @cached_property
    def pilots(self) -> dict[Approach, Pilots]:
        """Pilot trainings by every approach that forgets; a file of its own."""
        path = self.materials.folder / _PILOT_FILE
        if path.is_file():
            return {approach: Pilots.of(item) for approach, item in json.loads(path.read_text()).items()}
        seed = self.materials.seed + PILOT_SEED
        profiles = pilot_plan(self.materials)
        convex = self.materials.convex_head(passes=self.materials.preset.passes)
        methods: dict[Approach, tuple[ParticipationMethod, Tensor]] = {
            CONVEX: (convex, convex.before(self.materials.trained, self.materials.removed, seed))
        }
        if self.materials.preset.retraining:
            methods[SCRATCH] = ParticipationRetraining(), self.materials.trained.final
        made = {}
        for approach, (method, before) in methods.items():
            reporter = self.materials.reporter
            reporter.begin(
                f"{self.materials.folder.name}: pilots ({approach})",
                len(profiles) + self.views["labels"].count,
            )
            made[approach] = run_pilots(
                self.materials.trained,
                self.materials.removed,
                method,
                before,
                profiles,
                seed,
                reporter.advance,
            )
        write_json(path, rounded({approach: item.as_dict() for approach, item in made.items()}))
        return made

    def calibrated(self, view: View, approach: Approach) -> tuple[StackelbergGame, Calibration]:
        """Return the game in a view with the constants that the pilots of an approach fit to it."""
        # pooled test samples are uninformative about a client that uses other names for classes
        kind: LossKind = "own" if self.materials.preset.scheme == "concept" else "pooled"
        return calibrated_game(self.views[view], self.pilots[approach], kind)

    @cached_property
    def game(self) -> StackelbergGame:
        """The paper's."""
        constant = self.materials.settings.loss_constant
        if constant is None:
            constant = self.calibrated(PAPER_VIEW, CONVEX)[0].loss_constant
        return self.views[PAPER_VIEW].replace(loss_constant=constant)

    @cached_property
    def played(self) -> dict[str, Any]:
        """The game and all payments planned in it, as plain numbers; a file of its own."""
        path = self.materials.folder / _GAME_FILE
        if path.is_file():
            return self._completed(json.loads(path.read_text()))
        game = self.game
        price = float(game.full_participation_price)
        plans: dict[str, dict[str, Any]] = {}
        refused: dict[str, str] = {}
        self._plan(plans, refused)
        played = {
            "remaining": game.remaining.tolist(),
            "alpha": game.alpha.tolist(),
            "costs": game.costs.tolist(),
            "heterogeneity": game.heterogeneity.tolist(),
            "bandwidth": float(game.embeddings.bandwidth or 0.0),
            "loss_constant": game.loss_constant,
            "full_price": price,
            "views": {view: self._seen(view) for view in VIEWS},
            "pilots": {approach: item.as_dict() for approach, item in self.pilots.items()},
            "offers": plans,
            "without_answer": refused,
            "staying": self._staying(self.calibrated("labels", CONVEX)[0], plans),
            **self._embedding_seconds[PAPER_VIEW],
            "solver_seconds": sum(made["seconds"] for made in plans.values()),
        }
        write_json(path, rounded(played))
        return played

    def _seen(self, view: View) -> dict[str, Any]:
        """Return the game's data in a view, and the constants that the pilots fit to it."""
        return {
            "squared_distances": (np.asarray(self.views[view].embeddings.distances()) ** 2).tolist(),
            "calibration": {
                approach: self.calibrated(view, approach)[1].summary() for approach in self.pilots
            },
            **self._embedding_seconds[view],
        }

    def _completed(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Add to a stored game the views and plans that it was stored without, from when there were fewer."""
        missing = [view for view in VIEWS if view not in stored["views"]]
        stored["views"] |= {view: rounded(self._seen(view)) for view in missing}
        plans, refused = stored["offers"], stored.setdefault("without_answer", {})
        before = len(refused)
        added = self._plan(plans, refused)
        if added:
            plans.update({key: rounded(plans[key]) for key in added})
            everybody = self._staying(self.calibrated("labels", CONVEX)[0], plans)
            stored["staying"] = {**rounded(everybody), **stored["staying"]}
        if missing or added or len(refused) > before:
            write_json(self.materials.folder / _GAME_FILE, stored)
        return stored

    def _plan(self, plans: dict[str, dict[str, Any]], refused: dict[str, str]) -> list[str]:
        """Add the payments that are missing to ``plans``; return their names.

        A mechanism without an answer goes to ``refused`` with the reason: an auction may buy nothing, and where the pilots' A is 0
        unpaid clients may have no equilibrium.
        """
        known = {key for key in map(str, self._budgeted()) if key in plans or key in refused}
        added: list[str] = []
        reporter, name = self.materials.reporter, self.materials.folder.name
        reporter.begin(f"{name}: game", len(list(self._budgeted())) - len(known))
        for stage in (self._budgeted, lambda: equal_spend(plans, self.materials.settings.budgets[0])):
            for key in list(stage()):
                if str(key) in plans or str(key) in refused:
                    continue
                price = float(self.game.full_participation_price)
                view = MECHANISMS[key.mechanism].view
                game = self.game if view is None else self.calibrated(view, CONVEX)[0]
                try:
                    made = plan_payments(game, key.mechanism, key.fraction * price)
                except (InfeasibleError, NoEquilibriumError) as error:
                    refused[str(key)] = str(error)
                    reporter.note(f"{name}: {key}: {error}")
                    continue
                plans[str(key)] = {**made.as_dict(), "fraction": key.fraction}
                added.append(str(key))
                reporter.advance(len(added))
        return added

    def _staying(self, game: StackelbergGame, plans: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the clients that stay if leaving means their own model, as measured, by the offers at the main budget.

        The game's utilities leave out what the original federation cost, a constant of each client; what a client has
        outside leaves it out too: ``o_k = -[f_k(alone) - f_k(original)] - C d_k^2(mu_O) - A / n_O``.
        """
        pilots = self.pilots[CONVEX]
        lost = pilots.alone["pooled"] - pilots.before["pooled"][list(pilots.remaining)]
        baseline = game.loss_constant * np.asarray(game.distances_to_original)
        outside = -lost - baseline - game.sampling_constant / float(game.all_sizes.sum())
        nothing = np.zeros(game.count)
        offers = {"unpaid": (nothing, np.ones(game.count), nothing)}
        budget = self.materials.settings.budgets[0] * float(self.game.full_participation_price)
        for key in self._budgeted():
            if str(key) not in plans:
                continue
            if key.fraction == self.materials.settings.budgets[0] or key == PlanKey.full():
                plan = plans[str(key)]
                offers[key.mechanism] = np.array(plan["payments"]), np.array(plan["caps"]), nothing
        try:
            kept = game.solve(budget, **MECHANISMS[CAPPED_LABELS].options_in(game, budget), outside=outside)
            offers["retention"] = tuple(
                np.asarray(value) for value in (kept.offers.prices, kept.offers.caps, kept.offers.retainers)
            )  # type: ignore[assignment]
        except (InfeasibleError, ConvergenceError) as error:
            self.materials.reporter.note(
                f"{self.materials.folder.name}: nobody can be kept at this budget ({error})"
            )
        found: dict[str, Any] = {"outside": outside.tolist(), "lost_alone": lost.tolist()}
        for name, (payments, caps, retainers) in offers.items():
            ended = game.cascade(payments, caps, outside=outside, retainers=retainers)
            due = dict(zip(game.remaining.tolist(), zip(payments, retainers, strict=True), strict=True))
            last = ended.rounds[-1]
            spend = sum(
                float(due[k][0] * x + due[k][1])
                for k, x in zip(last.clients, last.participation, strict=True)
                if k in ended.stayed
            )
            found[name] = {"stay": list(ended.stayed), "rounds": len(ended.rounds), "spend": spend}
        return found

    def plans(self) -> Iterator[PlanKey]:
        """Every plan of payments that has an answer: full participation, each mechanism at each budget, equal spends."""
        plans = self.played["offers"]
        for key in (*self._budgeted(), *equal_spend(plans, self.materials.settings.budgets[0])):
            if str(key) in plans:
                yield key

    def _budgeted(self) -> Iterator[PlanKey]:
        """Full participation, then each mechanism at each budget."""
        yield PlanKey.full()
        for fraction in self.materials.settings.budgets:
            for mechanism in BUDGETED:
                yield PlanKey(mechanism, fraction)
