"""TensorFlow's IPU configuration of an instance: `popdist.tensorflow.set_ipu_config`.

The module needs Graphcore's TensorFlow, which comes with the Poplar SDK; other builds have no
IPUConfig. It sets what the documentation of IPUConfig names for several processes.
"""

from __future__ import annotations

import importlib
from typing import Any

from popdist import _environment as environment
from popdist._errors import BadUse

try:
    importlib.import_module("tensorflow.python.ipu")
except ImportError as error:
    raise ImportError(
        "popdist.tensorflow needs Graphcore's TensorFlow, which comes with the Poplar SDK "
        f"({error})",
        name=error.name or "tensorflow",
    ) from error


def set_ipu_config(
    config: Any, ipus_per_replica: int | None = None, configure_device: bool = True
) -> None:
    """Set in an IPUConfig which process this is, how many there are, and its devices.

    ipus_per_replica: poprun's number if it is not given. configure_device: False leaves the
    selection of devices unchanged. Raises BadUse where poprun gave replicas another number,
    BadEnvironment and NotUniform.
    """
    devices_per_replica = ipus_per_replica or environment.getNumIpusPerReplica()
    if environment.isPopdistEnvSet() and not environment.checkNumIpusPerReplica(
        devices_per_replica
    ):
        raise BadUse(
            f"ipus_per_replica is {devices_per_replica}, and poprun was started with "
            f"--ipus-per-replica={environment.getNumIpusPerReplica()}"
        )
    distribution_config = config.experimental.multi_replica_distribution
    distribution_config.process_count = environment.getNumInstances()
    distribution_config.process_index = environment.getInstanceIndex()
    if not configure_device:
        return
    if environment.isPopdistEnvSet():
        config.select_ipus = environment.getDeviceId(devices_per_replica)
    else:
        config.auto_select_ipus = devices_per_replica
