"""PopTorch options of an instance, as programs for IPUs import them: `popdist.poptorch.Options`.

The module needs PopTorch, which comes with the Poplar SDK. Names and refusals are those of
PopDist's guide.
"""

from __future__ import annotations

from typing import Any, NoReturn

from popdist import _environment as environment
from popdist._errors import BadUse

try:
    import poptorch
except ImportError as error:
    raise ImportError(
        f"popdist.poptorch needs PopTorch, which comes with the Poplar SDK ({error}). "
        "Without IPUs, popdist.torch sets torch.distributed up",
        name=error.name or "poptorch",
    ) from error


def _refuse(method_name: str) -> NoReturn:
    raise RuntimeError(
        f"Cannot call `{method_name}` with `popdist.poptorch.Options`: poprun decides it"
    )


class Options(poptorch.Options):  # type: ignore[misc]
    """poptorch.Options with the replicas, devices and process ids that poprun gave this instance.

    ipus_per_replica: devices of each replica; poprun's number if it is not given. Without poprun,
    this is process 0 of 1. Raises BadUse where poprun gave replicas another number, BadEnvironment
    and NotUniform.
    """

    def __init__(self, ipus_per_replica: int | None = None) -> None:
        super().__init__()
        devices_per_replica = ipus_per_replica or environment.getNumIpusPerReplica()
        if environment.isPopdistEnvSet():
            if not environment.checkNumIpusPerReplica(devices_per_replica):
                raise BadUse(
                    f"ipus_per_replica is {devices_per_replica}, and poprun was started with "
                    f"--ipus-per-replica={environment.getNumIpusPerReplica()}"
                )
            super().useIpuId(environment.getDeviceId(devices_per_replica))
        super().replicationFactor(environment.getNumLocalReplicas())
        distributed_options = self.Distributed
        distributed_options.configureProcessId(
            environment.getInstanceIndex(), environment.getNumInstances()
        )
        options_type = type(distributed_options)
        distributed_options.__class__ = type(
            options_type.__name__, (_RefusedOptions, options_type), {}
        )

    def useIpuId(self, *_: Any) -> NoReturn:
        """Raise RuntimeError: the partition decides."""
        _refuse("useIpuId")

    def replicationFactor(self, *_: Any) -> NoReturn:
        """Raise RuntimeError: `--num-replicas` decides."""
        _refuse("replicationFactor")


class _RefusedOptions:
    """Replaces PopTorch's options for several processes, which poprun has decided."""

    def disable(self) -> NoReturn:
        """Raise RuntimeError."""
        _refuse("Distributed.disable")

    def setEnvVarNames(self, *_: Any) -> NoReturn:
        """Raise RuntimeError."""
        _refuse("Distributed.setEnvVarNames")

    def configureProcessId(self, *_: Any) -> NoReturn:
        """Raise RuntimeError."""
        _refuse("Distributed.configureProcessId")
