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

from podwright.controller import Gravity, StoreFault
from podwright.errors import InvalidRequest
from podwright.ground.plural import counted
from podwright.hosts import is_loopback
from podwright.server import ServingOptions, back_up, check, compare, repair, restore_from
from podwright.server.command._server_arguments import ServerArguments
from podwright.server.command._serving_from_options import serving_options
from podwright.store import shown_place


def back_up_store(arguments: ServerArguments) -> str:
    """Write the content of the store to the file of --backup."""
    store_place = serving_options(arguments).storage
    count = asyncio.run(back_up(store_place, Path(arguments.backup or "")))
    return (
        f"{counted(count, 'record')} of {shown_place(store_place)}, written to {arguments.backup}"
    )


def restored(arguments: ServerArguments) -> str:
    """Load the file of --restore into the store; with --dry-run only compare the two."""
    store_place, path = serving_options(arguments).storage, arguments.restore or ""
    store = shown_place(store_place)
    if arguments.dry_run:
        backup_records, store_records = asyncio.run(compare(store_place, Path(path)))
        text = (
            f"; the {store_records} that it holds would go" if store_records else ", which is empty"
        )
        return f"{counted(backup_records, 'record')} of {path} would be put into {store}{text}"
    count = asyncio.run(restore_from(store_place, Path(path), replace=arguments.replace))
    return f"{counted(count, 'record')} of {path}, put into {store}"


def checked(arguments: ServerArguments) -> tuple[list[StoreFault], str]:
    """Return the faults of the store, and a sentence about them."""
    store_place = serving_options(arguments).storage
    shown_store = shown_place(store_place)
    record_count, store_faults = asyncio.run(check(store_place))
    gravities = {fault.gravity for fault in store_faults}
    if Gravity.REFUSED in gravities:
        return store_faults, (
            f"the store {shown_store} is damaged; restore a backup: --restore FILE --replace"
        )
    if Gravity.SET_ASIDE in gravities:
        return (
            store_faults,
            f"the store {shown_store} is served without these; --repair removes them",
        )
    if store_faults:
        return store_faults, (
            f"the store {shown_store} is served; vipu remove partition removes such a partition"
        )
    return store_faults, f"{counted(record_count, 'record')} of {shown_store} have no faults"


def repaired(arguments: ServerArguments) -> tuple[list[StoreFault], str]:
    """Remove what a start sets aside. Return the faults of these records, and a sentence."""
    store_place = serving_options(arguments).storage
    faults = asyncio.run(repair(store_place))
    count = len(faults)
    text = f"{count} record{'' if count == 1 else 's'}"
    return faults, f"removed from {shown_place(store_place)}: {text}"


def prepared(arguments: ServerArguments, options: ServingOptions) -> Iterator[str]:
    """Make certificates and a store, and yield a line for each as it is there.

    Raises InvalidRequest, before anything is made, if the administrator has no name.
    """
    from podwright.server import make_certificates, make_store, renew_certificates

    administrator = _administrator(arguments) if arguments.init and arguments.secure else ""
    if arguments.tls_init:
        certificate_hosts = [socket.gethostname(), *arguments.name]
        host = arguments.api_host
        if not is_loopback(host) and host not in ("0.0.0.0", "::", "[::]"):
            certificate_hosts.append(host)
        make_certificates(Path("vipu-certs"), certificate_hosts)
        yield "certificates: vipu-certs/server and vipu-certs/client"
        yield f"The server's is for {', '.join(dict.fromkeys(['localhost', *certificate_hosts]))}."
    if arguments.tls_renew:
        certificate_hosts = renew_certificates(Path("vipu-certs"), arguments.name)
        yield "certificates: vipu-certs/server and vipu-certs/client are new"
        yield (
            f"The server's is for {', '.join(['localhost', *certificate_hosts])}. It uses them at "
            "once."
        )
    if arguments.init:
        access_key = asyncio.run(make_store(options.storage, administrator))
        yield f"store: {shown_place(options.storage)}"
        if access_key:
            yield f"create user ({administrator}): success. Access key is '{access_key}'."


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
