"""The script that Slurm runs before jobs, after them, and in between: what it starts, and when."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from podwright.gpu.configure import (
    ConfigureOptions,
    GateScript,
    configure,
    make_inventory,
    take_back,
)
from podwright.gpu.health import STAYS_DRAINED
from podwright.slurm.site.file_changes import carry_out

_GPUS = {"type": "h100", "count": 2, "memory": 80}
NODES = [{"names": "n[1-2]", "sockets": 1, "cores_per_socket": 8, "gpus": _GPUS}]


def test_the_health_gate_is_set_up_and_taken_back(tmp_path: Path) -> None:
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


def test_the_check_for_leftovers_runs_after_that_of_the_nodes_health(tmp_path: Path) -> None:
    conf, ran = tmp_path / "slurm.conf", tmp_path / "ran"
    conf.write_text("ClusterName=c\nNodeName=n[1-2] CPUs=8\nPartitionName=p Nodes=ALL\n")
    program = tmp_path / "podwright"

    def run(
        act: str, clean: str, context: str, codes: dict[str, int] | None = None
    ) -> tuple[int, list[str]]:
        cases = "".join(f'*"node {name}"*) exit {code};;\n' for name, code in (codes or {}).items())
        program.write_text(f'#!/bin/sh\necho "$@" >> {ran}\ncase "$*" in\n{cases}esac\n')
        program.chmod(0o755)
        gate = GateScript(str(tmp_path / "hooks" / "gate"), str(program), act, clean)
        options = ConfigureOptions(topology="none", gate=gate)
        carry_out(configure(conf, make_inventory({"nodes": NODES}), (22, 5), options)[0])
        ran.write_text("")
        environ = {"SLURM_SCRIPT_CONTEXT": context} if context else {}
        done = subprocess.run([gate.path], env=environ, check=False)
        return done.returncode, ran.read_text().splitlines()

    health = "node health --slurm --act=drain"
    clean = "node clean --slurm --act=drain"
    assert run("drain", "end", "epilog_slurmd") == (0, [health, f"{clean} --end"])
    assert run("", "drain", "") == (0, [clean])
    assert run("", "warn", "") == (0, ["node clean --slurm --act=warn"])
    assert run("drain", "drain", "", {"health": 1}) == (1, [health, clean])
    for context, code in (("prolog_slurmd", STAYS_DRAINED), ("epilog_slurmd", 0)):
        assert run("drain", "drain", context, {"clean": STAYS_DRAINED}) == (code, [health, clean])
        assert run("", "drain", context, {"clean": STAYS_DRAINED}) == (code, [clean])
        assert run("drain", "drain", context, {"clean": 1}) == (0, [health, clean])
    drained = run("drain", "drain", "prolog_slurmd", {"health": STAYS_DRAINED})
    assert drained == (STAYS_DRAINED, [health])
