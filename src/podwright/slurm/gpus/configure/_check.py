"""Proves a GPU cluster's set-up by small real jobs: one sentence for each promise."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from podwright.slurm.gpus.configure._inventory import Kind, SiteInventory
from podwright.slurm.gpus.configure._lines import fold, read_row
from podwright.slurm.gpus.configure._topology import RACKS, plan_topology, units
from podwright.slurm.gpus.requests import read_kinds
from podwright.slurm.site.releases import OLDEST

#: A command of Slurm's: its exit code and what it said, standard error first.
Ask = Callable[[Sequence[str]], tuple[int, str]]
_LACKS = "Operation not permitted"
#: A partition of whole nodes, as releases up to 25.11 and newer ones show it.
_WHOLE = re.compile(r"OverSubscribe=EXCLUSIVE|Exclusive=(NODE|TOPO)|ExclusiveTopo=YES")


class Promise(NamedTuple):
    """What was looked at, and what is wrong with it; empty: it is kept."""

    text: str
    problem: str = ""


#: How long one-GPU jobs may take to start on an idle node, and how often they are looked at.
_FILL_S, _LOOK_S = 30.0, 0.5


def commands(prefix: Sequence[str] = (), seconds: float = 60.0) -> Ask:
    """Slurm's own commands. prefix: what stands before each, for a Slurm elsewhere."""
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
    """All promises, one after another; jobs run on one node of each kind."""
    code, said = ask(["scontrol", "--oneliner", "show", "node"])
    if code:
        yield Promise("Slurm answers", _short(said))
        return
    yield Promise("every node has the GPUs of the inventory", _counted(inventory, said))
    config = ask(["scontrol", "show", "config"])[1]
    confined = re.search(r"^ConstrainDevices\s*=\s*yes", config, re.M | re.I)
    for kind, names in inventory.kinds().items():
        node = next((name for name in names if _idle(name, said)), names[0])
        into, shared = _partitions(node, said, ask)
        yield from _on_node(kind, node, into, ask, bool(confined), _features(node, said))
        if shared:  # elsewhere jobs have whole nodes, as the site wants it
            yield from _filled(len(kind.gpus), node, shared, ask, sleep)
    yield Promise("a type that there is not is refused", _refused(ask))
    version = re.search(r"^SLURM_VERSION\s*=\s*(\d+)\.(\d+)", config, re.M)
    release = (int(version[1]), int(version[2])) if version else OLDEST
    plugin = re.search(r"^TopologyPlugin\s*=\s*topology/(tree|block)", config, re.M)
    both = plan_topology(inventory, release, "auto").kind == "both"
    if plugin or both:
        leaves = [switch.name for switch in units(inventory.switches)]
        racks = [name for name, nodes in inventory.domains.items() if len(nodes) > 1]
        tree = bool(plugin and plugin[1] == "tree")
        problem = _knows(leaves if both or tree else list(inventory.domains), ask)
        if both and not problem:
            problem = _knows(racks, ask, RACKS)
        yield Promise("Slurm knows the network of the inventory", problem)


def _features(node: str, nodes: str) -> set[str]:
    found = re.search(rf"^NodeName={re.escape(node)} .*?AvailableFeatures=(\S+)", nodes, re.M)
    return set(found[1].split(",")) if found else set()


def _on_node(
    kind: Kind, node: str, into: list[str], ask: Ask, confined: bool, features: set[str]
) -> Iterator[Promise]:
    """into: options that name a partition of the node. features: those of the node; a site that
    does not use ours has promised none of them."""
    count = len(kind.gpus)
    head = ["srun", "--quiet", *into, f"--nodelist={node}", "--nodes=1", "--immediate=30"]
    own = [set(gpu.file.split(",")) for gpu in kind.gpus if gpu.file]  # a slice has several
    every = sorted(set().union(*own))
    files = " ".join(map(shlex.quote, every))
    script = f'for f in {files}; do test -e "$f" || echo "lacks $f"; done; '
    script += 'echo "@${CUDA_VISIBLE_DEVICES-${ROCR_VISIBLE_DEVICES-}}@"'
    code, said = ask([*head, "--ntasks=1", f"--gpus-per-node={count}", "sh", "-c", script])
    seen = re.search(r"@(.*?)@", said)
    problem = ""
    if code or not seen:
        problem = _short(said)
    elif "lacks" in said:
        problem = _short(said.partition("@")[0])
    elif len(seen[1].split(",")) != count:
        problem = f"it sees {seen[1] or 'none'}"
    yield Promise(f"{node}: a job finds {count} GPUs and their device files", problem)
    for word in kind.words:
        if word not in kind.features and word not in features:
            continue
        asked = ["sbatch", "--test-only", "--wrap=true", *into, "--gpus-per-node=1"]
        code, said = ask([*asked, f"--constraint={word}"])
        yield Promise(f"GPUs can be asked for by feature {word}", _short(said) if code else "")
    for type_ in dict.fromkeys(gpu.type for gpu in kind.gpus):
        asked = ["sbatch", "--test-only", "--wrap=true", *into]
        code, said = ask([*asked, f"--gres=gpu:{type_}:1"])
        yield Promise(f"GPUs can be asked for by type {type_}", _short(said) if code else "")
    if confined and count > 1:
        script = f'for f in {files}; do (: <"$f") 2>&1; done; true'
        code, said = ask([*head, "--ntasks=1", "--gpus-per-node=1", "sh", "-c", script])
        shut = said.count(_LACKS)
        wanted = {len(every) - len(mine) for mine in own}
        others = " or ".join(map(str, sorted(wanted)))
        problem = _short(said) if code else f"{shut} of {others} files of other GPUs are shut"
        yield Promise(f"{node}: a job opens its own GPUs alone", "" if shut in wanted else problem)


def _filled(
    count: int, node: str, partition: str, ask: Ask, sleep: Callable[[float], None]
) -> Iterator[Promise]:
    """Whether as many jobs of one GPU run at once, without --mem, as the node has GPUs."""
    text = f"{node}: {count} jobs of one GPU, without --mem, run at once"
    asked = ["sbatch", "--parsable", f"--array=1-{count}", "--nodes=1", "--ntasks=1", "--time=2"]
    asked += [f"--partition={partition}", f"--nodelist={node}", "--gpus-per-node=1"]
    asked += ["--job-name=podwright-check", "--output=/dev/null", "--wrap=sleep 60"]
    code, said = ask(asked)
    job = said.split()[-1].partition(";")[0] if said.split() else ""
    if code or not job.isdecimal():
        yield Promise(text, _short(said))
        return
    running, why = 0, ""
    try:
        for _ in range(int(_FILL_S / _LOOK_S)):
            shown = ask(["squeue", "-h", "-r", "-j", job, "-o", "%T %r"])[1].splitlines()
            running = sum(line.startswith("RUNNING") for line in shown)
            waiting = [line.partition(" ")[2] for line in shown if line.startswith("PENDING")]
            why = waiting[0] if waiting else ""
            if running == count or not shown:
                break
            sleep(_LOOK_S)
    finally:
        ask(["scancel", job])
    problem = f"{running} ran" + (f", the others waited ({why})" if why else "")
    yield Promise(text, "" if running == count else problem)


def _partitions(node: str, nodes: str, ask: Ask) -> tuple[list[str], str]:
    """(the option that names a partition of this node, one in which jobs share it), each empty
    where there is none."""
    found = re.search(rf"^NodeName={re.escape(node)} .*?Partitions=(\S+)", nodes, re.M)
    open_, shared = [], []
    for name in found[1].split(",") if found else []:
        said = ask(["scontrol", "--oneliner", "show", "partition", name])[1]
        if "State=UP" in said:
            open_.append(name)
            shared += [name] * (not _WHOLE.search(said))
    first = (shared or open_)[:1]
    return [f"--partition={name}" for name in first], (shared or [""])[0]


def _counted(inventory: SiteInventory, said: str) -> str:
    found: dict[str, tuple[dict[str, int], str, str]] = {}
    for line in said.splitlines():
        row = read_row(line)
        if "NodeName" in row:
            # A reason holds blanks, so it is read to its own end.
            reason = re.search(r"Reason=(.*?) \[", line)
            found[row["NodeName"]] = (
                read_kinds(row.get("Gres", "")),
                row.get("State", ""),
                reason[1] if reason else "",
            )
    wrong: dict[str, list[str]] = {}
    for name, kind in inventory.nodes.items():
        if name not in found:
            wrong.setdefault("Slurm has no such node", []).append(name)
            continue
        kinds, state, why = found[name]
        if kinds != read_kinds(kind.gres):
            has = ", ".join(f"{n} {k}" for k, n in kinds.items()) or "none"
            wrong.setdefault(f"Slurm counts {has}", []).append(name)
        elif any(bad in state for bad in ("INVAL", "DOWN", "DRAIN", "NOT_RESPONDING", "UNKNOWN")):
            wrong.setdefault(f"{state} {why}".strip(), []).append(name)
    return "; ".join(f"{fold(names)}: {problem}" for problem, names in wrong.items())


def _idle(name: str, said: str) -> bool:
    return bool(re.search(rf"^NodeName={re.escape(name)} .*State=IDLE\b(?!\+)", said, re.M))


def _refused(ask: Ask) -> str:
    code, said = ask(["sbatch", "--test-only", "--wrap=true", "--gres=gpu:podwright_no_type:1"])
    return "" if code else f"it was taken: {_short(said)}"


def _knows(names: Sequence[str], ask: Ask, topology: str = "") -> str:
    """topology: the one of topology.yaml that is asked about; empty: the cluster's."""
    code, said = ask(["scontrol", "show", "topology", *([topology] if topology else [])])
    there = set(re.findall(r"(?:SwitchName|BlockName)=(\S+)", said))
    lacking = [name for name in names if name not in there]
    if code or lacking:
        return _short(said) if code else f"{', '.join(lacking)} not in scontrol show topology"
    return ""


def _short(said: str) -> str:
    return " ".join(said.split())[:240] or "no word"
