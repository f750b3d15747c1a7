"""The server that an option, the environment, a configuration file or a context names.

These places are read in this order. In the first three, each key of an address is looked up
separately, as V-IPU's commands do: a port from the file is combined with a host from an option.
Credentials go only to the host that is named in the same place: a key from a file that names one
host is not shown to another host that an option names. A place that names no host gives its
credentials to whichever host is named. A context is used as a whole or not at all. An address may
be a list: `host1,host2:8091` is tried from left to right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from podwright.client._local_server_paths import DEFAULT_HOST, SYSTEM_CONFIG, contexts_path
from podwright.errors import InvalidRequest, Unavailable
from podwright.wire import DEFAULT_PORT, SOCKET_VARIABLE

HOST_VARIABLE = "VIPU_CLI_API_HOST"
PORT_VARIABLE = "VIPU_CLI_API_PORT"

# Patterns are compiled on use, since most commands need none.
_CONFIG_LINE_PATTERN = r'\s*([A-Za-z][\w-]*)\s*=\s*(?:"([^"\\]*)"|([\w.:-]+))\s*(?:(?:#|//).*)?$'
_HOST_PATTERN = r"[A-Za-z0-9_.:%-]+"
USER_VARIABLE = "VIPU_CLI_API_USER_ID"
KEY_VARIABLE = "VIPU_CLI_API_ACCESS_KEY"
#: The variable that names a context for one command, as the option `--context` does.
CONTEXT_VARIABLE = "PODWRIGHT_CONTEXT"
CERTS_VARIABLE = "VIPU_CLI_TLS_CERTS"
MUNGE_VARIABLE = "VIPU_CLI_MUNGE"


class Address(NamedTuple):
    """A TCP address. str() is `host:port`, with IPv6 in brackets."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Credentials(NamedTuple):
    """The caller's credentials for a server on TCP; empty: anonymous.

    user, key: a user's name and access key. certs: the folder with ca.pem, cert.pem and key.pem for
    TLS; without it nothing is encrypted, and a key is sent to this machine only. munge: when to
    show a MUNGE credential: `yes`, or the socket of its daemon: always; empty: when the server
    asks; `no`: never.
    """

    user: str = ""
    key: str = ""
    certs: str = ""
    munge: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.user!r})"  # a key must not get into a log


ANONYMOUS = Credentials()


class ServerOptions(NamedTuple):
    """The options of a command that name a server. Empty values are not set.

    host: one or several, with or without port, separated by commas. config: a file to read in place
    of /etc/vipu/vipu-cli.hcl. user, key, certs, munge: as in Credentials. context: the name of a
    context, which excludes host and port.
    """

    host: str = ""
    port: str = ""
    config: str = ""
    user: str = ""
    key: str = ""
    certs: str = ""
    munge: str = ""
    context: str = ""


class NamedServer(NamedTuple):
    """The server that was named.

    by: the place that names it, for messages. Either socket or addresses.
    """

    by: str
    socket: str = ""
    addresses: tuple[Address, ...] = ()
    credentials: Credentials = ANONYMOUS


def named_server(
    options: ServerOptions, environ: Mapping[str, str], config_path: str = SYSTEM_CONFIG
) -> NamedServer | None:
    """Return the server that was named, or None. Raises InvalidRequest for a malformed address."""
    if context_name := options.context or _environment_context(options, environ):
        return _server_of_context(context_name, options, environ)
    file_settings: dict[str, str] = {}
    if options.config:
        config_path = options.config
        file_settings = _read_config(config_path)
    socket = environ.get(SOCKET_VARIABLE, "")
    host = options.host or environ.get(HOST_VARIABLE, "")
    port = options.port or environ.get(PORT_VARIABLE, "")
    explicit_credentials = _credentials_for_host(options, environ, file_settings, host)
    if socket and not options.host and not options.port and not explicit_credentials.key:
        return NamedServer(SOCKET_VARIABLE, socket=socket)
    if not options.config and not (host and port) and os.path.exists(config_path):
        file_settings = _read_config(config_path)
    source = "an option" if options.host or options.port else "the environment"
    if not host and not port:
        source = config_path
    host = host or file_settings.get("api-host", "")
    port = port or file_settings.get("api-port", "")
    credentials = _credentials_for_host(options, environ, file_settings, host)
    if not host and not port and not credentials.key:
        return _current_context(environ)
    addresses = parse_addresses(host or DEFAULT_HOST, port, source)
    return NamedServer(source, addresses=addresses, credentials=credentials)


def _environment_context(options: ServerOptions, environ: Mapping[str, str]) -> str:
    """Return the context that the environment names, unless an option names a server."""
    server_named = options.host or options.port or options.config
    return "" if server_named else environ.get(CONTEXT_VARIABLE, "")


def _server_of_context(
    context_name: str, options: ServerOptions, environ: Mapping[str, str]
) -> NamedServer:
    """Return the server of a context, with that context's credentials only.

    Raises InvalidRequest where an option names a server or a key as well, and NotFound.
    """
    from podwright.client._server_contexts import read_contexts

    if options.host or options.port or options.key:
        raise InvalidRequest(
            "a context names its server and its key itself",
            operation=f"--context {context_name}",
            would_work="leave out --api-host, --api-port and --api-access-key, or --context",
        )
    context = read_contexts(contexts_path(environ)).named(context_name)
    source = f"context {context_name}"
    if context.socket:
        return NamedServer(source, socket=context.socket)
    credentials = Credentials(
        context.api_user_id, context.api_access_key, context.tls_certs, context.munge
    )
    return NamedServer(
        source, addresses=parse_addresses(context.api_host, "", source), credentials=credentials
    )


def _current_context(environ: Mapping[str, str]) -> NamedServer | None:
    """Return the server of the current context, or None if the user has chosen none."""
    path = contexts_path(environ)
    if not os.path.exists(path):
        return None  # most users have none, and msgspec's decoder of TOML is not loaded for them
    from podwright.client._server_contexts import read_contexts

    context_name = read_contexts(path).current_context
    return _server_of_context(context_name, ServerOptions(), environ) if context_name else None


def server_for_proxy(
    options: ServerOptions, environ: Mapping[str, str], config_path: str = SYSTEM_CONFIG
) -> tuple[tuple[Address, ...], str]:
    """Return the addresses of the named server and the folder of certificates.

    Raises InvalidRequest where either is not named.
    """
    server = named_server(
        options,
        {variable: value for variable, value in environ.items() if variable != SOCKET_VARIABLE},
        config_path,
    )
    if server is None or not server.credentials.certs:
        problem = "no server is named" if server is None else "no certificate is named"
        raise InvalidRequest(
            problem,
            would_work="say -H HOST --tls-certs DIR; an administrator makes that folder with "
            "vipu-admin create certificate",
        )
    return server.addresses, server.credentials.certs


def _credentials_for_host(
    options: ServerOptions, environ: Mapping[str, str], file_settings: Mapping[str, str], host: str
) -> Credentials:
    """Return the credentials for `host`.

    Raises InvalidRequest for a user without key or the reverse.

    Values from the environment or the file count only if that place names this host, or none.
    """
    if environ.get(HOST_VARIABLE, host) != host:
        environ = {}
    if file_settings.get("api-host", host) != host:
        file_settings = {}
    credentials = Credentials(
        options.user or environ.get(USER_VARIABLE, "") or file_settings.get("api-user-id", ""),
        options.key or environ.get(KEY_VARIABLE, "") or file_settings.get("api-access-key", ""),
        options.certs or environ.get(CERTS_VARIABLE, "") or file_settings.get("tls-certs", ""),
        options.munge or environ.get(MUNGE_VARIABLE, "") or file_settings.get("munge", ""),
    )
    if bool(credentials.user) != bool(credentials.key):
        missing_item = "access key" if credentials.user else "user id"
        raise InvalidRequest(
            f"a user id and an access key belong together, and there is no {missing_item}",
            would_work="set both, in a file for --config, say",
        )
    return credentials


def parse_addresses(hosts: str, port: str = "", source: str = "") -> tuple[Address, ...]:
    """Parse `host`, `host:port`, `[::1]:port`, or several of them separated by commas.

    port: for addresses without one; empty means 8090. Raises InvalidRequest.
    """
    default_port = _parse_port(port, source) if port else DEFAULT_PORT
    addresses = tuple(
        _parse_address(address_text.strip(), default_port, source)
        for address_text in hosts.split(",")
        if address_text.strip()
    )
    if not addresses:
        raise InvalidRequest(f"{hosts!r} names no host", would_work="write HOST or HOST:PORT")
    return addresses


def _parse_address(address_text: str, default_port: int, source: str) -> Address:
    host, colon, port_text = address_text, "", ""
    if address_text.startswith("["):
        host, closing_bracket, after_bracket = address_text[1:].partition("]")
        colon, port_text = after_bracket[:1], after_bracket[1:]
        if not closing_bracket or colon not in ("", ":"):
            host = ""
    elif address_text.count(":") == 1:
        host, colon, port_text = address_text.partition(":")
    if not re.fullmatch(_HOST_PATTERN, host):
        raise InvalidRequest(
            f"{address_text!r} is not the address of a server{_source_suffix(source)}",
            would_work="write HOST or HOST:PORT, several separated by commas",
        )
    return Address(host, _parse_port(port_text, source) if colon else default_port)


def _parse_port(port_text: str, source: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", port_text) or not 1 <= int(port_text) <= 65535:
        raise InvalidRequest(f"{port_text!r} is not a port from 1 to 65535{_source_suffix(source)}")
    return int(port_text)


def _source_suffix(source: str) -> str:
    return f" (from {source})" if source else ""


def _read_config(path: str) -> dict[str, str]:
    """Return the keys of V-IPU's HCL file: lines `key = "value"`, comments with # or //.

    Raises InvalidRequest with the number of a line that has another form.
    """
    try:
        with open(path, encoding="utf-8") as file:
            config_lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidRequest(
            f"cannot read the configuration file {path}: {(reason or '').lower()}"
        ) from None
    settings: dict[str, str] = {}
    for line_number, line in enumerate(config_lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "//")):
            continue
        setting_match = re.match(_CONFIG_LINE_PATTERN, line)
        if setting_match is None:
            raise InvalidRequest(
                f'{path}, line {line_number}: not of the form key = "value"',
                would_work='Write, say, api-host = "localhost"',
            )
        settings[setting_match[1]] = (
            setting_match[2] if setting_match[2] is not None else setting_match[3]
        )
    return settings


def unreachable_error(server_address: str, reason: str) -> Unavailable:
    """Return the refusal for a server that does not answer. Its first sentence is V-IPU's own.

    The sentence is known from PopRun guide 2.10.1. V-IPU says `context deadline exceeded` whatever
    the reason is. The actual reason is in `would_work` and in `data`.
    """
    return Unavailable(
        f"unable to connect to VIRM/V-IPU Controller at {server_address}: context deadline "
        "exceeded",
        would_work=f"what is wrong: {reason}. Start vipu-server there, or name another server "
        "with --api-host HOST:PORT or VIPU_CLI_API_HOST",
        address=server_address,
        reason=reason,
    )
