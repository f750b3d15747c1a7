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


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(f"Cannot call `{name}` with `popdist.poptorch.Options`: poprun decides it")


class Options(poptorch.Options):  # type: ignore[misc]
    """poptorch.Options with the replicas, devices and process ids that poprun gave this instance.

    ipus_per_replica: devices of each replica; poprun's number if it is not given. Without poprun,
    this is process 0 of 1. Raises BadUse where poprun gave replicas another number, BadEnvironment
    and NotUniform.
    """

    def __init__(self, ipus_per_replica: int | None = None) -> None:
        super().__init__()
        each = ipus_per_replica or environment.getNumIpusPerReplica()
        if environment.isPopdistEnvSet():
            if not environment.checkNumIpusPerReplica(each):
                raise BadUse(
                    f"ipus_per_replica is {each}, and poprun was started with "
                    f"--ipus-per-replica={environment.getNumIpusPerReplica()}"
                )
            super().useIpuId(environment.getDeviceId(each))
        super().replicationFactor(environment.getNumLocalReplicas())
        distributed = self.Distributed
        distributed.configureProcessId(
            environment.getInstanceIndex(), environment.getNumInstances()
        )
        kind = type(distributed)
        distributed.__class__ = type(kind.__name__, (_Decided, kind), {})

    def useIpuId(self, *_: Any) -> NoReturn:
        """Raise RuntimeError: the partition decides."""
        _refuse("useIpuId")

    def replicationFactor(self, *_: Any) -> NoReturn:
        """Raise RuntimeError: `--num-replicas` decides."""
        _refuse("replicationFactor")


class _Decided:
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
