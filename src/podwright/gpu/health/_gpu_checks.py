"""Checks of GPUs, their links and network adapters: an observation in, findings out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from podwright.gpu.health._kernel_log import KernelEvent
from podwright.gpu.health._node_observation import Seen, SeenGpu
from podwright.gpu.health._settings import Settings
from podwright.ground.judgement import Says
from podwright.hosts.gpus import Inventory

_DRIVERS = {"nvidia": "the NVIDIA driver", "amd": "the AMD driver"}
_KERNEL = "the kernel"
#: The newest ones are shown.
_MAX_SHOWN_HARMLESS = 4
_RECOVERY_TEXTS = {
    "reset": "a reset",
    "reboot": "a reboot of the node",
    "drain": "to be drained",
    "imex": "its IMEX domain to be recovered",
}
#: Jobs on this node alone need no IMEX domain.
_RECOVERY_SAYS = {**dict.fromkeys(("reset", "reboot", "drain"), Says.NO), "imex": Says.YES}
_NVLINK_ADVICE = "Reset all GPUs; see Fabric Manager's log; then have the link looked at."


class Wrong(NamedTuple):
    """What a check found.

    part: such as `GPU 3`; empty for the node itself. problem: a few words, which are in the reason
    of a drained node. because: the evidence, a sentence without its full stop. source: who says so.
    do: a sentence. says: NO: unfit for jobs; YES: fit, and worth a look; NOT_KNOWN.
    """

    part: str
    problem: str
    because: str
    source: str
    do: str
    says: Says = Says.NO


class CheckContext(NamedTuple):
    """What a check may look at. like: this node as it should be. limit: the check's bound."""

    seen: Seen
    settings: Settings
    like: Inventory | None = None
    limit: float = 0.0


def _name(seen_gpu: SeenGpu) -> str:
    return f"GPU {seen_gpu.gpu.index}"


def driver(context: CheckContext) -> Iterator[Wrong]:
    """The driver of the GPUs answers in time."""
    for note in context.seen.inventory.notes:
        yield Wrong(
            "",
            f"driver: {note}"[:80],
            f"the driver or its library does not answer: {note}",
            "the driver's library",
            "After an update of the driver, reboot; else see the kernel's log for NVRM or amdgpu.",
        )


def gpus(context: CheckContext) -> Iterator[Wrong]:
    """The driver shows every GPU that PCI shows, and every GPU of the inventory."""
    seen = context.seen
    buses = {seen_gpu.gpu.bus for seen_gpu in seen.gpus}
    if not seen.inventory.notes:
        for pci_gpu in seen.pci:
            if pci_gpu.bus in buses or pci_gpu.apart:
                continue
            if pci_gpu.maker in seen.inventory.drivers:
                yield _missing(f"GPU at {pci_gpu.bus}", "not shown by the driver", _KERNEL)
            else:
                yield Wrong(
                    f"GPU at {pci_gpu.bus}",
                    "no driver to ask",
                    f"PCI shows a GPU at {pci_gpu.bus}, and no library of its driver is installed",
                    "",
                    "Install the driver, or bind the device to vfio-pci if it is a guest's.",
                    Says.NOT_KNOWN,
                )
    known = {pci_gpu.bus for pci_gpu in seen.pci}
    for gpu in context.like.gpus if context.like and not seen.inventory.notes else ():
        if gpu.bus not in buses | known:
            yield _missing(f"GPU {gpu.index}", f"not there ({gpu.bus})", "the inventory")
    for seen_gpu in seen.gpus:
        source = _DRIVERS[seen_gpu.gpu.vendor]
        if seen_gpu.error:
            yield _missing(_name(seen_gpu), "does not answer", source)
        for problem in seen_gpu.health.problems:
            if "bus" in problem or "answer" in problem or problem == "must be reset":
                yield _missing(_name(seen_gpu), problem, source)


def _missing(part: str, problem: str, source: str) -> Wrong:
    return Wrong(
        part,
        problem,
        "a GPU that should be here cannot be used, and jobs that get it fail",
        source,
        "Reboot the node. If it stays away, reseat or replace the GPU.",
    )


def kernel(context: CheckContext) -> Iterator[Wrong]:
    """The kernel's log names no fault of a GPU or NVSwitch since the driver was loaded."""
    seen = context.seen
    if seen.log is None:
        if seen.gpus or seen.pci:
            yield Wrong(
                "",
                "the kernel's log cannot be read",
                "only that log has the faults of the past",
                "",
                "Run this as root.",
                Says.NOT_KNOWN,
            )
        return
    gpu_by_bus = {seen_gpu.gpu.bus: seen_gpu for seen_gpu in seen.gpus}
    findings: dict[tuple[str, str], Wrong] = {}
    for event in seen.log:
        gpu = gpu_by_bus.get(event.device)
        if event.maker == "nvswitch":
            part = f"NVSwitch {event.device}"
        else:
            part = _name(gpu) if gpu else f"GPU at {event.device}" if event.device else "a GPU"
        is_settled = event.driver_decides and gpu and gpu.condition.recovery == "none"
        says = Says.YES if is_settled else event.says
        findings[part, event.problem] = Wrong(
            part, event.problem, _quoted(event), _KERNEL, event.do, says
        )
    harmless = [key for key, wrong in findings.items() if wrong.says is Says.YES]
    for key in harmless[:-_MAX_SHOWN_HARMLESS]:
        del findings[key]
    yield from findings.values()


def _quoted(event: KernelEvent) -> str:
    line = "".join(c if c.isprintable() else " " for c in event.line)[:200]
    return f"its log has: {line.rstrip('.')}"


def recovery(context: CheckContext) -> Iterator[Wrong]:
    """The driver asks for no reset and no reboot."""
    for seen_gpu in context.seen.gpus:
        action = seen_gpu.condition.recovery
        if action in ("", "none"):
            continue
        says = _RECOVERY_SAYS.get(action, Says.NOT_KNOWN)
        yield Wrong(
            _name(seen_gpu),
            f"needs {_RECOVERY_TEXTS.get(action, action)}",
            "the driver asks for it now, after an error",
            _DRIVERS[seen_gpu.gpu.vendor],
            "Do that, as nvidia-smi -q names it (GPU Recovery Action).",
            says,
        )


def errors(context: CheckContext) -> Iterator[Wrong]:
    """No uncorrected errors of a GPU's memory, and spare rows for those that broke."""
    for seen_gpu in context.seen.gpus:
        source, health = _DRIVERS[seen_gpu.gpu.vendor], seen_gpu.health
        if (health.ecc_uncorrected or 0) > context.limit:
            yield Wrong(
                _name(seen_gpu),
                f"{health.ecc_uncorrected} uncorrected memory errors",
                "results on this GPU may be wrong",
                source,
                "Reset the GPU; if it comes again, run the vendor's diagnosis and replace it.",
            )
        if health.row_remap == "failed":
            yield Wrong(
                _name(seen_gpu),
                "row remapping failed",
                "it has no spare row left for one that is broken",
                source,
                "Replace the GPU.",
            )
        elif health.row_remap == "pending":
            yield Wrong(
                _name(seen_gpu),
                "row remapping pending",
                "a row of its memory is broken, and the spare one is used after a reset",
                source,
                "Reset the GPU when no job uses it.",
                Says.YES,
            )


def links(context: CheckContext) -> Iterator[Wrong]:
    """Each GPU's NVLinks or XGMI links are up, as many and as fast as its siblings', and its PCIe
    link has all lanes.
    """
    gpus = [seen_gpu for seen_gpu in context.seen.gpus if not seen_gpu.error]
    most_up = max((sum(gpu.condition.nvlinks) for gpu in gpus), default=0)
    most_mbps = max((gpu.condition.mbps or 0 for gpu in gpus), default=0)
    like = {gpu.bus: max(gpu.links, default=0) for gpu in context.like.gpus} if context.like else {}
    for gpu in gpus:
        source, states = _DRIVERS[gpu.gpu.vendor], gpu.condition.nvlinks
        wanted = max(most_up, like.get(gpu.gpu.bus, 0))
        if sum(states) < wanted:
            kind = "XGMI link" if gpu.gpu.vendor == "amd" else "NVLink"
            down = ",".join(str(link) for link, is_up in enumerate(states) if not is_up)
            count = f"{sum(states)} {kind}s, not {wanted}"
            yield Wrong(
                _name(gpu),
                f"{kind} {down} down" if down else count,
                f"it has {sum(states)} links up, and should have {wanted}",
                source,
                _NVLINK_ADVICE,
            )
        if gpu.condition.mbps is not None and gpu.condition.mbps < most_mbps:
            yield Wrong(
                _name(gpu),
                f"NVLink at {gpu.condition.mbps} MB/s, not {most_mbps}",
                "its links came up at a lower speed than its siblings'",
                source,
                _NVLINK_ADVICE,
                Says.YES,
            )
        if gpu.condition.fabric == "failed":
            yield Wrong(
                _name(gpu),
                "NVLink fabric failed",
                "it has not joined the NVLink fabric, and CUDA does not start on it",
                source,
                "See Fabric Manager's log; reset the GPU.",
            )
        if 0 < gpu.link.width < gpu.link.widest:
            yield Wrong(
                _name(gpu),
                f"PCIe x{gpu.link.width}, not x{gpu.link.widest}",
                "copies between host and GPU are slower by that",
                _KERNEL,
                "Reboot; if it stays, reseat the GPU or its riser.",
                Says.YES,
            )


def adapters(context: CheckContext) -> Iterator[Wrong]:
    """Network adapters of the inventory are there, up and as fast, and have all PCIe lanes."""
    adapter_by_name = {nic.nic.name: nic for nic in context.seen.nics}
    for wanted in context.like.nics if context.like else ():
        seen_nic = adapter_by_name.get(wanted.name)
        if seen_nic is None:
            yield _adapter(wanted.name, "not there")
        elif wanted.up and not seen_nic.nic.up:
            yield _adapter(wanted.name, "down")
        elif seen_nic.nic.gbps < wanted.gbps:
            yield _adapter(wanted.name, f"{seen_nic.nic.gbps} Gb/s, not {wanted.gbps}")
    for name, seen_nic in adapter_by_name.items():
        link = seen_nic.link
        if seen_nic.nic.rdma and 0 < link.width < link.widest:
            yield _adapter(name, f"PCIe x{link.width}, not x{link.widest}", Says.YES)
        elif seen_nic.nic.rdma and 0 < link.speed < link.fastest:
            yield _adapter(name, f"PCIe {link.speed:g} GT/s, not {link.fastest:g}", Says.YES)


def _adapter(name: str, problem: str, says: Says = Says.NO) -> Wrong:
    return Wrong(
        f"adapter {name}",
        problem,
        "jobs over several nodes are slower through it, or fail",
        _KERNEL,
        "Look at cable, port and switch; reboot if the adapter is gone.",
        says,
    )
