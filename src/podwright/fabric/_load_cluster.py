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
from podwright.fabric._toml_line_numbers import Path as KeyPath
from podwright.fabric._toml_line_numbers import key_lines

_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST_PATTERN = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:_-]*")
_CLUSTER_KEYS = ("name", "family", "topology", "domain_topology", "simulated", "link_domains")
_DOMAIN_KEYS = ("name", "machines")
_MACHINE_KEYS = ("name", "host", "port")
_KEY_EXAMPLES = {
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
    return _ClusterFileReader(file_name, key_lines(toml_text.replace("\r\n", "\n"))).cluster(
        toml_tree
    )


def _syntax_error(file_name: str, toml_text: str, message: str) -> FabricError:
    position_match = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    number = int(position_match[1]) if position_match else toml_text.rstrip("\n").count("\n") + 1
    problem = re.sub(r" \(at [^)]*\)$", "", message)
    return FabricError(
        file_name, number, "", f"is not TOML: {problem}", "Values stand as key = value"
    )


class _ClusterFileReader:
    """Walks one tree, and knows the line of each of its keys."""

    def __init__(self, file_name: str, line_numbers: Mapping[KeyPath, int]) -> None:
        self.file, self.lines = file_name, line_numbers

    def fail(self, key_path: KeyPath, problem: str, would_work: str = "") -> NoReturn:
        raise FabricError(
            self.file, self._line_number(key_path), _dotted_path(key_path), problem, would_work
        )

    def _line_number(self, key_path: KeyPath) -> int:
        while key_path and key_path not in self.lines:
            key_path = key_path[:-1]
        return self.lines.get(key_path, 1)

    def cluster(self, toml_tree: Mapping[str, Any]) -> Cluster:
        self._check_keys((), toml_tree, _CLUSTER_KEYS, required=("name", "family", "link_domains"))
        family_name = self._read_name(("family",), toml_tree["family"])
        family = family_named(family_name)
        if family is None:
            self._fail_choice(("family",), family_name, family_names())
        simulated = toml_tree.get("simulated", False)
        if not isinstance(simulated, bool):
            self.fail(("simulated",), f"is {_toml_type_name(simulated)}", "Write true or false")
        return Cluster(
            name=self._read_name(("name",), toml_tree["name"]),
            family=family,
            domains=self._read_domains(toml_tree["link_domains"], family, simulated),
            domain_topology=self._read_choice(toml_tree, "domain_topology", DomainTopology.MESH),
            topology=self._read_choice(toml_tree, "topology", ClusterTopology.NONE),
            simulated=simulated,
        )

    def _read_domains(
        self, domain_tables: Any, family: Family, simulated: bool
    ) -> tuple[LinkDomain, ...]:
        key_path: KeyPath = ("link_domains",)
        if not isinstance(domain_tables, list) or not domain_tables:
            self.fail(
                key_path, "has no link domain in it", "Write " + _KEY_EXAMPLES["link_domains"]
            )
        machine_limit = family.max_domain_devices // family.devices_per_machine
        domains: list[LinkDomain] = []
        paths_by_domain: dict[str, KeyPath] = {}
        paths_by_machine: dict[str, KeyPath] = {}
        paths_by_address: dict[str, KeyPath] = {}
        for domain_index, domain_table in enumerate(domain_tables):
            domain_path = (*key_path, domain_index)
            if not isinstance(domain_table, dict):
                self.fail(
                    domain_path,
                    f"is {_toml_type_name(domain_table)}",
                    "Write " + _KEY_EXAMPLES["link_domains"],
                )
            self._check_keys(domain_path, domain_table, _DOMAIN_KEYS, required=("machines",))
            domain_name = self._read_name(
                (*domain_path, "name"), domain_table.get("name", f"ild{domain_index}")
            )
            self._check_unique((*domain_path, "name"), domain_name, paths_by_domain)
            machine_entries, machines_path = domain_table["machines"], (*domain_path, "machines")
            if not isinstance(machine_entries, list) or not machine_entries:
                self.fail(
                    machines_path, "is not a list of machines", "Write " + _KEY_EXAMPLES["machines"]
                )
            if len(machine_entries) > machine_limit:
                self.fail(
                    machines_path,
                    f"has {len(machine_entries)} machines",
                    f"A link domain of this family has at most {machine_limit}, "
                    f"which are {family.max_domain_devices} devices",
                )
            machines = []
            for machine_index, machine_entry in enumerate(machine_entries):
                machine = self._machine((*machines_path, machine_index), machine_entry, simulated)
                self._check_unique((*machines_path, machine_index), machine.name, paths_by_machine)
                if not simulated:
                    self._check_unique(
                        (*machines_path, machine_index),
                        f"{machine.host}:{machine.port}",
                        paths_by_address,
                    )
                machines.append(machine)
            domains.append(LinkDomain(domain_name, tuple(machines)))
        return tuple(domains)

    def _machine(self, key_path: KeyPath, machine_entry: Any, simulated: bool) -> Machine:
        if isinstance(machine_entry, str):
            machine_entry = {"name": machine_entry}
        if not isinstance(machine_entry, dict):
            self.fail(
                key_path,
                f"is {_toml_type_name(machine_entry)}",
                'Write "ag1" or { name = "ag1", host = "10.1.2.3" }',
            )
        self._check_keys(key_path, machine_entry, _MACHINE_KEYS, required=("name",))
        machine_name = self._read_name((*key_path, "name"), machine_entry["name"])
        host = machine_entry.get("host", "127.0.0.1" if simulated else machine_name)
        if not isinstance(host, str) or not _HOST_PATTERN.fullmatch(host):
            self.fail(
                (*key_path, "host"),
                f"{host!r} is not a host",
                'Write a name or an address: "10.1.2.3"',
            )
        port = machine_entry.get("port", 8080)
        if type(port) is not int or not 0 < port < 65536:
            self.fail(
                (*key_path, "port"), f"{port!r} is not a port", "Write a number from 1 to 65535"
            )
        return Machine(machine_name, host, port)

    def _check_keys(
        self,
        key_path: KeyPath,
        table: Mapping[str, Any],
        known_keys: Iterable[str],
        *,
        required: Iterable[str],
    ) -> None:
        for key in table:
            if key not in known_keys:
                self.fail((*key_path, key), "is not a known key", nearest(key, known_keys))
        for key in required:
            if key not in table:
                self.fail(key_path, f"lacks the key {key}", f"Write {_KEY_EXAMPLES[key]}")

    def _read_name(self, key_path: KeyPath, name_text: Any) -> str:
        if not isinstance(name_text, str):
            self.fail(
                key_path, f"is {_toml_type_name(name_text)}", "Write a name in quotation marks"
            )
        if not _NAME_PATTERN.fullmatch(name_text):
            self.fail(
                key_path,
                f"{name_text!r} is not a name",
                "A name has letters, digits and . _ - in it",
            )
        return name_text

    def _read_choice(
        self, toml_tree: Mapping[str, Any], choice_key: str, default_choice: _Choice
    ) -> _Choice:
        value = toml_tree.get(choice_key, default_choice.value)
        choice_values = [choice.value for choice in type(default_choice)]
        if value not in choice_values:
            self._fail_choice((choice_key,), value, choice_values)
        return type(default_choice)(value)

    def _fail_choice(
        self, key_path: KeyPath, unknown_value: Any, choices: Iterable[str]
    ) -> NoReturn:
        self.fail(key_path, f"{unknown_value!r} is not known", nearest(str(unknown_value), choices))

    def _check_unique(
        self, key_path: KeyPath, unique_name: str, first_paths: dict[str, KeyPath]
    ) -> None:
        if unique_name in first_paths:
            line = self._line_number(first_paths[unique_name])
            self.fail(
                key_path,
                f"{unique_name} is named twice, first on line {line}",
                "Each is named once",
            )
        first_paths[unique_name] = key_path


def _dotted_path(key_path: KeyPath) -> str:
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in key_path
    ).lstrip(".")


def _toml_type_name(toml_value: Any) -> str:
    type_names = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return type_names.get(type(toml_value), "a list" if isinstance(toml_value, list) else "a table")
