"""The meaning of each XID of NVIDIA's driver for the node: a fault of the job itself, or of a GPU.

Source: NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), its
columns of mnemonics and of immediate actions, as NVIDIA's NVSentinel has them in machine form. For
an XID that is not here, the catalog advises to ask NVIDIA: it warns and drains nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class Xid(NamedTuple):
    """level: that of the finding. means, do: sentences."""

    level: str
    means: str
    do: str


_CAUSED_BY_JOB = "The job's own program did this, or was ended by it; the GPU may be used again."
_CHECK_PROGRAM_ADVICE = "Nothing on the node. The owner of the job should look at the program."
_RESET_GPU_ADVICE = (
    "Reset the GPU (nvidia-smi --gpu-reset -i N); if it comes again, have it replaced."
)
_REBOOT_NODE_ADVICE = "Reboot the node; if it comes again, reseat the GPU or have it replaced."
_RESET_LINK_ADVICE = "Reset all GPUs of this NVLink; if it comes again, have the link looked at."
_ASK_NVIDIA_ADVICE = "Look into the kernel's log around it; ask NVIDIA if it comes again."

#: Engines for copies, video, JPEG and flow. Their errors end a program and nothing else.
_ENGINE_XIDS = (
    *(39, 40, 41, 60, 68, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89),
    *range(96, 106),
    *range(126, 136),
    139,
)

XIDS: dict[int, Xid] = {
    **dict.fromkeys(
        (8, 11, 13, 25, 32, 37, 38, 44, 66, 67, 69),
        Xid("note", _CAUSED_BY_JOB, _CHECK_PROGRAM_ADVICE),
    ),
    **dict.fromkeys(_ENGINE_XIDS, Xid("note", _CAUSED_BY_JOB, _CHECK_PROGRAM_ADVICE)),
    31: Xid(
        "note", "A program used memory of the GPU that it does not have.", _CHECK_PROGRAM_ADVICE
    ),
    43: Xid(
        "note", "A program's work on the GPU was stopped; the GPU goes on.", _CHECK_PROGRAM_ADVICE
    ),
    45: Xid(
        "note",
        "A program's work was removed from the GPU, as at every end by force.",
        _CHECK_PROGRAM_ADVICE,
    ),
    137: Xid(
        "note", "A program used memory of another GPU that it may not.", _CHECK_PROGRAM_ADVICE
    ),
    141: Xid("note", _CAUSED_BY_JOB, _CHECK_PROGRAM_ADVICE),
    63: Xid(
        "warn",
        "A row of its memory is to be replaced by a spare one.",
        "Reset the GPU when it is next idle: then the spare row is used.",
    ),
    92: Xid("warn", "Its memory corrects many single errors.", "Watch it; reset it when idle."),
    93: Xid("warn", "Its InfoROM was written more often than it should be.", _ASK_NVIDIA_ADVICE),
    94: Xid(
        "warn",
        "A memory error ended one program and was contained; other programs are not touched.",
        "Start that job again; reset the GPU when it is next idle.",
    ),
    121: Xid("warn", "An error between CPU and GPU (C2C) was corrected.", "Watch it."),
    154: Xid("warn", "The driver asks for an action on this GPU.", "See the check `recovery`."),
    46: Xid("fail", "The GPU stopped working on what it was given.", _RESET_GPU_ADVICE),
    48: Xid(
        "fail", "Its memory had an error of two bits, which cannot be corrected.", _RESET_GPU_ADVICE
    ),
    54: Xid("fail", "It has too little power.", "Check its power cable, then reboot the node."),
    62: Xid("fail", "The GPU's own controller stopped.", _RESET_GPU_ADVICE),
    64: Xid(
        "fail", "A row of its memory should have been replaced, and was not.", _RESET_GPU_ADVICE
    ),
    74: Xid("fail", "An NVLink had an error.", _RESET_LINK_ADVICE),
    78: Xid("fail", "A virtual GPU did not start.", "Compare the versions of driver and host."),
    79: Xid(
        "fail", "The GPU has fallen off the bus: the node cannot reach it.", _REBOOT_NODE_ADVICE
    ),
    95: Xid("fail", "A memory error was not contained: results may be wrong.", _RESET_GPU_ADVICE),
    109: Xid("fail", "The GPU did not change over to another program in time.", _RESET_GPU_ADVICE),
    110: Xid("fail", "The GPU's security engine reports a fault.", _RESET_GPU_ADVICE),
    119: Xid(
        "fail", "The GPU's system processor (GSP) does not answer the driver.", _RESET_GPU_ADVICE
    ),
    120: Xid("fail", "The GPU's system processor (GSP) stopped.", _RESET_GPU_ADVICE),
    136: Xid("fail", "An NVLink could not be trained.", _RESET_LINK_ADVICE),
    140: Xid("fail", "Its memory had an error that was not recovered from.", _RESET_GPU_ADVICE),
    143: Xid("fail", "The GPU could not be started.", _RESET_GPU_ADVICE),
    **dict.fromkeys(
        range(144, 151), Xid("fail", "An NVLink of the fifth kind failed.", _RESET_LINK_ADVICE)
    ),
    151: Xid("fail", "A key could not be exchanged for another.", "Restart the virtual machine."),
    155: Xid("fail", "An NVLink's software reports an error.", _RESET_LINK_ADVICE),
    156: Xid(
        "fail", "A part of the GPU was taken out of use and needs a reset.", _RESET_GPU_ADVICE
    ),
    158: Xid("fail", "The GPU timed out and cannot go on.", _RESET_GPU_ADVICE),
    160: Xid(
        "fail",
        "A channel of its memory was taken out of use and needs a reboot.",
        _REBOOT_NODE_ADVICE,
    ),
}


def xid(xid_number: int) -> Xid:
    """Return what is known about an XID."""
    return XIDS.get(
        xid_number,
        Xid("warn", "An error for which NVIDIA's catalog has no action.", _ASK_NVIDIA_ADVICE),
    )
