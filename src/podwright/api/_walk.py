"""What comes before a launch: poprun and a program's own launches walk the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podwright.launcher import Options, Plan


def plan_launch(options: Options, environ: Mapping[str, str]) -> Plan:
    """The plan of a launch from this machine, with its cores where instances get some of them.

    Raises InvalidRequest for options that contradict each other.
    """
    from podwright.launcher import make_plan, places_instances

    cores = None
    if places_instances(options):
        from podwright.hosts import read_cores

        cores = read_cores(environ)
    return make_plan(options, environ, cores=cores)
