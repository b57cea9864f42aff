"""Predicted against realised changes of the clients' losses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from stackfu_integration.lab.cells import CONVEX, SCRATCH
from stackfu_integration.lab.report.predictions import CHOSEN_ON, ENOUGH, MODELS, gather, score, score_later
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.tables.rows import APPROACHES
from stackfu_integration.lab.report.tables.table import Cell, Table, by_preset, spread

__all__ = ["later_table", "prediction_table", "transfer_table"]


def prediction_table(results: Sequence[RunResult]) -> Table:
    """Rank correlation and R2 of predicted against realised changes of the clients' losses, by model."""
    rows = []
    for preset, runs in by_preset(results):
        for approach in (SCRATCH, CONVEX):
            for kind in ("own", "pooled"):
                for model in MODELS:
                    found = [gather(run, approach, model, kind) for run in runs]
                    evidence = [item for item in found if item is not None]
                    if len(evidence) < 2:
                        continue
                    made = score(evidence)
                    constants = made.constants.mean(axis=0)
                    rows.append(
                        (
                            preset,
                            APPROACHES[approach],
                            kind,
                            model,
                            spread(made.within, 2, sign=True),
                            spread(made.across, 2, sign=True),
                            made.r2,
                            made.r2_paid,
                            made.r2_enough,
                            made.r2_pilots,
                            float(constants[0]),
                            float(constants[1]) if len(constants) > 1 else None,
                            made.runs,
                        )
                    )
    return Table(
        "Does the game predict what happens?",
        (
            "preset",
            "unlearning",
            "test samples",
            "model",
            "ρ within a training",
            "ρ across trainings",
            "R² (all trainings)",
            "R² (mechanisms)",
            "R² (enough samples)",
            "R² (own pilots)",
            "C",
            "A",
            "federations",
        ),
        tuple(rows),
        "Realised Q of every remaining client in every training with a mechanism's shares and in every pilot, against "
        "predictions with constants from trainings that are not predicted. ρ: Spearman's, over the clients of a training "
        "and over the trainings for a client, mean ± 95% interval over federations (all β and seeds). R²: constants from the "
        "other federations; mechanisms: fitted and scored on their trainings alone, without pilots; enough samples: "
        f"{ENOUGH} per class or more, which C and A are shown for; own pilots: the mechanisms' trainings with enough samples, with "
        "constants of the same federation's pilots. Saturating: the sampling term ends at what a model that knows nothing would "
        "lose. Test samples: a client's own, or everybody's in "
        "its label mixture.",
    )


def _told(known: Sequence[RunResult], new: Sequence[RunResult]) -> Iterator[tuple[Cell, ...]]:
    """Yield the accuracy of some runs' constants on others: one row per approach, kind of test samples and model."""
    for approach in (SCRATCH, CONVEX):
        for kind in ("own", "pooled"):
            for model in MODELS:
                fitted, tested = (
                    [item for run in runs if (item := gather(run, approach, model, kind)) is not None]
                    for runs in (known, new)
                )
                if fitted and tested:
                    made = score_later(fitted, tested)
                    yield (
                        APPROACHES[approach],
                        kind,
                        model,
                        spread(made.within, 2, sign=True),
                        made.r2,
                        made.r2_paid,
                        made.r2_enough,
                        len(fitted),
                        len(tested),
                    )


_TOLD = (
    "unlearning",
    "test samples",
    "model",
    "ρ within a training",
    "R² (all trainings)",
    "R² (mechanisms)",
    "R² (enough samples)",
    "fitted on",
    "tested on",
)


def later_table(results: Sequence[RunResult]) -> Table:
    """Return the same on federations that had no part in choosing a model or its constants."""
    return Table(
        "Predictions of later federations.",
        ("preset", *_TOLD),
        tuple(
            (preset, *row)
            for preset, runs in by_preset(results)
            for row in _told(
                [run for run in runs if run.run["seed"] < CHOSEN_ON],
                [run for run in runs if run.run["seed"] >= CHOSEN_ON],
            )
        ),
        f"Constants from the federations of the first {CHOSEN_ON} seeds, tested on those of later seeds. The saturating form was "
        "chosen on the first ones too; the others go back to an earlier campaign that had all of these partitions, with "
        "other trainings.",
    )


def transfer_table(results: Sequence[RunResult]) -> Table:
    """Constants fitted where clients differ in one way, tested where the same data are divided in another."""
    presets = [(preset, runs, _material(runs[0])) for preset, runs in by_preset(results)]
    return Table(
        "Constants of one partition on another.",
        ("constants of", "preset", *_TOLD),
        tuple(
            (source, target, *row)
            for target, new, material in presets
            for source, known, same in presets
            if source != target and same == material
            for row in _told(known, new)
        ),
        "Constants from all federations of one preset, tested on those of another that divides the same data for the same model "
        "over its clients by another scheme.",
    )


def _material(run: RunResult) -> tuple[str, str, str]:
    """Return the common properties of presets that differ only in the division of data."""
    return run.run["dataset_digest"], run.run["backbone"], json.dumps(run.run["training"], sort_keys=True)
