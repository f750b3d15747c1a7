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
_STATES = {"FREE": ("·", ""), "DRAINED": ("d", "yellow"), "DOWN": ("!", "red bold")}
_LETTERS = string.ascii_uppercase + string.ascii_lowercase.replace("d", "")
_COLOURS = ("cyan", "green", "magenta", "blue", "bright_yellow", "bright_cyan", "bright_magenta")


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
        snapshot.get("partitions", {}).items(), key=lambda item: _since(item[1], item[0])
    )
    return {
        name: Cell(_LETTERS[n % len(_LETTERS)], _COLOURS[n % len(_COLOURS)])
        for n, (name, _) in enumerate(partitions)
    }


def kept_marks(snapshot: Snapshot) -> dict[str, Cell]:
    """Return the digit of each request for which free devices are kept, by the request's name.

    Requests beyond the ninth have none, and those that the caller may not see.
    """
    rows = [row for row in snapshot.get("devices", {}).values() if isinstance(row, tuple | list)]
    names = sorted({str(row[5]) for row in rows if len(row) > 5 and row[2] == "RESERVED"})
    return {name: Cell(digit, "bold") for name, digit in zip(names, "123456789", strict=False)}


def _since(partition: object, name: str) -> tuple[float, str]:
    created = partition.get("created", 0) if isinstance(partition, Mapping) else 0
    return float(created), name


def draw(snapshot: Snapshot, width: int) -> list[Domain]:
    """Return the link domains in order, each in at most `width` columns."""
    cells_by_partition, requests = letters(snapshot), kept_marks(snapshot)
    cells_by_domain: dict[tuple[str, int], list[tuple[int, Cell]]] = {}
    for where, row in snapshot.get("devices", {}).items():
        cluster, domain, offset = where.rsplit("/", 2)
        assert isinstance(row, tuple | list)
        _, _, state, partition, _, *kept_for = row
        cell = cells_by_partition.get(str(partition)) if partition else None
        if state == "RESERVED" and kept_for:
            cell = requests.get(str(kept_for[0]))
        if cell is None or state == "DOWN":
            cell = Cell(*_STATES.get(str(state), ("?" if state != "RESERVED" else "r", "dim")))
        cells_by_domain.setdefault((cluster, int(domain)), []).append((int(offset), cell))
    out = []
    several = len({cluster for cluster, _ in cells_by_domain}) > 1
    for (cluster, number), devices in sorted(cells_by_domain.items()):
        cells = [cell for _, cell in sorted(devices, key=lambda one: one[0])]
        free = sum(cell.letter == "·" for cell in cells)
        name = f"{cluster}/{number}" if several else str(number)
        out.append(Domain(name, tuple(_folded(cells, max(width, 1))), free, len(cells)))
    return out


def _folded(cells: list[Cell], width: int) -> list[Cell]:
    """Return one cell for each group of devices: its most frequent, or a failure if there is
    one.
    """
    each = -(-len(cells) // width)
    if each <= 1:
        return cells
    out = []
    for start in range(0, len(cells), each):
        group = cells[start : start + each]
        bad = [cell for cell in group if cell.letter == "!"]
        out.append(bad[0] if bad else Counter(group).most_common(1)[0][0])
    return out


def legend(snapshot: Snapshot) -> str:
    """Return the meaning of the other letters, and which sizes still fit."""
    parts = ["· free", "d drained", "! down", "r kept"]
    parts += [f"{mark.letter} for {name}" for name, mark in kept_marks(snapshot).items()]
    for cluster, counts in snapshot.get("fragments", {}).items():
        assert isinstance(counts, Mapping)
        fit = [size for size, count, _ in counts["sizes"] if count]
        several = f"{cluster}: " if len(snapshot.get("fragments", {})) > 1 else ""
        parts.append(f"{several}{counts['free']} free, largest {max(fit, default=0)}")
    return "  ".join(parts)
