"""A cluster from a file: TOML, checked while it is read.

    name = "row1"
    family = "ipu"
    topology = "looped"            # between link domains: none, looped, switched
    domain_topology = "torus"      # inside one: mesh, torus
    simulated = false

    [[link_domains]]               # in the order of their loop
    name = "ild0"
    machines = ["ag1", { name = "ag2", host = "10.1.2.2", port = 8080 }]

Only `name`, `family` and `link_domains` must be there. A machine that is only a name is reached
under that name, or, when simulated, not at all. The format is ours.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from podwright.fabric._cluster import (
    Cluster,
    ClusterTopology,
    DomainTopology,
    LinkDomain,
    Machine,
)
from podwright.fabric._errors import FabricError
from podwright.fabric._family import family_named, family_names
from podwright.fabric._toml_line_numbers import key_lines
from podwright.ground.checked_tables import BadTable, KeyPath, checked, dotted, nearest

_Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", description="a name of letters, digits and . _ -"
    ),
]
_Host = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9:][A-Za-z0-9.:_-]*\Z", description='a host: "10.1.2.3"')
]
_Port = Annotated[int, Meta(ge=1, le=65535, description="a port: a number from 1 to 65535")]
_KEY_EXAMPLES = {
    "name": 'name = "row1"',
    "family": 'family = "ipu"',
    "link_domains": "a table [[link_domains]] for each of them",
    "machines": 'machines = ["ag1", "ag2"]',
}


class _MachineTable(Struct, frozen=True, forbid_unknown_fields=True):
    name: _Name
    host: _Host = ""
    port: _Port = 8080


class _DomainTable(Struct, frozen=True, forbid_unknown_fields=True):
    machines: Annotated[
        tuple[_Name | _MachineTable, ...], Meta(min_length=1, description="a list of machines")
    ]
    name: _Name = ""


class _ClusterFile(Struct, frozen=True, forbid_unknown_fields=True):
    name: _Name
    family: _Name
    link_domains: Annotated[
        tuple[_DomainTable, ...], Meta(min_length=1, description="a list of link domains")
    ]
    topology: ClusterTopology = ClusterTopology.NONE
    domain_topology: DomainTopology = DomainTopology.MESH
    simulated: bool = False


def load_cluster(path: str | Path) -> Cluster:
    """Return the cluster that a TOML file describes.

    Raises FabricError for the first error in it.
    """
    file_name = str(path)
    try:
        toml_text = Path(path).read_bytes().decode()
    except OSError as error:
        raise FabricError(file_name, 0, "", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line_number = error.object.count(b"\n", 0, error.start) + 1
        raise FabricError(
            file_name, line_number, "", "is not UTF-8 text", "Save it as UTF-8"
        ) from None
    try:
        toml_tree = tomllib.loads(toml_text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(file_name, toml_text, str(error)) from None
    lines = key_lines(toml_text.replace("\r\n", "\n"))
    try:
        return _cluster(checked(toml_tree, _ClusterFile), lines)
    except BadTable as error:
        names = [key for key in error.key_path if isinstance(key, str)]
        example = _KEY_EXAMPLES.get(names[-1], "")
        raise FabricError(
            file_name,
            _line_number(lines, error.key_path),
            dotted(error.key_path),
            error.problem,
            error.would_work or (example and f"Write {example}"),
        ) from None


def _syntax_error(file_name: str, toml_text: str, message: str) -> FabricError:
    position_match = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    number = int(position_match[1]) if position_match else toml_text.rstrip("\n").count("\n") + 1
    problem = re.sub(r" \(at [^)]*\)$", "", message)
    return FabricError(
        file_name, number, "", f"is not TOML: {problem}", "Values stand as key = value"
    )


def _line_number(lines: Mapping[KeyPath, int], key_path: KeyPath) -> int:
    while key_path and key_path not in lines:
        key_path = key_path[:-1]
    return lines.get(key_path, 1)


def _cluster(file: _ClusterFile, lines: Mapping[KeyPath, int]) -> Cluster:
    family = family_named(file.family)
    if family is None:
        raise BadTable(
            ("family",), f"{file.family!r} is not known", nearest(file.family, family_names())
        )
    machine_limit = family.max_domain_devices // family.devices_per_machine
    first_paths: dict[tuple[str, str], KeyPath] = {}

    def check_unique(kind: str, name: str, key_path: KeyPath) -> None:
        first_path = first_paths.setdefault((kind, name), key_path)
        if first_path != key_path:
            line = _line_number(lines, first_path)
            raise BadTable(
                key_path, f"{name} is named twice, first on line {line}", "Each is named once"
            )

    domains = []
    for domain_index, table in enumerate(file.link_domains):
        domain_path: KeyPath = ("link_domains", domain_index)
        domain_name = table.name or f"ild{domain_index}"
        check_unique("domain", domain_name, (*domain_path, "name"))
        if len(table.machines) > machine_limit:
            raise BadTable(
                (*domain_path, "machines"),
                f"has {len(table.machines)} machines",
                f"A link domain of this family has at most {machine_limit}, "
                f"which are {family.max_domain_devices} devices",
            )
        machines = []
        for index, entry in enumerate(table.machines):
            if isinstance(entry, str):
                entry = _MachineTable(entry)
            host = entry.host or ("127.0.0.1" if file.simulated else entry.name)
            machine_path = (*domain_path, "machines", index)
            check_unique("machine", entry.name, machine_path)
            if not file.simulated:
                check_unique("address", f"{host}:{entry.port}", machine_path)
            machines.append(Machine(entry.name, host, entry.port))
        domains.append(LinkDomain(domain_name, tuple(machines)))
    return Cluster(
        name=file.name,
        family=family,
        domains=tuple(domains),
        domain_topology=file.domain_topology,
        topology=file.topology,
        simulated=file.simulated,
    )
