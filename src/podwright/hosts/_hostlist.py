"""Lists of hosts in their written order: `pod[1-4]`, `host[0-2,4]`, `10.1.2.[3-6]`.

ClusterShell parses the brackets: it knows padding, steps and several brackets in one name. It is
imported only where there are brackets, since the import takes longer than the rest of a launch. The
hosts become arguments of ssh and mpirun, so each must be a plain name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from podwright.hosts._errors import BadHostList

#: The most hosts of a list, more than any launch needs. A typing mistake must not fill the memory.
MAX_HOSTS = 65536
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)?")


def expand(text: str) -> tuple[str, ...]:
    """Return the hosts of a list, in its order.

    Raises BadHostList, also if a host is named twice.
    """
    names: list[str] = []
    for part in _parts(text):
        names += _expanded(part, text)
        if len(names) > MAX_HOSTS:
            raise BadHostList(f"{text[:60]!r} names more than {MAX_HOSTS} hosts")
    if not names:
        raise BadHostList(f"{text!r} names no host")
    _check_twice(names)
    return tuple(names)


def read_hosts(text: str, name: str) -> tuple[str, ...]:
    """Return the hosts of a hosts file: one host or range on each line; `#` begins a comment.

    `slots=N` after a host, as in Open MPI, is ignored: instances are divided evenly. Raises
    BadHostList with the number of the line.
    """
    names: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        options = [word for word in words[1:] if re.fullmatch(r"(max[-_])?slots=\d+", word)]
        try:
            names += expand("".join(word for word in words if word not in options)) if words else ()
        except BadHostList as error:
            raise BadHostList(f"{name}, line {number}: {error}") from None
    if not names:
        raise BadHostList(f"{name} names no host")
    _check_twice(names)
    return tuple(names)


def fold(hosts: Iterable[str]) -> str:
    """Return a short notation of hosts, for people: `n[1-4]`."""
    names = list(hosts)
    if len(names) < 3:
        return ", ".join(names)
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return str(NodeSet(",".join(names), resolver=RESOLVER_NOGROUP))


def _parts(text: str) -> list[str]:
    """Split a list at commas outside brackets. Blanks after a comma are no part of a name."""
    parts = re.split(r",(?![^\[\]]*\])", text)
    return [part.strip() for part in parts if part.strip()]


def _expanded(part: str, text: str) -> list[str]:
    brackets = _BRACKET.findall(part)
    plain = _BRACKET.sub("0", part)
    if not _NAME.fullmatch(plain):
        hint = " (name the user in ~/.ssh/config)" if "@" in part else ""
        raise BadHostList(f"{part!r} is not the name of a host, nor a range of hosts{hint}")
    if not brackets:
        return [part]
    if math.prod(_size(bracket, part) for bracket in brackets) > MAX_HOSTS:
        raise BadHostList(f"{part!r} names more than {MAX_HOSTS} hosts")
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        return list(NodeSet(part, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise BadHostList(f"{part!r}: {error}") from None


def _size(bracket: str, part: str) -> int:
    size = 0
    for piece in bracket.replace(" ", "").split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise BadHostList(f"{part!r}: {piece!r} is neither a number nor a range such as 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise BadHostList(f"{part!r}: the range {piece} runs backwards")
        size += last - first + 1
    return size


def _check_twice(hosts: list[str]) -> None:
    seen: set[str] = set()
    for host in hosts:
        if host in seen:
            raise BadHostList(f"{host} is named twice")
        seen.add(host)
