"""``python -m stackfu`` is ``stackfu``."""

import sys

from .cli import main

sys.exit(main())
