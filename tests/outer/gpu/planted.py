"""Faults that are planted in jobs of `podwright slurm retry`, and what is true of each.

n1 is the node that Slurm gives first. A command runs below `sh`, on the first node of its job.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass, field

PYTHON = shlex.quote(sys.executable)
ASKED, HARDWARE, PROGRAM, UNKNOWN = "", "hardware", "program", "not known"
NCCL = "echo 'RuntimeError: NCCL error: unhandled system error'; exit 1"
TORN = "echo 'RuntimeError: [1] is setting up NCCL communicator: Connection reset by peer'; exit 1"
WAIT = "while ! [ -e $SLURM_SUBMIT_DIR/go-$SLURM_JOB_ID ]; do sleep 0.1; done"
RESET = 'recovery = "reset"'
OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks"


@dataclass(frozen=True)
class Fault:
    """A fault. sick: the GPU fault of each node. while_running: what a test does meanwhile.

    causes: the one of each attempt. bad: the nodes at fault, all others being innocent. state: the
    job's last. restarts: how often Slurm starts it again; None: once for each attempt but the last.
    """

    name: str
    command: str
    causes: tuple[str, ...]
    bad: tuple[str, ...] = ()
    nodes: int = 1
    sick: dict[str, str] = field(default_factory=dict)
    state: str = "COMPLETED"
    options: tuple[str, ...] = ("--requeue",)
    while_running: str = ""
    restarts: int | None = None
    limit: int = 2
    newest_only: bool = False
    quick: bool = False

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def on(node: str, what: str) -> str:
    """What happens on one node; nothing on others."""
    return f'[ "$SLURMD_NODENAME" != {node} ] || {{ {what}; }}'


def at_first(count: int, what: str) -> str:
    """What happens on the nodes that a job of so many gets first."""
    return f'[ "$SLURM_JOB_NODELIST" != "n[1-{count}]" ] || {{ {what}; }}'


def ranks(count: int, what: str) -> str:
    """A process on each of so many nodes."""
    return f"srun -N{count} -n{count} --input=none sh -c {shlex.quote(what)}"


def python(source: str) -> str:
    return f"{PYTHON} -c {shlex.quote(source)}"


def torch_record(message: str, at: int) -> str:
    """What torch's @record does with an exception of this rank."""
    details = {"py_callstack": f"Traceback (most recent call last):\n{message}", "timestamp": at}
    text = json.dumps({"message": {"message": message, "extraInfo": details}})
    return f"printf %s {shlex.quote(text)} > $TORCHELASTIC_ERROR_FILE"


def poprun_record(message: str) -> str:
    record = {"host": "n1", "time": 5, "code": 1, "first": True, "message": message}
    return f"printf '%s\\n' {shlex.quote(json.dumps(record))} >> $SLURM_SUBMIT_DIR/failures.jsonl"


def _sick(name: str, fault: str, ending: str, *, quick: bool = False) -> Fault:
    return Fault(
        f"one node, {name}",
        on("n1", ending),
        (HARDWARE,),
        ("n1",),
        sick={"n1": fault},
        quick=quick,
    )


def _several(name: str, count: int, bad: tuple[str, ...], what: str, **more: object) -> Fault:
    sick = dict.fromkeys(bad, RESET)
    return Fault(name, ranks(count, what), (HARDWARE,), bad, count, sick, **more)  # type: ignore[arg-type]


GPU_FAULTS = [
    _sick("its GPU needs a reset", RESET, "exit 3", quick=True),
    _sick("its GPU needs a reboot", 'recovery = "reboot"', "kill -SEGV $$"),
    _sick("its GPU is to be drained", 'recovery = "drain"', python("undefined")),
    _sick("its GPU has no spare row", 'row_remap = "failed"', NCCL),
    _sick("its GPU is lost", "lost = true", "exit 1"),
    _sick("its GPU has wrong memory", "ecc_uncorrected = 5", "echo CUDA error: ECC; exit 1"),
    _sick("a program that is not there", RESET, "exit 127"),
    _sick("an abort", RESET, "kill -ABRT $$"),
    _several("two nodes, the second is sick", 2, ("n2",), on("n2", "exit 1"), quick=True),
    _several("two nodes, the peer of the sick one fails", 2, ("n2",), at_first(2, on("n1", TORN))),
    _several("three nodes, the third is sick", 3, ("n3",), on("n3", "kill -BUS $$")),
    _several("three nodes, the first is sick", 3, ("n1",), on("n1", NCCL)),
    _several(
        "three nodes, a peer records the failure first",
        3,
        ("n2",),
        at_first(3, f"{torch_record('RuntimeError: NCCL timeout', 5)}; {on('n1', 'exit 1')}"),
    ),
    _several(
        "two nodes, both are sick",
        2,
        ("n1", "n2"),
        'case "$SLURMD_NODENAME" in n1|n2) exit 1;; esac',
    ),
    _several("two nodes, the first is sick, a rank is killed", 2, ("n1",), on("n1", "kill -9 $$")),
    _several("two nodes, a TypeError on the sick one", 2, ("n2",), on("n2", python("len(3)"))),
    Fault(
        "two nodes, the GPU of the second is lost",
        ranks(2, on("n2", "exit 1")),
        (HARDWARE,),
        ("n2",),
        2,
        sick={"n2": "lost = true"},
    ),
    Fault(
        "three nodes, wrong memory in the second",
        ranks(3, on("n2", "echo CUDA error: ECC; exit 1")),
        (HARDWARE,),
        ("n2",),
        3,
        sick={"n2": "ecc_uncorrected = 5"},
    ),
    Fault(
        "two sick nodes, one after the other",
        '[ "$SLURMD_NODENAME" = n3 ]',
        (HARDWARE, HARDWARE),
        ("n1", "n2"),
        sick={"n1": RESET, "n2": RESET},
        quick=True,
    ),
    Fault(
        "two nodes, a sick one in each of two attempts",
        ranks(2, 'case "$SLURMD_NODENAME" in n1|n3) exit 1;; esac'),
        (HARDWARE, HARDWARE),
        ("n1", "n3"),
        2,
        sick={"n1": RESET, "n3": RESET},
    ),
    Fault(
        "all attempts get sick nodes",
        "exit 4",
        (HARDWARE, HARDWARE, HARDWARE),
        ("n1", "n2", "n3"),
        sick={"n1": RESET, "n2": RESET, "n3": RESET},
        state="FAILED",
    ),
]
SLURMS_WORDS = [
    Fault(
        "root's health check drains the node",
        on("n1", f"{WAIT}; exit 5"),
        (HARDWARE,),
        ("n1",),
        while_running="drain n1 podwright: GPU 1 has fallen off the bus",
        quick=True,
    ),
    Fault(
        "root's health check drains one of two nodes",
        ranks(2, f"{WAIT}; {on('n2', 'exit 5')}"),
        (HARDWARE,),
        ("n2",),
        2,
        while_running="drain n2 podwright: GPU 0 needs a reset",
    ),
    Fault(
        "an administrator drains the node",
        on("n1", f"{WAIT}; exit 5"),
        (UNKNOWN,),
        while_running="drain n1 Bob: the fan is loud",
    ),
    Fault(
        "one of two nodes does not answer",
        at_first(2, f"{WAIT}; exit 1"),
        (HARDWARE,),
        ("n2",),
        2,
        while_running="cut n2",
    ),
    Fault(
        "one of three nodes does not answer",
        at_first(3, f"{WAIT}; exit 1"),
        (HARDWARE,),
        ("n3",),
        3,
        while_running="cut n3",
    ),
]


def _program(name: str, command: str, **more: object) -> Fault:
    return Fault(name, command, (PROGRAM,), state="FAILED", **more)  # type: ignore[arg-type]


_NAME_ERROR = "NameError: name 'x' is not defined"
_RECORDED = f"{torch_record(_NAME_ERROR, 7)}; {python('undefined')}; exit 1"
PROGRAM_FAULTS = [
    _program("NameError", python("undefined"), quick=True),
    _program("TypeError", python("len(3)")),
    _program("SyntaxError", python("def")),
    _program("UnboundLocalError", python("def f():\n  x += 1\nf()")),
    _program("IndentationError", python("if 1:\nx")),
    _program("TypeError below a shell", f"set -e; {python('int([])')}; echo not reached"),
    _program("TypeError in three ranks", ranks(3, python("len(3)")), nodes=3),
    _program("NameError in both ranks", ranks(2, python("undefined")), nodes=2),
    _program(
        "NameError in one rank, the other loses its peer",
        ranks(
            2,
            f"{on('n2', _RECORDED)}; "
            f"{torch_record('RuntimeError: Connection reset by peer', 9)}; {TORN}",
        ),
        nodes=2,
        quick=True,
    ),
    _program(
        "poprun records a NameError first",
        f"{poprun_record(_NAME_ERROR)}; {TORN} # poprun --log-dir=$SLURM_SUBMIT_DIR",
    ),
    _program("more memory than the job has", f"echo '{OOM}' >&2; exit 137"),
    _program("more memory in one rank", ranks(2, on("n2", f"echo '{OOM}' >&2; exit 9")), nodes=2),
    Fault(
        "a sick node, and then a NameError",
        f"{on('n1', 'exit 1')}; exec {python('undefined')}",
        (HARDWARE, PROGRAM),
        ("n1",),
        sick={"n1": RESET},
        state="FAILED",
    ),
]
REQUESTS = [
    Fault(
        "cancelled",
        "sleep 600",
        (ASKED,),
        sick={"n1": RESET},
        state="CANCELLED",
        while_running="cancel",
        restarts=0,
        quick=True,
    ),
    Fault(
        "two nodes, cancelled",
        ranks(2, "sleep 600"),
        (ASKED,),
        nodes=2,
        sick={"n2": RESET},
        state="CANCELLED",
        while_running="cancel",
        restarts=0,
    ),
    Fault(
        "its time is over",
        "sleep 600",
        (ASKED,),
        sick={"n1": RESET},
        state="TIMEOUT",
        options=("--requeue", "--time=1"),
        while_running="wait",
        restarts=0,
    ),
    Fault(
        "preempted",
        '[ "$SLURM_RESTART_COUNT" = 1 ] || sleep 600',
        (ASKED,),
        nodes=4,
        sick={"n1": RESET},
        while_running="preempt",
        quick=True,
    ),
]
REQUEUES = [
    Fault(
        "requeue is forbidden",
        on("n1", "exit 3"),
        (HARDWARE,),
        ("n1",),
        sick={"n1": RESET},
        options=("--no-requeue",),
        quick=True,
    ),
    Fault(
        "requeue is forbidden, two nodes",
        ranks(2, on("n2", "exit 3")),
        (HARDWARE,),
        ("n2",),
        2,
        sick={"n2": RESET},
        options=("--no-requeue",),
    ),
    Fault(
        "retry is killed",
        "kill -KILL $PPID; exit 3",
        (),
        sick={"n1": RESET},
        state="FAILED",
        restarts=0,
    ),
    Fault(
        "expedited, the node is sick",
        on("n1", "exit 3"),
        (HARDWARE,),
        ("n1",),
        sick={"n1": RESET},
        options=("--requeue=expedite",),
        newest_only=True,
    ),
    Fault(
        "expedited, the program fails",
        python("undefined"),
        (PROGRAM,),
        state="FAILED",
        options=("--requeue=expedite",),
        newest_only=True,
    ),
    Fault(
        "expedited, cancelled",
        "sleep 600",
        (ASKED,),
        state="CANCELLED",
        options=("--requeue=expedite",),
        while_running="cancel",
        restarts=0,
        newest_only=True,
    ),
]
#: NVIDIA's public scripts that show its recovery of jobs at work, with shorter pauses: a step of
#: which only a file knows that it failed.
_LOG = "$SLURM_SUBMIT_DIR/step-$SLURM_JOB_ID.log"
_ARTIFICIAL = (
    f"srun --output={_LOG} sh -c \"echo 'Start time'; sleep 1; "
    "echo 'Rank0: (1) segmentation fault: artificial segfault'; sleep 1; exit 1\""
)
UNKNOWNS = [
    Fault("a rank is killed", "kill -KILL $$", (UNKNOWN,) * 3, state="FAILED", quick=True),
    Fault(
        "one of two ranks is killed",
        ranks(2, on("n2", "kill -KILL $$")),
        (UNKNOWN,),
        nodes=2,
    ),
    Fault("the disk is full", on("n1", "exec cat /etc/passwd > /dev/full"), (UNKNOWN,)),
    Fault("NVIDIA's test: requeue", _ARTIFICIAL, (UNKNOWN,) * 2, state="FAILED", limit=1),
    Fault(
        "NVIDIA's test: singleton",
        _ARTIFICIAL,
        (UNKNOWN,) * 2,
        state="FAILED",
        options=("--requeue", "--dependency=singleton", "--job-name=singleton"),
        limit=1,
    ),
]
FAULTS = [*GPU_FAULTS, *SLURMS_WORDS, *PROGRAM_FAULTS, *REQUESTS, *REQUEUES, *UNKNOWNS]
