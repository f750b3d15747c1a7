"""Reads what a script starts: the launcher (torchrun, accelerate, deepspeed, mpirun, python), the
srun around it, and the options of both, as far as the script fixes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.lint._shell import HOLE_CLOSE, HOLE_OPEN, ShellCommand, WordPlace
from podwright.gpu.requests import Given, is_number, known, parse_options

# Words in front of a program, and the number of words that belong to each.
_COMMAND_PREFIXES = {"time": 0, "exec": 0, "nohup": 0, "command": 0, "sudo": 0, "then": 0, "!": 0}
_NO_LAUNCH_PATTERN = re.compile(
    r"(\S*/)?(echo|printf|which|type|pip3?|ls|cd|cat|grep|sed|awk|module|ml|source|\.|export|mkdir|"
    r"cp|mv|rm|ps|kill|pkill|wget|curl|git|chmod|tee|true|false|:|set|alias|test|\[|exit|return|"
    r"break|continue|shift|unset|trap|ulimit|umask|declare|typeset|local|readonly|shopt|date|"
    r"hostname|uname|pwd|pushd|popd|nvidia-smi|rocm-smi|amd-smi|lscpu|free|df|du|head|wc|sort|find|"
    r"touch|ln|rsync|tar|unzip|printenv|squeue|sinfo|scontrol|sacct|seff)"
)
_CONDA_PATTERN = re.compile(r"(\S*/)?(conda|(micro)?mamba)")
_REMOTE_RUNNERS = re.compile(
    r"(\S*/)?(ssh|pdsh|clush|parallel|xargs|parallel-ssh|ibrun|aprun|jsrun|flux)"
)
_MPIRUN_PATTERN = re.compile(r"(\S*/)?mpi(run|exec)(\.\w+)?")
_PYTHON_PATTERN = re.compile(r"(\S*/)?python[\d.]*")
_TORCH_MODULE_PATTERN = re.compile(
    r"torch\.distributed\.(run|launch|launcher)|torch\.distributed\.elastic\.\w+"
)
# Programs that start the program behind them unchanged: launchers themselves, containers,
# environments, tools.
_STARTER_PATTERN = re.compile(
    r"(\S*/)?(python[\d.]*|torchrun|torch_run|accelerate|deepspeed|singularity|apptainer|shifter|docker|"
    r"podman|podman-hpc|enroot|ch-run|uv|uvx|poetry|pipenv|pixi|conda|micromamba|hatch|numactl|"
    r"taskset|nsys|ncu|rocprof\w*|timeout|nice|stdbuf|xvfb-run|bash|sh|env|coverage|scalene)"
)
# Options of plugins that take no value, used to find the start of the program. They are not judged.
_SRUN_FLAGS = {
    "container-mount-home", "no-container-mount-home", "container-remap-root",
    "no-container-remap-root", "container-entrypoint", "no-container-entrypoint",
    "container-entrypoint-log", "container-writable", "container-readonly", "clearenv", "vpn",
}  # fmt: skip
_MPI_VALUE_COUNTS = {
    "n": 1, "np": 1, "c": 1, "x": 1, "H": 1, "host": 1, "hostfile": 1, "machinefile": 1,
    "map-by": 1, "bind-to": 1, "rank-by": 1, "mca": 2, "gmca": 2, "wdir": 1, "wd": 1, "prefix": 1,
    "npernode": 1, "N": 1, "npersocket": 1, "path": 1, "output-filename": 1, "output": 1,
}  # fmt: skip
_MPI_FLAGS = {
    "display-map", "report-bindings", "tag-output", "allow-run-as-root", "v", "verbose", "q",
    "bynode", "bycore", "byslot", "bind-to-core", "bind-to-none", "timestamp-output",
}  # fmt: skip
_LAUNCHER_OPTIONS = {
    "torchrun": {
        "nnodes", "nproc-per-node", "node-rank", "rdzv-backend", "rdzv-endpoint", "rdzv-id",
        "rdzv-conf", "master-addr", "master-port", "max-restarts", "monitor-interval", "role",
        "start-method", "log-dir", "local-addr", "redirects", "tee", "r", "t", "local-ranks-filter",
        "logs-specs", "numa-binding", "event-log-handler", "local-rank",
    },
    "accelerate": {
        "config-file", "num-processes", "num-machines", "machine-rank", "main-process-ip",
        "main-process-port", "mixed-precision", "gpu-ids", "rdzv-backend", "rdzv-conf",
        "deepspeed-config-file", "deepspeed-hostfile", "deepspeed-multinode-launcher",
        "dynamo-backend", "zero-stage", "gradient-accumulation-steps",
        "num-cpu-threads-per-process",
        "max-restarts", "monitor-interval", "role", "log-dir", "tee", "main-training-function",
        "gradient-clipping", "offload-optimizer-device", "offload-param-device",
    },
    "deepspeed": {
        "num-gpus", "num-nodes", "hostfile", "include", "exclude", "master-addr", "master-port",
        "launcher", "launcher-args", "node-rank", "module", "i", "e", "H", "bind-core-list",
    },
}  # fmt: skip


class Launch(NamedTuple):
    """One start of a program.

    `kind` is torchrun, accelerate, deepspeed, python or other. `by` is srun, mpirun, remote or
    empty. `step` has the options of srun, `options` those of the launcher, with dashes, and
    `program` what it starts. `complete`: whether all options could be told from the program's own.
    """

    kind: str
    by: str
    line: int
    last: int
    place: WordPlace
    step: tuple[Given, ...] = ()
    options: Mapping[str, str] = {}
    program: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    complete: bool = True
    foreign: bool = False  # srun has words that could not be read

    @property
    def distributed(self) -> bool:
        """Whether the launcher starts several processes that communicate."""
        return self.kind in ("torchrun", "accelerate", "deepspeed")

    def given(self, *names: str) -> str | None:
        """Return the value of the first of these options of the launcher that was given."""
        return next((self.options[name] for name in names if name in self.options), None)

    def option(self, *names: str) -> Given | None:
        """Return the last of these options of srun."""
        return next((option for option in reversed(self.step) if option.name in names), None)


def read_launch(command: ShellCommand) -> Launch | None:
    """Return the program that a command starts; None for echo, cd and other commands that start
    none.
    """
    command_words = list(command.words)
    started_by, has_unread_words = "", False
    srun_options: list[Given] = []
    while command_words:
        first_word = command_words[0]
        if (
            first_word in _COMMAND_PREFIXES
            or first_word == "env"
            or re.fullmatch(r"\w+=.*", first_word)
        ):
            command_words = command_words[1:]
        elif re.fullmatch(r"(\S*/)?srun", first_word) and not started_by:
            started_by = "srun"
            srun_options, command_words, has_unread_words = read_step(command_words[1:])
        elif _MPIRUN_PATTERN.fullmatch(first_word) and not started_by:
            started_by = "mpirun"
            break
        elif _REMOTE_RUNNERS.fullmatch(first_word) and not started_by:
            started_by = "remote"
            break
        elif HOLE_OPEN in first_word and not started_by:
            started_by = "unknown"
            break
        else:
            break
    if not command_words or (not started_by and _NO_LAUNCH_PATTERN.fullmatch(command_words[0])):
        return None
    if _CONDA_PATTERN.fullmatch(command_words[0]) and "run" not in command_words[1:]:
        return None
    launcher_kind, launcher_options, program_words, all_options_known = _find_launcher(
        command_words
    )
    if (
        not started_by
        and launcher_kind != "other"
        and not _STARTER_PATTERN.fullmatch(command_words[0])
    ):
        started_by = "unknown"  # a wrapper of the site
    return Launch(
        launcher_kind, started_by, command.line, command.last, command.place, tuple(srun_options),
        launcher_options, tuple(program_words), tuple(command_words), all_options_known,
        has_unread_words,
    )  # fmt: skip


def starts(launch: Launch) -> bool:
    """Return whether the first word is known to start what follows unchanged."""
    return bool(launch.words) and bool(_STARTER_PATTERN.fullmatch(launch.words[0]))


def ranks(words: tuple[str, ...]) -> int | None:
    """Return the ranks that Open MPI's mpirun is to start; None if some of its options are not
    known.
    """
    rank_count = None
    word_index = 1
    while word_index < len(words) and words[word_index].startswith("-"):
        option_name = words[word_index].lstrip("-")
        if (
            option_name in ("n", "np", "c")
            and word_index + 1 < len(words)
            and is_number(words[word_index + 1])
        ):
            rank_count = int(words[word_index + 1])
        if option_name not in _MPI_VALUE_COUNTS and option_name not in _MPI_FLAGS:
            return None
        word_index += 1 + _MPI_VALUE_COUNTS.get(option_name, 0)
    return rank_count


def read_step(words: list[str]) -> tuple[list[Given], list[str], bool]:
    """Return (options of srun, the words behind them, whether some could not be read)."""
    known_options = known("srun")
    srun_options: list[Given] = []
    has_unread_words = False
    remaining_words = list(words)
    while remaining_words and remaining_words[0].startswith("-") and remaining_words[0] != "-":
        word = remaining_words[0]
        if word == "--":
            return srun_options, remaining_words[1:], has_unread_words
        option_name = word[2:].partition("=")[0] if word.startswith("--") else ""
        if (
            option_name
            and option_name not in known_options
            and sum(known_name.startswith(option_name) for known_name in known_options) != 1
        ):
            remaining_words = remaining_words[1:]
            if "=" in word or option_name in _SRUN_FLAGS:
                continue  # a plugin's option, which is certainly no more than this word
            has_unread_words = True
            if remaining_words and not remaining_words[0].startswith("-"):
                remaining_words = remaining_words[1:]
            continue
        consumed_words = 1
        try:
            try:
                parsed_options, _ = parse_options([word], "srun")
            except InvalidRequest:
                parsed_options, _ = parse_options(remaining_words[:2], "srun")
                consumed_words = 2
            srun_options += parsed_options
        except InvalidRequest:
            has_unread_words = True
        remaining_words = remaining_words[consumed_words:]
    if remaining_words and remaining_words[0].startswith(HOLE_OPEN):
        has_unread_words = True
    return srun_options, remaining_words, has_unread_words


def _find_launcher(words: list[str]) -> tuple[str, dict[str, str], list[str], bool]:
    """Return (kind, options, program, complete) of the first launcher among the words."""
    for word_index, word in enumerate(words):
        program_name = word.rpartition("/")[2]
        if program_name in ("torchrun", "torch_run"):
            return ("torchrun", *_read_launcher_options("torchrun", words[word_index + 1 :]))
        if program_name == "accelerate" and words[word_index + 1 : word_index + 2] == ["launch"]:
            return ("accelerate", *_read_launcher_options("accelerate", words[word_index + 2 :]))
        if program_name == "deepspeed" and word_index + 1 < len(words):
            return ("deepspeed", *_read_launcher_options("deepspeed", words[word_index + 1 :]))
        if _PYTHON_PATTERN.fullmatch(word):
            return _read_python_launch(words[word_index + 1 :])
        if program_name.endswith((".py", ".sh")):
            break
    return "other", {}, words, True


def _read_python_launch(words: list[str]) -> tuple[str, dict[str, str], list[str], bool]:
    for word_index, word in enumerate(words):
        if word == "-m" and word_index + 1 < len(words):
            module_name = words[word_index + 1]
            if _TORCH_MODULE_PATTERN.fullmatch(module_name):
                options, program_words, all_options_known = _read_launcher_options(
                    "torchrun", words[word_index + 2 :]
                )
                if module_name.endswith("launch"):
                    options = {"launch": "", **options}
                return "torchrun", options, program_words, all_options_known
            if module_name in ("accelerate.commands.launch", "accelerate.commands.accelerate_cli"):
                return (
                    "accelerate",
                    *_read_launcher_options("accelerate", words[word_index + 2 :]),
                )
            return "python", {}, words[word_index:], True
        if word == "-c" or not word.startswith("-"):
            return "python", {}, words[word_index:], True
    return "python", {}, [], True


def _read_launcher_options(
    launcher_kind: str, words: list[str]
) -> tuple[dict[str, str], list[str], bool]:
    """Return the launcher's options, up to the program, and whether all of them could be read."""
    valued_options = _LAUNCHER_OPTIONS[launcher_kind]
    options: dict[str, str] = {}
    word_index = 0
    all_options_known = True
    while word_index < len(words):
        word = words[word_index]
        if word in ("-m", "--module") and launcher_kind != "deepspeed":
            return options, words[word_index + 1 :], all_options_known
        if not word.startswith("-"):
            if word.startswith(HOLE_OPEN) and HOLE_CLOSE in word and not re.search(r"\.py$", word):
                all_options_known = False  # options may be in a variable
                word_index += 1
                continue
            return options, words[word_index:], all_options_known
        option_name, equals_sign, option_value = word.lstrip("-").partition("=")
        option_name = option_name.replace("_", "-") if len(option_name) > 1 else option_name
        if equals_sign:
            options[option_name] = option_value
        elif option_name in valued_options and word_index + 1 < len(words):
            word_index += 1
            options[option_name] = words[word_index]
        else:
            options[option_name] = ""
        word_index += 1
    return options, [], all_options_known


def names_slurm_launcher(launch: Launch) -> bool:
    """Return whether an argument of the program names something that starts tasks.

    Then the program may start tasks itself.
    """
    return any(
        re.search(r"(^|[=:\"'_-])(srun|slurm|mpirun|mpiexec|submitit)", argument)
        for argument in launch.words[1:]
    )


def names_task_count(launch: Launch, tasks: int | None) -> bool:
    """Return whether an argument of the program is the number of the job's tasks
    (`--num_gpus=1024`).

    Then the program knows of all tasks, and may start them itself.
    """
    count_pattern = r"(?i)--?\w*(gpu|task|rank|proc|world|worker|np)\w*[= ](\d+)(?!\S)"
    matches = re.findall(count_pattern, " ".join(launch.words[1:]))
    return bool(tasks) and any(int(number_text) == tasks for _, number_text in matches)
