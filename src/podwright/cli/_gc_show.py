"""How `gc-info` and `gc-monitor` lay out devices and their users.

The listing has the shape of V-IPU's: a title for each partition, a line for each device, and the
members of one that is made of several below it. The columns of the monitor are our choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from podwright.cli._device_users import ShownUse, Use, is_listed
from podwright.cli._tables import printable, table
from podwright.fabric import IPU
from podwright.wire import ReadyState, device_sets


def title(shown: ShownUse, *, counted: bool = False) -> str:
    """`Partition: p1 [active]`, and what is wrong with it. counted: how many devices, and whose."""
    info = shown.info
    text = f"Partition: {info.name} [{info.ready_state.value.lower()}]"
    if counted:
        kind = "reconfigurable " if info.reconfigurable else ""
        text += f" has {info.size} {kind}{shown.noun}{'s' if info.size > 1 else ''}"
        text += f" in {info.num_gcds} GCDs" if info.num_gcds > 1 else ""
        text += f", of {info.owner}" if info.owner else ""
        text += f", job {info.job}" if info.job else ""
    lines = [text, *(f" !   {error}" for error in info.errors)]
    if info.ready_state is ReadyState.ERROR:
        lines.append(f" !   no program can attach to it; try: vipu reset partition {info.name}")
    return "\n".join(map(printable, lines))


def listing(shown: Sequence[ShownUse]) -> str:
    """`gc-info -l`: what programs attach to, by number."""
    return "\n\n".join("\n".join((title(one), *_lines(one))) for one in shown)


def _lines(shown: ShownUse) -> list[str]:
    lines: list[str] = []
    if not is_listed(shown.info):
        return lines
    routed = "DNC Id" if shown.family is IPU else "Routing Id"
    several = shown.info.num_gcds > 1
    for found in device_sets(shown.info):
        number = f"-+- Id: [{shown.first + found.id}]"
        gcd = f", GCD: [{found.gcd}]" if several else ""
        uses = [shown.uses[place] for place in found.routing]
        if len(uses) == 1:
            lines.append(f"{number}, target: [{shown.target}]{gcd}, {_place(shown, uses[0])}")
            continue
        lines.append(f"{number}, target: [Multi {shown.noun}]{gcd}")
        lines += [
            f" |--- {routed}: [{place}], {_place(shown, use)}" for place, use in enumerate(uses)
        ]
    return lines


def _place(shown: ShownUse, use: Use) -> str:
    device = use.device
    host = f", host: [{device.ip}]" if device.ip else ""
    state = "" if use.state in ("used", "free") else f", state: [{use.state}]"
    return f"machine: [{device.machine or '-'}]{host}, {shown.noun}#: [{device.index}]{state}"


def monitor(shown: Sequence[ShownUse]) -> str:
    """`gc-monitor`: a row for each device, and one more for each further program on it."""
    return "\n\n".join(f"{title(one, counted=True)}\n{_monitor(one)}" for one in shown)


def _monitor(shown: ShownUse) -> str:
    header = (
        "Id", "GCD", "Machine", shown.noun, "Address", "State", "User", "Host", "PID", "Program",
        "Lease",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = []
    for use in sorted(shown.uses, key=lambda use: (use.id, use.routing)):
        device = use.device
        address = f"{device.ip}:{device.server_port}" if device.server_port else device.ip
        place = (use.id, use.gcd, device.machine, device.index, address, use.state)
        rows += [(*place, u.user, u.host, u.pid or "", u.program, u.lease) for u in use.users] or [
            (*place, "", "", "", "", "")
        ]
    return table(header, rows)


def described(shown: ShownUse, uses: Sequence[Use]) -> list[tuple[str, object]]:
    """`gc-info --device-info`: what is known of a device, or of the first of several."""
    info, use = shown.info, uses[0]
    return [
        (f"number of {shown.noun}s", len(uses)),
        (f"{shown.noun} index", use.device.index),
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
        *sorted(shown.attributes[use.routing].items()),
    ]


def listing_json(shown: Sequence[ShownUse]) -> list[dict[str, Any]]:
    """The same as data: each partition with its devices by number."""

    def devices(one: ShownUse) -> list[dict[str, Any]]:
        if not is_listed(one.info):
            return []
        return [
            {
                "id": one.first + found.id,
                "gcd": found.gcd,
                "members": [_member(one.uses[place]) for place in found.routing],
            }
            for found in device_sets(one.info)
        ]

    return [_partition(one, devices) for one in shown]


def monitor_json(shown: Sequence[ShownUse]) -> list[dict[str, Any]]:
    """The same as data: each partition with its devices and their users."""

    def devices(one: ShownUse) -> list[dict[str, Any]]:
        return [
            {
                "id": use.id,
                "gcd": use.gcd,
                **_member(use),
                "users": [user._asdict() for user in use.users],
            }
            for use in sorted(one.uses, key=lambda use: (use.id, use.routing))
        ]

    return [_partition(one, devices) for one in shown]


def _partition(
    shown: ShownUse, devices: Callable[[ShownUse], list[dict[str, Any]]]
) -> dict[str, Any]:
    info = shown.info
    return {
        "partition": info.name,
        "cluster": info.cluster,
        "allocation": info.allocation,
        "state": info.ready_state.value,
        "errors": info.errors,
        "owner": info.owner,
        "job": info.job,
        "family": shown.family.name,
        "reconfigurable": info.reconfigurable,
        "size": info.size,
        "num_gcds": info.num_gcds,
        "devices": devices(shown),
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
