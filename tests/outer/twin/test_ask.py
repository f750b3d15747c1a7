"""A twin of a recorded cluster answers what the real cluster did, on each release of Slurm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from podwright.gpu import requests
from podwright.gpu.requests import Grant, SlurmRefusal
from podwright.gpu.requests._ask_twin import _twin_reply
from podwright.gpu.requests._slurm_reply import SlurmQuestion, request_answer
from podwright.slurm.twin import (
    Granted,
    InstalledSlurm,
    Refused,
    SiteFiles,
    Submission,
    Twin,
    Waits,
    find_slurm,
)
from tests.outer.lab import Release, release
from tests.slurm.twin.recorded import clusters, outcome_of, read_cluster, read_texts

pytestmark = pytest.mark.twin

#: Releases of the lab whose clusters are recorded.
RECORDED = {"oldest": "22.05.8", "newest": "26.05.5"}
CPUS = re.compile(r" cpus=\S*")
CHILD = Path(__file__).with_name("ask_as_user.py")


def installed(lab: Release) -> InstalledSlurm:
    """The Slurm of a lab, as a twin takes it."""
    found = find_slurm(path=str(lab.root) if lab.root else "")
    assert found is not None
    assert found.version == lab.version
    return found


@pytest.fixture(scope="module", params=["oldest", "middle", "newest"])
def slurm(request: pytest.FixtureRequest) -> InstalledSlurm:
    return installed(release(request.param))


@pytest.fixture(scope="module")
def site() -> SiteFiles:
    return read_cluster(clusters("22.05.8")[0])[0]


@pytest.fixture(scope="module")
def twin(slurm: InstalledSlurm, site: SiteFiles) -> Iterator[Twin]:
    with Twin(site, slurm) as started:
        yield started


@pytest.mark.parametrize("name", RECORDED)
def test_a_twin_answers_as_the_recorded_cluster_did(name: str) -> None:
    site, recorded = read_cluster(clusters(RECORDED[name])[0])
    with Twin(site, installed(release(name))) as twin:
        wrong = {
            request.options: (ours, request.outcome)
            for request in recorded[:15]
            if (ours := outcome_of(twin.ask(request.submission))) != request.outcome
        }
    assert wrong == {}


def test_each_kind_of_answer_has_slurms_own_text(twin: Twin) -> None:
    granted = twin.ask(Submission("sbatch", ("--gpus=2", "--exclude=n7")))
    assert isinstance(granted, Granted)
    assert sum(len(node.gpus) for node in granted.nodes) == 2
    assert "JobState=" in granted.record

    refused = twin.ask(Submission("sbatch", ("--gpus=1", "--partition=nowhere")))
    assert isinstance(refused, Refused)
    assert "invalid partition specified: nowhere" in refused.messages

    waits = twin.ask(Submission("sbatch", ("--gpus=1", "--begin=now+1hour")))
    assert isinstance(waits, Waits)
    assert waits.reason == "BeginTime"


@pytest.mark.parametrize("command", ["salloc", "srun"])
def test_salloc_and_srun_get_what_sbatch_gets(
    twin: Twin, command: Literal["salloc", "srun"]
) -> None:
    options = ("--gpus=h100:1", "--ntasks=1")
    expected = outcome_of(twin.ask(Submission("sbatch", options)))
    assert "gpus=" in expected
    answer = twin.ask(Submission(command, options))
    assert outcome_of(answer) == expected
    refused = twin.ask(Submission(command, ("--gpus=none:1",)))
    assert isinstance(refused, Refused)
    assert "error:" in refused.message


def test_a_request_is_taken_back_before_the_next(twin: Twin) -> None:
    everything = Submission("sbatch", ("--nodes=7", "--exclusive"))
    first = outcome_of(twin.ask(everything))
    assert first.count("mem=") == 7
    assert outcome_of(twin.ask(everything)) == first


def test_a_request_is_made_as_the_given_user(twin: Twin) -> None:
    answer = twin.ask(Submission("sbatch", ("--gpus=1",)), as_uid=12345)
    assert isinstance(answer, Granted)
    assert "UserId=user12345(12345)" in answer.record


def test_an_ordinary_user_gets_the_same_answers(slurm: InstalledSlurm, tmp_path: Path) -> None:
    name = "26.05.5" if slurm.version >= (26, 5) else "22.05.8"
    path = clusters(name)[0]
    done = as_user(1500, str(path), slurm.root, "4")
    assert done.returncode == 0, done.stderr
    expected = [request.outcome for request in read_cluster(path)[1][:4]]
    if slurm.release in path.parts:
        assert done.stdout.splitlines() == expected
    else:
        assert len(done.stdout.splitlines()) == 4


def as_user(uid: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs ask_as_user.py with the machine's own Python, as a user without privileges."""
    root = Path(__file__).parents[3]
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    return subprocess.run(
        [
            *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
            *("/usr/bin/python3", str(CHILD), *words),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=root,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{root}/src:{root}:{packages}",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        check=False,
    )


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", RECORDED)
def test_the_recorded_requests(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At least 99 % of the recorded requests, and the count of answers that leave out CPUs or are
    not known: those are of nodes that reserve cores, on 22.05."""
    slurm = installed(release(name))
    total, wrong, partly = 0, [], 0
    for path in clusters(RECORDED[name]):
        files, recorded = read_cluster(path)
        site = requests.read_site(read_texts(RECORDED[name], path.stem))
        with Twin(files, slurm) as twin:
            for one in recorded:
                total += 1
                request = requests.parse_request(list(one.submission.options))
                question = SlurmQuestion(request, one.submission, (), site, slurm.version)
                reply = _twin_reply(twin, question, slurm.release, with_tasks=False)
                answer = request_answer(question, reply, "Slurm").answer
                if isinstance(answer, SlurmRefusal) and answer.stage == "unknown":
                    partly += 1
                    continue
                ours = outcome_of(reply.answer)
                expected = one.outcome
                if isinstance(answer, Grant) and not all(node.cpus for node in answer.nodes):
                    partly += 1
                    ours, expected = CPUS.sub("", ours), CPUS.sub("", expected)
                if ours != expected:
                    wrong.append(f"{path.stem} {one.options}\n  {ours}\n  {one.outcome}")
    with capsys.disabled():
        print(
            f"\n{name}: {total - len(wrong)} of {total} equal, {partly} in part", *wrong, sep="\n"
        )
    assert len(wrong) <= 0.01 * total
    assert partly <= (0.25 * total if name == "oldest" else 0)
