"""Backbones by name, as the command line knows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

from stackfu.errors import InputError
from stackfu_integration.lab.data.datasets import Dataset, Modality
from stackfu_integration.lab.models.backbones import (
    Backbone,
    HiddenLayer,
    Identity,
    ModuleBackbone,
    Trainable,
)
from stackfu_integration.lab.named import is_address, load_address

__all__ = [
    "BACKBONES",
    "RESNET18_FILE",
    "RESNET20_FILE",
    "BackboneSpec",
    "load_backbone",
    "register_backbone",
]

HIDDEN_UNITS = 256
RESNET20_FILE = Path("cifar100") / "resnet20-12fca82f.th"
#: torchvision's ``ResNet18_Weights.IMAGENET1K_V1`` as it is downloaded, renamed.
RESNET18_FILE = Path("resnet18-imagenet.pth")


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

    return resnet18(_found(data_root / RESNET18_FILE), train)


def _resnet18_scratch(dataset: Dataset, train: Trainable, data_root: Path, length: int) -> Backbone:
    from stackfu_integration.lab.models.image import resnet18

    return resnet18(None, train)


def _resnet56(dataset: Dataset, train: Trainable, data_root: Path, length: int) -> Backbone:
    from stackfu_integration.lab.models.image import resnet56

    return resnet56(train)


def _found(weights: Path) -> Path:
    """Return the path of weights that exist; a model without its weights would be another experiment."""
    if not weights.is_file():
        raise InputError(
            "weights",
            "no such file; put the weights there, or choose the model that starts from random ones, with -scratch at its end",
            value=weights,
        )
    return weights


def _efficientnet(dataset: Dataset, train: Trainable, data_root: Path, length: int) -> Backbone:
    from stackfu_integration.lab.models.image import efficientnet

    return efficientnet(train)


@dataclass(frozen=True)
class BackboneSpec:
    """A model by name: how it is built, and which kinds of inputs it takes."""

    build: Callable[[Dataset, Trainable, Path, int], Backbone]
    modalities: frozenset[Modality]


_ANY: tuple[Modality, ...] = ("vector", "image")

#: Models that the lab knows by name; :func:`register_backbone` adds to them.
BACKBONES: dict[str, BackboneSpec] = {}


def register_backbone(
    name: str,
    build: Callable[[Dataset, Trainable, Path, int], Backbone],
    modalities: Sequence[Modality],
    *,
    replace: bool = False,
) -> None:
    """Make a model known under a name.

    Parameters
    ----------
    name
        What presets and ``--model`` call it; no colon, which marks an address.
    build
        A function of the data set, what is trained, the folder of data and weights, and the length of texts.
    modalities
        Kinds of inputs that it takes: "vector", "image", "text".
    replace
        Whether a name that is taken may be given away.
    """
    if not name or ":" in name:
        raise InputError("name", "must be a word without a colon", value=repr(name))
    if name in BACKBONES and not replace:
        raise InputError("name", "is taken", value=name)
    BACKBONES[name] = BackboneSpec(build, frozenset(modalities))


register_backbone("identity", _identity, _ANY)
register_backbone("identity-hidden", _hidden(_identity), _ANY)
register_backbone("minilm", _text, ("text",))
register_backbone("resnet20", _resnet20, ("image",))
register_backbone("resnet20-hidden", _hidden(_resnet20), ("image",))
register_backbone("resnet18", _resnet18, ("image",))
register_backbone("resnet18-scratch", _resnet18_scratch, ("image",))
register_backbone("resnet56", _resnet56, ("image",))
register_backbone("efficientnet", _efficientnet, ("image",))


def load_backbone(
    name: str, dataset: Dataset, train: Trainable = "head", data_root: Path | None = None, length: int = 64
) -> Backbone:
    """Return the backbone ``name`` for ``dataset``.

    A name is a registered one (:data:`BACKBONES`), the address ``module:function`` of a function of the data set that returns a
    :class:`Backbone` or a ``torch.nn.Module`` from inputs to features, or, for texts, a folder below the data root, any folder,
    or a model on the hub (unless ``HF_HUB_OFFLINE`` forbids it).
    """
    root = Path() if data_root is None else data_root
    if is_address(name):
        made = load_address(name, "--model")(dataset)
        if isinstance(made, nn.Module):
            return ModuleBackbone(made, dataset, name)
        if not isinstance(made, Backbone):
            raise InputError(
                "--model", f"{name} must return a Backbone or a torch.nn.Module", value=repr(made)
            )
        return made
    if name in BACKBONES:
        known = BACKBONES[name]
        if dataset.modality not in known.modalities:
            raise InputError("backbone", f"does not take {dataset.modality} inputs", value=name)
        return known.build(dataset, train, root, length)
    if dataset.modality != "text":
        raise InputError("backbone", f"must be one of {', '.join(BACKBONES)}", value=name)
    from stackfu_integration.lab.models.text import TextBackbone

    folder = root / name
    return TextBackbone(str(folder) if folder.is_dir() else name, train, length)
