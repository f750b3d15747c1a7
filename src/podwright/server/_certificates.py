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

_VALID_DAYS: Final = 3650  #: days for which the authority and its first two certificates are valid
_KEY_OPTIONS: Final = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_BOTH_USAGES: Final = "serverAuth,clientAuth"
_NAMES_FILE: Final = "names"  #: the file with the names of the certificates, one on each line
_HOST_PATTERN = re.compile(r"[A-Za-z0-9*]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
#: The purpose and the own names of each side. The server calls agents too, and is a client there.
_CERTIFICATE_SIDES: Final[dict[str, tuple[str, list[str]]]] = {
    "server": (_BOTH_USAGES, [f"URI:{SERVER_URI}"]),
    "client": ("clientAuth", []),
}


def check_name(host_name: str, action: str) -> str:
    """Return a name or address that a server can have. Raises wire.InvalidRequest."""
    unbracketed = host_name.strip("[]")
    try:
        address = ipaddress.ip_address(unbracketed)
    except ValueError:
        if not _HOST_PATTERN.fullmatch(host_name) or host_name.replace(".", "").isdigit():
            raise InvalidRequest(
                f"{host_name[:80]!r} is neither a host name nor an address",
                operation=action,
                would_work="--name head1 --name 10.0.0.1",
            ) from None
        return host_name
    if address.is_unspecified:
        raise InvalidRequest(
            f"{host_name} stands for all addresses, and clients connect to one of them",
            operation=action,
            would_work="give the names and addresses that clients use: --name head1 "
            "--name 10.0.0.1",
        )
    return str(address)


def make_certificates(
    folder: Path, hosts: Sequence[str], *, days: int = _VALID_DAYS, valid_from: float | None = None
) -> None:
    """Make `folder/server` and `folder/client` with ca.pem, cert.pem and key.pem.

    hosts: names and addresses of the server, in addition to loopback's. days: how long they are
    valid. valid_from: since when they are valid, seconds since 1970. The authority's own key is
    folder/ca-key.pem; whoever has it can make more certificates. Raises wire.AlreadyExists, and
    wire.Unavailable without openssl.
    """
    action = "--tls-init"
    hosts = [check_name(host_name, action) for host_name in hosts]
    _check_folder_absent(folder, action)
    maker = _CertificateMaker(action, days, valid_from)
    with _ScratchFolder(folder) as scratch:
        maker.authority(scratch)
        _issue_both_sides(maker, scratch, scratch, hosts)


def renew_certificates(
    folder: Path,
    hosts: Sequence[str] = (),
    *,
    days: int = _VALID_DAYS,
    valid_from: float | None = None,
) -> list[str]:
    """Renew `folder/server` and `folder/client` by the same authority. Return the names.

    hosts: as for make_certificates; none: the previous names. Each side is replaced as a whole.
    Raises wire.InvalidRequest, and wire.Unavailable without openssl.
    """
    action = "--tls-renew"
    _check_authority(folder, action)
    if not hosts:
        try:
            hosts = (folder / _NAMES_FILE).read_text().split()
        except OSError:
            raise InvalidRequest(
                f"{folder} does not say for which names its certificates are",
                operation=action,
                would_work="say them: --tls-renew --name head1 --name 10.0.0.1",
            ) from None
    maker = _CertificateMaker(action, days, valid_from)
    hosts = [check_name(name, action) for name in hosts]
    scratch, umask = Path(tempfile.mkdtemp(dir=folder)), os.umask(0o077)
    try:
        _issue_both_sides(maker, folder, scratch, hosts)
        for side in _CERTIFICATE_SIDES:
            for name in ("ca.pem", "cert.pem", "key.pem"):
                (folder / side).mkdir(mode=0o700, exist_ok=True)
                os.replace(scratch / side / name, folder / side / name)
        os.replace(scratch / _NAMES_FILE, folder / _NAMES_FILE)
    finally:
        os.umask(umask)
        shutil.rmtree(scratch, ignore_errors=True)
    return list(hosts)


def _issue_both_sides(
    maker: _CertificateMaker, authority_folder: Path, target_folder: Path, hosts: Sequence[str]
) -> None:
    """Make a certificate for each side in `target_folder`, and the file with their names."""
    alternative_names = [
        _subject_alt_name(host_name)
        for host_name in dict.fromkeys(["localhost", "127.0.0.1", "::1", *hosts])
    ]
    for side, (key_usage, uris) in _CERTIFICATE_SIDES.items():
        (target_folder / side).mkdir(mode=0o700)
        maker.issue(
            authority_folder,
            target_folder / side,
            f"Podwright {side}",
            [*alternative_names, *uris],
            key_usage,
        )
    (target_folder / _NAMES_FILE).write_text("".join(f"{host_name}\n" for host_name in hosts))


def make_user_certificate(
    authority_folder: Path,
    folder: Path,
    user_name: str,
    user_uri: str,
    days: int,
    *,
    valid_from: float | None = None,
    renew: bool = False,
) -> None:
    """Make a user's certificate in a new folder, by the authority in the folder of --tls-init.

    renew: replace an existing folder. Raises wire.AlreadyExists, wire.InvalidRequest without the
    authority's key, and wire.Unavailable without openssl.
    """
    action = f"create certificate {user_name}"
    if not renew:
        _check_folder_absent(folder, action)
    _check_authority(authority_folder, action)
    maker = _CertificateMaker(action, days, valid_from)
    with _ScratchFolder(folder) as scratch:
        maker.issue(authority_folder, scratch, user_name, [f"URI:{user_uri}"], "clientAuth")


def make_agent_certificate(
    authority_folder: Path,
    folder: Path,
    machine: str,
    hosts: Sequence[str],
    days: int,
    *,
    certificate_number: str = "",
    valid_from: float | None = None,
    renew: bool = False,
) -> None:
    """Make the certificate of a machine's agent, which names the machine.

    certificate_number: the certificate's own number, by which a server accepts it alone
    (wire.agent_name). renew: as for a user's. Raises as make_user_certificate does.
    """
    action = f"create certificate {machine}"
    if not renew:
        _check_folder_absent(folder, action)
    _check_authority(authority_folder, action)
    maker = _CertificateMaker(action, days, valid_from)
    own_names = dict.fromkeys([machine, agent_name(machine, certificate_number), *hosts])
    alternative_names = [*map(_subject_alt_name, own_names), f"URI:podwright:agent:{machine}"]
    with _ScratchFolder(folder) as scratch:
        maker.issue(
            authority_folder, scratch, f"Podwright agent {machine}", alternative_names, _BOTH_USAGES
        )


def _check_authority(authority_folder: Path, action: str) -> None:
    for file_name in ("ca-key.pem", "ca.pem"):
        if not os.access(authority_folder / file_name, os.R_OK):
            raise InvalidRequest(
                f"cannot read the authority's {authority_folder / file_name}",
                operation=action,
                would_work="--tls-ca DIR, the folder vipu-certs that vipu-server --tls-init made",
            )


def _check_folder_absent(folder: Path, action: str) -> None:
    if folder.exists():
        raise AlreadyExists(
            f"there is {folder} already", operation=action, would_work="move it away"
        )


def _openssl_program(action: str) -> str:
    path = shutil.which("openssl")
    if path is None:
        raise Unavailable(
            "there is no openssl on this machine",
            operation=action,
            would_work="install it (apt-get install openssl), or put ca.pem, cert.pem and key.pem "
            "of your own authority into the folder of --tls-certs",
        )
    return path


class _ScratchFolder:
    """A private folder that becomes `final_folder` when it is complete, or is removed."""

    def __init__(self, final_folder: Path) -> None:
        self._folder = final_folder.absolute()

    def __enter__(self) -> Path:
        self._umask = os.umask(0o077)
        self._temporary_folder = Path(tempfile.mkdtemp(dir=self._folder.parent))
        return self._temporary_folder

    def __exit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        try:
            if exception_type is None:
                folder = Path(tempfile.mkdtemp(dir=self._folder.parent))
                if self._folder.exists():  # the old folder goes once the new one exists
                    self._folder.rename(folder / "old")
                self._temporary_folder.rename(self._folder)
                shutil.rmtree(folder)
            else:
                shutil.rmtree(self._temporary_folder, ignore_errors=True)
        finally:
            os.umask(self._umask)


class _CertificateMaker:
    """Runs openssl, for certificates that are valid for some days.

    valid_from: since when; None: since a day ago, because clocks differ.
    """

    def __init__(self, action: str, days: int, valid_from: float | None) -> None:
        self._openssl_program = _openssl_program(action)
        seconds = time.time() - 86400 if valid_from is None else valid_from
        self._times = [
            *("-startdate", time.strftime("%Y%m%d%H%M%SZ", time.gmtime(seconds))),
            *(
                "-enddate",
                time.strftime("%Y%m%d%H%M%SZ", time.gmtime(seconds + days * 86400)),
            ),
        ]

    def authority(self, folder: Path) -> None:
        """Make ca.pem and ca-key.pem."""
        extensions = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n"
        key_file, certificate_file = folder / "ca-key.pem", folder / "ca.pem"
        self._sign_certificate(
            "Podwright authority",
            key_file,
            certificate_file,
            extensions,
            ["-selfsign", "-keyfile", str(key_file)],
        )

    def issue(
        self,
        authority_folder: Path,
        target_folder: Path,
        common_name: str,
        alternative_names: Sequence[str],
        key_usage: str,
    ) -> None:
        """Make ca.pem, cert.pem and key.pem in a folder.

        alternative_names: alternative names, in openssl's notation.
        """
        extensions = (
            f"subjectAltName={','.join(alternative_names)}\nextendedKeyUsage={key_usage}\n"
            "basicConstraints=critical,CA:FALSE\n"
        )
        signer_options = [
            "-cert",
            str(authority_folder / "ca.pem"),
            "-keyfile",
            str(authority_folder / "ca-key.pem"),
        ]
        self._sign_certificate(
            common_name,
            target_folder / "key.pem",
            target_folder / "cert.pem",
            extensions,
            signer_options,
        )
        shutil.copy(authority_folder / "ca.pem", target_folder)

    def _sign_certificate(
        self,
        common_name: str,
        key_file: Path,
        certificate_file: Path,
        extensions: str,
        signer_options: list[str],
    ) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            request_file, settings_file = Path(scratch) / "request.pem", Path(scratch) / "ca.cnf"
            settings_file.write_text(_OPENSSL_CA_CONFIG.format(folder=scratch, extra=extensions))
            (Path(scratch) / "index").touch()
            self._run_openssl(
                *("req", "-newkey", *_KEY_OPTIONS, "-subj", f"/CN={common_name}"),
                *("-keyout", str(key_file), "-out", str(request_file)),
            )
            self._run_openssl(
                *(
                    "ca",
                    "-batch",
                    "-notext",
                    "-config",
                    str(settings_file),
                    *signer_options,
                    *self._times,
                ),
                *("-in", str(request_file), "-out", str(certificate_file)),
            )

    def _run_openssl(self, *arguments: str) -> None:
        command = [self._openssl_program, *arguments]
        openssl_result = subprocess.run(command, capture_output=True, text=True, check=False)
        if openssl_result.returncode:
            line = (openssl_result.stderr.strip().splitlines() or ["it did not say why"])[-1]
            raise Unavailable(
                f"openssl {arguments[0]} failed: {line}", operation="make a certificate"
            )


_OPENSSL_CA_CONFIG: Final = """\
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


def _subject_alt_name(host_name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host_name)}"
    except ValueError:
        return f"DNS:{host_name}"
