"""Which pods Slurm schedules, and the licences by which it counts them. Pure but for reading.

`podwright slurm configure` writes the file; the service and job_submit.lua live by it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from podwright.errors import InvalidRequest

#: Licences that every job with devices takes, whatever the pod: a mark that hooks look for, and
#: the GCDs of its partition, which Slurm shows to hooks nowhere else where no user can change it.
MARK: Final = "podwright_job"
GCDS: Final = "podwright_gcds"
#: What the leader of a heterogeneous job waits for; nobody gets it.
HET_WAIT: Final = "podwright_het_wait"
#: As many as Slurm never runs at once.
PLENTY: Final = 1_000_000
_TABLES: Final = {"pod": "pods", "mapped": "hosts", "fixed": "partitions"}
#: The table that a mode cannot do without.
_NEEDS: Final = {
    "native": "pod",
    "plugin": "pod",
    "shared": "pod",
    "host-mapping": "mapped",
    "static": "fixed",
}


class SlurmPod(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of pod. type: its GRES model. licence: the name that counts its devices.

    cluster, allocation: where its devices are; nobody else creates partitions there.
    devices: how many. largest: the largest block. sizes: those that its family allows, of the
    powers of two by which Slurm counts; empty: all up to the largest. domain: devices of a link
    domain, and so the most that a GCD can have. feature: of the nodes that reach it, in
    slurm.conf; empty: all do.
    """

    type: str
    cluster: str
    devices: int
    largest: int
    domain: int
    sizes: tuple[int, ...] = ()
    licence: str = "ipu"
    allocation: str = ""
    feature: str = ""

    @property
    def orders(self) -> tuple[int, ...]:
        """The sizes of blocks that a job may have, as powers of two, ascending."""
        orders = range(self.largest.bit_length())
        return tuple(k for k in orders if not self.sizes or 1 << k in self.sizes)

    def block_licence(self, order: int) -> str:
        """The licence of blocks of 2**order devices."""
        return f"{self.licence}_x{1 << order}"

    def totals(self) -> dict[str, int]:
        """Its licences for slurm.conf."""
        blocks = {self.block_licence(k): self.devices for k in self.orders}
        return {self.licence: self.devices, **blocks}


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """A host and the machines that are its own, under host mapping. devices: of all of them.

    sizes, whole: an allocation there has one of these numbers of devices, or a multiple of whole.
    """

    name: str
    cluster: str
    machines: tuple[str, ...]
    devices: int
    sizes: tuple[int, ...] = ()
    whole: int = 64


class Fixed(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that was made beforehand, under static partitions."""

    name: str
    cluster: str
    size: int
    gcds: int = 1

    @property
    def licence(self) -> str:
        """What counts those of its size."""
        return f"vipu_{self.size}"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What one Slurm schedules. server: the Unix socket of vipu-server; empty: the system's; or
    `tcp:HOST:PORT,HOST:PORT`. credentials: a file like vipu-cli.hcl that says who the service is
    there; empty: MUNGE does.

    mode: `native`, `plugin`, `host-mapping` (hosts), `static` (partitions) or `shared` (the
    partition that its one pod stands for). tries: prologs that may fail before a job is held.

    socket: where hooks reach the service. host, port: what jobs are told of the server.
    fallen: what happens to a job whose machine fails: `requeue`, `relocate` (its partition moves),
    or `stay` (the partition is repaired in place, as far as its machine comes back).
    room_s: how long the first job in the queue waits for devices before a block is emptied for it,
    in seconds; 0: for ever.
    default_ipus: devices of a job that does not say how many; -1: it is refused until it does.
    slurm_user: SlurmUser of slurm.conf, as whom hooks come.
    listen: HOST:PORT where hooks of other hosts reach the service, each with a MUNGE credential
    of root or of slurm_user; empty: nowhere. Several, with commas: a service on each of these
    hosts, one of them active. munge_socket: if not at its usual place. key: a file by which they
    prove themselves instead, where there is no MUNGE; empty: by MUNGE.
    metrics: HOST:PORT of /metrics for Prometheus, which asks nobody who he is; empty: nowhere.
    """

    pods: tuple[SlurmPod, ...] = ()
    mode: str = "native"
    hosts: tuple[Mapped, ...] = ()
    partitions: tuple[Fixed, ...] = ()
    shared: str = ""
    tries: int = 3
    server: str = ""
    credentials: str = ""
    socket: str = "/run/podwright-slurm/slurm.sock"
    host: str = "localhost"
    port: int = 8090
    fallen: str = "stay"
    window_s: float = 10.0
    sweep_s: float = 10.0
    patience_s: float = 20.0
    room_s: float = 300.0
    default_ipus: int = 0
    listen: str = ""
    slurm_user: str = "root"
    munge_socket: str = ""
    key: str = ""
    metrics: str = ""

    @property
    def doors(self) -> tuple[str, ...]:
        """The addresses of `listen`."""
        return tuple(word.strip() for word in self.listen.split(",") if word.strip())

    def totals(self) -> dict[str, int]:
        """All licences for slurm.conf."""
        out: dict[str, int] = {}
        for pod in self.pods:
            out |= pod.totals()
        for fixed in self.partitions:
            out[fixed.licence] = out.get(fixed.licence, 0) + 1
        out[MARK] = PLENTY
        return out | {GCDS: PLENTY, HET_WAIT: 1} if self.pods else out


def parse_licences(text: str) -> dict[str, int]:
    """`ipu:4,matlab` as counts. What is no licence list gives nothing.

    Users may type `;` for `,`, and Slurm writes it since 25.05; also `=` for `:`. A name that comes
    twice counts twice, as Slurm counts it (_build_license_list, src/slurmctld/licenses.c).
    """
    out: dict[str, int] = {}
    for word in re.split("[,;|]", text):
        name, _, count = word.strip().replace("=", ":").partition(":")
        if name and (not count or count.isdecimal()):
            name = name.partition("@")[0]
            # Cut, it is still more than anybody can have.
            out[name] = out.get(name, 0) + int(count[:18] or 1)
    return out


def of_job(licences: Mapping[str, int], pods: Sequence[SlurmPod]) -> tuple[SlurmPod, int] | None:
    """The pod that a job's licences name, and how many devices; None: it wants none."""
    for pod in pods:
        if licences.get(pod.licence):
            return pod, licences[pod.licence]
    return None


def load(path: Path) -> Site:
    """The site's file. Raises InvalidRequest, in one line that names file and fault."""
    action = f"read {path}"
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text())
        for one, many in _TABLES.items():
            data[many] = data.pop(one, [])
        site = msgspec.convert(data, type=Site)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise InvalidRequest(
            f"{path}: {said}", asked=action, would_work="podwright slurm configure --write"
        ) from None
    table = _NEEDS.get(site.mode)
    if table is None or not getattr(site, _TABLES[table]):
        problem = f"it names no [[{table}]]" if table else f"there is no mode {site.mode!r}"
        raise InvalidRequest(f"{path}: {problem}", asked=action)
    return site


def dump(site: Site) -> str:
    """The site as its file."""
    lines = _fields(site, set(_TABLES.values()))
    for one, many in _TABLES.items():
        for row in getattr(site, many):
            lines += ["", f"[[{one}]]", *_fields(row, set())]
    return "\n".join(lines) + "\n"


def _fields(struct: msgspec.Struct, but: Collection[str]) -> list[str]:
    names = [name for name in struct.__struct_fields__ if name not in but]
    return [f"{name} = {msgspec.json.encode(getattr(struct, name)).decode()}" for name in names]
