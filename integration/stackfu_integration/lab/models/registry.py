"""Backbones by name, as the command line knows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from stackfu.errors import InputError
from stackfu_integration.lab.data.datasets import Dataset
from stackfu_integration.lab.models.backbones import Backbone, Identity, Trainable

__all__ = ["BACKBONES", "load_backbone"]

RESNET20_FILE = Path("cifar100") / "resnet20-12fca82f.th"


def _identity(dataset: Dataset, train: Trainable, data_root: Path, length: int) -> Backbone:
    if train != "head":
        raise InputError("train", "there is nothing but a head to train without a backbone", value=train)
    return Identity(int(np.prod(dataset.train.x.shape[1:])))


def _text(dataset: Dataset, train: Trainable, data_root: Path, length: int) -> Backbone:
    from stackfu_integration.lab.models.text import TextBackbone

    return TextBackbone("minilm", train, length)


def _resnet20(dataset: Dataset, train: Trainable, data_root: Path, length: int) -> Backbone:
    from stackfu_integration.lab.models.image import resnet20

    return resnet20(data_root / RESNET20_FILE, train)


def _resnet18(dataset: Dataset, train: Trainable, data_root: Path, length: int) -> Backbone:
    from stackfu_integration.lab.models.image import resnet18

    weights = data_root / "resnet18-imagenet.pth"
    return resnet18(weights if weights.is_file() else None, train)


BACKBONES: dict[str, Callable[[Dataset, Trainable, Path, int], Backbone]] = {
    "identity": _identity,
    "minilm": _text,
    "resnet20": _resnet20,
    "resnet18": _resnet18,
}


def load_backbone(
    name: str, dataset: Dataset, train: Trainable = "head", data_root: Path | None = None, length: int = 64
) -> Backbone:
    """Return the backbone ``name`` for ``dataset``; other names are text models, local or on the hub."""
    suits = {"text": {"minilm"}, "image": {"identity", "resnet20", "resnet18"}, "vector": {"identity"}}
    if name in BACKBONES:
        if name not in suits[dataset.modality]:
            raise InputError("backbone", f"does not take {dataset.modality} inputs", value=name)
        return BACKBONES[name](dataset, train, Path() if data_root is None else data_root, length)
    if dataset.modality != "text":
        raise InputError("backbone", f"must be one of {', '.join(BACKBONES)}", value=name)
    from stackfu_integration.lab.models.text import TextBackbone

    return TextBackbone(name, train, length)
