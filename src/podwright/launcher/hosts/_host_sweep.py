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
from podwright.launcher.instances._run_folder import RUN_VARIABLE, noted_cgroup, places, remove_tree
from podwright.launcher.watchers._guardian import ORPHAN_GRACE_S

#: The command of a sweep, as a host runs it.
SWEEP_COMMAND = (sys.executable, "-P", "-m", "podwright.launcher.hosts._remote_main", "sweep")
#: The confirmation that nothing is left.
SWEPT_MESSAGE = "podwright: nothing is left"
#: Seconds that all hosts together have for a sweep, beyond those that their logins take.
HOST_SWEEP_LIMIT_S = 10.0
#: Seconds that the relay and the guardian have to end the run.
_PATIENCE = ORPHAN_GRACE_S + 1.0
_POLL = 0.05


def sweep_hosts(
    sweep_commands: Mapping[str, Sequence[str]], environ: Mapping[str, str], login_s: float
) -> list[str]:
    """Sweep hosts, each by its command. Returns those that did not confirm that nothing is left.

    login_s: the seconds that the slowest login to a host of the launch took.
    """
    try:
        answers = ask_all(list(sweep_commands.values()), environ, HOST_SWEEP_LIMIT_S + login_s)
    except OSError:
        return [*sweep_commands]
    return [
        host
        for host, answer in zip(sweep_commands, answers, strict=True)
        if SWEPT_MESSAGE not in answer.out
    ]


def sweep_run(run_name: str, environ: Mapping[str, str]) -> None:
    """End all processes of a run on this host, and remove its folders."""
    grace_deadline = time.monotonic() + _PATIENCE
    run_folders = places(run_name, environ)
    process_group = next(filter(None, map(noted_cgroup, run_folders)), "")
    while True:
        owner_processes = _processes_holding_folder(run_name)
        remaining_processes = [
            *marked(RUN_VARIABLE, run_name),
            *(in_group(process_group) if process_group else ()),
        ]
        if (
            not owner_processes
            and not remaining_processes
            and (not process_group or group_is_empty(process_group))
        ):
            break
        if not owner_processes or time.monotonic() > grace_deadline:
            if process_group:
                kill_group(process_group)
            kill_all([*owner_processes, *remaining_processes], signal.SIGKILL)
        time.sleep(_POLL)
    if process_group:
        remove_group(process_group)
    for folder in run_folders:
        remove_tree(folder)


def _processes_holding_folder(folder_name: str) -> list[Process]:
    """Return our processes that have a folder of the run open: its relay, its guardian.

    The folder is found by its name, at any path, and also after its removal.
    """
    holders = []
    for process in processes().values():
        try:
            open_fds = os.listdir(f"/proc/{process.pid}/fd")
        except OSError:
            continue
        for open_fd in open_fds:
            try:
                fd_target = os.readlink(f"/proc/{process.pid}/fd/{open_fd}").removesuffix(
                    " (deleted)"
                )
                if os.path.basename(fd_target) == folder_name:
                    holders.append(process)
                    break
            except OSError:
                continue
    return holders


def main(run_names: Sequence[str]) -> int:
    """Sweep these runs. Returns the exit code."""
    for name in run_names:
        sweep_run(name, os.environ)
    print(SWEPT_MESSAGE, flush=True)
    return 0
