"""Sees to it that nothing of a run is left on a host, and says so (_remote_main).

poprun runs it where it lost the line to its relay, and the keeper on all other hosts where poprun
itself is gone: without an answer nobody knows whether the devices are free. Whoever still owns the
run there is given time to end it, and then ended too: it may have been stopped.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from podwright.hosts import (
    Process,
    ask_all,
    group_is_empty,
    in_group,
    kill_all,
    kill_group,
    marked,
    processes,
    remove_group,
)
from podwright.launcher._folder import RUN_VARIABLE, group_in, places, remove_tree
from podwright.launcher._guardian import ORPHAN_GRACE

#: As a host is to run it.
SWEEP = (sys.executable, "-P", "-m", "podwright.launcher._remote_main", "sweep")
#: What it says once nothing is left.
SWEPT = "podwright: nothing is left"
#: Seconds that all hosts have for it, together.
LIMIT = 10.0
#: Seconds for those who own the run to end it.
_PATIENCE = ORPHAN_GRACE + 1.0
_POLL = 0.05


def sweep_hosts(commands: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> list[str]:
    """Sweep hosts, each by its command; those that did not say that nothing is left."""
    try:
        said = ask_all(list(commands.values()), environ, LIMIT)
    except OSError:
        return [*commands]
    return [host for host, told in zip(commands, said, strict=True) if SWEPT not in told.out]


def sweep_run(name: str, environ: Mapping[str, str]) -> None:
    """End what there is of a run on this host, and remove its folders."""
    until = time.monotonic() + _PATIENCE
    folders = places(name, environ)
    group = next(filter(None, map(group_in, folders)), "")
    while True:
        owners = _having_open(name)
        left = [*marked(RUN_VARIABLE, name), *(in_group(group) if group else ())]
        if not owners and not left and (not group or group_is_empty(group)):
            break
        if not owners or time.monotonic() > until:
            if group:
                kill_group(group)
            kill_all([*owners, *left], signal.SIGKILL)
        time.sleep(_POLL)
    if group:
        remove_group(group)
    for folder in folders:
        remove_tree(folder)


def _having_open(name: str) -> list[Process]:
    """The processes of ours that have a folder of the run open: its relay, its guardian.

    Wherever it is, and removed or not.
    """
    found = []
    for process in processes().values():
        try:
            opened = os.listdir(f"/proc/{process.pid}/fd")
        except OSError:
            continue
        for handle in opened:
            try:
                path = os.readlink(f"/proc/{process.pid}/fd/{handle}").removesuffix(" (deleted)")
                if os.path.basename(path) == name:
                    found.append(process)
                    break
            except OSError:
                continue
    return found


def main(names: Sequence[str]) -> int:
    """Sweep these runs."""
    for name in names:
        sweep_run(name, os.environ)
    print(SWEPT, flush=True)
    return 0
