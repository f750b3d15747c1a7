"""The options of `podwright slurm configure` about a pod."""

from __future__ import annotations

import os

from podwright.ground import option_rows as opt
from podwright.ground.endpoints import system_path

#: Where a set-up has its own files, and where `podwright slurm build` puts what it compiles.
SITE_FOLDER = "/etc/podwright/slurm"
NATIVE = "/usr/local/lib/podwright"
_PACKAGED = "/usr/lib/podwright/slurm"
_SITE_MODES = ("native", "plugin", "host-mapping", "static", "shared")


def native_folder() -> str:
    """Return where the hook and the plugin are: made by `build`, or from the package."""
    packaged = not os.path.isdir(NATIVE) and os.path.isdir(system_path(_PACKAGED))
    return _PACKAGED if packaged else NATIVE


class PodSetupOptions(opt.OptionTable):
    """What a site follows from: see Site. An empty text or None: what the server, slurm.conf or the
    mode imply.
    """

    mode = opt.choice(
        "how jobs get devices: native; plugin (native, and jobs written for Graphcore's "
        "Slurm run unchanged); host-mapping, static or shared (docs: choosing a way)",
        _SITE_MODES,
        "native",
        "MODE",
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
        "vipu-server's Unix socket, or tcp:HOST:PORT[,HOST:PORT] where it is on other hosts "
        "(default: PODWRIGHT_SOCKET, then the system's socket)",
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
    munge_socket = opt.text("MUNGE's socket, if it is not the usual one", "PATH")
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
    folder = opt.text("for Podwright's own files", "DIR", SITE_FOLDER)
    native = opt.text(
        "where `build` put the hook and the plugin; those of the package podwright-slurm are found",
        "DIR",
        native_folder(),
    )
    hooks_socket = opt.text(
        "the Unix socket on which `slurm serve` answers hooks; nothing else is in its folder",
        "PATH",
        "/run/podwright-slurm/slurm.sock",
    )
