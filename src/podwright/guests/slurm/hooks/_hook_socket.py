"""The Unix socket that hooks connect to, and who may use it: root, Slurm's user and the service's
own user.

PrologSlurmctld and EpilogSlurmctld run as SlurmUser, and steps ask as root. A service that runs as
root gives the socket to SlurmUser. A service that runs as neither root nor SlurmUser opens the
socket to everybody. The kernel says who connects (SO_PEERCRED), and everybody else is refused.
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
from podwright.guests.slurm.service._pods_and_licences import Site
from podwright.http import host_port


def callers(site: Site) -> frozenset[int]:
    """Return the uids that hooks may have. Raises InvalidRequest where this host has no such
    SlurmUser.
    """
    return frozenset({0, os.geteuid(), slurm_uid(site)})


def slurm_uid(site: Site) -> int:
    """Return the uid that slurmctld and its hooks run as. Raises InvalidRequest."""
    if site.slurm_user.isdecimal():
        return int(site.slurm_user)
    try:
        return pwd.getpwnam(site.slurm_user).pw_uid
    except KeyError:
        raise InvalidRequest(
            f"this host has no user {site.slurm_user}",
            operation="let Slurm's hooks in",
            would_work="podwright slurm configure --write, which reads SlurmUser in slurm.conf",
        ) from None


async def require_free_socket(path: Path) -> None:
    """Make sure that no other service answers at `path`, and remove the socket that a killed one
    left.

    Raises AlreadyExists where another service answers.
    """
    try:
        _, writer = await asyncio.open_unix_connection(str(path))
    except PermissionError:
        raise _cannot_listen_error(path) from None
    except OSError:
        with contextlib.suppress(PermissionError):  # then `listen` raises the error
            remove_socket(path)
        return
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    raise AlreadyExists(f"another service answers at {path}", would_work="stop it first")


def remove_socket(path: Path) -> None:
    """Remove the socket, if it is there."""
    path.unlink(missing_ok=True)


def listen(path: Path, owner_uid: int) -> socket.socket:
    """Return the listening socket, open to `owner_uid` (SlurmUser's uid). Raises Unavailable."""
    listener = socket.socket(socket.AF_UNIX)
    previous_umask = os.umask(0o177)
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o755, parents=True)
            path.parent.chmod(0o755)
        listener.bind(str(path))
        if os.geteuid() == 0:
            os.chown(path, owner_uid, -1)
        elif os.geteuid() != owner_uid:
            os.chmod(path, 0o666)
        listener.listen(4096)
        listener.setblocking(False)
    except PermissionError:
        listener.close()
        raise _cannot_listen_error(path) from None
    except OSError as error:
        listener.close()
        raise Unavailable(f"{path}: {error.strerror}", operation="listen for hooks") from None
    finally:
        os.umask(previous_umask)
    return listener


def listen_tcp(addresses: Sequence[str]) -> tuple[int, socket.socket]:
    """Listen at the first HOST:PORT that belongs to this host and is free.

    All hosts share one site file, so most of its addresses belong to other hosts. Returns the
    address's index in the list and its socket. Raises InvalidRequest, Unavailable.
    """
    listen_problem = ""
    for address_index, host_and_port in enumerate(addresses):
        host, port = host_port(host_and_port, "listen for hooks over TCP")
        try:
            family, *_, socket_address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            return address_index, socket.create_server(
                (str(socket_address[0]), port), family=family, backlog=512
            )
        except OSError as error:
            # EADDRNOTAVAIL: another host's address.
            if not listen_problem or error.errno != errno.EADDRNOTAVAIL:
                listen_problem = (
                    f"cannot listen on {host_and_port}: {(error.strerror or str(error)).lower()}"
                )
    raise Unavailable(listen_problem, would_work="choose another `listen` in the site's file")


def _cannot_listen_error(path: Path) -> Unavailable:
    user = pwd.getpwuid(os.geteuid()).pw_name
    return Unavailable(
        f"{path}: {user} may not make a socket there",
        operation="listen for hooks",
        would_work=f"as root, once a boot: install -d -o {user} {path.parent} (the unit does it)",
    )
