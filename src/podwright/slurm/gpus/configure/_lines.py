"""The node and partition lines of slurm.conf and gres.conf, changed where they stand.

A site's own lines say more than an inventory does: addresses, ports, weights. So a line keeps
what it says beside the GPUs, and is cut in several where its nodes are of several kinds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from podwright.errors import InvalidRequest
from podwright.hosts import BadHostList, expand, write_list
from podwright.slurm.site.edit import commented

MARK = "podwright-gpus"
OURS = f" #{MARK}"

#: What a line says of each of its nodes in turn.
_EACH = {"nodeaddr", "nodehostname", "port", "bcastaddr"}
_PAIR = re.compile(r'([A-Za-z]\w*)\s*=\s*("[^"]*"|[^\s"]+)')

Row = dict[str, str]


def fold(names: Iterable[str]) -> str:
    """Names as Slurm writes and reads them: `gpu[001-016]`, one bracket in a name."""
    names = list(names)
    if len(names) == 1:
        return names[0]
    if plain := _plain(names):
        return plain
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    found = NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)
    found.fold_axis = (-1,)
    return str(found)


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
    """The same, where the order says which is whose."""
    short = fold(names)
    return short if list(expand(short)) == names else ",".join(names)


def logical(text: str) -> Iterator[tuple[list[str], str]]:
    """Each line of a file as its physical lines, and what Slurm reads of it."""
    lines: list[str] = []
    said = ""
    for line in text.splitlines(keepends=True):
        lines.append(line)
        words = re.sub(r"(?<!\\)#.*", "", line.rstrip("\n")).rstrip()
        said += " " + words.removesuffix("\\")
        if words.endswith("\\"):
            continue
        yield lines, said.strip()
        lines, said = [], ""
    if lines:
        yield lines, said.strip()


def read_row(said: str) -> Row:
    """The keys of one line, as they are written, with their values."""
    return dict(_PAIR.findall(said))


def value(row: Mapping[str, str], key: str) -> str:
    """A value by its key, however that is written; empty where there is none."""
    return next((v for k, v in row.items() if k.lower() == key.lower()), "")


def write_row(row: Mapping[str, str]) -> str:
    """The line, marked as ours."""
    return " ".join(f"{k}={v}" for k, v in row.items()) + OURS + "\n"


def names_in(text: str, path: str) -> tuple[str, ...]:
    """The nodes that a value of Slurm's names. Raises InvalidRequest."""
    try:
        return expand(text)
    except BadHostList as error:
        raise InvalidRequest(f"{path}: {error}", asked="read its nodes") from None


def part(row: Mapping[str, str], names: tuple[str, ...], mine: list[str], key: str) -> Row:
    """A line's row for some of its nodes."""
    if len(mine) == len(names):
        return dict(row)
    ordered = list(expand(fold(mine)))
    places = {name: at for at, name in enumerate(names)}
    out = {}
    for k, v in row.items():
        if k.lower() == key.lower():
            out[k] = fold(mine)
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
    """What one of those keys says of each node in turn; None where all have one value."""
    if key.lower() == "port":
        inner = text.strip("[]")
        found: list[str] = []
        for piece in inner.split(","):
            first, _, last = piece.partition("-")
            found += [str(n) for n in range(int(first), int(last or first) + 1)]
    else:
        found = list(expand(text)) if "[" in text or "," in text else [text]
    return found if len(found) == count > 1 else None


def replaced(
    text: str,
    key: str,
    rows: Callable[[Row, tuple[str, ...]], list[Row] | None],
    path: str,
) -> str:
    """The file with the lines that begin with `key` as `rows` wants them.

    rows: gets a line's row and the nodes it is for; what is to stand in its place, None: it stays.
    """
    out: list[str] = []
    for lines, said in logical(text):
        row = read_row(said)
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
    """The file with rows of ours at its end."""
    new = [write_row(row) for row in rows]
    if new and text and not text.endswith("\n"):
        start = f"\n#{MARK}: this file ended without a newline{OURS}\n"
        return text + start + "".join(new)
    return text + "".join(new)
