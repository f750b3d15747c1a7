"""What the options of `podwright replay --with` stand for: guests that share a pod."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import tzinfo

from podwright.controller import weights_of
from podwright.errors import InvalidRequest
from podwright.replay.command._replay_from_options import chosen_time_zone
from podwright.replay.command._replay_options import ReplayOptions
from podwright.replay.grounds._scheduling_ways import pod_size
from podwright.replay.sharing import SLURM, SharedGuest, check_names, compare
from podwright.replay.sharing._compare_shared_split import Progress, SharedFigures
from podwright.replay.traces._read import read_trace


def compare_chosen_guests(options: ReplayOptions, progress: Progress) -> SharedFigures:
    """Return the figures of the guests on one pod. Raises InvalidRequest, SimulationFailed."""
    zone = chosen_time_zone(options.timezone)
    if not options.guests:
        option = "--share" if options.share else "--part"
        raise InvalidRequest(
            f"{option} is for guests that share a pod, and there is one trace",
            operation="replay jobs",
            would_work="--with kubernetes=FILE",
        )
    unsupported_options = {
        "--example": options.example,
        "--hosts": options.hosts,
        "--ways": options.ways,
        "--policy": options.policy,
        "--mtbf": options.mtbf,
        "--slurm-conf": options.slurm_conf,
        "--anonymise": options.anonymise,
    }
    if option := next(
        (option_name for option_name, value in unsupported_options.items() if value), ""
    ):
        raise InvalidRequest(
            f"{option} does not go with --with",
            operation="replay guests that share a pod",
            would_work=f"{option} with one trace",
        )
    device_count = pod_size(options.pod or "pod64")
    guests = _shared_guests(options, zone)
    return compare(
        guests,
        device_count,
        parts=_parse_part_devices(options.part, [guest.name for guest in guests]),
        at_load=options.load,
        processes=options.processes,
        progress=progress,
    )


def _shared_guests(options: ReplayOptions, zone: tzinfo | None) -> list[SharedGuest]:
    trace_paths = {SLURM: options.trace or ""}
    guest_names: list[str] = [SLURM]
    for guest_option in options.guests:
        guest_name, equals_sign, trace_path = guest_option.partition("=")
        if not (equals_sign and trace_path):
            raise InvalidRequest(
                f"{guest_option[:80]!r} names no guest and its trace",
                operation="--with",
                would_work="--with kubernetes=FILE",
            )
        guest_names.append(guest_name.strip())
        trace_paths[guest_name.strip()] = trace_path
    check_names(guest_names)
    if list(trace_paths.values()).count("-") > 1:
        raise InvalidRequest("only one of the traces can be standard input (-)")
    weights = weights_of(options.share)
    _check_guest_names("--share", weights, guest_names)
    shared_guests = []
    for guest_name, trace_path in trace_paths.items():
        trace = read_trace(trace_path, zone=zone, tres=options.tres)
        guest = SharedGuest(guest_name, trace, weights.get(guest_name, 1.0))
        shared_guests.append(
            replace(guest, room_s=options.room_after) if guest_name == SLURM else guest
        )
    return shared_guests


def _parse_part_devices(part_options: Sequence[str], guest_names: Sequence[str]) -> dict[str, int]:
    devices_by_guest: dict[str, int] = {}
    for part_option in part_options:
        guest_name, _, device_text = part_option.rpartition("=")
        is_number = device_text.isascii() and device_text.isdecimal() and len(device_text) < 10
        if not guest_name.strip() or not is_number:
            raise InvalidRequest(
                f"{part_option[:80]!r} is not a part of a pod",
                operation="--part",
                would_work="NAME=DEVICES, as in --part slurm=48",
            )
        devices_by_guest[guest_name.strip()] = int(device_text)
    _check_guest_names("--part", devices_by_guest, guest_names)
    return devices_by_guest


def _check_guest_names(option: str, used_names: Iterable[str], guest_names: Sequence[str]) -> None:
    for guest_name in used_names:
        if guest_name not in guest_names:
            raise InvalidRequest(
                f"{guest_name!r} has no trace here",
                operation=option,
                would_work=f"one of {', '.join(guest_names)}",
            )
