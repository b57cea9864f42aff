# ruff: noqa: D101, D102
"""Your model and your data; everything between the two marks is yours."""

# --- yours ---
import torch
from sklearn.datasets import load_digits
from torch import nn

from stackfu_integration.flower.torch_client import TorchParticipant


class Network(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 10),
        )


class Client(TorchParticipant):
    def model(self):
        return Network()

    def data(self):  # what this client holds: here, every tenth digit
        digits = load_digits()
        x = torch.tensor(digits.images[self.client :: 10], dtype=torch.float32)[:, None] / 16
        y = torch.tensor(digits.target[self.client :: 10])
        return x[40:], y[40:], x[:40], y[:40]


# --- not yours any more ---
