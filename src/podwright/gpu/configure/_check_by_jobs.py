"""Checks a GPU cluster's configuration by small real jobs, and yields one sentence for each
promise."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from podwright.errors import FieldNotKnown
from podwright.gpu.configure._inventory import Kind, SiteInventory
from podwright.gpu.configure._topology import RACKS_TOPOLOGY_NAME, plan_topology, units
from podwright.hosts import fold_names
from podwright.slurm.reader import (
    SHOW_CONFIG,
    SHOW_NODES,
    SHOW_PARTITIONS,
    SHOW_TOPOLOGY,
    SlurmConfig,
    SlurmNode,
    gpu_types,
    read_nodes,
    read_partitions,
    read_switches,
    release_note,
)

#: Runs a Slurm command and returns its exit code and its output, standard error first.
Ask = Callable[[Sequence[str]], tuple[int, str]]
_NOT_PERMITTED = "Operation not permitted"


class Promise(NamedTuple):
    """A promise of the configuration. problem: what is wrong with it; empty where it is kept.

    not_known: why nobody can say whether it is kept; empty where that is known.
    """

    text: str
    problem: str = ""
    not_known: str = ""


#: The time that one-GPU jobs have to start on an idle node, and the interval between checks.
_FILL_TIMEOUT_S, _POLL_INTERVAL_S = 30.0, 0.5


def commands(command_prefix: Sequence[str] = (), timeout_s: float = 60.0) -> Ask:
    """A function that runs Slurm's commands. command_prefix: words before each command, for a Slurm
    on another machine. timeout_s: the time limit of each.
    """
    import subprocess

    def ask(argv: Sequence[str]) -> tuple[int, str]:
        try:
            command_result = subprocess.run(
                [*command_prefix, *argv],
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, f"no answer within {timeout_s:g} s"
        except OSError as error:
            return 1, f"{argv[0]}: {error.strerror}"
        return command_result.returncode, command_result.stderr + command_result.stdout

    return ask


def check(
    inventory: SiteInventory, ask_slurm: Ask, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Promise]:
    """Check all promises one after another. Jobs run on one node of each kind."""
    code, output = ask_slurm(list(SHOW_NODES))
    if code:
        yield Promise("Slurm answers", _shortened_output(output))
        return
    try:
        yield from _check_promises(
            inventory, {node.name: node for node in read_nodes(output)}, ask_slurm, sleep
        )
    except FieldNotKnown as error:
        yield Promise("Slurm shows what is checked", error.problem)


def _check_promises(
    inventory: SiteInventory,
    nodes: Mapping[str, SlurmNode],
    ask_slurm: Ask,
    sleep: Callable[[float], None],
) -> Iterator[Promise]:
    """Check the promises in order. nodes: Slurm's nodes by name. Raises FieldNotKnown."""
    yield Promise("every node has the GPUs of the inventory", _gpu_count_problem(inventory, nodes))
    slurm_config = SlurmConfig(ask_slurm(list(SHOW_CONFIG))[1])
    if version_note := release_note(slurm_config.version):
        yield Promise(f"Note: {version_note}")
    devices_confined = slurm_config.optional("ConstrainDevices").lower() == "yes"
    for kind, names in inventory.kinds().items():
        name = next((name for name in names if name in nodes and nodes[name].state.idle), names[0])
        node = nodes.get(name)
        partition_options, shared_partition = (
            _node_partitions(node, ask_slurm) if node else ([], "")
        )
        features = node.features if node else frozenset()
        if not kind.gpus:
            continue
        yield from _check_node(kind, name, partition_options, ask_slurm, devices_confined, features)
        if shared_partition:  # in other modes jobs have whole nodes, as the site wants
            yield from _check_node_fills(len(kind.gpus), name, shared_partition, ask_slurm, sleep)
    yield Promise("a type that there is not is refused", _unknown_type_problem(ask_slurm))
    plugin = slurm_config.topology
    has_both = plan_topology(inventory, slurm_config.version, "auto").kind == "both"
    if plugin in ("tree", "block") or has_both:
        leaf_names = [switch.name for switch in units(inventory.switches)]
        rack_names = [name for name, nodes in inventory.domains.items() if len(nodes) > 1]
        is_tree = plugin == "tree"
        problem = _topology_problem(
            leaf_names if has_both or is_tree else list(inventory.domains), ask_slurm
        )
        if has_both and not problem:
            problem = _topology_problem(rack_names, ask_slurm, RACKS_TOPOLOGY_NAME)
        yield Promise("Slurm knows the network of the inventory", problem)


def _check_node(
    node_kind: Kind,
    node_name: str,
    partition_options: list[str],
    ask_slurm: Ask,
    devices_confined: bool,
    features: Set[str],
) -> Iterator[Promise]:
    """Check one node.

    partition_options: options that name a partition of the node. features: those of the node; a
    site without Podwright's features has promised none of them.
    """
    gpu_count = len(node_kind.gpus)
    srun_command = [
        "srun",
        "--quiet",
        *partition_options,
        f"--nodelist={node_name}",
        "--nodes=1",
        "--immediate=30",
    ]
    # A slice has several device files.
    files_by_gpu = [set(gpu.file.split(",")) for gpu in node_kind.gpus if gpu.file]
    all_files = sorted(set().union(*files_by_gpu))
    quoted_files = " ".join(map(shlex.quote, all_files))
    script = f'export LC_ALL=C; for f in {quoted_files}; do test -e "$f" || echo "lacks $f"; done; '
    script += 'echo "@${CUDA_VISIBLE_DEVICES-${ROCR_VISIBLE_DEVICES-}}@"'
    exit_code, output = ask_slurm(
        [*srun_command, "--ntasks=1", f"--gpus-per-node={gpu_count}", "sh", "-c", script]
    )
    visible_match = re.search(r"@(.*?)@", output)
    problem = ""
    if exit_code or not visible_match:
        problem = _shortened_output(output)
    elif "lacks" in output:
        problem = _shortened_output(output.partition("@")[0])
    elif len(visible_match[1].split(",")) != gpu_count:
        problem = f"it sees {visible_match[1] or 'none'}"
    yield Promise(f"{node_name}: a job finds {gpu_count} GPUs and their device files", problem)
    for feature in node_kind.words:
        if feature not in node_kind.features and feature not in features:
            continue
        command = ["sbatch", "--test-only", "--wrap=true", *partition_options, "--gpus-per-node=1"]
        exit_code, output = ask_slurm([*command, f"--constraint={feature}"])
        yield Promise(
            f"GPUs can be asked for by feature {feature}",
            _shortened_output(output) if exit_code else "",
        )
    for gpu_type in dict.fromkeys(gpu.type for gpu in node_kind.gpus):
        command = ["sbatch", "--test-only", "--wrap=true", *partition_options]
        exit_code, output = ask_slurm([*command, f"--gres=gpu:{gpu_type}:1"])
        yield Promise(
            f"GPUs can be asked for by type {gpu_type}",
            _shortened_output(output) if exit_code else "",
        )
    if devices_confined and gpu_count > 1:
        script = f'export LC_ALL=C; for f in {quoted_files}; do (: <"$f") 2>&1; done; true'
        exit_code, output = ask_slurm(
            [*srun_command, "--ntasks=1", "--gpus-per-node=1", "sh", "-c", script]
        )
        refused_count = output.count(_NOT_PERMITTED)
        expected_counts = {len(all_files) - len(gpu_files) for gpu_files in files_by_gpu}
        expected_text = " or ".join(map(str, sorted(expected_counts)))
        problem = (
            _shortened_output(output)
            if exit_code
            else f"{refused_count} of {expected_text} files of other GPUs are shut"
        )
        yield Promise(
            f"{node_name}: a job opens its own GPUs alone",
            "" if refused_count in expected_counts else problem,
        )


def _check_node_fills(
    gpu_count: int,
    node_name: str,
    partition_name: str,
    ask_slurm: Ask,
    sleep: Callable[[float], None],
) -> Iterator[Promise]:
    """Check that as many one-GPU jobs run at once, without --mem, as the node has GPUs."""
    promise_text = f"{node_name}: {gpu_count} jobs of one GPU, without --mem, run at once"
    command = [
        "sbatch",
        "--parsable",
        f"--array=1-{gpu_count}",
        "--nodes=1",
        "--ntasks=1",
        "--time=2",
    ]
    command += [f"--partition={partition_name}", f"--nodelist={node_name}", "--gpus-per-node=1"]
    command += ["--job-name=podwright-check", "--output=/dev/null", "--wrap=sleep 60"]
    exit_code, output = ask_slurm(command)
    job_number = output.split()[-1].partition(";")[0] if output.split() else ""
    if exit_code or not job_number.isdecimal():
        yield Promise(promise_text, _shortened_output(output))
        return
    running_count, pending_reason = 0, ""
    try:
        for _ in range(int(_FILL_TIMEOUT_S / _POLL_INTERVAL_S)):
            queue_lines = ask_slurm(["squeue", "-h", "-r", "-j", job_number, "-o", "%T %r"])[
                1
            ].splitlines()
            running_count = sum(line.startswith("RUNNING") for line in queue_lines)
            pending_reasons = [
                line.partition(" ")[2] for line in queue_lines if line.startswith("PENDING")
            ]
            pending_reason = pending_reasons[0] if pending_reasons else ""
            if running_count == gpu_count or not queue_lines:
                break
            sleep(_POLL_INTERVAL_S)
    finally:
        ask_slurm(["scancel", job_number])
    problem = f"{running_count} ran" + (
        f", the others waited ({pending_reason})" if pending_reason else ""
    )
    yield Promise(promise_text, "" if running_count == gpu_count else problem)


def _node_partitions(node: SlurmNode, ask_slurm: Ask) -> tuple[list[str], str]:
    """Return the options that name a partition of this node, and one in which jobs share the node.

    Each is empty if there is none. Raises FieldNotKnown.
    """
    open_partitions, shared_partitions = [], []
    for partition in read_partitions(ask_slurm(list(SHOW_PARTITIONS))[1]):
        if partition.name in node.partitions and partition.state == "UP":
            open_partitions.append(partition.name)
            shared_partitions += [partition.name] * (not partition.whole_nodes)
    partition_names = (shared_partitions or open_partitions)[:1]
    return [f"--partition={name}" for name in partition_names], (shared_partitions or [""])[0]


def _gpu_count_problem(inventory: SiteInventory, nodes: Mapping[str, SlurmNode]) -> str:
    nodes_by_problem: dict[str, list[str]] = {}
    for node_name, node_kind in inventory.nodes.items():
        if node_name not in nodes:
            nodes_by_problem.setdefault("Slurm has no such node", []).append(node_name)
            continue
        slurm_counts, node_state = gpu_types(nodes[node_name].gres), nodes[node_name].state
        if slurm_counts != gpu_types(node_kind.gres):
            type_counts = (
                ", ".join(f"{count} {gpu_type}" for gpu_type, count in slurm_counts.items())
                or "none"
            )
            nodes_by_problem.setdefault(f"Slurm counts {type_counts}", []).append(node_name)
        elif node_state.ill:
            drain_reason = nodes[node_name].reason.partition(" [")[0]
            nodes_by_problem.setdefault(f"{node_state.text} {drain_reason}".strip(), []).append(
                node_name
            )
    return "; ".join(
        f"{fold_names(names)}: {problem}" for problem, names in nodes_by_problem.items()
    )


def _unknown_type_problem(ask_slurm: Ask) -> str:
    code, output = ask_slurm(
        ["sbatch", "--test-only", "--wrap=true", "--gres=gpu:podwright_no_type:1"]
    )
    return "" if code else f"it was taken: {_shortened_output(output)}"


def _topology_problem(expected_names: Sequence[str], ask_slurm: Ask, topology: str = "") -> str:
    """Check the topology. topology: the topology of topology.yaml to ask about; empty: the
    cluster's.
    """
    code, output = ask_slurm([*SHOW_TOPOLOGY, *([topology] if topology else [])])
    if code:
        return _shortened_output(output)
    switch_names = {switch.name for switch in read_switches(output)}
    missing_names = [name for name in expected_names if name not in switch_names]
    return f"{', '.join(missing_names)} not in scontrol show topology" if missing_names else ""


def _shortened_output(output: str) -> str:
    return " ".join(output.split())[:240] or "no word"
