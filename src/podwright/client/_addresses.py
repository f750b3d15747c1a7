"""Which server was named: by option, environment or configuration file, in this order.

Each key is looked up on its own, as V-IPU's commands do: a port from the file goes with a host
from an option. Addresses are lists: `host1,host2:8091` is tried from left to right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from podwright.client._local_servers import DEFAULT_HOST, SYSTEM_CONFIG
from podwright.errors import InvalidRequest, Unavailable
from podwright.wire import DEFAULT_PORT, SOCKET_VARIABLE

HOST_VARIABLE = "VIPU_CLI_API_HOST"
PORT_VARIABLE = "VIPU_CLI_API_PORT"

# Patterns are compiled when they are needed: most commands need none.
_LINE = r'\s*([A-Za-z][\w-]*)\s*=\s*(?:"([^"\\]*)"|([\w.:-]+))\s*(?:(?:#|//).*)?$'
_HOST = r"[A-Za-z0-9_.:%-]+"
USER_VARIABLE = "VIPU_CLI_API_USER_ID"
KEY_VARIABLE = "VIPU_CLI_API_ACCESS_KEY"
CERTS_VARIABLE = "VIPU_CLI_TLS_CERTS"
MUNGE_VARIABLE = "VIPU_CLI_MUNGE"


class Address(NamedTuple):
    """A TCP address. str() is `host:port`, IPv6 in brackets."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Credentials(NamedTuple):
    """Who we are to a server on TCP; empty: anonymous.

    user, key: a user's name and access key. certs: the folder with ca.pem, cert.pem and key.pem
    for TLS; without it nothing is encrypted, and keys go to this machine alone. munge: when to
    show MUNGE credentials: `yes`, or the socket of its daemon; empty: when asked; `no`: never.
    """

    user: str = ""
    key: str = ""
    certs: str = ""
    munge: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.user!r})"  # a key must not get into a log


NOBODY = Credentials()


class ServerOptions(NamedTuple):
    """What a command's options say of the server; empty is: nothing.

    host: one or several, with or without port, separated by commas. config: a file to read
    in place of /etc/vipu/vipu-cli.hcl. user, key, certs, munge: as Credentials have them.
    """

    host: str = ""
    port: str = ""
    config: str = ""
    user: str = ""
    key: str = ""
    certs: str = ""
    munge: str = ""


class NamedServer(NamedTuple):
    """The server that was named. by: who named it, for messages. Either socket or addresses."""

    by: str
    socket: str = ""
    addresses: tuple[Address, ...] = ()
    credentials: Credentials = NOBODY


def named_server(
    options: ServerOptions, environ: Mapping[str, str], config: str = SYSTEM_CONFIG
) -> NamedServer | None:
    """The server that was named, or None. Raises InvalidRequest for what cannot be an address."""
    file: dict[str, str] = {}
    if options.config:
        config = options.config
        file = _read(config)
    socket = environ.get(SOCKET_VARIABLE, "")
    host = options.host or environ.get(HOST_VARIABLE, "")
    port = options.port or environ.get(PORT_VARIABLE, "")
    credentials = _credentials(options, environ, file)
    if socket and not options.host and not options.port and not credentials.key:
        return NamedServer(SOCKET_VARIABLE, socket=socket)
    if not options.config and not (host and port) and os.path.exists(config):
        file = _read(config)
        credentials = _credentials(options, environ, file)
    by = "an option" if options.host or options.port else "the environment"
    if not host and not port:
        by = config
    host = host or file.get("api-host", "")
    port = port or file.get("api-port", "")
    if not host and not port and not credentials.key:
        return None
    addresses = parse_addresses(host or DEFAULT_HOST, port, by)
    return NamedServer(by, addresses=addresses, credentials=credentials)


def server_for_proxy(
    options: ServerOptions, environ: Mapping[str, str], config: str = SYSTEM_CONFIG
) -> tuple[tuple[Address, ...], str]:
    """The addresses of the named server, and the folder of certificates. Raises InvalidRequest."""
    named = named_server(
        options, {k: v for k, v in environ.items() if k != SOCKET_VARIABLE}, config
    )
    if named is None or not named.credentials.certs:
        missing = "no server is named" if named is None else "no certificate is named"
        raise InvalidRequest(
            missing,
            would_work="say -H HOST --tls-certs DIR; an administrator makes that folder with "
            "vipu-admin create certificate",
        )
    return named.addresses, named.credentials.certs


def _credentials(
    options: ServerOptions, environ: Mapping[str, str], file: Mapping[str, str]
) -> Credentials:
    """Who we are. Raises InvalidRequest for half of a user's name and key."""
    found = Credentials(
        options.user or environ.get(USER_VARIABLE, "") or file.get("api-user-id", ""),
        options.key or environ.get(KEY_VARIABLE, "") or file.get("api-access-key", ""),
        options.certs or environ.get(CERTS_VARIABLE, "") or file.get("tls-certs", ""),
        options.munge or environ.get(MUNGE_VARIABLE, "") or file.get("munge", ""),
    )
    if bool(found.user) != bool(found.key):
        missing = "access key" if found.user else "user id"
        raise InvalidRequest(
            f"a user id and an access key belong together, and there is no {missing}",
            would_work="set both, in a file for --config, say",
        )
    return found


def parse_addresses(hosts: str, port: str = "", by: str = "") -> tuple[Address, ...]:
    """`host`, `host:port`, `[::1]:port`, or several of them separated by commas.

    port: for those without one; empty is 8090. Raises InvalidRequest.
    """
    fallback = _port(port, by) if port else DEFAULT_PORT
    found = tuple(_address(part.strip(), fallback, by) for part in hosts.split(",") if part.strip())
    if not found:
        raise InvalidRequest(f"{hosts!r} names no host", would_work="write HOST or HOST:PORT")
    return found


def _address(text: str, port: int, by: str) -> Address:
    host, colon, given = text, "", ""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        colon, given = rest[:1], rest[1:]
        if not bracket or colon not in ("", ":"):
            host = ""
    elif text.count(":") == 1:
        host, colon, given = text.partition(":")
    if not re.fullmatch(_HOST, host):
        raise InvalidRequest(
            f"{text!r} is not the address of a server{_named_by(by)}",
            would_work="write HOST or HOST:PORT, several separated by commas",
        )
    return Address(host, _port(given, by) if colon else port)


def _port(text: str, by: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise InvalidRequest(f"{text!r} is not a port from 1 to 65535{_named_by(by)}")
    return int(text)


def _named_by(by: str) -> str:
    return f" (from {by})" if by else ""


def _read(path: str) -> dict[str, str]:
    """The keys of an HCL file as V-IPU has it: lines of `key = "value"`, comments with # or //."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidRequest(
            f"cannot read the configuration file {path}: {(reason or '').lower()}"
        ) from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "//")):
            continue
        match = re.match(_LINE, line)
        if match is None:
            raise InvalidRequest(
                f'{path}, line {number}: not of the form key = "value"',
                would_work='Write, say, api-host = "localhost"',
            )
        found[match[1]] = match[2] if match[2] is not None else match[3]
    return found


def unreachable(where: str, reason: str) -> Unavailable:
    """The refusal for a server that does not answer; its first sentence is V-IPU's own.

    The words are known from PopRun guide 2.10.1; V-IPU says `context deadline exceeded`
    whatever the reason is. The real one is in `would_work` and in `data`.
    """
    return Unavailable(
        f"unable to connect to VIRM/V-IPU Controller at {where}: context deadline exceeded",
        would_work=f"what is wrong: {reason}. Start vipu-server there, or name another server "
        "with --api-host HOST:PORT or VIPU_CLI_API_HOST",
        address=where,
        reason=reason,
    )
