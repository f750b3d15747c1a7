"""Running commands in the other pods of a Kubernetes job: its workers, and the way to them.

Each worker runs a small server (_worker_door), which whoever made the pods installed. The launcher
calls it by TLS. Each side presents the job's certificate for its own role and accepts only the
certificate for the other role. So no API server stands between them, and nobody outside the job
gets in.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

#: Set in a launcher: its workers in order, each `NAME=ADDRESS`, separated by spaces.
WORKERS_VARIABLE: Final = "PODWRIGHT_JOB_WORKERS"
#: Set in a worker, of a job with or without a launcher: the worker's name.
WORKER_VARIABLE: Final = "PODWRIGHT_JOB_WORKER"
#: Set in both: the folder with certificates and keys.
KEYS_VARIABLE: Final = "PODWRIGHT_JOB_KEYS"
#: The two roles, which are also the names of their files (`worker.crt`, `worker.key`).
LAUNCHER_ROLE: Final = "launcher"
WORKER_ROLE: Final = "worker"

#: Ports of a worker. Pods on their node's own network share its ports, so a worker takes the first
#: of several ports that is free.
_PORTS: Final = range(20000, 30000)
_PORTS_PER_WORKER: Final = 8

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME. Certificates last as long as the job, and clocks of nodes
#: differ.
_NO_CHECK_TIME: Final = 0x200000

#: The head of a frame: its kind and its size. The frame's bytes follow.
FRAME_HEADER: Final = struct.Struct(">BI")
INPUT_FRAME, OUTPUT_FRAME, ERRORS_FRAME, BEGIN_FRAME, END_FRAME = range(5)
STREAM_CHUNK_BYTES: Final = 65536


def job_workers(environ: Mapping[str, str]) -> dict[str, str]:
    """Return worker -> address for the job of which this process is the launcher; else empty."""
    entries = environ.get(WORKERS_VARIABLE, "").split()
    return {name: address for name, _, address in (entry.partition("=") for entry in entries)}


def shared_host(environ: Mapping[str, str], worker_names: Sequence[str] = ()) -> str:
    """Return a sentence that names two workers with one address, or an empty text.

    worker_names: only these workers; empty: all. Two workers with one address are on their node's
    own network and have its name. Open MPI takes them for one host, and its results are then wrong.
    """
    worker_by_address: dict[str, str] = {}
    for name, address in job_workers(environ).items():
        if worker_names and name not in worker_names:
            continue
        if other_worker := worker_by_address.get(address):
            return f"{other_worker} and {name} are on one node's own network ({address})"
        worker_by_address[address] = name
    return ""


def worker_command(worker_name: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs `arguments` in a worker, with the streams of this process."""
    return [
        sys.executable,
        "-P",
        "-m",
        "podwright.guests.kubernetes.workers._worker_call",
        worker_name,
        *arguments,
    ]


def worker_ports(worker_name: str) -> list[int]:
    """Return the ports on one of which a worker answers."""
    import hashlib

    digest = hashlib.sha256(worker_name.encode()).digest()
    hash_numbers = struct.unpack(f">{_PORTS_PER_WORKER}I", digest)
    return [_PORTS[number % len(_PORTS)] for number in hash_numbers]


def tls_context_of_role(role: str, keys_folder: str) -> ssl.SSLContext:
    """Return the TLS context of a launcher or a worker. Raises OSError (ssl.SSLError is one)."""
    import ssl

    other_role = WORKER_ROLE if role == LAUNCHER_ROLE else LAUNCHER_ROLE
    protocol = ssl.PROTOCOL_TLS_CLIENT if role == LAUNCHER_ROLE else ssl.PROTOCOL_TLS_SERVER
    context = ssl.SSLContext(protocol)
    context.check_hostname = False  # the certificate is the job's own; addresses change
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= _NO_CHECK_TIME
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(f"{keys_folder}/{other_role}.crt")
    context.load_cert_chain(f"{keys_folder}/{role}.crt", f"{keys_folder}/{role}.key")
    return context


def frame(frame_kind: int, payload: bytes = b"") -> bytes:
    """Return a frame of this kind with its head."""
    return FRAME_HEADER.pack(frame_kind, len(payload)) + payload
