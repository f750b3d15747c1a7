"""The options of `podwright replay`."""

from __future__ import annotations

import argparse

from podwright import option_rows as opt
from podwright.option_rows import positive, seconds

_WHERE = opt.OptionGroup("which devices")
_WAYS = opt.OptionGroup("what to try")
_GUESTS = opt.OptionGroup("who shares the pod")
_SLURM = opt.OptionGroup("which Slurm")
_READ = opt.OptionGroup("how to read")
_OUT = opt.OptionGroup("what to write")


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
    pod = opt.optional("pod64 (the default), pod256 and so on", "POD", group=_WHERE)
    gpus = opt.optional("GPU nodes instead: a cluster's TOML file", "FILE", group=_WHERE)
    hosts = opt.optional(
        "hosts of the pod: their cores and memory bind", "COUNTxCPUS[xGB]", group=_WHERE
    )
    ways = opt.optional(
        "native, plugin, shared, static:8x4+2x16, host-mapping:4x16; for GPUs shared, exclusive",
        "WAY,...",
        group=_WAYS,
    )
    policy = opt.optional(
        "how blocks are chosen: best-fit (the product's), lowest, moves, trim, no-shape",
        "POLICY,...",
        group=_WAYS,
    )
    movable = opt.value("100", "PERCENT", float, 100.0, group=_WAYS)
    move_time = opt.value("300", "SECONDS", seconds, 300.0, group=_WAYS)
    mtbf = opt.value("machines fail so often, each", "DAYS", float, None, group=_WAYS)
    seed = opt.value("of all chance, 1", "N", int, 1, group=_WAYS)
    load = opt.value(
        "stretch the times between submissions until the jobs ask for this share of the "
        "devices, as in 1.3",
        "SHARE",
        share_of_devices,
        None,
        group=_WAYS,
    )
    guests = opt.several(
        "another trace on the same pod, of kubernetes, 'kubernetes NAME' or people, while "
        "TRACE is Slurm's; may be given several times",
        "NAME=FILE",
        str,
        name="--with",
        group=_GUESTS,
    )
    share = opt.several(
        "the weight of a guest, as of vipu-server (1 each), as in slurm=3; may be given "
        "several times",
        "NAME=N",
        str,
        group=_GUESTS,
    )
    part = opt.several(
        "what the guest would have alone, were the pod split (in proportion to the weights); "
        "may be given several times",
        "NAME=DEVICES",
        str,
        group=_GUESTS,
    )
    slurm_conf = opt.optional(
        "backfill and priorities as this slurm.conf has them", "FILE", group=_SLURM
    )
    room_after = opt.value("300", "SECONDS", float, 300.0, group=_SLURM)
    tres = opt.text("what counts as a device: gres/gpu, node ...", "NAME", group=_READ)
    timezone = opt.optional("of sacct's times; this machine's", "ZONE", group=_READ)
    json = opt.flag("all figures as JSON", group=_OUT)
    html = opt.optional("one self-contained page", "FILE", group=_OUT)
    anonymise = opt.optional("only write the jobs without names", "FILE", group=_OUT)
    processes = opt.value("all cores", "N", positive, 0, group=_OUT)
    no_what_if = opt.flag("try nothing but what was asked", group=_OUT)
