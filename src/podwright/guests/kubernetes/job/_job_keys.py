"""The secret of a job with a launcher: what its launcher and its workers know each other by.

A certificate for each of the two roles, made by openssl and signed by itself: each side believes
the other's alone, so there is no authority whose key could be lost. The operator makes the secret
and forgets it; it may read none. It goes with the job.
"""

from __future__ import annotations

import base64
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from podwright.errors import Unavailable
from podwright.guests.kubernetes.job._ipu_job import JobKey
from podwright.guests.kubernetes.job._sightings import UID_LABEL
from podwright.hosts import LAUNCHER_ROLE, WORKER_ROLE

_MAKE: Final = (
    *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
    *("-nodes", "-days", "3650"),
)
_USES: Final = {LAUNCHER_ROLE: "clientAuth", WORKER_ROLE: "serverAuth"}


def secret_name(key: JobKey) -> str:
    """What the secret of a job is called. A job that was made anew has another."""
    return f"podwright-{key.uid}"


def make_job_keys(folder: Path) -> dict[str, bytes]:
    """Certificates and keys of both roles, by the names of their files, which are in the folder
    then. Raises Unavailable without openssl."""
    for role, use in _USES.items():
        argv = [*_MAKE, "-subj", f"/CN={role}", "-addext", f"extendedKeyUsage={use}"]
        argv += ["-keyout", f"{role}.key", "-out", f"{role}.crt"]
        try:
            subprocess.run(argv, cwd=folder, capture_output=True, check=True)
        except FileNotFoundError:
            raise Unavailable(
                "there is no openssl here, and jobs with a launcher need certificates",
                would_work="apt-get install openssl, in the operator's image",
            ) from None
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"openssl: {error.stderr.decode(errors='replace')[-300:]}") from None
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def build_secret(key: JobKey, owner: dict[str, Any]) -> dict[str, Any]:
    """The secret, as an object for the API server. owner: its owner reference, the job."""
    with tempfile.TemporaryDirectory() as folder:
        files = make_job_keys(Path(folder))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": secret_name(key),
            "namespace": key.namespace,
            "labels": {UID_LABEL: key.uid},
            "ownerReferences": [owner],
        },
        "data": {name: base64.b64encode(data).decode() for name, data in files.items()},
    }
