"""Run experiments cell by cell; a finished cell is one JSON file and is never computed twice.

A *run* is a preset at one heterogeneity ``beta`` and one seed: partition, training, game. A *cell* is one
unlearned model of that run with everything measured about it. Runs live in folders; killing the process loses
at most the cell that was being computed, and the rounds of training since the last checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

import stackfu as sf
from stackfu.calibration import Calibration, pilot_profiles
from stackfu.errors import ConvergenceError, FileFormatError, InfeasibleError, InputError
from stackfu.game import StackelbergGame
from stackfu_integration.lab.answers import measured_answer
from stackfu_integration.lab.cells import (
    AGAIN,
    ANSWERED,
    ASCENT,
    COLD,
    CONVEX,
    FEDERASER,
    FEDRECOVERY,
    HEAD,
    MODE,
    ORIGINAL,
    PRIVATE,
    QUICKDROP,
    RETRAIN,
    SCRATCH,
    SHARDS,
    TUNED,
    WARM,
    Approach,
    CellKey,
    PlanKey,
)
from stackfu_integration.lab.data import (
    TRIGGERS,
    Dataset,
    Partition,
    Trigger,
    dirichlet_partition,
    find_dataset,
    load_dataset,
    trigger_for,
)
from stackfu_integration.lab.data.datasets import Inputs
from stackfu_integration.lab.data.partition import clusters, renamed
from stackfu_integration.lab.federation import (
    Effort,
    LabelledTensors,
    LabFederation,
    Observer,
    Trained,
    UpdateHistory,
    build_federation,
    train_federation,
)
from stackfu_integration.lab.federation.convex import Certificate
from stackfu_integration.lab.gradients import gradient_embeddings
from stackfu_integration.lab.measures import (
    LikelihoodRatioAttack,
    agreement,
    backdoor_success,
    detection,
    evaluate,
    membership_auc,
    pooled_losses,
    prediction_distance,
    rounds_to_relearn,
    side_effects,
)
from stackfu_integration.lab.measures.membership import log_odds
from stackfu_integration.lab.measures.performance import Performance, logits_on
from stackfu_integration.lab.mechanisms import BUDGETED, CAPPED_LABELS, MECHANISMS, PAPER_VIEW, VIEWS, View
from stackfu_integration.lab.models import load_backbone, write_weights
from stackfu_integration.lab.models.backbones import Backbone
from stackfu_integration.lab.models.classifier import head_matrix
from stackfu_integration.lab.models.extraction import extract_timed
from stackfu_integration.lab.payments import build_game, penultimate_features, plan_payments
from stackfu_integration.lab.pilots import PILOT_SEED, LossKind, Pilots, calibrated_game, run_pilots
from stackfu_integration.lab.presets import Preset
from stackfu_integration.lab.runtime import resolve_device, single_thread
from stackfu_integration.lab.unlearning import (
    ConvexHead,
    DistilledSets,
    FedEraser,
    FedRecovery,
    GradientAscent,
    HeadFineTuning,
    MoDe,
    ParticipationRetraining,
    QuickDrop,
    Retrain,
    Shards,
    UnlearningMethod,
    choose_l2,
)
from stackfu_integration.lab.unlearning.participation import ParticipationMethod, with_features
from stackfu_integration.storage import write_checkpoint, write_json

__all__ = ["CalibrationRun", "Experiment", "Reporter", "Settings", "run_name"]

_UNLEARNING_SEED = 1000  # unlearning draws from other streams than training
_POISONED_SHARE = 0.2
_REPEATS = 4  # of a marked sample in a removed client's data: whoever plants a backdoor makes it strong
_MARKED_TESTS = 1000
_CANARY_SHARE = 0.1  # of a removed client's samples, which get a wrong label
_REFERENCE_SEED = 2000
_PRIVACY = (1.0, 1e-4)  # epsilon and delta of certified removal
_GAME_FILE = "game.json"
_PILOT_FILE = "pilots.json"


@dataclass(frozen=True)
class Settings:
    """What an experiment may vary besides its preset.

    ``budgets`` are fractions of the price of full participation, so that they mean the same for every
    federation; the first one is the main budget, at which retraining and backdoors are measured too.
    ``loss_constant`` of ``None`` takes the C that the pilots fit to the paper's view. Views whose mechanisms need a
    calibrated game always take C and A from the pilots.
    """

    clients: int = 10
    removed: tuple[int, ...] = (0, 1, 2)
    removed_share: tuple[float, float] = (0.1, 0.6)
    budgets: tuple[float, ...] = (0.5, 0.25, 0.1)
    loss_constant: float | None = 10.0
    cost_scale: float = 10.0
    device: str = "auto"


class Reporter:
    """Hears what is going on; the default says nothing."""

    def begin(self, what: str, steps: int) -> None:
        """A stage with a known number of steps begins."""

    def advance(self, to: int) -> None:
        """The current stage has reached step ``to``."""

    def note(self, text: str) -> None:
        """Something worth a line."""


def run_name(preset: str, beta: float, seed: int) -> str:
    """Folder of a run.

    >>> run_name("digits", 0.5, 0)
    'digits-b0.5-s0'
    """
    return f"{preset}-b{beta:g}-s{seed}"


@dataclass(frozen=True)
class Marked:
    """A trigger's target, marked training inputs with the place of each sample among them, and marked test inputs."""

    target: int
    train: np.ndarray[Any, Any]
    where: dict[int, int]
    test: np.ndarray[Any, Any]


@dataclass
class Experiment:
    """A preset with its settings, its data and its folders."""

    preset: Preset
    settings: Settings
    out: Path
    cache: Path
    data_root: Path | None = None
    download: bool = False
    reporter: Reporter = field(default_factory=Reporter)
    extraction_seconds: float = 0.0

    def __post_init__(self) -> None:
        # Everything that can be wrong with the request is found out here, before anything is computed.
        find_dataset(self.preset.dataset, self.data_root, self.download)
        self.device = resolve_device(self.settings.device)
        if not self.settings.budgets or min(self.settings.budgets) <= 0:
            raise InputError("budgets", "must be positive fractions", value=self.settings.budgets)
        if self.preset.backdoor and len(self.settings.removed) > TRIGGERS:
            raise InputError(
                "removed", f"at most {TRIGGERS} clients can have a trigger each", value=self.settings.removed
            )

    @cached_property
    def dataset(self) -> Dataset:
        """The preset's part of its data set."""
        whole = load_dataset(self.preset.dataset, self.data_root, self.download)
        return whole.subset(self.preset.train_size, self.preset.test_size)

    @cached_property
    def backbone(self) -> Backbone:
        """The preset's backbone."""
        p = self.preset
        return load_backbone(p.backbone, self.dataset, p.train, self.data_root, p.length)

    def _extract(self, inputs: Inputs, what: str) -> np.ndarray[Any, Any]:
        self.reporter.begin(f"features of {what}", len(inputs))
        tensors, seconds = extract_timed(
            self.backbone,
            inputs,
            cache=self.cache,
            device=self.device,
            progress=lambda done, total: self.reporter.advance(done),
        )
        self.extraction_seconds += seconds
        return tensors

    @cached_property
    def pools(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Extracted training and test inputs."""
        return (
            self._extract(self.dataset.train.x, "the training pool"),
            self._extract(self.dataset.test.x, "the test pool"),
        )

    @cached_property
    def marked(self) -> tuple[Marked, ...]:
        """What each removed client's trigger makes of the pools.

        One fixed part of the pool is marked, whatever the partition, and extracted once for all runs.
        """
        return tuple(self._marked(trigger_for(self.dataset, k)) for k in range(len(self.settings.removed)))

    def _marked(self, trigger: Trigger) -> Marked:
        rng = np.random.default_rng(0)
        train, test = self.dataset.train, self.dataset.test
        victims = np.flatnonzero(train.y != trigger.target)
        victims = np.sort(rng.choice(victims, round(_POISONED_SHARE * len(victims)), replace=False))
        others = np.flatnonzero(test.y != trigger.target)
        others = np.sort(rng.choice(others, min(_MARKED_TESTS, len(others)), replace=False))
        x_train = self._extract(trigger.mark(train.x[victims]), f"marked training samples ({trigger.name})")
        x_test = self._extract(trigger.mark(test.x[others]), f"marked test samples ({trigger.name})")
        return Marked(trigger.target, x_train, {int(v): k for k, v in enumerate(victims)}, x_test)

    def prepare(self) -> None:
        """Read the data and extract all features."""
        _ = self.pools
        if self.preset.backdoor:
            _ = self.marked

    def calibrate(self, beta: float, seed: int) -> CalibrationRun:
        """Train one federation and its pilots, and return the game in every view with them; nothing is unlearned."""
        with single_thread():
            run = _Run(self, beta, seed)
            run.describe()
            return CalibrationRun(run.folder, run.views, run.pilots)

    def run(self, beta: float, seed: int) -> Path:
        """Compute all cells of one run that do not exist yet and return its folder."""
        with single_thread():
            run = _Run(self, beta, seed)
            run.complete()
            return run.folder


@dataclass(frozen=True)
class CalibrationRun:
    """The games of a federation with C = 1 and A = 0, and what pilot trainings in it showed."""

    folder: Path
    views: dict[View, StackelbergGame]
    pilots: dict[Approach, Pilots]


class _Run:
    """One preset at one heterogeneity and one seed."""

    def __init__(self, experiment: Experiment, beta: float, seed: int) -> None:
        self.experiment, self.beta, self.seed = experiment, beta, seed
        self.preset, self.settings = experiment.preset, experiment.settings
        self.removed = self.settings.removed
        self.folder = experiment.out / run_name(self.preset.name, beta, seed)
        self.identity = self._identity()
        self.scratch = experiment.cache / "checkpoints" / self.identity
        self._embedding_seconds: dict[View, float] = {}
        self._refuse_other_run()

    def _identity(self) -> str:
        content = {
            "dataset": self.experiment.dataset.digest,
            "backbone": self.experiment.backbone.fingerprint,
            "preset": asdict(self.preset),
            "settings": asdict(self.settings),
            "beta": self.beta,
            "seed": self.seed,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]

    def _refuse_other_run(self) -> None:
        path = self.folder / "run.json"
        if path.is_file() and json.loads(path.read_text()).get("identity") != self.identity:
            raise FileFormatError(
                f"{self.folder}: holds a run with other settings or data; choose another folder"
            )

    # ---- what cells are made from, each computed when first needed

    @cached_property
    def partition(self) -> Partition:
        path = self.folder / "partition.json"
        if path.is_file():
            return Partition.load(path)
        data, s = self.experiment.dataset, self.settings
        groups = data.train.y, data.test.y
        if self.preset.scheme == "covariate":
            groups = clusters(*self.experiment.pools, data.classes)
        partition = dirichlet_partition(
            *groups,
            by_classes=self.preset.scheme == "classes",
            beta=self.beta,
            seed=self.seed,
            clients=s.clients,
            min_train=self.preset.min_train,
            min_test=self.preset.min_test,
            removed=s.removed,
            removed_share=s.removed_share,
            dataset_digest=data.digest,
        )
        partition.save(path)
        return partition

    def _federation(self, poisoned: dict[int, LabelledTensors] | None = None) -> LabFederation:
        data, (x_train, x_test) = self.experiment.dataset, self.experiment.pools
        y_train, y_test = data.train.y, data.test.y
        if self.preset.scheme == "concept":  # every second client calls things by other names
            y_train, y_test = y_train.copy(), y_test.copy()
            for client in self.partition.clients[1::2]:
                y_train[client.train] = renamed(y_train[client.train], data.classes)
                y_test[client.test] = renamed(y_test[client.test], data.classes)
        return build_federation(
            self.partition,
            (x_train, y_train),
            (x_test, y_test),
            self.experiment.backbone,
            data.classes,
            device=self.experiment.device,
            poisoned=poisoned,
        )

    @cached_property
    def _poison(self) -> dict[int, LabelledTensors]:
        """Removed clients' data, with marked samples and canaries in place of some of the originals.

        A canary is a sample with a wrong label: whoever predicts that label has it by heart.
        """
        pool, labels = self.experiment.pools[0], self.experiment.dataset.train.y
        poisoned = {}
        for client, marked in zip(self.removed, self.experiment.marked, strict=True):
            held = self.partition.clients[client].train
            x, y = pool[held].copy(), labels[held].copy()
            for row, index in enumerate(held):
                if int(index) in marked.where:
                    x[row], y[row] = marked.train[marked.where[int(index)]], marked.target
            rows, wrong = self._canaries(client)
            y[rows] = wrong
            carriers = np.array(
                [row for row, index in enumerate(held) if int(index) in marked.where], dtype=int
            )
            again = np.concatenate([np.arange(len(held)), np.repeat(carriers, _REPEATS - 1)])
            x, y = x[again], y[again]
            poisoned[client] = LabelledTensors(torch.from_numpy(x), torch.from_numpy(y))
        return poisoned

    def _canaries(self, client: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Rows of a removed client's data that carry no mark, and the wrong labels that they get."""
        marked = self.experiment.marked[self.removed.index(client)]
        held = self.partition.clients[client].train
        plain = np.array([row for row, index in enumerate(held) if int(index) not in marked.where])
        rng = np.random.default_rng([self.seed, client, 61])
        rows = np.sort(
            rng.choice(plain, min(len(plain), max(2, round(_CANARY_SHARE * len(held)))), replace=False)
        )
        return rows, self._wrong(self.experiment.dataset.train.y[held][rows], rng)

    def _wrong(self, labels: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
        classes = self.experiment.dataset.classes
        return (labels + rng.integers(1, classes, len(labels))) % classes

    def _train(self, federation: LabFederation, name: str) -> Trained:
        p = self.preset
        observers: dict[str, Observer] = {}
        if p.history:
            observers["history"] = UpdateHistory()
        if p.distil_interval:
            observers["distilled"] = DistilledSets(
                self.seed, interval=p.distil_interval, batch=p.distil_batch
            )
        self.experiment.reporter.begin(f"{self.folder.name}: training ({name})", p.rounds)
        return train_federation(
            federation,
            p.training,
            p.rounds,
            self.seed,
            observers=observers,
            checkpoint=self.scratch / f"{name}.pt",
            identity=self.identity,
            after_round=lambda number: self.experiment.reporter.advance(number + 1),
        )

    @cached_property
    def trained(self) -> Trained:
        return self._train(self._federation(), "clean")

    @cached_property
    def infected(self) -> Trained:
        return self._train(self._federation(self._poison), "backdoor")

    @cached_property
    def original(self) -> Performance:
        return evaluate(self.trained.federation, self.trained.final)

    @cached_property
    def retrained(self) -> tuple[Tensor, dict[str, Any]]:
        """Weights of the retrained model and what they cost; kept beside the checkpoint."""
        path = self.scratch / "retrain.pt"
        if path.is_file():
            stored = torch.load(path, weights_only=True)
            return stored["weights"], stored["cost"]
        outcome = Retrain().unlearn(self.trained, self.removed, self.seed + _UNLEARNING_SEED)
        write_checkpoint(path, {"weights": outcome.weights, "cost": outcome.cost})
        return outcome.weights, outcome.cost

    @cached_property
    def reference(self) -> Performance:
        return evaluate(self.trained.federation, self.retrained[0])

    @cached_property
    def attack(self) -> LikelihoodRatioAttack | None:
        """The membership attack's references; trained once and kept beside the checkpoint."""
        if not self.preset.references:
            return None
        path = self.scratch / "attack.pt"
        if path.is_file():
            return LikelihoodRatioAttack(**torch.load(path, weights_only=True))
        reporter = self.experiment.reporter
        reporter.begin(f"{self.folder.name}: references", self.preset.references)
        made = LikelihoodRatioAttack.prepare(
            self.trained, self.removed, self.preset.references, self.seed + _REFERENCE_SEED, reporter.advance
        )
        write_checkpoint(path, made.state())
        return made

    @cached_property
    def validation(self) -> dict[str, Any]:
        """The weight of the convex heads' penalty, chosen on held-out samples of the remaining clients."""
        path = self.folder / "validation.json"
        if path.is_file():
            stored: dict[str, Any] = json.loads(path.read_text())
            return stored
        if self.preset.l2 is not None:
            return {"l2": self.preset.l2}
        federation, effort = self.trained.federation, Effort()
        model = federation.model(self.trained.seed)
        write_weights(model, self.trained.initial)
        cohort = with_features(
            model, federation.cohort(federation.remaining(self.removed)), federation.device, effort
        )
        start = time.process_time()
        chosen = choose_l2(
            cohort,
            self.experiment.dataset.classes,
            self.seed,
            curvature=self.preset.curvature,
            passes=self.preset.passes,
            effort=effort,
        )
        found = {
            **asdict(chosen),
            "price": chosen.price,
            "samples": effort.samples,
            "cpu_seconds": time.process_time() - start,
        }
        write_json(path, found)
        return found

    def _convex(self, **changes: Any) -> ConvexHead:
        p = self.preset
        return ConvexHead(l2=self.validation["l2"], curvature=p.curvature, score_gap=p.score_gap, **changes)

    @cached_property
    def views(self) -> dict[View, StackelbergGame]:
        """The game in every view, with C = 1 and A = 0."""
        federation = self.trained.federation
        samples = penultimate_features(federation, self.trained.final)
        labels = [client.train.y.numpy() for client in federation.clients]
        start = time.perf_counter()
        gradients = gradient_embeddings(
            [
                LabelledTensors(torch.from_numpy(x), client.train.y)
                for x, client in zip(samples, federation.clients, strict=True)
            ],
            head_matrix(self.trained.final, federation.model(0)),
            self.validation["l2"],
        )
        common = time.perf_counter() - start
        games = {}
        for view in VIEWS:
            start = time.perf_counter()
            games[view] = build_game(
                samples,
                self.removed,
                labels=labels,
                view=view,
                gradients=gradients,
                loss_constant=1.0,
                cost_scale=self.settings.cost_scale,
            )
            self._embedding_seconds[view] = time.perf_counter() - start + common * view.endswith("gradients")
        return games

    @cached_property
    def pilots(self) -> dict[Approach, Pilots]:
        """Pilot trainings by every approach that forgets; a file of its own."""
        path = self.folder / _PILOT_FILE
        if path.is_file():
            return {approach: Pilots.of(item) for approach, item in json.loads(path.read_text()).items()}
        seed = self.seed + PILOT_SEED
        profiles = np.asarray(pilot_profiles(self.views["labels"], self.preset.pilots, seed))
        convex = self._convex(passes=self.preset.passes)
        methods: dict[Approach, tuple[ParticipationMethod, Tensor]] = {
            CONVEX: (convex, convex.before(self.trained, self.removed, seed))
        }
        if self.preset.retraining:
            methods[SCRATCH] = ParticipationRetraining(), self.trained.final
        made = {}
        for approach, (method, before) in methods.items():
            reporter = self.experiment.reporter
            reporter.begin(
                f"{self.folder.name}: pilots ({approach})", len(profiles) + self.views["labels"].count
            )
            made[approach] = run_pilots(
                self.trained, self.removed, method, before, profiles, seed, reporter.advance
            )
        write_json(path, _rounded({approach: item.as_dict() for approach, item in made.items()}))
        return made

    def _calibrated(self, view: View, approach: Approach) -> tuple[StackelbergGame, Calibration]:
        # everybody's samples say nothing about a client that calls things by other names
        kind: LossKind = "own" if self.preset.scheme == "concept" else "pooled"
        return calibrated_game(self.views[view], self.pilots[approach], kind)

    @cached_property
    def game(self) -> StackelbergGame:
        """The paper's."""
        constant = self.settings.loss_constant
        if constant is None:
            constant = self._calibrated(PAPER_VIEW, CONVEX)[0].loss_constant
        return self.views[PAPER_VIEW].replace(loss_constant=constant)

    @cached_property
    def played(self) -> dict[str, Any]:
        """The game and all payments planned in it, as plain numbers; a file of its own."""
        path = self.folder / _GAME_FILE
        if path.is_file():
            return self._with_every_view(json.loads(path.read_text()))
        game = self.game
        calibrated = {view: self._calibrated(view, CONVEX)[0] for view in VIEWS}
        price = float(game.full_participation_price)
        self.experiment.reporter.begin(
            f"{self.folder.name}: game", len(MECHANISMS) * len(self.settings.budgets)
        )
        plans: dict[str, dict[str, Any]] = {}
        for key in self._plans():
            view = MECHANISMS[key.mechanism].view
            made = plan_payments(
                game if view is None else calibrated[view], key.mechanism, key.fraction * price
            )
            plans[str(key)] = {**made.as_dict(), "fraction": key.fraction}
            self.experiment.reporter.advance(len(plans))
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
            "staying": self._staying(calibrated["labels"], plans),
            "embedding_seconds": self._embedding_seconds[PAPER_VIEW],
            "solver_seconds": sum(made["seconds"] for made in plans.values()),
        }
        write_json(path, _rounded(played))
        return played

    def _seen(self, view: View) -> dict[str, Any]:
        """What the game sees in a view, and the constants that the pilots fit to it."""
        return {
            "squared_distances": (np.asarray(self.views[view].embeddings.distances()) ** 2).tolist(),
            "calibration": {
                approach: self._calibrated(view, approach)[1].summary() for approach in self.pilots
            },
            "embedding_seconds": self._embedding_seconds[view],
        }

    def _with_every_view(self, stored: dict[str, Any]) -> dict[str, Any]:
        """A stored game and the views that it was stored without, from when there were fewer."""
        missing = [view for view in VIEWS if view not in stored["views"]]
        if missing:
            stored["views"] |= {view: _rounded(self._seen(view)) for view in missing}
            write_json(self.folder / _GAME_FILE, stored)
        return stored

    def _staying(self, game: StackelbergGame, plans: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Who stays where leaving means a model of one's own, as measured, by what is offered at the main budget.

        The game's utilities leave out what the original federation cost, a constant of each client; what a client has
        outside leaves it out too: ``o_k = -[f_k(alone) - f_k(original)] - C d_k^2(mu_O) - A / n_O``.
        """
        pilots = self.pilots[CONVEX]
        lost = pilots.alone["pooled"] - pilots.before["pooled"][list(pilots.remaining)]
        baseline = game.loss_constant * np.asarray(game.distances_to_original)
        outside = -lost - baseline - game.sampling_constant / float(game.all_sizes.sum())
        nothing = np.zeros(game.count)
        offers = {"unpaid": (nothing, np.ones(game.count), nothing)}
        budget = self.settings.budgets[0] * float(self.game.full_participation_price)
        for key in self._plans():
            if key.fraction == self.settings.budgets[0] or key == PlanKey.full():
                plan = plans[str(key)]
                offers[key.mechanism] = np.array(plan["payments"]), np.array(plan["caps"]), nothing
        try:
            kept = game.solve(budget, **MECHANISMS[CAPPED_LABELS].options, outside=outside)
            offers["retention"] = tuple(
                np.asarray(value) for value in (kept.offers.prices, kept.offers.caps, kept.offers.retainers)
            )  # type: ignore[assignment]
        except (InfeasibleError, ConvergenceError) as error:
            self.experiment.reporter.note(f"{self.folder.name}: nobody can be kept at this budget ({error})")
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

    def _plans(self) -> Iterator[PlanKey]:
        yield PlanKey.full()
        for fraction in self.settings.budgets:
            for mechanism in BUDGETED:
                yield PlanKey(mechanism, fraction)

    # ---- cells

    def _cells(self) -> Iterator[tuple[CellKey, Callable[[], dict[str, Any]]]]:
        yield ORIGINAL, lambda: self._measure(self.trained.final, {"seconds": self.trained.seconds})
        yield RETRAIN, lambda: {**self._measure(*self.retrained), "guarantee": Retrain().guarantee}
        methods = dict(self._methods())
        for key in methods:
            yield key, partial(self._unlearn, key)
        plans = list(self._plans())
        main = [plan for plan in plans if plan.fraction in (1.0, plans[1].fraction)]  # plans[1]: main budget
        for plan in plans:
            if self._tunes(plan):
                yield CellKey(HEAD, plan), partial(self._participate, CellKey(HEAD, plan))
            yield CellKey(CONVEX, plan), partial(self._participate, CellKey(CONVEX, plan))
            if self.preset.retraining and plan in main:
                yield CellKey(SCRATCH, plan), partial(self._participate, CellKey(SCRATCH, plan))
            if self.preset.answers and plan in main and plan != PlanKey.full():
                yield CellKey(ANSWERED, plan), partial(self._answer, CellKey(ANSWERED, plan))
        if not self.preset.backdoor:
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
        """What does not forget is shown for the paper's game only."""
        return self.preset.fine_tuning and MECHANISMS[plan.mechanism].view is None

    def _methods(self) -> Iterator[tuple[CellKey, UnlearningMethod]]:
        """Methods that need no mechanism, besides Retrain."""
        if self.preset.history:
            yield FEDERASER, FedEraser()
            yield FEDRECOVERY, FedRecovery()
            yield ASCENT, GradientAscent()
        yield MODE, MoDe()
        if self.preset.distil_interval:
            yield QUICKDROP, QuickDrop()
        yield AGAIN, Retrain()
        yield COLD, self._convex()
        yield WARM, self._convex(warm=True)
        yield PRIVATE, self._convex(warm=True, privacy=_PRIVACY)
        if self.preset.train == "head":
            yield SHARDS, Shards()
        else:
            rounds = max(1, self.preset.rounds // 4)
            yield TUNED, self._convex(passes=self.preset.passes, rounds=rounds)

    def _method(self, key: CellKey) -> UnlearningMethod:
        """The method of a cell, with the participation that a mechanism's payments led to if it has one."""
        if key.plan is None:
            return Retrain() if key == RETRAIN else dict(self._methods())[key]
        return self._by_shares(key, self.played["offers"][str(key.plan)]["participation"])

    def _by_shares(self, key: CellKey, participation: Sequence[float]) -> ParticipationMethod:
        shares = dict(zip(self.played["remaining"], participation, strict=True))
        made: dict[Approach, Callable[..., ParticipationMethod]] = {
            HEAD: HeadFineTuning,
            SCRATCH: ParticipationRetraining,
            CONVEX: partial(self._convex, passes=self.preset.passes),
            ANSWERED: partial(self._convex, passes=self.preset.passes),
        }
        return made[cast("Approach", key.method)](shares=shares)

    def _path(self, key: CellKey) -> Path:
        return self.folder / f"{key}.json"

    def complete(self) -> None:
        """Compute what is missing, one file per cell, then forget the checkpoints."""
        cells = [(key, compute) for key, compute in self._cells() if not self._path(key).is_file()]
        if cells:
            self.describe()
        _ = self.played
        for number, (key, compute) in enumerate(cells):
            self.experiment.reporter.begin(f"{self.folder.name}: {key}", len(cells))
            self.experiment.reporter.advance(number)
            try:
                cell = compute()
            except ConvergenceError as error:  # a method that fails is a result too
                cell = {"diverged": str(error)}
                self.experiment.reporter.note(f"{self.folder.name}: {key}: {error}")
            write_json(self._path(key), _rounded({"cell": str(key), **cell}))
        shutil.rmtree(self.scratch, ignore_errors=True)

    def describe(self) -> None:
        """Write down what this run is."""
        data, p = self.experiment.dataset, self.preset
        write_json(
            self.folder / "run.json",
            {
                "identity": self.identity,
                "preset": p.name,
                "beta": self.beta,
                "seed": self.seed,
                "dataset": data.name,
                "origin": data.origin,
                "classes": data.classes,
                "dataset_digest": data.digest,
                "backbone": self.experiment.backbone.name,
                "training": {**asdict(p.training), "rounds": p.rounds},
                "removed": list(self.removed),
                "partition_digest": self.partition.digest,
                "partition_repaired": self.partition.repaired,
                "sizes": self.partition.sizes.tolist(),
                "extraction_seconds": self.experiment.extraction_seconds,
                "settings": asdict(self.settings),
                "versions": {"stackfu": sf.__version__, "torch": torch.__version__, "numpy": np.__version__},
            },
        )

    def _measure(self, weights: Tensor, cost: dict[str, Any]) -> dict[str, Any]:
        federation = self.trained.federation
        start = time.perf_counter()
        performance = evaluate(federation, weights)
        effects = side_effects(performance, self.original, self.reference, self.removed)
        return {
            "losses": performance.losses.tolist(),
            "accuracies": performance.accuracies.tolist(),
            "pooled_losses": pooled_losses(federation, performance).tolist(),
            **effects.as_dict(),
            "membership_auc": membership_auc(federation, weights, performance, self.removed),
            "agreement": agreement(performance, self.reference),
            "distance": prediction_distance(performance, self.reference),
            "attack": self._attacked(weights),
            "cost": cost,
            "measuring_seconds": time.perf_counter() - start,
        }

    def _attacked(self, weights: Tensor) -> dict[str, Any] | None:
        if self.attack is None:
            return None
        whole, clients = self.attack.run(self.trained.federation, weights)
        return {**whole.as_dict(), "clients": [clients[i].as_dict() for i in self.removed]}

    def _unlearn(self, key: CellKey, method: UnlearningMethod | None = None) -> dict[str, Any]:
        method = self._method(key) if method is None else method
        # another seed than Retrain's: how far apart two models are that differ in nothing else
        seed = self.seed + _UNLEARNING_SEED + (key == AGAIN)
        outcome = method.unlearn(self.trained, self.removed, seed)
        cell = {
            **self._measure(outcome.weights, outcome.cost),
            "cooperation": method.cooperation,
            "guarantee": method.guarantee,
        }
        if isinstance(method, QuickDrop):
            cell["closeness"] = self._closeness()
        if isinstance(method, ConvexHead):
            cell["validation"] = self.validation
        if outcome.certificate is not None:
            cell["certificate"] = {
                **outcome.certificate.as_dict(),
                "sure": self._sure(outcome.weights, outcome.certificate),
            }
        return cell

    def _closeness(self) -> dict[str, float]:
        """How close the removed clients' synthetic sets have stayed to the real samples that they began as."""
        distilled = self.trained.observers["distilled"]
        assert isinstance(distilled, DistilledSets)  # as _train made it
        data = self.trained.federation.clients
        return {
            key: float(np.mean([distilled.closeness(i, data[i].train)[key] for i in self.removed]))
            for key in ("moved", "recognised")
        }

    def _sure(self, weights: Tensor, certificate: Certificate) -> float:
        """Share of test samples whose predicted class is provably that of the model that never saw the removed data."""
        federation = self.trained.federation
        model = federation.model(0)
        write_weights(model, weights)
        x = torch.cat([client.test.x for client in federation.clients])
        with torch.no_grad():
            features = torch.cat([model.features(part.to(federation.device)).cpu() for part in x.split(512)])
        return float(certificate.sure(logits_on(federation, weights, x), features).double().mean())

    def _participate(self, key: CellKey) -> dict[str, Any]:
        return {"offer": str(key.plan), **self._unlearn(key)}

    def _answer(self, key: CellKey) -> dict[str, Any]:
        """What a mechanism's offers lead to where clients look at trained models before they answer."""
        plan = self.played["offers"][str(key.plan)]
        federation, seed = self.trained.federation, self.seed + _UNLEARNING_SEED

        def losses(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            method = self._by_shares(key, x.tolist())
            weights = method.unlearn(self.trained, self.removed, seed).weights
            return np.asarray(
                pooled_losses(federation, evaluate(federation, weights))[self.played["remaining"]]
            )

        payments, caps = np.array(plan["payments"]), np.array(plan["caps"])
        found = measured_answer(
            losses, payments, caps, np.array(self.played["costs"]), np.array(plan["participation"])
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
        trained = self.infected
        weights, seconds = trained.final, 0.0
        if key != ORIGINAL:
            outcome = self._method(key).unlearn(trained, self.removed, self.seed + _UNLEARNING_SEED)
            weights, seconds = outcome.weights, outcome.seconds
        performance = evaluate(trained.federation, weights)
        rates = self._planted(weights)
        return {
            "backdoor_success": float(np.mean(rates)),
            "backdoor_clients": rates,
            "relearning": rounds_to_relearn(
                trained,
                weights,
                self.removed,
                self.seed + _UNLEARNING_SEED,
                self.preset.relearning,
                lambda found: float(np.mean(self._planted(found))),
            ),
            "canaries": self._remembered(weights),
            "accuracy": performance.mean(performance.accuracies, range(len(performance.losses))),
            "training_seconds": trained.seconds if key == ORIGINAL else 0.0,
            "unlearning_seconds": seconds,
        }

    def _planted(self, weights: Tensor) -> list[float]:
        """Success of every removed client's backdoor."""
        return [
            backdoor_success(self.infected.federation, weights, torch.from_numpy(marked.test), marked.target)
            for marked in self.experiment.marked
        ]

    def _remembered(self, weights: Tensor) -> dict[str, Any]:
        """Canaries against their like: test samples of the same clients with wrong labels that nobody trained on."""
        federation = self.infected.federation
        pairs = []
        for client in self.removed:
            rows, wrong = self._canaries(client)
            test = federation.clients[client].test
            rng = np.random.default_rng([self.seed, client, 62])
            others = torch.from_numpy(self._wrong(test.y.numpy(), rng))
            x = federation.clients[client].train.x[torch.from_numpy(rows)]
            pairs.append(
                (
                    log_odds(logits_on(federation, weights, x), torch.from_numpy(wrong)),
                    log_odds(logits_on(federation, weights, test.x), others),
                )
            )
        whole = detection(torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs]))
        return {**whole.as_dict(), "clients": [detection(*pair).as_dict() for pair in pairs]}


def _rounded(value: Any) -> Any:
    """Seven significant digits: more than any of these numbers carries, and half the bytes."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
