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
from podwright.gpu.configure._lines import fold
from podwright.gpu.configure._topology import RACKS, plan_topology, units
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
_LACKS = "Operation not permitted"


class Promise(NamedTuple):
    """A promise of the configuration. problem: what is wrong with it; empty where it is kept."""

    text: str
    problem: str = ""


#: The time that one-GPU jobs have to start on an idle node, and the interval between checks.
_FILL_S, _LOOK_S = 30.0, 0.5


def commands(prefix: Sequence[str] = (), seconds: float = 60.0) -> Ask:
    """A function that runs Slurm's commands. prefix: words before each command, for a Slurm on
    another machine. seconds: the time limit of each."""
    import subprocess

    def ask(argv: Sequence[str]) -> tuple[int, str]:
        try:
            done = subprocess.run(
                [*prefix, *argv], capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return 1, f"no answer within {seconds:g} s"
        except OSError as error:
            return 1, f"{argv[0]}: {error.strerror}"
        return done.returncode, done.stderr + done.stdout

    return ask


def check(
    inventory: SiteInventory, ask: Ask, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Promise]:
    """Check all promises one after another. Jobs run on one node of each kind."""
    code, output = ask(list(SHOW_NODES))
    if code:
        yield Promise("Slurm answers", _short(output))
        return
    try:
        yield from _all(inventory, {node.name: node for node in read_nodes(output)}, ask, sleep)
    except FieldNotKnown as error:
        yield Promise("Slurm shows what is checked", error.problem)


def _all(
    inventory: SiteInventory,
    nodes: Mapping[str, SlurmNode],
    ask: Ask,
    sleep: Callable[[float], None],
) -> Iterator[Promise]:
    """Check the promises in order. nodes: Slurm's nodes by name. Raises FieldNotKnown."""
    yield Promise("every node has the GPUs of the inventory", _counted(inventory, nodes))
    config = SlurmConfig(ask(list(SHOW_CONFIG))[1])
    if note := release_note(config.version):
        yield Promise(f"Note: {note}")
    confined = config.optional("ConstrainDevices").lower() == "yes"
    for kind, names in inventory.kinds().items():
        name = next((name for name in names if name in nodes and nodes[name].state.idle), names[0])
        node = nodes.get(name)
        partition_options, shared = _partitions(node, ask) if node else ([], "")
        features = node.features if node else frozenset()
        yield from _on_node(kind, name, partition_options, ask, confined, features)
        if shared:  # in other modes jobs have whole nodes, as the site wants
            yield from _filled(len(kind.gpus), name, shared, ask, sleep)
    yield Promise("a type that there is not is refused", _refused(ask))
    plugin = config.topology
    both = plan_topology(inventory, config.version, "auto").kind == "both"
    if plugin in ("tree", "block") or both:
        leaves = [switch.name for switch in units(inventory.switches)]
        racks = [name for name, nodes in inventory.domains.items() if len(nodes) > 1]
        tree = plugin == "tree"
        problem = _knows(leaves if both or tree else list(inventory.domains), ask)
        if both and not problem:
            problem = _knows(racks, ask, RACKS)
        yield Promise("Slurm knows the network of the inventory", problem)


def _on_node(
    kind: Kind,
    node: str,
    partition_options: list[str],
    ask: Ask,
    confined: bool,
    features: Set[str],
) -> Iterator[Promise]:
    """Check one node.

    partition_options: options that name a partition of the node. features: those of the node; a
    site without Podwright's features has promised none of them.
    """
    count = len(kind.gpus)
    head = [
        "srun",
        "--quiet",
        *partition_options,
        f"--nodelist={node}",
        "--nodes=1",
        "--immediate=30",
    ]
    own = [
        set(gpu.file.split(",")) for gpu in kind.gpus if gpu.file
    ]  # a slice has several device files
    all_files = sorted(set().union(*own))
    files = " ".join(map(shlex.quote, all_files))
    script = f'for f in {files}; do test -e "$f" || echo "lacks $f"; done; '
    script += 'echo "@${CUDA_VISIBLE_DEVICES-${ROCR_VISIBLE_DEVICES-}}@"'
    code, output = ask([*head, "--ntasks=1", f"--gpus-per-node={count}", "sh", "-c", script])
    seen = re.search(r"@(.*?)@", output)
    problem = ""
    if code or not seen:
        problem = _short(output)
    elif "lacks" in output:
        problem = _short(output.partition("@")[0])
    elif len(seen[1].split(",")) != count:
        problem = f"it sees {seen[1] or 'none'}"
    yield Promise(f"{node}: a job finds {count} GPUs and their device files", problem)
    for word in kind.words:
        if word not in kind.features and word not in features:
            continue
        command = ["sbatch", "--test-only", "--wrap=true", *partition_options, "--gpus-per-node=1"]
        code, output = ask([*command, f"--constraint={word}"])
        yield Promise(f"GPUs can be asked for by feature {word}", _short(output) if code else "")
    for type_ in dict.fromkeys(gpu.type for gpu in kind.gpus):
        command = ["sbatch", "--test-only", "--wrap=true", *partition_options]
        code, output = ask([*command, f"--gres=gpu:{type_}:1"])
        yield Promise(f"GPUs can be asked for by type {type_}", _short(output) if code else "")
    if confined and count > 1:
        script = f'for f in {files}; do (: <"$f") 2>&1; done; true'
        code, output = ask([*head, "--ntasks=1", "--gpus-per-node=1", "sh", "-c", script])
        shut = output.count(_LACKS)
        wanted = {len(all_files) - len(gpu_files) for gpu_files in own}
        expected = " or ".join(map(str, sorted(wanted)))
        problem = _short(output) if code else f"{shut} of {expected} files of other GPUs are shut"
        yield Promise(f"{node}: a job opens its own GPUs alone", "" if shut in wanted else problem)


def _filled(
    count: int, node: str, partition: str, ask: Ask, sleep: Callable[[float], None]
) -> Iterator[Promise]:
    """Check that as many one-GPU jobs run at once, without --mem, as the node has GPUs."""
    text = f"{node}: {count} jobs of one GPU, without --mem, run at once"
    command = ["sbatch", "--parsable", f"--array=1-{count}", "--nodes=1", "--ntasks=1", "--time=2"]
    command += [f"--partition={partition}", f"--nodelist={node}", "--gpus-per-node=1"]
    command += ["--job-name=podwright-check", "--output=/dev/null", "--wrap=sleep 60"]
    code, output = ask(command)
    job = output.split()[-1].partition(";")[0] if output.split() else ""
    if code or not job.isdecimal():
        yield Promise(text, _short(output))
        return
    running, pending_reason = 0, ""
    try:
        for _ in range(int(_FILL_S / _LOOK_S)):
            queue_lines = ask(["squeue", "-h", "-r", "-j", job, "-o", "%T %r"])[1].splitlines()
            running = sum(line.startswith("RUNNING") for line in queue_lines)
            waiting = [line.partition(" ")[2] for line in queue_lines if line.startswith("PENDING")]
            pending_reason = waiting[0] if waiting else ""
            if running == count or not queue_lines:
                break
            sleep(_LOOK_S)
    finally:
        ask(["scancel", job])
    problem = f"{running} ran" + (
        f", the others waited ({pending_reason})" if pending_reason else ""
    )
    yield Promise(text, "" if running == count else problem)


def _partitions(node: SlurmNode, ask: Ask) -> tuple[list[str], str]:
    """Return the options that name a partition of this node, and one in which jobs share the node.

    Each is empty if there is none. Raises FieldNotKnown.
    """
    open_, shared = [], []
    for partition in read_partitions(ask(list(SHOW_PARTITIONS))[1]):
        if partition.name in node.partitions and partition.state == "UP":
            open_.append(partition.name)
            shared += [partition.name] * (not partition.whole_nodes)
    first = (shared or open_)[:1]
    return [f"--partition={name}" for name in first], (shared or [""])[0]


def _counted(inventory: SiteInventory, nodes: Mapping[str, SlurmNode]) -> str:
    wrong: dict[str, list[str]] = {}
    for name, kind in inventory.nodes.items():
        if name not in nodes:
            wrong.setdefault("Slurm has no such node", []).append(name)
            continue
        kinds, state = gpu_types(nodes[name].gres), nodes[name].state
        if kinds != gpu_types(kind.gres):
            type_counts = ", ".join(f"{n} {k}" for k, n in kinds.items()) or "none"
            wrong.setdefault(f"Slurm counts {type_counts}", []).append(name)
        elif state.ill:
            reason = nodes[name].reason.partition(" [")[0]
            wrong.setdefault(f"{state.text} {reason}".strip(), []).append(name)
    return "; ".join(f"{fold(names)}: {problem}" for problem, names in wrong.items())


def _refused(ask: Ask) -> str:
    code, output = ask(["sbatch", "--test-only", "--wrap=true", "--gres=gpu:podwright_no_type:1"])
    return "" if code else f"it was taken: {_short(output)}"


def _knows(names: Sequence[str], ask: Ask, topology: str = "") -> str:
    """Check the topology. topology: the topology of topology.yaml to ask about; empty: the
    cluster's.
    """
    code, output = ask([*SHOW_TOPOLOGY, *([topology] if topology else [])])
    if code:
        return _short(output)
    switch_names = {switch.name for switch in read_switches(output)}
    lacking = [name for name in names if name not in switch_names]
    return f"{', '.join(lacking)} not in scontrol show topology" if lacking else ""


def _short(output: str) -> str:
    return " ".join(output.split())[:240] or "no word"
