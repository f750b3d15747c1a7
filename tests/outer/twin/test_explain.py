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
    assert "--reservation is not looked at" in out
    assert "--account is not looked at" in out


def test_without_a_slurm_of_the_sites_release_counts_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent(tmp_path, "1", "26.05.5")
    assert explain(tmp_path, "--gpus=1") == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("Counted by the documented rules; start `podwright slurm twin serve`")
    assert any("EPEL: slurm-slurmctld" in line for line in rest)


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
        assert present.source.endswith("as it stands now.")
        waits = ask("--gpus=3").answer
        assert isinstance(waits, SlurmRefusal)
        assert waits.stage == "waits"
        assert "in use (Resources)" in waits.reason
        assert isinstance(present.answer, Grant)
        job = submit(lab, "--gpus=2")
        record = record_of(lab, job)
        (node,) = present.answer.nodes
        assert f"('{node.name}', {node.gpus}, {node.cpus}" in placed(record)
