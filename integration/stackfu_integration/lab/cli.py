"""``stackfu-lab run``, ``campaign``, ``calibrate``, ``table``, ``figure`` and ``collect``: experiments and what they show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

app = typer.Typer(no_args_is_help=True, add_completion=False)
console = Console(stderr=True)

DEFAULT_RUNS = Path("runs")


def _positive(word: str, option: str) -> float:
    """Return the positive number that was typed for an option."""
    from stackfu.cli.parsing import number
    from stackfu.errors import InputError

    value = number(word, option)
    if not 0.0 < value < float("inf"):
        raise InputError(option, "must be positive and finite, or 'calibrated'", value=repr(word))
    return value


class _Bars:
    """Progress of an experiment: a bar for the runs and one for what is being computed; in a log file a line per run."""

    def __init__(self, progress: Progress, runs: int) -> None:
        self._progress = progress
        self._runs = progress.add_task("runs", total=runs)
        self._stage: TaskID | None = None

    def begin(self, what: str, steps: int) -> None:
        if self._stage is None:
            self._stage = self._progress.add_task(what, total=steps)
        else:
            self._progress.reset(self._stage, description=what, total=steps)

    def advance(self, to: int) -> None:
        if self._stage is not None:
            self._progress.update(self._stage, completed=to)

    def note(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, soft_wrap=True)

    def run_finished(self, what: str = "") -> None:
        self._progress.advance(self._runs)
        if what and self._stage is not None:
            self._progress.update(self._stage, description=f"finished {what}", advance=1)
        if not self._progress.console.is_terminal:
            runs = next(task for task in self._progress.tasks if task.id == self._runs)
            minutes = (runs.elapsed or 0.0) / 60
            done = f"{runs.completed:g} of {runs.total:g} runs after {minutes:.1f} minutes"
            self.note(f"{done}: {what}" if what else done)


@app.command()
def run(
    preset: Annotated[
        str, typer.Argument(help="digits, ag-news, cifar100, ..., *-finetune, *-full")
    ] = "digits",
    beta: Annotated[list[float] | None, typer.Option(help="Dirichlet concentration; may be repeated")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="number of seeds, counted from --first-seed")] = 1,
    first_seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path, typer.Option(help="folder of the runs")] = DEFAULT_RUNS,
    data_root: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    cache: Annotated[Path | None, typer.Option(help="folder of extracted features and checkpoints")] = None,
    download: Annotated[bool, typer.Option("--download", help="fetch a missing data set")] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="rounds of training instead of the preset's")
    ] = None,
    train: Annotated[
        str | None, typer.Option(help="what to train: head, all, or a number of last blocks")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="another model: a registered name, module:function, or a text model by folder or hub name"
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="other data: a registered name, or module:function")
    ] = None,
    budget: Annotated[
        list[float] | None, typer.Option(help="fractions of the full price; the first is the main one")
    ] = None,
    loss_constant: Annotated[str, typer.Option(help="a number, or 'calibrated'")] = "10",
    answers: Annotated[
        bool,
        typer.Option("--answers", help="also let clients answer as measured losses say; for small heads"),
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what memory and time it will take, and stop")
    ] = False,
) -> None:
    """Train a federation, remove clients, play the game, unlearn and measure; finished cells are kept."""
    import os
    from dataclasses import replace

    from stackfu_integration.lab.experiment import Experiment, Settings
    from stackfu_integration.lab.models.extraction import default_cache
    from stackfu_integration.lab.payments import warm_up
    from stackfu_integration.lab.presets import own
    from stackfu_integration.lab.presets import preset as preset_by_name
    from stackfu_integration.lab.report import load_results
    from stackfu_integration.lab.report.tables import accuracy_table, game_share, wall_clock

    if download:
        os.environ.setdefault("HF_HUB_OFFLINE", "0")
    chosen = replace(own(preset_by_name(preset), model, data), answers=answers)
    if rounds is not None:
        chosen = replace(chosen, rounds=rounds)
    if train is not None:
        chosen = replace(chosen, train=int(train) if train.isdigit() else train)  # type: ignore[arg-type]
    settings = Settings(device=device)
    if budget:
        settings = replace(settings, budgets=tuple(budget))
    constant = None if loss_constant == "calibrated" else _positive(loss_constant, "--loss-constant")
    settings = replace(settings, loss_constant=constant)
    betas = beta or [0.5]
    experiment = Experiment(chosen, settings, out, cache or default_cache(), data_root, download)
    if dry_run:
        from stackfu_integration.lab.forecast import forecast

        print(forecast(experiment, len(betas) * seeds).text())
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bars = _Bars(progress, len(betas) * seeds)
        experiment.reporter = bars  # type: ignore[assignment]
        experiment.prepare()
        warm_up()
        folders = []
        for value in betas:
            for seed in range(first_seed, first_seed + seeds):
                folders.append(experiment.run(value, seed))
                bars.run_finished()
    results = [result for folder in folders for result in load_results(folder)]
    print(accuracy_table(results).markdown())
    stages = [wall_clock(result) for result in results]
    total = {name: sum(stage[name] for stage in stages) for name in stages[0]}
    total["extraction"] = experiment.extraction_seconds  # once for all of these runs
    seconds = sum(total.values())
    print(
        f"wall clock {seconds:.1f} s, of which features {total['extraction']:.1f} s and the game "
        f"{total['embedding'] + total['certified']:.2f} s ({game_share(total):.2%}; "
        f"{game_share(total, cached=True):.2%} without the features): "
        f"embedding {total['embedding']:.2f} s, certified solves {total['certified']:.2f} s; "
        f"HAIPO and uniform, for comparison: {total['baselines']:.2f} s"
    )
    for folder in folders:
        print(f"cells in {folder}")


@app.command()
def campaign(
    presets: Annotated[list[str], typer.Argument(help="presets to run")],
    beta: Annotated[list[float] | None, typer.Option(help="Dirichlet concentration; may be repeated")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="seeds of presets on frozen features")] = 5,
    few_seeds: Annotated[int, typer.Option(min=1, help="seeds of presets that train layers")] = 3,
    out: Annotated[Path, typer.Option(help="folder of the runs")] = DEFAULT_RUNS,
    data_root: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    cache: Annotated[Path | None, typer.Option(help="folder of extracted features and checkpoints")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="runs at a time")] = 2,
    first_seed: Annotated[int, typer.Option(min=0, help="seeds are counted from here")] = 0,
    budget: Annotated[
        list[float] | None, typer.Option(help="fractions of the full price; the first is the main one")
    ] = None,
    answers: Annotated[
        bool,
        typer.Option("--answers", help="also let clients answer as measured losses say; for small heads"),
    ] = False,
    lean: Annotated[
        bool, typer.Option("--lean", help="only what predictions and payments need: no attacks, no rivals")
    ] = False,
    brief: Annotated[
        bool,
        typer.Option("--brief", help="Retrain and mechanisms on what forgets, with backdoors: no rivals"),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what memory and time it will take, and stop")
    ] = False,
) -> None:
    """Run many presets, several runs at a time; says first what it will take, resumes, and shows progress."""
    from stackfu_integration.lab.campaign import Campaign
    from stackfu_integration.lab.experiment import Settings
    from stackfu_integration.lab.forecast import forecast
    from stackfu_integration.lab.models.extraction import default_cache

    betas = tuple(beta or (0.2, 0.5, 0.8))
    chosen = Campaign.of(
        presets,
        betas=betas,
        seeds=seeds,
        few_seeds=few_seeds,
        first_seed=first_seed,
        settings=Settings(budgets=tuple(budget)) if budget else Settings(),
        out=out,
        cache=cache or default_cache(),
        data_root=data_root,
        lean=lean,
        brief=brief,
        answers=answers,
    )
    extraction, training = 0.0, 0.0
    for item in chosen.presets:
        seen = forecast(chosen.experiment(item), len(betas) * chosen.seeds_of(item))
        console.print(seen.text(), highlight=False, soft_wrap=True)
        extraction, training = (
            extraction + seen.extraction_seconds,
            training + seen.runs * seen.run_seconds,
        )
    hours = (extraction + training / jobs) / 3600
    console.print(f"together about {hours:.1f} hours with {jobs} runs at a time, if nothing is there yet")
    if dry_run:
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    tasks = list(chosen.tasks())
    with Progress(*columns, console=console) as progress:
        bars = _Bars(progress, len(tasks))
        chosen.prepare(bars)  # type: ignore[arg-type]
        bars.begin("runs under way", len(tasks))
        chosen.run(
            jobs,
            lambda task: bars.run_finished(str(task)),
            lambda task, error: bars.note(f"failed: {task}: {error}"),
        )


@app.command()
def calibrate(
    preset: Annotated[str, typer.Argument(help="digits, ag-news, cifar100, ...")] = "digits",
    beta: Annotated[float, typer.Option(help="Dirichlet concentration")] = 0.5,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    pilots: Annotated[int, typer.Option(min=2, help="trainings that the constants are fitted to")] = 8,
    tested_on: Annotated[
        str | None, typer.Option(help="another preset whose pilots the constants must predict")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder of the runs")] = DEFAULT_RUNS,
    data_root: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    cache: Annotated[Path | None, typer.Option(help="folder of extracted features and checkpoints")] = None,
    propose: Annotated[
        bool, typer.Option("--propose", help="print the participation of the pilots, and train none")
    ] = False,
) -> None:
    """Propose pilot trainings, run them, fit C and A, and say how well they predict trainings they have not seen."""
    from dataclasses import replace
    from tempfile import TemporaryDirectory

    from stackfu_integration.lab.experiment import Experiment, Settings
    from stackfu_integration.lab.models.extraction import default_cache
    from stackfu_integration.lab.pilots import calibration_report
    from stackfu_integration.lab.presets import preset as preset_by_name

    chosen = replace(preset_by_name(preset), pilots=pilots)
    settings = Settings()

    def made(item: object, folder: Path = out / "calibrations") -> Experiment:
        return Experiment(item, settings, folder, cache or default_cache(), data_root)  # type: ignore[arg-type]

    if propose:
        with TemporaryDirectory() as folder:  # a proposal leaves no run behind
            print(made(chosen, Path(folder)).propose_pilots(beta, seed))
        return
    experiments = [made(chosen)]
    if tested_on is not None:  # what is missing is found out before anything is trained
        experiments.append(made(replace(preset_by_name(tested_on), pilots=pilots)))
    runs = [experiment.calibrate(beta, seed) for experiment in experiments]
    other = runs[1] if tested_on is not None else None
    print(calibration_report(runs[0].views, runs[0].pilots, other, experiments[0].dataset.classes))
    print(f"pilots in {runs[0].folder}")


@app.command()
def table(
    runs: Annotated[Path, typer.Argument(help="folder of runs, one run, or collected results")],
    name: Annotated[str, typer.Option(help="which table; all of them by default")] = "all",
    form: Annotated[str, typer.Option("--format", help="markdown, csv, json or all")] = "markdown",
    out: Annotated[
        Path | None, typer.Option(help="write files instead: one per table, and one per table and preset")
    ] = None,
) -> None:
    """Print or write the tables."""
    from stackfu.errors import InputError
    from stackfu_integration.lab.report import TABLES, load_results
    from stackfu_integration.storage import write_text

    forms = {"markdown": "md", "csv": "csv", "json": "json"}
    if form not in (*forms, "all"):
        raise InputError("format", f"must be one of {', '.join(forms)}, all", value=form)
    if name != "all" and name not in TABLES:
        raise InputError("name", f"must be one of {', '.join(TABLES)}", value=name)
    chosen = list(forms) if form == "all" else [form]
    results = load_results(runs)
    presets = dict.fromkeys(result.run["preset"] for result in results)
    for key in TABLES if name == "all" else [name]:
        for kind in chosen:
            text = getattr(TABLES[key](results), kind)()
            if out is None:
                print(text)
                continue
            print(write_text(out / f"{key}.{forms[kind]}", text))
            for preset in presets if kind == "markdown" else ():
                part = TABLES[key]([result for result in results if result.run["preset"] == preset])
                if part.rows:
                    print(write_text(out / preset / f"{key}.md", part.markdown()))


@app.command()
def figure(
    runs: Annotated[
        Path, typer.Argument(help="one run for the participation figure, several for the others")
    ],
    out: Annotated[
        Path | None, typer.Option(help="folder of the figures; beside the runs by default")
    ] = None,
) -> None:
    """Draw the figures as PNG and SVG."""
    from stackfu_integration.lab.report import (
        budget_figure,
        load_results,
        participation_figure,
        prediction_figure,
    )
    from stackfu_integration.lab.report.figures import save

    results = load_results(runs)
    folder = out or (runs if runs.is_dir() else runs.parent)
    written = []
    # The participation figure shows single runs: of many, the most heterogeneous one of each preset.
    firsts = {result.run["preset"]: result for result in reversed(results)}
    for result in firsts.values():
        written += save(participation_figure(result), folder / f"participation-{result.name}")
    for preset in dict.fromkeys(result.run["preset"] for result in results):
        chosen = [result for result in results if result.run["preset"] == preset]
        written += save(prediction_figure(chosen), folder / f"prediction-{preset}")
        written += save(budget_figure(chosen), folder / f"budget-{preset}")
    for path in written:
        print(path)


@app.command()
def collect(
    runs: Annotated[Path, typer.Argument(help="folder of runs")],
    out: Annotated[Path, typer.Argument(help="folder of the collected results")],
) -> None:
    """Pack every run into one small JSON file."""
    from stackfu_integration.lab.report import collect as collect_runs

    for path in collect_runs(runs, out):
        print(path)


@app.command()
def extend(
    results: Annotated[Path, typer.Argument(help="folder of collected results")],
    presets: Annotated[list[str], typer.Argument(help="presets whose runs are extended")],
    work: Annotated[Path, typer.Option(help="folder of unpacked runs; what is there is kept")] = Path(
        "extended"
    ),
    data_root: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    cache: Annotated[Path | None, typer.Option(help="folder of extracted features and checkpoints")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=1.0, help="begin no further run after this long; call again to go on")
    ] = None,
) -> None:
    """Add to collected runs the mechanisms and methods that they were computed without."""
    import time

    from stackfu_integration.lab.extension import Extension
    from stackfu_integration.lab.models.extraction import default_cache

    extension = Extension(results, work, cache or default_cache(), data_root)
    runs = [run for name in presets for run in extension.stored(name)]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    began = time.monotonic()
    with Progress(*columns, console=console) as progress:
        bars = _Bars(progress, len(runs))
        extension.reporter = bars  # type: ignore[assignment]
        for run in runs:
            if seconds is not None and time.monotonic() - began > seconds:
                bars.note("out of time; call again to go on")
                break
            path = extension.extend(run)
            bars.run_finished(path.stem)


@app.command()
def presets() -> None:
    """List the presets, models and data sets that are known by name."""
    from stackfu_integration.lab.data import DATASETS
    from stackfu_integration.lab.models import BACKBONES
    from stackfu_integration.lab.presets import PRESETS

    width = max(map(len, PRESETS))
    for known in PRESETS.values():
        trained = {"head": "a head", "all": "all layers"}.get(
            str(known.train), f"the last {known.train} blocks"
        )
        size = "all samples" if known.train_size is None else f"{known.train_size:,} samples"
        print(
            f"{known.name:{width}}  {known.backbone} on {known.dataset}, {size}; trains {trained}, "
            f"{known.rounds} rounds of {known.training.epochs:g} epochs"
        )
    print(f"\nmodels (--model): {', '.join(BACKBONES)}, or module:function")
    print(f"data sets (--data): {', '.join(DATASETS)}, or module:function")


@app.command()
def tables() -> None:
    """List the tables by the names that `stackfu-lab table --name` takes."""
    from stackfu_integration.lab.report import TABLES

    width = max(map(len, TABLES))
    for name, made in TABLES.items():
        print(f"{name:{width}}  {(made.__doc__ or '').strip().splitlines()[0]}")


@app.command()
def study(
    kind: Annotated[str, typer.Argument(help="regimes, cascades or streams")],
    preset: Annotated[str, typer.Argument(help="digits, ag-news, cifar100, ...")] = "digits",
    seeds: Annotated[int, typer.Option(min=1, help="federations per setting")] = 10,
    small: Annotated[
        bool, typer.Option("--small", help="a coarse map, for data on which trainings take long")
    ] = False,
    out: Annotated[Path, typer.Option(help="folder of the collected file")] = Path("studies"),
    work: Annotated[Path, typer.Option(help="folder of one file per federation")] = Path("study-runs"),
    data_root: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    cache: Annotated[Path | None, typer.Option(help="folder of extracted features")] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=1.0, help="begin no further federation after this long; call again to go on"),
    ] = None,
) -> None:
    """Study many federations: in which regimes payments matter, who leaves, streams of removal requests."""
    import time

    from stackfu.errors import InputError
    from stackfu_integration.lab.experiment import Settings
    from stackfu_integration.lab.models.extraction import default_cache
    from stackfu_integration.lab.payments import warm_up
    from stackfu_integration.lab.presets import preset as preset_by_name
    from stackfu_integration.lab.runs.source import Source
    from stackfu_integration.lab.studies import Cascades, Regimes, Streams
    from stackfu_integration.lab.studies.regimes import grid

    kinds = ("regimes", "cascades", "streams")
    if kind not in kinds:
        raise InputError("kind", f"must be one of {', '.join(kinds)}", value=kind)
    chosen = preset_by_name(preset)
    if chosen.train != "head":
        raise InputError("preset", "a study trains heads on frozen features", value=preset)
    source = Source(chosen, Settings(), out, cache or default_cache(), data_root)
    source.prepare()
    warm_up()
    numbers, folder = tuple(range(seeds)), work / kind
    made: Regimes | Cascades | Streams
    if kind == "regimes":
        regimes = (
            grid((1.0, 10.0), (0.0, 1.0), (0.25, 0.5), (0.2,), (), (0, 1))
            if small
            else grid(
                (1.0, 3.0, 10.0),
                (0.0, 1.0),
                (0.1, 0.25, 0.5),
                (0.2, 0.8),
                ((6, 2), (20, 3), (10, 1), (10, 5)),
                (0, 1),
            )
        )
        made = Regimes(source, folder, tuple(regimes), numbers)
    elif kind == "cascades":
        made = Cascades(source, folder, (0.2, 0.8), numbers)
    else:
        made = Streams(source, folder, (0.2, 0.8), numbers)
    began = time.monotonic()
    done = made.complete(
        lambda name: console.print(f"{time.monotonic() - began:6.0f} s  {name}", highlight=False),
        lambda: seconds is not None and time.monotonic() - began > seconds,
    )
    print(made.collect(out))
    if not done:
        console.print("out of time; call again to go on")
