"""Whether the service that Slurm's hooks call is away, as far as anybody can see.

An ordinary user may not call its Unix socket, but the kernel lists the sockets of this host for
everybody. Over TCP the service tells everybody its role. A service that was ended on purpose hides
all devices from Slurm.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from podwright.errors import FieldNotKnown
from podwright.guests.slurm.service import Site, parse_licences
from podwright.guests.slurm.service._hook_job_request import ROLE_PATH
from podwright.guests.slurm.service._licence_counts import RESERVATION_NAME
from podwright.slurm.reader import SHOW_RESERVATIONS, read_reservations
from podwright.slurm.site.commands import Slurm

_UNIX_SOCKETS: Final = Path("/proc/net/unix")
_ANSWER_WITHIN_S: Final = 1.5
_UNTIL: Final = "no job with devices starts until it runs"


async def absence_text(slurm: Slurm, site: Site, devices_free: bool) -> str:
    """Return that the service is away, or "" if it runs or cannot be seen from here.

    devices_free: the server would give the job its devices now, so not all are in use.
    """
    if site.doors:
        if all(map(_refuses, site.doors)):
            return f"`podwright slurm serve` does not run at {', '.join(site.doors)}: {_UNTIL}"
    elif Path(site.socket).parent.is_dir() and not _listed(site.socket):
        return f"`podwright slurm serve` does not run on this host: {_UNTIL}"
    if devices_free and await _all_hidden(slurm, site):
        return f"`podwright slurm serve` was ended, and hides all devices from Slurm: {_UNTIL}"
    return ""


def _listed(socket_path: str) -> bool:
    with contextlib.suppress(OSError):
        lines = _UNIX_SOCKETS.read_text(errors="replace").splitlines()
        return any(line.split(" ")[-1] == socket_path for line in lines)
    return True  # nobody knows


def _refuses(address: str) -> bool:
    """Return whether nothing listens there. A host that does not answer says nothing."""
    import http.client

    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_ANSWER_WITHIN_S)
    with contextlib.closing(connection):
        try:
            connection.request("GET", ROLE_PATH)
            connection.getresponse()
        except ConnectionRefusedError:
            return True
        except (OSError, http.client.HTTPException):
            return False
    return False


async def _all_hidden(slurm: Slurm, site: Site) -> bool:
    """Return whether Slurm may give out no device of any pod, as the service says at its end."""
    reply = await slurm.run(*SHOW_RESERVATIONS, RESERVATION_NAME)
    try:
        hidden = [parse_licences(one.licences) for one in read_reservations(reply.out)]
    except FieldNotKnown:
        return False
    smallest = {pod.block_licence(pod.orders[0]): pod.devices for pod in site.pods}
    return bool(smallest) and any(
        all(licences.get(name, 0) >= count for name, count in smallest.items())
        for licences in hidden
    )
