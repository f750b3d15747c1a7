"""Rules about what the script does once it runs: variables, launchers, servers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.slurm.lint._request import (
    DISTRIBUTED,
    is_training,
    nodes_of,
    per_node_of,
)
from podwright.slurm.lint._rules import Finding, Site, found, rule
from podwright.slurm.lint._script import Script

FIRST_NODE = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
FREE_PORT = "$((20000 + SLURM_JOB_ID % 20000))"
_SERVERS = (
    r"\bvllm serve\b",
    r"vllm\.entrypoints\.(openai\.)?api_server",
    r"\bsglang\.launch_server\b",
    r"\btext-generation-launcher\b",
    r"\btritonserver\b",
    r"\bserve (run|deploy)\b",
    r"\b(uvicorn|gunicorn|hypercorn)\s",
    r"\bollama serve\b",
    r"\btorchserve\b",
)


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _plain(value: str) -> str:
    return value.strip().strip("'\"")


@rule
def master_addr(script: Script, site: Site) -> Iterator[Finding]:
    """An address of rank 0 that is no address, or that every node takes for its own."""
    for number, key, value in script.assignments:
        if key != "MASTER_ADDR" or "scontrol" in value or "hostlist" in value:
            continue
        several = nodes_of(script) > 1
        if re.search(r"SLURM_(JOB_|STEP_)?NODELIST", value):
            reason = (
                "the node list is written short, as gpu[01-04]: cut by hand it names no host; "
                "`scontrol show hostnames` spells it out"
            )
        elif several and _plain(value) in ("localhost", "127.0.0.1", "::1", "0.0.0.0"):
            reason = "every node takes this for itself, and the ranks never meet"
        else:
            continue
        text = script.lines[number - 1]
        export = "export " if "export" in text.split("=")[0] else ""
        yield found(
            script,
            "master-addr",
            number,
            reason,
            f"{_indent(text)}{export}MASTER_ADDR={FIRST_NODE}",
            sure=True,
        )


@rule
def fixed_master_port(script: Script, site: Site) -> Iterator[Finding]:
    """A port that a second job on the same node cannot have."""
    if script.request.option("exclusive") or not is_training(script):
        return
    assigned = script.assigned("MASTER_PORT")
    if assigned and _plain(assigned[1]).isdigit():
        text = script.lines[assigned[0] - 1]
        yield found(
            script,
            "fixed-master-port",
            assigned[0],
            "two such jobs on one node collide on this port: take it from the job's number",
            re.sub(r"MASTER_PORT=\S+", lambda _: f"MASTER_PORT={FREE_PORT}", text, count=1),
            sure=True,
        )
        return
    launch = script.uses(r"(--rdzv[_-]endpoint[= ]\S+:|--master[_-]port[= ])\d+")
    if launch:
        yield found(
            script,
            "fixed-master-port",
            launch.number,
            "two such jobs on one node collide on this port: set MASTER_PORT="
            f"{FREE_PORT} and use it here",
        )


@rule
def nccl_over_tcp(script: Script, site: Site) -> Iterator[Finding]:
    """NCCL told to leave the fast fabric alone, in a job of several nodes."""
    if nodes_of(script) < 2:
        return
    wrong = {
        "NCCL_IB_DISABLE": ("1", "0", "switches InfiniBand and RoCE off: all traffic takes TCP"),
        "NCCL_NET": ("socket", "IB", "forces TCP between nodes"),
    }
    for number, key, value in script.assignments:
        bad = wrong.get(key)
        if bad and _plain(value).lower() == bad[0]:
            text = script.lines[number - 1]
            yield found(
                script,
                "nccl-over-tcp",
                number,
                f"{key}={_plain(value)} {bad[2]}",
                re.sub(rf"{key}=\S+", f"{key}={bad[1]}", text, count=1),
                sure=True,
            )
        elif key == "NCCL_SOCKET_IFNAME" and _plain(value).lstrip("=") == "lo":
            yield found(
                script,
                "nccl-over-tcp",
                number,
                "the loopback interface reaches no other node: name the nodes' interface",
            )


@rule
def nccl_hampered(script: Script, site: Site) -> Iterator[Finding]:
    """NVLink or GPUDirect RDMA switched off."""
    wrong = {
        "NCCL_P2P_DISABLE": (("1",), "0", "keeps GPUs of one node from NVLink and PCIe peers"),
        "NCCL_NET_GDR_LEVEL": (
            ("0", "loc"),
            "SYS",
            "switches GPUDirect RDMA off: data passes through host memory",
        ),
    }
    for number, key, value in script.assignments:
        bad = wrong.get(key)
        if bad and _plain(value).lower() in bad[0]:
            text = script.lines[number - 1]
            yield found(
                script,
                "nccl-hampered",
                number,
                f"{key}={_plain(value)} {bad[2]}",
                re.sub(rf"{key}=\S+", f"{key}={bad[1]}", text, count=1),
            )


@rule
def overrides_grant(script: Script, site: Site) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES written by hand over what Slurm granted."""
    if not script.request.asks_for_gpus:
        return
    for number, key, value in script.assignments:
        if key in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES") and re.fullmatch(
            r"[\d,]+", _plain(value)
        ):
            text = script.lines[number - 1]
            yield found(
                script,
                "overrides-grant",
                number,
                f"Slurm sets {key} to the GPUs that this job was given; these may be others' or "
                "none",
                f"{_indent(text)}# {text.strip()}",
            )


@rule
def online_serving(script: Script, site: Site) -> Iterator[Finding]:
    """A server in the foreground of a batch job: it has no address and ends with its time."""
    line = script.uses(*_SERVERS)
    if line and not line.text.rstrip().endswith("&"):
        yield found(
            script,
            "online-serving",
            line.number,
            "a batch job has no stable address, no restart and a time limit: serve online "
            "elsewhere, and score offline here",
        )


@rule
def hidden_peers(script: Script, site: Site) -> Iterator[Finding]:
    """--gpus-per-task hides the GPUs of the neighbours, which NCCL and CUDA IPC need."""
    request = script.request
    tasks = request.tasks_per_node or (request.tasks or 0) // nodes_of(script)
    if not request.per_task or tasks < 2 or not is_training(script):
        return
    line = script.line_of("gpus-per-task")
    text = script.lines[line - 1]
    kind = f"{request.per_task.kind}:" if request.per_task.kind else ""
    yield found(
        script,
        "hidden-peers",
        line,
        "each task sees only its own GPU, so peer access (NVLink through CUDA IPC) fails: ask "
        "per node, and let each task choose by SLURM_LOCALID",
        re.sub(
            r"--gpus-per-task[= ]\S+",
            f"--gpus-per-node={kind}{request.per_task.count * tasks}",
            text,
            count=1,
        ),
    )


@rule
def launcher_in_every_task(script: Script, site: Site) -> Iterator[Finding]:
    """torchrun starts one process per GPU, and srun starts torchrun once per task."""
    each = script.request.tasks_per_node or 0
    launch = script.uses(r"\bsrun\b.*(\btorchrun\b|torch\.distributed\.run|accelerate launch)")
    if each < 2 or not launch or re.search(r"--ntasks-per-node|\s-n\s*\d", launch.text):
        return
    number = script.line_of("ntasks-per-node", "tasks-per-node")
    text = script.lines[number - 1]
    yield found(
        script,
        "launcher-in-every-task",
        number,
        f"srun starts the launcher {each} times on every node, and each starts a process per "
        "GPU: one launcher per node is enough",
        re.sub(r"(tasks-per-node[= ])\d+", r"\g<1>1", text, count=1),
    )


@rule
def launcher_on_one_node(script: Script, site: Site) -> Iterator[Finding]:
    """Without srun the script's commands run on the first node alone."""
    if nodes_of(script) < 2:
        return
    for line in script.commands:
        if not re.match(
            r"(torchrun|python3?\s+-m\s+torch\.distributed\.(run|launch))\b", line.text
        ):
            continue
        text = script.lines[line.number - 1]
        yield found(
            script,
            "launcher-on-one-node",
            line.number,
            "a batch script runs on its first node only: the others wait for ever",
            f"{_indent(text)}srun {text.lstrip()}",
            sure=True,
        )


@rule
def more_processes_than_gpus(script: Script, site: Site) -> Iterator[Finding]:
    """More processes on a node than it has GPUs in this job."""
    held = per_node_of(script)
    launch = script.uses(*DISTRIBUTED)
    match = re.search(r"--nproc[_-]per[_-]node[= ](\d+)", launch.text) if launch else None
    if not launch or not match or not held or int(match[1]) <= held:
        return
    line = next(
        n
        for n in range(launch.number, launch.last + 1)
        if re.search(r"nproc[_-]per[_-]node", script.lines[n - 1])
    )
    yield found(
        script,
        "more-processes-than-gpus",
        line,
        f"{match[1]} processes start on a node that has {held} GPUs in this job",
        re.sub(r"(nproc[_-]per[_-]node[= ])\d+", rf"\g<1>{held}", script.lines[line - 1], count=1),
    )


@rule
def more_ranks_than_tasks(script: Script, site: Site) -> Iterator[Finding]:
    """mpirun asked for more ranks than the job has tasks: it refuses for lack of slots."""
    request = script.request
    tasks = request.tasks or (request.tasks_per_node or 0) * nodes_of(script)
    launch = script.uses(r"\bmpi(run|exec)\b.*\s-(n|np)\s+\d+")
    match = re.search(r"\s-(?:n|np)\s+(\d+)", launch.text) if launch else None
    if not tasks or not launch or not match or int(match[1]) <= tasks:
        return
    if "oversubscribe" in launch.text:
        return
    text = script.lines[launch.number - 1]
    yield found(
        script,
        "more-ranks-than-tasks",
        launch.number,
        f"mpirun finds {tasks} slots for {match[1]} ranks and refuses",
        re.sub(r"(\s-(?:n|np)\s+)\d+", rf"\g<1>{tasks}", text, count=1),
    )
