"""On other hosts: `python -m podwright.launcher._remote_main relay`, or `sweep NAME`.

A door of its own, which nothing imports: Python warns of a module that is imported and run.
"""

from __future__ import annotations

import sys

from podwright.launcher import _host_sweep, _relay

if __name__ == "__main__":
    if sys.argv[1:2] == ["sweep"]:
        sys.exit(_host_sweep.main(sys.argv[2:]))
    sys.exit(_relay.main())
