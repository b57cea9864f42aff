"""Ready-made experiments: data set, model and training that belong together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from stackfu.errors import InputError
from stackfu_integration.lab.data.partition import Scheme
from stackfu_integration.lab.federation.convex import Curvature
from stackfu_integration.lab.federation.local import LocalTraining
from stackfu_integration.lab.models.backbones import Trainable

__all__ = ["PRESETS", "Preset", "own", "preset", "register_preset"]


@dataclass(frozen=True)
class Preset:
    """One experiment. Sizes of ``None`` use the whole pool; ``length`` is the number of tokens of a text."""

    name: str
    dataset: str
    backbone: str
    rounds: int
    training: LocalTraining
    train: Trainable = "head"
    train_size: int | None = None
    test_size: int | None = None
    length: int = 64
    min_train: int = 20
    min_test: int = 10
    history: bool = True  # keep every client's updates, which FedEraser needs
    distil_interval: int = 5  # rounds between gradient matches of QuickDrop's synthetic sets; 0: no such sets
    distil_batch: int = 256
    curvature: Curvature = "kronecker"  # of heads that go to their optimum; summed Hessians suit small heads
    l2: float | None = None  # of convex heads; None lets validation choose
    score_gap: float = 0.1  # how close to the optimum certified heads come
    references: int = 8  # reference federations of the membership attack
    relearning: int = 10  # rounds within which the removed data may be learnt again
    retraining: bool = True  # also retrain from scratch with the participation of every mechanism
    fine_tuning: bool = True  # also fine-tune the trained head with the participation of every mechanism
    rivals: bool = True  # also unlearn by the methods that have no mechanism, besides Retrain
    backdoor: bool = True  # also train a federation whose removed clients plant a backdoor
    pilots: int = 8  # trainings at other participation, from which the constants of the game are fitted
    scheme: Scheme = "labels"  # how clients differ
    answers: bool = False  # also let clients answer as measured losses say, with a training for every look

    @property
    def lean(self) -> Preset:
        """The same federation without what predictions and payments do not need.

        No backdoors, no attack by reference models, no stored updates or synthetic sets, and mechanisms only on the
        methods that forget. Its runs have a name of their own.
        """
        return replace(
            self,
            name=f"{self.name}-lean",
            backdoor=False,
            references=0,
            history=False,
            distil_interval=0,
            fine_tuning=False,
        )

    @property
    def brief(self) -> Preset:
        """Retrain, and mechanisms on the methods that forget, with backdoors: what the targets and predictions are read from.

        A third of the time. Its runs have the name of the whole ones, and cannot share their folder.
        """
        return replace(self, rivals=False, references=0, history=False, distil_interval=0, fine_tuning=False)

    @property
    def passes(self) -> int:
        """Passes over the data that convex heads may take: a quarter of those of training."""
        return max(3, int(self.rounds * self.training.epochs / 4))


_SGD = LocalTraining(epochs=2, batch=32, learning_rate=0.5)


def _digits(name: str, **changes: Any) -> Preset:
    return Preset(
        name, "digits", "identity", 20, _SGD, min_train=12, min_test=5, curvature="hessian", **changes
    )


PRESETS: dict[str, Preset] = {
    p.name: p
    for p in (
        _digits("digits"),
        # The same digits where clients differ in another way: what a constant fitted to one federation is worth there
        _digits("digits-classes", scheme="classes", references=0, backdoor=False),
        _digits("digits-covariate", scheme="covariate", references=0, backdoor=False),
        _digits("digits-concept", scheme="concept", references=0, backdoor=False),
        Preset(
            "fashion-mnist",
            "fashion-mnist",
            "identity",
            20,
            LocalTraining(epochs=2, batch=64, learning_rate=0.1),
            train_size=12_000,
            test_size=4_000,
        ),
        # Heads on frozen features give the membership attack nothing to see: it is made where it has power, below
        Preset("ag-news", "ag-news", "minilm", 20, _SGD, references=0, relearning=3),
        Preset(
            "cifar100",
            "cifar100",
            "resnet20",
            30,
            LocalTraining(epochs=2, batch=64, learning_rate=0.3),
            distil_interval=10,
            score_gap=1.0,
            references=0,
            relearning=3,
        ),
        Preset(
            "cifar100-imagenet",
            "cifar100",
            "efficientnet",
            30,
            LocalTraining(epochs=2, batch=64, learning_rate=0.1),
            train_size=6_000,
            distil_interval=10,
            score_gap=1.0,
            references=0,
            relearning=3,
        ),
        # Small clients that learn a hidden layer by heart: here the membership attack sees what is left
        Preset(
            "digits-memory",
            "digits",
            "identity-hidden",
            20,
            LocalTraining(epochs=5, batch=16, learning_rate=0.2),
            train=1,
            train_size=300,
            min_train=12,
            min_test=5,
        ),
        Preset(
            "cifar100-memory",
            "cifar100",
            "resnet20-hidden",
            20,
            LocalTraining(epochs=4, batch=16, learning_rate=0.05),
            train=1,
            train_size=1_000,
            test_size=2_000,
            distil_interval=10,
            distil_batch=16,
            score_gap=1.0,
        ),
        Preset(
            "cifar100-imagenet-finetune",
            "cifar100",
            "efficientnet",
            6,
            LocalTraining(epochs=1, batch=32, learning_rate=0.03),
            train=1,
            train_size=2_000,
            test_size=1_000,
            distil_interval=3,
            distil_batch=16,
            score_gap=1.0,
            references=0,
            retraining=False,
            backdoor=False,
        ),
        Preset(
            "ag-news-finetune",
            "ag-news",
            "minilm",
            6,
            LocalTraining(epochs=1, batch=16, learning_rate=1e-3, optimizer="adam"),
            train=1,
            train_size=600,
            test_size=500,
            length=32,
            min_train=12,
            min_test=10,
            distil_interval=2,
            distil_batch=8,
            references=0,
            retraining=False,
            backdoor=False,
        ),
        Preset(
            "cifar100-finetune",
            "cifar100",
            "resnet20",
            8,
            LocalTraining(epochs=1, batch=32, learning_rate=0.1),
            train=1,
            train_size=3_000,
            test_size=1_500,
            distil_interval=4,
            distil_batch=16,
            references=0,
            retraining=False,
            backdoor=False,
        ),
        # For --model and --data: everything that any network and data can have
        Preset(
            "own",
            "digits",
            "identity",
            10,
            LocalTraining(epochs=1, batch=32, learning_rate=0.1),
            min_train=12,
            min_test=5,
            references=0,
            backdoor=False,
        ),
        # The sizes of the paper; for a machine with a GPU
        Preset(
            "ag-news-full",
            "ag-news",
            "bert-base-uncased",
            50,
            LocalTraining(epochs=2, batch=32, learning_rate=2e-5, optimizer="adam"),
            train="all",
            length=128,
            history=False,
            distil_interval=0,
            references=0,
        ),
        Preset(
            "cifar100-full",
            "cifar100",
            "resnet18",
            100,
            LocalTraining(epochs=2, batch=32, learning_rate=0.01),
            train="all",
            history=False,
            distil_interval=20,
            distil_batch=32,
            score_gap=1.0,
            references=0,
        ),
    )
}


def register_preset(chosen: Preset, *, replace: bool = False) -> None:
    """Make a preset known under its name, for the command line, campaigns and :func:`preset`."""
    if chosen.name in PRESETS and not replace:
        raise InputError("name", "is taken", value=chosen.name)
    PRESETS[chosen.name] = chosen


def own(base: Preset, model: str | None, data: str | None) -> Preset:
    """Return a preset with a model or data of your own, under a name of its own.

    >>> own(preset("digits"), "my_lab:network", None).name
    'digits-my_lab.network'
    """
    if model is None and data is None:
        return base
    called = "-".join(word.replace(":", ".").replace("/", ".") for word in (model, data) if word)
    return replace(
        base,
        name=f"{base.name}-{called}",
        backbone=base.backbone if model is None else model,
        dataset=base.dataset if data is None else data,
        train="all" if model is not None and ":" in model else base.train,
    )


def preset(name: str) -> Preset:
    """Return a preset by name.

    >>> preset("digits").backbone
    'identity'
    """
    if name not in PRESETS:
        raise InputError("preset", f"must be one of {', '.join(PRESETS)}", value=name)
    return PRESETS[name]
