"""The commands: their output, their JSON, their exit codes, and their errors of one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.gpu import requests
from podwright.gpu.lint import scripted_request
from podwright.gpu.requests import NodeHardware
from podwright.gpu.requests._submitted_options import site_options
from podwright.slurm.reader import SlurmConfig, read_nodes
from podwright.slurm.site.releases import read_version
from tests.slurm.reader import texts

HERE = Path(__file__).parent
NODE = ("--node-gpus", "4", "--node-sockets=2", "--node-cores", "8", "--cluster-nodes=4")


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without Slurm."""
    monkeypatch.setenv("PATH", "/nonexistent")


def slurm(*words: str) -> int:
    return main(["slurm", *words])


def test_counts_are_told_in_a_sentence_and_say_that_no_more_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = slurm("explain-request", *NODE, "--gres=gpu:4", "--nodes", "2", "--ntasks-per-node=2")
    out = capsys.readouterr().out
    assert code == 3
    assert out.startswith("Counted by sbatch's manual page.\nWhether it starts is not known.")
    assert "2 nodes, 8 GPUs, for 4 tasks; --gres counts each node." in out
    for package in ("Debian: slurmctld", "slurm-smd-slurmctld", "EPEL: slurm-slurmctld"):
        assert package in out
    assert "On 4 nodes as assumed" in out


def test_a_count_in_json_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm("explain-request", *NODE, "--gpus-per-task=1", "-n4", "--json") == 3
    body = json.loads(capsys.readouterr().out)
    assert (body["granted"], body["stage"], body["total_gpus"]) == (None, "counted", 4)
    assert body["judgement"]["says"] == "not known"
    assert any("--gpus-per-task=1 counts the GPUs of each task" in step for step in body["steps"])


def test_why_shows_what_the_options_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm("explain-request", *NODE, "--gpus=4", "--time=10", "--why") == 3
    out = capsys.readouterr().out
    assert "--gpus=4 counts the GPUs of the whole job." in out
    assert "--time=10 is the time limit; 0 asks for none." in out


def test_an_option_that_only_a_plugin_has_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gpus=4\n#SBATCH --container-image=nvcr.io/x\n./a\n")
    assert slurm("explain-request", *NODE, "--no-container-mount-home", "--", str(script)) == 3
    out = capsys.readouterr().out
    assert "Left out: --container-image, --no-container-mount-home (counts do not look" in out
    request = requests.parse_request(["--gpus=4", "--container-image=x"])
    _, (left_out,) = requests.twin_submission(request)
    assert left_out.option == "container-image"
    assert left_out.because == "no option of Slurm's; a plugin of the site may have it"


def test_the_sites_own_sbatch_is_not_asked_about_a_plugins_option(tmp_path: Path) -> None:
    # Its value may be the next word, and sbatch would take the option behind it for the value.
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n#SBATCH --container-image x.sqsh\n#SBATCH --gpus=4\n./a\n")
    options, left_out = site_options(scripted_request([], "sbatch", str(script)))
    assert options == ("--gpus=4",)
    assert [one.option for one in left_out] == ["container-image"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "--foo 3 --gpus=1",
            "sbatch has no option --foo. If a plugin of the site has it, write --foo=3, or",
        ),
        ("--gpu-per-node=1", "sbatch has no option --gpu-per-node. The nearest is --gpus-per-node"),
        ("--workdir=/x", "sbatch has no option --workdir. Its name is --chdir now"),
    ],
)
def test_an_option_that_was_meant_otherwise_is_refused(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slurm("explain-request", *words.split()) == 2
    assert told in capsys.readouterr().err


def test_one_node_is_not_called_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm("explain-request", "--cluster-nodes=1", "--gpus=1") == 3
    assert "On 1 node as assumed" in capsys.readouterr().out


def test_a_slurm_option_that_begins_as_ours_is_slurms(capsys: pytest.CaptureFixture[str]) -> None:
    """sbatch takes --tasks as the beginning of --tasks-per-node."""
    assert slurm("explain-request", *NODE, "--gpus-per-node=1", "--nodes=2", "--tasks=2") == 3
    assert "for 4 tasks" in capsys.readouterr().out


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
    shown = {"config": texts.config(), "node": texts.node()}
    for one in answers.split():
        (tmp_path / one).write_text(shown[one])
        lines.append(
            f'*"{one}") while read -r line; do echo "$line"; done < {tmp_path}/{one}; exit;;'
        )
    command.write_text("\n".join([*lines, "esac", "exit 1"]))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm("explain-request", "--gpus=4") == 69
    out, err = capsys.readouterr()
    assert "Slurm's controller did not answer" in err
    assert not out
    assert slurm("explain-request", "--gpus=4", "--node-gpus=8") == 3


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
    assert slurm("explain-request", "--gpus=4") == 3
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
        (["--gpus=1", "--slurm-version=new"], "is not a version of Slurm"),
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


def test_lint_prints_its_findings_as_json(capsys: pytest.CaptureFixture[str]) -> None:
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
    config = texts.config("24.11.5", ConstrainDevices="yes")
    records, open_ = read_nodes(nodes), SlurmConfig(texts.config("24.11.5"))
    shape = requests.read_shape(records, SlurmConfig(config))
    assert shape == NodeHardware(2, 2, 32, 8, (("h100", 8),), confined=True)
    old = requests.read_shape(records, open_, "old")
    assert old == NodeHardware(1, 2, 16, 4, (("v100", 4),), confined=False)
    assert requests.read_shape(records, open_, "cpu") is None
    assert read_version(config) == (24, 11)


def test_types_of_gpus_are_read_from_scontrol() -> None:
    config = SlurmConfig(texts.config())

    def types_of(gres: str) -> object:
        shape = requests.read_shape(read_nodes(texts.node(Gres=gres)), config)
        return shape and (shape.gpus, shape.types)

    mixed = types_of("gpu:a100:1(S:0),gpu:v100:3(S:0-1)")
    assert mixed == (4, (("a100", 1), ("v100", 3)))
    assert types_of("gpu:4(S:1)") == (4, ())


def test_options_are_read_as_getopt_reads_them() -> None:
    request = requests.parse_request(
        ["-N2", "-n", "4", "--gpus-per-n=2", "--exclusive", "-Jname", "job.sh", "--gpus=9"]
    )
    assert (request.min_nodes, request.tasks, request.exclusive) == (2, 4, True)
    assert request.per_node == requests.Gpus(2)
    assert request.per_job is None
    assert request.other["job-name"] == "name"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("--gpus=2 --reservation=r", "reservation"),
        ("--gpus=2 --licenses=l", "licenses"),
        ("--gpus=2 --constraint=[a*1&b*1]", "constraint"),
        ("--gpus=1 --begin=now+1hour", "begin"),
        ("--gpus=1 --dependency=afterok:7", "dependency"),
    ],
)
def test_an_option_that_counts_say_nothing_of_is_named(
    options: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slurm("explain-request", "--node-gpus", "8", *options.split()) == 3
    assert f"Left out: --{name} (" in capsys.readouterr().out


def test_a_heterogeneous_job_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm("explain-request", "--node-gpus=8", "--gpus=1", ":", "--gpus=2") == 3
    assert "Not known:" in capsys.readouterr().out


@pytest.mark.parametrize("options", ["--gpus=0", "--gpus-per-task=0 --ntasks=2", "--ntasks=4"])
def test_a_job_without_gpus_is_not_called_refused(
    options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slurm("explain-request", "--node-gpus", "8", *options.split()) == 3
    assert "The job gets no GPUs" in capsys.readouterr().out


@pytest.mark.parametrize(("version", "noted"), [("26.05", False), ("27.11", True)])
def test_lint_says_that_a_slurm_is_newer_than_the_newest_proven_one(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, noted: bool
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --nodes=1\nsrun ./a\n")
    assert main(["slurm", "lint", "--slurm-version", version, "--json", str(script)]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == []
    assert ("Note: this Slurm is 27.11" in said.err) is noted
