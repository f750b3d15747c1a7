"""Labs for the four documented ways: the same real commands, another --mode."""

from __future__ import annotations

from typing import Any

from podwright.wire import PartitionInfo, PartitionSpec
from tests.outer.lab import poll
from tests.outer.slurm.native import NativeLab


class WayLab(NativeLab):
    """`with WayLab("static", made={"s4-1": 4}) as lab`. made: partitions that are there before.

    mapping: the text of the mapping file.
    """

    def __init__(
        self, mode: str, *, made: dict[str, int] | None = None, mapping: str = "", **options: Any
    ) -> None:
        super().__init__(configure=["--mode", mode], **options)
        self.mode = mode
        self._made = made or {}
        if mapping:
            self._configure += ["--mapping", str(self.write("mapping", mapping))]

    def start_server(self) -> None:
        super().start_server()
        known = self.partitions()
        with self.client() as client:
            for name, size in self._made.items():
                if name not in known:
                    reconfigurable = self.mode == "shared"
                    spec = PartitionSpec(name=name, size=size, reconfigurable=reconfigurable)
                    client.create_partition(spec)

    # What is held: partitions that stay are no leak.

    def partitions(self) -> dict[str, PartitionInfo]:
        return {n: one for n, one in super().partitions().items() if not self._stays(n, one)}

    def _stays(self, name: str, one: PartitionInfo) -> bool:
        return name in self._made

    def leases(self) -> dict[str, str]:
        """Holder of each lease -> its partition."""
        with self.client() as client:
            return {one.holder: one.partition for one in client.list_leases()}

    def allocations(self) -> dict[str, list[str]]:
        """Allocations of jobs."""
        with self.client() as client:
            found = client.list_allocations()
        return {one.name: one.agents for one in found if one.name.startswith("c")}

    def held_by(self, job: int) -> bool:
        """Does a job hold anything?"""
        if self.mode == "host-mapping":
            return f"c{job}" in self.allocations()
        return any(text.split("/")[0] == f"Slurm job {job}" for text in self.leases())

    def wait_free(self, seconds: float = 30.0) -> None:
        """No job holds anything any more."""
        poll("all free", lambda: not (self.leases() or self.allocations()), seconds=seconds)
