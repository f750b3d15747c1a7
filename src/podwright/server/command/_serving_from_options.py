"""What `vipu-server` serves, and where, according to its arguments."""

from __future__ import annotations

import os
from pathlib import Path

from podwright.agents import read_key
from podwright.controller import Visible, private_kinds, weights_of
from podwright.errors import InvalidRequest
from podwright.hosts._state_folders import own_key, state_folder
from podwright.page import SiteProxy
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
        socket=socket_path,
        preset=arguments.preset,
        files=tuple(Path(cluster_file) for cluster_file in arguments.cluster_file),
        host=arguments.api_host,
        port=grpc_port,
        anywhere=arguments.listen_anywhere,
        user=arguments.user,
        idle=arguments.idle_seconds or (USER_IDLE_SECONDS if arguments.user else None),
        socket_mode=0o666 if for_all_accounts else 0o600,
        private=not named_socket and not for_all_accounts,
        agent_key=Path(arguments.agent_key) if arguments.agent_key else None,
        own_key=own_key(system=for_all_accounts),
        silence=arguments.agent_silence,
        fabric=fabric_options(arguments),
        web=_web_address(arguments),
        web_names=tuple(filter(None, arguments.http_name.split(","))),
        proxy=_site_proxy(arguments),
        pod=arguments.pod_name,
        munge=(arguments.munge_socket or "") if arguments.munge else None,
        secure=arguments.secure,
        administrators=frozenset(filter(None, arguments.tls_administrators.split(","))),
        visible=Visible(
            None if arguments.private_data is None else private_kinds(arguments.private_data),
            # On loopback, every caller of a user's own server is this user.
            arguments.anonymous_endpoints or arguments.user,
        ),
        weights=weights_of(arguments.share),
        certs=Path(arguments.tls_certs) if arguments.tls_certs else None,
        interfaces=tuple(filter(None, arguments.autodiscovery_listen_interfaces.split(","))),
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
    chosen_fabric: tuple[str, str, str | None, str | None]
    if arguments.fabric:
        chosen_fabric = (
            arguments.fabric,
            arguments.fabric_url or "",
            arguments.fabric_login,
            arguments.fabric_ca,
        )
    elif arguments.nmx:
        chosen_fabric = "NMX-M", arguments.nmx, arguments.nmx_login, arguments.nmx_ca
    elif arguments.redfish:
        chosen_fabric = "Redfish", arguments.redfish, arguments.redfish_login, arguments.redfish_ca
    elif arguments.fabric_inventory or arguments.fabric_url:
        raise InvalidRequest(
            "no option says which fabric this is about",
            operation="--fabric-inventory" if arguments.fabric_inventory else "--fabric-url",
            would_work="--nmx URL, --redfish URL or --fabric NAME beside it",
        )
    else:
        return None
    product, url, login_file, authority_file = chosen_fabric
    return FabricOptions(
        product,
        url,
        login_file=Path(login_file) if login_file else None,
        authority_file=Path(authority_file) if authority_file else None,
        inventory_file=Path(arguments.fabric_inventory) if arguments.fabric_inventory else None,
    )


def _site_proxy(arguments: ServerArguments) -> SiteProxy | None:
    """Return the site's proxy, if there is one. Raises InvalidRequest."""
    addresses = [address for address in arguments.http_proxy.split(",") if address]
    if not addresses:
        return None

    path = arguments.http_proxy_secret
    secret = read_key(Path(path)).decode("latin-1") if path else ""
    return SiteProxy(addresses, header=arguments.http_proxy_user, secret=secret)
