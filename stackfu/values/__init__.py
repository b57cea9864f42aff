"""Values of clients: what each contributes to the server's loss, or to any measure of coalitions.

==================  =====================================================================================================
:mod:`.coalitions`  server loss of coalitions of clients: of all of them, or along random orders
:mod:`.shapley`     Shapley and leave-one-out values from the values of all coalitions
:mod:`.sampling`    Shapley values of many clients, enclosed with a stated confidence
:mod:`.measured`    values for any measure of coalitions, such as the accuracy of trained models
:mod:`.result`      the result: :class:`ClientValues`
==================  =====================================================================================================

The definitions and proofs are in ``docs/theory/values.md``.
"""

from .measured import values_of_measure
from .result import ClientValues
from .server_loss import values_of_clients

__all__ = ["ClientValues", "values_of_clients", "values_of_measure"]
