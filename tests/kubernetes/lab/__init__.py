"""A real Kubernetes for tests: a control plane and nodes on one machine, leaving no trace.

A lab owns a folder under /var/tmp, its ports, its keys, its control groups and its processes, as
the labs of Slurm and of hosts do; several run at once. `binaries()` builds what it needs, once.
"""

from ._binaries import Binaries, binaries
from ._cgroups import sweep
from ._http import KubeHttp, Refused, Unanswered
from ._images import write_image
from ._kube import GATEWAY, KubeLab, is_established, is_ready
from ._nodes import Node
from ._objects import Object, pod
from ._plane import DAEMONS
from ._stand_ins import PATIENT, StandIns
from ._worker_images import DIGITS_IMAGE, MPI_IMAGE, PODWRIGHT_IMAGE, worker_images

__all__ = [
    "DAEMONS",
    "DIGITS_IMAGE",
    "GATEWAY",
    "MPI_IMAGE",
    "PATIENT",
    "PODWRIGHT_IMAGE",
    "Binaries",
    "KubeHttp",
    "KubeLab",
    "Node",
    "Object",
    "Refused",
    "StandIns",
    "Unanswered",
    "binaries",
    "is_established",
    "is_ready",
    "pod",
    "sweep",
    "worker_images",
    "write_image",
]
