"""The options of `podwright replay`."""

from __future__ import annotations

import argparse

from podwright.ground import option_rows as opt
from podwright.ground.option_rows import positive, seconds

_DEVICE_OPTIONS = opt.OptionGroup("which devices")
_WAY_OPTIONS = opt.OptionGroup("what to try")
_SLURM_OPTIONS = opt.OptionGroup("which Slurm")
_READING_OPTIONS = opt.OptionGroup("how to read")
_OUTPUT_OPTIONS = opt.OptionGroup("what to write")


def share_of_devices(text: str) -> float:
    """Parse a load, as an argparse type."""
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share of the devices, such as 1.3")
    return share


class ReplayOptions(opt.OptionTable):
    """The jobs, the devices, what is tried on them, and what is written."""

    trace = opt.optional_argument("sacct -P, CSV or SWF, also .gz; - for input", "TRACE", None)
    example = opt.flag("replay a synthetic month: nothing else is needed")
    fields = opt.flag("print the sacct command to run")
    pod = opt.optional("pod64 (the default), pod256 and so on", "POD", group=_DEVICE_OPTIONS)
    hosts = opt.optional(
        "hosts of the pod: their cores and memory bind", "COUNTxCPUS[xGB]", group=_DEVICE_OPTIONS
    )
    ways = opt.optional(
        "native, plugin, shared, static:8x4+2x16, host-mapping:4x16",
        "WAY,...",
        group=_WAY_OPTIONS,
    )
    policy = opt.optional(
        "how blocks are chosen: best-fit (the product's), lowest, moves, trim, no-shape",
        "POLICY,...",
        group=_WAY_OPTIONS,
    )
    movable = opt.value("100", "PERCENT", float, 100.0, group=_WAY_OPTIONS)
    move_time = opt.value("300", "SECONDS", seconds, 300.0, group=_WAY_OPTIONS)
    mtbf = opt.value("machines fail so often, each", "DAYS", float, None, group=_WAY_OPTIONS)
    seed = opt.value("of all chance, 1", "N", int, 1, group=_WAY_OPTIONS)
    load = opt.value(
        "stretch the times between submissions until the jobs ask for this share of the "
        "devices, as in 1.3",
        "SHARE",
        share_of_devices,
        None,
        group=_WAY_OPTIONS,
    )
    slurm_conf = opt.optional(
        "backfill and priorities as this slurm.conf has them", "FILE", group=_SLURM_OPTIONS
    )
    room_after = opt.value("300", "SECONDS", float, 300.0, group=_SLURM_OPTIONS)
    tres = opt.text("what counts as a device: gres/gpu, node ...", "NAME", group=_READING_OPTIONS)
    timezone = opt.optional("of sacct's times; this machine's", "ZONE", group=_READING_OPTIONS)
    json = opt.flag("all figures as JSON", group=_OUTPUT_OPTIONS)
    anonymise = opt.optional("only write the jobs without names", "FILE", group=_OUTPUT_OPTIONS)
    processes = opt.value("all cores", "N", positive, 0, group=_OUTPUT_OPTIONS)
