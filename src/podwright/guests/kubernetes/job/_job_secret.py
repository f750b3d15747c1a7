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
from podwright.guests.kubernetes.job._observed_pods import UID_LABEL
from podwright.hosts import LAUNCHER_ROLE, WORKER_ROLE

_MAKE: Final = (
    *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
    *("-nodes", "-days", "3650"),
)
_KEY_USAGES: Final = {LAUNCHER_ROLE: "clientAuth", WORKER_ROLE: "serverAuth"}


def secret_name(job_key: JobKey) -> str:
    """What the secret of a job is called. A job that was made anew has another."""
    return f"podwright-{job_key.uid}"


def make_job_keys(folder: Path) -> dict[str, bytes]:
    """Certificates and keys of both roles, by the names of their files, which are in the folder
    then. Raises Unavailable without openssl."""
    for role, key_usage in _KEY_USAGES.items():
        argv = [*_MAKE, "-subj", f"/CN={role}", "-addext", f"extendedKeyUsage={key_usage}"]
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


def build_secret(job_key: JobKey, owner_reference: dict[str, Any]) -> dict[str, Any]:
    """Return the secret, as an object for the API server. owner_reference: that of the job."""
    with tempfile.TemporaryDirectory() as folder:
        key_files = make_job_keys(Path(folder))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": secret_name(job_key),
            "namespace": job_key.namespace,
            "labels": {UID_LABEL: job_key.uid},
            "ownerReferences": [owner_reference],
        },
        "data": {
            file_name: base64.b64encode(file_bytes).decode()
            for file_name, file_bytes in key_files.items()
        },
    }
