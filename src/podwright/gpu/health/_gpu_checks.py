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
_MAX_SHOWN_EVENTS = 4


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


def name(seen_gpu: SeenGpu) -> str:
    """The name of a GPU in a reason."""
    return f"GPU {seen_gpu.gpu.index}"


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
    gpus_by_bus = {seen_gpu.gpu.bus: seen_gpu for seen_gpu in context.seen.gpus}
    if context.like:
        for gpu in context.like.gpus:
            if gpu.bus not in gpus_by_bus:
                yield _missing_gpu(f"GPU {gpu.index}", f"not there ({gpu.bus})")
    expected_count = context.settings.expect.gpus
    if (
        expected_count
        and len(gpus_by_bus) != expected_count
        and not (context.like and context.like.gpus)
    ):
        yield _missing_gpu("", f"{len(gpus_by_bus)} GPUs, not {expected_count}")
    for seen_gpu in context.seen.gpus:
        if seen_gpu.error:
            yield _missing_gpu(name(seen_gpu), "does not answer")
        for health_problem in seen_gpu.health.problems:
            if (
                "bus" in health_problem
                or "answer" in health_problem
                or health_problem == "must be reset"
            ):
                yield _missing_gpu(name(seen_gpu), health_problem)


def _missing_gpu(node_part: str, problem: str) -> Wrong:
    return Wrong(
        node_part,
        problem,
        "A GPU that should be here cannot be used; jobs that get it fail.",
        "Reboot the node. If it stays away, reseat or replace the GPU.",
    )


def gpu_memory(context: CheckContext) -> Iterator[Wrong]:
    """Each GPU has the memory that it should have."""
    reference_bytes = {gpu.bus: gpu.memory for gpu in context.like.gpus} if context.like else {}
    for seen_gpu in context.seen.gpus:
        wanted_bytes = context.settings.expect.gpu_memory or reference_bytes.get(
            seen_gpu.gpu.bus, 0
        )
        if wanted_bytes and 0 < seen_gpu.gpu.memory < wanted_bytes * (1 - context.limit / 100):
            yield Wrong(
                name(seen_gpu),
                f"{seen_gpu.gpu.memory >> 20} MiB, not {wanted_bytes >> 20}",
                "Part of its memory is missing, so programs that fitted no longer do.",
                "Reset the GPU; compare its ECC and MIG settings with those of other nodes.",
            )


def driver(context: CheckContext) -> Iterator[Wrong]:
    """The driver has the version of the other nodes of this kind."""
    for vendor, driver_version in context.seen.inventory.drivers.items():
        wanted_version = context.settings.expect.driver or _majority_version(
            peer.drivers.get(vendor, "") for peer in context.peers
        )
        if wanted_version and driver_version and driver_version != wanted_version:
            yield Wrong(
                "",
                f"driver {driver_version}, not {wanted_version}",
                "Programs that span this node and others meet two versions of the driver.",
                f"Install {wanted_version} here, or name the new version in the settings.",
            )


def firmware(context: CheckContext) -> Iterator[Wrong]:
    """The firmware of all GPUs of one kind is the same, here and on other nodes of this kind."""
    versions_by_gpu_name: dict[str, list[str]] = {}
    own_host = context.seen.inventory.host
    peer_gpus = (gpu for peer in context.peers if peer.host != own_host for gpu in peer.gpus)
    for gpu in (*(seen_gpu.gpu for seen_gpu in context.seen.gpus), *peer_gpus):
        versions_by_gpu_name.setdefault(gpu.name, []).append(gpu.firmware)
    configured_version = context.settings.expect.firmware
    wanted_versions = {
        gpu_name: configured_version or _majority_version(firmware_versions)
        for gpu_name, firmware_versions in versions_by_gpu_name.items()
    }
    for seen_gpu in context.seen.gpus:
        wanted_version = wanted_versions[seen_gpu.gpu.name]
        if wanted_version and seen_gpu.gpu.firmware not in ("", wanted_version):
            yield Wrong(
                name(seen_gpu),
                f"firmware {seen_gpu.gpu.firmware}, not {wanted_version}",
                "It has another firmware than its siblings, as after a replacement.",
                "Bring it to the same version with the vendor's tool.",
            )


def _majority_version(versions: Iterable[str]) -> str:
    """The most frequent, if more than half say it."""
    version_counts = Counter(version for version in versions if version)
    if not version_counts:
        return ""
    version, top_count = version_counts.most_common(1)[0]
    return version if 2 * top_count > version_counts.total() else ""


def xids(context: CheckContext) -> Iterator[Wrong]:
    """The driver has reported no error code since it was loaded."""
    for seen_gpu in context.seen.gpus:
        events_by_number = {xid_event.number: xid_event for xid_event in seen_gpu.xids}
        if seen_gpu.health.xid:
            events_by_number.setdefault(seen_gpu.health.xid, None)  # type: ignore[arg-type]
        for xid_position, xid_number in enumerate(events_by_number):
            xid_meaning = xid(xid_number)
            if xid_position < _MAX_SHOWN_EVENTS or xid_meaning.level == "fail":
                yield Wrong(
                    name(seen_gpu),
                    f"XID {xid_number}",
                    xid_meaning.means,
                    xid_meaning.do,
                    xid_meaning.level,
                )
    for xid_event in {(xid_event.bus, xid_event.number) for xid_event in context.seen.lost}:
        xid_meaning = xid(xid_event[1])
        yield Wrong(
            f"GPU at {xid_event[0]}",
            f"XID {xid_event[1]}",
            xid_meaning.means,
            xid_meaning.do,
            xid_meaning.level,
        )
    if not context.seen.log and any(
        seen_gpu.gpu.vendor == "nvidia" for seen_gpu in context.seen.gpus
    ):
        yield Wrong(
            "",
            "the kernel's log cannot be read",
            "Only that log has the XIDs of the past.",
            "Run this as root.",
            "note",
        )


def switches(context: CheckContext) -> Iterator[Wrong]:
    """No NVSwitch has reported an error since the driver was loaded."""
    events_by_switch = {
        (switch_event.switch, switch_event.number): switch_event
        for switch_event in context.seen.switch_events_seen
    }
    for switch_event in [*events_by_switch.values()][:_MAX_SHOWN_EVENTS]:
        is_fatal = switch_event.severity == "Fatal"
        yield Wrong(
            f"NVSwitch {switch_event.switch}",
            f"SXid {switch_event.number}" + (f" {switch_event.text}" if switch_event.text else ""),
            "Traffic through this switch has ended; jobs on GPUs behind it fail."
            if is_fatal
            else "The switch corrected it, or only this traffic was lost.",
            "Reset all GPUs and switches (nvidia-smi -r with no job), or reboot; see Fabric "
            "Manager's log. If it comes again, have the board looked at."
            if is_fatal
            else "See Fabric Manager's log; if it comes often, have the links looked at.",
            "fail" if is_fatal else "warn",
        )


def ecc(context: CheckContext) -> Iterator[Wrong]:
    """No memory errors that were not corrected; correction is on where others have it on."""
    for seen_gpu in context.seen.gpus:
        uncorrected_errors = seen_gpu.health.ecc_uncorrected or 0
        if uncorrected_errors > context.limit:
            yield Wrong(
                name(seen_gpu),
                f"{uncorrected_errors} uncorrected memory errors",
                "Results on this GPU may be wrong.",
                "Reset the GPU; if it comes again, run the vendor's diagnosis and replace it.",
            )
    ecc_states = {
        seen_gpu.condition.ecc
        for seen_gpu in context.seen.gpus
        if seen_gpu.condition.ecc is not None
    }
    if len(ecc_states) > 1:
        for seen_gpu in context.seen.gpus:
            if seen_gpu.condition.ecc is False:
                yield Wrong(
                    name(seen_gpu),
                    "ECC is off",
                    "Errors of its memory are not noticed, and its siblings correct theirs.",
                    "nvidia-smi --ecc-config=1 -i N, then reboot.",
                )


def row_remap(context: CheckContext) -> Iterator[Wrong]:
    """No row of GPU memory waits for a replacement, and no replacement failed."""
    for seen_gpu in context.seen.gpus:
        remap_state = seen_gpu.health.row_remap
        if remap_state == "failed":
            yield Wrong(
                name(seen_gpu),
                "row remapping failed",
                "It has no spare row left for one that is broken.",
                "Replace the GPU.",
            )
        elif remap_state == "pending":
            yield Wrong(
                name(seen_gpu),
                "row remapping pending",
                "A row of its memory is broken; the spare one is used after a reset.",
                "Reset the GPU (nvidia-smi --gpu-reset -i N) when no job uses it.",
                "warn",
            )


def recovery(context: CheckContext) -> Iterator[Wrong]:
    """The driver asks for no reset and no reboot."""
    for seen_gpu in context.seen.gpus:
        if seen_gpu.condition.recovery not in ("", "none"):
            yield Wrong(
                name(seen_gpu),
                f"needs {seen_gpu.condition.recovery}",
                "The driver says so itself, after an error.",
                "Do that, as nvidia-smi -q names it (GPU Recovery Action).",
            )


def nvlink(context: CheckContext) -> Iterator[Wrong]:
    """All NVLinks, or AMD's XGMI links, are up, as many and as fast as they should be."""
    expected_values = context.settings.expect
    most_links_up = max(
        (sum(seen_gpu.condition.nvlinks) for seen_gpu in context.seen.gpus), default=0
    )
    reference_counts = (
        {
            reference_gpu.bus: max(reference_gpu.links, default=0)
            for reference_gpu in context.like.gpus
        }
        if context.like
        else {}
    )
    expected_mbps = expected_values.mbps or max(
        (seen_gpu.condition.mbps or 0 for seen_gpu in context.seen.gpus), default=0
    )
    for seen_gpu in context.seen.gpus:
        links_up = sum(seen_gpu.condition.nvlinks)
        expected_links = expected_values.nvlinks or max(
            most_links_up, reference_counts.get(seen_gpu.gpu.bus, 0)
        )
        links_down = [
            str(link_number)
            for link_number, link_is_up in enumerate(seen_gpu.condition.nvlinks)
            if not link_is_up
        ]
        if links_up < expected_links and not seen_gpu.error:
            link_kind = "XGMI link" if seen_gpu.gpu.vendor == "amd" else "NVLink"
            problem = (
                f"{link_kind} {','.join(links_down)} down"
                if links_down
                else f"{links_up} {link_kind}s, not {expected_links}"
            )
            yield Wrong(
                name(seen_gpu),
                problem,
                "Traffic between GPUs of this node is slower, or fails.",
                "Reset all GPUs; see Fabric Manager's log; then have the link looked at.",
            )
        link_mbps = seen_gpu.condition.mbps
        if link_mbps is not None and link_mbps < expected_mbps:
            yield Wrong(
                name(seen_gpu),
                f"NVLink at {link_mbps} MB/s, not {expected_mbps}",
                "Its links came up at a lower speed.",
                "Reset all GPUs; then have the links looked at.",
                "warn",
            )


def pcie(context: CheckContext) -> Iterator[Wrong]:
    """Each GPU's link to the host has all its lanes."""
    for seen_gpu in context.seen.gpus:
        if 0 < seen_gpu.link.width < seen_gpu.link.widest:
            yield Wrong(
                name(seen_gpu),
                f"PCIe x{seen_gpu.link.width}, not x{seen_gpu.link.widest}",
                "Copies between host and GPU are slower by that.",
                "Reboot; if it stays, reseat the GPU or its riser.",
            )


def temperature(context: CheckContext) -> Iterator[Wrong]:
    """No GPU is too hot."""
    for seen_gpu in context.seen.gpus:
        if (seen_gpu.sample.celsius or 0) > context.limit:
            yield Wrong(
                name(seen_gpu),
                f"{seen_gpu.sample.celsius} °C",
                "It slows down soon, or does so already.",
                "Check fans, air and the room.",
            )


def clocks(context: CheckContext) -> Iterator[Wrong]:
    """No GPU's clocks are reduced because of heat or power."""
    for seen_gpu in context.seen.gpus:
        if seen_gpu.condition.slowed:
            yield Wrong(
                name(seen_gpu),
                f"slowed: {', '.join(seen_gpu.condition.slowed)}",
                "One slow GPU slows every GPU of a job that waits for it.",
                "thermal, hot: cooling. power brake, hardware: power supply and its cables.",
            )


def persistence(context: CheckContext) -> Iterator[Wrong]:
    """The driver stays loaded between jobs."""
    gpus_without_persistence = [
        seen_gpu for seen_gpu in context.seen.gpus if seen_gpu.condition.persistence is False
    ]
    if gpus_without_persistence:
        yield Wrong(
            name(gpus_without_persistence[0])
            if len(gpus_without_persistence) < len(context.seen.gpus)
            else "",
            "persistence mode is off",
            "The driver lets go of the GPU between jobs: starts are slower, settings are lost.",
            "systemctl enable --now nvidia-persistenced",
        )


def fabric(context: CheckContext) -> Iterator[Wrong]:
    """Fabric Manager and IMEX run where they belong, and every GPU has joined its fabric."""
    running_programs, expected_values = context.seen.programs, context.settings.expect
    fabric_manager_expected = (
        context.seen.switches
        if expected_values.fabric_manager is None
        else expected_values.fabric_manager
    )
    if fabric_manager_expected and not any(
        program_name.startswith("nv-fabricmanage") for program_name in running_programs
    ):
        yield Wrong(
            "",
            "Fabric Manager does not run",
            "This node has NVSwitches; without it CUDA does not start on its GPUs.",
            "systemctl start nvidia-fabricmanager; its version must be the driver's.",
        )
    has_multinode_fabric = any(seen_gpu.gpu.fabric for seen_gpu in context.seen.gpus)
    if (
        has_multinode_fabric if expected_values.imex is None else expected_values.imex
    ) and "nvidia-imex" not in running_programs:
        yield Wrong(
            "",
            "IMEX does not run",
            "These GPUs reach those of other nodes by NVLink; programs share no memory without it.",
            "systemctl start nvidia-imex",
        )
    for seen_gpu in context.seen.gpus:
        if seen_gpu.condition.fabric in ("failed", "in progress", "not started"):
            yield Wrong(
                name(seen_gpu),
                f"NVLink fabric {seen_gpu.condition.fabric}",
                "It has not joined the NVLink fabric: CUDA does not start on it.",
                "See Fabric Manager's log; reset the GPU.",
                "fail" if seen_gpu.condition.fabric == "failed" else "warn",
            )


def adapters(context: CheckContext) -> Iterator[Wrong]:
    """Network adapters are there, up, and as fast and as wide as they should be."""
    nics_by_name = {seen_nic.nic.name: seen_nic for seen_nic in context.seen.nics}
    for reference_nic in context.like.nics if context.like else ():
        if reference_nic.name not in nics_by_name:
            yield _adapter_finding(reference_nic.name, "not there")
        elif reference_nic.up and not nics_by_name[reference_nic.name].nic.up:
            yield _adapter_finding(reference_nic.name, "down")
        elif nics_by_name[reference_nic.name].nic.gbps < reference_nic.gbps:
            yield _adapter_finding(
                reference_nic.name,
                f"{nics_by_name[reference_nic.name].nic.gbps} Gb/s, not {reference_nic.gbps}",
            )
    reference_names = (
        {reference_nic.name for reference_nic in context.like.nics} if context.like else set()
    )
    rail_nics = [seen_nic for seen_nic in context.seen.nics if seen_nic.nic.rail >= 0]
    expected_rail_count = context.settings.expect.adapters
    if expected_rail_count and len(rail_nics) < expected_rail_count:
        yield _adapter_finding(
            "", f"{len(rail_nics)} adapters beside GPUs, not {expected_rail_count}"
        )
    for seen_nic in rail_nics:
        expected_gbps = context.settings.expect.gbps
        if seen_nic.nic.name not in reference_names and not seen_nic.nic.up:
            yield _adapter_finding(seen_nic.nic.name, "down")
        elif expected_gbps and seen_nic.nic.gbps < expected_gbps:
            yield _adapter_finding(
                seen_nic.nic.name, f"{seen_nic.nic.gbps} Gb/s, not {expected_gbps}"
            )
    for seen_nic in context.seen.nics:
        pcie_link = seen_nic.link
        if seen_nic.nic.rdma and 0 < pcie_link.width < pcie_link.widest:
            yield _adapter_finding(
                seen_nic.nic.name, f"PCIe x{pcie_link.width}, not x{pcie_link.widest}"
            )
        elif seen_nic.nic.rdma and 0 < pcie_link.speed < pcie_link.fastest:
            yield _adapter_finding(
                seen_nic.nic.name, f"PCIe {pcie_link.speed:g} GT/s, not {pcie_link.fastest:g}"
            )


def _adapter_finding(adapter_name: str, problem: str) -> Wrong:
    return Wrong(
        f"adapter {adapter_name}" if adapter_name else "",
        problem,
        "Jobs over several nodes are slower through it, or fail.",
        "Look at cable, port and switch; reboot if the adapter is gone.",
    )


def processes(context: CheckContext) -> Iterator[Wrong]:
    """On a Slurm node, no process outside of every job holds a GPU."""
    if "slurmd" not in context.seen.programs:
        return
    allowed_programs = context.settings.allowed
    for seen_gpu in context.seen.gpus:
        for gpu_user, job_id in seen_gpu.holders:
            if job_id or gpu_user.command in allowed_programs:
                continue
            program_and_pid = f"{gpu_user.command or 'process'} {gpu_user.pid}"
            yield Wrong(
                name(seen_gpu),
                f"held by {program_and_pid} of no job"[:80],
                f"{gpu_user.user or 'Somebody'} uses this GPU beside Slurm: a job that gets it "
                "shares it, or has too little memory.",
                f"End it: kill {gpu_user.pid}. What may run is named in the settings (allowed).",
            )
