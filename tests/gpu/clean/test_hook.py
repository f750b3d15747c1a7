"""`podwright node clean` as Prolog, Epilog and HealthCheckProgram: codes, and words to Slurm."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from podwright.cli.podwright import main
from podwright.gpu.clean import CleanHook, hook
from podwright.gpu.clean._clean_hook import _here
from podwright.gpu.clean._clean_node import GpusSeen
from podwright.gpu.clean._leftovers import FREE_MEMORY_BOUND, GpuState
from podwright.gpu.clean._listed_jobs import LIST_JOBS_COMMAND, read_jobs
from podwright.gpu.health import STAYS_DRAINED, Settings, check
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE
from podwright.testing import FakeSlurm
from tests.gpu.clean.test_real_processes import listing
from tests.gpu.health.node import Node, one_node

DRAIN = Settings(act="drain")
HELD = GpusSeen((GpuState(0, memory=FREE_MEMORY_BOUND + (1 << 20)), GpuState(1, memory=0)))
FREE = GpusSeen((GpuState(0, memory=0), GpuState(1, memory=0)))
REASON = "podwright: held: GPU 0 has 2049 MiB in use and no job"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root sees all processes")


def ask(
    slurm: FakeSlurm, folder: Path, context: str, *seen: GpusSeen, act: str = "drain"
) -> CleanHook:
    """seen: what is seen at each look; the last one from then on."""
    looks = list(seen)
    environ = {"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7", "SLURM_SCRIPT_CONTEXT": context}
    return hook(
        msgspec.structs.replace(DRAIN, act=act),
        environ,
        folder=folder,
        slurm=slurm.text,
        see_gpus=lambda: looks.pop(0) if len(looks) > 1 else looks[0],
        sleep=lambda seconds: None,
    )


@needs_root
@pytest.mark.parametrize(
    ("context", "code"), [("", 1), ("prolog_slurmd", STAYS_DRAINED), ("epilog_slurmd", 0)]
)
def test_a_held_gpu_drains_its_node(tmp_path: Path, context: str, code: int) -> None:
    slurm = one_node()
    done = ask(slurm, tmp_path, context, HELD)
    assert (done.code, done.outcome.action, slurm.nodes["n1"].reason) == (code, "drained", REASON)


@needs_root
def test_the_node_is_given_back_when_its_gpus_are_free(tmp_path: Path) -> None:
    slurm = one_node()
    ask(slurm, tmp_path, "epilog_slurmd", HELD)
    assert ask(slurm, tmp_path, "", FREE).outcome.action == "resumed"
    assert slurm.nodes["n1"].state == "idle"


@needs_root
@pytest.mark.parametrize("context", ["prolog_slurmd", "epilog_slurmd"])
def test_memory_that_the_driver_frees_in_a_moment_drains_nothing(
    tmp_path: Path, context: str
) -> None:
    slurm = one_node()
    assert ask(slurm, tmp_path, context, HELD, HELD, FREE).code == 0
    assert slurm.commands == []


@needs_root
def test_the_health_check_and_this_one_resume_only_their_own_drains(
    tmp_path: Path,
) -> None:
    slurm, node = one_node(), Node(tmp_path)
    health = {**node.environ, "SLURMD_NODENAME": "n1"}

    def look() -> str:
        return check(
            DRAIN,
            health,
            root=node.root,
            folder=tmp_path,
            slurm=slurm.text,
            sleep=lambda seconds: None,
        ).outcome.action

    ask(slurm, tmp_path / "clean", "epilog_slurmd", HELD)
    assert (look(), slurm.nodes["n1"].reason) == ("fit", REASON)
    ask(slurm, tmp_path / "clean", "", FREE)
    node.gpu(3, 'recovery = "reset"')
    assert (look(), slurm.nodes["n1"].reason) == ("drained", "podwright: GPU 3 needs a reset")
    assert ask(slurm, tmp_path / "clean", "", FREE).outcome.action == "fit"
    assert slurm.nodes["n1"].state == "drained"


@needs_root
def test_a_driver_that_does_not_answer_changes_nothing(tmp_path: Path) -> None:
    slurm = one_node()
    done = ask(slurm, tmp_path, "epilog_slurmd", GpusSeen(problems=("no answer",)))
    assert (done.code, done.outcome.action, slurm.commands) == (0, "unknown", [])


@needs_root
def test_only_a_warning_is_given_where_no_more_is_asked_for(tmp_path: Path) -> None:
    slurm = one_node()
    done = ask(slurm, tmp_path, "prolog_slurmd", HELD, act="warn")
    assert (done.code, done.outcome.action, slurm.nodes["n1"].state) == (0, "warned", "idle")


def test_states_of_jobs_that_are_not_known_here_count_as_living() -> None:
    for state, lives in (
        ("RUNNING", True), ("COMPLETING", True), ("SUSPENDED", True), ("LATER_STATE", True),
        ("PENDING", False), ("TIMEOUT", False), ("OUT_OF_MEMORY", False),
    ):  # fmt: skip
        jobs = read_jobs(listing(12, state=state), "n1")
        assert jobs is not None
        assert (jobs[12].lives, jobs[12].here, jobs[12].uid) == (lives, True, 7777)
    assert read_jobs("slurm_load_jobs error\n", "n1") is None
    assert read_jobs("", "n1") == {}
    assert LIST_JOBS_COMMAND[0] == "squeue"


def test_a_waiting_row_of_an_array_hides_no_task_that_runs() -> None:
    rows = listing(12) + listing(12, state="PENDING")
    jobs = read_jobs(rows, "n1")
    assert jobs is not None
    assert jobs[12].lives


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "node.toml"
    path.write_text('gpus = 2\nname = "NVIDIA A100-SXM4-80GB"\n')
    monkeypatch.setenv(STANDIN_VARIABLE, str(path))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    return path


@needs_root
def test_the_command_says_who_holds_a_gpu(
    described: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["node", "clean"]) == 0
    assert capsys.readouterr().out.startswith("n1: 2 GPUs are free of ended jobs.\n")
    with described.open("a") as file:
        file.write(f"[[gpu]]\nindex = 1\nprocesses = [{{ pid = {os.getppid()}, memory = 9000 }}]\n")
    assert main(["node", "clean", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["judgement"]["says"] == "no"
    assert [row["index"] for row in said["memory"]] == [1]
    assert said["processes"][0]["process"]["pid"] == os.getppid()


def test_a_health_check_knows_its_cluster_from_slurm_conf(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=blue\n")
    environ = {"SLURMD_NODENAME": "n1", "SLURM_CONF": str(conf)}
    assert _here(environ) == ("n1", "blue")
    assert _here({**environ, "SLURM_CLUSTER_NAME": "red"}) == ("n1", "red")
    assert _here({**environ, "SLURM_CONF": f"{conf}.none"}) == ("n1", "")
