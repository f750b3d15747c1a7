"""What a launched program imports: who am I, which devices are mine, and sums over all of us.

`poprun` starts the instances of a program; each of them asks here. A program that was started
without `poprun` is instance 0 of 1, and everything works the same. Importing this package
loads nothing beyond the standard library; what joins the instances is loaded by `init`, and only
where there are several: MPI, or links of our own where no MPI has started them.

    import popdist
    popdist.init()
    images = images[popdist.shard(len(images))]
    gradient = popdist.allReduceSum(gradient)
    popdist.execute_on_instances({0}, print, "done")

Names and meanings are those of Graphcore's PopDist, as far as its guide and public programs
tell; where they are silent, the docstring says that the choice is ours.
"""

from popdist._backend import finalizeBackend, init, initializeBackend, isBackendInitialized
from popdist._cache import compile_once
from popdist._collectives import allGather, allReduceSum, barrier, broadcast
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
from popdist._errors import (
    BackendError,
    BadEnvironment,
    BadUse,
    NotInitialized,
    NotUniform,
    PopdistError,
    WorldMismatch,
)
from popdist._moving import MOVED, mustMove, onMove
from popdist._profiling import setEngineOptions
from popdist._record import record
from popdist._scope import execute_on_instances
from popdist._trace import mark

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
