"""Studies of many federations with a convex head: where payments matter, who leaves, and streams of removal requests.

A study trains heads alone, from zero, on the features of a preset, so that thousands of trainings take minutes. It plays in the
calibrated labels view, with constants from pilot trainings of the same federation.
"""

from stackfu_integration.lab.studies.bench import Bench
from stackfu_integration.lab.studies.cascades import Cascades
from stackfu_integration.lab.studies.regimes import Regime, Regimes
from stackfu_integration.lab.studies.streams import Streams

__all__ = ["Bench", "Cascades", "Regime", "Regimes", "Streams"]
