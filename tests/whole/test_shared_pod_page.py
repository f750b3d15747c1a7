"""docs/admin/shared-pod.md: its command lines exist, and its server part does what it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from getpass import getuser
from itertools import takewhile

import pytest

from podwright.cli.about._command_parsers import COMMANDS, parser_of
from podwright.wire import (
    CreateRequest,
    EnqueueReply,
    EnqueueRequest,
    JobInfo,
    JobReport,
    PartitionEnd,
    PartitionSpec,
    PoolHead,
)
from tests.outer.lab import poll
from tests.pages import Block
from tests.whole.conftest import BIN, REPOSITORY, Pod

PAGE = (REPOSITORY / "docs/admin/shared-pod.md").read_text()


def _consoles() -> list[list[str]]:
    """The lines of each console on the page."""
    consoles = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text.splitlines() for text in consoles]


def _typed(lines: list[str]) -> list[str]:
    return [line[2:] for line in lines if line[:2] in ("# ", "$ ")]


def _printed(lines: list[str], typed: str) -> str:
    """What the page shows below a line of a console."""
    behind = lines[[line[2:] for line in lines].index(typed) + 1 :]
    shown = takewhile(lambda line: line[:2] not in ("# ", "$ "), behind)
    return "".join(f"{line}\n" for line in shown)


def _commands() -> list[str]:
    """Every command line of Podwright on the page, in consoles and in sentences."""
    sentences = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    parts = [part for lines in _consoles() for line in _typed(lines) for part in line.split(" | ")]
    parts += re.findall(r"`([^`]+)`", sentences)
    return [part for part in parts if " " in part and part.split()[0] in COMMANDS]


@pytest.mark.parametrize("line", dict.fromkeys(_commands()))
def test_every_command_line_of_the_page_is_one_that_the_commands_accept(line: str) -> None:
    command, *words = shlex.split(line)
    parser_of(command).parse_args(words)


def test_the_page_has_a_line_of_each_command() -> None:
    names = {line.split()[0] for line in _commands()}
    assert names == {"vipu", "vipu-admin", "vipu-server", "podwright"}


def test_the_server_part_is_typed(make_pod: Callable[..., Pod]) -> None:
    pod = make_pod("--preset", "pod64")
    users, _, _, check, _, _, weights = _consoles()
    for line in _typed(users):
        pod.good(*shlex.split(line.replace("--uid slurm", "--uid 64030")))
    assert (pod.folder / "kubernetes.vipu-cli.hcl").exists(), "the secret of the operator"
    with pod.client() as client:
        for guest in ("slurm", "kubernetes prod"):
            request = EnqueueRequest(guest=guest, pools=[PoolHead(cluster="pod64")])
            client.call("Enqueue", request)
    for line in _typed(check):
        pod.good(*shlex.split(line))
    wanted = _printed(weights, "vipu-admin list shares")
    for line in _typed(weights):
        said = pod.good(*shlex.split(line))
        if line == "vipu-admin list shares":
            assert said == wanted
    assert {row["weight"] for row in pod.json("vipu-admin", "list", "shares")} == {1.0}


END_S = 600.0  #: seconds until the first of the array's tasks is over


class Array:
    """Array 40 of Slurm, whose tasks of 4 devices fill a POD64: what Slurm's service calls."""

    def __init__(self, pod: Pod) -> None:
        self.pod, self.started = pod, 0

    def start(self, first: int = 0) -> None:
        """Start the next task on four devices."""
        self.started += 1
        spec = PartitionSpec(
            name=f"slurm_{40 + self.started}",
            cluster="pod64",
            devices=[(0, first + place) for place in range(4)],
        )
        job = f"slurm job {40 + self.started} start 0"
        request = CreateRequest(spec=spec, owner="alice", owner_uid=1001, job=job, guest="slurm")
        with self.pod.client() as client:
            client.call("CreatePartition", request)

    def look(self, *, due: bool) -> EnqueueReply:
        """Name the next task, and report those that wait."""
        waiting = [f"40_{self.started + 1}", f"40_{self.started + 2}"]
        head = PoolHead(cluster="pod64", job=f"job {waiting[0]}", owner="alice", sizes=[4], due=due)
        needs = "4 free IPUs in one block"
        jobs = [
            JobInfo(id=task, place=place, owner="alice", asked="4 IPUs", needs=needs)
            for place, task in enumerate(waiting, 1)
        ]
        with self.pod.client() as client:
            client.call("ReportJobs", JobReport(jobs=jobs, guest="slurm"))
            ends = [
                PartitionEnd(partition=info.name, seconds=END_S + index)
                for index, info in enumerate(client.list_partitions())
            ]
            request = EnqueueRequest(guest="slurm", pools=[head], end_times=ends)
            reply = client.call("Enqueue", request)
        assert isinstance(reply, EnqueueReply)
        return reply


def check_console(pod: Pod, lines: list[str], waiter: str) -> None:
    """Type the lines of a console that look at the queue, and compare what they print."""
    for typed in _typed(lines):
        if typed.startswith(("vipu list", "vipu explain")):
            said = pod.run(*shlex.split(typed.replace("w10000011", waiter))).out
            wanted = _plain(_printed(lines, typed))
            said = _plain(said.replace(waiter, "w10000011").replace(getuser(), "bob"))
            assert Block(typed, wanted).fits(said), said


def _plain(text: str) -> str:
    """A table without its widths, and without the numbers of the blocks that were chosen."""
    return re.sub(r"slurm_\d+", "slurm_N", re.sub(r"[ -]+", " ", text))


def test_who_waits_beside_an_array_learns_whose_turn_it_is(make_pod: Callable[..., Pod]) -> None:
    pod = make_pod("--preset", "pod64")
    array = Array(pod)
    for first in range(0, 64, 4):
        array.start(first)
    (place,) = array.look(due=True).places
    _, _, _, _, before, after, _ = _consoles()
    command, *words = shlex.split(_typed(before)[0])
    with subprocess.Popen(
        [BIN / command, *words], env=pod.environ, stderr=subprocess.DEVNULL
    ) as person:
        try:
            (waiter,) = poll("who waits", lambda: pod.json("vipu", "list", "waiters"))
            check_console(pod, before, waiter["id"])
            with pod.client() as client:
                client.remove_partition(f"slurm_{41 + place.devices[0][1] // 4}", force=True)
            poll("the offer", lambda: array.look(due=True).places[0].offered)
            array.start(place.devices[0][1])
            array.look(due=False)
            check_console(pod, after, waiter["id"])
        finally:
            person.kill()
