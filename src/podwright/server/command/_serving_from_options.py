"""What `vipu-server` serves, and where, according to its arguments."""

from __future__ import annotations

import os
from pathlib import Path

from podwright.agents import read_key
from podwright.controller import Visible, private_kinds, weights_of
from podwright.errors import InvalidRequest
from podwright.hosts._state_folders import own_key, state_folder
from podwright.page import SiteProxy
from podwright.server._listen_options import ListenOptions, PageOptions
from podwright.server._server_process import ServingOptions
from podwright.server.command._server_arguments import ServerArguments
from podwright.server.machines._choose_fabric_driver import FabricOptions
from podwright.store import shows_password, storage_file
from podwright.wire import DEFAULT_PORT, SOCKET_VARIABLE, SYSTEM_SOCKET, user_socket

#: Seconds without partition, lease or call after which a user's own server ends.
USER_IDLE_SECONDS = 300.0


def serving_options(arguments: ServerArguments) -> ServingOptions:
    """Return what to serve. Raises InvalidRequest for arguments that contradict each other."""
    for_all_accounts = arguments.system and not arguments.user
    named_socket = arguments.socket or os.environ.get(SOCKET_VARIABLE, "")
    if "," in named_socket and not arguments.socket:
        raise InvalidRequest(
            f"{SOCKET_VARIABLE} names the sockets of several servers",
            would_work="say which one is this server's with --socket",
        )
    socket_path = Path(
        named_socket or (SYSTEM_SOCKET if for_all_accounts else user_socket())
    ).absolute()
    if arguments.storage:
        if shows_password(arguments.storage):
            raise InvalidRequest(
                "--storage carries a password, which every user of this machine could read",
                would_work="leave it out, and keep it in ~/.pgpass or name its file in PGPASSFILE",
            )
        storage_place: Path | str = storage_file(arguments.storage) or arguments.storage
    elif arguments.user:
        storage_place = socket_path.with_name("server.db")
    else:
        storage_place = state_folder(system=for_all_accounts) / "vipu-server.db"
    grpc_port = arguments.api_port
    if grpc_port is None:
        grpc_port = 0 if arguments.user else DEFAULT_PORT
    return ServingOptions(
        storage=storage_place.absolute() if isinstance(storage_place, Path) else storage_place,
        listen=ListenOptions(
            socket_path,
            socket_mode=0o666 if for_all_accounts else 0o600,
            private_folder=not named_socket and not for_all_accounts,
            host=arguments.api_host,
            port=grpc_port,
            anywhere=arguments.listen_anywhere,
            certs=arguments.tls_certs,
            apart=True,
            web=_web_address(arguments),
        ),
        page=PageOptions(
            names=arguments.http_name, proxy=_site_proxy(arguments), pod=arguments.pod_name
        ),
        preset=arguments.preset,
        files=arguments.cluster_file,
        user=arguments.user,
        idle=arguments.idle_seconds or (USER_IDLE_SECONDS if arguments.user else None),
        agent_key=arguments.agent_key,
        own_key=own_key(system=for_all_accounts),
        silence=arguments.agent_silence,
        fabric=fabric_options(arguments),
        munge=(arguments.munge_socket or "") if arguments.munge else None,
        secure=arguments.secure,
        administrators=frozenset(arguments.tls_administrators),
        visible=Visible(
            None if arguments.private_data is None else private_kinds(arguments.private_data),
            # On loopback, every caller of a user's own server is this user.
            arguments.anonymous_endpoints or arguments.user,
        ),
        weights=weights_of(arguments.share),
        interfaces=arguments.autodiscovery_listen_interfaces,
    )


def _web_address(arguments: ServerArguments) -> tuple[str, int] | None:
    """Return the address for HTTP. A user's own server has its page on a free port of loopback."""
    if arguments.http_port is not None:
        return arguments.http_host, arguments.http_port
    return ("127.0.0.1", 0) if arguments.user else None


def fabric_options(arguments: ServerArguments) -> FabricOptions | None:
    """Return the options of the fabric that joins devices of several machines; None without one."""
    if sum(map(bool, (arguments.nmx, arguments.redfish, arguments.fabric))) > 1:
        raise InvalidRequest(
            "one server drives one fabric", would_work="--nmx, --redfish or --fabric"
        )
    inventory = arguments.fabric_inventory
    if arguments.fabric:
        return FabricOptions(
            arguments.fabric,
            arguments.fabric_url or "",
            arguments.fabric_login,
            arguments.fabric_ca,
            inventory,
        )
    if arguments.nmx:
        return FabricOptions(
            "NMX-M", arguments.nmx, arguments.nmx_login, arguments.nmx_ca, inventory
        )
    if arguments.redfish:
        return FabricOptions(
            "Redfish", arguments.redfish, arguments.redfish_login, arguments.redfish_ca, inventory
        )
    if inventory or arguments.fabric_url:
        raise InvalidRequest(
            "no option says which fabric this is about",
            operation="--fabric-inventory" if inventory else "--fabric-url",
            would_work="--nmx URL, --redfish URL or --fabric NAME beside it",
        )
    return None


def _site_proxy(arguments: ServerArguments) -> SiteProxy | None:
    """Return the site's proxy, if there is one. Raises InvalidRequest."""
    if not arguments.http_proxy:
        return None
    path = arguments.http_proxy_secret
    secret = read_key(path).decode("latin-1") if path else ""
    return SiteProxy(arguments.http_proxy, header=arguments.http_proxy_user, secret=secret)
