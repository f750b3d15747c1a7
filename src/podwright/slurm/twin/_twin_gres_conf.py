"""The twin's gres.conf: the site's lines, with devices that every machine has.

slurmctld reads gres.conf for nodes in State=CLOUD itself, and there

- AutoDetect is refused. Where the site uses it, lines are written out of what Slurm found: the
  sockets that `scontrol show node` names beside each kind of GPU, shared evenly.
- shards and MPS shares without a File end slurmctld. They are written a line for each GPU.
- the files of GPUs must be devices: each is a link to /dev/null in the twin's folder.
- MultipleFiles are the files of one MIG slice. All of them are written, because slices of a GPU
  have the GPU's file in common, and slurmctld ends where the same File is written twice.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from podwright.hosts import expand_names, fold_names
from podwright.slurm.site.conf_lines import logical_lines, read_row
from podwright.slurm.twin._read_twin_answer import numbers

DEVICE_FOLDER = "dev"
SHARED_GRES_NAMES = ("shard", "mps")
_GRES_PART_PATTERN = re.compile(
    r"(?:^|,)([A-Za-z_]\w*)(?::([^:(,]*[A-Za-z_][^:(,]*))?(?::(\d+)[KMG]?)?(\([^)]*\))?"
)


@dataclass(frozen=True)
class _GresConfLine:
    """A line of gres.conf for nodes that are alike."""

    name: str
    type: str
    files: tuple[str, ...]
    count: str
    rest: str  # other keys, as written
    multiple: bool = False  # whether all files are those of one device

    def devices(self) -> tuple[str, ...]:
        """Return one file for each device. A slice's last file is the one that is its own."""
        return self.files[-1:] if self.multiple else self.files

    def text(self, nodes: str, twin_folder: str) -> str:
        words = [f"NodeName={nodes} Name={self.name}"]
        words += [f"Type={self.type}"] if self.type else []
        words += [f"Count={self.count}"] if self.count else []
        key = "MultipleFiles" if self.multiple else "File"
        file_list = ",".join(f"{twin_folder}/{path}" for path in self.files)
        words += [f"{key}={file_list}"] if file_list else []
        return " ".join([*words, self.rest]).strip()


def gres_conf(
    site_text: str, nodes: Mapping[str, Mapping[str, str]], folder: str
) -> tuple[str, tuple[str, ...]]:
    """Return the text of gres.conf, and the devices in it, by their paths in the twin's folder."""
    rows_by_node: dict[str, list[_GresConfLine]] = {name: [] for name in nodes}
    detecting_nodes: set[str] = set()
    for _, line in logical_lines(site_text):
        fields = {key.lower(): text.strip('"') for key, text in read_row(line).items()}
        node_names = (
            list(expand_names(fields.pop("nodename"))) if "nodename" in fields else list(nodes)
        )
        autodetect = fields.pop("autodetect", "")
        if autodetect:
            update_nodes = (
                detecting_nodes.difference_update
                if autodetect.lower() == "off"
                else detecting_nodes.update
            )
            update_nodes(node_names)
        if "name" in fields:
            row = _parse_gres_line(fields)
            for node_name in node_names:
                if node_name in rows_by_node and _node_has_gres(nodes[node_name], row):
                    rows_by_node[node_name].append(row)
    # slurmctld reads the whole file again for each node, so equal nodes share their lines.
    nodes_by_rows: dict[tuple[_GresConfLine, ...], list[str]] = {}
    for node_name, rows in rows_by_node.items():
        node_rows = tuple(
            _twin_gres_lines(rows, nodes[node_name], detected=node_name in detecting_nodes)
        )
        nodes_by_rows.setdefault(node_rows, []).append(node_name)
    conf_lines: list[str] = ["AutoDetect=off"]
    devices: dict[str, None] = {}
    for node_rows, node_names in nodes_by_rows.items():
        folded_names = fold_names(node_names)
        conf_lines += [row.text(folded_names, folder) for row in node_rows]
        devices |= dict.fromkeys(path for row in node_rows for path in row.files)
    return "\n".join(conf_lines) + "\n", tuple(devices)


def with_twin_devices(site_text: str, folder: str) -> str:
    """Return gres.conf as it is written, with the twin's devices in place of the site's."""

    def own_files(file_match: re.Match[str]) -> str:
        files = re.sub(r"(?:(?<=^)|(?<=,))(?:/dev/|/)", f"{folder}/{DEVICE_FOLDER}/", file_match[2])
        return f"{file_match[1]}{files}"

    return re.sub(r"((?:Multiple)?Files?=)(\S+)", own_files, site_text, flags=re.IGNORECASE)


def _parse_gres_line(fields: dict[str, str]) -> _GresConfLine:
    multiple = "multiplefiles" in fields
    file_names = expand_names(fields.pop("multiplefiles" if multiple else "file", ""))
    kept_keys = {"cores": "Cores", "cpus": "Cores", "links": "Links", "flags": "Flags"}
    return _GresConfLine(
        name=fields["name"],
        type=fields.get("type", ""),
        files=tuple(
            f"{DEVICE_FOLDER}/{path.removeprefix('/dev/').lstrip('/')}" for path in file_names
        ),
        count=fields.get("count", ""),
        rest=" ".join(
            f"{kept_keys[key]}={value}" for key, value in fields.items() if key in kept_keys
        ),
        multiple=multiple,
    )


def _parse_gres_parts(fields: Mapping[str, str]) -> Iterator[tuple[str, str, int, str]]:
    """Yield (name, type, count, sockets) for each part of a node's Gres."""
    gres_text = next((value for key, value in fields.items() if key.lower() == "gres"), "")
    for name, gres_type, count, sockets_text in _GRES_PART_PATTERN.findall(gres_text):
        sockets_match = re.match(r"\(S:([\d,-]+)\)", sockets_text)
        yield name, gres_type, int(count or 1), sockets_match[1] if sockets_match else ""


def _node_has_gres(fields: Mapping[str, str], row: _GresConfLine) -> bool:
    """Return whether the node's Gres in slurm.conf has what the line describes."""
    return any(name == row.name for name, *_ in _parse_gres_parts(fields))


def _twin_gres_lines(
    rows: list[_GresConfLine], fields: Mapping[str, str], *, detected: bool
) -> Iterator[_GresConfLine]:
    gres_parts = list(_parse_gres_parts(fields))
    gpu_rows = [row for row in rows if row.name == "gpu"]
    if detected or not any(row.files for row in gpu_rows):
        gpu_rows = list(_socket_rows(gres_parts, fields))
    yield from gpu_rows
    gpu_devices = [(row.type, path, row.rest) for row in gpu_rows for path in row.devices()]
    typed_names = {name for name, kind, *_ in gres_parts if kind}
    for gres_name in dict.fromkeys(kind[0] for kind in gres_parts):
        matching_rows = [row for row in rows if row.name == gres_name]
        if gres_name == "gpu":
            continue
        if gres_name not in SHARED_GRES_NAMES or any(row.files for row in matching_rows):
            yield from matching_rows
            continue
        share_total = sum(count for kind, _, count, _ in gres_parts if kind == gres_name)
        shares_per_gpu, extra_shares = divmod(share_total, max(1, len(gpu_devices)))
        for gpu_index, (kind, device_path, _) in enumerate(gpu_devices):
            share_count = shares_per_gpu + (gpu_index < extra_shares)
            if share_count:
                yield _GresConfLine(
                    gres_name,
                    kind if gres_name in typed_names else "",
                    (device_path,),
                    str(share_count),
                    "",
                )


def _socket_rows(
    gres_parts: list[tuple[str, str, int, str]], fields: Mapping[str, str]
) -> Iterator[_GresConfLine]:
    """Yield lines for GPUs, made from the sockets that scontrol shows beside them."""
    socket_count = int(fields.get("Sockets", "1"))
    cores_per_socket = int(fields.get("CoresPerSocket", "1"))
    device_index = 0
    for gres_name, gpu_type, gpu_count, sockets_text in gres_parts:
        if gres_name != "gpu":
            continue
        sockets_of_row = [number for number in numbers(sockets_text) if number < socket_count]
        for gpu_position in range(gpu_count):
            cores_key = ""
            if sockets_of_row:
                socket = sockets_of_row[gpu_position * len(sockets_of_row) // gpu_count]
                cores_key = (
                    f"Cores={socket * cores_per_socket}-{(socket + 1) * cores_per_socket - 1}"
                )
            yield _GresConfLine(
                "gpu", gpu_type, (f"{DEVICE_FOLDER}/gpu{device_index}",), "", cores_key
            )
            device_index += 1
