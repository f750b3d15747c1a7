"""The launchers as data: how each is called, which options fix its processes, what it takes unsaid.

A launcher that is not here is not judged: no rule speaks about what it starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from podwright.gpu.lint._shell import HOLE_CLOSE, HOLE_OPEN


class Launcher(NamedTuple):
    """A program that starts the processes of one training, once on each node.

    call: how it is called, for advice. nodes, processes, rank: the options with the number of its
    copies, of its processes (`counts_all`: of all copies together), and of this copy.
    nodes_unsaid: the number of copies where that option is missing; None where a file may say it.
    processes_unsaid: the same; None for one on each GPU. addresses: the options with rank 0's
    place. dealing: backends of the rendezvous that number the copies. environment: the prefix of
    variables that stand for options. valued, valued_prefixes, flags: all options, with dashes.
    page: where all this is documented.
    """

    call: str
    nodes: str
    processes: str
    rank: str
    addresses: tuple[str, ...]
    page: str
    valued: frozenset[str]
    flags: frozenset[str]
    valued_prefixes: tuple[str, ...] = ()
    counts_all: bool = False
    nodes_unsaid: int | None = None
    processes_unsaid: int | None = None
    dealing: frozenset[str] = frozenset()
    environment: str = ""


LAUNCHERS: Mapping[str, Launcher] = {
    "torchrun": Launcher(
        call="torchrun",
        nodes="nnodes",
        processes="nproc-per-node",
        rank="node-rank",
        addresses=("rdzv-endpoint", "master-addr"),
        page="https://docs.pytorch.org/docs/stable/elastic/run.html",
        valued=frozenset({
            "nnodes", "nproc-per-node", "node-rank", "rdzv-backend", "rdzv-endpoint", "rdzv-id",
            "rdzv-conf", "master-addr", "master-port", "max-restarts", "monitor-interval", "role",
            "start-method", "log-dir", "local-addr", "redirects", "tee", "r", "t",
            "local-ranks-filter", "logs-specs", "numa-binding", "event-log-handler", "local-rank",
            "signals-to-handle", "duplicate-stdout-filters", "duplicate-stderr-filters",
        }),
        flags=frozenset({"standalone", "no-python", "run-path", "use-env"}),
        nodes_unsaid=1,
        processes_unsaid=1,
        dealing=frozenset({"c10d", "etcd", "etcd-v2"}),
        environment="PET_",
    ),
    "accelerate": Launcher(
        call="accelerate launch",
        nodes="num-machines",
        processes="num-processes",
        rank="machine-rank",
        addresses=("main-process-ip",),
        page="https://huggingface.co/docs/accelerate/package_reference/cli",
        valued=frozenset({
            "config-file", "num-processes", "num-machines", "machine-rank", "main-process-ip",
            "main-process-port", "mixed-precision", "gpu-ids", "rdzv-backend", "rdzv-conf",
            "dynamo-backend", "dynamo-mode", "zero-stage", "gradient-accumulation-steps",
            "num-cpu-threads-per-process", "max-restarts", "monitor-interval", "role", "log-dir",
            "tee", "main-training-function", "gradient-clipping", "offload-optimizer-device",
            "offload-param-device", "offload-optimizer-nvme-path", "offload-param-nvme-path",
            "zero3-init-flag", "zero3-save-16bit-model", "downcast-bf16", "tpu-name", "tpu-zone",
            "vm", "env",
        }),
        flags=frozenset({
            "multi-gpu", "cpu", "use-cpu", "use-deepspeed", "use-fsdp", "use-megatron-lm",
            "use-xpu", "tpu", "no-python", "debug", "quiet", "q", "same-network", "ipex",
            "enable-cpu-affinity", "use-parallelism-config", "dynamo-use-fullgraph",
            "dynamo-use-dynamic", "dynamo-use-regional-compilation", "no-tpu-cluster",
        }),
        valued_prefixes=("fsdp-", "deepspeed-", "megatron-lm-", "parallelism-config-", "fp8-"),
        counts_all=True,
        dealing=frozenset({"c10d", "etcd", "etcd-v2"}),
        environment="ACCELERATE_",
    ),
    "deepspeed": Launcher(
        call="deepspeed",
        nodes="num-nodes",
        processes="num-gpus",
        rank="node-rank",
        addresses=("master-addr",),
        page="https://www.deepspeed.ai/getting-started/#resource-configuration-multi-node",
        valued=frozenset({
            "num-gpus", "num-nodes", "hostfile", "include", "exclude", "master-addr",
            "master-port", "launcher", "launcher-args", "node-rank", "i", "e", "H",
            "bind-core-list", "ssh-port", "p", "enable-each-rank-log", "autotuning",
            "min-elastic-nodes", "max-elastic-nodes", "venv-script",
        }),
        flags=frozenset({
            "module", "no-python", "no-local-rank", "no-ssh", "no-ssh-check", "force-multi",
            "save-pid", "elastic-training", "bind-cores-to-rank",
        }),
    ),
}  # fmt: skip
_PYTHON_PATTERN = re.compile(r"(\S*/)?python[\d.]*")
_TORCH_MODULE_PATTERN = re.compile(
    r"torch\.distributed\.(run|launch|launcher)|torch\.distributed\.elastic\.\w+"
)
_MODULES = {
    "accelerate.commands.launch": "accelerate", "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed": "deepspeed", "deepspeed.launcher.runner": "deepspeed",
}  # fmt: skip
_FOUND_PATTERN = re.compile(rf"{HOLE_OPEN}\$\((?:which|command -v) ([\w-]+)\){HOLE_CLOSE}")


class LauncherCall(NamedTuple):
    """A launcher among the words of a command: its name, options (with dashes) and program.

    name: of LAUNCHERS, "python" or "program". complete: whether
    all of its options are known, and told from those of the program.
    """

    name: str
    options: Mapping[str, str]
    program: tuple[str, ...]
    complete: bool = True


def find_call(words: list[str]) -> LauncherCall:
    """Return the first launcher among the words, or the program itself."""
    for start, word in enumerate(words):
        name = _name_of(word)
        if name in ("torchrun", "torch_run"):
            return _read_call("torchrun", words, start + 1)
        if name == "accelerate" and words[start + 1 : start + 2] == ["launch"]:
            return _read_call("accelerate", words, start + 2)
        if name == "accelerate-launch":
            return _read_call("accelerate", words, start + 1)
        if name == "deepspeed" and start + 1 < len(words):
            return _read_call("deepspeed", words, start + 1)
        if _PYTHON_PATTERN.fullmatch(word):
            return _read_python_call(words, start)
        if name.endswith((".py", ".sh")):
            break
    return LauncherCall("program", {}, tuple(words))


def behind_retry(words: list[str]) -> list[str]:
    """Return the command behind `podwright slurm retry --max 3 --`; empty for another command."""
    if [_name_of(word) for word in words[:3]] != ["podwright", "slurm", "retry"]:
        return []
    index = 3
    while index < len(words) and words[index].startswith("-"):
        if words[index] == "--":
            return words[index + 1 :]
        index += 1 if "=" in words[index] else 2
    return words[index:]


def _name_of(word: str) -> str:
    """Return the name of a program, without its folder."""
    match = _FOUND_PATTERN.fullmatch(word)
    return match[1] if match else word.rpartition("/")[2]


def _read_python_call(words: list[str], start: int) -> LauncherCall:
    for index in range(start + 1, len(words)):
        word = words[index]
        if word == "-m" and index + 1 < len(words):
            module_name = words[index + 1]
            if _TORCH_MODULE_PATTERN.fullmatch(module_name):
                call = _read_call("torchrun", words, index + 2)
                is_old = module_name.endswith("launch")
                return call._replace(options={"launch": "", **call.options}) if is_old else call
            if module_name in _MODULES:
                return _read_call(_MODULES[module_name], words, index + 2)
            return LauncherCall("python", {}, tuple(words[index:]))
        if not word.startswith("-"):
            call = find_call(words[index:])  # python $(which torchrun)
            is_launcher = call.name in LAUNCHERS and _name_of(word) in ("torchrun", call.name)
            return call if is_launcher else LauncherCall("python", {}, tuple(words[index:]))
        if word == "-c":
            return LauncherCall("python", {}, tuple(words[index:]))
    return LauncherCall("python", {}, tuple(words[start + 1 :]))


def _read_call(name: str, words: list[str], index: int) -> LauncherCall:
    """Read the launcher's options, up to the program."""
    launcher = LAUNCHERS[name]
    options: dict[str, str] = {}
    complete = True
    while index < len(words):
        word = words[index]
        if word in ("-m", "--module") and name != "deepspeed":
            options["module"] = ""
            return LauncherCall(name, options, tuple(words[index + 1 :]), complete)
        if not word.startswith("-"):
            if word.startswith(HOLE_OPEN) and HOLE_CLOSE in word and not word.endswith(".py"):
                complete = False  # options may be in a variable
                index += 1
                continue
            return LauncherCall(name, options, tuple(words[index:]), complete)
        written, equals_sign, value = word.lstrip("-").partition("=")
        option = _full_name(launcher, written)
        takes_value = option in launcher.valued or option.startswith(launcher.valued_prefixes)
        if equals_sign:
            options[option] = value
        elif takes_value and index + 1 < len(words):
            index += 1
            options[option] = words[index]
        else:
            options[option] = ""
            complete = complete and option in launcher.flags
        index += 1
    return LauncherCall(name, options, (), complete)


def read_configuration(text: str) -> dict[str, str]:
    """Return the options that a configuration of accelerate stands for: lines of `key: value`.

    A value that is more than a word is left out, and what accelerate takes unsaid is put in.
    """
    launcher = LAUNCHERS["accelerate"]
    options = {"num-machines": "1", "machine-rank": "0"}
    for key, value in re.findall(r"^\s*(\w+):\s*[\"']?([^\s\"'#]+)[\"']?\s*$", text, re.M):
        name = key.replace("_", "-")
        if name in launcher.valued or name.startswith(launcher.valued_prefixes):
            options[name] = value
        elif (key, value.upper()) in (("distributed_type", "DEEPSPEED"), ("use_cpu", "TRUE")):
            options["use-deepspeed" if key == "distributed_type" else "use-cpu"] = ""
    return options


def _full_name(launcher: Launcher, written: str) -> str:
    """Return an option's name with dashes, and in full where argparse would take it so."""
    name = written.replace("_", "-") if len(written) > 1 else written
    known = launcher.valued | launcher.flags
    if name in known or name.startswith(launcher.valued_prefixes) or len(name) < 3:
        return name
    longer = [option for option in known if option.startswith(name)]
    return longer[0] if len(longer) == 1 else name
