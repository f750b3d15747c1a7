"""`vipu-admin create user` and `create certificate`: credentials for calls from other machines.

Secrets go into files that only their owner can read. A key is shown once, and a certificate's
private key never.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from podwright.api import PodAdmin
from podwright.cli.admin._options import CertificateOptions, RevokeOptions, UserOptions
from podwright.cli.shared import _json
from podwright.cli.shared._print_replies import names, success
from podwright.errors import InvalidRequest, NotFound
from podwright.wire import user_uri


def create_user(arguments: UserOptions, admin: PodAdmin) -> int:
    path = Path(f"{arguments.name}.vipu-cli.hcl")
    if path.exists():
        raise InvalidRequest(
            f"{path} is there already", would_work="move it away, or work in another folder"
        )
    user = admin.create_user(
        arguments.name,
        role=arguments.role,
        allocations=names(arguments.allocations),
        uid=_uid(arguments.uid),
    )
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(f'api-user-id="{user.user.name}"\napi-access-key="{user.access_key}"\n')
    if arguments.json:
        print(_json.text(user))
        return 0
    print(f"create user ({user.user.name}): success. Access key is '{user.access_key}'.")
    print(f"It is written to {path}, for {user.user.name} alone; it is not shown again.")
    print(f"Use it with: vipu --config {path} list partitions")
    return 0


def create_certificate(arguments: CertificateOptions, admin: PodAdmin) -> int:
    from podwright.server import make_user_certificate

    user = admin.user(arguments.name)
    number = secrets.token_hex(8)
    uri = user_uri(user.name, user.created_at, number)
    folder = Path(f"{user.name}.vipu-certs")
    make_user_certificate(
        Path(arguments.tls_ca), folder, user.name, uri, arguments.days, renew=arguments.renew
    )
    return _certified(folder, arguments, number)


def revoke_certificate(arguments: RevokeOptions, admin: PodAdmin) -> int:
    user = admin.revoke_certificate(arguments.name, arguments.number)
    return success(f"revoke certificate ({arguments.name})", user, arguments)


def agent_certificate(arguments: CertificateOptions) -> int:
    from podwright.server import make_agent_certificate

    folder = Path(f"{arguments.name}.vipu-certs")
    hosts = names(arguments.host)
    number = secrets.token_hex(8)
    make_agent_certificate(
        Path(arguments.tls_ca),
        folder,
        arguments.name,
        hosts,
        arguments.days,
        certificate_number=number,
        renew=arguments.renew,
    )
    return _certified(folder, arguments, number)


def _certified(folder: Path, arguments: CertificateOptions, number: str) -> int:
    certificate = {
        "name": arguments.name,
        "folder": str(folder),
        "days": arguments.days,
        "number": number,
    }
    done = success(f"create certificate ({arguments.name})", certificate, arguments)
    if not arguments.json:
        print(f"It is in {folder} with its private key: --tls-certs {folder}")
        if arguments.agent:
            only = f"create agent {arguments.name} … --certificate {number}"
            print(f"To have the server believe this one alone: vipu-admin {only}")
        else:
            revoke_command = f"vipu-admin revoke certificate {arguments.name} --number {number}"
            print(f"Should it be lost: {revoke_command}")
    return done


def _uid(account: str) -> int:
    """Return the user id of an account, by number or name. Raises NotFound."""
    if not account:
        return -1
    if account.isdecimal() and len(account) < 10:
        return int(account)
    import pwd

    try:
        return pwd.getpwnam(account).pw_uid
    except KeyError:
        raise NotFound(
            f"this machine has no account {account}",
            operation="--uid",
            would_work="give its number",
        ) from None
