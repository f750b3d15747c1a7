"""Checks of GPUs, their links and their network adapters: an observation in, findings out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from podwright.gpu.health._node_observation import Seen, SeenGpu
from podwright.gpu.health._settings import Settings
from podwright.gpu.health._xids import xid
from podwright.hosts.gpus import Inventory

#: The largest number of shown XIDs that are not the node's fault.
_MOST_SHOWN = 4


class Wrong(NamedTuple):
    """What a check found. level: empty for the level of the check itself."""

    part: str
    problem: str
    means: str
    do: str
    level: str = ""


class CheckContext(NamedTuple):
    """What a check may look at. like: this node as it should be; peers: nodes of its
    kind."""

    seen: Seen
    settings: Settings
    like: Inventory | None = None
    peers: tuple[Inventory, ...] = ()
    limit: float = 0.0


def name(seen: SeenGpu) -> str:
    """The name of a GPU in a reason."""
    return f"GPU {seen.gpu.index}"


def libraries(context: CheckContext) -> Iterator[Wrong]:
    """The vendors' libraries answer in time."""
    for note in context.seen.inventory.notes:
        yield Wrong(
            "",
            f"driver: {note}"[:80],
            "The GPU driver or its library does not answer, so jobs cannot use the GPUs.",
            "After an update of the driver, reboot; else see the kernel's log for NVRM or amdgpu.",
        )


def gpus(context: CheckContext) -> Iterator[Wrong]:
    """All GPUs are there."""
    if context.seen.inventory.notes and not context.seen.gpus:
        return  # nobody could tell, and `library` says so
    by_bus = {seen.gpu.bus: seen for seen in context.seen.gpus}
    if context.like:
        for gpu in context.like.gpus:
            if gpu.bus not in by_bus:
                yield _missing(f"GPU {gpu.index}", f"not there ({gpu.bus})")
    expected = context.settings.expect.gpus
    if expected and len(by_bus) != expected and not (context.like and context.like.gpus):
        yield _missing("", f"{len(by_bus)} GPUs, not {expected}")
    for seen in context.seen.gpus:
        if seen.error:
            yield _missing(name(seen), "does not answer")
        for problem in seen.health.problems:
            if "bus" in problem or "answer" in problem or problem == "must be reset":
                yield _missing(name(seen), problem)


def _missing(part: str, problem: str) -> Wrong:
    return Wrong(
        part,
        problem,
        "A GPU that should be here cannot be used; jobs that get it fail.",
        "Reboot the node. If it stays away, reseat or replace the GPU.",
    )


def gpu_memory(context: CheckContext) -> Iterator[Wrong]:
    """Each GPU has the memory that it should have."""
    like = {gpu.bus: gpu.memory for gpu in context.like.gpus} if context.like else {}
    for seen in context.seen.gpus:
        wanted = context.settings.expect.gpu_memory or like.get(seen.gpu.bus, 0)
        if wanted and 0 < seen.gpu.memory < wanted * (1 - context.limit / 100):
            yield Wrong(
                name(seen),
                f"{seen.gpu.memory >> 20} MiB, not {wanted >> 20}",
                "Part of its memory is missing, so programs that fitted no longer do.",
                "Reset the GPU; compare its ECC and MIG settings with those of other nodes.",
            )


def driver(context: CheckContext) -> Iterator[Wrong]:
    """The driver has the version of the other nodes of this kind."""
    for vendor, version in context.seen.inventory.drivers.items():
        wanted = context.settings.expect.driver or _most_common(
            other.drivers.get(vendor, "") for other in context.peers
        )
        if wanted and version and version != wanted:
            yield Wrong(
                "",
                f"driver {version}, not {wanted}",
                "Programs that span this node and others meet two versions of the driver.",
                f"Install {wanted} here, or name the new version in the settings.",
            )


def firmware(context: CheckContext) -> Iterator[Wrong]:
    """The firmware of all GPUs of one kind is the same, here and on other nodes of this kind."""
    kinds: dict[str, list[str]] = {}
    host = context.seen.inventory.host
    elsewhere = (gpu for other in context.peers if other.host != host for gpu in other.gpus)
    for gpu in (*(seen.gpu for seen in context.seen.gpus), *elsewhere):
        kinds.setdefault(gpu.name, []).append(gpu.firmware)
    configured_version = context.settings.expect.firmware
    wanted = {
        kind: configured_version or _most_common(versions) for kind, versions in kinds.items()
    }
    for seen in context.seen.gpus:
        wanted_version = wanted[seen.gpu.name]
        if wanted_version and seen.gpu.firmware not in ("", wanted_version):
            yield Wrong(
                name(seen),
                f"firmware {seen.gpu.firmware}, not {wanted_version}",
                "It has another firmware than its siblings, as after a replacement.",
                "Bring it to the same version with the vendor's tool.",
            )


def _most_common(words: Iterable[str]) -> str:
    """The most frequent, if more than half say it."""
    counted = Counter(word for word in words if word)
    if not counted:
        return ""
    word, count = counted.most_common(1)[0]
    return word if 2 * count > counted.total() else ""


def xids(context: CheckContext) -> Iterator[Wrong]:
    """The driver has reported no error code since it was loaded."""
    for seen in context.seen.gpus:
        numbers = {event.number: event for event in seen.xids}
        if seen.health.xid:
            numbers.setdefault(seen.health.xid, None)  # type: ignore[arg-type]
        for count, number in enumerate(numbers):
            known = xid(number)
            if count < _MOST_SHOWN or known.level == "fail":
                yield Wrong(name(seen), f"XID {number}", known.means, known.do, known.level)
    for event in {(event.bus, event.number) for event in context.seen.lost}:
        known = xid(event[1])
        yield Wrong(f"GPU at {event[0]}", f"XID {event[1]}", known.means, known.do, known.level)
    if not context.seen.log and any(seen.gpu.vendor == "nvidia" for seen in context.seen.gpus):
        yield Wrong(
            "",
            "the kernel's log cannot be read",
            "Only that log has the XIDs of the past.",
            "Run this as root.",
            "note",
        )


def switches(context: CheckContext) -> Iterator[Wrong]:
    """No NVSwitch has reported an error since the driver was loaded."""
    events = {(event.switch, event.number): event for event in context.seen.switch_errors}
    for event in [*events.values()][:_MOST_SHOWN]:
        fatal = event.severity == "Fatal"
        yield Wrong(
            f"NVSwitch {event.switch}",
            f"SXid {event.number}" + (f" {event.text}" if event.text else ""),
            "Traffic through this switch has ended; jobs on GPUs behind it fail."
            if fatal
            else "The switch corrected it, or only this traffic was lost.",
            "Reset all GPUs and switches (nvidia-smi -r with no job), or reboot; see Fabric "
            "Manager's log. If it comes again, have the board looked at."
            if fatal
            else "See Fabric Manager's log; if it comes often, have the links looked at.",
            "fail" if fatal else "warn",
        )


def ecc(context: CheckContext) -> Iterator[Wrong]:
    """No memory errors that were not corrected; correction is on where others have it on."""
    for seen in context.seen.gpus:
        wrong = seen.health.ecc_uncorrected or 0
        if wrong > context.limit:
            yield Wrong(
                name(seen),
                f"{wrong} uncorrected memory errors",
                "Results on this GPU may be wrong.",
                "Reset the GPU; if it comes again, run the vendor's diagnosis and replace it.",
            )
    states = {seen.condition.ecc for seen in context.seen.gpus if seen.condition.ecc is not None}
    if len(states) > 1:
        for seen in context.seen.gpus:
            if seen.condition.ecc is False:
                yield Wrong(
                    name(seen),
                    "ECC is off",
                    "Errors of its memory are not noticed, and its siblings correct theirs.",
                    "nvidia-smi --ecc-config=1 -i N, then reboot.",
                )


def row_remap(context: CheckContext) -> Iterator[Wrong]:
    """No row of GPU memory waits for a replacement, and no replacement failed."""
    for seen in context.seen.gpus:
        state = seen.health.row_remap
        if state == "failed":
            yield Wrong(
                name(seen),
                "row remapping failed",
                "It has no spare row left for one that is broken.",
                "Replace the GPU.",
            )
        elif state == "pending":
            yield Wrong(
                name(seen),
                "row remapping pending",
                "A row of its memory is broken; the spare one is used after a reset.",
                "Reset the GPU (nvidia-smi --gpu-reset -i N) when no job uses it.",
                "warn",
            )


def recovery(context: CheckContext) -> Iterator[Wrong]:
    """The driver asks for no reset and no reboot."""
    for seen in context.seen.gpus:
        if seen.condition.recovery not in ("", "none"):
            yield Wrong(
                name(seen),
                f"needs {seen.condition.recovery}",
                "The driver says so itself, after an error.",
                "Do that, as nvidia-smi -q names it (GPU Recovery Action).",
            )


def nvlink(context: CheckContext) -> Iterator[Wrong]:
    """All NVLinks, or AMD's XGMI links, are up, as many and as fast as they should be."""
    expect = context.settings.expect
    highest_count = max(
        (sum(gpu_seen.condition.nvlinks) for gpu_seen in context.seen.gpus), default=0
    )
    reference_counts = (
        {g.bus: max(g.links, default=0) for g in context.like.gpus} if context.like else {}
    )
    fastest = expect.mbps or max(
        (gpu_seen.condition.mbps or 0 for gpu_seen in context.seen.gpus), default=0
    )
    for gpu_seen in context.seen.gpus:
        links_up = sum(gpu_seen.condition.nvlinks)
        wanted = expect.nvlinks or max(highest_count, reference_counts.get(gpu_seen.gpu.bus, 0))
        links_down = [str(n) for n, state in enumerate(gpu_seen.condition.nvlinks) if not state]
        if links_up < wanted and not gpu_seen.error:
            link = "XGMI link" if gpu_seen.gpu.vendor == "amd" else "NVLink"
            problem = (
                f"{link} {','.join(links_down)} down"
                if links_down
                else f"{links_up} {link}s, not {wanted}"
            )
            yield Wrong(
                name(gpu_seen),
                problem,
                "Traffic between GPUs of this node is slower, or fails.",
                "Reset all GPUs; see Fabric Manager's log; then have the link looked at.",
            )
        speed = gpu_seen.condition.mbps
        if speed is not None and speed < fastest:
            yield Wrong(
                name(gpu_seen),
                f"NVLink at {speed} MB/s, not {fastest}",
                "Its links came up at a lower speed.",
                "Reset all GPUs; then have the links looked at.",
                "warn",
            )


def pcie(context: CheckContext) -> Iterator[Wrong]:
    """Each GPU's link to the host has all its lanes."""
    for seen in context.seen.gpus:
        if 0 < seen.link.width < seen.link.widest:
            yield Wrong(
                name(seen),
                f"PCIe x{seen.link.width}, not x{seen.link.widest}",
                "Copies between host and GPU are slower by that.",
                "Reboot; if it stays, reseat the GPU or its riser.",
            )


def temperature(context: CheckContext) -> Iterator[Wrong]:
    """No GPU is too hot."""
    for seen in context.seen.gpus:
        if (seen.sample.celsius or 0) > context.limit:
            yield Wrong(
                name(seen),
                f"{seen.sample.celsius} °C",
                "It slows down soon, or does so already.",
                "Check fans, air and the room.",
            )


def clocks(context: CheckContext) -> Iterator[Wrong]:
    """No GPU's clocks are reduced because of heat or power."""
    for seen in context.seen.gpus:
        if seen.condition.slowed:
            yield Wrong(
                name(seen),
                f"slowed: {', '.join(seen.condition.slowed)}",
                "One slow GPU slows every GPU of a job that waits for it.",
                "thermal, hot: cooling. power brake, hardware: power supply and its cables.",
            )


def persistence(context: CheckContext) -> Iterator[Wrong]:
    """The driver stays loaded between jobs."""
    without_persistence = [
        seen for seen in context.seen.gpus if seen.condition.persistence is False
    ]
    if without_persistence:
        yield Wrong(
            name(without_persistence[0])
            if len(without_persistence) < len(context.seen.gpus)
            else "",
            "persistence mode is off",
            "The driver lets go of the GPU between jobs: starts are slower, settings are lost.",
            "systemctl enable --now nvidia-persistenced",
        )


def fabric(context: CheckContext) -> Iterator[Wrong]:
    """Fabric Manager and IMEX run where they belong, and every GPU has joined its fabric."""
    running, expect = context.seen.programs, context.settings.expect
    wanted = context.seen.switches if expect.fabric_manager is None else expect.fabric_manager
    if wanted and not any(word.startswith("nv-fabricmanage") for word in running):
        yield Wrong(
            "",
            "Fabric Manager does not run",
            "This node has NVSwitches; without it CUDA does not start on its GPUs.",
            "systemctl start nvidia-fabricmanager; its version must be the driver's.",
        )
    wide = any(seen.gpu.fabric for seen in context.seen.gpus)
    if (wide if expect.imex is None else expect.imex) and "nvidia-imex" not in running:
        yield Wrong(
            "",
            "IMEX does not run",
            "These GPUs reach those of other nodes by NVLink; programs share no memory without it.",
            "systemctl start nvidia-imex",
        )
    for seen in context.seen.gpus:
        if seen.condition.fabric in ("failed", "in progress", "not started"):
            yield Wrong(
                name(seen),
                f"NVLink fabric {seen.condition.fabric}",
                "It has not joined the NVLink fabric: CUDA does not start on it.",
                "See Fabric Manager's log; reset the GPU.",
                "fail" if seen.condition.fabric == "failed" else "warn",
            )


def adapters(context: CheckContext) -> Iterator[Wrong]:
    """Network adapters are there, up, and as fast and as wide as they should be."""
    by_name = {seen.nic.name: seen for seen in context.seen.nics}
    for nic in context.like.nics if context.like else ():
        if nic.name not in by_name:
            yield _adapter(nic.name, "not there")
        elif nic.up and not by_name[nic.name].nic.up:
            yield _adapter(nic.name, "down")
        elif by_name[nic.name].nic.gbps < nic.gbps:
            yield _adapter(nic.name, f"{by_name[nic.name].nic.gbps} Gb/s, not {nic.gbps}")
    known = {nic.name for nic in context.like.nics} if context.like else set()
    rails = [seen for seen in context.seen.nics if seen.nic.rail >= 0]
    wanted = context.settings.expect.adapters
    if wanted and len(rails) < wanted:
        yield _adapter("", f"{len(rails)} adapters beside GPUs, not {wanted}")
    for seen in rails:
        speed = context.settings.expect.gbps
        if seen.nic.name not in known and not seen.nic.up:
            yield _adapter(seen.nic.name, "down")
        elif speed and seen.nic.gbps < speed:
            yield _adapter(seen.nic.name, f"{seen.nic.gbps} Gb/s, not {speed}")
    for seen in context.seen.nics:
        link = seen.link
        if seen.nic.rdma and 0 < link.width < link.widest:
            yield _adapter(seen.nic.name, f"PCIe x{link.width}, not x{link.widest}")
        elif seen.nic.rdma and 0 < link.speed < link.fastest:
            yield _adapter(seen.nic.name, f"PCIe {link.speed:g} GT/s, not {link.fastest:g}")


def _adapter(part: str, problem: str) -> Wrong:
    return Wrong(
        f"adapter {part}" if part else "",
        problem,
        "Jobs over several nodes are slower through it, or fail.",
        "Look at cable, port and switch; reboot if the adapter is gone.",
    )


def processes(context: CheckContext) -> Iterator[Wrong]:
    """On a Slurm node, no process outside of every job holds a GPU."""
    if "slurmd" not in context.seen.programs:
        return
    allowed = context.settings.allowed
    for seen in context.seen.gpus:
        for holder, job in seen.holders:
            if job or holder.command in allowed:
                continue
            who = f"{holder.command or 'process'} {holder.pid}"
            yield Wrong(
                name(seen),
                f"held by {who} of no job"[:80],
                f"{holder.user or 'Somebody'} uses this GPU beside Slurm: a job that gets it "
                "shares it, or has too little memory.",
                f"End it: kill {holder.pid}. What may run is named in the settings (allowed).",
            )
