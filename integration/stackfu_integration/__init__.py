"""Federated training, unlearning and incentives, end to end, on top of stackfu.

The folders are the stages that the data passes::

    data -> models -> federation -> unlearning -> measures -> report
                          |  mechanisms  |

A :mod:`~stackfu_integration.data` preset is partitioned over clients, a :mod:`~stackfu_integration.models`
backbone turns raw samples into tensors once, :mod:`~stackfu_integration.federation` trains with FedAvg,
:mod:`~stackfu_integration.mechanisms` plays the payment game, :mod:`~stackfu_integration.unlearning` removes
clients with the participation that results, :mod:`~stackfu_integration.measures` judges the outcome beside a
retrained model and :mod:`~stackfu_integration.report` writes the tables and the figures.
"""

__version__ = "0.1.0"
