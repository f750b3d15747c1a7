"""Work on a store without serving it: its first content, a check, a backup, and one put back.

The functions return what there is to say.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from podwright.controller import StoreFault
from podwright.errors import InvalidRequest
from podwright.hosts import is_loopback
from podwright.server import ServingOptions, back_up, check, compare, restore_from
from podwright.server.command._server_arguments import ServerArguments
from podwright.server.command._serving_choice import serving_options
from podwright.store import shown_place


def backed_up(arguments: ServerArguments) -> str:
    """Write the content of the store to the file of --backup."""
    storage = serving_options(arguments).storage
    count = asyncio.run(back_up(storage, Path(arguments.backup or "")))
    return f"{count} records of {shown_place(storage)} are in {arguments.backup}"


def restored(arguments: ServerArguments) -> str:
    """Load the file of --restore into the store; with --dry-run only compare the two."""
    storage, file = serving_options(arguments).storage, arguments.restore or ""
    place = shown_place(storage)
    if arguments.dry_run:
        coming, going = asyncio.run(compare(storage, Path(file)))
        loss = f"; the {going} that it holds would go" if going else ", which is empty"
        return f"{coming} records of {file} would be put into {place}{loss}"
    count = asyncio.run(restore_from(storage, Path(file), replace=arguments.replace))
    return f"{count} records of {file} are in {place}"


def checked(arguments: ServerArguments) -> tuple[list[StoreFault], str]:
    """Return the faults of the store, and a sentence about them."""
    storage = serving_options(arguments).storage
    place = shown_place(storage)
    count, faults = asyncio.run(check(storage))
    if faults:
        return faults, (f"the store {place} is damaged; restore a backup: --restore FILE --replace")
    return faults, f"{count} records of {place} have no faults"


def prepared(arguments: ServerArguments, options: ServingOptions) -> Iterator[str]:
    """Make certificates and a store, and yield a line for each as it is there.

    Raises InvalidRequest, before anything is made, if the administrator has no name.
    """
    from podwright.server import make_certificates, make_store, renew_certificates

    administrator = _administrator(arguments) if arguments.init and arguments.secure else ""
    if arguments.tls_init:
        hosts = [socket.gethostname(), *arguments.name]
        if not is_loopback(options.host) and options.host not in ("0.0.0.0", "::", "[::]"):
            hosts.append(options.host)
        make_certificates(Path("vipu-certs"), hosts)
        yield "certificates: vipu-certs/server and vipu-certs/client"
        yield f"The server's is for {', '.join(dict.fromkeys(['localhost', *hosts]))}."
    if arguments.tls_renew:
        hosts = renew_certificates(Path("vipu-certs"), arguments.name)
        yield "certificates: vipu-certs/server and vipu-certs/client are new"
        yield f"The server's is for {', '.join(['localhost', *hosts])}. It uses them at once."
    if arguments.init:
        key = asyncio.run(make_store(options.storage, administrator))
        yield f"store: {shown_place(options.storage)}"
        if key:
            yield f"create user ({administrator}): success. Access key is '{key}'."


def _administrator(arguments: ServerArguments) -> str:
    """Return the name of the administrator whom --init makes."""
    try:
        return arguments.default_user_id or getpass.getuser()
    except KeyError:
        raise InvalidRequest(
            f"user id {os.getuid()} has no account on this machine",
            operation="--init --secure",
            would_work="Name the administrator with --default-user-id",
        ) from None
