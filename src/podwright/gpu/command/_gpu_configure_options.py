"""The options of `podwright slurm configure` about nodes with GPUs."""

from __future__ import annotations

from podwright.ground import option_rows as opt
from podwright.ground.option_rows import seconds

#: Where `podwright slurm serve-lint` answers.
LINT_SOCKET = "/run/podwright-lint/lint.sock"
_GPU_OPTION_GROUP = opt.OptionGroup(
    "GPU clusters", "Nodes with GPUs, from an inventory (TOML or JSON), instead of a pod."
)


class GpuClusterOptions(opt.OptionTable, group=_GPU_OPTION_GROUP):
    """What is set up for GPUs. An empty text or None: not wanted."""

    gpus = opt.optional(
        "write gres.conf, node lines, partitions and topology.conf from this inventory; "
        "with --undo no file is needed",
        "FILE",
        nargs="?",
        const="",
    )
    autodetect = opt.choice(
        "off: gres.conf names every device file; nvml, rsmi: slurmd asks the driver, and "
        "must be built with it (off)",
        ("off", "nvml", "rsmi"),
        "off",
    )
    topology = opt.choice(
        "block: NVLink domains of several nodes, on Slurm 24.11 or newer; tree: switches; "
        "auto: the first of these that fits all nodes, on 25.05 or newer both where they differ "
        "(auto)",
        ("auto", "tree", "block", "none"),
        "auto",
    )
    confine = opt.flag("let jobs reach their own GPUs alone, by cgroups")
    imex = opt.flag(
        "write the nodes of each NVLink domain for NVIDIA's IMEX daemon: imex-DOMAIN.cfg; "
        "on Slurm 24.11 or newer each job gets a channel of its own (switch/nvidia_imex)"
    )
    health_check = opt.text(
        "a program on every node that Slurm runs each five minutes (HealthCheckProgram)", "PROGRAM"
    )
    lint = opt.choice(
        "read job scripts at submission, and tell users what is wrong, or refuse the job; "
        "needs no FILE. Podwright's service answers: podwright slurm serve-lint",
        ("warn", "refuse", "off"),
        None,
    )
    lint_socket = opt.text("where it answers", "PATH", LINT_SOCKET)
    health = opt.choice(
        "check nodes every five minutes, before and after jobs (podwright node health): warn "
        "says it in slurmd's log (the default), drain also drains ill nodes and gives well ones "
        "back",
        ("warn", "drain"),
        None,
        nargs="?",
        const="warn",
    )
    clean = opt.choice(
        "look before and after jobs whether ended jobs hold GPUs (podwright node clean): warn says "
        "it in slurmd's log, drain also drains the node until they are free (the default), end "
        "also ends the processes that provably belong to ended jobs",
        ("warn", "drain", "end"),
        None,
        nargs="?",
        const="drain",
    )
    efficiency = opt.value(
        "let each job's steps sample their GPUs, each 10 seconds or as said, for podwright "
        "slurm efficiency (TaskProlog)",
        "SECONDS",
        seconds,
        None,
        nargs="?",
        const=10.0,
    )
    node_podwright = opt.text("where podwright is on the nodes (where it is here)", "PROGRAM")
    slurm_version = opt.optional("of another Slurm than this machine's", "V")
    slurm = opt.text(
        "the Slurm whose slurmctld proves the files (this machine's, where it is of that release)",
        "PREFIX",
    )
    unproven = opt.flag(
        "do not start slurmctld privately to prove the files, and write them all the same"
    )
