"""Ready-made experiments: data set, model and training that belong together."""

from __future__ import annotations

from dataclasses import dataclass

from stackfu.errors import InputError
from stackfu_integration.lab.federation.local import LocalTraining
from stackfu_integration.lab.models.backbones import Trainable

__all__ = ["PRESETS", "Preset", "preset"]


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
    distil_interval: int = 5  # rounds between gradient matches of QuickDrop's synthetic sets
    distil_batch: int = 256
    retraining: bool = True  # also retrain from scratch with the participation of every mechanism
    backdoor: bool = True  # also train a federation whose removed clients plant a backdoor


_SGD = LocalTraining(epochs=2, batch=32, learning_rate=0.5)

PRESETS: dict[str, Preset] = {
    p.name: p
    for p in (
        Preset("digits", "digits", "identity", 20, _SGD, min_train=12, min_test=5),
        Preset(
            "fashion-mnist",
            "fashion-mnist",
            "identity",
            20,
            LocalTraining(epochs=2, batch=64, learning_rate=0.1),
            train_size=12_000,
            test_size=4_000,
        ),
        Preset("ag-news", "ag-news", "minilm", 20, _SGD),
        Preset(
            "cifar100",
            "cifar100",
            "resnet20",
            30,
            LocalTraining(epochs=2, batch=64, learning_rate=0.3),
            distil_interval=10,
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
            retraining=False,
            backdoor=False,
        ),
    )
}


def preset(name: str) -> Preset:
    """Return a preset by name.

    >>> preset("digits").backbone
    'identity'
    """
    if name not in PRESETS:
        raise InputError("preset", f"must be one of {', '.join(PRESETS)}", value=name)
    return PRESETS[name]
