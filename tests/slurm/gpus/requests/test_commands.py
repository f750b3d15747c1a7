"""The commands on top: what they print, their JSON, their exit codes, their one-line errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.slurm.gpus import requests
from podwright.slurm.gpus.requests import Grant, NodeHardware, explain, parse_request
from podwright.slurm.site.releases import read_version

HERE = Path(__file__).parent
NODE = ("--node-gpus", "4", "--node-sockets=2", "--node-cores", "8", "--cluster-nodes=4")


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without Slurm."""
    monkeypatch.setenv("PATH", "/nonexistent")


def slurm(*words: str) -> int:
    return main(["slurm", *words])


def test_explain_says_it_in_a_sentence_and_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    code = slurm("explain-request", *NODE, "--gres=gpu:4", "--nodes", "2", "--ntasks-per-node=2")
    out = capsys.readouterr().out
    assert code == 0
    assert "2 nodes with 4 GPUs each, 8 GPUs in all, for 4 tasks; --gres counts each node." in out
    assert "Every task sees 4 GPUs, shared with others of its node." in out
    assert "nodes 0,1     GPU [0][1][2][3]" in out
    assert out.count("CUDA_VISIBLE_DEVICES = 0,1,2,3") == 2


def test_explain_as_json_lists_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--gpus-per-task=1", "-n4", "--devices=open", "--json")
    assert slurm("explain-request", *NODE, *words) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["total_gpus"] == 4
    assert [t["gpus"] for t in body["tasks"]] == [[0], [1], [2], [3]]
    assert [t["cuda_visible_devices"] for t in body["tasks"]] == ["0", "1", "2", "3"]


def test_the_cpus_of_bound_tasks_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("explain-request", *NODE, "--gres=gpu:2", "-N1", "-n2", "-c2", "--tasks=bound")
    assert slurm(*words) == 0
    assert "CUDA_VISIBLE_DEVICES = 0,1, CPUs 0,1" in capsys.readouterr().out
    assert slurm(*words, "--json") == 0
    body = json.loads(capsys.readouterr().out)
    assert [task["cpus"] for task in body["tasks"]] == [[0, 1], [2, 3]]


def test_gpus_of_others_that_a_task_opens_are_told() -> None:
    """Seen on 26.05.5: GPUs 2 and 3 are the job's, and CUDA_VISIBLE_DEVICES says 0 and 1."""
    site = NodeHardware(gpus=4, types=("a", "a", "b", "b"), kinds=("a", "b"), confined=False)
    words = ["--gpus=b:2", "-N1", "-n2", "--gpu-bind=single:1", "--gres-flags=allow-task-sharing"]
    answer = explain(parse_request(words, "srun"), site, (26, 5))
    assert isinstance(answer, Grant)
    assert answer.nodes[0].gpus == (2, 3)
    assert [task.variable for task in answer.tasks] == ["0", "1"]
    assert any("GPUs that are not the job's" in note for note in answer.notes)


def test_a_refusal_says_why_and_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm("explain-request", *NODE, "--gpus-per-task=1") == 1
    out = capsys.readouterr().out
    assert "Slurm refuses this: --gpus-per-task needs to know how many tasks." in out
    assert "What would work: Add --ntasks=N" in out


# What scontrol 22.05 to 26.05 says where nobody names a controller, and where one is named, as in
# SLURM_CONF_SERVER, and is down.
NOBODY = """\
scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host
scontrol: error: fetch_config: DNS SRV lookup failed
scontrol: error: _establish_config_source: failed to fetch config
scontrol: fatal: Could not establish a configuration source
"""
DOWN = """\
scontrol: error: _fetch_child: failed to fetch remote configs: Unable to contact slurm controller
scontrol: error: _establish_config_source: failed to fetch config
scontrol: fatal: Could not establish a configuration source
"""


@pytest.mark.parametrize("answers", ["", "config", "config node"])
def test_a_controller_that_does_not_answer_is_not_taken_for_a_site_of_common_nodes(
    answers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = tmp_path / "scontrol"
    lines = ["#!/bin/sh", 'case "$*" in', 'ping) echo "Slurmctld(primary) at head is DOWN";;']
    lines += [f'*"{one}") echo "SLURM_VERSION = 26.05.3"; exit 0;;' for one in answers.split()]
    command.write_text("\n".join([*lines, "esac", "exit 1"]))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm("explain-request", "--gpus=4") == 69
    out, err = capsys.readouterr()
    assert "Slurm's controller did not answer" in err
    assert not out
    assert slurm("explain-request", "--gpus=4", "--node-gpus=8") == 0


def test_a_host_without_slurm_conf_whose_controller_is_down_is_not_taken_for_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its configuration comes from the controller ("configless")."""
    command = tmp_path / "scontrol"
    command.write_text(f"#!/bin/sh\ncat >&2 <<'end'\n{DOWN}end\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert slurm("explain-request", "--gpus=4") == 69
    out, err = capsys.readouterr()
    assert "Slurm's controller did not answer" in err
    assert not out


def test_a_machine_with_slurm_commands_and_no_cluster_has_common_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = tmp_path / "scontrol"
    command.write_text(f"#!/bin/sh\ncat >&2 <<'end'\n{NOBODY}end\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert slurm("explain-request", "--gpus=4") == 0
    assert "as assumed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpus-per-tsk=1"], "The nearest is --gpus-per-task"),
        (["--gres=gpu:1:tesla:v100"], "Write gpu:v100:1"),
        (["--gpus=4:h100"], "the count comes last"),
        (["--nodes=4-2", "--gpus=4"], "runs backwards"),
        (["--gpus"], "--gpus needs a value"),
        ([], "no option of Slurm to explain"),
        (["--gpus=1", "--slurm-version=new"], "no version of Slurm"),
    ],
)
def test_bad_input_gets_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slurm("explain-request", *words) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert said in got.err
    assert got.err.count("\n") == 1


def test_lint_shows_line_reason_and_corrected_line(capsys: pytest.CaptureFixture[str]) -> None:
    path = HERE / "scripts" / "bad" / "type_after_count.sh"
    assert slurm("lint", str(path)) == 1
    out = capsys.readouterr().out
    assert f"{path}:2: gres-order:" in out
    assert "    + #SBATCH --gres=gpu:v100:1" in out


def test_lint_of_a_good_script_is_content(capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm("lint", str(HERE / "scripts" / "good" / "one_gpu.sh")) == 0
    assert "no mistakes found" in capsys.readouterr().out


def test_fix_shows_and_write_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.sh"
    text = (HERE / "scripts" / "bad" / "type_after_count_short.sh").read_text()
    path.write_text(text)
    path.chmod(0o750)
    assert slurm("lint", "--fix", str(path)) == 1
    assert "+#SBATCH --gres=gpu:a100:2" in capsys.readouterr().out
    assert path.read_text() == text
    assert slurm("lint", "--fix", "--write", str(path)) == 0
    assert path.read_text() == text.replace("gpu:2:a100", "gpu:a100:2")
    assert path.stat().st_mode & 0o777 == 0o750
    assert [p.name for p in tmp_path.iterdir()] == ["job.sh"]


def test_lint_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm("lint", "--json", str(HERE / "scripts" / "bad" / "late.sh")) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert (finding["rule"], finding["line"]) == ("late-directive", 5)


def test_a_missing_file_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for verb in ("lint", "check-fabric"):
        assert slurm(verb, str(tmp_path / "nothing")) == 1
        assert capsys.readouterr().err.endswith("nothing: no such file or directory.\n")


def test_check_fabric_prints_pairs_and_what_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm("check-fabric", str(HERE / "nccl" / "2.18-no-gdr.log")) == 1
    out = capsys.readouterr().out
    assert "NCCL 2.18.3, 8 ranks on 2 hosts" in out
    assert "3 - 4 | other hosts | NET/IB    | no" in out
    assert "nvidia_peermem" in out


def test_check_fabric_of_a_good_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm("check-fabric", "--json", str(HERE / "nccl" / "2.21-gdr.log")) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["findings"] == []
    assert {p["transport"] for p in body["pairs"]} == {"P2P", "NET/IB"}


def test_the_site_is_read_from_scontrol() -> None:
    nodes = (
        "NodeName=g1 CoresPerSocket=32 Gres=gpu:h100:8(S:0-1) Sockets=2 Partitions=gpu,all\n"
        "NodeName=g2 CoresPerSocket=32 Gres=gpu:h100:8(S:0-1) Sockets=2 Partitions=gpu,all\n"
        "NodeName=v1 CoresPerSocket=16 Gres=gpu:v100:4,nic:2 Sockets=2 Partitions=old\n"
        "NodeName=c1 CoresPerSocket=16 Gres=(null) Sockets=2 Partitions=cpu\n"
    )
    config = "SLURM_VERSION           = 24.11.5\nConstrainDevices       = yes\n"
    shape = requests.read_shape(nodes, config)
    assert shape == requests.NodeHardware(2, 2, 32, 8, ("h100",), True)
    old = requests.read_shape(nodes, "", "old")
    assert old == requests.NodeHardware(1, 2, 16, 4, ("v100",), False, beside=(-1,) * 4)
    assert requests.read_shape(nodes, "", "cpu") is None
    assert read_version(config) == (24, 11)


def test_types_and_sockets_of_gpus_are_read_from_scontrol() -> None:
    row = "NodeName=m1 CoresPerSocket=8 Gres={} Sockets=2 Partitions=gpu\n"
    mixed = requests.read_shape(row.format("gpu:a100:1(S:0),gpu:v100:3(S:0-1)"), "")
    assert mixed is not None
    assert mixed.types == ("a100", "v100", "v100", "v100")
    assert mixed.beside == (0, 0, 0, 1)
    one = requests.read_shape(row.format("gpu:4(S:1)"), "")
    assert one is not None
    assert (one.beside, one.types, one.kinds) == ((1, 1, 1, 1), (), ())


def test_options_are_read_as_getopt_reads_them() -> None:
    request = requests.parse_request(
        ["-N2", "-n", "4", "--gpus-per-n=2", "--exclusive", "-Jname", "job.sh", "--gpus=9"]
    )
    assert (request.min_nodes, request.tasks, request.exclusive) == (2, 4, True)
    assert request.per_node == requests.Gpus(2)
    assert request.per_job is None
    assert request.other["job-name"] == "name"


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ("--gpus=2 --ntasks=1 --nodes=2", "Slurm gives 1 of the 2 nodes"),
        ("--gpus-per-node=8 --ntasks-per-node=8 --gpu-bind=closest", "closest binds nothing"),
        ("--exclusive --gpus=2 --nodes=1", "the job holds every GPU of its nodes"),
        ("--gpus-per-node=4 --nodes=1 --ntasks=4", "choose by SLURM_LOCALID"),
    ],
)
def test_what_a_newcomer_would_not_expect_is_noted(
    options: str, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slurm("explain-request", "--node-gpus", "8", *options.split()) == 0
    assert note in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        "--nodes=1,3 --gpus=2", "--gpus=1 : --gpus=2", "--gres=gpu:1,nvme:1", "--exclusive=mcs",
        "--batch=a", "--external", "--reservation=r", "--tres-per-task=license/x=1 --ntasks=1",
        "--constraint=[a*1&b*1]", "--distribution=block,pack", "--licenses=l",
    ],
)  # fmt: skip
def test_an_option_that_is_not_modelled_is_named(
    options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--node-gpus", "8", "--slurm-version", "26.05", *options.split()]
    assert slurm("explain-request", *line) == 3
    assert "Not known:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--gpus=0", "The job gets no GPUs"),
        ("--gpus-per-task=0 --ntasks=2", "The job gets no GPUs"),
        ("--gpus=1 --begin=now+1hour", "at the time of --begin"),
        ("--gpus=1 --dependency=afterok:7", "--dependency"),
    ],
)
def test_what_changes_the_answer_is_not_ignored(
    options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slurm("explain-request", "--node-gpus", "8", *options.split()) == 0
    assert said in capsys.readouterr().out


def test_where_tasks_are_bound_closest_binds(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--gpus-per-node=8",
        "--nodes=1",
        "--ntasks=64",
        "--gpu-bind=closest",
        "--tasks",
        "bound",
    ]
    assert slurm("explain-request", "--node-gpus", "8", *words) == 0
    out = capsys.readouterr().out
    assert "Every task sees 4 GPUs, shared with others of its node (those beside its cores)" in out


def test_a_job_without_gpus_is_not_called_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm("explain-request", "--node-gpus", "8", "--ntasks=4") == 0
    assert "The job gets no GPUs" in capsys.readouterr().out
