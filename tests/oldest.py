"""Print the oldest versions that the installed package allows, as pins for pip: ``numpy==1.26 scipy==1.11 ...``."""

import re
from importlib.metadata import requires

if __name__ == "__main__":
    bounds = (re.match(r"([\w-]+)>=([\d.]+)", requirement) for requirement in requires("stackfu") or ())
    print(*sorted({f"{bound[1]}=={bound[2]}" for bound in bounds if bound}))
