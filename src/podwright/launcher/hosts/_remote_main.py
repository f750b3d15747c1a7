"""Entry point on other hosts: `python -m podwright.launcher.hosts._remote_main relay`, or `sweep
NAME`.

No other module imports it, because Python warns of a module that is both imported and run.
"""

from __future__ import annotations

import sys

from podwright.launcher.hosts import _host_sweep, _relay

if __name__ == "__main__":
    if sys.argv[1:2] == ["sweep"]:
        sys.exit(_host_sweep.main(sys.argv[2:]))
    sys.exit(_relay.main())
