"""The output of `gc-info` and `gc-monitor`: devices and their users.

The listing has the shape of V-IPU's: a title for each partition, a line for each device, and below
a device that consists of several the lines of its members. The columns of the monitor are our
choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from podwright.client.devices._device_users import ShownUse, Use, is_listed
from podwright.fabric import IPU
from podwright.tables import printable, table
from podwright.wire import ReadyState, device_sets


def title(use: ShownUse, *, counted: bool = False) -> str:
    """Return `Partition: p1 [active]`, and its errors. counted: add the devices' number and their
    owner.
    """
    info = use.info
    text = f"Partition: {info.name} [{info.ready_state.value.lower()}]"
    if counted:
        kind = "reconfigurable " if info.reconfigurable else ""
        text += f" has {info.size} {kind}{use.noun}{'s' if info.size > 1 else ''}"
        text += f" in {info.num_gcds} GCDs" if info.num_gcds > 1 else ""
        text += f", of {info.owner}" if info.owner else ""
        text += f", job {info.job}" if info.job else ""
    lines = [text, *(f" !   {error}" for error in info.errors)]
    if info.ready_state is ReadyState.ERROR:
        lines.append(f" !   no program can attach to it; try: vipu reset partition {info.name}")
    return "\n".join(map(printable, lines))


def listing(uses: Sequence[ShownUse]) -> str:
    """Return `gc-info -l`: the devices to which programs attach, by number."""
    return "\n\n".join("\n".join((title(use), *_lines(use))) for use in uses)


def _lines(device_use: ShownUse) -> list[str]:
    lines: list[str] = []
    if not is_listed(device_use.info):
        return lines
    routed = "DNC Id" if device_use.family is IPU else "Routing Id"
    several = device_use.info.num_gcds > 1
    for device_set in device_sets(device_use.info):
        number = f"-+- Id: [{device_use.first + device_set.id}]"
        gcd = f", GCD: [{device_set.gcd}]" if several else ""
        uses = [device_use.uses[place] for place in device_set.routing]
        if len(uses) == 1:
            lines.append(
                f"{number}, target: [{device_use.target}]{gcd}, {_place(device_use, uses[0])}"
            )
            continue
        lines.append(f"{number}, target: [Multi {device_use.noun}]{gcd}")
        lines += [
            f" |--- {routed}: [{place}], {_place(device_use, use)}"
            for place, use in enumerate(uses)
        ]
    return lines


def _place(device_use: ShownUse, use: Use) -> str:
    device = use.device
    host = f", host: [{device.ip}]" if device.ip else ""
    state = "" if use.state in ("used", "free") else f", state: [{use.state}]"
    return f"machine: [{device.machine or '-'}]{host}, {device_use.noun}#: [{device.index}]{state}"


def monitor(uses: Sequence[ShownUse]) -> str:
    """Return `gc-monitor`: a row for each device, and one more for each further program on it."""
    return "\n\n".join(f"{title(use, counted=True)}\n{_monitor(use)}" for use in uses)


def _monitor(device_use: ShownUse) -> str:
    header = (
        "Id", "GCD", "Machine", device_use.noun, "Address", "State", "User", "Host", "PID",
        "Program", "Lease",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = []
    for use in sorted(device_use.uses, key=lambda use: (use.id, use.routing)):
        device = use.device
        address = f"{device.ip}:{device.server_port}" if device.server_port else device.ip
        place = (use.id, use.gcd, device.machine, device.index, address, use.state)
        rows += [(*place, u.user, u.host, u.pid or "", u.program, u.lease) for u in use.users] or [
            (*place, "", "", "", "", "")
        ]
    return table(header, rows)


def described(device_use: ShownUse, uses: Sequence[Use]) -> list[tuple[str, object]]:
    """Return `gc-info --device-info`: the attributes of a device, or of the first of several."""
    info, use = device_use.info, uses[0]
    return [
        (f"number of {device_use.noun}s", len(uses)),
        (f"{device_use.noun} index", use.device.index),
        ("machine", use.device.machine),
        ("chip id", use.device.chip_id),
        ("ipuof host", use.device.ip),
        ("ipuof partition id", info.name),
        ("ipuof gcd id", use.gcd),
        ("ipuof routing id", use.routing),
        ("ipuof routing type", info.routing.value),
        ("ipuof server version", info.server_version),
        ("number of replicas", info.num_replicas),
        ("partition sync type", info.sync_type.value),
        ("reconfigurable partition", str(info.reconfigurable).lower()),
        ("state", use.state),
        *sorted(device_use.attributes[use.routing].items()),
    ]


def listing_json(uses: Sequence[ShownUse]) -> list[dict[str, Any]]:
    """Return the listing as data: each partition with its devices by number."""

    def devices(use: ShownUse) -> list[dict[str, Any]]:
        if not is_listed(use.info):
            return []
        return [
            {
                "id": use.first + device_set.id,
                "gcd": device_set.gcd,
                "members": [_member(use.uses[place]) for place in device_set.routing],
            }
            for device_set in device_sets(use.info)
        ]

    return [_partition(use, devices) for use in uses]


def monitor_json(uses: Sequence[ShownUse]) -> list[dict[str, Any]]:
    """Return the monitor as data: each partition with its devices and their users."""

    def devices(device_use: ShownUse) -> list[dict[str, Any]]:
        return [
            {
                "id": use.id,
                "gcd": use.gcd,
                **_member(use),
                "users": [user._asdict() for user in use.users],
            }
            for use in sorted(device_use.uses, key=lambda use: (use.id, use.routing))
        ]

    return [_partition(use, devices) for use in uses]


def _partition(
    use: ShownUse, devices: Callable[[ShownUse], list[dict[str, Any]]]
) -> dict[str, Any]:
    info = use.info
    return {
        "partition": info.name,
        "cluster": info.cluster,
        "allocation": info.allocation,
        "state": info.ready_state.value,
        "errors": info.errors,
        "owner": info.owner,
        "job": info.job,
        "family": use.family.name,
        "reconfigurable": info.reconfigurable,
        "size": info.size,
        "num_gcds": info.num_gcds,
        "devices": devices(use),
    }


def _member(use: Use) -> dict[str, Any]:
    device = use.device
    return {
        "routing_id": use.routing,
        "machine": device.machine,
        "index": device.index,
        "ip": device.ip,
        "port": device.server_port,
        "chip_id": device.chip_id,
        "state": use.state,
    }
