"""The steps before a launch, which poprun and a program's own launches share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podwright.launcher import Options, Plan


def plan_launch(options: Options, environ: Mapping[str, str]) -> Plan:
    """Return the plan of a launch from this machine, with its cores if instances are bound to them.

    Raises InvalidRequest for options that contradict each other.
    """
    from podwright.launcher import make_plan, places_instances

    host_cores = None
    if places_instances(options):
        from podwright.hosts import read_cores

        host_cores = read_cores(environ)
    return make_plan(options, environ, cores=host_cores)
