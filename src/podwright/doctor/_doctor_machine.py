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
from podwright.ground.plural import counted
from podwright.hosts import OK, PROBLEM, WARNING, DoctorFinding

#: The seconds that the server, and each command of Slurm's and of Kubernetes', has to answer.
_ANSWER_TIMEOUT_S = 10.0
_MAX_NAMED_MACHINES = 5  # the limit of machines that are named


class _NoServerRunning(Exception):
    """There is no server, and doctor starts none."""


def site_findings(environ: Mapping[str, str]) -> list[DoctorFinding]:
    """Return a finding for each service that this machine has, or should have."""
    return [
        *_server_findings(environ),
        *_slurm_findings(),
        *_kubernetes_findings(environ),
        *_gpu_findings(environ),
    ]


def _server_findings(environ: Mapping[str, str]) -> list[DoctorFinding]:
    local_servers = LocalServers.running(_NoServerRunning())
    try:
        server = find_server(
            ServerOptions(), environ, timeout=_ANSWER_TIMEOUT_S, local_servers=local_servers
        )
    except _NoServerRunning:
        text = "none runs; the first command that needs one starts one for you"
        return [DoctorFinding("server", "answers", OK, text)]
    except PodwrightError as error:
        return [DoctorFinding("server", "answers", PROBLEM, error.problem, error.would_work)]
    with server.client as client:
        return [_answer_finding(server), _store_finding(server), _agents(client)]


def _answer_finding(server: FoundServer) -> DoctorFinding:
    info = server.info
    text = f"{server.address}, version {info.version}; you are {info.caller} ({info.role})"
    if info.standby:
        advice = f"ask the active one: {info.active}" if info.active else "wait for an active one"
        return DoctorFinding("server", "answers", WARNING, f"{text}; it stands by", advice)
    return DoctorFinding("server", "answers", OK, text)


def _store_finding(server: FoundServer) -> DoctorFinding:
    if server.info.read_only:
        advice = "make room on the store's disk; the server then takes changes again by itself"
        return DoctorFinding("server", "store", PROBLEM, server.info.read_only, advice)
    return DoctorFinding("server", "store", OK, "it takes changes")


def _agents(client: Client) -> DoctorFinding:
    try:
        devices, clusters = client.list_devices(), client.list_clusters()
    except PodwrightError as error:
        return DoctorFinding("server", "agents", WARNING, error.problem, error.would_work)
    device_state_counts = Counter(device.state for device in devices)
    silent_machines = sorted({machine for cluster in clusters for machine in cluster.down})
    ill_devices = [
        f"{listed_device.device.index} of {listed_device.device.machine}"
        for listed_device in devices
        if listed_device.state == "DOWN" and listed_device.device.machine not in silent_machines
    ]
    machine_count = len({listed_device.device.machine for listed_device in devices})
    if silent_machines:
        silent_names = ", ".join(silent_machines[:_MAX_NAMED_MACHINES])
        finding_text = (
            f"{len(silent_machines)} of {machine_count} machines do not answer: {silent_names}"
        )
        advice = (
            f"vipu-admin get agent {silent_machines[0]} says why; systemctl status vipu-agent there"
        )
        return DoctorFinding("server", "agents", PROBLEM, finding_text, advice)
    if ill_devices:
        ill_names = ", ".join(ill_devices[:_MAX_NAMED_MACHINES])
        finding_text = (
            f"{counted(machine_count, 'machine', ('answers', 'answer'))}; "
            f"{len(ill_devices)} of {len(devices)} devices are ill and get no new "
            f"partition: {ill_names}"
        )
        machine = ill_devices[0].rpartition(" ")[2]
        advice = f"vipu-admin get agent {machine} says why"
        return DoctorFinding("server", "agents", PROBLEM, finding_text, advice)
    if not devices:
        advice = "vipu-admin create agent, then vipu-admin create cluster"
        return DoctorFinding("server", "agents", WARNING, "there is no machine yet", advice)
    state_counts_text = ", ".join(
        f"{device_count} {state}" for state, device_count in sorted(device_state_counts.items())
    )
    return DoctorFinding(
        "server",
        "agents",
        OK,
        f"{counted(machine_count, 'machine', ('answers', 'answer'))}; devices: {state_counts_text}",
    )


def _slurm_findings() -> list[DoctorFinding]:
    if shutil.which("scontrol") is None:
        return []
    ping_output = _command_output(["scontrol", "ping"])
    if ping_output is None or "is UP" not in ping_output:
        finding_text = ping_output.splitlines()[0] if ping_output else "slurmctld does not answer"
        advice = "scontrol ping, and the log of slurmctld, say why"
        return [DoctorFinding("Slurm", "slurmctld", PROBLEM, finding_text, advice)]
    controller_finding = DoctorFinding("Slurm", "slurmctld", OK, ping_output.splitlines()[0])
    if "podwright" in (_command_output(["scontrol", "show", "config"]) or ""):
        finding_text, advice = (
            "native mode is set up",
            "podwright slurm check proves it by small jobs",
        )
    else:
        finding_text = (
            "Podwright is not set up in slurm.conf; the tools for GPU clusters need no set-up"
        )
        advice = "podwright slurm configure shows what a pod would need"
    return [controller_finding, DoctorFinding("Slurm", "set-up", OK, finding_text, advice)]


def _kubernetes_findings(environ: Mapping[str, str]) -> list[DoctorFinding]:
    paths = environ.get("KUBECONFIG") or str(Path(environ.get("HOME", "/")) / ".kube/config")
    if shutil.which("kubectl") is None or not Path(paths.split(":")[0]).exists():
        return []
    crd_output = _command_output(
        ["kubectl", "get", "crd", "ipujobs.graphcore.ai", "--ignore-not-found", "-oname"]
    )
    if crd_output is None:
        text, advice = "the API server does not answer", "kubectl version says why"
        return [DoctorFinding("Kubernetes", "API server", PROBLEM, text, advice)]
    if crd_output.strip():
        return [DoctorFinding("Kubernetes", "IPUJobs", OK, "the cluster knows IPUJobs")]
    advice = "podwright kubernetes manifests | kubectl apply -f -"
    return [DoctorFinding("Kubernetes", "IPUJobs", WARNING, "it knows no IPUJobs", advice)]


def _gpu_findings(environ: Mapping[str, str]) -> list[DoctorFinding]:
    from podwright.hosts.gpus import take_inventory

    if not Path("/dev/nvidiactl").exists() and not Path("/dev/kfd").exists():
        return []
    try:
        gpu_inventory = take_inventory(environ)
    except PodwrightError as error:
        return [DoctorFinding("this machine", "GPUs", PROBLEM, error.problem, error.would_work)]
    notes_text = "; ".join(gpu_inventory.notes)
    if not gpu_inventory.gpus:
        finding_text = f"a driver is loaded, and no GPU answers: {notes_text}"
        advice = "podwright inventory, and nvidia-smi or rocm-smi, say why"
        return [DoctorFinding("this machine", "GPUs", PROBLEM, finding_text, advice)]
    advice = "podwright node health checks each of them"
    finding_text = f"{len(gpu_inventory.gpus)} answer" + (f"; {notes_text}" if notes_text else "")
    return [DoctorFinding("this machine", "GPUs", OK, finding_text, advice)]


def _command_output(command: Sequence[str]) -> str | None:
    """Return what a command prints; None when it fails or does not answer in time."""
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_ANSWER_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout if process.returncode == 0 else None
