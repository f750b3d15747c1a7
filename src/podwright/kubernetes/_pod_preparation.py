"""The init container of a job's pods: `python -m podwright.kubernetes._pod_preparation [FOLDER]`.

It proves that the pod's partition is there and ready, then copies our files into the folder. A pod
that comes too late, for a partition that is somebody else's by now, so ends before its program.
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
from podwright.kubernetes._worker_files import MPI_HOSTS, MPI_HOSTS_VARIABLE, PLACE

if TYPE_CHECKING:
    from podwright.client import Client

_LOG: Final = "/dev/termination-log"
#: Seconds for a controller that does not answer: it may be starting anew.
_PATIENCE: Final = 60.0
_PAUSE: Final = 1.0
_CALL: Final = 10.0


def prove(client: Client, partition: str) -> None:
    """Raises PodwrightError unless a partition is ready."""
    from podwright.wire import ReadyState

    info = client.get_partition(partition)
    if info.ready_state is not ReadyState.ACTIVE:
        why = "; ".join(info.errors) or info.ready_state.value
        raise WrongState(f"partition {partition} is not ready: {why}")


def prove_own(environ: Mapping[str, str], *, patience: float = _PATIENCE) -> None:
    """The same for the partition of this pod, where its controller has an address."""
    host = environ.get("IPUOF_VIPU_API_HOST")
    if not host:
        return None
    from podwright.client import ServerOptions, find_server

    options = ServerOptions(host=host, port=environ.get("IPUOF_VIPU_API_PORT", ""))
    until = time.monotonic() + patience
    while True:
        try:
            found = find_server(options, {}, timeout=_CALL)
            try:
                return prove(found.client, environ["IPUOF_VIPU_API_PARTITION_ID"])
            finally:
                found.client.close()
        except (NotFound, WrongState):
            raise
        except Denied as error:
            print(f"podwright: not proved, since pods have no key: {error}", file=sys.stderr)
            return None
        except PodwrightError as error:
            if time.monotonic() > until:
                raise Unavailable(f"the V-IPU controller at {host}: {error}") from None
            time.sleep(_PAUSE)


def main(words: Sequence[str]) -> int:
    """The exit code. Why it is not 0 stands in the pod's status."""
    try:
        prove_own(os.environ)
        for folder in words:
            for part in Path(PLACE).iterdir():  # the folder itself is another account's
                shutil.copytree(part, Path(folder, part.name), dirs_exist_ok=True)
            if hosts := os.environ.get(MPI_HOSTS_VARIABLE):
                Path(folder, MPI_HOSTS).write_text(hosts, encoding="utf-8")
    except (PodwrightError, OSError) as error:
        print(error, file=sys.stderr)
        try:
            with open(_LOG, "w", encoding="utf-8") as file:
                file.write(str(error))
        except OSError:
            pass
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
