"""The pods that Slurm schedules, and the licences by which it counts them. Pure, except for `load`.

`podwright slurm configure` writes the site's file; the service and job_submit.lua use it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from podwright.errors import InvalidRequest

#: Licences that every job with devices takes, on every pod. MARK is what hooks look for. GCDS
#: counts the partition's GCDs: hooks see no other field that users cannot change.
JOB_MARK_LICENCE: Final = "podwright_job"
GCDS: Final = "podwright_gcds"
#: The licence that the leader of a heterogeneous job waits for. Nobody gets it.
HET_WAIT_LICENCE: Final = "podwright_het_wait"
#: More jobs than Slurm ever runs at once.
UNLIMITED_LICENCES: Final = 1_000_000
_SITE_FIELD_BY_SECTION: Final = {"pod": "pods", "mapped": "hosts", "fixed": "partitions"}
#: The table of the site's file that each mode needs.
_NEEDED_SECTION_BY_MODE: Final = {
    "native": "pod",
    "plugin": "pod",
    "shared": "pod",
    "host-mapping": "mapped",
    "static": "fixed",
}


class SlurmPod(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of pod.

    type: its GRES type. licence: the licence that counts its devices. cluster, allocation: where
    its devices are; nobody else creates partitions there. devices: their number. largest: the
    devices of the largest block. sizes: the powers of two that its family allows, as Slurm counts
    by these; empty: all up to the largest. domain: the devices of a link domain, which are also the
    most that a GCD can have. feature: the feature, in slurm.conf, of the nodes that reach it;
    empty: all nodes do.
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
        """The exponents of the block sizes that a job may have (powers of two), ascending."""
        all_orders = range(self.largest.bit_length())
        return tuple(order for order in all_orders if not self.sizes or 1 << order in self.sizes)

    def block_licence(self, block_order: int) -> str:
        """Return the licence of blocks of 2**order devices."""
        return f"{self.licence}_x{1 << block_order}"

    def totals(self) -> dict[str, int]:
        """Return its licences for slurm.conf."""
        licences = {self.block_licence(order): self.devices for order in self.orders}
        return {self.licence: self.devices, **licences}


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """A host and the machines that belong to it, under host mapping.

    devices: of all its machines. sizes, size_multiple: an allocation there has one of
    these numbers of devices, or a multiple of size_multiple. The file calls that `whole`.
    """

    name: str
    cluster: str
    machines: tuple[str, ...]
    devices: int
    sizes: tuple[int, ...] = ()
    size_multiple: int = msgspec.field(name="whole", default=64)


class Fixed(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that was made beforehand, under static partitions."""

    name: str
    cluster: str
    size: int
    gcds: int = 1

    @property
    def licence(self) -> str:
        """The licence that counts the partitions of its size."""
        return f"vipu_{self.size}"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What one Slurm schedules, as in the site's file.

    server: the Unix socket of vipu-server, or `tcp:HOST:PORT,HOST:PORT`; empty: the system's
    socket. credentials: a file like vipu-cli.hcl by which the service proves itself to that server;
    empty: by MUNGE.

    mode: `native`, `plugin`, `host-mapping` (hosts), `static` (partitions) or `shared` (the
    partition that its one pod stands for). tries: the number of failed prologs with which a job is
    held.

    socket: where hooks reach the service. host, port: the address of the server that jobs are told.

    fallen: what happens to a job whose machine fails: `requeue`, `relocate` (its partition moves),
    or `stay` (the partition is repaired in place, if its machine comes back).

    window_s: seconds that an offered heterogeneous job has to start in. sweep_s: seconds between
    two sweeps. patience_s: seconds that a prolog waits for busy devices. room_s: seconds that the
    first job in the queue waits before a block is emptied for it; 0: no block is ever emptied.

    default_ipus: the devices of a job that gives no number; -1: such a job is refused.

    slurm_user: SlurmUser of slurm.conf, the user that hooks run as. listen: HOST:PORT where hooks
    of other hosts reach the service, each with a MUNGE credential of root or of slurm_user; empty:
    nowhere. Several addresses, with commas, mean a service on each of these hosts, of which one is
    active. munge_socket: MUNGE's socket; empty: at its usual place. key: a file by which hooks and
    services prove themselves where there is no MUNGE; empty: by MUNGE.

    metrics: HOST:PORT of /metrics for Prometheus, which anybody may read; empty: nowhere.
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
        return tuple(address.strip() for address in self.listen.split(",") if address.strip())

    def totals(self) -> dict[str, int]:
        """Return all licences for slurm.conf."""
        licence_totals: dict[str, int] = {}
        for pod in self.pods:
            licence_totals |= pod.totals()
        for partition in self.partitions:
            licence_totals[partition.licence] = licence_totals.get(partition.licence, 0) + 1
        licence_totals[JOB_MARK_LICENCE] = UNLIMITED_LICENCES
        return (
            licence_totals | {GCDS: UNLIMITED_LICENCES, HET_WAIT_LICENCE: 1}
            if self.pods
            else licence_totals
        )


def parse_licences(licence_list: str) -> dict[str, int]:
    """Return the counts in a licence list such as `ipu:4,matlab`. Words that are no licences are
    left out.

    Users may type `;` for `,`, and Slurm has written it since 25.05; they may also type `=` for
    `:`. A name that comes twice counts twice, as Slurm counts it (_build_license_list,
    src/slurmctld/licenses.c).
    """
    count_by_licence: dict[str, int] = {}
    for licence_entry in re.split("[,;|]", licence_list):
        licence_name, _, count = licence_entry.strip().replace("=", ":").partition(":")
        if licence_name and (not count or count.isdecimal()):
            licence_name = licence_name.partition("@")[0]
            # A count that is cut to 18 digits is still more than anybody can have.
            count_by_licence[licence_name] = count_by_licence.get(licence_name, 0) + int(
                count[:18] or 1
            )
    return count_by_licence


def of_job(licences: Mapping[str, int], pods: Sequence[SlurmPod]) -> tuple[SlurmPod, int] | None:
    """Return the pod that a job's licences name and the number of devices, or None if it wants
    none.
    """
    for pod in pods:
        if licences.get(pod.licence):
            return pod, licences[pod.licence]
    return None


def load(site_path: Path) -> Site:
    """Read the site's file. Raises InvalidRequest, in one line that names the file and the
    fault.
    """
    action = f"read {site_path}"
    try:
        toml_data: dict[str, Any] = tomllib.loads(site_path.read_text())
        for table_section, name in _SITE_FIELD_BY_SECTION.items():
            toml_data[name] = toml_data.pop(table_section, [])
        site = msgspec.convert(toml_data, type=Site)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidRequest(
            f"{site_path}: {reason}",
            operation=action,
            would_work="podwright slurm configure --write",
        ) from None
    needed_section = _NEEDED_SECTION_BY_MODE.get(site.mode)
    if needed_section is None or not getattr(site, _SITE_FIELD_BY_SECTION[needed_section]):
        problem = (
            f"it names no [[{needed_section}]]"
            if needed_section
            else f"there is no mode {site.mode!r}"
        )
        raise InvalidRequest(f"{site_path}: {problem}", operation=action)
    return site


def dump(site: Site) -> str:
    """Return the text of the site's file."""
    toml_lines = _toml_field_lines(site, set(_SITE_FIELD_BY_SECTION.values()))
    for section, name in _SITE_FIELD_BY_SECTION.items():
        for row in getattr(site, name):
            toml_lines += ["", f"[[{section}]]", *_toml_field_lines(row, set())]
    return "\n".join(toml_lines) + "\n"


def _toml_field_lines(config_struct: msgspec.Struct, skipped_fields: Collection[str]) -> list[str]:
    field_names = zip(
        config_struct.__struct_fields__, config_struct.__struct_encode_fields__, strict=True
    )
    return [
        f"{key} = {msgspec.json.encode(getattr(config_struct, name)).decode()}"
        for name, key in field_names
        if name not in skipped_fields
    ]
