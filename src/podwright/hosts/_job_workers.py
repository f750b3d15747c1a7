"""Words in the other pods of a Kubernetes job: which workers it has, and the way to them.

Each worker runs a door (_worker_door), which whoever made the pods put there. The launcher calls
it by TLS: each side shows the job's certificate for its role, and believes the other's alone. So
no API server stands between them, and nobody outside the job gets in. Where no connection is to be
had, a launcher that was given the right to calls the same door through the API server
(_worker_exec).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

#: In a launcher: its workers in order, each `NAME=ADDRESS`, with spaces between.
WORKERS_VARIABLE: Final = "PODWRIGHT_JOB_WORKERS"
#: In a worker, of a job with or without a launcher: what it is called.
WORKER_VARIABLE: Final = "PODWRIGHT_JOB_WORKER"
#: In both: the folder with certificates and keys.
KEYS_VARIABLE: Final = "PODWRIGHT_JOB_KEYS"
#: In a launcher that may use pods/exec: `NAMESPACE/CONTAINER` of its workers.
EXEC_VARIABLE: Final = "PODWRIGHT_JOB_EXEC"
#: The two roles, as their files are called (`worker.crt`, `worker.key`).
LAUNCHER_ROLE: Final = "launcher"
WORKER_ROLE: Final = "worker"

#: Pods on their node's own network share its ports: a worker takes the first of these that is free.
_PORTS: Final = range(20000, 30000)
_TRIED: Final = 8

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME: certificates go with the job, and clocks of nodes differ.
_NO_CHECK_TIME: Final = 0x200000

#: Begins what a call says of its way to a worker, on standard error, before that answers.
WAY: Final = "podwright: "

#: Frames on the way: kind and size, then as many bytes.
FRAME: Final = struct.Struct(">BI")
INPUT, OUTPUT, ERRORS, BEGIN, END = range(5)
CHUNK: Final = 65536


def job_workers(environ: Mapping[str, str]) -> dict[str, str]:
    """The addresses of the workers of the job whose launcher we are in; none outside one."""
    words = environ.get(WORKERS_VARIABLE, "").split()
    return {name: address for name, _, address in (word.partition("=") for word in words)}


def shared_host(environ: Mapping[str, str], names: Sequence[str] = ()) -> str:
    """Workers (these, or all) with one address, in words: they are on one node's own network, and
    have its name. Open MPI takes them for one host, and what it computes then is wrong."""
    seen: dict[str, str] = {}
    for name, address in job_workers(environ).items():
        if names and name not in names:
            continue
        if other := seen.get(address):
            return f"{other} and {name} are on one node's own network ({address})"
        seen[address] = name
    return ""


def worker_command(host: str, words: Sequence[str]) -> list[str]:
    """The command that runs words in a worker, with our standard streams."""
    return [sys.executable, "-P", "-m", "podwright.hosts._worker_call", host, *words]


def worker_ports(name: str) -> list[int]:
    """Where a worker answers: one of these."""
    import hashlib

    hashed = hashlib.sha256(name.encode()).digest()
    numbers = struct.unpack(f">{_TRIED}I", hashed)
    return [_PORTS[number % len(_PORTS)] for number in numbers]


def tls_of(role: str, folder: str) -> ssl.SSLContext:
    """What a launcher or a worker shows and believes. Raises OSError (ssl.SSLError is one)."""
    import ssl

    other = WORKER_ROLE if role == LAUNCHER_ROLE else LAUNCHER_ROLE
    ours = ssl.PROTOCOL_TLS_CLIENT if role == LAUNCHER_ROLE else ssl.PROTOCOL_TLS_SERVER
    context = ssl.SSLContext(ours)
    context.check_hostname = False  # the certificate is the job's own; addresses come and go
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= _NO_CHECK_TIME
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(f"{folder}/{other}.crt")
    context.load_cert_chain(f"{folder}/{role}.crt", f"{folder}/{role}.key")
    return context


def frame(kind: int, data: bytes = b"") -> bytes:
    """A frame of its kind."""
    return FRAME.pack(kind, len(data)) + data
