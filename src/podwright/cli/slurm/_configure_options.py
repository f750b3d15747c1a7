"""The options of `podwright slurm configure`: about a pod, about GPU clusters, and what to do."""

from __future__ import annotations

from podwright import option_rows as opt
from podwright.cli.slurm._serve import FOLDER
from podwright.cli.slurm._submission import SOCKET
from podwright.option_rows import seconds

NATIVE = "/usr/local/lib/podwright"
_MODES = ("native", "plugin", "host-mapping", "static", "shared")
_GPUS = opt.OptionGroup(
    "GPU clusters", "Nodes with GPUs, from an inventory (TOML or JSON), instead of a pod."
)


class _PodOptions(opt.OptionTable):
    """Options about a pod."""

    mode = opt.choice(
        "how jobs get devices: native; plugin (native, and jobs written for Graphcore's "
        "Slurm run unchanged); host-mapping, static or shared (docs: choosing a way)",
        _MODES,
        "native",
    )
    slurm_conf = opt.text("", "FILE", "/etc/slurm/slurm.conf")
    pod = opt.several(
        "what Slurm schedules, named for --gres=vipu:TYPE; may be given several times "
        "(default: all clusters). FEATURE: of the nodes that reach it, where not all do",
        "TYPE=CLUSTER[/ALLOCATION][@FEATURE]",
        str,
    )
    mapping = opt.optional("host-mapping: lines of host:machine,machine", "FILE")
    partition = opt.several(
        "static: a partition to hand over, may be given several times (default: all that "
        "are not reconfigurable); shared: the one (default: the only reconfigurable one)",
        "NAME",
        str,
    )
    server = opt.text(
        "vipu-server's Unix socket, or tcp:HOST:PORT[,HOST:PORT] where it is on other hosts",
        "WHERE",
    )
    server_config = opt.text(
        "with tcp:, settings like /etc/vipu/vipu-cli.hcl that say who `slurm serve` is there: "
        "a user's key, certificates (default: MUNGE says it)",
        "FILE",
    )
    host = opt.optional(
        "where jobs reach vipu-server (the first of tcp:, or SlurmctldHost; localhost where "
        "slurm.conf has no node on another host)"
    )
    port = opt.value("its port (the server's own, or the first one's of tcp:)", None, int, None)
    slurm_user = opt.optional("who runs `slurm serve`, if neither root nor SlurmUser", "USER")
    listen = opt.text(
        "where `slurm serve` is reached by steps on nodes, and by hooks where it stands on "
        "another host than slurmctld: each shows a MUNGE credential (default: slurmctld's host and "
        "port 8092, where nodes are other hosts; several, with commas, where there are several)",
        "HOST:PORT",
    )
    munge_socket = opt.text("if not MUNGE's usual", "PATH")
    key = opt.text(
        "by which hooks and steps prove themselves over TCP instead of by MUNGE; made where "
        "there is none (default: hook.key in --folder where slurm.conf says auth/slurm)",
        "FILE",
    )
    metrics = opt.text(
        "where `slurm serve` has figures for Prometheus, such as 127.0.0.1:8093", "HOST:PORT"
    )
    on_failure = opt.choice(
        "a job whose machine failed stays as it is, goes back to the queue, or its partition "
        "moves to healthy devices",
        ("stay", "requeue", "relocate"),
        "stay",
    )
    room_after = opt.value(
        "how long the first job in the queue waits for devices before a block is emptied for "
        "it, 300; 0: small jobs may pass it for ever",
        "SECONDS",
        float,
        300.0,
    )
    default_ipus = opt.optional(
        "devices of a job that does not say how many; `ask`: it is refused with what to type "
        "(default: 0, under --mode shared ask)",
        "N",
    )
    folder = opt.text("for Podwright's own files", "DIR", FOLDER)
    native = opt.text("where `build` put its own", "DIR", NATIVE)
    hooks_socket = opt.text(
        "where `slurm serve` answers hooks: in a folder of its own",
        "PATH",
        "/run/podwright-slurm/slurm.sock",
    )


class _GpuOptions(_PodOptions, group=_GPUS):
    """Options about nodes with GPUs."""

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
    lint_socket = opt.text("where it answers", "PATH", SOCKET)
    health = opt.choice(
        "check nodes every five minutes, before and after jobs (podwright node health): warn "
        "says it in slurmd's log (the default), drain also drains ill nodes and gives well ones "
        "back",
        ("warn", "drain"),
        None,
        nargs="?",
        const="warn",
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
    summary = opt.choice(
        "write what each job made of its GPUs at its end (Epilog): comment: into its "
        "AdminComment (the default), output: as the last line of its standard output, or both",
        ("comment", "output", "both"),
        None,
        "WHERE",
        nargs="?",
        const="comment",
    )
    summary_folder = opt.text(
        "where nodes note jobs that have ended (/run/podwright/ended)",
        "DIR",
        "/run/podwright/ended",
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


class SetupOptions(_GpuOptions):
    """All options of `configure`."""

    diff = opt.flag("print every line that would change")
    write = opt.flag("do it", rivals="group")
    undo = opt.flag("take it back", rivals="group")
