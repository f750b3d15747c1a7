"""Certificates of an authority that nobody trusts, for tests where openssl may be missing.

Whoever has the keys beside this file can show them to the servers of these tests and to no other.
`python -m tests.certificates` makes them anew with openssl; they are good for a hundred years.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from podwright.guests.kubernetes import make_job_keys
from podwright.server import make_agent_certificate, make_certificates, make_user_certificate

FOLDER: Final = Path(__file__).parent
#: The server's and the clients' certificates, which name no user; users; a machine.
SERVER, CLIENT = FOLDER / "server", FOLDER / "client"
USERS: Final = ("chief", "alice", "bob", "ruth", "slurm", "nobody")
MACHINE: Final = "ag9"
#: That of the machine's certificate.
NUMBER: Final = "4f1d00c5"
#: A user's certificate that was good for a day, in 2020.
EXPIRED: Final = FOLDER / "expired"
#: Keys of two Kubernetes jobs, for launcher and workers.
JOB_KEYS, OTHER_KEYS = FOLDER / "job", FOLDER / "other_job"
_DAYS: Final = 36500
_START: Final = 1_577_836_800.0  # 2020: good whatever a test machine's clock says


def folder_of(name: str) -> Path:
    """The folder with a user's or a machine's certificate, for --tls-certs."""
    return FOLDER / name


def make() -> None:
    """All of them. The authority's key is thrown away."""
    for name in ("server", "client", "expired", MACHINE, *USERS):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    scratch = FOLDER / "authority"
    make_certificates(scratch, [], days=_DAYS, valid_from=_START)
    for user in USERS:
        make_user_certificate(
            scratch, FOLDER / user, user, f"podwright:user:{user}", _DAYS, valid_from=_START
        )
    make_user_certificate(scratch, EXPIRED, "alice", "podwright:user:alice", 1, valid_from=_START)
    make_agent_certificate(
        scratch, FOLDER / MACHINE, MACHINE, [], _DAYS, certificate_number=NUMBER, valid_from=_START
    )
    for job in (JOB_KEYS, OTHER_KEYS):
        shutil.rmtree(job, ignore_errors=True)
        job.mkdir()
        make_job_keys(job)
    for side in ("server", "client"):
        (scratch / side).rename(FOLDER / side)
    shutil.rmtree(scratch)
