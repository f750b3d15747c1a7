"""PopART's session options and device for an instance: `popdist.popart`.

The module needs PopART, which comes with the Poplar SDK. Names are those of PopDist's guide.
"""

from __future__ import annotations

from typing import Any

from popdist import _environment as environment

try:
    import popart
except ImportError as error:
    raise ImportError(
        f"popdist.popart needs PopART, which comes with the Poplar SDK ({error})",
        name=error.name or "popart",
    ) from error


def configureSessionOptions(opts: Any) -> None:
    """Set the numbers of local and of all replicas in popart.SessionOptions.

    Raises BadEnvironment.
    """
    local_replicas, total_replicas = (
        environment.getNumLocalReplicas(),
        environment.getNumTotalReplicas(),
    )
    if local_replicas > 1:
        opts.enableReplicatedGraphs = True
        opts.replicatedGraphCount = local_replicas
    if total_replicas > local_replicas:
        opts.enableDistributedReplicatedGraphs = True
        opts.globalReplicaOffset = environment.getReplicaIndexOffset()
        opts.globalReplicationFactor = total_replicas


def getDevice(ipusPerReplica: int = 0, connectionType: Any = None) -> Any:
    """Return the device with this instance's replicas. connectionType: OnDemand if it is not given.

    Raises BadUse, BadEnvironment.
    """
    return popart.DeviceManager().acquireDeviceById(
        environment.getDeviceId(ipusPerReplica),
        connectionType=connectionType or popart.DeviceConnectionType.OnDemand,
    )
