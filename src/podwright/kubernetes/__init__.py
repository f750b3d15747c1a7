"""IPUJobs on Kubernetes: a guest, as Slurm is.

Kubernetes' objects mirror what the V-IPU controller has decided. The operator reads jobs and pods,
asks the controller for partitions, and makes pods once these are ready. What is to be done is
decided by functions without effects (`plan`); `Operator` does it.

What speaks to an API server needs the extra `kubernetes`, and so is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podwright.kubernetes._chart import VALUES, chart, filled
from podwright.kubernetes._controllers import JobServer, VipuController, reach
from podwright.kubernetes._crd import API_VERSION, RULES, crd
from podwright.kubernetes._ipu_job import FINALIZER, IpuJob, JobKey, read_job
from podwright.kubernetes._job_keys import make_job_keys
from podwright.kubernetes._job_partitions import DevicePlace, Partitions
from podwright.kubernetes._kube import Kube
from podwright.kubernetes._manifests import Setting, as_yaml, manifests, minor_of
from podwright.kubernetes._memory_cluster import FakeKube
from podwright.kubernetes._operator import Operator
from podwright.kubernetes._pod_objects import PodOptions
from podwright.kubernetes._pod_preparation import prove
from podwright.kubernetes._reconcile import JobPlan, plan
from podwright.kubernetes._removal import Removal, alone, give_all_back
from podwright.kubernetes._sightings import Holds, PodView, read_pod
from podwright.kubernetes._sites import VipuSite, read_sites
from podwright.kubernetes._worker_files import write_worker_files

if TYPE_CHECKING:
    from podwright.kubernetes._kube_api import KubeApi, connect
    from podwright.kubernetes._operator_process import (
        Serving,
        planned,
        remove,
        remove_for_gone,
        serve,
    )

__all__ = [
    "API_VERSION",
    "FINALIZER",
    "RULES",
    "VALUES",
    "DevicePlace",
    "FakeKube",
    "Holds",
    "IpuJob",
    "JobKey",
    "JobPlan",
    "JobServer",
    "Kube",
    "KubeApi",
    "Operator",
    "Partitions",
    "PodOptions",
    "PodView",
    "Removal",
    "Serving",
    "Setting",
    "VipuController",
    "VipuSite",
    "alone",
    "as_yaml",
    "chart",
    "connect",
    "crd",
    "filled",
    "give_all_back",
    "make_job_keys",
    "manifests",
    "minor_of",
    "plan",
    "planned",
    "prove",
    "reach",
    "read_job",
    "read_pod",
    "read_sites",
    "remove",
    "remove_for_gone",
    "serve",
    "write_worker_files",
]


def __getattr__(name: str) -> Any:
    if name in ("KubeApi", "connect"):
        from podwright.kubernetes import _kube_api

        return getattr(_kube_api, name)
    if name in ("Serving", "planned", "remove", "remove_for_gone", "serve"):
        from podwright.kubernetes import _operator_process

        return getattr(_operator_process, name)
    raise AttributeError(name)
