"""Federated training, unlearning and incentives, end to end, on top of stackfu.

- :mod:`stackfu_integration.lab`: experiments in one process, from data sets to tables
- :mod:`stackfu_integration.flower`: the mechanism on a federation that runs with Flower
- :mod:`stackfu_integration.storage`: files that are either whole or absent, for both
- :mod:`stackfu_integration.summary`: a solution of the game as plain values, for both
- :mod:`stackfu_integration.cli`: ``stackfu-lab``, the commands of both
"""

__version__ = "0.1.0"
