"""Setup of torch before its use: device, threads, determinism, and a broken torchvision."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch

from stackfu.errors import InputError

__all__ = ["autocast", "import_torchvision", "import_transformers", "resolve_device", "single_thread"]

# torchvision registers shape functions for its compiled operators while it is imported. When its binary was
# built against CUDA libraries that this machine does not have, the operators do not exist and that
# registration is what fails, although nothing here uses them. With their signatures the import finishes.
_OPERATORS = ("nms", "qnms")
_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []  # a Library undoes its definitions when it is collected


def import_torchvision() -> ModuleType:
    """Import torchvision, also where its compiled operators cannot be loaded.

    Models, datasets and transforms work either way; without its operators, detection does not.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module("torchvision")
        except RuntimeError as error:
            if "operator torchvision::" not in str(error) or _declared:
                raise
        library = torch.library.Library("torchvision", "DEF")
        for operator in _OPERATORS:
            library.define(operator + _SIGNATURE)
        _declared.append(library)
        return importlib.import_module("torchvision")


def import_transformers() -> ModuleType:
    """Import transformers without network access; it imports torchvision when that is installed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if importlib.util.find_spec("torchvision") is not None:
        import_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def resolve_device(device: str = "auto") -> torch.device:
    """Return the torch device: ``auto`` is the first GPU, or the CPU where there is none.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise InputError("device", "is not a torch device", value=device) from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device", "no GPU is visible to torch", value=device)
    return resolved


def autocast(device: torch.device) -> torch.autocast:
    """Mixed precision on a GPU; on a CPU a context that does nothing, so that runs stay bit-identical."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch on one thread: the models here are too small to gain from more, and sums keep their order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
