"""The server that an option, the environment, a configuration file or a context names.

These places are read in this order. In the first three, each key of an address is looked up
separately, as V-IPU's commands do: a port from the file is combined with a host from an option.
Credentials go only to the server that their own place names, together with the places after it: a
key from a file that names one host or port is not shown to another that an option names. A place
that names no server gives its credentials to whichever is named. An address may be a list:
`host1,host2:8091` is tried from left to right.

A socket and a context say who calls by themselves. They are used as a whole, and refused beside
credentials of another place, since one of the two would be dropped. A server that is named by the
address of the user's context is that context's server, so programs of a launch, which get the
address, call as the launch does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from podwright.client._local_server_paths import DEFAULT_HOST, SYSTEM_CONFIG, contexts_path
from podwright.errors import InvalidRequest, Unavailable
from podwright.wire import DEFAULT_PORT, SOCKET_VARIABLE

if TYPE_CHECKING:
    from podwright.client._server_contexts import Context

HOST_VARIABLE = "VIPU_CLI_API_HOST"
PORT_VARIABLE = "VIPU_CLI_API_PORT"

# Patterns are compiled on use, since most commands need none.
_CONFIG_LINE_PATTERN = r'\s*([A-Za-z][\w-]*)\s*=\s*(?:"([^"\\]*)"|([\w.:-]+))\s*(?:(?:#|//).*)?$'
#: A name, an IPv4 or an IPv6 address. A part of a name neither begins nor ends with a hyphen.
_HOST_PATTERN = r"(?!.*(?:^-|-$|-\.|\.-))[A-Za-z0-9_.:%-]+"
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
    """A server and who calls there: all that another process needs to make the same calls.

    by: the place that names it, for messages. Either socket (one path, or several with commas) or
    addresses.
    """

    by: str
    socket: str = ""
    addresses: tuple[Address, ...] = ()
    credentials: Credentials = ANONYMOUS

    def plain(self) -> list[Any]:
        """Return the value as lists of texts and numbers, for another process."""
        return [
            self.by,
            self.socket,
            [list(address) for address in self.addresses],
            list(self.credentials),
        ]

    @classmethod
    def of_plain(cls, plain: Any) -> NamedServer:
        """Return the value that `plain` gave."""
        by, socket, addresses, credentials = plain
        return cls(
            by, socket, tuple(Address(*address) for address in addresses), Credentials(*credentials)
        )

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that lead any command to this server as this caller.

        An empty value means that the variable must not be set: it would lead elsewhere.
        """
        hosts = addresses_text(self.addresses)
        return {
            CONTEXT_VARIABLE: "",
            SOCKET_VARIABLE: self.socket,
            HOST_VARIABLE: hosts,
            # With a port of its own the environment is complete, and no file is combined with it.
            PORT_VARIABLE: str(self.addresses[0].port) if hosts else "",
            USER_VARIABLE: self.credentials.user,
            KEY_VARIABLE: self.credentials.key,
            CERTS_VARIABLE: self.credentials.certs,
            MUNGE_VARIABLE: self.credentials.munge,
            "IPUOF_VIPU_API_HOST": "",
            "IPUOF_VIPU_API_PORT": "",
        }


class _Place(NamedTuple):
    """What one place says: an option, the environment, or a file."""

    name: str
    host: str = ""
    port: str = ""
    credentials: Credentials = ANONYMOUS

    @property
    def claim(self) -> str:
        """The keys by which this place says who calls; empty if it does not.

        An option always counts. The environment and the file may be a site's, for all servers, so
        there certificates and MUNGE count only beside a context, which says it all by itself.
        """
        user, key, certs, munge = self.credentials
        values = (user, key, certs, "" if munge == "no" else munge)
        return " and ".join(
            name for name, value in zip(_CLAIM_NAMES[self.name], values, strict=True) if value
        )

    @property
    def key_claim(self) -> str:
        """The same, of a user and a key alone where the place is not an option."""
        if self.name == _OPTION_PLACE:
            return self.claim
        user, key, _, _ = self.credentials
        return self._replace(credentials=Credentials(user, key)).claim


_OPTION_PLACE, _ENVIRONMENT, _FILE = "an option", "the environment", "a file"
#: Where a caller's name or key is given and no server: V-IPU's own default.
_USUAL_PLACE = "V-IPU's default"
_CLAIM_NAMES = {
    _OPTION_PLACE: ("--api-user-id", "--api-access-key", "--tls-certs", "--munge"),
    _ENVIRONMENT: (USER_VARIABLE, KEY_VARIABLE, CERTS_VARIABLE, MUNGE_VARIABLE),
    _FILE: ("api-user-id", "api-access-key", "tls-certs", "munge"),
}


def named_server(
    options: ServerOptions, environ: Mapping[str, str], config_path: str = SYSTEM_CONFIG
) -> NamedServer | None:
    """Return the server that was named, or None.

    Raises InvalidRequest for a malformed address, and where two places say who calls and one would
    be dropped.
    """
    if options.context:
        return _server_of_context(options.context, environ, _options_beside_context(options))
    option_place = _Place(
        _OPTION_PLACE,
        options.host,
        options.port,
        Credentials(options.user, options.key, options.certs, options.munge),
    )
    environment_place = _Place(
        _ENVIRONMENT,
        environ.get(HOST_VARIABLE, ""),
        environ.get(PORT_VARIABLE, ""),
        Credentials(*(environ.get(variable, "") for variable in _CLAIM_NAMES[_ENVIRONMENT])),
    )
    option_names_server = bool(options.host or options.port)
    context_name = (
        "" if option_names_server or options.config else environ.get(CONTEXT_VARIABLE, "")
    )
    if context_name:
        claim = option_place.claim
        if not environment_place.host and not environment_place.port:
            claim = claim or environment_place.claim
        return _server_of_context(context_name, environ, claim)
    file_place = _Place(_FILE)
    if options.config:
        file_place = _place_of_file(options.config)
    socket = environ.get(SOCKET_VARIABLE, "")
    option_claims = option_names_server or option_place.claim or file_place.host or file_place.claim
    if socket and not option_claims:
        return _server_of_socket(socket, environment_place)
    if not options.config and os.path.exists(config_path):
        file_place = _place_of_file(config_path)
    places = (option_place, environment_place, file_place)
    host, port = _combined(places)
    source = next((place.name for place in places if place.host or place.port), "")
    if source == _FILE:
        source = options.config or config_path
    elif not host and not port:
        source = _USUAL_PLACE
    if not host and not port:
        if context_name := _current_context_name(environ):
            claim = option_place.claim or environment_place.claim or file_place.key_claim
            if options.config:
                claim = f"--config {options.config}"
            return _server_of_context(context_name, environ, claim)
        if not any(place.key_claim for place in places) and not (
            options.config and file_place.claim
        ):
            return None
    addresses = parse_addresses(host or DEFAULT_HOST, port, source)
    credentials = _credentials_for(addresses, places)
    if credentials == ANONYMOUS and (context := _context_at(addresses, environ)):
        credentials = _context_credentials(context)
    return NamedServer(source, addresses=addresses, credentials=credentials)


def _combined(places: Sequence[_Place]) -> tuple[str, str]:
    """Return host and port, each from the first of these places that has it."""
    return (
        next((place.host for place in places if place.host), ""),
        next((place.port for place in places if place.port), ""),
    )


def _credentials_for(addresses: tuple[Address, ...], places: Sequence[_Place]) -> Credentials:
    """Return the credentials for these addresses, each field from the first place that has it.

    A place whose own server, combined with the places after it, is another one has none. Raises
    InvalidRequest for a user without key or the reverse.
    """
    fields = [""] * len(ANONYMOUS)
    for i, place in enumerate(places):
        if not _leads_to(addresses, *_combined(places[i:])):
            continue
        fields = [field or value for field, value in zip(fields, place.credentials, strict=True)]
    credentials = Credentials(*fields)
    if bool(credentials.user) != bool(credentials.key):
        missing_item = "access key" if credentials.user else "user id"
        raise InvalidRequest(
            f"a user id and an access key belong together, and there is no {missing_item}",
            would_work="set both, in a file for --config, say",
        )
    return _with_whole_path(credentials)


def _leads_to(addresses: tuple[Address, ...], host: str, port: str) -> bool:
    """Return whether a host and a port, either of which may be empty, are these addresses."""
    if host:
        return parse_addresses(host, port) == addresses
    return not port or all(str(address.port) == port for address in addresses)


def _with_whole_path(credentials: Credentials) -> Credentials:
    """Return the credentials for processes that work in other folders."""
    certs = credentials.certs
    return credentials._replace(certs=os.path.abspath(certs) if certs else "")


def _server_of_socket(socket: str, environment_place: _Place) -> NamedServer:
    """Return the server at a socket, where the kernel says who calls.

    Raises InvalidRequest where the environment names a key as well, for a server that it does not
    name.
    """
    claim = environment_place.key_claim
    if claim and not environment_place.host and not environment_place.port:
        raise InvalidRequest(
            f"{claim} would be dropped: on a socket the kernel says who calls",
            operation=f"{SOCKET_VARIABLE}={socket}",
            would_work=f"unset {SOCKET_VARIABLE}, or {claim}; or name the server of the key with "
            "--api-host",
        )
    paths = ",".join(os.path.abspath(path) for path in socket.split(",") if path)
    return NamedServer(SOCKET_VARIABLE, socket=paths)


def _options_beside_context(options: ServerOptions) -> str:
    """Return the options that a context leaves no room for."""
    names = {
        "--api-host": options.host,
        "--api-port": options.port,
        "--config": options.config,
        **dict(zip(_CLAIM_NAMES[_OPTION_PLACE], options[3:7], strict=True)),
    }
    return " and ".join(name for name, value in names.items() if value)


def _server_of_context(context_name: str, environ: Mapping[str, str], claim: str) -> NamedServer:
    """Return the server of a context, with that context's credentials only.

    claim: what else names a server or a caller. Raises InvalidRequest where there is such a thing,
    and NotFound.
    """
    from podwright.client._server_contexts import read_contexts

    context = read_contexts(contexts_path(environ)).named(context_name)
    if claim:
        raise InvalidRequest(
            f"context {context_name} says itself which server is called and by whom, so {claim} "
            "cannot be used with it",
            would_work=f"leave out {claim}, or name the server with --api-host {context.address}, "
            "which leaves the context aside",
        )
    source = f"context {context_name}"
    if context.socket:
        return NamedServer(source, socket=context.socket)
    return NamedServer(
        source,
        addresses=parse_addresses(context.api_host, "", source),
        credentials=_context_credentials(context),
    )


def _context_credentials(context: Context) -> Credentials:
    return _with_whole_path(
        Credentials(context.api_user_id, context.api_access_key, context.tls_certs, context.munge)
    )


def _current_context_name(environ: Mapping[str, str]) -> str:
    """Return the name of the current context, or nothing if the user has chosen none."""
    path = contexts_path(environ)
    if not os.path.exists(path):
        return ""  # most users have none, and msgspec's decoder of TOML is not loaded for them
    from podwright.client._server_contexts import read_contexts

    return read_contexts(path).current_context


def _context_at(addresses: tuple[Address, ...], environ: Mapping[str, str]) -> Context | None:
    """Return the context that the environment or the user has chosen, if it is at this address."""
    context_name = environ.get(CONTEXT_VARIABLE, "") or _current_context_name(environ)
    if not context_name:
        return None
    from podwright.client._server_contexts import read_contexts

    context = read_contexts(contexts_path(environ)).contexts.get(context_name)
    if context is None or not context.api_host:
        return None
    return context if parse_addresses(context.api_host) == addresses else None


def _place_of_file(path: str) -> _Place:
    settings = _read_config(path)
    return _Place(
        _FILE,
        settings.get("api-host", ""),
        settings.get("api-port", ""),
        Credentials(*(settings.get(key, "") for key in _CLAIM_NAMES[_FILE])),
    )


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
    is_named = server is not None and server.by != _USUAL_PLACE
    if server is None or not is_named or not server.credentials.certs:
        problem = "no certificate is named" if is_named else "no server is named"
        raise InvalidRequest(
            problem,
            would_work="say -H HOST --tls-certs DIR; an administrator makes that folder with "
            "vipu-admin create certificate",
        )
    return server.addresses, server.credentials.certs


def addresses_text(addresses: Sequence[Address]) -> str:
    """Return addresses as an option has them."""
    return ",".join(map(str, addresses))


def parse_addresses(hosts: str, port: str = "", source: str = "") -> tuple[Address, ...]:
    """Parse `host`, `host:port`, `[::1]:port`, or several of them separated by commas.

    port: for addresses without one; empty means 8090. Raises InvalidRequest.
    """
    default_port = _parse_port(port, source) if port else DEFAULT_PORT
    addresses = tuple(
        _parse_address(text.strip(), default_port, source)
        for text in hosts.split(",")
        if text.strip()
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
