"""The output of `gc-info` and `gc-monitor`: devices and their users.

The listing has the shape of V-IPU's: a title for each partition, a line for each device, and below
a device that consists of several the lines of its members. The columns of the monitor are our
choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from podwright.client.devices._device_users import DeviceUse, ShownUse, is_listed
from podwright.fabric import IPU
from podwright.ground.tables import printable, table
from podwright.wire import ReadyState, device_sets


def title(partition_use: ShownUse, *, counted: bool = False) -> str:
    """Return `Partition: p1 [active]`, and its errors. counted: add the devices' number and their
    owner.
    """
    partition_info = partition_use.info
    title_line = f"Partition: {partition_info.name} [{partition_info.ready_state.value.lower()}]"
    if counted:
        kind_prefix = "reconfigurable " if partition_info.reconfigurable else ""
        title_line += (
            f" has {partition_info.size} "
            f"{kind_prefix}{partition_use.noun}{'s' if partition_info.size > 1 else ''}"
        )
        title_line += f" in {partition_info.num_gcds} GCDs" if partition_info.num_gcds > 1 else ""
        title_line += f", of {partition_info.owner}" if partition_info.owner else ""
        title_line += f", job {partition_info.job}" if partition_info.job else ""
    title_lines = [title_line, *(f" !   {error}" for error in partition_info.errors)]
    if partition_info.ready_state is ReadyState.ERROR:
        title_lines.append(
            f" !   no program can attach to it; try: vipu reset partition {partition_info.name}"
        )
    return "\n".join(map(printable, title_lines))


def listing(partition_uses: Sequence[ShownUse]) -> str:
    """Return `gc-info -l`: the devices to which programs attach, by number."""
    return "\n\n".join("\n".join((title(use), *_device_lines(use))) for use in partition_uses)


def _device_lines(partition_use: ShownUse) -> list[str]:
    device_lines: list[str] = []
    if not is_listed(partition_use.info):
        return device_lines
    routing_label = "DNC Id" if partition_use.family is IPU else "Routing Id"
    several_gcds = partition_use.info.num_gcds > 1
    for device_set in device_sets(partition_use.info):
        id_text = f"-+- Id: [{partition_use.first + device_set.id}]"
        gcd_text = f", GCD: [{device_set.gcd}]" if several_gcds else ""
        member_uses = [partition_use.uses[index] for index in device_set.routing]
        if len(member_uses) == 1:
            device_lines.append(
                f"{id_text}, target: [{partition_use.target}]{gcd_text}, "
                f"{_device_place_text(partition_use, member_uses[0])}"
            )
            continue
        device_lines.append(f"{id_text}, target: [Multi {partition_use.noun}]{gcd_text}")
        device_lines += [
            f" |--- {routing_label}: [{index}], {_device_place_text(partition_use, member_use)}"
            for index, member_use in enumerate(member_uses)
        ]
    return device_lines


def _device_place_text(partition_use: ShownUse, member_use: DeviceUse) -> str:
    device = member_use.device
    host_text = f", host: [{device.ip}]" if device.ip else ""
    state_text = "" if member_use.state in ("used", "free") else f", state: [{member_use.state}]"
    return (
        f"machine: [{device.machine or '-'}]{host_text}, {partition_use.noun}#: "
        f"[{device.index}]{state_text}"
    )


def monitor(partition_uses: Sequence[ShownUse]) -> str:
    """Return `gc-monitor`: a row for each device, and one more for each further program on it."""
    return "\n\n".join(f"{title(use, counted=True)}\n{_monitor(use)}" for use in partition_uses)


def _monitor(partition_use: ShownUse) -> str:
    column_titles = (
        "Id", "GCD", "Machine", partition_use.noun, "Address", "State", "User", "Host", "PID",
        "Program", "Lease",
    )  # fmt: skip
    table_rows: list[tuple[object, ...]] = []
    for member_use in sorted(
        partition_use.uses, key=lambda member_use: (member_use.id, member_use.routing)
    ):
        device = member_use.device
        device_address = f"{device.ip}:{device.server_port}" if device.server_port else device.ip
        device_cells = (
            member_use.id,
            member_use.gcd,
            device.machine,
            device.index,
            device_address,
            member_use.state,
        )
        table_rows += [
            (
                *device_cells,
                user.user,
                user.host,
                user.pid or "",
                user.program,
                user.lease,
            )
            for user in member_use.users
        ] or [(*device_cells, "", "", "", "", "")]
    return table(column_titles, table_rows)


def described(
    partition_use: ShownUse, member_uses: Sequence[DeviceUse]
) -> list[tuple[str, object]]:
    """Return `gc-info --device-info`: the attributes of a device, or of the first of several."""
    partition_info, first_use = partition_use.info, member_uses[0]
    return [
        (f"number of {partition_use.noun}s", len(member_uses)),
        (f"{partition_use.noun} index", first_use.device.index),
        ("machine", first_use.device.machine),
        ("chip id", first_use.device.chip_id),
        ("ipuof host", first_use.device.ip),
        ("ipuof partition id", partition_info.name),
        ("ipuof gcd id", first_use.gcd),
        ("ipuof routing id", first_use.routing),
        ("ipuof routing type", partition_info.routing.value),
        ("ipuof server version", partition_info.server_version),
        ("number of replicas", partition_info.num_replicas),
        ("partition sync type", partition_info.sync_type.value),
        ("reconfigurable partition", str(partition_info.reconfigurable).lower()),
        ("state", first_use.state),
        *sorted(partition_use.attributes[first_use.routing].items()),
    ]


def listing_json(partition_uses: Sequence[ShownUse]) -> list[dict[str, Any]]:
    """Return the listing as data: each partition with its devices by number."""

    def devices(partition_use: ShownUse) -> list[dict[str, Any]]:
        if not is_listed(partition_use.info):
            return []
        return [
            {
                "id": partition_use.first + device_set.id,
                "gcd": device_set.gcd,
                "members": [
                    _device_json(partition_use.uses[index]) for index in device_set.routing
                ],
            }
            for device_set in device_sets(partition_use.info)
        ]

    return [_partition_json(use, devices) for use in partition_uses]


def monitor_json(partition_uses: Sequence[ShownUse]) -> list[dict[str, Any]]:
    """Return the monitor as data: each partition with its devices and their users."""

    def devices(partition_use: ShownUse) -> list[dict[str, Any]]:
        return [
            {
                "id": member_use.id,
                "gcd": member_use.gcd,
                **_device_json(member_use),
                "users": [user._asdict() for user in member_use.users],
            }
            for member_use in sorted(
                partition_use.uses, key=lambda member_use: (member_use.id, member_use.routing)
            )
        ]

    return [_partition_json(partition_use, devices) for partition_use in partition_uses]


def _partition_json(
    partition_use: ShownUse, describe_devices: Callable[[ShownUse], list[dict[str, Any]]]
) -> dict[str, Any]:
    info = partition_use.info
    return {
        "partition": info.name,
        "cluster": info.cluster,
        "allocation": info.allocation,
        "state": info.ready_state.value,
        "errors": info.errors,
        "owner": info.owner,
        "job": info.job,
        "family": partition_use.family.name,
        "reconfigurable": info.reconfigurable,
        "size": info.size,
        "num_gcds": info.num_gcds,
        "devices": describe_devices(partition_use),
    }


def _device_json(member_use: DeviceUse) -> dict[str, Any]:
    device = member_use.device
    return {
        "routing_id": member_use.routing,
        "machine": device.machine,
        "index": device.index,
        "ip": device.ip,
        "port": device.server_port,
        "chip_id": device.chip_id,
        "state": member_use.state,
    }
