"""Labs for the four documented ways: the same real commands, another --mode."""

from __future__ import annotations

from typing import Any

from podwright.wire import LeaseInfo, PartitionInfo, PartitionSpec
from tests.outer.lab import poll
from tests.outer.slurm.native import NativeLab


class WayLab(NativeLab):
    """`with WayLab("static", made={"s4-1": 4}) as lab`. made: partitions that are there before.

    mapping: the text of the mapping file. patience: seconds that a prolog waits for devices.
    """

    def __init__(
        self,
        mode: str,
        *,
        made: dict[str, int] | None = None,
        mapping: str = "",
        patience: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(configure=["--mode", mode], **options)
        self.mode = mode
        self._made = made or {}
        self._patience = patience
        if mapping:
            self._configure += ["--mapping", str(self.write("mapping", mapping))]

    def start_server(self) -> None:
        super().start_server()
        with self.client() as client:
            known = {one.name for one in client.list_partitions()}
            for name, size in self._made.items():
                if name not in known:
                    reconfigurable = self.mode == "shared"
                    spec = PartitionSpec(name=name, size=size, reconfigurable=reconfigurable)
                    client.create_partition(spec)

    def configure(self, *words: str) -> str:
        said = super().configure(*words)
        site = self.folder / "podwright" / "native.toml"
        if "--write" in words:
            text = site.read_text()
            site.write_text(text.replace("patience_s = 20.0", f"patience_s = {self._patience}"))
        return said

    # What jobs hold: partitions that stay are no leak.

    def partitions(self) -> dict[str, PartitionInfo]:
        """Those that were not there before."""
        return {n: one for n, one in super().partitions().items() if n not in self._made}

    def leases(self) -> list[LeaseInfo]:
        """Leases of jobs, without those of launches in them."""
        with self.client() as client:
            return [one for one in client.list_leases() if not one.parent]

    def allocations(self) -> dict[str, list[str]]:
        """Allocations of jobs."""
        with self.client() as client:
            found = client.list_allocations()
        return {one.name: one.agents for one in found if one.name.startswith("c")}

    def explained(self, job: int, reason: str, user: str) -> str:
        """What `vipu explain --job` tells a user, once Slurm shows that reason."""

        def said() -> str:
            site = f"{self.folder}/podwright/native.toml"
            done = self.command("vipu", "explain", "--job", str(job), "--site", site, user=user)
            # While Slurm looks at a job anew it shows no reason, or another.
            return done.stdout if f"({reason})" in done.stdout else ""

        return poll(f"job {job} explained", said, seconds=40, every=0.3)

    def holds(self, job: int) -> str | None:
        if self.mode == "host-mapping":  # an allocation is the job's, whichever life it is in
            restarts = self.job(job).fields["Restarts"]
            again = "" if restarts == "0" else f"/{restarts}"
            return f"{job}{again}" if f"c{job}" in self.allocations() else None
        for one in self.leases():
            name = one.holder.removeprefix("Slurm job ").partition(",")[0]
            if name.partition("/")[0] == str(job):
                return name
        return None

    def taken(self) -> list[str]:
        found = [agent for agents in self.allocations().values() for agent in agents]
        for one in self.leases():
            found += [f"{one.partition} {at}" for at in one.devices] or [one.partition]
        return found

    def held(self) -> int:
        return len(self.taken()) + len(self.partitions())

    def wait_free(self, seconds: float = 30.0) -> None:
        poll("all free", lambda: not self.held(), seconds=seconds)


class StaticLab(WayLab):
    """Four partitions of four devices, and two of two."""

    ask = ("--gres=vipu:4",)
    ask_all = ("--gres=vipu:4:4,vipu:2:2",)

    def __init__(self, **options: Any) -> None:
        made = {f"s4-{k}": 4 for k in range(1, 5)} | {"s2-1": 2, "s2-2": 2}
        super().__init__("static", made=made, **options)


class SharedLab(WayLab):
    """One reconfigurable partition of 64 devices."""

    def __init__(self, **options: Any) -> None:
        super().__init__("shared", made={"all": 64}, **options)


class MappingLab(WayLab):
    """A host has four machines of the pod: sixteen devices."""

    ask = ("-N1",)
    ask_all = ("-N2",)

    def __init__(self, *, nodes: int = 2, **options: Any) -> None:
        lines = ["# host: its machines"]
        for k in range(nodes):
            machines = ",".join(f"ag{4 * k + at}" for at in range(1, 5))
            lines.append(f"n{k + 1}:{machines}")
        mapping = "\n".join(lines) + "\n"
        super().__init__("host-mapping", mapping=mapping, nodes=nodes, **options)
