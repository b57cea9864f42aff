"""Federated unlearning as a Stackelberg game, solved with proof."""

__version__ = "0.1.0"
