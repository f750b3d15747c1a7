"""Ensures that nothing of a run is left on a host, and confirms that (_remote_main).

poprun sweeps a host when it has lost the connection to its relay. The keeper sweeps all other hosts
when poprun itself is gone. Without a confirmation it is not known whether the devices are free. The
run's own processes on the host, its relay and its guardian, get time to end the run. After that
they are killed too, since they may have been stopped.
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
from podwright.launcher.instances._folder import RUN_VARIABLE, group_in, places, remove_tree
from podwright.launcher.watchers._guardian import ORPHAN_GRACE

#: The command of a sweep, as a host runs it.
SWEEP = (sys.executable, "-P", "-m", "podwright.launcher.hosts._remote_main", "sweep")
#: The confirmation that nothing is left.
SWEPT = "podwright: nothing is left"
#: Seconds that all hosts together have for a sweep.
LIMIT = 10.0
#: Seconds that the relay and the guardian have to end the run.
_PATIENCE = ORPHAN_GRACE + 1.0
_POLL = 0.05


def sweep_hosts(commands: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> list[str]:
    """Sweep hosts, each by its command. Returns those that did not confirm that nothing is left."""
    try:
        answers = ask_all(list(commands.values()), environ, LIMIT)
    except OSError:
        return [*commands]
    return [host for host, answer in zip(commands, answers, strict=True) if SWEPT not in answer.out]


def sweep_run(name: str, environ: Mapping[str, str]) -> None:
    """End all processes of a run on this host, and remove its folders."""
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
    """Return our processes that have a folder of the run open: its relay, its guardian.

    The folder is found by its name, at any path, and also after its removal.
    """
    holders = []
    for process in processes().values():
        try:
            opened = os.listdir(f"/proc/{process.pid}/fd")
        except OSError:
            continue
        for handle in opened:
            try:
                path = os.readlink(f"/proc/{process.pid}/fd/{handle}").removesuffix(" (deleted)")
                if os.path.basename(path) == name:
                    holders.append(process)
                    break
            except OSError:
                continue
    return holders


def main(names: Sequence[str]) -> int:
    """Sweep these runs. Returns the exit code."""
    for name in names:
        sweep_run(name, os.environ)
    print(SWEPT, flush=True)
    return 0
