"""The Unix socket that hooks come by, and who may: root, Slurm's user, and the service's own.

PrologSlurmctld and EpilogSlurmctld run as SlurmUser, and steps ask as root. So the socket is given
to SlurmUser where the service is root; where it is neither, everybody may knock. The kernel says
who comes (SO_PEERCRED), and others are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pwd
import socket
from collections.abc import Sequence
from pathlib import Path

from podwright.errors import AlreadyExists, InvalidRequest, Unavailable
from podwright.slurm.pods.service._pods import Site


def callers(site: Site) -> frozenset[int]:
    """The uids of hooks. Raises InvalidRequest where this host has no such SlurmUser."""
    return frozenset({0, os.geteuid(), slurm_uid(site)})


def slurm_uid(site: Site) -> int:
    """Who slurmctld and its hooks run as. Raises InvalidRequest."""
    if site.slurm_user.isdecimal():
        return int(site.slurm_user)
    try:
        return pwd.getpwnam(site.slurm_user).pw_uid
    except KeyError:
        raise InvalidRequest(
            f"this host has no user {site.slurm_user}",
            asked="let Slurm's hooks in",
            would_work="podwright slurm configure --write, which reads SlurmUser in slurm.conf",
        ) from None


async def nobody_at(path: Path) -> None:
    """Raises AlreadyExists where another service answers; what a killed one left is removed."""
    try:
        _, writer = await asyncio.open_unix_connection(str(path))
    except PermissionError:
        raise _not_open(path) from None
    except OSError:
        with contextlib.suppress(PermissionError):  # then listening says so
            gone(path)
        return
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    raise AlreadyExists(f"another service answers at {path}", would_work="stop it first")


def gone(path: Path) -> None:
    """The socket is there no more."""
    path.unlink(missing_ok=True)


def listen(path: Path, owner: int) -> socket.socket:
    """The listening socket, open to `owner` (SlurmUser's uid). Raises Unavailable."""
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o755, parents=True)
            path.parent.chmod(0o755)
        listener.bind(str(path))
        if os.geteuid() == 0:
            os.chown(path, owner, -1)
        elif os.geteuid() != owner:
            os.chmod(path, 0o666)
        listener.listen(4096)
        listener.setblocking(False)
    except PermissionError:
        listener.close()
        raise _not_open(path) from None
    except OSError as error:
        listener.close()
        raise Unavailable(f"{path}: {error.strerror}", asked="listen for hooks") from None
    finally:
        os.umask(before)
    return listener


def host_port(where: str, asked: str) -> tuple[str, int]:
    """An address of the site's file. asked: what it is for. Raises InvalidRequest."""
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidRequest(f"{where!r} is not HOST:PORT", asked=asked)
    return host.strip("[]"), int(port)


def listen_far(addresses: Sequence[str]) -> tuple[int, socket.socket]:
    """The first of some HOST:PORT that is this host's own and free, by its place, and its socket.

    One file serves the services of all hosts. Raises InvalidRequest, Unavailable.
    """
    said = ""
    for place, where in enumerate(addresses):
        host, port = host_port(where, "listen for hooks over TCP")
        try:
            family, *_, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            return place, socket.create_server((str(address[0]), port), family=family, backlog=512)
        except OSError as error:
            if not said or error.errno != errno.EADDRNOTAVAIL:  # another host's says nothing
                said = f"cannot listen on {where}: {(error.strerror or str(error)).lower()}"
    raise Unavailable(said, would_work="another `listen` in the site's file")


def _not_open(path: Path) -> Unavailable:
    me = pwd.getpwuid(os.geteuid()).pw_name
    return Unavailable(
        f"{path}: {me} may not make a socket there",
        asked="listen for hooks",
        would_work=f"as root, once a boot: install -d -o {me} {path.parent} (the unit does it)",
    )
