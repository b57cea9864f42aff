"""The asv suite: ``time_`` and ``peakmem_`` for cost, ``track_`` for accuracy, exponents and compile time."""
