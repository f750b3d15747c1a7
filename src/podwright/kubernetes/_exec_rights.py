"""The right of a launcher to call its workers through the API server (pods/exec). Pure.

A role names the workers of one launcher and nothing else. An account of the job's own has it, or
the one that the pods' template names. They are made before the first worker, never changed, and go
with the job; their name says which workers are meant.
"""

from __future__ import annotations

from typing import Any, Final

from podwright.kubernetes._ipu_job import IpuJob
from podwright.kubernetes._reconcile import pod_name
from podwright.kubernetes._sightings import UID_LABEL, WORKER

_GROUP: Final = "rbac.authorization.k8s.io"
_API: Final = f"{_GROUP}/v1"
#: What one call of pods/exec asks for: by WebSocket older servers ask for `get` alone, newer ones
#: (from 1.35 on) for `create` too.
EXEC_VERBS: Final = ("get", "create")


def launcher_account(job: IpuJob, instance: int) -> str:
    """The account of an instance's launcher."""
    return _named(job) or _right_name(job, instance)


def has_own_account(job: IpuJob) -> bool:
    """Does the operator make the launchers' accounts: the template names none."""
    return not _named(job)


def exec_rights(job: IpuJob, instance: int, owner: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects that give an instance's launcher the right, in the order in which they are made.
    owner: their owner reference, the job."""
    name, account = _right_name(job, instance), launcher_account(job, instance)
    meta = {
        "name": name,
        "namespace": job.key.namespace,
        "labels": {UID_LABEL: job.key.uid},
        "ownerReferences": [owner],
    }
    workers = [pod_name(job, WORKER, instance, number) for number in _numbers(job, instance)]
    rule = {
        "apiGroups": [""],
        "resources": ["pods/exec"],
        "resourceNames": workers,
        "verbs": list(EXEC_VERBS),
    }
    subject = {"kind": "ServiceAccount", "name": account, "namespace": job.key.namespace}
    bound = {
        "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": name},
        "subjects": [subject],
    }
    own = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    return [
        *([own] if has_own_account(job) else []),
        {"apiVersion": _API, "kind": "Role", "metadata": meta, "rules": [rule]},
        {"apiVersion": _API, "kind": "RoleBinding", "metadata": meta, **bound},
    ]


def _named(job: IpuJob) -> str:
    """By the template. `default` is that of every pod that names none: it gets no right of ours."""
    spec = job.template["spec"]
    name = str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "")
    return "" if name == "default" else name


def _numbers(job: IpuJob, instance: int) -> range:
    return range(instance * job.workers, (instance + 1) * job.workers)


def _right_name(job: IpuJob, instance: int) -> str:
    numbers = _numbers(job, instance)
    return f"podwright-{job.key.uid}-{numbers[0]}-{numbers[-1]}"
