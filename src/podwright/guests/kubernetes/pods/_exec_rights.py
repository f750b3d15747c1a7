"""The right of a launcher to call its workers through the API server (pods/exec). Pure.

A role names the workers of one launcher and nothing else. It is bound to an account of the job's
own, or to the one that the pods' template names. The objects are made before the first worker, are
never changed, and are removed with the job. Their name says which workers they cover.
"""

from __future__ import annotations

from typing import Any, Final

from podwright.guests.kubernetes.job._ipu_job import IpuJob
from podwright.guests.kubernetes.job._reconcile import pod_name
from podwright.guests.kubernetes.job._sightings import UID_LABEL, WORKER

_GROUP: Final = "rbac.authorization.k8s.io"
_API: Final = f"{_GROUP}/v1"
#: The verbs that a call of pods/exec by WebSocket needs. Older servers check `get` alone, and
#: servers from 1.35 on check `create` too.
EXEC_VERBS: Final = ("get", "create")


def launcher_account(job: IpuJob, instance: int) -> str:
    """Return the account of an instance's launcher."""
    return _named(job) or _right_name(job, instance)


def has_own_account(job: IpuJob) -> bool:
    """Return whether the operator makes the launchers' accounts, because the template names
    none.
    """
    return not _named(job)


def exec_rights(job: IpuJob, instance: int, owner: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects that give an instance's launcher the right, in the order in which to
    create them.

    owner: the owner reference of these objects, which is the job.
    """
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
    """Return the account that the template names, or "". `default` counts as none: every pod that
    names no account has it, so it gets no right of ours.
    """
    spec = job.template["spec"]
    name = str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "")
    return "" if name == "default" else name


def _numbers(job: IpuJob, instance: int) -> range:
    return range(instance * job.workers, (instance + 1) * job.workers)


def _right_name(job: IpuJob, instance: int) -> str:
    numbers = _numbers(job, instance)
    return f"podwright-{job.key.uid}-{numbers[0]}-{numbers[-1]}"
