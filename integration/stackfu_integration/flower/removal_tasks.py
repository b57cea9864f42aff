"""Work of a leaving client with a PyTorch model for the methods that need it, as in the lab.

- ``mode``: it learns the labels that another model gives to its samples
- ``gradient-ascent``: it maximises its own loss near the others' models
- ``quickdrop``: it maximises the loss of a small synthetic set, made during training so that its gradients are those of the data

A synthetic set begins as real samples and moves little, so it is personal data in all but name: it is kept in the client's folder,
no message asks for it, and only what a model has become on it is sent.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord
from torch import nn
from torch.nn import functional

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.methods import MODE_RATE
from stackfu_integration.flower.policy import POLICY_FILE, Policy
from stackfu_integration.flower.wire import PartingOrder
from stackfu_integration.flower.wire.records import setting
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.local import LocalTraining, client_seed, local_train
from stackfu_integration.lab.models.classifier import read_weights
from stackfu_integration.storage import write_checkpoint

if TYPE_CHECKING:
    from stackfu_integration.lab.unlearning.quickdrop import DistilledSets

__all__ = ["SET_FILE", "distil", "only_train", "part_with", "summed_curvature", "summed_gradient"]

SET_FILE = "synthetic.pt"
_CHUNK = 1024  # samples at a time
_MODE, _ASCENT, _DROP = 12, 91, 23  # seed streams, as in the lab


def part_with(
    order: PartingOrder,
    model: nn.Module,
    aside: nn.Module | None,
    data: LabelledTensors,
    training: LocalTraining,
    client: int,
    folder: Path | None,
) -> int:
    """Carry out an order on ``model`` in place, and return how many samples it was done with."""
    # here: an engine starts a process for every message, and most of them need none of this
    from stackfu_integration.lab.unlearning.ascent import GradientAscent
    from stackfu_integration.lab.unlearning.mode import MoDe
    from stackfu_integration.lab.unlearning.quickdrop import QuickDrop

    if order.method == "mode":
        if aside is None:
            raise InputError("aside", "MoDe learns the labels of another model, and there is none")
        plain = MoDe()
        labels = MoDe._relabelled(aside, read_weights(aside), data, torch.device("cpu"))
        steps = LocalTraining(epochs=plain.epochs, batch=plain.batch, learning_rate=MODE_RATE)
        local_train(model, labels, client_seed(order.seed, client, order.number - 1, _MODE), steps)
        return len(data)
    if order.method == "gradient-ascent":
        if aside is None or order.radius is None:
            raise InputError("aside", "ascent stays close to another model, and there is none")
        stream = client_seed(order.seed, client, 0, _ASCENT)
        climber: Any = model  # any network will do
        GradientAscent()._ascend(climber, data, read_weights(aside), order.radius, stream, training.batch)
        return len(data)
    if order.method != "quickdrop":
        raise InputError("method", "nobody knows what those who leave do for it", value=order.method)
    sets, _ = _kept(folder, order.seed)
    if client not in sets.sets:
        raise InputError("method", "this client made no synthetic set during training", value=order.method)
    drop = QuickDrop()
    steps = replace(
        training, epochs=drop.ascent_epochs, learning_rate=drop.ascent_rate * training.learning_rate
    )
    synthetic = sets.samples(client)
    local_train(model, synthetic, client_seed(order.seed, client, 0, _DROP), steps, ascend=True)
    return len(synthetic)


def only_train(model: nn.Module, config: ConfigRecord) -> list[nn.Parameter]:
    """Freeze what is not to change, where the order names what is, and return what is trained.

    Layers without anything to train behave as they do in use, so that batch normalisation keeps its averages.
    """
    if "only" in config:
        only = setting(config, "only", str).split(",")
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in only)
        for layer in model.modules():
            held = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
            if held and not any(tensor.requires_grad for tensor in held):
                layer.eval()
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def summed_gradient(
    model: nn.Module, data: LabelledTensors, arrays: ArrayRecord, config: ConfigRecord
) -> FloatArray:
    """Return the gradient of the summed cross-entropy in double precision, with all layers as in use; entries follow ``arrays``.

    Where the order names some arrays, it is theirs alone.
    """
    model = model.double().eval()
    only_train(model, config)
    wanted = setting(config, "only", str).split(",") if "only" in config else list(arrays)
    for x, y in zip(data.x.split(_CHUNK), data.y.split(_CHUNK), strict=True):
        inputs = x.double() if x.is_floating_point() else x
        functional.cross_entropy(model(inputs), y, reduction="sum").backward()
    entries = dict(model.named_parameters())
    parts = [entries[name].grad for name in arrays if name in wanted]
    return np.concatenate([np.zeros(0) if g is None else g.flatten().numpy() for g in parts])


def summed_curvature(
    model: nn.Module, data: LabelledTensors, arrays: ArrayRecord, config: ConfigRecord
) -> FloatArray:
    """Return the Hessian of the summed cross-entropy in the numbers of the last layer; :func:`summed_gradient` is the gradient.

    With the layer's inputs ``z`` and the probabilities ``p`` of a sample it is ``(diag p - p p^T) x (z, 1)(z, 1)^T``, a Kronecker
    product: exact, as scores are linear in these numbers.
    """
    model = model.double().eval()
    wanted = setting(config, "only", str).split(",") if "only" in config else list(arrays)
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    owner = next((name for name in layers if {f"{name}.weight", f"{name}.bias"} == set(wanted)), None)
    if owner is None:
        raise InputError("only", "second derivatives are those of a linear layer and its bias", value=wanted)
    layer, seen = layers[owner], []
    hook = layer.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    width, classes = layer.in_features + 1, layer.out_features
    total = torch.zeros(classes, width, classes, width, dtype=torch.float64)
    try:
        with torch.no_grad():
            for x in data.x.split(_CHUNK):
                scores = model(x.double() if x.is_floating_point() else x)
                inputs, output = seen.pop()
                if not torch.equal(output, scores):
                    raise InputError("only", "names a layer that is not the model's last", value=wanted)
                z = torch.cat([inputs, torch.ones(len(inputs), 1, dtype=torch.float64)], 1)
                p = scores.softmax(1)
                weights = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
                for a in range(classes):
                    for b in range(a, classes):
                        block = (z * weights[:, a, b, None]).T @ z
                        total[a, :, b, :] += block
                        if a != b:
                            total[b, :, a, :] += block.T
    finally:
        hook.remove()
    # numbers of the model come array by array, those of the product row by row
    places = torch.arange(classes * width).reshape(classes, width)
    parts = {f"{owner}.weight": places[:, :-1].flatten(), f"{owner}.bias": places[:, -1]}
    order = torch.cat([parts[name] for name in arrays if name in wanted])
    square = total.reshape(classes * width, classes * width)
    return np.asarray(square[order][:, order].numpy())


def distil(
    model: nn.Module,
    data: LabelledTensors,
    client: int,
    config: ConfigRecord,
    folder: Path | None,
    policy: Policy | None,
) -> None:
    """Grow the client's synthetic set in a round of training, if the server asks for it and the client works for QuickDrop.

    ``model`` is the one that the round starts from. A round that is asked for again is not matched twice.
    """
    if folder is None or not config.get("distil") or "request" in config:
        return
    if "quickdrop" not in (Policy.load(folder / POLICY_FILE) if policy is None else policy).parting:
        return
    seed, number = setting(config, "seed", int), setting(config, "server-round", int) - 1
    sets, matched = _kept(folder, seed)
    if number in matched:
        return
    weights = read_weights(model)
    sets.client_trained(number, client, data, model, weights, weights)
    write_checkpoint(folder / SET_FILE, {**sets.state(), "rounds": [*matched, number]})


def _kept(folder: Path | None, seed: int) -> tuple[DistilledSets, tuple[int, ...]]:
    """Return the client's synthetic set, and the rounds that it was matched in."""
    from stackfu_integration.lab.unlearning.quickdrop import DistilledSets

    sets = DistilledSets(seed)
    path = None if folder is None else folder / SET_FILE
    if path is None or not path.is_file():
        return sets, ()
    try:
        stored = torch.load(path, weights_only=True)
        sets.restore({"sets": stored["sets"]})
        return sets, tuple(stored["rounds"])
    except Exception as error:
        raise FileFormatError(f"{path}: not a synthetic set ({error!r})") from error
