"""Summaries of ended jobs: once each, by one process at a time, whatever goes wrong around it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from podwright.errors import Unavailable
from podwright.gpu.efficiency import AccountedJob, Destinations, append_as_user, work
from podwright.gpu.efficiency._sacct_jobs import _ACCOUNT_COLUMNS
from podwright.slurm.reader import CUT, accounting_format

BOTH = Destinations(comment=True, output=True)


class Accounts:
    """Slurm's commands: what sacct says of each job changes as a test wants it."""

    def __init__(self, output: Path) -> None:
        self.jobs: dict[str, dict[str, str]] = {}
        self.comments: list[tuple[str, str]] = []
        self.asked: list[str] = []
        self.output = output
        self.up = True

    def end(self, number: str, **more: str) -> None:
        self.jobs[number] = {
            "JobID": number,
            "JobIDRaw": number,
            "User": "root",
            "State": "COMPLETED",
            "Start": "100",
            "End": "200",
            **more,
        }

    def __call__(self, words: Sequence[str]) -> str | None:
        if words[0] == "sacct":
            self.asked.append(words[-1])
            wanted = words[-1].partition("=")[2].split(",")
            rows = [self.jobs[number] for number in wanted if number in self.jobs]
            lines = [
                CUT.join(
                    row.get(field, "") for field in accounting_format(*_ACCOUNT_COLUMNS).split(",")
                )
                for row in rows
            ]
            return "\n".join(lines) if self.up else None
        if words[:4] == ["scontrol", "--oneliner", "show", "job"]:
            return f"JobId={words[4]} StdErr=/dev/null StdOut={self.output}\n"
        if words[0] == "scontrol":
            return None  # it has forgotten the job
        job, comment = words[5], words[7]
        self.comments.append((job.partition("=")[2], comment.partition("=")[2]))
        return ""


@pytest.fixture
def accounts(tmp_path: Path) -> Accounts:
    output = tmp_path / "slurm.out"
    output.write_text("the job's own\n")
    return Accounts(output)


def noted(tmp_path: Path, *numbers: str) -> Path:
    folder = tmp_path / "ended"
    folder.mkdir(exist_ok=True)
    for number in numbers:
        (folder / number).touch()
    return folder


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


def says(job: AccountedJob) -> str:
    return f"GPUs 40 % busy of {job.raw}\n"


def test_a_summary_is_written_once_slurm_knows_the_end(tmp_path: Path, accounts: Accounts) -> None:
    folder = noted(tmp_path, "7", "8")
    accounts.end("7")
    accounts.jobs["8"] = {**accounts.jobs["7"], "JobID": "8", "JobIDRaw": "8", "End": "Unknown"}
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            accounts.end("8")

    assert work(folder, accounts, BOTH, says, append_as_user, sleep=sleep) == []
    assert waits == [1, 2, 4]
    assert accounts.comments == [
        ("7", "podwright: GPUs 40 % busy of 7"),
        ("8", "podwright: GPUs 40 % busy of 8"),
    ]
    assert accounts.output.read_text() == (
        "the job's own\npodwright: GPUs 40 % busy of 7\npodwright: GPUs 40 % busy of 8\n"
    )
    assert left(folder) == []


def test_all_that_wait_are_asked_for_at_once(tmp_path: Path, accounts: Accounts) -> None:
    numbers = [str(n) for n in range(100, 250)]
    for number in numbers:
        accounts.end(number)
    folder = noted(tmp_path, *numbers)
    assert work(folder, accounts, Destinations(True, False), says, append_as_user) == []
    assert len(accounts.asked) == 2
    assert [job for job, _ in accounts.comments] == numbers


def test_one_that_works_already_does_it(tmp_path: Path, accounts: Accounts) -> None:
    folder = noted(tmp_path, "7")
    accounts.end("7")
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert work(folder, accounts, BOTH, says, append_as_user) == []
        assert left(folder) == ["7"]
    work(folder, accounts, BOTH, says, append_as_user)
    assert left(folder) == []


def test_a_job_that_comes_as_another_worker_ends_is_not_forgotten(
    tmp_path: Path, accounts: Accounts
) -> None:
    """Its worker found the folder taken and ended; the other one looks once more after
    letting go.
    """
    folder = noted(tmp_path, "7")
    accounts.end("7")
    accounts.end("8")

    def comes(job: AccountedJob) -> str:
        if job.raw == "7":
            noted(tmp_path, "8")
        return says(job)

    work(folder, accounts, BOTH, comes, append_as_user, sleep=lambda _: None)
    assert [job for job, _ in accounts.comments] == ["7", "8"]


def test_nothing_waits_for_ever(tmp_path: Path, accounts: Accounts) -> None:
    folder = noted(tmp_path, "7", "8")
    accounts.up = False
    clock = [os.stat(folder / "7").st_mtime]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    wrong = work(folder, accounts, BOTH, says, append_as_user, sleep=sleep, now=lambda: clock[0])
    assert wrong == [
        "job 7: sacct does not tell of its end",
        "job 8: sacct does not tell of its end",
    ]
    assert left(folder) == []


def test_a_requeued_job_and_another_comment_are_left_alone(
    tmp_path: Path, accounts: Accounts
) -> None:
    accounts.end("7", State="PENDING")
    accounts.end("8", AdminComment="the site's own")
    folder = noted(tmp_path, "7", "8")
    (wrong,) = work(folder, accounts, Destinations(True, False), says, append_as_user)
    assert "another comment" in wrong
    assert accounts.comments == []


def test_a_summary_that_fails_stops_no_other(tmp_path: Path, accounts: Accounts) -> None:
    accounts.end("7")
    accounts.end("8")
    folder = noted(tmp_path, "7", "8")

    def breaks(job: AccountedJob) -> str:
        if job.raw == "7":
            raise Unavailable("its samples hang")
        return "a\x1b[31m\nb" + "x" * 1000

    (wrong,) = work(folder, accounts, Destinations(True, False), breaks, append_as_user)
    assert wrong.startswith("job 7: its samples hang")
    ((job, text),) = accounts.comments
    assert job == "8"
    assert text.isprintable()
    assert len(text) < 420


def test_only_a_plain_file_gets_a_line(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # a reader that never comes would hold us
    append_as_user("root", str(pipe), "line\n")
    append_as_user("root", str(tmp_path / "gone"), "line\n")
    assert not (tmp_path / "gone").exists()
