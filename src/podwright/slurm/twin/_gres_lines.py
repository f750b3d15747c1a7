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

from podwright.slurm.twin._job_record import numbers
from podwright.slurm.twin._site_conf import expand, fold_names, pairs

DEVICES = "dev"
SHARED = ("shard", "mps")
_KIND = re.compile(
    r"(?:^|,)([A-Za-z_]\w*)(?::([^:(,]*[A-Za-z_][^:(,]*))?(?::(\d+)[KMG]?)?(\([^)]*\))?"
)


@dataclass(frozen=True)
class _Row:
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

    def text(self, nodes: str, folder: str) -> str:
        words = [f"NodeName={nodes} Name={self.name}"]
        words += [f"Type={self.type}"] if self.type else []
        words += [f"Count={self.count}"] if self.count else []
        key = "MultipleFiles" if self.multiple else "File"
        files = ",".join(f"{folder}/{path}" for path in self.files)
        words += [f"{key}={files}"] if files else []
        return " ".join([*words, self.rest]).strip()


def gres_conf(
    text: str, nodes: Mapping[str, Mapping[str, str]], folder: str
) -> tuple[str, tuple[str, ...]]:
    """Return the text of gres.conf, and the devices in it, by their paths in the twin's folder."""
    by_node: dict[str, list[_Row]] = {name: [] for name in nodes}
    detects: set[str] = set()
    for line in re.sub(r"\\\n", " ", text).splitlines():
        fields = {key.lower(): value for key, value in pairs(line.split("#")[0]).items()}
        names = expand(fields.pop("nodename")) if "nodename" in fields else list(nodes)
        detect = fields.pop("autodetect", "")
        if detect:
            change = detects.difference_update if detect.lower() == "off" else detects.update
            change(names)
        if "name" in fields:
            row = _row(fields)
            for name in names:
                if name in by_node and _has(nodes[name], row):
                    by_node[name].append(row)
    # slurmctld reads the whole file again for each node, so equal nodes share their lines.
    alike: dict[tuple[_Row, ...], list[str]] = {}
    for name, rows in by_node.items():
        node_rows = tuple(_rows(rows, nodes[name], detected=name in detects))
        alike.setdefault(node_rows, []).append(name)
    lines: list[str] = ["AutoDetect=off"]
    devices: dict[str, None] = {}
    for node_rows, names in alike.items():
        lines += [row.text(fold_names(names), folder) for row in node_rows]
        devices |= dict.fromkeys(path for row in node_rows for path in row.files)
    return "\n".join(lines) + "\n", tuple(devices)


def _row(fields: dict[str, str]) -> _Row:
    multiple = "multiplefiles" in fields
    files = expand(fields.pop("multiplefiles" if multiple else "file", ""))
    rest = {"cores": "Cores", "cpus": "Cores", "links": "Links", "flags": "Flags"}
    return _Row(
        name=fields["name"],
        type=fields.get("type", ""),
        files=tuple(f"{DEVICES}/{path.removeprefix('/dev/').lstrip('/')}" for path in files),
        count=fields.get("count", ""),
        rest=" ".join(f"{rest[key]}={value}" for key, value in fields.items() if key in rest),
        multiple=multiple,
    )


def _kinds(fields: Mapping[str, str]) -> Iterator[tuple[str, str, int, str]]:
    """Yield (name, type, count, sockets) for each part of a node's Gres."""
    gres = next((value for key, value in fields.items() if key.lower() == "gres"), "")
    for name, kind, count, where in _KIND.findall(gres):
        sockets = re.match(r"\(S:([\d,-]+)\)", where)
        yield name, kind, int(count or 1), sockets[1] if sockets else ""


def _has(fields: Mapping[str, str], row: _Row) -> bool:
    """Return whether the node's Gres in slurm.conf has what the line describes."""
    return any(name == row.name for name, *_ in _kinds(fields))


def _rows(rows: list[_Row], fields: Mapping[str, str], *, detected: bool) -> Iterator[_Row]:
    kinds = list(_kinds(fields))
    gpus = [row for row in rows if row.name == "gpu"]
    if detected or not any(row.files for row in gpus):
        gpus = list(_socket_rows(kinds, fields))
    yield from gpus
    single = [(row.type, path, row.rest) for row in gpus for path in row.devices()]
    typed = {name for name, kind, *_ in kinds if kind}
    for name in dict.fromkeys(kind[0] for kind in kinds):
        own = [row for row in rows if row.name == name]
        if name == "gpu":
            continue
        if name not in SHARED or any(row.files for row in own):
            yield from own
            continue
        total = sum(count for kind, _, count, _ in kinds if kind == name)
        each, more = divmod(total, max(1, len(single)))
        for index, (kind, path, _) in enumerate(single):
            count = each + (index < more)
            if count:
                yield _Row(name, kind if name in typed else "", (path,), str(count), "")


def _socket_rows(
    kinds: list[tuple[str, str, int, str]], fields: Mapping[str, str]
) -> Iterator[_Row]:
    """Yield lines for GPUs, made from the sockets that scontrol shows beside them."""
    sockets = int(fields.get("Sockets", "1"))
    cores = int(fields.get("CoresPerSocket", "1"))
    device_index = 0
    for name, kind, count, where in kinds:
        if name != "gpu":
            continue
        sockets_of_row = [s for s in numbers(where) if s < sockets]
        for nth in range(count):
            rest = ""
            if sockets_of_row:
                socket = sockets_of_row[nth * len(sockets_of_row) // count]
                rest = f"Cores={socket * cores}-{(socket + 1) * cores - 1}"
            yield _Row("gpu", kind, (f"{DEVICES}/gpu{device_index}",), "", rest)
            device_index += 1
