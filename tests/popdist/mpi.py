"""Starts instances as poprun does, through mpirun alone: popdist must not need poprun's house."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

MPIRUN = Path(sys.executable).parent / "mpirun"
EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"

#: The libfabric transport sleeps a second at each start; on one host nobody needs it.
_QUICK = {"OMPI_MCA_btl": "self,sm"}


class Ended(NamedTuple):
    """How a launch ended."""

    code: int
    out: str
    err: str


def environment(instance: int, local: int, total: int, *, uniform: bool = True) -> dict[str, str]:
    """What poprun tells an instance of `local` replicas."""
    return {
        "POPDIST_NUM_TOTAL_REPLICAS": str(total),
        "POPDIST_NUM_LOCAL_REPLICAS": str(local),
        "POPDIST_NUM_IPUS_PER_REPLICA": "1",
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": str(int(uniform)),
        "POPDIST_REPLICA_INDEX_OFFSET": str(instance * local),
        "POPDIST_LOCAL_INSTANCE_INDEX": str(instance),
    }


def launch(
    folder: Path, program: list[str], instances: list[dict[str, str]], timeout: float = 300
) -> Ended:
    """Run a Python program in these instances, one environment each.

    folder: for MPI's own files. timeout: seconds; a launch that takes longer is ended, with all
    its processes, and the test fails.
    """
    command = [str(MPIRUN), "--allow-run-as-root", "--oversubscribe"]
    for index, variables in enumerate(instances):
        command += [":"] if index else []
        command += ["-n", "1"]
        for name, value in variables.items():
            command += ["-x", f"{name}={value}"]
        command += [sys.executable, *program]
    return run(folder, command, {}, timeout)


def run(folder: Path, command: list[str], variables: dict[str, str], timeout: float = 300) -> Ended:
    """Run a command to its end, in a folder of its own."""
    with subprocess.Popen(
        command,
        env={
            **os.environ,
            **_QUICK,
            "TMPDIR": str(folder),
            "OMPI_MCA_btl_sm_backing_directory": str(folder),  # a rank that fails leaves a file
            **variables,
        },
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.terminate()  # mpirun ends its ranks; a kill would orphan them
            out, err = process.communicate(timeout=120)
            raise AssertionError(f"took over {timeout} s:\n{out}\n{err}") from None
    return Ended(process.returncode, out, err)
