"""Experiments: train a federation, remove clients, play the game, unlearn, measure.

The folders are the stages that the data passes::

    data -> models -> federation -> unlearning -> measures -> report
                          |   payments   |

A :mod:`~stackfu_integration.lab.data` set is partitioned over clients, a :mod:`~stackfu_integration.lab.models`
backbone turns raw samples into tensors once, :mod:`~stackfu_integration.lab.federation` trains with FedAvg,
:mod:`~stackfu_integration.lab.payments` lets the :mod:`~stackfu_integration.lab.mechanisms` play the payment
game, :mod:`~stackfu_integration.lab.unlearning` removes clients with the participation that results,
:mod:`~stackfu_integration.lab.measures` compares the outcome with a retrained model,
:mod:`~stackfu_integration.lab.experiment` does all of that for the :mod:`~stackfu_integration.lab.presets`,
:mod:`~stackfu_integration.lab.campaign` for many of them at a time, with a
:mod:`~stackfu_integration.lab.forecast` of what it takes, and
:mod:`~stackfu_integration.lab.report` writes the tables and figures from the
:mod:`~stackfu_integration.lab.cells` that it left behind.
"""
