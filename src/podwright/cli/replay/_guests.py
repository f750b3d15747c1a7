"""`podwright replay TRACE --with NAME=FILE`: several guests' jobs on one pod."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podwright.replay.sharing import SharedGuest

#: Options that have no meaning when guests share a pod, by their attributes.
_OTHERS = {
    "example": "--example",
    "gpus": "--gpus",
    "hosts": "--hosts",
    "ways": "--ways",
    "policy": "--policy",
    "mtbf": "--mtbf",
    "slurm_conf": "--slurm-conf",
    "anonymise": "--anonymise",
    "html": "--html",
}


def replay_guests(
    arguments: argparse.Namespace,
    zone: tzinfo | None,
    show: Callable[[int, int], None],
    clear: Callable[[], None],
) -> int:
    """Run the verb for guests that share a pod.

    zone: of times without an offset. show, clear: the line with the progress. Raises
    PodwrightError.
    """
    from podwright.errors import InvalidRequest
    from podwright.replay import pod_size
    from podwright.replay.sharing import compare

    if not arguments.guests:
        option = "--share" if arguments.share else "--part"
        raise InvalidRequest(
            f"{option} is for guests that share a pod, and there is one trace",
            operation="replay jobs",
            would_work="--with kubernetes=FILE",
        )
    for name, option in _OTHERS.items():
        if getattr(arguments, name):
            raise InvalidRequest(
                f"{option} does not go with --with",
                operation="replay guests that share a pod",
                would_work=f"{option} with one trace",
            )
    devices = pod_size(arguments.pod or "pod64")
    guests = _guests(arguments, zone)
    parts = _parts(arguments.part, [guest.name for guest in guests])
    figures = compare(
        guests,
        devices,
        parts=parts,
        at_load=arguments.load,
        processes=arguments.processes,
        progress=show,
    )
    clear()
    if arguments.json:
        import json

        print(json.dumps(figures, indent=2, allow_nan=False))
        return 0
    from podwright.cli.replay._show_guests import lines

    for line in lines(figures):
        print(line)
    return 0


def _guests(arguments: argparse.Namespace, zone: tzinfo | None) -> list[SharedGuest]:
    from dataclasses import replace

    from podwright.controller import weights_of
    from podwright.errors import InvalidRequest
    from podwright.replay import read_trace
    from podwright.replay.sharing import SLURM, SharedGuest, check_names

    files = {SLURM: arguments.trace}
    names = [SLURM]
    for word in arguments.guests:
        name, equals, path = word.partition("=")
        if not (equals and path):
            raise InvalidRequest(
                f"{word[:80]!r} names no guest and its trace",
                operation="--with",
                would_work="--with kubernetes=FILE",
            )
        names.append(name.strip())
        files[name.strip()] = path
    check_names(names)
    if list(files.values()).count("-") > 1:
        raise InvalidRequest("only one of the traces can be standard input (-)")
    weights = weights_of(arguments.share)
    _check_known("--share", weights, names)
    guests = []
    for name, path in files.items():
        trace = read_trace(path, zone=zone, tres=arguments.tres)
        guest = SharedGuest(name, trace, weights.get(name, 1.0))
        guests.append(replace(guest, room_s=arguments.room_after) if name == SLURM else guest)
    return guests


def _parts(words: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    from podwright.errors import InvalidRequest

    parts: dict[str, int] = {}
    for word in words:
        name, _, number = word.rpartition("=")
        if not name.strip() or not number.isascii() or not number.isdecimal():
            raise InvalidRequest(
                f"{word[:80]!r} is no part of a pod",
                operation="--part",
                would_work="NAME=DEVICES, as in --part slurm=48",
            )
        parts[name.strip()] = int(number[:9])
    _check_known("--part", parts, names)
    return parts


def _check_known(option: str, named: Iterable[str], names: Sequence[str]) -> None:
    from podwright.errors import InvalidRequest

    for name in named:
        if name not in names:
            raise InvalidRequest(
                f"{name!r} has no trace here",
                operation=option,
                would_work=f"one of {', '.join(names)}",
            )
