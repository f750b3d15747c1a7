"""What the options of `podwright replay` stand for: a trace, ways, a Slurm, chances."""

from __future__ import annotations

import math
import re
from datetime import tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from podwright.errors import InvalidRequest
from podwright.replay._run_state import Chances
from podwright.replay._slurm_model import SlurmModel, from_conf
from podwright.replay.command._replay_options import ReplayOptions
from podwright.replay.grounds._scheduling_ways import (
    HostKind,
    ReplayWay,
    pod_size,
    pod_ways,
)
from podwright.replay.traces._example import example
from podwright.replay.traces._offered_load import stretch_for, stretched
from podwright.replay.traces._read import read_trace
from podwright.replay.traces._trace import Trace
from podwright.slurm.site import files


def chosen_trace(options: ReplayOptions, device_count: int) -> Trace:
    """Return the jobs. Raises InvalidRequest."""
    if not options.trace:
        return example(options.seed, devices=device_count)
    return read_trace(options.trace, zone=chosen_time_zone(options.timezone), tres=options.tres)


def at_load(trace: Trace, device_count: int, load: float | None) -> Trace:
    """Return the jobs, submitted so that they ask for this share of the devices."""
    return stretched(trace, stretch_for([trace], [0.0], device_count, load)) if load else trace


def chosen_ways(options: ReplayOptions) -> tuple[list[ReplayWay], int]:
    """Return the ways and the number of devices. Raises InvalidRequest."""
    names, policies = _split_commas(options.ways), _split_commas(options.policy)
    count = pod_size(options.pod or "pod64")
    if not names:
        names = ["native"] if policies else ["native", *_halved_pod_ways(count)]
    return pod_ways(names, count, policies, _parse_host_kind(options.hosts)), count


def _split_commas(list_text: str | None) -> list[str]:
    """Return the words between commas, each once."""
    return list(
        dict.fromkeys(item.strip() for item in (list_text or "").split(",") if item.strip())
    )


def _halved_pod_ways(device_count: int) -> list[str]:
    """Return the fixed ways that most sites would try for a pod: half small partitions, half
    large.
    """
    if device_count < 64:
        return []
    return [
        f"static:{device_count // 8}x4+{device_count // 32}x16",
        f"host-mapping:{device_count // 16}x16",
    ]


def _parse_host_kind(hosts_text: str | None) -> HostKind | None:
    if not hosts_text:
        return None
    match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,3})(?:x([1-9]\d{0,5}))?", hosts_text)
    if match is None:
        raise InvalidRequest(f"{hosts_text!r} is not understood", would_work="--hosts 16x64x512")
    return HostKind(int(match[1]), int(match[2]), int(match[3] or 0) << 30)


def chosen_slurm_settings(options: ReplayOptions) -> SlurmModel:
    """Return how the simulated Slurm schedules. Raises InvalidRequest."""
    model = SlurmModel(room_s=options.room_after)
    if not options.slurm_conf:
        return model
    path = Path(options.slurm_conf)
    files.read(path)
    try:
        return from_conf(files.site_settings(path), model)
    except ValueError as error:
        raise InvalidRequest(f"{options.slurm_conf}: {error}") from None


def chosen_chances(options: ReplayOptions) -> Chances:
    """Return what is left to chance. Raises InvalidRequest."""
    if not 0 <= options.movable <= 100:
        raise InvalidRequest("--movable is a share from 0 to 100 percent")
    if options.mtbf is not None and not options.mtbf > 0:
        raise InvalidRequest("--mtbf is a number of days above 0")
    return Chances(
        seed=options.seed,
        movable=options.movable / 100,
        move_s=options.move_time,
        mtbf_s=options.mtbf * 86400 if options.mtbf else math.inf,
    )


def chosen_time_zone(zone_name: str | None) -> tzinfo | None:
    """Return the zone of times without an offset; None: this machine's. Raises InvalidRequest."""
    try:
        return ZoneInfo(zone_name) if zone_name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidRequest(
            f"there is no time zone {zone_name!r}", would_work="Europe/Berlin"
        ) from None
