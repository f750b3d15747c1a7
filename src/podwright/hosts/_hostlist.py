"""Lists of hosts in their written order: `pod[1-4]`, `host[0-2,4]`, `10.1.2.[3-6]`.

ClusterShell parses the brackets: it knows padding, steps and several brackets in one name. It is
imported only where there are brackets, since the import takes longer than the rest of a launch. The
hosts become arguments of ssh and mpirun, so each must be a plain name.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable

from podwright.errors import InvalidRequest
from podwright.hosts._errors import BadHostList

#: The most hosts of a list, more than any launch needs. A typing mistake must not fill the memory.
MAX_HOSTS = 65536
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?")
_BRACKETED_RANGES = re.compile(r"\[([^\[\]]*)\]")
_NUMBER_STEP = re.compile(r"\[[^\]]*/")
_NUMBER_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)?")


def expand(host_list: str) -> tuple[str, ...]:
    """Return the hosts of a list, in its order.

    Raises BadHostList, also if a host is named twice.
    """
    names: list[str] = []
    for list_part in _split_host_list(host_list):
        names += _expand_list_part(list_part)
        if len(names) > MAX_HOSTS:
            raise BadHostList(f"{host_list[:60]!r} names more than {MAX_HOSTS} hosts")
    if not names:
        raise BadHostList(f"{host_list!r} names no host")
    _check_twice(names)
    return tuple(names)


def read_hosts(file_text: str, file_name: str) -> tuple[str, ...]:
    """Return the hosts of a hosts file: one host or range on each line; `#` begins a comment.

    `slots=N` after a host, as in Open MPI, is ignored: instances are divided evenly. Raises
    BadHostList with the number of the line.
    """
    names: list[str] = []
    for line_number, line in enumerate(file_text.splitlines(), 1):
        line_words = line.partition("#")[0].split()
        slot_options = [
            word for word in line_words[1:] if re.fullmatch(r"(max[-_])?slots=\d+", word)
        ]
        try:
            names += (
                expand("".join(word for word in line_words if word not in slot_options))
                if line_words
                else ()
            )
        except BadHostList as error:
            raise BadHostList(f"{file_name}, line {line_number}: {error}") from None
    if not names:
        raise BadHostList(f"{file_name} names no host")
    _check_twice(names)
    return tuple(names)


def expand_names(name_list: str) -> tuple[str, ...]:
    """Return the names in a list of Slurm's, each once: nodes, partitions or files.

    A name may be anything, and the list may be empty. Raises InvalidRequest.
    """
    names: dict[str, None] = {}
    for list_part in _split_host_list(name_list):
        if _NUMBER_STEP.search(list_part):
            raise InvalidRequest(f"{list_part!r} has a step, and Slurm reads none")
        try:
            names |= dict.fromkeys(_expand_brackets(list_part))
        except BadHostList as error:
            raise InvalidRequest(str(error)) from None
    return tuple(names)


def fold(hosts: Iterable[str]) -> str:
    """Return a short notation of hosts, for people: `n[1-4]`."""
    names = list(hosts)
    return ", ".join(names) if len(names) < 3 else fold_names(names)


def fold_names(names: Iterable[str]) -> str:
    """Return names as Slurm writes and reads them: `gpu[001-016]`, with one bracket in a name."""
    names = list(names)
    if len(names) < 2:
        return "".join(names)
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    node_set = NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)
    node_set.fold_axis = (-1,)
    return str(node_set)


def _split_host_list(host_list: str) -> list[str]:
    """Split a list at commas outside brackets. Blanks after a comma are no part of a name."""
    parts = re.split(r",(?![^\[\]]*\])", host_list)
    return [part.strip() for part in parts if part.strip()]


def _expand_list_part(list_part: str) -> list[str]:
    name = _BRACKETED_RANGES.sub("0", list_part)
    if not _HOST_NAME.fullmatch(name):
        hint = " (name the user in ~/.ssh/config)" if "@" in list_part else ""
        raise BadHostList(f"{list_part!r} is not the name of a host, nor a range of hosts{hint}")
    return _expand_brackets(list_part)


def _expand_brackets(list_part: str) -> list[str]:
    texts = _BRACKETED_RANGES.split(list_part)
    if len(texts) == 1:
        return texts
    if math.prod(_bracket_host_count(text, list_part) for text in texts[1::2]) > MAX_HOSTS:
        raise BadHostList(f"{list_part!r} names more than {MAX_HOSTS} hosts")
    from ClusterShell.RangeSet import RangeSet, RangeSetException

    try:
        choices = [RangeSet(text) if index % 2 else [text] for index, text in enumerate(texts)]
    except RangeSetException as error:
        raise BadHostList(f"{list_part!r}: {error}") from None
    return ["".join(choice) for choice in itertools.product(*choices)]


def _bracket_host_count(bracket: str, list_part: str) -> int:
    host_count = 0
    for number_range in bracket.replace(" ", "").split(","):
        match = _NUMBER_RANGE.fullmatch(number_range)
        if match is None:
            raise BadHostList(
                f"{list_part!r}: {number_range!r} is neither a number nor a range such as 0-3"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise BadHostList(f"{list_part!r}: the range {number_range} runs backwards")
        host_count += last - first + 1
    return host_count


def _check_twice(hosts: list[str]) -> None:
    seen_hosts: set[str] = set()
    for host in hosts:
        if host in seen_hosts:
            raise BadHostList(f"{host} is named twice")
        seen_hosts.add(host)
