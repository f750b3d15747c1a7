"""What a launched program imports: its index and devices, and sums and broadcasts over all
instances.

`poprun` starts the instances of a program, and each of them calls this package. A program that was
started without `poprun` is instance 0 of 1, and all calls work the same. Importing this package
loads nothing beyond the standard library. `init` loads what joins the instances, and only where
there are several: MPI, or TCP links of popdist's own where no MPI has started them.

    import popdist
    popdist.init()
    images = images[popdist.shard(len(images))]
    gradient = popdist.allReduceSum(gradient)
    popdist.execute_on_instances({0}, print, "done")

Names and meanings are those of Graphcore's PopDist, as its guide and public programs show them.
Where they are silent, the docstring says that the choice is ours.
"""

from popdist._backend import finalizeBackend, init, initializeBackend, isBackendInitialized
from popdist._collectives import allGather, allReduceSum, barrier, broadcast
from popdist._compile_once import compile_once
from popdist._environment import (
    checkNumIpusPerReplica,
    getDeviceId,
    getInstanceIndex,
    getLocalInstanceIndex,
    getNumInstances,
    getNumIpusPerReplica,
    getNumLocalReplicas,
    getNumTotalReplicas,
    getReplicaIndexOffset,
    isPopdistEnvSet,
    shard,
)
from popdist._error_record import record
from popdist._errors import (
    BackendError,
    BadEnvironment,
    BadUse,
    NotInitialized,
    NotUniform,
    PopdistError,
    WorldMismatch,
)
from popdist._instance_groups import execute_on_instances
from popdist._moving import MOVED, mustMove, onMove
from popdist._profiling import setEngineOptions
from popdist._trace_events import mark

__all__ = [
    "MOVED",
    "BackendError",
    "BadEnvironment",
    "BadUse",
    "NotInitialized",
    "NotUniform",
    "PopdistError",
    "WorldMismatch",
    "allGather",
    "allReduceSum",
    "barrier",
    "broadcast",
    "checkNumIpusPerReplica",
    "compile_once",
    "execute_on_instances",
    "finalizeBackend",
    "getDeviceId",
    "getInstanceIndex",
    "getLocalInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "initializeBackend",
    "isBackendInitialized",
    "isPopdistEnvSet",
    "mark",
    "mustMove",
    "onMove",
    "record",
    "setEngineOptions",
    "shard",
]
