"""The options of `vipu-agent` with their help. Parser, manual page and completion follow from
them.
"""

from __future__ import annotations

import argparse

from podwright.ground import option_rows as opt
from podwright.ground import plugins
from podwright.ground.option_rows import any_port, positive, seconds

GPUS = opt.OptionGroup("GPUs of this machine")
SIMULATED_OPTION_GROUP = opt.OptionGroup("simulated devices")
#: The guards of Podwright; other packages add more.
GUARDS = ("fabric-manager", "imex", "cgroups", "files")


def guards(comma_separated: str) -> tuple[str, ...]:
    """Return the guards that --guard names."""
    guard_names = tuple(filter(None, comma_separated.split(",")))
    for name in guard_names:
        if name not in GUARDS and name not in plugins.names(plugins.GUARDS):
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(GUARDS)}")
    return guard_names


def link(cable_text: str) -> tuple[str, str]:
    """Return a cable of a simulated machine: its port, and the machine at its other end."""
    port, sign, machine = cable_text.partition("=")
    if port not in ("up", "down", "gw-up", "gw-down") or not sign or not machine:
        raise argparse.ArgumentTypeError(
            f"{cable_text!r} is not up=MACHINE, down=MACHINE, gw-up=MACHINE or gw-down=MACHINE"
        )
    return port, machine


class AgentArguments(opt.OptionTable):
    """The options of `vipu-agent`."""

    machine = opt.optional("what to call it; the host's name", "NAME")
    host = opt.text("address to answer at, 127.0.0.1", default="127.0.0.1")
    port = opt.value("port, 8080; 0 for any free one", None, any_port, 8080)
    server = opt.optional("announce this machine there, to be discovered", "HOST:PORT")
    agent_key = opt.path(
        "a key that the server has, too; without it one of this account's, for the server on "
        "this machine alone",
        "FILE",
    )
    tls_certs = opt.path(
        "folder with ca.pem, cert.pem and key.pem: speak TLS, with a secure server alone", "DIR"
    )
    state = opt.optional("what it must not forget", "FILE")
    system = opt.flag(
        "be an agent of this machine's server (vipu-server --system): share its key, keep "
        "state in /var/lib/podwright"
    )
    family = opt.text("kind of devices: ipu, hgx8, nvl72, gpu1, gpu2, pool8 and so on")
    driver = opt.optional("serve the devices of a driver that a package adds", "NAME")
    gpus = opt.flag("serve them, by NVML or AMD SMI", group=GPUS)
    guard = opt.value(
        "what keeps other programs from a partition's GPUs, beside the variables that hide them: "
        "fabric-manager (NVSwitch), imex (its channel), cgroups (programs of poprun open "
        "their partition's alone), files (their owner); several with commas",
        "NAMES",
        guards,
        (),
        group=GPUS,
    )
    fmpm = opt.text("NVIDIA's client of Fabric Manager", "FILE", "fmpm", group=GPUS)
    reset = opt.flag("reset GPUs by the vendor's command when they change hands", group=GPUS)
    devices = opt.value("how many; IPU: 4", "N", positive, None, group=SIMULATED_OPTION_GROUP)
    serial = opt.text("what its chip ids begin with", "S", group=SIMULATED_OPTION_GROUP)
    link = opt.several(
        "what a cable leads to: up, down, gw-up, gw-down; may be given several times",
        "PORT=MACHINE",
        link,
        group=SIMULATED_OPTION_GROUP,
    )
    delay = opt.value(
        "seconds that configure and reset take", "S", seconds, None, group=SIMULATED_OPTION_GROUP
    )
    http_port = opt.value(
        "HTTP to read only: /healthz and /metrics; 0 for any free one", "PORT", any_port, None
    )
    http_host = opt.text("its address, 127.0.0.1", "HOST", "127.0.0.1")
    verbose = opt.count("say more", name="-v --verbose")
