"""What serves a controller: gRPC on TCP, HTTP on a Unix socket, and who calls.

A name is loaded when it is first used, so that `vipu-server --help` loads no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.ground.lazy_imports import lazy_names

if TYPE_CHECKING:
    from podwright.server._backups import back_up, check, compare, repair, restore_from
    from podwright.server._caller_identity import TOKEN_TTL, Identity
    from podwright.server._certificates import (
        make_agent_certificate,
        make_certificates,
        make_user_certificate,
        renew_certificates,
    )
    from podwright.server._listen_options import ListenOptions, PageOptions
    from podwright.server._make_store import make_store
    from podwright.server._server import Server
    from podwright.server._server_process import ServingOptions, serve
    from podwright.server._socket_lock import SocketPlace
    from podwright.server.machines._choose_fabric_driver import FabricOptions
    from podwright.server.machines._served_hardware import ServedHardware

__all__ = [
    "TOKEN_TTL",
    "FabricOptions",
    "Identity",
    "ListenOptions",
    "PageOptions",
    "ServedHardware",
    "Server",
    "ServingOptions",
    "SocketPlace",
    "back_up",
    "check",
    "compare",
    "make_agent_certificate",
    "make_certificates",
    "make_store",
    "make_user_certificate",
    "renew_certificates",
    "repair",
    "restore_from",
    "serve",
]
#: Each module, and the names that come from it.
_LATER = {
    "_backups": (
        "back_up",
        "check",
        "compare",
        "repair",
        "restore_from",
    ),
    "_certificates": (
        "make_agent_certificate",
        "make_certificates",
        "make_user_certificate",
        "renew_certificates",
    ),
    "machines._choose_fabric_driver": ("FabricOptions",),
    "machines._served_hardware": ("ServedHardware",),
    "_caller_identity": (
        "TOKEN_TTL",
        "Identity",
    ),
    "_make_store": ("make_store",),
    "_listen_options": (
        "ListenOptions",
        "PageOptions",
    ),
    "_server": ("Server",),
    "_server_process": (
        "ServingOptions",
        "serve",
    ),
    "_socket_lock": ("SocketPlace",),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, _LATER)
