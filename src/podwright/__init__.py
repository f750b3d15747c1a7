"""Carves pods of accelerators into partitions, launches programs on them, and serves Slurm.

    import podwright

    with podwright.connect() as pod:
        with pod.partition(size=4, gcds=2) as partition:
            podwright.run(["python3", "train.py"], partition=partition, replicas=4, instances=2)

    job = podwright.launch(train, "config.yaml", replicas=8, instances=4)
    print(job.results())

The public interface is what `__all__` lists, and `podwright.errors`. Other modules may change in
any release. A name is loaded when it is first used.
"""

from __future__ import annotations

from podwright._version import __version__

#: The type that type checkers use here; importing `typing` would cost every command 3 ms.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from podwright import errors as errors
    from podwright.api import (
        Completed,
        Job,
        MachineRow,
        Partition,
        Pod,
        PodAdmin,
        connect,
        launch,
        partition,
        run,
        run_async,
    )
    from podwright.errors import PodwrightError
    from podwright.wire import GatewayRouting, PartitionSpec, Routing, SyncType

__all__ = [
    "Completed",
    "GatewayRouting",
    "Job",
    "MachineRow",
    "Partition",
    "PartitionSpec",
    "Pod",
    "PodAdmin",
    "PodwrightError",
    "Routing",
    "SyncType",
    "__version__",
    "connect",
    "errors",
    "launch",
    "partition",
    "run",
    "run_async",
]
#: Each module, and the names that come from it.
_LATER = {
    "api": (
        *("Completed", "Job", "MachineRow", "Partition", "Pod", "PodAdmin"),
        *("connect", "launch", "partition", "run", "run_async"),
    ),
    "errors": ("PodwrightError",),
    "wire": ("GatewayRouting", "PartitionSpec", "Routing", "SyncType"),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found

    def __getattr__(name: str) -> object:
        if name == "errors":
            import importlib

            return importlib.import_module("podwright.errors")
        from podwright.ground.lazy_imports import lazy_names  # `import podwright` loads no other

        return lazy_names(__name__, _LATER)(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
