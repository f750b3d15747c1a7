"""The site's own authority. It issues certificates for servers, clients, agents and users.

V-IPU's `vipu-server --tls-init` makes an authority and two certificates (V-IPU administrator
guide). Certificates that name their owner extend that and are our choice.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from podwright.errors import AlreadyExists, InvalidRequest, Unavailable
from podwright.wire import SERVER_URI, agent_name

_YEARS: Final = 3650  #: days for which the authority and its first two certificates are valid
_CURVE: Final = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_BOTH: Final = "serverAuth,clientAuth"
_NAMES: Final = "names"  #: the file with the names of the certificates, one on each line
_HOST = re.compile(r"[A-Za-z0-9*]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
#: The purpose and the own names of each side. The server calls agents too, and is a client there.
_SIDES: Final[dict[str, tuple[str, list[str]]]] = {
    "server": (_BOTH, [f"URI:{SERVER_URI}"]),
    "client": ("clientAuth", []),
}


def check_name(name: str, action: str) -> str:
    """Return a name or address that a server can have. Raises wire.InvalidRequest."""
    unbracketed = name.strip("[]")
    try:
        address = ipaddress.ip_address(unbracketed)
    except ValueError:
        if not _HOST.fullmatch(name) or name.replace(".", "").isdigit():
            raise InvalidRequest(
                f"{name[:80]!r} is neither a host name nor an address",
                operation=action,
                would_work="--name head1 --name 10.0.0.1",
            ) from None
        return name
    if address.is_unspecified:
        raise InvalidRequest(
            f"{name} stands for all addresses, and nobody connects to it",
            operation=action,
            would_work="give the names and addresses by which clients come: --name head1 "
            "--name 10.0.0.1",
        )
    return str(address)


def make_certificates(
    folder: Path, hosts: Sequence[str], *, days: int = _YEARS, start: float | None = None
) -> None:
    """Make `folder/server` and `folder/client` with ca.pem, cert.pem and key.pem.

    hosts: names and addresses of the server, in addition to loopback's. days: how long they are
    valid. start: since when they are valid, seconds since 1970. The authority's own key is
    folder/ca-key.pem; whoever has it can make more certificates. Raises wire.AlreadyExists, and
    wire.Unavailable without openssl.
    """
    action = "--tls-init"
    hosts = [check_name(name, action) for name in hosts]
    _check_free(folder, action)
    maker = _Maker(action, days, start)
    with _Scratch(folder) as scratch:
        maker.authority(scratch)
        _both_sides(maker, scratch, scratch, hosts)


def renew_certificates(
    folder: Path, hosts: Sequence[str] = (), *, days: int = _YEARS, start: float | None = None
) -> list[str]:
    """Renew `folder/server` and `folder/client` by the same authority. Return the names.

    hosts: as for make_certificates; none: the previous names. Each side is replaced as a whole.
    Raises wire.InvalidRequest, and wire.Unavailable without openssl.
    """
    action = "--tls-renew"
    _check_authority(folder, action)
    if not hosts:
        try:
            hosts = (folder / _NAMES).read_text().split()
        except OSError:
            raise InvalidRequest(
                f"{folder} does not say for which names its certificates are",
                operation=action,
                would_work="say them: --tls-renew --name head1 --name 10.0.0.1",
            ) from None
    maker = _Maker(action, days, start)
    hosts = [check_name(name, action) for name in hosts]
    scratch, umask = Path(tempfile.mkdtemp(dir=folder)), os.umask(0o077)
    try:
        _both_sides(maker, folder, scratch, hosts)
        for side in _SIDES:
            for name in ("ca.pem", "cert.pem", "key.pem"):
                (folder / side).mkdir(mode=0o700, exist_ok=True)
                os.replace(scratch / side / name, folder / side / name)
        os.replace(scratch / _NAMES, folder / _NAMES)
    finally:
        os.umask(umask)
        shutil.rmtree(scratch, ignore_errors=True)
    return list(hosts)


def _both_sides(maker: _Maker, authority: Path, place: Path, hosts: Sequence[str]) -> None:
    """Make a certificate for each side in `place`, and the file with their names."""
    names = [_kind(name) for name in dict.fromkeys(["localhost", "127.0.0.1", "::1", *hosts])]
    for side, (purpose, uris) in _SIDES.items():
        (place / side).mkdir(mode=0o700)
        maker.issue(authority, place / side, f"Podwright {side}", [*names, *uris], purpose)
    (place / _NAMES).write_text("".join(f"{name}\n" for name in hosts))


def make_user_certificate(
    authority: Path,
    folder: Path,
    name: str,
    uri: str,
    days: int,
    *,
    start: float | None = None,
    renew: bool = False,
) -> None:
    """Make a user's certificate in a new folder, by the authority in the folder of --tls-init.

    renew: replace an existing folder. Raises wire.AlreadyExists, wire.InvalidRequest without the
    authority's key, and wire.Unavailable without openssl.
    """
    action = f"create certificate {name}"
    if not renew:
        _check_free(folder, action)
    _check_authority(authority, action)
    maker = _Maker(action, days, start)
    with _Scratch(folder) as scratch:
        maker.issue(authority, scratch, name, [f"URI:{uri}"], "clientAuth")


def make_agent_certificate(
    authority: Path,
    folder: Path,
    machine: str,
    hosts: Sequence[str],
    days: int,
    *,
    number: str = "",
    start: float | None = None,
    renew: bool = False,
) -> None:
    """Make the certificate of a machine's agent, which names the machine.

    number: the certificate's own number, by which a server accepts it alone (wire.agent_name).
    renew: as for a user's. Raises as make_user_certificate does.
    """
    action = f"create certificate {machine}"
    if not renew:
        _check_free(folder, action)
    _check_authority(authority, action)
    maker = _Maker(action, days, start)
    own = dict.fromkeys([machine, agent_name(machine, number), *hosts])
    names = [*map(_kind, own), f"URI:podwright:agent:{machine}"]
    with _Scratch(folder) as scratch:
        maker.issue(authority, scratch, f"Podwright agent {machine}", names, _BOTH)


def _check_authority(folder: Path, action: str) -> None:
    for name in ("ca-key.pem", "ca.pem"):
        if not os.access(folder / name, os.R_OK):
            raise InvalidRequest(
                f"cannot read the authority's {folder / name}",
                operation=action,
                would_work="--tls-ca DIR, the folder vipu-certs that vipu-server --tls-init made",
            )


def _check_free(folder: Path, action: str) -> None:
    if folder.exists():
        raise AlreadyExists(
            f"there is {folder} already", operation=action, would_work="move it away"
        )


def _program(action: str) -> str:
    program = shutil.which("openssl")
    if program is None:
        raise Unavailable(
            "there is no openssl on this machine",
            operation=action,
            would_work="install it (apt-get install openssl), or put ca.pem, cert.pem and key.pem "
            "of your own authority into the folder of --tls-certs",
        )
    return program


class _Scratch:
    """A private folder that becomes `folder` once it is complete, and is removed otherwise."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def __enter__(self) -> Path:
        self._umask = os.umask(0o077)
        self._folder_made = Path(tempfile.mkdtemp(dir=self._folder.parent))
        return self._folder_made

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                old = Path(tempfile.mkdtemp(dir=self._folder.parent))
                if self._folder.exists():  # the old folder goes once the new one exists
                    self._folder.rename(old / "old")
                self._folder_made.rename(self._folder)
                shutil.rmtree(old)
            else:
                shutil.rmtree(self._folder_made, ignore_errors=True)
        finally:
            os.umask(self._umask)


class _Maker:
    """Runs openssl, for certificates that are valid for some days.

    start: since when; None: since a day ago, because clocks differ.
    """

    def __init__(self, action: str, days: int, start: float | None) -> None:
        self._program = _program(action)
        begin = time.time() - 86400 if start is None else start
        self._times = [
            *("-startdate", time.strftime("%Y%m%d%H%M%SZ", time.gmtime(begin))),
            *("-enddate", time.strftime("%Y%m%d%H%M%SZ", time.gmtime(begin + days * 86400))),
        ]

    def authority(self, folder: Path) -> None:
        """Make ca.pem and ca-key.pem."""
        extra = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n"
        key, done = folder / "ca-key.pem", folder / "ca.pem"
        self._sign("Podwright authority", key, done, extra, ["-selfsign", "-keyfile", str(key)])

    def issue(
        self, authority: Path, place: Path, common: str, names: Sequence[str], purpose: str
    ) -> None:
        """Make ca.pem, cert.pem and key.pem in a folder.

        names: alternative names, in openssl's notation.
        """
        extra = (
            f"subjectAltName={','.join(names)}\nextendedKeyUsage={purpose}\n"
            "basicConstraints=critical,CA:FALSE\n"
        )
        signer = ["-cert", str(authority / "ca.pem"), "-keyfile", str(authority / "ca-key.pem")]
        self._sign(common, place / "key.pem", place / "cert.pem", extra, signer)
        shutil.copy(authority / "ca.pem", place)

    def _sign(self, common: str, key: Path, done: Path, extra: str, signer: list[str]) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            request, settings = Path(scratch) / "request.pem", Path(scratch) / "ca.cnf"
            settings.write_text(_SETTINGS.format(folder=scratch, extra=extra))
            (Path(scratch) / "index").touch()
            self._run(
                *("req", "-newkey", *_CURVE, "-subj", f"/CN={common}"),
                *("-keyout", str(key), "-out", str(request)),
            )
            self._run(
                *("ca", "-batch", "-notext", "-config", str(settings), *signer, *self._times),
                *("-in", str(request), "-out", str(done)),
            )

    def _run(self, *arguments: str) -> None:
        command = [self._program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
            raise Unavailable(
                f"openssl {arguments[0]} failed: {last}", operation="make a certificate"
            )


_SETTINGS: Final = """\
[ca]
default_ca = own
[own]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
x509_extensions = extra
[any]
commonName = supplied
[extra]
{extra}"""


def _kind(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"
