"""Why a command failed, and what follows."""

from __future__ import annotations

import pytest

from podwright.gpu.health import NodeRow
from podwright.gpu.retry._node_words import probe_command, read_answers, slurms_word
from podwright.gpu.retry._retry_decisions import (
    Again,
    JobFault,
    NodeWord,
    Stop,
    after_failure,
    at_start,
    find_cause,
)
from podwright.ground.judgement import Judgement, Says

FIT = NodeWord("n1", Says.YES, "no fault is named", "the driver")
ILL = NodeWord("n2", Says.NO, "GPU 3 needs a reset", "the NVIDIA driver")
UNKNOWN = NodeWord("n3", Says.NOT_KNOWN, "the kernel's log cannot be read", "")
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3\n'


def test_a_sick_node_is_at_fault_whatever_the_output_says() -> None:
    cause = find_cause(1, [FIT, ILL, UNKNOWN], f"{TRACEBACK}NameError: name 'x' is not defined\n")
    assert (cause.name, cause.nodes) == ("hardware", ("n2",))
    assert cause.at_fault.because == "n2: GPU 3 needs a reset"
    assert cause.at_fault.source == "the NVIDIA driver"


@pytest.mark.parametrize(
    "line",
    [
        "NameError: name 'x' is not defined",
        "[rank3]: TypeError: forward() missing 1 required positional argument: 'x'",
        "0: SyntaxError: invalid syntax",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks",
        "slurmstepd-n1: error: Detected 2 oom-kill event(s) in StepId=7.batch cgroup",
    ],
)
def test_an_error_of_the_programs_text_or_size_is_the_programs(line: str) -> None:
    cause = find_cause(1, [FIT, UNKNOWN], f"{TRACEBACK}{line}\n")
    assert (cause.name, cause.nodes) == ("program", ())


@pytest.mark.parametrize(
    "output",
    [
        None,
        "",
        f"{TRACEBACK}RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
        f"{TRACEBACK}torch.distributed.DistBackendError: NCCL error: unhandled system error\n",
        f"{TRACEBACK}OSError: [Errno 5] Input/output error: 'data.bin'\n",
        f"{TRACEBACK}ModuleNotFoundError: No module named 'torch'\n",
        f"{TRACEBACK}OSError: [Errno 28] No space left on device\n",
        # What a device's fault leads to: the first error is another.
        f"{TRACEBACK}RuntimeError: NCCL timeout\nTypeError: 'NoneType' object is not callable\n",
        "srun: error: n1: task 0: Killed\n",
        # As in NVIDIA's tutorials of job recovery: a program may print anything.
        "Rank0: (1) segmentation fault: artificial segfault\n",
    ],
)
def test_a_traceback_alone_proves_nothing(output: str | None) -> None:
    cause = find_cause(1, [FIT, UNKNOWN], output)
    assert (cause.name, cause.nodes) == ("not known", ())
    assert "n3: the kernel's log cannot be read" in cause.at_fault.left_out


def step(says: Says, restarts: int = 0, others: int = 9, *, told: bool = False) -> Stop | Again:
    judgement = Judgement(says=says, because="so", source="it")
    cause = JobFault(judgement, ("n2",) if says is Says.YES else ())
    return after_failure(cause, restarts, 3, ("n1", "n2"), others, told=told)


def test_a_job_starts_again_without_the_node_at_fault() -> None:
    assert step(Says.YES) == Again(("n2",), "so")
    assert isinstance(step(Says.YES, restarts=3), Stop)


def test_a_program_that_failed_is_not_started_again() -> None:
    assert isinstance(step(Says.NO), Stop)


def test_where_the_cause_is_not_known_other_nodes_are_tried_if_there_are_enough() -> None:
    assert step(Says.NOT_KNOWN, others=2) == Again(("n1", "n2"), "the cause is not known")
    assert step(Says.NOT_KNOWN, others=1) == Again((), "the cause is not known")
    assert isinstance(step(Says.NOT_KNOWN, restarts=3), Stop)


@pytest.mark.parametrize("says", Says)
def test_a_job_that_slurm_ends_is_not_started_again(says: Says) -> None:
    assert isinstance(step(says, told=True), Stop)


def test_a_start_on_a_bad_node_runs_nothing_and_tries_again() -> None:
    assert at_start(1, 3, ("n1", "n2"), ("n2",)) == Again(("n2",), "the job has got n2 again")
    assert at_start(1, 3, ("n1", "n3"), ("n2",)) is None
    assert at_start(0, 3, ("n1",), ()) is None


def test_beyond_the_limit_nothing_is_started() -> None:
    assert isinstance(at_start(4, 3, ("n1",), ()), Stop)
    assert at_start(3, 3, ("n2",), ("n2",)) is None


def row(state: str, reason: str = "none") -> NodeRow:
    return NodeRow("n2", "gpu", state, "1700000000", reason)


def test_what_slurm_says_against_a_node() -> None:
    for state, reason in (
        ("down", "Not responding"), ("allocated*", "none"), ("draining", "podwright: GPU 3 lost"),
    ):  # fmt: skip
        word = slurms_word("n2", [row(state, reason)])
        assert word is not None
        assert word.fit is Says.NO
        assert slurms_word("n1", [row(state, reason)]) is None
    for state, reason in (
        ("allocated", "none"), ("draining", "Bob: fan"), ("draining", "podwright: held: GPU 1"),
    ):  # fmt: skip
        assert slurms_word("n2", [row(state, reason)]) is None


def test_answers_of_nodes_are_read_and_broken_ones_left_out() -> None:
    good = (
        '{"host": "h", "judgement": {"says": "no", "because": "b", "source": "s", "left_out": []}}'
    )
    answers = read_answers(f"n1 {good}\nn2 \nn3 {{\nslurmstepd: error\n")
    assert answers == {"n1": (Says.NO, "b", "s")}
    words = probe_command(["n1", "n2"])
    assert words[words.index("--nodelist") + 1] == "n1,n2"
    assert words[words.index("--ntasks") + 1] == "2"
