"""Profiles of the property tests: the same examples every time, or (``deep``) thousands of new ones.

``HYPOTHESIS_EXAMPLES`` sets another number of examples for the deep profile, for an hour that is short.
"""

import os

from hypothesis import HealthCheck, Phase, settings

# a busy machine is no failure: no example has a deadline, and none is called too slow to make
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("test", derandomize=True, max_examples=20, database=None, **UNTIMED)
settings.register_profile(
    "deep",
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "2000")),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "mutation",
    derandomize=True,
    max_examples=12,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))
