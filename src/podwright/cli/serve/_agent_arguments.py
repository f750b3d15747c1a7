"""The options of `vipu-agent` with their help. Parser, manual page and completion follow from
them.
"""

from __future__ import annotations

import argparse
from typing import Annotated, Final, NamedTuple

from podwright import plugins
from podwright.cli.shared._arguments import any_port, positive, seconds
from podwright.cli.shared._option_fields import Opt

GPUS: Final = "GPUs of this machine"
SIMULATED: Final = "simulated devices"
#: The guards of Podwright; other packages add more.
GUARDS: Final = ("fabric-manager", "imex", "cgroups", "files")


def guards(text: str) -> tuple[str, ...]:
    """Return the guards that --guard names."""
    names = tuple(filter(None, text.split(",")))
    for name in names:
        if name not in GUARDS and name not in plugins.names(plugins.GUARDS):
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(GUARDS)}")
    return names


def link(text: str) -> tuple[str, str]:
    """Return a cable of a simulated machine: its port, and the machine at its other end."""
    left, sign, right = text.partition("=")
    if left not in ("up", "down", "gw-up", "gw-down") or not sign or not right:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not up=MACHINE, down=MACHINE, gw-up=MACHINE or gw-down=MACHINE"
        )
    return left, right


class AgentArguments(NamedTuple):
    """The arguments of `vipu-agent`."""

    machine: Annotated[str | None, Opt("what to call it; the host's name", metavar="NAME")] = None
    host: Annotated[str, Opt("address to answer at, 127.0.0.1")] = "127.0.0.1"
    port: Annotated[int, Opt("port, 8080; 0 for any free one", read=any_port)] = 8080
    server: Annotated[
        str | None, Opt("announce this machine there, to be discovered", metavar="HOST:PORT")
    ] = None
    agent_key: Annotated[
        str | None,
        Opt(
            "a key that the server has, too; without it one of this account's, for the server on "
            "this machine alone",
            metavar="FILE",
        ),
    ] = None
    tls_certs: Annotated[
        str | None,
        Opt(
            "folder with ca.pem, cert.pem and key.pem: speak TLS, with a secure server alone",
            metavar="DIR",
        ),
    ] = None
    state: Annotated[str | None, Opt("what it must not forget", metavar="FILE")] = None
    system: Annotated[
        bool,
        Opt(
            "be an agent of this machine's server (vipu-server --system): share its key, keep "
            "state in /var/lib/podwright"
        ),
    ] = False
    family: Annotated[
        str, Opt("kind of devices: ipu, hgx8, nvl72, gpu1, gpu2, pool8 and so on")
    ] = ""
    driver: Annotated[
        str | None, Opt("serve the devices of a driver that a package adds", metavar="NAME")
    ] = None
    gpus: Annotated[bool, Opt("serve them, by NVML or AMD SMI", GPUS)] = False
    guard: Annotated[
        tuple[str, ...],
        Opt(
            "what keeps others from a partition's GPUs, beside what programs are told to see: "
            "fabric-manager (NVSwitch), imex (its channel), cgroups (programs of poprun open "
            "their partition's alone), files (their owner); several with commas",
            GPUS,
            "NAMES",
            read=guards,
        ),
    ] = ()
    fmpm: Annotated[str, Opt("NVIDIA's client of Fabric Manager", GPUS, "FILE")] = "fmpm"
    reset: Annotated[
        bool, Opt("reset GPUs by the vendor's command when they change hands", GPUS)
    ] = False
    devices: Annotated[int | None, Opt("how many; IPU: 4", SIMULATED, "N", read=positive)] = None
    serial: Annotated[str, Opt("what its chip ids begin with", SIMULATED, "S")] = ""
    link: Annotated[
        tuple[tuple[str, str], ...],
        Opt(
            "what a cable leads to: up, down, gw-up, gw-down; may be given several times",
            SIMULATED,
            "PORT=MACHINE",
            read=link,
            repeated=True,
        ),
    ] = ()
    delay: Annotated[
        float | None, Opt("seconds that configure and reset take", SIMULATED, "S", read=seconds)
    ] = None
    http_port: Annotated[
        int | None,
        Opt(
            "HTTP to read only: /healthz and /metrics; 0 for any free one",
            metavar="PORT",
            read=any_port,
        ),
    ] = None
    http_host: Annotated[str, Opt("its address, 127.0.0.1", metavar="HOST")] = "127.0.0.1"
    verbose: Annotated[int, Opt("say more", short="-v", counted=True)] = 0
