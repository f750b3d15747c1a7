"""Words that a shell offers: `podwright complete KIND` prints them, one on a line.

A shell waits for it while somebody types. So the server has 0.2 s to answer, none is started, and
no error is printed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from podwright.client import Client

#: Seconds that the server, or Slurm, has to answer.
LIMIT = 0.2


class _TooLong(BaseException):
    """The time limit is over, or no server runs."""


def words(kind: str, environ: Mapping[str, str]) -> list[str]:
    """Return the words of a kind, one of KINDS; none when they are not available at once."""
    candidates: list[str] = []
    with contextlib.suppress(Exception, _TooLong):
        if kind in _OF_SERVER:
            from podwright.client import Client  # noqa: F401 (the time is the server's, not ours)

        with _limit(LIMIT):
            if kind in _HERE:
                candidates = _HERE[kind]()
            else:
                with _client(environ) as client:
                    candidates = _OF_SERVER[kind](client)
    return sorted({word for word in candidates if re.fullmatch(r"[\w.:@%+-]+", word)})


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    def end(_number: int, _frame: object) -> NoReturn:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _client(environ: Mapping[str, str]) -> Client:
    from podwright.client import LocalServers, ServerOptions, find_server

    places = LocalServers.running(_TooLong())
    return find_server(ServerOptions(), environ, timeout=LIMIT, local_servers=places).client


_OF_SERVER: dict[str, Callable[[Client], list[str]]] = {
    "partitions": lambda client: [p.name for p in client.list_partitions()],
    "allocations": lambda client: [a.name for a in client.list_allocations()],
    "clusters": lambda client: [c.name for c in client.list_clusters()],
    "leases": lambda client: [lease.id for lease in client.list_leases()],
    "waiters": lambda client: [waiter.id for waiter in client.list_waiters()],
    "machines": lambda client: [m for c in client.list_clusters() for m in c.machines],
}


def _jobs() -> list[str]:
    done = subprocess.run(
        ["squeue", "--me", "-h", "-o", "%A"], capture_output=True, text=True, check=False
    )
    return done.stdout.split()


def _hosts() -> list[str]:
    """Return the hosts in ~/.ssh: those that are configured, and those known by name."""
    hosts: list[str] = []
    with contextlib.suppress(OSError), open(os.path.expanduser("~/.ssh/config")) as file:
        for line in file:
            key, _, names = line.strip().replace("=", " ", 1).partition(" ")
            hosts += names.split() if key.lower() == "host" else []
    with contextlib.suppress(OSError), open(os.path.expanduser("~/.ssh/known_hosts")) as file:
        for line in file:
            names = line.partition(" ")[0]
            hosts += names.split(",") if not names.startswith(("|", "@", "#")) else []
    return [host for host in hosts if not set(host) & set("*?![]")]


def _contexts() -> list[str]:
    from podwright.client import contexts_path, read_contexts

    return list(read_contexts(contexts_path(os.environ)).contexts)


_HERE: dict[str, Callable[[], list[str]]] = {
    "contexts": _contexts,
    "jobs": _jobs,
    "hosts": _hosts,
}
KINDS = (*_OF_SERVER, *_HERE)
