"""Many runs, several at a time: what ``make experiments`` does.

Features are extracted first, by one process that may use all cores; then every run of every preset is a task of its own for
a pool of processes with one thread each. What is finished is never computed again, so that an interrupted campaign goes on
where it stopped.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from stackfu.errors import InputError, StackfuError
from stackfu_integration.lab.experiment import Experiment, Reporter, Settings
from stackfu_integration.lab.presets import Preset, preset

__all__ = ["Campaign", "Task"]


@dataclass(frozen=True)
class Task:
    """One run of one preset."""

    preset: str
    beta: float
    seed: int

    def __str__(self) -> str:
        return f"{self.preset}, β = {self.beta:g}, seed {self.seed}"


@lru_cache(maxsize=1)
def _experiment(
    chosen: Preset, settings: Settings, out: Path, cache: Path, data_root: Path | None
) -> Experiment:
    """Return the experiment of a preset; a process keeps the last one, with its features in memory."""
    return Experiment(chosen, settings, out, cache, data_root)


def _compute(
    chosen: Preset, settings: Settings, out: Path, cache: Path, data_root: Path | None, beta: float, seed: int
) -> Path:
    from stackfu_integration.lab.payments import warm_up

    warm_up()
    return _experiment(chosen, settings, out, cache, data_root).run(beta, seed)


@dataclass(frozen=True)
class Campaign:
    """Presets, betas and seeds, and where everything lies.

    Presets that train layers take ten times as long and get ``few_seeds``.
    """

    presets: tuple[Preset, ...]
    betas: tuple[float, ...]
    seeds: int
    few_seeds: int
    settings: Settings
    out: Path
    cache: Path
    data_root: Path | None = None
    first_seed: int = 0

    def __post_init__(self) -> None:
        if not self.presets or not self.betas or min(self.seeds, self.few_seeds) < 1:
            raise InputError("presets", "a campaign needs presets, betas and seeds")
        for chosen in self.presets:  # a data set that is missing is found out before anything is computed
            self.experiment(chosen)

    @classmethod
    def of(cls, names: Sequence[str], **options: object) -> Campaign:
        """By names of presets."""
        lean, brief = options.pop("lean", False), options.pop("brief", False)
        if lean and brief:
            raise InputError("brief", "is not lean: choose one of the two", value=True)
        chosen = tuple(replace(preset(name), answers=bool(options.get("answers"))) for name in names)
        options.pop("answers", None)
        if lean or brief:
            chosen = tuple(p.lean if lean else p.brief for p in chosen)
        return cls(chosen, **options)  # type: ignore[arg-type]

    def experiment(self, chosen: Preset) -> Experiment:
        """Return the experiment of one preset."""
        return Experiment(chosen, self.settings, self.out, self.cache, self.data_root)

    def seeds_of(self, chosen: Preset) -> int:
        """Number of seeds of a preset."""
        return self.seeds if chosen.train == "head" else self.few_seeds

    def tasks(self) -> Iterator[Task]:
        """All runs: seed by seed, so that an early stop leaves every preset with the same seeds."""
        for seed in range(max(self.seeds, self.few_seeds)):
            for chosen in self.presets:
                for beta in self.betas:
                    if seed < self.seeds_of(chosen):
                        yield Task(chosen.name, beta, self.first_seed + seed)

    def prepare(self, reporter: Reporter) -> None:
        """Extract the features of all presets."""
        for chosen in self.presets:
            experiment = self.experiment(chosen)
            experiment.reporter = reporter
            experiment.prepare()

    def run(
        self,
        jobs: int,
        finished: Callable[[Task], None],
        failing: Callable[[Task, Exception], None] = lambda task, error: None,
    ) -> None:
        """Compute every run, ``jobs`` at a time; runs that fail are named at once and at the end, and the others go on."""
        if jobs < 1:
            raise InputError("jobs", "must be at least 1", value=jobs)
        chosen = {p.name: p for p in self.presets}
        settings = replace(self.settings)
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            places = (self.out, self.cache, self.data_root)
            futures = {
                pool.submit(_compute, chosen[task.preset], settings, *places, task.beta, task.seed): task
                for task in self.tasks()
            }
            failed: dict[Task, Exception] = {}
            try:
                for future in as_completed(futures):
                    task = futures[future]
                    try:
                        future.result()
                    except BrokenProcessPool:  # a killed process takes all others with it
                        raise
                    except Exception as error:
                        failed[task] = error
                        failing(task, error)
                    else:
                        finished(task)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if failed:
            said = "; ".join(f"{task}: {error}" for task, error in failed.items())
            first = next(iter(failed.values()))
            raise StackfuError(f"{len(failed)} of {len(futures)} runs failed: {said}") from first
