"""The script that Slurm runs before jobs, after them, and in between: what it starts, and when."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from podwright.gpu.configure import (
    ConfigureOptions,
    GateScript,
    Summary,
    configure,
    make_inventory,
    take_back,
)
from podwright.gpu.health import STAYS_DRAINED
from podwright.slurm.site.file_changes import carry_out

_GPUS = {"type": "h100", "count": 2, "memory": 80}
NODES = [{"names": "n[1-2]", "sockets": 1, "cores_per_socket": 8, "gpus": _GPUS}]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def test_it_is_set_up_and_taken_back(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    ran = tmp_path / "ran"
    theirs = tmp_path / "site-prolog"
    for name, code in (("site-prolog", 0), ("podwright", 0)):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\necho {name} "$@" $SLURM_CONF >> {ran}\nexit {code}\n')
        script.chmod(0o755)
    before = f"ClusterName=c\nProlog={theirs}\nNodeName=n[1-2] CPUs=8\nPartitionName=p Nodes=ALL\n"
    conf.write_text(before)
    gate = GateScript(str(tmp_path / "hooks" / "node-health"), str(tmp_path / "podwright"), "drain")
    plan, notes = configure(
        conf,
        make_inventory({"nodes": NODES}),
        (22, 5),
        ConfigureOptions(topology="none", gate=gate),
    )
    carry_out(plan)
    assert any(f"{theirs} runs first" in note for note in notes)
    said = conf.read_text()
    for key in ("HealthCheckProgram", "Prolog", "Epilog"):
        assert f"\n{key}={gate.path} #" in said
    assert "HealthCheckInterval=300" in said
    assert "SchedulerParameters=nohold_on_prolog_fail" in said

    def run(context: str) -> tuple[int, list[str]]:
        ran.write_text("")
        environ = {"SLURM_SCRIPT_CONTEXT": context} if context else {}
        done = subprocess.run([gate.path], env=environ, check=False)
        return done.returncode, ran.read_text().splitlines()

    ours = f"podwright node health --slurm --act=drain {conf}"
    assert run("") == (0, [ours])
    assert run("epilog_slurmd") == (0, [ours])
    assert run("prolog_slurmd") == (0, [f"site-prolog {conf}", ours])
    # slurmd ends a check that is late by its process group.
    (tmp_path / "podwright").write_text(f"#!/bin/sh\nps -o pgid= $$ > {tmp_path}/group\n")
    assert run("")[0] == 0
    assert int((tmp_path / "group").read_text()) == os.getpgrp()
    # A Prolog or Epilog that fails makes Slurm drain the node, without a cap: so a check that is
    # broken on all nodes, killed or not there may never be one that fails.
    for end in (*(f"exit {code}" for code in (1, 2, 70, 126, 127)), "kill -KILL $$"):
        (tmp_path / "podwright").write_text(f"#!/bin/sh\n{end}\n")
        assert run("prolog_slurmd")[0] == run("epilog_slurmd")[0] == 0, end
        assert run("")[0] != 0, end
    (tmp_path / "podwright").write_text(f"#!/bin/sh\nexit {STAYS_DRAINED}\n")
    assert (run("prolog_slurmd")[0], run("epilog_slurmd")[0]) == (STAYS_DRAINED, 0)
    (tmp_path / "podwright").unlink()
    assert run("prolog_slurmd")[0] == run("epilog_slurmd")[0] == 0
    theirs.write_text("#!/bin/sh\nexit 3\n")
    assert run("prolog_slurmd") == (3, [])
    again, _ = configure(
        conf,
        make_inventory({"nodes": NODES}),
        (22, 5),
        ConfigureOptions(topology="none", gate=gate),
    )
    assert again.texts[gate.script] == gate.script.read_text()
    carry_out(take_back(conf))
    assert conf.read_text() == before
    assert not gate.script.exists()


def test_a_job_is_noted_at_its_end_and_the_site_s_epilog_counts(tmp_path: Path) -> None:
    conf, ran, ended = tmp_path / "slurm.conf", tmp_path / "ran", tmp_path / "run" / "ended"
    programs = {
        "scontrol": 'echo "$3" | tr , "\\n"',
        "podwright": f'echo podwright "$@" >> {ran}.new; mv {ran}.new {ran}',
        "site-epilog": "exit 3",
        "slow": f"cd {tmp_path}; echo $$ > pid.new; mv pid.new pid; exec sleep 600",
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    theirs = tmp_path / "site-epilog"
    before = (
        f"ClusterName=c\nEpilog={theirs}\nPrologFlags=RunInJob\n"
        "NodeName=n[1-2] CPUs=8\nPartitionName=p Nodes=ALL\n"
    )
    conf.write_text(before)
    summary = Summary(
        str(tmp_path / "hooks" / "job-epilog"), str(tmp_path / "podwright"), "both", str(ended)
    )
    wishes = ConfigureOptions(topology="none", summary=summary)
    plan, notes = configure(conf, make_inventory({"nodes": NODES}), (22, 5), wishes)
    assert any("RunInJob" in note for note in notes)
    assert any("slurmdbd" in note for note in notes)
    carry_out(plan)
    assert f"\nEpilog={summary.path} #" in conf.read_text()
    text = summary.script.read_text()
    summary.script.write_text(text.replace("PATH=/usr/local", f"PATH={tmp_path}:/usr/local", 1))

    def run(**environ: str) -> int:
        base = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "n1,n2", "SLURMD_NODENAME": "n1"}
        return subprocess.run([summary.path], env={**base, **environ}, check=False).returncode

    assert run() == 3
    assert run(SLURM_JOB_GPUS="0", SLURMD_NODENAME="n2") == 3
    assert run(SLURM_JOB_GPUS="0", SLURM_JOB_ID="4712") == 3
    wait_for(ran)
    assert [path.name for path in ended.iterdir()] == ["4712"]
    assert ended.stat().st_mode & 0o777 == 0o700
    assert ran.read_text() == f"podwright slurm efficiency --write=both --ended={ended}\n"
    # Whatever happens to what it starts, the Epilog goes on at once.
    (tmp_path / "podwright").unlink()
    (tmp_path / "slow").rename(tmp_path / "scontrol")
    assert run(SLURM_JOB_GPUS="0") == 3
    wait_for(tmp_path / "pid")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    again, _ = configure(conf, make_inventory({"nodes": NODES}), (22, 5), wishes)
    assert again.texts[summary.script] == text
    gate = GateScript(str(tmp_path / "hooks" / "node-health"), "/usr/bin/podwright", "drain")
    both, _ = configure(conf, make_inventory({"nodes": NODES}), (22, 5), wishes._replace(gate=gate))
    assert f"for each in {gate.path};" in (both.texts[summary.script] or "")
    carry_out(take_back(conf))
    assert conf.read_text() == before
    assert not summary.script.exists()
