"""Rules about ports, fabrics, topology and servers that slow down a job or its neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._rule_types import Case, Found, rule
from podwright.gpu.lint._rules_starts import trainings
from podwright.gpu.requests import is_number
from podwright.slurm.site.releases import OLDEST_RELEASE, release_of

_OLD_EVIDENCE_TEST = "tests/outer/gpu/test_lint.py"
_PROGRAM_TESTS = "tests/outer/gpu/test_lint_programs.py"
_JOB_PORT_EXPRESSION = "$((20000 + SLURM_JOB_ID % 20000))"
_SERVER_COMMAND_PATTERN = re.compile(
    r"\bvllm serve\b|vllm\.entrypoints\.(openai\.)?api_server|\bsglang\.launch_server\b"
    r"|\btext-generation-launcher\b|\btritonserver\b|\bserve (run|deploy)\b"
    r"|\b(uvicorn|gunicorn|hypercorn)\s|\bollama serve\b|\btorchserve\b"
)
_OTHER_FABRIC_PATTERN = re.compile(
    r"\befa\b|FI_PROVIDER|aws-ofi|TCPX|tcpx|fastrak|FasTrak|libnccl-net|cxi", re.I
)


def _is_training(lint_case: Case) -> bool:
    launches = trainings(lint_case)
    if any(launch.distributed for launch in launches):
        return True
    addr = any(
        assignment.name == "MASTER_ADDR" for assignment in lint_case.script.shell.assignments
    )
    return addr and any(launch.by == "srun" for launch in launches)


def _unquoted(value: str) -> str:
    return value.strip().strip("'\"")


@rule(
    "fixed-master-port",
    "better",
    "a port that a second job on the same node cannot have",
    f"{_OLD_EVIDENCE_TEST}::test_what_more_silent_mistakes_do",
)
def fixed_master_port(lint_case: Case) -> Iterator[Found]:
    if lint_case.facts.whole_nodes or not _is_training(lint_case):
        return
    for assignment in lint_case.script.shell.assignments:
        if assignment.name == "MASTER_PORT" and _unquoted(assignment.value).isdigit():
            line_text = lint_case.script.at(assignment.line)
            corrected_line = re.sub(
                r"MASTER_PORT=\S+",
                lambda _: f"MASTER_PORT={_JOB_PORT_EXPRESSION}",
                line_text,
                count=1,
            )
            yield Found(
                assignment.line,
                "two such jobs on one node collide on this port: take it from the job's number",
                corrected_line,
            )
            return
    for launch in lint_case.launches:
        port = launch.given("master-port", "main-process-port") or ""
        rendezvous_endpoint = launch.given("rdzv-endpoint") or ""
        if is_number(port) or re.search(r":\d{2,}$", rendezvous_endpoint):
            reason = "two such jobs on one node collide on this port: set MASTER_PORT="
            yield Found(launch.line, f"{reason}{_JOB_PORT_EXPRESSION} and use it here")
            return


@rule(
    "nccl-over-tcp",
    "better",
    "NCCL told to leave InfiniBand and RoCE alone, in a job of several nodes",
    f"{_PROGRAM_TESTS}::test_a_variable_of_the_script_reaches_every_task",
)
def nccl_over_tcp(lint_case: Case) -> Iterator[Found]:
    if not lint_case.facts.several or _OTHER_FABRIC_PATTERN.search(lint_case.script.text):
        return
    wrong_settings = {
        "NCCL_IB_DISABLE": ("1", "0", "switches InfiniBand and RoCE off: all traffic takes TCP"),
        "NCCL_NET": ("socket", "IB", "forces TCP between nodes"),
    }
    for assignment in lint_case.script.shell.assignments:
        wrong_setting = wrong_settings.get(assignment.name)
        if wrong_setting and _unquoted(assignment.value).lower() == wrong_setting[0]:
            line_text = lint_case.script.at(assignment.line)
            corrected_line = re.sub(
                rf"{assignment.name}=\S+",
                f"{assignment.name}={wrong_setting[1]}",
                line_text,
                count=1,
            )
            yield Found(
                assignment.line,
                f"{assignment.name}={_unquoted(assignment.value)} {wrong_setting[2]}",
                corrected_line,
            )


@rule(
    "nccl-on-loopback",
    "mistake",
    "NCCL told to use the loopback interface, in a job of several nodes",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname",
)
def nccl_on_loopback(lint_case: Case) -> Iterator[Found]:
    if not lint_case.facts.several:
        return
    for assignment in lint_case.script.shell.assignments:
        variables = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
        if assignment.name in variables and _unquoted(assignment.value).lstrip("=") == "lo":
            reason = "the loopback interface reaches no other node: name the nodes' interface"
            yield Found(assignment.line, reason)


@rule(
    "nccl-hampered",
    "better",
    "NVLink or GPUDirect RDMA switched off",
    f"{_PROGRAM_TESTS}::test_a_variable_of_the_script_reaches_every_task",
)
def nccl_hampered(lint_case: Case) -> Iterator[Found]:
    wrong_settings = {
        "NCCL_P2P_DISABLE": (("1",), "0", "keeps GPUs of one node from NVLink and PCIe peers"),
        "NCCL_NET_GDR_LEVEL": (
            ("0", "loc"),
            "SYS",
            "switches GPUDirect RDMA off: data passes through host memory",
        ),
    }
    for assignment in lint_case.script.shell.assignments:
        wrong_setting = wrong_settings.get(assignment.name)
        if wrong_setting and _unquoted(assignment.value).lower() in wrong_setting[0]:
            corrected_line = re.sub(
                rf"{assignment.name}=\S+",
                f"{assignment.name}={wrong_setting[1]}",
                lint_case.script.at(assignment.line),
                count=1,
            )
            yield Found(
                assignment.line,
                f"{assignment.name}={_unquoted(assignment.value)} {wrong_setting[2]}",
                corrected_line,
            )


@rule(
    "hidden-peers",
    "better",
    "--gpus-per-task hides the GPUs of the neighbours, which NCCL and CUDA IPC need",
    f"{_OLD_EVIDENCE_TEST}::test_what_the_silent_mistakes_do",
)
def hidden_peers(lint_case: Case) -> Iterator[Found]:
    script, request = lint_case.script, lint_case.script.request
    tasks_per_node = lint_case.facts.tasks_per_node or 0
    if not request.per_task or tasks_per_node < 2 or not _is_training(lint_case):
        return
    line_number = script.line_of("gpus-per-task")
    gpu_type = f"{request.per_task.kind}:" if request.per_task.kind else ""
    corrected_line = re.sub(
        r"--gpus-per-task[= ]\S+",
        f"--gpus-per-node={gpu_type}{request.per_task.count * tasks_per_node}",
        script.at(line_number),
        count=1,
    )
    reason = (
        "each task sees only its own GPU, so peer access (NVLink through CUDA IPC) fails: ask "
        "per node, and let each task choose by SLURM_LOCALID"
    )
    yield Found(line_number, reason, corrected_line)


@rule(
    "online-serving",
    "better",
    "a server in the foreground of a batch job: it has no address and ends with its time",
    f"{_PROGRAM_TESTS}::test_a_server_in_a_batch_job_ends_with_its_time_and_moves",
)
def online_serving(lint_case: Case) -> Iterator[Found]:
    for launch in lint_case.launches:
        if _SERVER_COMMAND_PATTERN.search(" ".join(launch.words) + " ") and not launch.place.behind:
            reason = (
                "a batch job has no stable address, no restart and a time limit: serve online "
                "elsewhere, and score offline here"
            )
            yield Found(launch.line, reason)
            return


@rule(
    "missing-exclusive",
    "better",
    "training over nodes that other jobs share",
    f"{_OLD_EVIDENCE_TEST}::test_what_more_silent_mistakes_do",
)
def missing_exclusive(lint_case: Case) -> Iterator[Found]:
    script = lint_case.script
    option = script.option("mem")
    nodes = script.option("exclusive") or (option and option.value in ("0", "0G"))
    if not lint_case.facts.several or not _is_training(lint_case) or nodes:
        return
    reason = (
        "another job on one of these nodes would share NVLink, PCIe and the adapters, and slow "
        "every step of all nodes"
    )
    yield Found(script.line_of("nodes"), reason, "#SBATCH --exclusive", before=True)


@rule(
    "missing-topology",
    "better",
    "the site knows its switches, and the job does not ask for few of them",
    f"{_OLD_EVIDENCE_TEST}::test_what_more_silent_mistakes_do",
)
def missing_topology(lint_case: Case) -> Iterator[Found]:
    script, site = lint_case.script, lint_case.site
    if (
        not lint_case.facts.several
        or not _is_training(lint_case)
        or site.topology not in ("tree", "block")
    ):
        return
    if script.option("switches") or script.option("segment"):
        return
    directive_line = (
        f"#SBATCH --segment={lint_case.facts.nodes}"
        if site.topology == "block" and release_of(site.version or OLDEST_RELEASE).has_segments
        else "#SBATCH --switches=1@01:00:00"
    )
    yield Found(
        script.line_of("nodes"),
        "nodes under several leaf switches make every all-reduce cross the spine",
        directive_line,
        before=True,
    )
