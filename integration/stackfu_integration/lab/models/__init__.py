"""Models cut in two: a frozen prefix that is computed once and cached, and a tail that the clients train."""

from stackfu_integration.lab.models.backbones import Backbone, HiddenLayer, Identity, ModuleBackbone
from stackfu_integration.lab.models.classifier import Classifier, layer_slices, read_weights, write_weights
from stackfu_integration.lab.models.extraction import extract
from stackfu_integration.lab.models.registry import BACKBONES, load_backbone, register_backbone

__all__ = [
    "BACKBONES",
    "Backbone",
    "Classifier",
    "HiddenLayer",
    "Identity",
    "ModuleBackbone",
    "extract",
    "layer_slices",
    "load_backbone",
    "read_weights",
    "register_backbone",
    "write_weights",
]
