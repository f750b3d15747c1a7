"""The topology table of poprun: four rows, with cells that span the replicas that they cover.

The format is that of PopRun's own table, as its logs show it. Scripts read it.
"""

from __future__ import annotations

from collections.abc import Sequence

_TABLE_TITLE = "poprun topology"
_LABEL_WIDTH = 11


def topology_table(hosts: Sequence[str], replicas: int, ilds: int | str) -> str:
    """Return the table. hosts: one for each instance. ilds: the number of link domains, or words if
    it is not known.
    """
    rows = [
        ("hosts", _host_cells(hosts, replicas)),
        ("ILDs", _link_domain_cells(replicas, ilds)),
        ("instances", _even_replica_cells(len(hosts), replicas)),
        ("replicas", _even_replica_cells(replicas, replicas)),
    ]
    cell_width = max(
        _needed_cell_width(cell_text, span)
        for _, row_cells in rows
        for cell_text, span in row_cells
    )
    cell_width = max(cell_width, 3, -(-(len(_TABLE_TITLE) + 1 - _LABEL_WIDTH) // replicas))
    inner_width = _LABEL_WIDTH + 1 + replicas * (cell_width + 1) - 1
    rule_line = f"|{'-' * _LABEL_WIDTH}|{'-' * (inner_width - _LABEL_WIDTH - 1)}|"
    lines = [
        f" {'=' * inner_width}",
        f"|{_centre_text(_TABLE_TITLE, inner_width)}|",
        f"|{'=' * inner_width}|",
    ]
    for label, row_cells in rows:
        drawn_cells = "|".join(
            _centre_text(cell_text, span * (cell_width + 1) - 1) for cell_text, span in row_cells
        )
        lines += [f"|{' ' + label:<{_LABEL_WIDTH}}|{drawn_cells}|", rule_line]
    lines[-1] = f" {'-' * inner_width}"
    return "\n".join(lines)


def _centre_text(text: str, width: int) -> str:
    """Centre a text. str.center puts an odd blank now left, now right; here it is always right."""
    return f"{' ' * ((width - len(text)) // 2)}{text}".ljust(width)


def _needed_cell_width(cell_text: str, replica_span: int) -> int:
    """Return how wide a replica's cell must be for a text that spans several, with a blank on each
    side.
    """
    return -(-(len(cell_text) + 2 - (replica_span - 1)) // replica_span)


def _even_replica_cells(cell_count: int, replicas: int) -> list[tuple[str, int]]:
    return [(str(index), replicas // cell_count) for index in range(cell_count)]


def _host_cells(hosts: Sequence[str], replicas: int) -> list[tuple[str, int]]:
    replicas_per_instance = replicas // len(hosts)
    cells: list[tuple[str, int]] = []
    for host in hosts:
        if cells and cells[-1][0] == host:
            cells[-1] = (host, cells[-1][1] + replicas_per_instance)
        else:
            cells.append((host, replicas_per_instance))
    return cells


def _link_domain_cells(replicas: int, ilds: int | str) -> list[tuple[str, int]]:
    if isinstance(ilds, str):
        return [(ilds, replicas)]
    if replicas % ilds == 0:
        return _even_replica_cells(ilds, replicas)
    return [(f"0-{ilds - 1}", replicas)]
