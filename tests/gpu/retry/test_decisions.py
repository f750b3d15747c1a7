"""Why a command failed, and what follows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from podwright.gpu.health import NodeRow
from podwright.gpu.retry._failure_records import (
    OWN_ERROR_FILE,
    FailureRecord,
    poprun_files,
    read_error_file,
    read_poprun_lines,
)
from podwright.gpu.retry._node_words import (
    NodesSeen,
    ask_nodes,
    probe_command,
    read_answers,
    slurms_word,
)
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


def record(node: str, message: str, at: float) -> FailureRecord:
    return FailureRecord(node, at, message, f"{TRACEBACK}{message}", f"the error file of {node}")


def by_records(*records: tuple[str, str, float]) -> JobFault:
    noise = f"{TRACEBACK}RuntimeError: NCCL timeout\nNameError: name 'y' is not defined\n"
    return find_cause(1, [FIT], noise, [record(*each) for each in records])


PROGRAM, DEVICE = "NameError: name 'x' is not defined", "RuntimeError: NCCL error: unhandled"


def test_an_error_of_the_program_counts_where_it_was_first() -> None:
    """The others fail by its end, and say so at length."""
    cause = by_records(("n2", DEVICE, 9.0), ("n1", PROGRAM, 7.0))
    assert (cause.name, cause.at_fault.because) == ("program", PROGRAM)
    assert cause.at_fault.source == "the error file of n1"


def test_an_error_of_the_program_after_another_fault_proves_nothing() -> None:
    cause = by_records(("n2", DEVICE, 5.0), ("n1", PROGRAM, 9.0))
    assert (cause.name, cause.nodes) == ("not known", ())
    assert cause.at_fault.because == f"it ended with 1, first on n2: {DEVICE}"


def test_of_records_of_the_same_second_none_is_first() -> None:
    assert by_records(("n2", DEVICE, 7.6), ("n1", PROGRAM, 7.1)).name == "not known"
    assert by_records(("n2", PROGRAM, 7.6), ("n1", PROGRAM, 7.1)).name == "program"


def test_the_first_word_of_srun_is_told_and_blames_nobody() -> None:
    cause = find_cause(
        137,
        [FIT],
        "srun: error: n2: task 5: Killed\nsrun: error: n1: tasks 0-3: Exited with exit code 1\n",
    )
    assert (cause.name, cause.nodes) == ("not known", ())
    assert cause.at_fault.because == "it ended with 137; srun says of n2: task 5: Killed"


def test_an_error_file_of_torch_elastic_is_read() -> None:
    text = (
        '{"message": {"message": "NameError: x", "errorCode": 1, "extraInfo": '
        '{"py_callstack": "Traceback\\n  in f", "timestamp": "1700000007"}}}'
    )
    assert read_error_file("n1", text) == FailureRecord(
        "n1",
        1700000007.0,
        "NameError: x",
        "NameError: x\nTraceback\n  in f",
        "the error file of torch elastic on n1",
    )
    for broken in ("", "{", "[]", '{"message": "x"}', text.replace("1700000007", "?"), text[:-9]):
        assert read_error_file("n1", broken) is None


def test_the_record_that_poprun_has_as_first_is_read() -> None:
    line = (
        '{{"host": "n{}", "time": {}, "code": 134, "first": {}, "message": {}, "last_lines": []}}'
    )
    lines = [line.format(1, 5.5, "false", "null"), line.format(2, 6.5, "true", '"NameError: x"')]
    (first,) = read_poprun_lines("\n".join([*lines, "{", ""]))
    assert (first.node, first.at, first.message) == ("n2", 6.5, "NameError: x")
    (only,) = read_poprun_lines(lines[0])
    assert only.message == "it ended with 134"


def test_the_folders_of_records_are_those_that_the_command_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOGS", "/l")
    assert poprun_files(["poprun", "--log-dir", "a", "x"]) == ["a/failures.jsonl"]
    assert poprun_files(["sh", "-c", "poprun --log-dir=$LOGS/b x"]) == ["/l/b/failures.jsonl"]
    assert poprun_files(["srun", "torchrun"]) == []


def step(says: Says, restarts: int = 0, others: int = 9) -> Stop | Again:
    judgement = Judgement(says=says, because="so", source="it")
    cause = JobFault(judgement, ("n2",) if says is Says.YES else ())
    return after_failure(cause, restarts, 3, ("n1", "n2"), others)


def test_a_job_starts_again_without_the_node_at_fault() -> None:
    assert step(Says.YES) == Again(("n2",), "so")
    assert isinstance(step(Says.YES, restarts=3), Stop)


def test_a_program_that_failed_is_not_started_again() -> None:
    assert isinstance(step(Says.NO), Stop)


def test_where_the_cause_is_not_known_other_nodes_are_tried_if_there_are_enough() -> None:
    assert step(Says.NOT_KNOWN, others=2) == Again(("n1", "n2"), "the cause is not known")
    assert step(Says.NOT_KNOWN, others=1) == Again((), "the cause is not known")
    assert isinstance(step(Says.NOT_KNOWN, restarts=3), Stop)


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


HEALTH = '{"host": "h", "judgement": {"says": "no", "because": "b", "source": "s", "left_out": []}}'


def test_answers_of_nodes_are_put_together_from_pieces_and_broken_ones_are_not_known() -> None:
    """srun cuts lines of more than 1,024 bytes and mixes the pieces of several nodes."""
    pieces = [
        f" 0: n1\t{HEALTH[:30]}", "10: n2\t", f" 0: {HEALTH[30:]}\t", "11: n3\t{",
        "slurmstepd: error",
    ]  # fmt: skip
    words, failures = read_answers("\n".join([*pieces, ""]))
    assert words[0] == NodeWord("n1", Says.NO, "b", "s")
    assert [(word.node, word.fit) for word in words[1:]] == [
        ("n2", Says.NOT_KNOWN),
        ("n3", Says.NOT_KNOWN),
    ]
    assert failures == []


class Cluster:
    """n1 with this process, n2 and n3. silent: those that answer no srun. noticed: the look at
    which Slurm knows that."""

    def __init__(self, *silent: str, noticed: int = 99) -> None:
        self.silent, self.noticed = silent, noticed
        self.looks, self.slept, self.probed = 0, 0.0, list[list[str]]()

    def run(self, words: Sequence[str], seconds: float) -> str:
        if words[0] == "sinfo":
            self.looks += 1
            gone = self.silent if self.looks >= self.noticed else ()
            names = ("n1", "n2", "n3", "n4")
            return "".join(f"{n}|gpu|allocated{'*' * (n in gone)}|1|none\n" for n in names)
        asked = words[words.index("--nodelist") + 1].split(",")
        assert words[words.index("--ntasks") + 1] == str(len(asked))
        self.probed.append(asked)
        return "".join(
            f"{k}: {n}\t{HEALTH.replace('no', 'yes')}\t\n"
            for k, n in enumerate(asked)
            if n not in self.silent
        )

    def ask(self) -> NodesSeen:
        environ = {"SLURMD_NODENAME": "n1", "SLURM_JOB_PARTITION": "gpu"}

        def sleep(seconds: float) -> None:
            self.slept += seconds

        return ask_nodes(["n1", "n2", "n3"], [], environ, self.run, sleep)


def test_nodes_that_all_answer_are_asked_once_and_at_once() -> None:
    cluster = Cluster()
    seen = cluster.ask()
    assert ([word.fit for word in seen.words], seen.usable_others) == ([Says.YES] * 3, 1)
    assert (cluster.slept, len(cluster.probed)) == (0, 1)


def test_a_node_that_does_not_answer_is_at_fault_once_slurm_says_so() -> None:
    cluster = Cluster("n2", noticed=2)
    words = {word.node: word for word in cluster.ask().words}
    assert (words["n2"].fit, words["n2"].source) == (Says.NO, "Slurm")
    assert (words["n1"].fit, words["n3"].fit) == (Says.YES, Says.YES)
    assert cluster.probed == [["n1", "n2", "n3"]]


def test_a_node_that_only_we_cannot_reach_is_not_at_fault() -> None:
    cluster = Cluster("n2")
    words = {word.node: word for word in cluster.ask().words}
    assert (words["n2"].fit, words["n2"].because) == (Says.NOT_KNOWN, "it does not answer")
    assert {tuple(asked) for asked in cluster.probed[1:]} == {("n2",)}
    assert cluster.slept == 300


def test_where_srun_does_not_work_nobody_is_waited_for() -> None:
    cluster = Cluster("n1", "n2", "n3")
    assert {word.fit for word in cluster.ask().words} == {Says.NOT_KNOWN}
    assert cluster.slept == 0


def test_a_probe_reads_the_error_file_and_removes_only_our_own(tmp_path: Path) -> None:
    """The shell's part of it, with a `podwright` that says nothing."""
    for own in (True, False):
        path = f"{OWN_ERROR_FILE}test-{tmp_path.name}-{os.getpid()}" if own else f"{tmp_path}/mine"
        Path(path).write_text('{"message":\n "a\\tb"}')
        script = probe_command(["n1"], path)[-1].replace(sys.executable, "true", 1)
        done = subprocess.run(
            ["sh", "-c", script],
            env={"SLURMD_NODENAME": "n1", "PATH": os.environ["PATH"]},
            capture_output=True,
            check=True,
            text=True,
        )
        assert done.stdout == 'n1\t\t{"message": "a\\tb"}\n'
        assert Path(path).exists() is not own
