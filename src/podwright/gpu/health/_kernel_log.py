"""What the kernel's log says of GPUs and NVSwitches. Pure.

The words of a line decide, and never its number: the same Xid may be a program's fault on one chip
and a broken link on the next. Where the words of an Xid say nothing, the driver decides by what it
asks for now; where it does not tell that, the answer is not known. Names of programs are cut out
first, since users choose them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from podwright.ground.judgement import Says

_RESET = "Reset the GPU (nvidia-smi --gpu-reset -i N), or reboot the node."
_REBOOT = "Reboot the node; if it comes again, reseat the GPU or have it replaced."
_REPLACE = "Run the vendor's diagnosis; if it comes again, have the GPU replaced."
_AMD_RESET = "Reboot the node; amd-smi ras shows what was counted. If it comes again, replace it."
_SWITCH_RESET = "Reset all GPUs and switches (nvidia-smi -r without jobs), or reboot the node."
_RESET_BEGUN = "a reset has begun and not ended"
_LOOK = "Look at nvidia-smi -q; reset the GPU if it does not answer or its jobs fail."
_WATCH = "Nothing now. Look at the program, or at the part that the line names, if it comes often."


class KernelEvent(NamedTuple):
    """A line that names a fault, or may.

    maker: `nvidia`, `nvswitch` or `amd`. device: the PCI address, or the number of a switch; empty
    where the line has none. problem: a few words. uptime: seconds after the node's start. driver_
    decides: a driver that now asks for nothing outranks the line. lasting: no reset mends it.
    """

    maker: str
    device: str
    says: Says
    problem: str
    do: str
    line: str
    uptime: float = 0.0
    driver_decides: bool = False
    lasting: bool = False
    at_probe: bool = False


class _Rule(NamedTuple):
    pattern: str
    says: Says
    problem: str
    do: str
    driver_decides: bool = False
    lasting: bool = False


#: The first rule that matches an NVRM line decides.
_NVIDIA_RULES = (
    _Rule("fallen off the bus", Says.NO, "has fallen off the bus", _REBOOT),
    _Rule("requiring os reboot", Says.NO, "needs a reboot of the node", _REBOOT),
    _Rule("reset required|NV_ERR_RESET_REQUIRED|RST: Yes", Says.NO, "needs a reset", _RESET),
)
#: And these in a line with an Xid alone.
_XID_RULES = (
    _Rule("caused by previous Xid", Says.YES, "", _WATCH),
    *_NVIDIA_RULES,
    _Rule(r"\buncontained\b", Says.NO, "memory error that was not contained", _RESET),
    _Rule(r"\bcontained\b", Says.YES, "memory error that was contained", _WATCH),
    _Rule(
        r"\bGSP\b.*\b(?:error|crash|exception|halt|panic)|waiting for RPC response from .*GSP",
        Says.NO,
        "its system processor (GSP) does not answer",
        _RESET,
        driver_decides=True,
    ),
    _Rule(r"\bnon-?fatal\b", Says.YES, "error that is not fatal", _WATCH),
    _Rule(r"\bfatal\b", Says.NO, "fatal error", _RESET),
    _Rule(r"uncorrectable|double bit|\bDBE\b", Says.NO, "uncorrected memory error", _REPLACE),
    _Rule("marked for remapping|pending retirement", Says.YES, "memory to be replaced", _WATCH),
    # What a program did, or what became of its channel: nothing else is in such a line.
    _Rule(r"\bMMU fault\b|\bexception\b|(?:\bCh|channel)(?: ID)? \w+$", Says.YES, "", _WATCH),
    _Rule("", Says.NOT_KNOWN, "", _LOOK, driver_decides=True),
)
_AMD_RULES = (
    _Rule(
        r"bad pages?[ (]\d+\)? reaches threshold|exceeding the bad_page_threshold",
        Says.NO,
        "has no spare pages of memory left",
        "Have the GPU replaced.",
        lasting=True,
    ),
    _Rule(
        r"(?<!\b0 )(?<!\b0 new )\buncorrectable hardware error",
        Says.NO,
        "uncorrected hardware error",
        _AMD_RESET,
    ),
    _Rule(
        r"GPU reset\(\d+\) failed|GPU recovery failed|GPU reset end with ret = -|wedged, needs",
        Says.NO,
        "its reset failed",
        _AMD_RESET,
    ),
    _Rule("lost from bus", Says.NO, "has fallen off the bus", _REBOOT),
    _Rule("fatal error during GPU init", Says.NO, "did not start", _REBOOT),
    _Rule("GPU reset begin", Says.NO, _RESET_BEGUN, _AMD_RESET),
    _Rule(r"ring \S+ timeout", Says.YES, "a program's work did not end in time", _WATCH),
)
#: A slice (MIG) has more words between the brackets.
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-f:.]+)[^)]*\): (\d+),? ?(.*)", re.I | re.S)
#: The error of an NVSwitch: NVIDIA's Fabric Manager user guide, "NVSwitch SXid errors". A line with
#: other words than these two continues the one before.
_SXID = re.compile(r"nvidia-nvswitch(\d+): SXid \(PCI:\S+\): (\d+), (Fatal|Non-fatal)(?:, (.*))?")
_RECOVERY = re.compile(r"recovery action changed from .* to 0x[0-9a-f]+ \(([^)]*)\)", re.I)
_ADDRESS = re.compile(r"\b([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)\b", re.I)
#: A program's name has at most 15 characters, and may have commas.
_PROGRAM_NAME = re.compile(r"name=(?:.{0,15}, |.{0,15}$)", re.S)
_AMD_RESET_WORKED = re.compile(r"GPU reset\(\d+\) succeeded|wedged, but recovered")
#: The parts of a sentence that the driver prints in three lines.
_SENTENCE_GOES_ON = re.compile(r"NVRM: The NVIDIA GPU \S+$|NVRM: \(PCI ID: ")
_AMD_PROCESS = re.compile(r"\bprocess .*\bpid\b", re.I)


def is_relevant(record: bytes) -> bool:
    """Whether a line of the log may name a fault; most of a log's thousands do not."""
    return b"NVRM" in record or b"nvidia" in record or b"amdgpu" in record


def read_events(records: Iterable[str]) -> list[KernelEvent]:
    """The events since the drivers were loaded. records: lines as /dev/kmsg has them."""
    reader = _Reader()
    for record in records:
        header, _, text = record.partition(";")
        fields = header.split(",")
        is_dated = len(fields) > 2 and fields[2].isdigit()
        reader.take(text.strip(), int(fields[2]) / 1e6 if is_dated else 0.0)
    return reader.events


class _Reader:
    def __init__(self) -> None:
        self.events: list[KernelEvent] = []
        self._named_gpu = ""  # by a line whose sentence goes on in the next
        self._probing = False  # the NVIDIA driver is being loaded
        self._loaded_count = 0  # events when it was loaded last

    def take(self, text: str, uptime: float) -> None:
        if text.startswith("NVRM: loading NVIDIA"):
            self._nvidia_loaded()
        elif text.startswith("NVRM:"):
            self._take_nvidia(text, uptime)
        elif text.startswith("nvidia-nvlink: Nvlink Core is being initialized"):
            self._forget("nvidia", "nvswitch")
            self._probing = True
        elif switch := _SXID.match(text):
            number, sxid, severity, words = switch.groups()
            problem = f"SXid {sxid} {severity}" + (f", {words.strip()}" if words else "")
            says, do = (Says.NO, _SWITCH_RESET) if severity == "Fatal" else (Says.YES, _WATCH)
            self.events.append(KernelEvent("nvswitch", number, says, problem, do, text, uptime))
        elif text.startswith(("amdgpu", "[drm")):
            self._take_amd(text, uptime)

    def _forget(self, *makers: str) -> None:
        self.events = [event for event in self.events if event.maker not in makers]

    def _nvidia_loaded(self) -> None:
        """The driver prints this once it has looked at all of its GPUs.

        What it said while it did so stays, where the log still has the beginning of that or not.
        """
        if not self._probing:
            probed = [event for event in self.events[self._loaded_count :] if event.at_probe]
            self._forget("nvidia", "nvswitch")
            self.events += probed
        self._probing = False
        self._loaded_count = len(self.events)

    def _take_nvidia(self, text: str, uptime: float) -> None:
        plain = _PROGRAM_NAME.sub("", text)
        xid, named = _XID.match(plain), _ADDRESS.search(plain)
        address = xid[1] if xid else named[1] if named else ""
        device = kernel_address(address) if address else self._named_gpu
        self._named_gpu = device if _SENTENCE_GOES_ON.match(text) else ""
        if recovery := _RECOVERY.search(plain):
            self._take_recovery(device, recovery[1], text, uptime)
            return
        rule = _first(_XID_RULES if xid else _NVIDIA_RULES, plain)
        if rule is None:
            return
        number = f"Xid {xid[2]}" if xid else ""
        words = [rule.problem, f"({number})" if rule.problem and number else number]
        problem = " ".join(filter(None, words))
        self.events.append(
            KernelEvent(
                *("nvidia", device, rule.says, problem, rule.do, text, uptime),
                driver_decides=rule.driver_decides,
                at_probe="is not responding to commands" in text,
            )
        )

    def _take_recovery(self, device: str, action: str, text: str, uptime: float) -> None:
        """The newest action counts; with `None` the driver takes its request back."""
        self.events = [
            event
            for event in self.events
            if event.device != device or not _RECOVERY.search(event.line)
        ]
        if action.lower() == "none":
            return
        # The request is about the nodes that share memory, and not about this GPU.
        is_domain = "imex" in action.lower()
        self.events.append(
            KernelEvent(
                *("nvidia", device, Says.YES if is_domain else Says.NO),
                f"the driver asks for: {action}",
                "Do what it asks for, as nvidia-smi -q names it (GPU Recovery Action).",
                *(text, uptime),
            )
        )

    def _take_amd(self, text: str, uptime: float) -> None:
        if "amdgpu kernel modesetting enabled" in text:
            self._forget("amd")
            return
        if _AMD_PROCESS.search(text):
            return
        named = _ADDRESS.search(text)
        device = kernel_address(named[1]) if named else ""
        if _AMD_RESET_WORKED.search(text):
            self.events = [
                event._replace(says=Says.YES, problem=f"{event.problem}; a reset mended it")
                if event.maker == "amd" and event.device == device and not event.lasting
                else event
                for event in self.events
                if event.problem != _RESET_BEGUN or event.device != device
            ]
        elif rule := _first(_AMD_RULES, text):
            self.events.append(
                KernelEvent(
                    *("amd", device, rule.says, rule.problem, rule.do, text, uptime),
                    lasting=rule.lasting,
                )
            )


def _first(rules: Iterable[_Rule], text: str) -> _Rule | None:
    return next((rule for rule in rules if re.search(rule.pattern, text, re.I)), None)


def kernel_address(address: str) -> str:
    """Return `0000:3b:00`, `00000000:3B:00` and `0000:3B:00.0` in the kernel's form."""
    domain, _, rest = address.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}{'' if '.' in rest else '.0'}"
