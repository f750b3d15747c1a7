"""explain-request where Slurm is installed: Slurm itself answers, and the first line says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.gpu import requests
from podwright.gpu.requests import Grant, SlurmRefusal
from podwright.slurm.site.releases import read_version
from tests.outer.gpu.truth import gpu_lab
from tests.outer.lab import poll, release, written_at
from tests.outer.twin.test_present import placed, record_of, submit
from tests.slurm.twin.recorded import read_texts

pytestmark = pytest.mark.twin


def sent(folder: Path, seed: str, name: str = "22.05.8") -> Path:
    """A recorded cluster as a folder of files."""
    texts = read_texts(name, seed)
    for part, text in (
        ("config.txt", texts.config),
        ("nodes.txt", texts.nodes),
        ("partitions.txt", texts.partitions),
        ("gres.conf", texts.gres_conf),
        ("topology.conf", texts.topology_conf),
    ):
        (folder / part).write_text(text)
    return folder


def explain(folder: Path, *words: str) -> int:
    return main(["slurm", "explain-request", "--site-files", str(folder), *words])


def test_slurm_itself_answers_and_every_task_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent(tmp_path, "6363")
    assert explain(tmp_path, "--gpus-per-task=1", "-n4", "--why") == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "Asked Slurm 22.05.8 with this site's files, with its nodes taken as idle."
    text = "\n".join(rest)
    assert "4 GPUs in all, for 4 tasks" in text
    assert text.count("CUDA_VISIBLE_DEVICES = ") == 4
    assert ", CPUs " in text
    assert "Submitted: sbatch --gpus-per-task=1 --ntasks=4" in text
    assert "scontrol shows: JobId=" in text


def test_a_refusal_has_slurms_words_and_what_would_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent(tmp_path, "6363")
    assert explain(tmp_path, "--gpus=500", "--json") == 1
    body = json.loads(capsys.readouterr().out)
    assert body["stage"] == "submit"
    assert "Requested node configuration is not available" in body["reason"]
    assert body["source"].startswith("Asked Slurm 22.05.8")


def test_options_that_a_twin_cannot_judge_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent(tmp_path, "6363")
    assert explain(tmp_path, "--gpus=1", "--reservation=spring", "--account=x") == 0
    out = capsys.readouterr().out
    assert "Left out: --reservation, --account (it needs the site's present state)." in out


def test_without_a_slurm_of_the_sites_release_counts_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent(tmp_path, "1", "26.05.5")
    assert explain(tmp_path, "--gpus=1") == 3
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "Counted by sbatch's manual page."
    assert any("EPEL: slurm-slurmctld" in line for line in rest)


SLURM_CONF = """\
ClusterName=site
SlurmctldHost=head
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobSubmitPlugins=lua
GresTypes=gpu
NodeName=h[1-4] Sockets=2 CoresPerSocket=8 RealMemory=256000 Gres=gpu:h100:4 Feature=nvlink
PartitionName=gpu Nodes=h[1-4] Default=YES MaxTime=2-0 DefMemPerGPU=8000
"""


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_a_site_is_its_slurm_conf_and_gres_conf_as_they_are(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = release(name)
    monkeypatch.setenv("PODWRIGHT_SLURM_PREFIX", str(lab.root or ""))
    (tmp_path / "slurm.conf").write_text(SLURM_CONF)
    (tmp_path / "gres.conf").write_text("Name=gpu Type=h100 File=/dev/nvidia[0-3]\n")
    asked = ("--slurm-version", "{}.{:02}".format(*lab.version), "-C", "nvlink", "--gres=gpu:2")
    assert explain(tmp_path, *asked, "--mem=32G") == 0
    out = capsys.readouterr().out
    assert "1 node, 2 GPUs in all" in out
    assert "Note: JobSubmitPlugins=lua of this site may change the options." in out
    assert "Left out" not in out
    assert explain(tmp_path / "slurm.conf", *asked, "--mem=320G") == 1
    assert "Requested node configuration is not available" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["oldest", "newest"])
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("--gres=gpu:1 --mem=32G", 0, "Left out: --mem (nothing is assumed about the memory"),
        ("--gres=gpu:1 -C a100", 0, "Left out: --constraint (nothing is assumed about the feat"),
        ("--gres=gpu:1,tmp:100 -w n9 --tmp=9G", 0, "Left out: --gres (nothing is assumed about o"),
        ("--gpus=4 --tasks-per-node=4", 0, "for 4 tasks"),
        ("--gres=gpu:4 --cpus-per-gpu=32", 3, "the nodes as assumed do not hold it, and larger"),
        ("--node-cores=64 --node-gpus=4 --gres=gpu:8", 1, "Slurm refuses this"),
        ("--gres=shard:1", 3, "Not known: assumed nodes have no shares of GPUs."),
        ("--gres=gpu:a100:1,gpu:v100:1", 3, "Not known: assumed nodes have GPUs of one type."),
        ("--gpus=3 --gpus-per-node=2", 1, "--gpus=3 is not a multiple of the 2 GPUs per node"),
    ],
)
def test_what_nothing_is_assumed_about_is_left_out_and_never_refused(
    name: str,
    options: str,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PODWRIGHT_SLURM_PREFIX", str(release(name).root or ""))
    assert main(["slurm", "explain-request", "--node-sockets=2", *options.split()]) == code
    assert said in capsys.readouterr().out


@pytest.mark.outer
@pytest.mark.slurm
def test_on_the_controller_the_present_jobs_count() -> None:
    with gpu_lab(release("oldest")) as lab:
        texts = requests.live(lambda words: lab.run(*words).stdout)
        assert texts is not None
        version = read_version(texts.config)
        assert version is not None
        site = requests.read_site(texts)

        def ask(options: str) -> requests.RequestAnswer:
            request = requests.parse_request(options.split(), "sbatch")
            where = requests.asked_site(texts, site, live=True)
            found = requests.ask_slurm(request, where, version)
            assert found is not None
            return found

        submit(lab, "--nodes=3 --gpus-per-node=4 --exclusive")
        state = lab.folder / "state" / "job_state"
        before = state.stat().st_mtime
        lab.ok("scontrol", "update", "NodeName=n4", "Reason=text", "State=DRAIN")
        lab.ok("scontrol", "update", "NodeName=n4", "State=RESUME")
        submit(lab, "--gpus=2")
        poll("the state", lambda: written_at(state) > before + 1)
        present = ask("--gpus=2")
        assert present.judgement.source.endswith("as it stands now")
        waits = ask("--gpus=3").answer
        assert isinstance(waits, SlurmRefusal)
        assert waits.stage == "waits"
        assert "in use (Resources)" in waits.reason
        assert isinstance(present.answer, Grant)
        job = submit(lab, "--gpus=2")
        record = record_of(lab, job)
        (node,) = present.answer.nodes
        assert f"('{node.name}', {node.gpus}, {node.cpus}" in placed(record)
