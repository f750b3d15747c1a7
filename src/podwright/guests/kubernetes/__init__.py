"""IPUJobs on Kubernetes: a guest, as Slurm is.

Kubernetes' objects mirror what the V-IPU controller has decided. The operator reads jobs and pods,
asks the controller for partitions, and makes pods once these are ready. What is to be done is
decided by functions without effects (`plan`); `Operator` does it.

Each module is loaded when one of its names is asked for: what speaks to an API server needs the
extra `kubernetes`, and a worker of a job needs `workers` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.ground.lazy_imports import lazy_names

if TYPE_CHECKING:
    from podwright.guests.kubernetes.cluster._kube_api import KubeApi, connect
    from podwright.guests.kubernetes.cluster._kube_interface import Kube
    from podwright.guests.kubernetes.cluster._memory_cluster import FakeKube
    from podwright.guests.kubernetes.job._crd import API_VERSION, RULES, crd
    from podwright.guests.kubernetes.job._ipu_job import FINALIZER, IpuJob, JobKey, read_job
    from podwright.guests.kubernetes.job._job_secret import make_job_keys
    from podwright.guests.kubernetes.job._observed_pods import Holds, PodView, read_pod
    from podwright.guests.kubernetes.job._reconcile import JobPlan, plan
    from podwright.guests.kubernetes.operator._operator import Operator
    from podwright.guests.kubernetes.operator._operator_process import (
        Serving,
        planned,
        remove,
        remove_for_gone,
        serve,
    )
    from podwright.guests.kubernetes.operator._operator_removal import Removal, alone, give_all_back
    from podwright.guests.kubernetes.partitions._job_partitions import DevicePlace, Partitions
    from podwright.guests.kubernetes.partitions._vipu_controller_client import (
        JobServer,
        VipuController,
        reach,
    )
    from podwright.guests.kubernetes.partitions._vipu_controller_list import VipuSite, read_sites
    from podwright.guests.kubernetes.pods._chart import VALUES, chart, filled
    from podwright.guests.kubernetes.pods._manifests import (
        Setting,
        as_yaml,
        manifests,
        minor_of,
    )
    from podwright.guests.kubernetes.pods._pod_objects import PodOptions
    from podwright.guests.kubernetes.pods._pod_preparation import prove
    from podwright.guests.kubernetes.pods._worker_files import write_worker_files
    from podwright.guests.kubernetes.pods._write_folder import write_files

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
    "write_files",
    "write_worker_files",
]

#: Each module, and the names that come from it.
_LATER = {
    "cluster._kube_interface": ("Kube",),
    "cluster._kube_api": (
        "KubeApi",
        "connect",
    ),
    "cluster._memory_cluster": ("FakeKube",),
    "job._crd": (
        "API_VERSION",
        "RULES",
        "crd",
    ),
    "job._ipu_job": (
        "FINALIZER",
        "IpuJob",
        "JobKey",
        "read_job",
    ),
    "job._job_secret": ("make_job_keys",),
    "job._reconcile": (
        "JobPlan",
        "plan",
    ),
    "job._observed_pods": (
        "Holds",
        "PodView",
        "read_pod",
    ),
    "operator._operator": ("Operator",),
    "operator._operator_process": (
        "Serving",
        "planned",
        "remove",
        "remove_for_gone",
        "serve",
    ),
    "operator._operator_removal": (
        "Removal",
        "alone",
        "give_all_back",
    ),
    "partitions._vipu_controller_client": (
        "JobServer",
        "VipuController",
        "reach",
    ),
    "partitions._job_partitions": (
        "DevicePlace",
        "Partitions",
    ),
    "partitions._vipu_controller_list": (
        "VipuSite",
        "read_sites",
    ),
    "pods._chart": (
        "VALUES",
        "chart",
        "filled",
    ),
    "pods._manifests": (
        "Setting",
        "as_yaml",
        "manifests",
        "minor_of",
    ),
    "pods._pod_objects": ("PodOptions",),
    "pods._pod_preparation": ("prove",),
    "pods._worker_files": ("write_worker_files",),
    "pods._write_folder": ("write_files",),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, _LATER)
