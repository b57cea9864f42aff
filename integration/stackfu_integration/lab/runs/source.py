"""Shared inputs of an experiment's runs: settings, folders, the data set, its features and their marked versions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stackfu.errors import InputError
from stackfu_integration.lab.data import TRIGGERS, Dataset, Trigger, find_dataset, load_dataset, trigger_for
from stackfu_integration.lab.data.datasets import Inputs
from stackfu_integration.lab.models import load_backbone
from stackfu_integration.lab.models.backbones import Backbone
from stackfu_integration.lab.models.extraction import extract_timed
from stackfu_integration.lab.presets import Preset
from stackfu_integration.lab.runtime import resolve_device

__all__ = ["Marked", "Reporter", "Settings", "Source", "run_name"]


_POISONED_SHARE = 0.2
_MARKED_TESTS = 1000


@dataclass(frozen=True)
class Settings:
    """Settings of an experiment in addition to its preset.

    ``budgets`` are fractions of the price of full participation, so that they mean the same for every
    federation; the first one is the main budget, at which retraining and backdoors are measured too.
    ``loss_constant`` of ``None`` takes the C that the pilots fit to the paper's view. Views with mechanisms that need a
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
class Source:
    """A preset with its settings, its folders and its data; features are extracted once for all runs."""

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
        """Pools with each removed client's trigger.

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
