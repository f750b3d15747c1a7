"""What poprun runs on other hosts: `python -m podwright.launcher._there relay`, or `sweep NAME`.

A door of its own, which nothing imports: Python warns of a module that is imported and run.
"""

from __future__ import annotations

import sys

from podwright.launcher import _relay, _sweep

if __name__ == "__main__":
    if sys.argv[1:2] == ["sweep"]:
        sys.exit(_sweep.main(sys.argv[2:]))
    sys.exit(_relay.main())
