"""What the options of `podwright replay --with` stand for: guests that share a pod."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import tzinfo

from podwright.controller import weights_of
from podwright.errors import InvalidRequest
from podwright.replay.command._chosen_replay import chosen_zone
from podwright.replay.command._replay_options import ReplayOptions
from podwright.replay.grounds._ways import pod_size
from podwright.replay.sharing import SLURM, SharedGuest, check_names, compare
from podwright.replay.sharing._comparison import Progress, SharedFigures
from podwright.replay.traces._read import read_trace


def compare_chosen(options: ReplayOptions, progress: Progress) -> SharedFigures:
    """Return the figures of the guests on one pod. Raises InvalidRequest, SimulationFailed."""
    zone = chosen_zone(options.timezone)
    if not options.guests:
        option = "--share" if options.share else "--part"
        raise InvalidRequest(
            f"{option} is for guests that share a pod, and there is one trace",
            operation="replay jobs",
            would_work="--with kubernetes=FILE",
        )
    without_guests = {
        "--example": options.example,
        "--gpus": options.gpus,
        "--hosts": options.hosts,
        "--ways": options.ways,
        "--policy": options.policy,
        "--mtbf": options.mtbf,
        "--slurm-conf": options.slurm_conf,
        "--anonymise": options.anonymise,
        "--html": options.html,
    }
    if option := next((name for name, value in without_guests.items() if value), ""):
        raise InvalidRequest(
            f"{option} does not go with --with",
            operation="replay guests that share a pod",
            would_work=f"{option} with one trace",
        )
    devices = pod_size(options.pod or "pod64")
    guests = _shared_guests(options, zone)
    return compare(
        guests,
        devices,
        parts=_parts(options.part, [guest.name for guest in guests]),
        at_load=options.load,
        processes=options.processes,
        progress=progress,
    )


def _shared_guests(options: ReplayOptions, zone: tzinfo | None) -> list[SharedGuest]:
    files = {SLURM: options.trace or ""}
    names: list[str] = [SLURM]
    for word in options.guests:
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
    weights = weights_of(options.share)
    _check_known("--share", weights, names)
    shared_guests = []
    for name, path in files.items():
        trace = read_trace(path, zone=zone, tres=options.tres)
        guest = SharedGuest(name, trace, weights.get(name, 1.0))
        shared_guests.append(replace(guest, room_s=options.room_after) if name == SLURM else guest)
    return shared_guests


def _parts(words: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    parts: dict[str, int] = {}
    for word in words:
        name, _, number = word.rpartition("=")
        if not name.strip() or not number.isascii() or not number.isdecimal():
            raise InvalidRequest(
                f"{word[:80]!r} is not a part of a pod",
                operation="--part",
                would_work="NAME=DEVICES, as in --part slurm=48",
            )
        parts[name.strip()] = int(number[:9])
    _check_known("--part", parts, names)
    return parts


def _check_known(option: str, named: Iterable[str], names: Sequence[str]) -> None:
    for name in named:
        if name not in names:
            raise InvalidRequest(
                f"{name!r} has no trace here",
                operation=option,
                would_work=f"one of {', '.join(names)}",
            )
