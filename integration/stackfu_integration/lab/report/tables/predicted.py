"""Predicted against realised changes of the clients' losses."""

from __future__ import annotations

from collections.abc import Sequence

from stackfu_integration.lab.cells import CONVEX, SCRATCH
from stackfu_integration.lab.report.predictions import CHOSEN_ON, ENOUGH, MODELS, gather, score, score_later
from stackfu_integration.lab.report.results import RunResult
from stackfu_integration.lab.report.tables.rows import APPROACHES
from stackfu_integration.lab.report.tables.table import Table, by_preset, spread

__all__ = ["later_table", "prediction_table"]


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


def later_table(results: Sequence[RunResult]) -> Table:
    """The same on federations that had no part in choosing a model or its constants."""
    rows = []
    for preset, runs in by_preset(results):
        first = [run for run in runs if run.run["seed"] < CHOSEN_ON]
        later = [run for run in runs if run.run["seed"] >= CHOSEN_ON]
        for approach in (SCRATCH, CONVEX):
            for kind in ("own", "pooled"):
                for model in MODELS:
                    known, new = (
                        [item for run in part if (item := gather(run, approach, model, kind)) is not None]
                        for part in (first, later)
                    )
                    if not known or not new:
                        continue
                    made = score_later(known, new)
                    rows.append(
                        (
                            preset,
                            APPROACHES[approach],
                            kind,
                            model,
                            spread(made.within, 2, sign=True),
                            made.r2,
                            made.r2_paid,
                            made.r2_enough,
                            len(known),
                            len(new),
                        )
                    )
    return Table(
        "Predictions of later federations.",
        (
            "preset",
            "unlearning",
            "test samples",
            "model",
            "ρ within a training",
            "R² (all trainings)",
            "R² (mechanisms)",
            "R² (enough samples)",
            "fitted on",
            "tested on",
        ),
        tuple(rows),
        f"Constants from the federations of the first {CHOSEN_ON} seeds, tested on those of later seeds. The saturating form was "
        "chosen on the first ones too; the others go back to an earlier campaign that had all of these partitions, with "
        "other trainings.",
    )
