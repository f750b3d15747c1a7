"""A pod drawn in letters: a line for each link domain, a letter for each device. Pure.

Each partition has a letter as well as a colour, so nobody needs to distinguish colours. Free
devices that are kept have a digit for each request that they are kept for.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from podwright.page import Snapshot

#: The states of devices without a partition, and how they are drawn.
_LETTER_BY_STATE = {"FREE": ("·", ""), "DRAINED": ("d", "yellow"), "DOWN": ("!", "red bold")}
_PARTITION_LETTERS = string.ascii_uppercase + string.ascii_lowercase.replace("d", "")
_PARTITION_COLOURS = (
    "cyan",
    "green",
    "magenta",
    "blue",
    "bright_yellow",
    "bright_cyan",
    "bright_magenta",
)


class Cell(NamedTuple):
    """A device, or several of them if the domain is folded. style: for Rich."""

    letter: str
    style: str


class Domain(NamedTuple):
    """A link domain. free: the number of its free devices."""

    name: str
    cells: tuple[Cell, ...]
    free: int
    size: int


def letters(snapshot: Snapshot) -> dict[str, Cell]:
    """Return the letter and colour of each partition.

    They follow the partitions' ages, so newer partitions do not change them.
    """
    partitions = sorted(
        snapshot.get("partitions", {}).items(),
        key=lambda named_partition: _creation_sort_key(named_partition[1], named_partition[0]),
    )
    return {
        name: Cell(
            _PARTITION_LETTERS[index % len(_PARTITION_LETTERS)],
            _PARTITION_COLOURS[index % len(_PARTITION_COLOURS)],
        )
        for index, (name, _) in enumerate(partitions)
    }


def kept_marks(snapshot: Snapshot) -> dict[str, Cell]:
    """Return the digit of each request for which free devices are kept, by the request's name.

    Requests beyond the ninth have none, and those that the caller may not see.
    """
    device_rows = [
        row for row in snapshot.get("devices", {}).values() if isinstance(row, tuple | list)
    ]
    request_names = sorted(
        {str(row[5]) for row in device_rows if len(row) > 5 and row[2] == "RESERVED"}
    )
    return {
        name: Cell(digit, "bold") for name, digit in zip(request_names, "123456789", strict=False)
    }


def _creation_sort_key(partition: object, partition_name: str) -> tuple[float, str]:
    created_at = partition.get("created", 0) if isinstance(partition, Mapping) else 0
    return float(created_at), partition_name


def draw(snapshot: Snapshot, width: int) -> list[Domain]:
    """Return the link domains in order, each in at most `width` columns."""
    cells_by_partition, marks_by_request = letters(snapshot), kept_marks(snapshot)
    cells_by_domain: dict[tuple[str, int], list[tuple[int, Cell]]] = {}
    for device_path, device_row in snapshot.get("devices", {}).items():
        cluster, domain, offset = device_path.rsplit("/", 2)
        assert isinstance(device_row, tuple | list)
        _, _, state, partition, _, *kept_for = device_row
        cell = cells_by_partition.get(str(partition)) if partition else None
        if state == "RESERVED" and kept_for:
            cell = marks_by_request.get(str(kept_for[0]))
        if cell is None or state == "DOWN":
            cell = Cell(
                *_LETTER_BY_STATE.get(str(state), ("?" if state != "RESERVED" else "r", "dim"))
            )
        cells_by_domain.setdefault((cluster, int(domain)), []).append((int(offset), cell))
    domains = []
    several_clusters = len({cluster for cluster, _ in cells_by_domain}) > 1
    for (cluster, domain_number), domain_devices in sorted(cells_by_domain.items()):
        cells = [
            cell
            for _, cell in sorted(domain_devices, key=lambda offset_and_cell: offset_and_cell[0])
        ]
        free_count = sum(cell.letter == "·" for cell in cells)
        domain_name = f"{cluster}/{domain_number}" if several_clusters else str(domain_number)
        domains.append(
            Domain(domain_name, tuple(_fold_cells(cells, max(width, 1))), free_count, len(cells))
        )
    return domains


def _fold_cells(cells: list[Cell], width: int) -> list[Cell]:
    """Return one cell for each group of devices: its most frequent, or a failure if there is
    one.
    """
    devices_per_cell = -(-len(cells) // width)
    if devices_per_cell <= 1:
        return cells
    folded_cells = []
    for start in range(0, len(cells), devices_per_cell):
        group = cells[start : start + devices_per_cell]
        failed_cells = [cell for cell in group if cell.letter == "!"]
        folded_cells.append(
            failed_cells[0] if failed_cells else Counter(group).most_common(1)[0][0]
        )
    return folded_cells


def legend(snapshot: Snapshot) -> str:
    """Return the meaning of the other letters, and which sizes still fit."""
    legend_parts = ["· free", "d drained", "! down", "r kept"]
    legend_parts += [f"{mark.letter} for {name}" for name, mark in kept_marks(snapshot).items()]
    for cluster, fragment_counts in snapshot.get("fragments", {}).items():
        assert isinstance(fragment_counts, Mapping)
        fitting_sizes = [size for size, count, _ in fragment_counts["sizes"] if count]
        cluster_prefix = f"{cluster}: " if len(snapshot.get("fragments", {})) > 1 else ""
        legend_parts.append(
            f"{cluster_prefix}{fragment_counts['free']} free, largest "
            f"{max(fitting_sizes, default=0)}"
        )
    return "  ".join(legend_parts)
