"""The right of a launcher to call its workers through the API server (pods/exec). Pure.

A role names the workers of one launcher and nothing else. It is bound to an account of the job's
own, or to the one that the pods' template names. The objects are made before the first worker, are
never changed, and are removed with the job. Their name says which workers they cover.
"""

from __future__ import annotations

from typing import Any, Final

from podwright.guests.kubernetes.job._ipu_job import IpuJob
from podwright.guests.kubernetes.job._observed_pods import UID_LABEL, WORKER
from podwright.guests.kubernetes.job._reconcile import pod_name

_RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_RBAC_API_VERSION: Final = f"{_RBAC_GROUP}/v1"
#: The verbs that a call of pods/exec by WebSocket needs. Older servers check `get` alone, and
#: servers from 1.35 on check `create` too.
EXEC_VERBS: Final = ("get", "create")


def launcher_account(job: IpuJob, instance: int) -> str:
    """Return the account of an instance's launcher."""
    return _template_account(job) or _right_name(job, instance)


def has_own_account(job: IpuJob) -> bool:
    """Return whether the operator makes the launchers' accounts, because the template names
    none.
    """
    return not _template_account(job)


def exec_rights(
    job: IpuJob, instance: int, owner_reference: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the objects that give an instance's launcher the right, in the order in which to
    create them.

    owner_reference: the owner reference of these objects, which is the job.
    """
    right_name, account_name = _right_name(job, instance), launcher_account(job, instance)
    metadata = {
        "name": right_name,
        "namespace": job.key.namespace,
        "labels": {UID_LABEL: job.key.uid},
        "ownerReferences": [owner_reference],
    }
    worker_names = [
        pod_name(job, WORKER, instance, pod_index) for pod_index in _worker_numbers(job, instance)
    ]
    role_rule = {
        "apiGroups": [""],
        "resources": ["pods/exec"],
        "resourceNames": worker_names,
        "verbs": list(EXEC_VERBS),
    }
    subject = {"kind": "ServiceAccount", "name": account_name, "namespace": job.key.namespace}
    binding_fields = {
        "roleRef": {"apiGroup": _RBAC_GROUP, "kind": "Role", "name": right_name},
        "subjects": [subject],
    }
    account_object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    return [
        *([account_object] if has_own_account(job) else []),
        {
            "apiVersion": _RBAC_API_VERSION,
            "kind": "Role",
            "metadata": metadata,
            "rules": [role_rule],
        },
        {
            "apiVersion": _RBAC_API_VERSION,
            "kind": "RoleBinding",
            "metadata": metadata,
            **binding_fields,
        },
    ]


def _template_account(job: IpuJob) -> str:
    """Return the account that the template names, or "". `default` counts as none: every pod that
    names no account has it, so it gets no right of ours.
    """
    pod_spec = job.template["spec"]
    account_name = str(pod_spec.get("serviceAccountName") or pod_spec.get("serviceAccount") or "")
    return "" if account_name == "default" else account_name


def _worker_numbers(job: IpuJob, instance: int) -> range:
    return range(instance * job.workers, (instance + 1) * job.workers)


def _right_name(job: IpuJob, instance: int) -> str:
    worker_indices = _worker_numbers(job, instance)
    return f"podwright-{job.key.uid}-{worker_indices[0]}-{worker_indices[-1]}"
