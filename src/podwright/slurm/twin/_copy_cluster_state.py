"""The present state of a cluster, for a twin that answers for the cluster as it is now.

A copy of StateSaveLocation restores running jobs, drained nodes and reservations as they are. Only
the files in an allow-list are read: no script and no environment of a job, and no key. A job that
waits in the copied state gets an empty script under its number, so that slurmctld can start it
before the request, as the site's slurmctld would.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

from podwright.errors import Denied, InvalidRequest
from podwright.slurm.twin._twin_types import Present

STATE_FILES = (
    *("job_state", "node_state", "part_state", "resv_state", "last_tres"),
    # clustername also has the cluster's number, for which slurmctld would otherwise ask slurmdbd.
    *("assoc_mgr_state", "assoc_usage", "qos_usage", "clustername"),
)
_EMPTY_JOB_SCRIPT = b"#!/bin/sh\n\0"
#: A job's environment: the number of its texts, and a text.
_JOB_ENVIRONMENT = struct.pack("=I", 1) + b"PATH=/usr/bin:/bin\0"


def present_copied(state_folder: Path) -> Present:
    """Return the state in StateSaveLocation, which only root and SlurmUser may read.

    slurmctld writes the files every few seconds, and replaces each as a whole. Raises Denied where
    the caller may not read them, and InvalidRequest where the folder is not such a folder.
    """
    state_files: dict[str, bytes] = {}
    try:
        for name in STATE_FILES:
            path = state_folder / name
            if path.exists():
                state_files[name] = path.read_bytes()
        job_folders = [path for path in state_folder.glob("hash.*/job.*") if path.is_dir()]
    except PermissionError as error:
        raise Denied(
            f"{error.filename}: the state of slurmctld is readable by root and SlurmUser alone",
            would_work="Run as root or as SlurmUser, or ask without the present state",
        ) from error
    for file in ("job_state", "node_state"):
        if file not in state_files:
            raise InvalidRequest(
                f"{state_folder} has no {file}",
                would_work="Name the folder in `scontrol show config | grep StateSaveLocation`",
            )
    for path in job_folders:
        if re.fullmatch(r"job\.\d+", path.name):
            job_path = f"{path.parent.name}/{path.name}"
            state_files[f"{job_path}/script"] = _EMPTY_JOB_SCRIPT
            state_files[f"{job_path}/environment"] = _JOB_ENVIRONMENT
    return Present(state_files, accounts="assoc_mgr_state" in state_files, source=str(state_folder))
