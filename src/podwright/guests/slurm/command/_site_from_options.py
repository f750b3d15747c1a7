"""The site of Slurm as an administrator chooses it: asks the server what the choice leaves open."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from podwright.client import TIMEOUT, Address, Client
from podwright.errors import InvalidRequest, Unavailable
from podwright.guests.slurm.command._pod_configure_options import PodSetupOptions
from podwright.guests.slurm.hooks import addresses, reach, slurm_uid
from podwright.guests.slurm.service import Site
from podwright.guests.slurm.service._pods_and_licences import SlurmPod
from podwright.guests.slurm.setup._plan_site_changes import slurm_user, window
from podwright.guests.slurm.setup._pod_survey import mapping, shared, shelf, survey
from podwright.guests.slurm.setup._service_reachability import (
    check_server,
    far_door,
    munge_socket,
    server_host,
    without_munge,
)
from podwright.wire import SOCKET_VARIABLE


def chosen_site(setup_options: PodSetupOptions) -> Site:
    """Return the site. Raises InvalidRequest for a choice that contradicts itself."""
    mode = setup_options.mode
    if mode == "host-mapping" and not setup_options.mapping:
        raise InvalidRequest("host mapping needs a file", would_work="--mapping FILE")
    if mode not in ("native", "plugin") and setup_options.on_failure == "relocate":
        raise InvalidRequest(
            f"--mode {mode} cannot move a job to other devices",
            operation="--on-failure relocate",
            would_work="--on-failure stay or requeue" if mode == "shared" else "leave it out",
        )
    slurm_conf = Path(setup_options.slurm_conf).absolute()
    server = setup_options.server or os.environ.get(SOCKET_VARIABLE, "")
    server_addresses = addresses(server) or (Address("localhost"),)
    if setup_options.server_config and not server.startswith("tcp:"):
        raise InvalidRequest(
            "by the Unix socket the kernel says who calls",
            operation=f"--server-config {setup_options.server_config}",
            would_work="--server tcp:HOST:PORT with it",
        )
    check_server(slurm_conf, server)
    draft_site = Site(
        server=server,
        credentials=str(Path(setup_options.server_config).absolute())
        if setup_options.server_config
        else "",
        munge_socket=setup_options.munge_socket or munge_socket(slurm_conf),
    )
    with _reached(draft_site) as client:
        # A Unix socket has no port, and a server may use any, so the server is asked for its own.
        server_port = (
            0 if setup_options.port or addresses(server) else client.get_server_info().port
        )
        site = _with_mode_devices(draft_site, setup_options, client)
    return msgspec.structs.replace(
        site,
        mode=mode,
        socket=setup_options.hooks_socket,
        host=server_host(
            Path(setup_options.slurm_conf),
            setup_options.host,
            server_addresses[0].host if addresses(server) else None,
        ),
        window_s=window(Path(setup_options.slurm_conf)),
        port=setup_options.port or server_port or server_addresses[0].port,
        fallen=setup_options.on_failure,
        room_s=setup_options.room_after,
        default_ipus=_default_ipus(setup_options, site.pods),
        listen=setup_options.listen or far_door(slurm_conf),
        key=_key_path(setup_options),
        slurm_user=slurm_user(slurm_conf),
        metrics=setup_options.metrics,
    )


@contextmanager
def _reached(site: Site) -> Iterator[Client]:
    """Yield a client of the site's server. A refusal names this command's own option."""
    try:
        with reach(site, TIMEOUT) as client:
            yield client
    except Unavailable as error:
        raise Unavailable(
            error.problem,
            operation="ask the server what there is",
            would_work=f"start vipu-server, or name it: --server PATH, --server tcp:HOST:PORT, or "
            f"{SOCKET_VARIABLE}",
        ) from None


def _with_mode_devices(site: Site, setup_options: PodSetupOptions, client: Client) -> Site:
    """Return the site with what its mode gives to jobs: hosts, partitions or pods."""
    if setup_options.mode == "host-mapping":
        mapping_path = Path(setup_options.mapping or "")
        try:
            mapping_text = mapping_path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InvalidRequest(
                f"{mapping_path}: {reason}", operation="read the mapping"
            ) from None
        return msgspec.structs.replace(site, hosts=mapping(client, mapping_text, str(mapping_path)))
    if setup_options.mode == "static":
        return msgspec.structs.replace(site, partitions=shelf(client, setup_options.partition))
    if setup_options.mode == "shared":
        partition, pod = shared(client, setup_options.partition)
        return msgspec.structs.replace(site, shared=partition, pods=(pod,))
    return msgspec.structs.replace(site, pods=survey(client, setup_options.pod))


def _key_path(setup_options: PodSetupOptions) -> str:
    """Return the file of the key; empty when MUNGE is used instead."""
    if setup_options.key:
        return str(Path(setup_options.key).absolute())
    if not without_munge(Path(setup_options.slurm_conf)):
        return ""
    return str(Path(setup_options.folder).absolute() / "hook.key")


def _default_ipus(setup_options: PodSetupOptions, pods: Sequence[SlurmPod]) -> int:
    """Return the devices of a job that names none; -1: such a job is refused. Raises
    InvalidRequest.
    """
    requested_text = setup_options.default_ipus
    if requested_text is None:
        return -1 if setup_options.mode == "shared" else 0
    if requested_text == "ask":
        return -1
    action = f"--default-ipus {requested_text}"
    if not pods:
        raise InvalidRequest(
            f"under --mode {setup_options.mode} jobs do not ask by --ipus",
            operation=action,
            would_work="leave it out",
        )
    device_count = int(requested_text) if requested_text.isdecimal() else -1
    # In other modes, a job's tasks learn from the option itself that they have a partition.
    allowed_sizes = (
        [1 << order for order in pods[0].orders] if setup_options.mode == "shared" else []
    )
    if device_count not in (0, *allowed_sizes):
        raise InvalidRequest(
            f"under --mode {setup_options.mode} no job could have that",
            operation=action,
            would_work=f"ask, 0 or one of {', '.join(map(str, allowed_sizes))}"
            if allowed_sizes
            else "ask or 0",
        )
    return device_count


def trusted_uids(user_name: str | None, site: Site) -> tuple[int, ...]:
    """Return who may change a job's Podwright fields: root, SlurmUser, and the service's user."""
    uids = {0, slurm_uid(site)}
    if user_name:
        try:
            uids.add(pwd.getpwnam(user_name).pw_uid)
        except KeyError:
            raise InvalidRequest(f"there is no user {user_name}") from None
    return tuple(sorted(uids))
