"""What an administrator does once, before the first start: a new store, and certificates.

V-IPU's `vipu-server --init [--secure]` and `--tls-init` do the same (V-IPU administrator guide).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from podwright.controller import first_user
from podwright.server._shared import LEASE, owner_name
from podwright.server._sockets import prepare_folder
from podwright.store import Put, open_store, shown_place, storage_file
from podwright.wire import AlreadyExists, Unavailable

_KIND, _KEY = "server", "secure"
_DAYS = "3650"


def is_secure(records: Mapping[tuple[str, str], bytes]) -> bool:
    """Was the store made by `--init --secure`?"""
    return (_KIND, _KEY) in records


async def make_store(place: Path | str, user: str) -> str:
    """A new store; with a user's name a secure one. Returns that one's access key, or nothing.

    Raises wire.AlreadyExists when there is a store.
    """
    path = storage_file(place)
    if path is not None:
        if path.exists():
            raise _exists(place)
        prepare_folder(path.parent, mode=0o700)
    store = open_store(place, owner=owner_name("init", 0), ttl=LEASE)
    opened = await store.open()
    try:
        if opened.records or opened.epoch > 1:
            raise _exists(place)
        if not user:
            return ""
        change, key = first_user(user, store.now())
        await store.commit([Put(_KIND, _KEY, b"true"), change])
        return key
    finally:
        await store.close()


def _exists(place: Path | str) -> AlreadyExists:
    return AlreadyExists(
        f"there is a store already: {shown_place(place)}",
        asked="--init",
        would_work="another --storage",
    )


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """`folder/server` and `folder/client` with ca.pem, cert.pem and key.pem, by openssl.

    The authority's own key is folder/ca-key.pem: whoever has it can make more of both. Raises
    wire.AlreadyExists, and wire.Unavailable without openssl.
    """
    if folder.exists():
        raise AlreadyExists(
            f"there is {folder} already", asked="--tls-init", would_work="move it away"
        )
    program = shutil.which("openssl")
    if program is None:
        raise Unavailable(
            "there is no openssl on this machine",
            asked="--tls-init",
            would_work="install it (apt-get install openssl), or put ca.pem, cert.pem and key.pem "
            "of your own authority into the folder of --tls-certs",
        )
    old = os.umask(0o077)
    try:
        with tempfile.TemporaryDirectory(dir=folder.absolute().parent) as scratch:
            _authority(program, Path(scratch))
            names = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts]
            for side in ("server", "client"):
                _certificate(program, Path(scratch), side, list(dict.fromkeys(names)))
            made = Path(scratch) / "made"
            made.mkdir()
            shutil.copy(Path(scratch) / "ca-key.pem", made)
            for side in ("server", "client"):
                shutil.copytree(Path(scratch) / side, made / side)
                shutil.copy(Path(scratch) / "ca.pem", made / side)
            made.rename(folder)
    finally:
        os.umask(old)


def _authority(program: str, folder: Path) -> None:
    _openssl(
        program,
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", _DAYS, "-subj", "/CN=Podwright authority"),
        *("-keyout", str(folder / "ca-key.pem"), "-out", str(folder / "ca.pem")),
    )


def _certificate(program: str, folder: Path, side: str, names: Sequence[str]) -> None:
    place = folder / side
    place.mkdir()
    request, extra = folder / "request.pem", folder / "extra.cnf"
    kinds = ["IP" if ":" in name or name[:1].isdigit() else "DNS" for name in names]
    alternatives = ",".join(f"{kind}:{name}" for kind, name in zip(kinds, names, strict=True))
    extra.write_text(
        f"subjectAltName={alternatives}\nextendedKeyUsage={side}Auth\n"
        "basicConstraints=critical,CA:FALSE\n"
    )
    _openssl(
        program,
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *(
            "-subj",
            f"/CN=Podwright {side}",
            "-keyout",
            str(place / "key.pem"),
            "-out",
            str(request),
        ),
    )
    _openssl(
        program,
        *("x509", "-req", "-in", str(request), "-CA", str(folder / "ca.pem")),
        *("-CAkey", str(folder / "ca-key.pem"), "-CAcreateserial", "-days", _DAYS),
        *("-extfile", str(extra), "-out", str(place / "cert.pem")),
    )


def _openssl(program: str, *arguments: str) -> None:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
        raise Unavailable(f"openssl {arguments[0]} failed: {last}", asked="--tls-init")
