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

import enum
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from podwright.fabric._cluster import (
    Cluster,
    ClusterTopology,
    DomainTopology,
    LinkDomain,
    Machine,
)
from podwright.fabric._errors import FabricError, nearest
from podwright.fabric._family import Family, family_named, family_names
from podwright.fabric._toml_lines import Path as KeyPath
from podwright.fabric._toml_lines import key_lines

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:_-]*")
_CLUSTER_KEYS = ("name", "family", "topology", "domain_topology", "simulated", "link_domains")
_DOMAIN_KEYS = ("name", "machines")
_MACHINE_KEYS = ("name", "host", "port")
_EXAMPLE = {
    "name": 'name = "row1"',
    "family": 'family = "ipu"',
    "link_domains": "a table [[link_domains]] for each of them",
    "machines": 'machines = ["ag1", "ag2"]',
}

_Choice = TypeVar("_Choice", bound=enum.Enum)


def load_cluster(path: str | Path) -> Cluster:
    """Return the cluster that a TOML file describes.

    Raises FabricError for the first error in it.
    """
    file = str(path)
    try:
        text = Path(path).read_bytes().decode()
    except OSError as error:
        raise FabricError(file, 0, "", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise FabricError(file, line, "", "is not UTF-8 text", "Save it as UTF-8") from None
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax(file, text, str(error)) from None
    return _Reader(file, key_lines(text.replace("\r\n", "\n"))).cluster(tree)


def _syntax(file: str, text: str, message: str) -> FabricError:
    match = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    line = int(match[1]) if match else text.rstrip("\n").count("\n") + 1
    problem = re.sub(r" \(at [^)]*\)$", "", message)
    return FabricError(file, line, "", f"is not TOML: {problem}", "Values stand as key = value")


class _Reader:
    """Walks one tree, and knows the line of each of its keys."""

    def __init__(self, file: str, lines: Mapping[KeyPath, int]) -> None:
        self.file, self.lines = file, lines

    def fail(self, key_path: KeyPath, problem: str, would_work: str = "") -> NoReturn:
        raise FabricError(self.file, self._line(key_path), _spell(key_path), problem, would_work)

    def _line(self, key_path: KeyPath) -> int:
        while key_path and key_path not in self.lines:
            key_path = key_path[:-1]
        return self.lines.get(key_path, 1)

    def cluster(self, tree: Mapping[str, Any]) -> Cluster:
        self._keys((), tree, _CLUSTER_KEYS, required=("name", "family", "link_domains"))
        family_name = self._name(("family",), tree["family"])
        family = family_named(family_name)
        if family is None:
            self._no_choice(("family",), family_name, family_names())
        simulated = tree.get("simulated", False)
        if not isinstance(simulated, bool):
            self.fail(("simulated",), f"is {_kind(simulated)}", "Write true or false")
        return Cluster(
            name=self._name(("name",), tree["name"]),
            family=family,
            domains=self._domains(tree["link_domains"], family, simulated),
            domain_topology=self._choice(tree, "domain_topology", DomainTopology.MESH),
            topology=self._choice(tree, "topology", ClusterTopology.NONE),
            simulated=simulated,
        )

    def _domains(self, value: Any, family: Family, simulated: bool) -> tuple[LinkDomain, ...]:
        key_path: KeyPath = ("link_domains",)
        if not isinstance(value, list) or not value:
            self.fail(key_path, "has no link domain in it", "Write " + _EXAMPLE["link_domains"])
        machine_limit = family.max_domain_devices // family.devices_per_machine
        domains: list[LinkDomain] = []
        names: dict[str, KeyPath] = {}
        machine_names: dict[str, KeyPath] = {}
        addresses: dict[str, KeyPath] = {}
        for i, table in enumerate(value):
            domain_path = (*key_path, i)
            if not isinstance(table, dict):
                self.fail(domain_path, f"is {_kind(table)}", "Write " + _EXAMPLE["link_domains"])
            self._keys(domain_path, table, _DOMAIN_KEYS, required=("machines",))
            name = self._name((*domain_path, "name"), table.get("name", f"ild{i}"))
            self._once((*domain_path, "name"), name, names)
            listed, machines_path = table["machines"], (*domain_path, "machines")
            if not isinstance(listed, list) or not listed:
                self.fail(
                    machines_path, "is not a list of machines", "Write " + _EXAMPLE["machines"]
                )
            if len(listed) > machine_limit:
                self.fail(
                    machines_path,
                    f"has {len(listed)} machines",
                    f"A link domain of this family has at most {machine_limit}, "
                    f"which are {family.max_domain_devices} devices",
                )
            machines = []
            for k, entry in enumerate(listed):
                machine = self._machine((*machines_path, k), entry, simulated)
                self._once((*machines_path, k), machine.name, machine_names)
                if not simulated:
                    self._once((*machines_path, k), f"{machine.host}:{machine.port}", addresses)
                machines.append(machine)
            domains.append(LinkDomain(name, tuple(machines)))
        return tuple(domains)

    def _machine(self, key_path: KeyPath, value: Any, simulated: bool) -> Machine:
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict):
            self.fail(
                key_path, f"is {_kind(value)}", 'Write "ag1" or { name = "ag1", host = "10.1.2.3" }'
            )
        self._keys(key_path, value, _MACHINE_KEYS, required=("name",))
        name = self._name((*key_path, "name"), value["name"])
        host = value.get("host", "127.0.0.1" if simulated else name)
        if not isinstance(host, str) or not _HOST.fullmatch(host):
            self.fail(
                (*key_path, "host"),
                f"{host!r} is not a host",
                'Write a name or an address: "10.1.2.3"',
            )
        port = value.get("port", 8080)
        if type(port) is not int or not 0 < port < 65536:
            self.fail(
                (*key_path, "port"), f"{port!r} is not a port", "Write a number from 1 to 65535"
            )
        return Machine(name, host, port)

    def _keys(
        self,
        key_path: KeyPath,
        table: Mapping[str, Any],
        known: Iterable[str],
        *,
        required: Iterable[str],
    ) -> None:
        for key in table:
            if key not in known:
                self.fail((*key_path, key), "is not a known key", nearest(key, known))
        for key in required:
            if key not in table:
                self.fail(key_path, f"lacks the key {key}", f"Write {_EXAMPLE[key]}")

    def _name(self, key_path: KeyPath, value: Any) -> str:
        if not isinstance(value, str):
            self.fail(key_path, f"is {_kind(value)}", "Write a name in quotation marks")
        if not _NAME.fullmatch(value):
            self.fail(
                key_path, f"{value!r} is not a name", "A name has letters, digits and . _ - in it"
            )
        return value

    def _choice(self, tree: Mapping[str, Any], key: str, default: _Choice) -> _Choice:
        value = tree.get(key, default.value)
        choices = [choice.value for choice in type(default)]
        if value not in choices:
            self._no_choice((key,), value, choices)
        return type(default)(value)

    def _no_choice(self, key_path: KeyPath, value: Any, choices: Iterable[str]) -> NoReturn:
        self.fail(key_path, f"{value!r} is not known", nearest(str(value), choices))

    def _once(self, key_path: KeyPath, name: str, seen: dict[str, KeyPath]) -> None:
        if name in seen:
            first = self._line(seen[name])
            self.fail(
                key_path, f"{name} is named twice, first on line {first}", "Each is named once"
            )
        seen[name] = key_path


def _spell(key_path: KeyPath) -> str:
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in key_path
    ).lstrip(".")


def _kind(value: Any) -> str:
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return kinds.get(type(value), "a list" if isinstance(value, list) else "a table")
