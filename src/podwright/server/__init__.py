"""What serves a controller: gRPC on TCP, HTTP on a Unix socket, and who calls."""

from podwright.server._backups import back_up, check, compare, restore_from
from podwright.server._certificates import (
    make_agent_certificate,
    make_certificates,
    make_user_certificate,
    renew_certificates,
)
from podwright.server._fabrics import FabricOptions
from podwright.server._hardware import ServedHardware
from podwright.server._identity import TOKEN_TTL, Identity
from podwright.server._init import make_store
from podwright.server._listen_options import ListenOptions, PageOptions
from podwright.server._other_pods import parse_other_pods
from podwright.server._server import Server
from podwright.server._serving import ServingOptions, serve
from podwright.server._sockets import SocketPlace

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
    "parse_other_pods",
    "renew_certificates",
    "restore_from",
    "serve",
]
