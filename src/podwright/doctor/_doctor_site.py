"""The findings of `podwright doctor` on this machine beside launching.

They concern the server with its store and agents, Slurm, Kubernetes and GPUs. It starts nothing and
changes nothing. Software that is not installed has no row and is not a problem: most machines have
neither Slurm nor Kubernetes.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from podwright.client import Client, FoundServer, LocalServers, ServerOptions, find_server
from podwright.errors import PodwrightError
from podwright.hosts import OK, PROBLEM, WARNING, DoctorFinding

#: The seconds that the server, and each command of Slurm's and of Kubernetes', has to answer.
_PATIENCE = 10.0
_SHOWN = 5  # the limit of machines that are named


class _NothingStarted(Exception):
    """There is no server, and doctor starts none."""


def site_findings(environ: Mapping[str, str]) -> list[DoctorFinding]:
    """Return a finding for each service that this machine has, or should have."""
    return [*_server(environ), *_slurm(), *_kubernetes(environ), *_gpus(environ)]


def _server(environ: Mapping[str, str]) -> list[DoctorFinding]:
    places = LocalServers.running(_NothingStarted())
    try:
        server = find_server(ServerOptions(), environ, timeout=_PATIENCE, places=places)
    except _NothingStarted:
        words = "none runs; the first command that needs one starts one for you"
        return [DoctorFinding("server", "answers", OK, words)]
    except PodwrightError as error:
        return [DoctorFinding("server", "answers", PROBLEM, error.problem, error.would_work)]
    with server.client as client:
        return [_answers(server), _store(server), _agents(client)]


def _answers(server: FoundServer) -> DoctorFinding:
    info = server.info
    words = f"{server.address}, version {info.version}; you are {info.caller} ({info.role})"
    if info.standby:
        todo = f"ask the active one: {info.active}" if info.active else "wait for an active one"
        return DoctorFinding("server", "answers", WARNING, f"{words}; it stands by", todo)
    return DoctorFinding("server", "answers", OK, words)


def _store(server: FoundServer) -> DoctorFinding:
    if server.info.read_only:
        todo = "make room on the store's disk; the server then takes changes again by itself"
        return DoctorFinding("server", "store", PROBLEM, server.info.read_only, todo)
    return DoctorFinding("server", "store", OK, "it takes changes")


def _agents(client: Client) -> DoctorFinding:
    try:
        devices = client.list_devices()
    except PodwrightError as error:
        return DoctorFinding("server", "agents", WARNING, error.problem, error.would_work)
    states = Counter(device.state for device in devices)
    silent = sorted({d.device.machine for d in devices if d.state == "DOWN"})
    total = len({d.device.machine for d in devices})
    if silent:
        names = ", ".join(silent[:_SHOWN])
        words = f"{len(silent)} of {total} machines do not answer: {names}"
        todo = f"vipu-admin get agent {silent[0]} says why; systemctl status vipu-agent there"
        return DoctorFinding("server", "agents", PROBLEM, words, todo)
    if not devices:
        todo = "vipu-admin create agent, then vipu-admin create cluster"
        return DoctorFinding("server", "agents", WARNING, "there is no machine yet", todo)
    shares = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return DoctorFinding("server", "agents", OK, f"{total} machines answer; devices: {shares}")


def _slurm() -> list[DoctorFinding]:
    if shutil.which("scontrol") is None:
        return []
    printed = _run(["scontrol", "ping"])
    if printed is None or "is UP" not in printed:
        words = printed.splitlines()[0] if printed else "slurmctld does not answer"
        todo = "scontrol ping, and the log of slurmctld, say why"
        return [DoctorFinding("Slurm", "slurmctld", PROBLEM, words, todo)]
    controller = DoctorFinding("Slurm", "slurmctld", OK, printed.splitlines()[0])
    if "podwright" in (_run(["scontrol", "show", "config"]) or ""):
        words, todo = "native mode is set up", "podwright slurm check proves it by small jobs"
    else:
        words = "Podwright is not set up in slurm.conf; the tools for GPU clusters need no set-up"
        todo = "podwright slurm configure shows what a pod would need"
    return [controller, DoctorFinding("Slurm", "set-up", OK, words, todo)]


def _kubernetes(environ: Mapping[str, str]) -> list[DoctorFinding]:
    config = environ.get("KUBECONFIG") or str(Path(environ.get("HOME", "/")) / ".kube/config")
    if shutil.which("kubectl") is None or not Path(config.split(":")[0]).exists():
        return []
    printed = _run(
        ["kubectl", "get", "crd", "ipujobs.graphcore.ai", "--ignore-not-found", "-oname"]
    )
    if printed is None:
        words, todo = "the API server does not answer", "kubectl version says why"
        return [DoctorFinding("Kubernetes", "API server", PROBLEM, words, todo)]
    if printed.strip():
        return [DoctorFinding("Kubernetes", "IPUJobs", OK, "the cluster knows IPUJobs")]
    todo = "podwright kubernetes manifests | kubectl apply -f -"
    return [DoctorFinding("Kubernetes", "IPUJobs", WARNING, "it knows no IPUJobs", todo)]


def _gpus(environ: Mapping[str, str]) -> list[DoctorFinding]:
    from podwright.hosts.gpus import take_inventory

    if not Path("/dev/nvidiactl").exists() and not Path("/dev/kfd").exists():
        return []
    try:
        machine = take_inventory(environ)
    except PodwrightError as error:
        return [DoctorFinding("this machine", "GPUs", PROBLEM, error.problem, error.would_work)]
    notes = "; ".join(machine.notes)
    if not machine.gpus:
        words = f"a driver is loaded, and no GPU answers: {notes}"
        todo = "podwright inventory, and nvidia-smi or rocm-smi, say why"
        return [DoctorFinding("this machine", "GPUs", PROBLEM, words, todo)]
    todo = "podwright node health checks each of them"
    words = f"{len(machine.gpus)} answer" + (f"; {notes}" if notes else "")
    return [DoctorFinding("this machine", "GPUs", OK, words, todo)]


def _run(words: Sequence[str]) -> str | None:
    """Return what a command prints; None when it fails or does not answer in time."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
