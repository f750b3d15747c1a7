"""The init container of a job's pods. Run as a module: `python -m … [FOLDER]`.

It proves that the pod's partition exists and is ready, and then copies our files into the folder.
So a pod that comes too late, when its partition belongs to another job, ends before its program
starts.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from podwright.errors import Denied, NotFound, PodwrightError, Unavailable, WrongState
from podwright.guests.kubernetes.pods._worker_files import MPI_HOSTS, MPI_HOSTS_VARIABLE, PLACE

if TYPE_CHECKING:
    from podwright.client import Client

_TERMINATION_LOG: Final = "/dev/termination-log"
#: Seconds to wait for a controller that does not answer. It may be restarting.
_SERVER_TIMEOUT_S: Final = 60.0
_RETRY_PAUSE_S: Final = 1.0
_CALL_TIMEOUT_S: Final = 10.0


def prove(client: Client, partition: str) -> None:
    """Raise PodwrightError unless a partition is ready."""
    from podwright.wire import ReadyState

    info = client.get_partition(partition)
    if info.ready_state is not ReadyState.ACTIVE:
        problem = "; ".join(info.errors) or info.ready_state.value
        raise WrongState(f"partition {partition} is not ready: {problem}")


def prove_own_partition(environ: Mapping[str, str], *, patience: float = _SERVER_TIMEOUT_S) -> None:
    """Prove the partition of this pod, if its controller has an address.

    patience: seconds in which the controller must answer. Raises PodwrightError.
    """
    host = environ.get("IPUOF_VIPU_API_HOST")
    if not host:
        return None
    from podwright.client import ServerOptions, find_server

    server_options = ServerOptions(host=host, port=environ.get("IPUOF_VIPU_API_PORT", ""))
    deadline = time.monotonic() + patience
    while True:
        try:
            server = find_server(server_options, {}, timeout=_CALL_TIMEOUT_S)
            try:
                return prove(server.client, environ["IPUOF_VIPU_API_PARTITION_ID"])
            finally:
                server.client.close()
        except (NotFound, WrongState):
            raise
        except Denied as error:
            print(f"podwright: not proved, since pods have no key: {error}", file=sys.stderr)
            return None
        except PodwrightError as error:
            if time.monotonic() > deadline:
                raise Unavailable(f"the V-IPU controller at {host}: {error}") from None
            time.sleep(_RETRY_PAUSE_S)


def main(folders: Sequence[str]) -> int:
    """Prove and copy, and return the exit code. If it is not 0, the pod's status says why."""
    try:
        prove_own_partition(os.environ)
        for folder in folders:
            for source in Path(PLACE).iterdir():  # the folder itself belongs to another account
                shutil.copytree(source, Path(folder, source.name), dirs_exist_ok=True)
            if mpi_hosts := os.environ.get(MPI_HOSTS_VARIABLE):
                Path(folder, MPI_HOSTS).write_text(mpi_hosts, encoding="utf-8")
    except (PodwrightError, OSError) as error:
        print(error, file=sys.stderr)
        try:
            with open(_TERMINATION_LOG, "w", encoding="utf-8") as file:
                file.write(str(error))
        except OSError:
            pass
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
