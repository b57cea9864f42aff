"""Forecast of an experiment before it starts: memory and time from a few real samples.

A few inputs go through the frozen part and a few batches through the trained part; everything else is counting. Gradients of
single samples are counted method by method as the experiment will run them, so that a forecast and a finished run speak of
the same quantity. On a CPU time is processor time: what it will take on this machine when nothing else runs on it. Games and
measures are counted too, at what they took on two ordinary cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from stackfu_integration.lab.data.datasets import Inputs
from stackfu_integration.lab.experiment import Experiment
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.local import local_train
from stackfu_integration.lab.mechanisms import BUDGETED
from stackfu_integration.lab.models.classifier import Classifier
from stackfu_integration.lab.presets import Preset
from stackfu_integration.lab.runtime import single_thread

__all__ = ["Forecast", "forecast", "passes_per_run"]

_GAME_SECONDS = 0.3  # of one plan; capped offers take most of it
_MEASURE_SECONDS = 0.03  # of one cell beside its training: test losses, distances, attacks
_LOOKS = 50  # trainings that clients look at before they settle on an answer


def passes_per_run(preset: Preset, budgets: int) -> tuple[float, float]:
    """Passes over the federation's data in one run: through the trained part, and through the head alone.

    Unlearning counts as if no client were removed and all took part: an upper estimate.

    >>> from stackfu_integration.lab.presets import preset
    >>> whole, head = passes_per_run(preset("digits"), budgets=1)
    >>> whole > head > 0
    True
    """
    training = preset.rounds * preset.training.epochs
    twice = 2 if preset.backdoor else 1  # the federation with backdoors
    plans = 1 + budgets * len(BUDGETED)
    main = 1 + len(BUDGETED)
    whole = training * (twice + preset.references)  # the model itself and the attack's references
    whole += training * (twice + preset.rivals)  # Retrain, and again
    # FedEraser, ascent with its repair, and SIFU
    whole += (1.75 * training + 5) * twice if preset.history else 0.0
    whole += training * (1.5 * preset.pilots / 4 + 1)  # pilots, and every client alone
    whole += 16.0 * twice * preset.rivals  # MoDe: 6 rounds of a fresh model, 10 of guidance
    # NoT's fine-tuning, and FedOSD's two stages of one epoch a round
    whole += (0.25 * training + 0.5 * preset.rounds) * twice * preset.rivals
    whole += training * main if preset.retraining else 0.0
    shared = 0.25 * training + 2  # a convex head on public layers, then a quarter of the rounds; or shards
    whole += twice * (training if preset.train == "head" else shared) * preset.rivals
    cells = plans + main * (twice - 1)
    head = (
        cells * (training * preset.fine_tuning + preset.passes)
        + 3 * twice * 4 * preset.passes * preset.rivals
    )  # three heads to their optimum
    head += preset.answers * len(BUDGETED) * _LOOKS * preset.passes
    if preset.train == "head":
        return whole + head, head
    return whole, head


@dataclass(frozen=True)
class Forecast:
    """Bytes and seconds for one preset; ``features`` are kept on disk and in memory, ``history`` in memory."""

    preset: str
    runs: int
    samples: int
    trained_parameters: int
    feature_bytes: int
    model_bytes: int
    history_bytes: int
    extraction_seconds: float
    training_seconds: float
    other_seconds: float  # games and measures of one run
    device: str

    @property
    def memory(self) -> int:
        """Features, model with gradients and optimizer, and the stored history."""
        return self.feature_bytes + self.model_bytes + self.history_bytes

    @property
    def seconds(self) -> float:
        """Extraction once, then every run."""
        return self.extraction_seconds + self.runs * self.run_seconds

    @property
    def run_seconds(self) -> float:
        """One run on features that are there."""
        return self.training_seconds + self.other_seconds

    def text(self) -> str:
        """Return one line for people."""
        return (
            f"{self.preset}: {self.runs} runs on {self.samples:,} samples, {self.trained_parameters:,} trained "
            f"parameters on {self.device}; memory {self.memory / 1e9:.2f} GB (features {self.feature_bytes / 1e9:.2f}, "
            f"stored updates {self.history_bytes / 1e9:.2f}); about {self.seconds / 60:.0f} minutes "
            f"(features {self.extraction_seconds / 60:.1f}, a run {self.run_seconds / 60:.1f})"
        )

    def as_dict(self) -> dict[str, float | int | str]:
        """Plain numbers."""
        return {**asdict(self), "memory": self.memory, "seconds": self.seconds}


def _clock(device: torch.device) -> Callable[[], float]:
    """Processor time, which other work does not stretch; a GPU's work shows on the wall clock alone."""
    return time.process_time if device.type == "cpu" else time.perf_counter


def _time_prefix(experiment: Experiment, inputs: Inputs, count: int = 16) -> tuple[float, LabelledTensors]:
    """Seconds per input of the frozen part, and a few of its tensors with labels."""
    chosen, clock = inputs[:count], _clock(experiment.device)
    with torch.inference_mode():
        experiment.backbone.prefix(chosen[:2], experiment.device)  # whatever is done once is done now
        start = clock()
        made = experiment.backbone.prefix(chosen, experiment.device)
        seconds = (clock() - start) / len(chosen)
    labels = torch.from_numpy(experiment.dataset.train.y[: len(made)])
    return seconds, LabelledTensors(torch.from_numpy(made.copy()), labels)


def forecast(experiment: Experiment, runs: int) -> Forecast:
    """Look at a few samples of an experiment and say what ``runs`` runs of it will take."""
    preset, data, clock = experiment.preset, experiment.dataset, _clock(experiment.device)
    with single_thread():
        prefix, few = _time_prefix(experiment, data.train.x)
        model = Classifier(experiment.backbone, data.classes, 0).to(experiment.device)
        rows = torch.arange(max(preset.training.batch, 1) * 2) % len(few)
        batch = few.take(rows)
        settings = preset.training
        local_train(model, batch, 0, settings, device=experiment.device)
        start = clock()
        processed = local_train(model, batch, 1, settings, device=experiment.device)
        gradient = (clock() - start) / processed
        with torch.no_grad():
            features = model.features(batch.x.to(experiment.device)).cpu()
        head = torch.nn.Linear(features.shape[1], data.classes)
        start = clock()
        local_train(head, LabelledTensors(features, batch.y), 1, settings)
        head_gradient = (clock() - start) / processed
    triggers = len(experiment.settings.removed) if preset.backdoor else 0
    marked = triggers * (0.2 * len(data.train) + min(1000, len(data.test)))
    inputs = len(data.train) + len(data.test) + marked
    per_sample = few.x[0].numel() * few.x.element_size()
    parameters = sum(p.numel() for p in model.parameters())
    slots = 4 if preset.training.optimizer == "adam" else 2  # weights, gradients, and Adam's two moments
    budgets = len(experiment.settings.budgets)
    plans = 1 + budgets * len(BUDGETED)
    whole, alone = passes_per_run(preset, budgets)
    if preset.train == "head":
        whole -= alone
    return Forecast(
        preset=preset.name,
        runs=runs,
        samples=len(data.train),
        trained_parameters=parameters,
        feature_bytes=int(inputs * per_sample),
        model_bytes=4 * slots * parameters,
        history_bytes=4 * parameters * preset.rounds * experiment.settings.clients if preset.history else 0,
        extraction_seconds=float(inputs * prefix),
        training_seconds=len(data.train) * (whole * gradient + alone * head_gradient),
        other_seconds=_GAME_SECONDS * plans + _MEASURE_SECONDS * plans * 3 * (1 + preset.backdoor),
        device=str(experiment.device),
    )
