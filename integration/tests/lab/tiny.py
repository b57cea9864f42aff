"""Settings of the federation that trains in a second, and networks that are as small."""

import torch

from stackfu_integration.lab.federation import LocalTraining, UpdateHistory
from stackfu_integration.lab.runtime import import_transformers
from stackfu_integration.lab.unlearning import DistilledSets

REMOVED = (0, 1)
SETTINGS = LocalTraining(epochs=2, batch=16, learning_rate=0.2)
ROUNDS = 12


def save_bert(folder, texts, **sizes) -> None:
    """A random BERT for the words of these texts, in the layout that transformers saves."""
    transformers = import_transformers()
    words = sorted({word for text in texts for word in text.split()})
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=5 + len(words), num_attention_heads=2, **sizes)
    transformers.BertModel(config).save_pretrained(folder)


def observers() -> dict:
    return {"history": UpdateHistory(), "distilled": DistilledSets(seed=0, scale=0.05)}
