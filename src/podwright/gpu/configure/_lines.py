"""Edits the node and partition lines of slurm.conf and gres.conf in place.

A site's lines hold more than an inventory does, such as addresses, ports and weights. A line
therefore keeps its other values, and is split where its nodes are of several kinds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from podwright.errors import InvalidRequest
from podwright.hosts import BadHostList, expand, write_list
from podwright.slurm.site.edit import commented

MARK = "podwright-gpus"
OURS = f" #{MARK}"

#: The keys that hold one value for each node of a line.
_EACH = {"nodeaddr", "nodehostname", "port", "bcastaddr"}
_PAIR = re.compile(r'([A-Za-z]\w*)\s*=\s*("[^"]*"|[^\s"]+)')

Row = dict[str, str]


def fold(names: Iterable[str]) -> str:
    """Fold names as Slurm writes and reads them: `gpu[001-016]`, with one bracket in a name."""
    names = list(names)
    if len(names) == 1:
        return names[0]
    if plain := _plain(names):
        return plain
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    nodes = NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)
    nodes.fold_axis = (-1,)
    return str(nodes)


def _plain(names: list[str]) -> str:
    """Names that differ in one number at their end alone, of one width: the quick way."""
    stem = names[0].rstrip("0123456789")
    width = len(names[0])
    tails = [name[len(stem) :] for name in names]
    if not stem or any(
        len(name) != width or not name.startswith(stem) or not tail.isdigit()
        for name, tail in zip(names, tails, strict=True)
    ):
        return ""
    digits = width - len(stem)
    runs = [part.split("-") for part in write_list(map(int, set(tails))).split(",")]
    return f"{stem}[{','.join('-'.join(n.zfill(digits) for n in run) for run in runs)}]"


def folded_in_order(names: list[str]) -> str:
    """Fold names, but keep them unfolded where folding would change their order."""
    short = fold(names)
    return short if list(expand(short)) == names else ",".join(names)


def logical(text: str) -> Iterator[tuple[list[str], str]]:
    """Each logical line of a file, as (its physical lines, the text that Slurm reads)."""
    lines: list[str] = []
    joined = ""
    for line in text.splitlines(keepends=True):
        lines.append(line)
        words = re.sub(r"(?<!\\)#.*", "", line.rstrip("\n")).rstrip()
        joined += " " + words.removesuffix("\\")
        if words.endswith("\\"):
            continue
        yield lines, joined.strip()
        lines, joined = [], ""
    if lines:
        yield lines, joined.strip()


def read_row(line: str) -> Row:
    """The keys of one line with their values. Keys keep their case."""
    return dict(_PAIR.findall(line))


def value(row: Mapping[str, str], key: str) -> str:
    """The value of a key, whatever its case; empty where the key is missing."""
    return next((v for k, v in row.items() if k.lower() == key.lower()), "")


def write_row(row: Mapping[str, str]) -> str:
    """The row as a line that is marked as ours."""
    return " ".join(f"{k}={v}" for k, v in row.items()) + OURS + "\n"


def names_in(text: str, file_label: str) -> tuple[str, ...]:
    """The nodes that a Slurm host list names. Raises InvalidRequest."""
    try:
        return expand(text)
    except BadHostList as error:
        raise InvalidRequest(f"{file_label}: {error}", operation="read its nodes") from None


def part(row: Mapping[str, str], names: tuple[str, ...], chosen_names: list[str], key: str) -> Row:
    """The row of a line, cut down to some of its nodes."""
    if len(chosen_names) == len(names):
        return dict(row)
    ordered = list(expand(fold(chosen_names)))
    places = {name: index for index, name in enumerate(names)}
    out = {}
    for k, v in row.items():
        if k.lower() == key.lower():
            out[k] = fold(chosen_names)
            continue
        out[k] = v
        if k.lower() in _EACH and (each_one := each(k, v, len(names))):
            chosen = [each_one[places[name]] for name in ordered]
            if k.lower() == "port":
                numbers = list(map(int, chosen))
                rising = numbers == sorted(set(numbers))
                short = write_list(numbers) if rising else ",".join(chosen)
                out[k] = f"[{short}]" if len(chosen) > 1 else short
            else:
                out[k] = folded_in_order(chosen)
    return out


def each(key: str, text: str, count: int) -> list[str] | None:
    """The values of a per-node key, one for each node in order; None where all nodes share one
    value."""
    if key.lower() == "port":
        inner = text.strip("[]")
        values: list[str] = []
        for piece in inner.split(","):
            first, _, last = piece.partition("-")
            values += [str(n) for n in range(int(first), int(last or first) + 1)]
    else:
        values = list(expand(text)) if "[" in text or "," in text else [text]
    return values if len(values) == count > 1 else None


def replaced(
    text: str,
    key: str,
    rows: Callable[[Row, tuple[str, ...]], list[Row] | None],
    path: str,
) -> str:
    """The file with each line of this key replaced by the rows that `rows` returns.

    rows: takes the row of a line and its nodes, and returns the rows in its place; None keeps the
    line.
    """
    out: list[str] = []
    for lines, line in logical(text):
        row = read_row(line)
        first = next(iter(row), "")
        wanted = None
        if first.lower() == key.lower() and row[first].upper() != "DEFAULT":
            wanted = rows(row, names_in(row[first], path))
        if wanted is None:
            out += lines
        else:
            out += [*commented(lines, MARK), *(write_row(r) for r in wanted)]
    return "".join(out)


def with_rows(text: str, rows: Iterable[Mapping[str, str]]) -> str:
    """The file with our rows appended."""
    new = [write_row(row) for row in rows]
    if new and text and not text.endswith("\n"):
        start = f"\n#{MARK}: this file ended without a newline{OURS}\n"
        return text + start + "".join(new)
    return text + "".join(new)
