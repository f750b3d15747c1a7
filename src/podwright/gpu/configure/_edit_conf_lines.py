"""Edits the node and partition lines of slurm.conf and gres.conf in place.

A site's lines hold more than an inventory does, such as addresses, ports and weights. A line
therefore keeps its other values, and is split where its nodes are of several kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from podwright.errors import InvalidRequest
from podwright.hosts import BadHostList, expand, fold_names, write_list
from podwright.slurm.site.conf_lines import Row, logical_lines, read_row
from podwright.slurm.site.edit import comment_out

OWN_LINE_MARK = "podwright-gpus"
OWN_LINE_SUFFIX = f" #{OWN_LINE_MARK}"

#: The keys that hold one value for each node of a line.
_PER_NODE_KEYS = {"nodeaddr", "nodehostname", "port", "bcastaddr"}


def folded_in_order(names: list[str]) -> str:
    """Fold names, but keep them unfolded where folding would change their order."""
    folded = fold_names(names)
    return folded if list(expand(folded)) == names else ",".join(names)


def write_row(row: Mapping[str, str]) -> str:
    """The row as a line that is marked as ours."""
    return " ".join(f"{key}={row_value}" for key, row_value in row.items()) + OWN_LINE_SUFFIX + "\n"


def names_in(host_list: str, file_label: str) -> tuple[str, ...]:
    """The nodes that a Slurm host list names. Raises InvalidRequest."""
    try:
        return expand(host_list)
    except BadHostList as error:
        raise InvalidRequest(f"{file_label}: {error}", operation="read its nodes") from None


def part(
    row: Mapping[str, str], node_names: tuple[str, ...], chosen_names: list[str], names_key: str
) -> Row:
    """The row of a line, cut down to some of its nodes."""
    if len(chosen_names) == len(node_names):
        return dict(row)
    ordered_names = list(expand(fold_names(chosen_names)))
    index_by_name = {node_name: index for index, node_name in enumerate(node_names)}
    cut_row = {}
    for row_key, row_value in row.items():
        if row_key.lower() == names_key.lower():
            cut_row[row_key] = fold_names(chosen_names)
            continue
        cut_row[row_key] = row_value
        if row_key.lower() in _PER_NODE_KEYS and (
            node_values := each(row_key, row_value, len(node_names))
        ):
            chosen_values = [node_values[index_by_name[node_name]] for node_name in ordered_names]
            if row_key.lower() == "port":
                port_numbers = list(map(int, chosen_values))
                is_rising = port_numbers == sorted(set(port_numbers))
                port_text = write_list(port_numbers) if is_rising else ",".join(chosen_values)
                cut_row[row_key] = f"[{port_text}]" if len(chosen_values) > 1 else port_text
            else:
                cut_row[row_key] = folded_in_order(chosen_values)
    return cut_row


def each(row_key: str, value_text: str, node_count: int) -> list[str] | None:
    """The values of a per-node key, one for each node in order; None where all nodes share one
    value."""
    if row_key.lower() == "port":
        port_list = value_text.strip("[]")
        values: list[str] = []
        for port_range in port_list.split(","):
            first_port, _, last_port = port_range.partition("-")
            values += [
                str(port) for port in range(int(first_port), int(last_port or first_port) + 1)
            ]
    else:
        values = (
            list(expand(value_text)) if "[" in value_text or "," in value_text else [value_text]
        )
    return values if len(values) == node_count > 1 else None


def replaced(
    conf_text: str,
    line_key: str,
    rows_for: Callable[[Row, tuple[str, ...]], list[Row] | None],
    conf_path: str,
) -> str:
    """The file with each line of this key replaced by the rows that `rows_for` returns.

    rows_for: takes the row of a line and its nodes, and returns the rows in its place; None keeps
    the line.
    """
    new_lines: list[str] = []
    for physical_lines, line in logical_lines(conf_text):
        row = read_row(line)
        first_key = next(iter(row), "")
        new_rows = None
        if first_key.lower() == line_key.lower() and row[first_key].upper() != "DEFAULT":
            new_rows = rows_for(row, names_in(row[first_key], conf_path))
        if new_rows is None:
            new_lines += physical_lines
        else:
            new_lines += [
                *comment_out(physical_lines, OWN_LINE_MARK),
                *(write_row(new_row) for new_row in new_rows),
            ]
    return "".join(new_lines)


def with_rows(conf_text: str, rows: Iterable[Mapping[str, str]]) -> str:
    """The file with our rows appended."""
    new_lines = [write_row(row) for row in rows]
    if new_lines and conf_text and not conf_text.endswith("\n"):
        mark_line = f"\n#{OWN_LINE_MARK}: this file ended without a newline{OWN_LINE_SUFFIX}\n"
        return conf_text + mark_line + "".join(new_lines)
    return conf_text + "".join(new_lines)
