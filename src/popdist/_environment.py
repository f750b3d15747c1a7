"""The identity of this instance: everything that its environment says.

Sources: the variables are those that poprun sets with `-x` for each instance (seen in logs of
PopRun 3.3). Instances hold contiguous blocks of replicas, in their order. Functions and their
defaults are those of PopDist's guide, Python API. They read the environment at each call.
"""

from __future__ import annotations

import os

from popdist._errors import BadEnvironment, BadUse, NotUniform

TOTAL_REPLICAS_VARIABLE = "POPDIST_NUM_TOTAL_REPLICAS"
LOCAL_REPLICAS_VARIABLE = "POPDIST_NUM_LOCAL_REPLICAS"
IPUS_PER_REPLICA_VARIABLE = "POPDIST_NUM_IPUS_PER_REPLICA"
UNIFORM_VARIABLE = "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE"
REPLICA_OFFSET_VARIABLE = "POPDIST_REPLICA_INDEX_OFFSET"
LOCAL_INSTANCE_VARIABLE = "POPDIST_LOCAL_INSTANCE_INDEX"


def isPopdistEnvSet() -> bool:
    """Return whether poprun started this program: POPDIST_NUM_TOTAL_REPLICAS is set.

    (Which variable Graphcore's function reads is not known; the choice is ours.)

    >>> popdist.isPopdistEnvSet()  # without poprun
    False
    """
    return TOTAL_REPLICAS_VARIABLE in os.environ


def getNumTotalReplicas() -> int:
    """Return the number of replicas of all instances; 1 without poprun. Raises BadEnvironment.

    >>> popdist.getNumTotalReplicas()
    1
    """
    return _read_variable(TOTAL_REPLICAS_VARIABLE, 1, least=1)


def getNumLocalReplicas() -> int:
    """Return the number of replicas of this instance; 1 without poprun. Raises BadEnvironment.

    >>> popdist.getNumLocalReplicas()
    1
    """
    replicas = _read_variable(LOCAL_REPLICAS_VARIABLE, 1, least=1)
    if replicas > getNumTotalReplicas():
        raise BadEnvironment(
            f"{LOCAL_REPLICAS_VARIABLE}={replicas} is more than "
            f"{TOTAL_REPLICAS_VARIABLE}={getNumTotalReplicas()}"
        )
    return replicas


def getNumIpusPerReplica() -> int:
    """Return the number of devices of each replica; 1 without poprun. Raises BadEnvironment.

    >>> popdist.getNumIpusPerReplica()
    1
    """
    return _read_variable(IPUS_PER_REPLICA_VARIABLE, 1, least=1, required=False)


def checkNumIpusPerReplica(ipusPerReplica: int) -> bool:
    """Return whether poprun gave each replica this number of devices. Raises BadEnvironment.

    >>> popdist.checkNumIpusPerReplica(1)
    True
    """
    return ipusPerReplica == getNumIpusPerReplica()


def getReplicaIndexOffset() -> int:
    """Return the index, among all replicas, of this instance's first replica; 0 without poprun.

    Raises BadEnvironment.

    >>> popdist.getReplicaIndexOffset()
    0
    """
    offset = _read_variable(REPLICA_OFFSET_VARIABLE, 0, least=0)
    if offset + getNumLocalReplicas() > getNumTotalReplicas():
        raise BadEnvironment(
            f"{REPLICA_OFFSET_VARIABLE}={offset} with "
            f"{LOCAL_REPLICAS_VARIABLE}={getNumLocalReplicas()} "
            f"leads beyond {TOTAL_REPLICAS_VARIABLE}={getNumTotalReplicas()}"
        )
    return offset


def getNumInstances() -> int:
    """Return the number of instances of this launch; 1 without poprun.

    Raises NotUniform where instances host different numbers of replicas, and BadEnvironment.

    >>> popdist.getNumInstances()
    1
    """
    return getNumTotalReplicas() // _uniform_replicas()


def getInstanceIndex() -> int:
    """Return the index of this instance among all; 0 without poprun.

    Raises as getNumInstances does.

    >>> popdist.getInstanceIndex()
    0
    """
    replicas_per_instance, offset = _uniform_replicas(), getReplicaIndexOffset()
    if offset % replicas_per_instance:
        raise BadEnvironment(
            f"{REPLICA_OFFSET_VARIABLE}={offset} is not a multiple of "
            f"{LOCAL_REPLICAS_VARIABLE}={replicas_per_instance}"
        )
    return offset // replicas_per_instance


def getLocalInstanceIndex() -> int:
    """Return this instance's index among those on its host; 0 when not set.

    Raises BadEnvironment.

    >>> popdist.getLocalInstanceIndex()
    0
    """
    return _read_variable(LOCAL_INSTANCE_VARIABLE, 0, least=0, required=False)


def getDeviceId(ipusPerReplica: int = 0) -> int:
    """Return the id of the multi-device that holds this instance's replicas.

    ipusPerReplica: devices per replica; 0 takes poprun's number. Ids are numbered as Poplar lists a
    partition: every single device first, then every pair, every group of four, and so on. Four
    instances of four devices each therefore get 24 to 27. These ids are those of a PopRun log. That
    each size follows the next smaller one is how Poplar lists devices; the rest is our choice.

    Raises BadUse where an instance's devices are not an aligned group of 2^k, and BadEnvironment.

    >>> popdist.getDeviceId()
    0
    """
    if ipusPerReplica < 0:
        raise BadUse(f"ipusPerReplica is {ipusPerReplica}; it must be 0 or more")
    devices_per_replica = ipusPerReplica or getNumIpusPerReplica()
    total_devices = getNumTotalReplicas() * devices_per_replica
    instance_devices = getNumLocalReplicas() * devices_per_replica
    first_device = getReplicaIndexOffset() * devices_per_replica
    if (
        instance_devices & (instance_devices - 1)
        or total_devices % instance_devices
        or first_device % instance_devices
    ):
        raise BadUse(
            f"this instance's {instance_devices} devices from {first_device} of {total_devices} "
            "are not an aligned group of "
            "1, 2, 4, 8, ... devices, and only such groups have an id"
        )
    group_size, smaller_ids = 1, 0
    while group_size < instance_devices:
        smaller_ids += total_devices // group_size
        group_size *= 2
    return smaller_ids + first_device // instance_devices


def shard(n: int, replica: int | None = None) -> slice:
    """Return the slice of n items that belongs to this instance, or to one replica (0 .. total-1).

    Shares are contiguous and in the order of replicas. The shares of two replicas differ by at most
    one, and all shares together are the n items. An instance's share is that of its replicas. The
    function is ours, not PopDist's.

    Raises BadUse for a negative n or a replica that does not exist, and BadEnvironment.

    >>> popdist.shard(10)
    slice(0, 10, None)
    """
    total_replicas = getNumTotalReplicas()
    if n < 0:
        raise BadUse(f"cannot share out {n} things")
    if replica is None:
        first_replica = getReplicaIndexOffset()
        end_replica = first_replica + getNumLocalReplicas()
    elif 0 <= replica < total_replicas:
        first_replica, end_replica = replica, replica + 1
    else:
        raise BadUse(f"there is no replica {replica}; they are 0 to {total_replicas - 1}")
    return slice(n * first_replica // total_replicas, n * end_replica // total_replicas)


def _uniform_replicas() -> int:
    """Return the number of replicas of each instance. Raises NotUniform."""
    if not isPopdistEnvSet():
        return 1
    total_replicas, local_replicas = getNumTotalReplicas(), getNumLocalReplicas()
    if not _read_variable(UNIFORM_VARIABLE, 0, least=0, most=1):
        raise NotUniform(
            f"the instances host different numbers of replicas ({UNIFORM_VARIABLE} is 0), so there "
            "is no "
            "instance index or count; use getReplicaIndexOffset() and getNumTotalReplicas()"
        )
    if total_replicas % local_replicas:
        raise NotUniform(
            f"{TOTAL_REPLICAS_VARIABLE}={total_replicas} is not a multiple of "
            f"{LOCAL_REPLICAS_VARIABLE}={local_replicas}, although "
            f"{UNIFORM_VARIABLE}=1 says that every instance hosts as many"
        )
    return local_replicas


def read_number(variable: str, default: int, *, least: int, most: int | None = None) -> int:
    """Return the value of a variable, or its default if it is not set. Raises BadEnvironment."""
    return _read_variable(variable, default, least=least, most=most, required=False)


def _read_variable(
    variable: str, default: int, *, least: int, most: int | None = None, required: bool = True
) -> int:
    """Return the value of a variable.

    required: the variable must be set if any other of poprun's is, since poprun sets all of them.
    """
    text = os.environ.get(variable)
    if text is None:
        if required and isPopdistEnvSet():
            raise BadEnvironment(
                f"{variable} is not set although {TOTAL_REPLICAS_VARIABLE} is; poprun sets both"
            )
        return default
    try:
        value = int(text) if text.isascii() and text.isdigit() else None
    except ValueError:  # more digits than int() accepts
        value = None
    if value is None or value < least or (most is not None and value > most):
        expected_text = f"a whole number from {least}" + ("" if most is None else f" to {most}")
        raise BadEnvironment(f"{variable}={text!r}: expected {expected_text}")
    return value
