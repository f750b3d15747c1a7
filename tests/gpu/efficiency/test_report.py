"""A job's use is computed from samples and accounting, and reported with what to request."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from podwright.cli.podwright import main
from podwright.gpu.efficiency import (
    AccountedJob,
    line,
    plot,
    read_jobs,
    read_samples,
    report,
    text,
    tree,
)
from podwright.gpu.efficiency._sacct_jobs import _ACCOUNT_COLUMNS
from podwright.slurm.reader import CUT, accounting_format

START = 1_700_000_000
JOB = AccountedJob(
    id="4711",
    name="train",
    user="alice",
    partition="gpu",
    state="COMPLETED",
    submit=START - 600,
    start=START,
    end=START + 7200,
    seconds=7200,
    limit=86400,
    nodes=1,
    node_list="n1",
    cpus=64,
    memory=512 << 30,
    gpus=8,
    cpu_seconds=7200.0 * 10,
    used_memory=40 << 30,
    tasks=8,
)


def write(folder: Path, node: str, loads: Sequence[Sequence[int | None]], **more: Any) -> Path:
    """loads: for each sample, the load of each GPU. held: ranks by GPU. memory: by GPU."""
    count = len(loads[0])
    held = more.get("held", [[] for _ in range(count)])
    memory = more.get("memory", [70000] * count)
    head = [[n, f"GPU-{n}", "H100", 81559] for n in range(count)]
    lines = [json.dumps({"node": node, "gpus": head, "ranks": more.get("ranks", ["", 0, 0])})]
    for k, now in enumerate(loads):
        at = START + more.get("after", 0) + 10 * k
        gpus = [[n, load, memory[n], held[n]] for n, load in enumerate(now)]
        lines.append(json.dumps({"t": at, "every": 10, "gpus": gpus}))
    folder.mkdir(exist_ok=True)
    (folder / f"{node}-0-1.jsonl").write_text("\n".join(lines) + '\n{"t": 17')
    return folder


def asked(found: Any) -> list[str]:
    return [advice.ask for advice in found.advice if advice.ask]


def test_two_of_eight_gpus_were_never_used(tmp_path: Path) -> None:
    loads = [[90, 80, 70, 60, 50, 40, 0, 0]] * 60
    memory = [70000] * 6 + [0, 0]
    held = [[["0", n]] for n in range(6)] + [[], []]
    sampled = read_samples(write(tmp_path, "n1", loads, memory=memory, held=held))
    found = report(JOB, sampled)
    assert found.gpus_used == 6
    assert found.gpu_load == (90 + 80 + 70 + 60 + 50 + 40) / 8
    assert str(found.advice[0]) == "2 of 8 GPUs were never used: --gpus-per-node=6"
    assert asked(found) == [
        "--gpus-per-node=6",
        "--cpus-per-gpu=2",
        "--mem=50G",
        "--time=3:00:00",
    ]
    assert found.idle_start == 0
    assert line(found).startswith("GPUs 49 % busy, 6 of 8 used; cores 10.0 of 64")


def test_means_are_those_of_the_samples(tmp_path: Path) -> None:
    loads = [[0, 100]] * 30 + [[50, 100]] * 60 + [[100, 100]] * 10
    sampled = read_samples(write(tmp_path, "n1", loads))
    assert sampled is not None
    first, second = sampled.uses
    assert (first.samples, first.load, first.peak, first.busy) == (100, 40.0, 100, 0.7)
    assert (second.load, second.memory, second.most) == (100.0, 70000 << 20, 70000 << 20)
    assert (sampled.first, sampled.last, sampled.every) == (START, START + 990, 10)


def test_gpus_that_stay_idle_at_first_are_told(tmp_path: Path) -> None:
    loads = [[0, 0]] * 120 + [[90, 90]] * 600
    found = report(JOB._replace(gpus=2), read_samples(write(tmp_path, "n1", loads)))
    assert found.idle_start == 1200
    assert "nothing ran on any GPU in the first 20 min of 2 h 0 min" in found.advice[0].text


def test_ranks_that_never_held_a_gpu_are_told(tmp_path: Path) -> None:
    held = [[["0", 0]], [["0", 1]], [["0", 1]], []]
    write(tmp_path, "n1", [[90, 90, 90, 90]] * 9, held=held, ranks=["0", 0, 4])
    found = report(JOB._replace(gpus=4), read_samples(tmp_path))
    assert found.idle_ranks == (("0", 2), ("0", 3))
    assert "2 ranks never held a GPU while others did: 2, 3" in [a.text for a in found.advice]


def test_a_node_that_did_nothing_is_not_asked_for_again(tmp_path: Path) -> None:
    write(tmp_path, "n1", [[90, 90]] * 9)
    write(tmp_path, "n2", [[0, 0]] * 9, memory=[0, 0])
    found = report(JOB._replace(gpus=4, nodes=2), read_samples(tmp_path))
    assert asked(found)[0] == "--nodes=1 --gpus-per-node=2"


def test_nothing_was_used_or_nothing_is_known(tmp_path: Path) -> None:
    write(tmp_path, "n1", [[0]] * 9, memory=[0])
    one = JOB._replace(gpus=1, cpu_seconds=None, used_memory=None, limit=0)
    assert asked(report(one, read_samples(tmp_path))) == ["no --gpus"]
    unknown = report(one, read_samples(tmp_path / "none"))
    assert (unknown.source, unknown.gpu_load, unknown.advice) == ("nothing", None, ())
    assert line(unknown) == "nothing was measured"


def test_a_job_that_used_what_it_had_gets_no_advice(tmp_path: Path) -> None:
    write(tmp_path, "n1", [[95] * 8] * 9, held=[[["0", n]] for n in range(8)])
    good = JOB._replace(cpu_seconds=7200.0 * 50, used_memory=400 << 30, limit=9000)
    assert report(good, read_samples(tmp_path)).advice == ()


def test_the_plot_has_a_line_for_each_gpu_and_few_points(tmp_path: Path) -> None:
    write(tmp_path, "n1", [[n % 100, 50] for n in range(3000)])
    text = plot(report(JOB._replace(name="<&>", gpus=2), read_samples(tmp_path)))
    lines = ET.fromstring(text).findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    assert 500 < len(lines[0].attrib["points"].split()) <= 720
    assert plot(report(JOB, None)).endswith("</svg>\n")


def test_json_has_every_field_under_its_stored_name(tmp_path: Path) -> None:
    write(tmp_path, "n1", [[90, 0]] * 9, memory=[70000, 0])
    said = json.loads(json.dumps(tree(report(JOB._replace(gpus=2), read_samples(tmp_path)))))
    assert said["uses"][0]["load"] == 90
    assert said["job"]["waited"] == 600
    assert said["advice"][0]["ask"] == "--gpus-per-node=1"
    # Programs read these names: a field that gets a new name in Python keeps its name here.
    assert set(said["uses"][0]) == {
        *("node", "number", "uuid", "name", "total", "samples", "load", "peak", "memory"),
        *("most", "busy", "held"),
    }


def sacct(**fields: str) -> str:
    return CUT.join(fields.get(key, "") for key in accounting_format(*_ACCOUNT_COLUMNS).split(","))


def test_a_job_is_read_from_sacct() -> None:
    text = "\n".join((
        sacct(
            JobID="7_3", JobIDRaw="9", JobName="a|b",
            User="alice", Partition="gpu", State="CANCELLED by 0",
            Submit="1700000000", Start="1700000060", End="1700000160", ElapsedRaw="100",
            TimelimitRaw="60", AllocTRES="billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=1",
            NNodes="1", NodeList="n1", TotalCPU="00:00:00", WorkDir="/home/alice",
        ),
        sacct(
            JobID="7_3.batch", TotalCPU="01:40.500", MaxRSS="1000K", NTasks="1",
            TRESUsageInTot="cpu=00:01:40,mem=1G,gres/gpuutil=80",
            TRESUsageInMax="cpu=00:01:40,gres/gpumem=10G,gres/gpuutil=83",
        ),
        sacct(JobID="7_3.0", TotalCPU="1-00:00:01", TRESUsageInTot="mem=2G", NTasks="4"),
        sacct(JobID="8", Start="Unknown", State="PENDING", Submit="1700000000"),
    ))  # fmt: skip
    first, second = read_jobs(text)
    assert (first.name, first.state, first.waited, first.limit) == ("a|b", "CANCELLED", 60, 3600)
    assert (first.cpus, first.memory, first.gpus) == (4, 8 << 30, 2)
    assert first.cpu_seconds == pytest.approx(100.5 + 86401)
    assert (first.used_memory, first.gpu_peak, first.gpu_memory) == (2 << 30, 83, 10 << 30)
    assert (first.tasks, first.folder, first.raw) == (4, "/home/alice", "9")
    assert (second.start, second.waited, second.cpu_seconds) == (0, 0, None)


def test_a_gpu_without_a_reported_load_is_not_called_unused(tmp_path: Path) -> None:
    """The driver reports no load of a slice (MIG)."""
    write(tmp_path, "n1", [[None, 0]] * 9, memory=[0, 0])
    found = report(JOB._replace(gpus=2), read_samples(tmp_path))
    assert (found.gpu_load, found.gpus_used, found.idle_start) == (None, None, None)
    assert "1 of 2 GPUs was never used: --gpus-per-node=1" in text(found)
    assert "the driver does not report the load of all" in text(found)
    assert "<polyline" in plot(found)
    write(tmp_path, "n1", [[None, None]] * 9, held=[[["0", 0]], []])
    found = report(JOB._replace(gpus=2), read_samples(tmp_path))
    assert [use.used for use in found.uses] == [True, None]
    assert "GPU" not in " ".join(advice.text for advice in found.advice)


def test_a_site_without_accounting_reports_what_a_job_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """sacct fails, as without slurmdbd; the samples lie where the job wrote them."""
    command = tmp_path / "sacct"
    command.write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    assert main(["slurm", "efficiency", "4711"]) != 0
    assert "--samples FOLDER" in capsys.readouterr().err
    write(tmp_path / "slurm-4711.gpus", "n1", [[90, 0]] * 10)
    assert main(["slurm", "efficiency", "4711"]) == 0
    out = capsys.readouterr().out
    assert "its state, cores and memory are not known: sacct does not answer" in out
    assert "1 of 2 GPUs was never used: --gpus-per-node=1" in out
    for unknown in ("Waited", "Cores", "unknown", "JobAcctGather"):
        assert unknown not in out
    assert main(["slurm", "efficiency", "4711", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["job"]["state"] == ""
    assert document["cores"] is None
