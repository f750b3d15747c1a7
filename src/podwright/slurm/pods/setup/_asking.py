"""What proofs of a set-up ask: Slurm's commands, and the server's partitions."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from podwright.client import Client
from podwright.slurm.pods.service import Site, reach
from podwright.wire import PartitionInfo

#: How long a small job may take on a cluster that others use.
WAIT_S = 60.0
SLEEP = "#!/bin/sh\nsleep 60\n"


def ask(*argv: str, stdin: str = "", user: str | None = None) -> tuple[int, str]:
    """A command's exit code and what it said, as one line. user: as whom root runs it."""
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            user=user,
            cwd="/" if user else None,  # where that user may be as well
        )
    except subprocess.TimeoutExpired:
        return 1, f"{argv[0]} did not end within {WAIT_S:g} s: the cluster may be full"
    except OSError as error:
        return 1, str(error)
    return done.returncode, " ".join((done.stdout + " " + done.stderr).split())


def members(first: str) -> list[str]:
    """The jobs of an array or of a heterogeneous job, by their own numbers."""
    code, said = ask("squeue", "-h", "-r", "-j", first, "-O", "JobID:30")
    return [] if code else said.split()


@contextmanager
def there(site: Site) -> Iterator[Callable[[], dict[str, PartitionInfo]]]:
    client: Client
    with reach(site, WAIT_S) as client:
        yield lambda: {one.name: one for one in client.list_partitions()}


def until(probe: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while not probe():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True
