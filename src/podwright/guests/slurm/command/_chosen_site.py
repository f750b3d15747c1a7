"""The site of Slurm as an administrator chooses it: asks the server what the choice leaves open."""

from __future__ import annotations

import pwd
from collections.abc import Sequence
from pathlib import Path

import msgspec

from podwright.client import TIMEOUT, Address, Client
from podwright.errors import InvalidRequest
from podwright.guests.slurm.command._pod_options import PodSetupOptions
from podwright.guests.slurm.hooks import addresses, reach, slurm_uid
from podwright.guests.slurm.service import Site
from podwright.guests.slurm.service._pods import SlurmPod
from podwright.guests.slurm.setup._native import slurm_user, window
from podwright.guests.slurm.setup._pod_survey import mapping, shared, shelf, survey
from podwright.guests.slurm.setup._reachability import (
    check_server,
    far_door,
    munge_socket,
    server_host,
    without_munge,
)


def chosen_site(choice: PodSetupOptions) -> Site:
    """Return the site. Raises InvalidRequest for a choice that contradicts itself."""
    mode = choice.mode
    if mode == "host-mapping" and not choice.mapping:
        raise InvalidRequest("host mapping needs a file", would_work="--mapping FILE")
    if mode not in ("native", "plugin") and choice.on_failure == "relocate":
        raise InvalidRequest(
            f"--mode {mode} cannot move a job to other devices",
            operation="--on-failure relocate",
            would_work="--on-failure stay or requeue" if mode == "shared" else "leave it out",
        )
    conf = Path(choice.slurm_conf).absolute()
    server_addresses = addresses(choice.server) or (Address("localhost"),)
    if choice.server_config and not choice.server.startswith("tcp:"):
        raise InvalidRequest(
            "by the Unix socket the kernel says who calls",
            operation=f"--server-config {choice.server_config}",
            would_work="--server tcp:HOST:PORT with it",
        )
    check_server(conf, choice.server)
    door = Site(
        server=choice.server,
        credentials=str(Path(choice.server_config).absolute()) if choice.server_config else "",
        munge_socket=choice.munge_socket or munge_socket(conf),
    )
    with reach(door, TIMEOUT) as client:
        # A Unix socket has no port, and a server may use any, so the server is asked for its own.
        own = 0 if choice.port or addresses(choice.server) else client.get_server_info().port
        site = _with_devices(door, choice, client)
    return msgspec.structs.replace(
        site,
        mode=mode,
        socket=choice.hooks_socket,
        host=server_host(
            Path(choice.slurm_conf),
            choice.host,
            server_addresses[0].host if addresses(choice.server) else None,
        ),
        window_s=window(Path(choice.slurm_conf)),
        port=choice.port or own or server_addresses[0].port,
        fallen=choice.on_failure,
        room_s=choice.room_after,
        default_ipus=_default_ipus(choice, site.pods),
        listen=choice.listen or far_door(conf),
        key=_key(choice),
        slurm_user=slurm_user(conf),
        metrics=choice.metrics,
    )


def _with_devices(site: Site, choice: PodSetupOptions, client: Client) -> Site:
    """Return the site with what its mode gives to jobs: hosts, partitions or pods."""
    if choice.mode == "host-mapping":
        path = Path(choice.mapping or "")
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InvalidRequest(f"{path}: {reason}", operation="read the mapping") from None
        return msgspec.structs.replace(site, hosts=mapping(client, text, str(path)))
    if choice.mode == "static":
        return msgspec.structs.replace(site, partitions=shelf(client, choice.partition))
    if choice.mode == "shared":
        partition, pod = shared(client, choice.partition)
        return msgspec.structs.replace(site, shared=partition, pods=(pod,))
    return msgspec.structs.replace(site, pods=survey(client, choice.pod))


def _key(choice: PodSetupOptions) -> str:
    """Return the file of the key; empty when MUNGE is used instead."""
    if choice.key:
        return str(Path(choice.key).absolute())
    if not without_munge(Path(choice.slurm_conf)):
        return ""
    return str(Path(choice.folder).absolute() / "hook.key")


def _default_ipus(choice: PodSetupOptions, pods: Sequence[SlurmPod]) -> int:
    """Return the devices of a job that names none; -1: such a job is refused. Raises
    InvalidRequest.
    """
    text = choice.default_ipus
    if text is None:
        return -1 if choice.mode == "shared" else 0
    if text == "ask":
        return -1
    action = f"--default-ipus {text}"
    if not pods:
        raise InvalidRequest(
            f"under --mode {choice.mode} jobs do not ask by --ipus",
            operation=action,
            would_work="leave it out",
        )
    size = int(text) if text.isdecimal() else -1
    # In other modes, a job's tasks learn from the option itself that they have a partition.
    sizes = [1 << order for order in pods[0].orders] if choice.mode == "shared" else []
    if size not in (0, *sizes):
        raise InvalidRequest(
            f"under --mode {choice.mode} no job could have that",
            operation=action,
            would_work=f"ask, 0 or one of {', '.join(map(str, sizes))}" if sizes else "ask or 0",
        )
    return size


def trusted_uids(named: str | None, site: Site) -> tuple[int, ...]:
    """Return who may change a job's Podwright fields: root, SlurmUser, and the service's user."""
    uids = {0, slurm_uid(site)}
    if named:
        try:
            uids.add(pwd.getpwnam(named).pw_uid)
        except KeyError:
            raise InvalidRequest(f"there is no user {named}") from None
    return tuple(sorted(uids))
