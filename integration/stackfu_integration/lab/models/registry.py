"""Backbones by name, as the command line knows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from stackfu.errors import InputError
from stackfu_integration.lab.data.datasets import Dataset
from stackfu_integration.lab.models.backbones import Backbone, HiddenLayer, Identity, Trainable

__all__ = ["BACKBONES", "load_backbone"]

HIDDEN_UNITS = 256
RESNET20_FILE = Path("cifar100") / "resnet20-12fca82f.th"


def _identity(dataset: Dataset, train: Trainable, data_root: Path, length: int) -> Backbone:
    if train != "head":
        raise InputError("train", "there is nothing but a head to train without a backbone", value=train)
    return Identity(int(np.prod(dataset.train.x.shape[1:])))


def _hidden(below: Callable[[Dataset, Trainable, Path, int], Backbone]) -> Callable[..., Backbone]:
    def build(dataset: Dataset, train: Trainable, data_root: Path, length: int) -> Backbone:
        if train != 1:
            raise InputError("train", "must be 1: the hidden layer, on a frozen backbone", value=train)
        return HiddenLayer(below(dataset, "head", data_root, length), HIDDEN_UNITS)

    return build


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


def _efficientnet(dataset: Dataset, train: Trainable, data_root: Path, length: int) -> Backbone:
    from stackfu_integration.lab.models.image import efficientnet

    return efficientnet(train)


BACKBONES: dict[str, Callable[[Dataset, Trainable, Path, int], Backbone]] = {
    "identity": _identity,
    "identity-hidden": _hidden(_identity),
    "minilm": _text,
    "resnet20": _resnet20,
    "resnet20-hidden": _hidden(_resnet20),
    "resnet18": _resnet18,
    "efficientnet": _efficientnet,
}


def load_backbone(
    name: str, dataset: Dataset, train: Trainable = "head", data_root: Path | None = None, length: int = 64
) -> Backbone:
    """Return the backbone ``name`` for ``dataset``; other names are text models: a folder below the data
    root, any folder, or a name on the hub (unless ``HF_HUB_OFFLINE`` forbids it).
    """
    suits = {
        "text": {"minilm"},
        "image": {"identity", "identity-hidden", "resnet20", "resnet20-hidden", "resnet18", "efficientnet"},
        "vector": {"identity", "identity-hidden"},
    }
    if name in BACKBONES:
        if name not in suits[dataset.modality]:
            raise InputError("backbone", f"does not take {dataset.modality} inputs", value=name)
        return BACKBONES[name](dataset, train, Path() if data_root is None else data_root, length)
    if dataset.modality != "text":
        raise InputError("backbone", f"must be one of {', '.join(BACKBONES)}", value=name)
    from stackfu_integration.lab.models.text import TextBackbone

    folder = (Path() if data_root is None else data_root) / name
    return TextBackbone(str(folder) if folder.is_dir() else name, train, length)
