"""What a notebook shows of a pod: tables, where a list of values would be a wall of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

_Value = TypeVar("_Value")
#: The fields that stand in the table of each kind of value.
_COLUMNS = {
    "AllocationInfo": ("name", "cluster", "size", "free", "agents"),
    "ClusterInfo": ("name", "family", "size", "free", "topology", "simulated"),
    "DeviceInfo": ("cluster", "device", "state", "allocation", "partition"),
    "JobInfo": ("scheduler", "place", "id", "owner", "asked", "needs"),
    "LeaseInfo": ("id", "partition", "holder", "owner", "state"),
    "PartitionInfo": ("name", "cluster", "size", "num_gcds", "ready_state", "owner"),
    "QuotaInfo": ("user", "allocation", "used_devices", "devices"),
    "WaiterInfo": ("place", "id", "owner", "asked", "state", "needs"),
}


class Listing(list[_Value]):
    """A list of values of one kind, which prints as a table."""

    def __repr__(self) -> str:
        if not self:
            return "[]"
        from podwright.ground.tables import table

        header, rows = _table_of(self)
        return table(header, rows)

    def _repr_html_(self) -> str:
        return html_table(self)


def html_table(values: Sequence[object]) -> str:
    """Return values of one kind as a table of HTML; their fields are escaped."""
    if not values:
        return "<p>none</p>"
    header, rows = _table_of(values)
    lines = [_row("th", header), *(_row("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def html_card(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return what is known of one thing, as HTML."""
    from html import escape

    lines = "".join(_row("td", row) for row in rows)
    return f"<table><caption>{escape(title)}</caption>{lines}</table>"


def _table_of(values: Sequence[object]) -> tuple[Sequence[str], list[list[str]]]:
    kind = type(values[0])
    fields = _COLUMNS[kind.__name__]
    return fields, [[_cell(getattr(value, field)) for field in fields] for value in values]


def _cell(value: object) -> str:
    if hasattr(value, "machine"):
        return f"{value.machine} {getattr(value, 'index', '')}"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(getattr(value, "value", value))


def _row(tag: str, cells: Iterable[object]) -> str:
    from html import escape

    return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"
