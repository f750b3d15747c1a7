"""What differs between two answers of Slurm, and which submissions are read from sacct."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import InvalidRequest, Unavailable
from podwright.gpu.rehearse import (
    AnswerPair,
    Rehearsal,
    Side,
    Submissions,
    as_json,
    as_text,
    broken_lines,
    changed_files,
    differences,
    from_sacct,
    from_scripts,
    limited,
    settled,
    twins_are_equal,
    unseen_changes,
)
from podwright.gpu.rehearse._rehearse import ask_both_sides
from podwright.gpu.requests import read_site_files
from podwright.slurm.reader import CUT
from podwright.slurm.twin import (
    Granted,
    GrantedNode,
    InstalledSlurm,
    Refused,
    SiteFiles,
    Submission,
    Waits,
)

SUBMISSION = Submission("sbatch", ("--gpus=1",))
REFUSED = Refused("sbatch: error: Invalid generic resource (gres) specification")
WAITS = Waits("PartitionTimeLimit", "")


def granted(*nodes: GrantedNode, partition: str = "gpu", limit: str = "01:00:00") -> Granted:
    return Granted(nodes, partition, f"JobId=1 TimeLimit={limit} TimeMin=N/A")


def node(
    name: str = "n1", cpus: tuple[int, ...] = (0, 1), memory: int = 100, gpu: int = 0
) -> GrantedNode:
    return GrantedNode(name, cpus, memory, (gpu,))


BASE = granted(node())


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (BASE, BASE, []),
        (REFUSED, REFUSED, []),
        (WAITS, WAITS, []),
        (BASE, REFUSED, [("refused", "Invalid generic resource (gres) specification")]),
        (REFUSED, WAITS, [("accepted", "PartitionTimeLimit")]),
        (REFUSED, BASE, [("accepted", "Invalid generic resource (gres) specification")]),
        (BASE, WAITS, [("waits", "PartitionTimeLimit")]),
        (WAITS, BASE, [("starts", "PartitionTimeLimit")]),
        (WAITS, Waits("Resources", ""), [("reason", "Resources")]),
        (BASE, granted(node(gpu=1)), [("GPUs", "GPUs: n1 0 becomes n1 1")]),
        (BASE, granted(node("n2", gpu=3)), [("nodes", "nodes: n1 becomes n2")]),
        (BASE, granted(node(cpus=(4, 5))), []),
        (BASE, granted(node(cpus=(0,))), [("CPUs", "CPUs: n1 2 CPUs becomes n1 1 CPUs")]),
        (BASE, granted(node(memory=200)), [("memory", "memory: n1 100 MiB becomes n1 200 MiB")]),
        (
            BASE,
            granted(node(), limit="02:00:00"),
            [
                (
                    "limits",
                    "limits: partition gpu, time limit 01:00:00 becomes "
                    "partition gpu, time limit 02:00:00",
                )
            ],
        ),
        (
            BASE,
            granted(node("n2", memory=200)),
            [
                ("nodes", "nodes: n1 becomes n2"),
                ("memory", "memory: 100 MiB becomes 200 MiB"),
            ],
        ),
        (granted(node("a"), node("b")), granted(node("b"), node("a")), []),
        (granted(node(), limit="UNLIMITED"), granted(node(), limit="365-00:00:00"), []),
    ],
)
def test_each_aspect_that_differs_is_listed(
    before: Granted | Waits | Refused,
    after: Granted | Waits | Refused,
    expected: list[tuple[str, str]],
) -> None:
    found = differences([AnswerPair(("7", "8"), SUBMISSION, before, after)])
    assert [(change.kind, change.reason) for change in found] == expected
    assert all(change.jobs == ("7", "8") for change in found)
    assert all(change.options == "sbatch --gpus=1" for change in found)


def line(job: str, typed: str, folder: str = "/home/ann") -> str:
    return CUT.join((job, folder, typed)) + "\n"


def absent(path: Path) -> str:
    raise FileNotFoundError(path)


def scripts(**texts: str) -> Callable[[Path], str]:
    def read(path: Path) -> str:
        assert path.parent == Path("/home/ann")
        return texts[path.stem]

    return read


def test_equal_submissions_are_one_with_the_jobs_of_all() -> None:
    text = line("1", "sbatch -G2 --wrap hostname") + line("2", "sbatch --gpus=2 --wrap=date")
    text += line("3", "srun -n2 ./program --gpus=9")
    found = from_sacct(text, absent)
    assert found.jobs == {
        Submission("sbatch", ("--gpus=2",)): ["1", "2"],
        Submission("srun", ("--ntasks=2",)): ["3"],
    }
    assert list(limited(found, 1)) == [(Submission("sbatch", ("--gpus=2",)), ["1", "2"])]
    assert found.count == 3


def test_a_scripts_lines_count_below_the_command_line() -> None:
    script = "#!/bin/sh\n#SBATCH --gpus=4\n#SBATCH -p long\nexport TOKEN=secret\n"
    found = from_sacct(line("1", "sbatch --gpus=2 train.sh --epochs 3"), scripts(train=script))
    assert list(found.jobs) == [Submission("sbatch", ("--partition=long", "--gpus=2"))]
    assert "secret" not in repr(found)


def test_neither_files_nor_environment_reach_a_twin() -> None:
    typed = "sbatch --export=TOKEN=secret --output=/x -D /y --mail-user=a@b --gpus=1 --wrap=z"
    found = from_sacct(line("1", typed + " "), absent)
    assert list(found.jobs) == [SUBMISSION]


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("", "its submit line is not recorded"),
        ("sbatch", "its script came from standard input and is not recorded"),
        ("sbatch gone.sh", "its script cannot be read"),
        ("srun -n1 : -n2 ./a", "it is a heterogeneous job"),
        (
            "sbatch --gpu-per-node=1 x.sh",
            "its options cannot be read: sbatch has no option --gpu-per-node",
        ),
    ],
)
def test_a_job_that_is_not_rehearsed_is_listed_with_its_reason(typed: str, reason: str) -> None:
    found = from_sacct(line("5", typed), absent)
    assert (found.jobs, found.skipped) == ({}, {reason: ["5"]})


def test_an_option_that_no_twin_judges_is_listed() -> None:
    found = from_sacct(line("5", "sbatch --gpus=1 --qos=high --wrap=z"), absent)
    assert found.jobs == {SUBMISSION: ["5"]}
    assert found.left_out == {"qos": ["5"]}


def test_an_option_of_a_plugin_is_listed_and_the_job_is_rehearsed() -> None:
    script = "#!/bin/sh\n#SBATCH --gpus=1\n#SBATCH --container-image=nvcr.io/x\n"
    found = from_sacct(line("5", "sbatch --container-mounts=/data a.sh"), scripts(a=script))
    assert found.jobs == {SUBMISSION: ["5"]}
    assert found.left_out == {"container-image": ["5"], "container-mounts": ["5"]}


def test_a_folder_gives_its_job_scripts(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("#!/bin/sh\n#SBATCH --gpus=1\n")
    (tmp_path / "notes.txt").write_text("no job\n")
    assert from_scripts(tmp_path).jobs == {SUBMISSION: ["a.sh"]}
    with pytest.raises(InvalidRequest):
        from_scripts(tmp_path / "none")


def test_missing_files_are_those_of_today_and_a_missing_include_is_an_error(
    tmp_path: Path,
) -> None:
    conf = tmp_path / "slurm.conf"
    (tmp_path / "nodes.conf").write_text("NodeName=n1 CPUs=2\n")
    conf.write_text("ClusterName=c\nInclude nodes.conf\n")
    today = SiteFiles(gres_conf="today", topology_conf="switches")
    (tmp_path / "topology.conf").write_text("SwitchName=s Nodes=n1\n")
    found = read_site_files(conf, today)
    assert "NodeName=n1 CPUs=2" in found.slurm_conf
    assert (found.gres_conf, found.topology_conf) == ("today", "SwitchName=s Nodes=n1")
    conf.write_text("Include gone.conf\n")
    with pytest.raises(InvalidRequest, match=r"gone\.conf"):
        read_site_files(conf)


class FixedAnswer:
    """Answers each submission alike."""

    def __init__(self, answer: Granted | Waits | Refused) -> None:
        self.answer = answer

    def ask(self, request: Submission) -> Granted | Waits | Refused:
        return self.answer


@pytest.mark.parametrize("count", [1, 3])
def test_both_sides_are_asked_and_progress_is_counted(count: int) -> None:
    counts: list[int] = []
    submissions = [(Submission("sbatch", (f"--gpus={n}",)), [str(n)]) for n in range(20)]
    oracles = [(FixedAnswer(BASE), FixedAnswer(WAITS)) for _ in range(count)]
    pairs = ask_both_sides(submissions, oracles, counts.append)
    assert pairs == [
        AnswerPair((str(n),), submission, BASE, WAITS)
        for n, (submission, _) in enumerate(submissions)
    ]
    assert counts == list(range(1, 21))


class ChangingAnswer:
    """Answers each time with the next of these, and in the end with the last."""

    def __init__(self, *answers: Granted | Waits | Refused) -> None:
        self.answers = list(answers)

    def ask(self, request: Submission) -> Granted | Waits | Refused:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


_SETTLING = Waits("Resources", "")


@pytest.mark.parametrize(
    ("first", "later", "outcome"),
    [
        (_SETTLING, [BASE], "as before"),  # a node was not up yet
        (REFUSED, [REFUSED], "refused"),
        (_SETTLING, [REFUSED, REFUSED], "refused"),
        (_SETTLING, [REFUSED, WAITS, _SETTLING], "not known"),
    ],
)
def test_a_difference_counts_when_two_rounds_agree(
    first: Granted | Waits | Refused, later: list[Granted | Waits | Refused], outcome: str
) -> None:
    answers = [AnswerPair(("1",), SUBMISSION, BASE, first)]
    oracles = [(FixedAnswer(BASE), ChangingAnswer(*later))]
    rehearsal = settled(answers, oracles)
    kinds = [change.kind for change in differences(rehearsal.answers)]
    assert (kinds, len(rehearsal.unsettled)) == {
        "as before": ([], 0),
        "refused": (["refused"], 0),
        "not known": ([], 1),
    }[outcome]


CONF = """\
ClusterName=c
NodeName=n[1-2] CPUs=4 Gres=gpu:2 Reason="a fault"
PartitionName=gpu Nodes=ALL Default=YES
"""
GRES = "Name=gpu File=/dev/nvidia[0-1]\n"


def side(slurm_conf: str = CONF, release: str = "26.05.5", **files: Any) -> Side:
    site_files = replace(SiteFiles(slurm_conf=slurm_conf, gres_conf=GRES), **files)
    return Side("slurm.conf", site_files, InstalledSlurm((26, 5), release=release))


def test_a_change_that_reaches_no_slurmctld_starts_none() -> None:
    assert twins_are_equal(side(), side(f"# a comment\n{CONF}SlurmctldLogFile=/x\n"))
    assert not twins_are_equal(side(), side(CONF.replace("CPUs=4", "CPUs=8")))
    assert not twins_are_equal(side(), side(release="26.05.6"))
    assert not twins_are_equal(side(), side(topology_conf="SwitchName=s Nodes=n[1-2]\n"))


def test_a_change_that_no_twin_takes_over_is_named() -> None:
    changed = CONF.replace("Default=YES", "Default=YES QOS=normal") + "PriorityType=x\n"
    assert unseen_changes(side().files, side(changed).files) == ["prioritytype", "qos of gpu"]
    seen = CONF.replace("Default=YES", "Default=YES MaxTime=60") + "DefMemPerCPU=9\n"
    assert unseen_changes(side().files, side(seen).files) == []
    topology = side(topology_conf="SwitchName=s Nodes=n[1-2]\n").files
    assert changed_files(side().files, topology) == ["topology.conf"]


def test_a_line_with_a_key_that_no_slurm_has_is_named() -> None:
    assert broken_lines(side()) == []
    broken = side(CONF.replace("Gres=", "Gress="), gres_conf="Name=gpu Fle=/dev/nvidia0\n")
    assert [line.partition(" ")[0] for line in broken_lines(broken)] == ["gress", "fle"]


def test_the_report_says_in_its_first_lines_what_was_not_looked_at() -> None:
    changed = side(CONF.replace("Default=YES", "Default=YES QOS=normal"))
    report = as_json((side(), changed), Submissions(), [], Rehearsal([], []))
    lines = as_text(report).splitlines()
    assert lines[2:4] == [
        "Changed: slurm.conf. Looked at: what slurmctld does with each job.",
        "Not looked at: qos of gpu, accounts, QOS, licences, dependencies.",
    ]
    assert report["judgement"]["says"] == "yes"
    unsettled = Rehearsal([], [AnswerPair(("7",), SUBMISSION, BASE, WAITS)])
    open_report = as_json((side(), changed), Submissions(), [], unsettled)
    assert open_report["judgement"]["says"] == "not known"
    assert "Not known: 7, because" in as_text(open_report)


@pytest.mark.parametrize("broken", [0, 1])
def test_a_side_that_fails_ends_all(broken: int) -> None:
    class Broken(FixedAnswer):
        def ask(self, request: Submission) -> Granted | Waits | Refused:
            raise Unavailable("slurmctld ended")

    pair = (Broken(BASE), FixedAnswer(BASE)) if broken == 0 else (FixedAnswer(BASE), Broken(BASE))
    counts: list[int] = []
    with pytest.raises(Unavailable):
        ask_both_sides([(SUBMISSION, ["1"])] * 9, [pair], counts.append)
    assert counts == []


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ("2026-11-26T10:00:00", "2026-11-26T18:00:00", ["later"]),
        ("2026-11-26T18:00:00", "2026-11-26T10:00:00", ["sooner"]),
        ("2026-11-26T10:00:00", "2026-11-26T10:01:00", []),
        ("2026-11-26T10:00:00", "Unknown", []),
    ],
)
def test_a_job_that_waits_longer_is_found_by_when_slurm_expects_it(
    before: str, after: str, kinds: list[str]
) -> None:
    first, second = (
        Waits("Resources", f"JobId=1 StartTime={at} EndTime=x") for at in (before, after)
    )
    found = differences([AnswerPair(("7",), SUBMISSION, first, second)])
    assert [change.kind for change in found] == kinds
