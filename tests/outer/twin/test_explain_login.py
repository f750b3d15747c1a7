"""explain-request on a login node of a real cluster: with the twin service, and without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podwright.gpu import requests
from podwright.gpu.requests import CountedJob, Grant, SlurmRefusal
from podwright.slurm.site.command_result import CommandResult
from podwright.slurm.site.releases import read_version
from podwright.slurm.twin_service import TwinService
from tests.outer.gpu.truth import gpu_lab
from tests.outer.lab import ALICE, SlurmLab, release
from tests.outer.twin.test_present import submit
from tests.outer.twin.test_serve import running_service

pytestmark = [pytest.mark.twin, pytest.mark.outer, pytest.mark.slurm]


def explain(lab: SlurmLab, options: str, sources: requests.AnswerSources) -> Any:
    """The answer as a user of a login node gets it: nothing of the controller can be read."""
    texts = requests.live(lambda words: lab.run(*words).stdout)
    assert texts is not None
    version = read_version(texts.config)
    assert version is not None
    where = requests.asked_site(texts, requests.read_site(texts), live=False)
    site = requests.KnownSite(where, version, live=True)
    return requests.explain_request(requests.parse_request(options.split()), site, version, sources)


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_the_service_and_else_test_only_know_the_present_jobs(name: str, tmp_path: Path) -> None:
    partitions = (
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
        "PartitionName=short Nodes=ALL MaxTime=10 State=UP",
    )
    with gpu_lab(release(name), *partitions) as lab:
        submit(lab, "--nodes=3 --gpus-per-node=4 --exclusive")

        def test_only(words: Any) -> CommandResult:
            done = lab.run(*words, user=ALICE)
            return CommandResult(done.returncode, done.stdout, done.stderr)

        counts = requests.AnswerSources(local=False, test_only=test_only)
        free = explain(lab, "--gpus=2 --nodes=1", counts)
        assert isinstance(free.answer, CountedJob)
        assert free.answer.starts
        assert (free.judgement.says, free.judgement.source) == ("yes", "`sbatch --test-only`")
        refused = explain(lab, "--gpus=2 --nodelist=n9", counts)
        assert isinstance(refused.answer, SlurmRefusal)
        assert refused.answer.stage == "submit"
        assert "nvalid node name" in refused.answer.reason
        late = explain(lab, "--gpus=2 --partition=short --time=0", counts)
        assert isinstance(late.answer, SlurmRefusal)
        assert "PartitionTimeLimit" in late.answer.reason

        with running_service(lab, tmp_path) as service:
            sources = requests.AnswerSources(TwinService(str(service.place)), local=False)
            answer = explain(lab, "--gpus=2 --nodes=1", sources)
            assert "as it stands now, by " in answer.judgement.source
            assert isinstance(answer.answer, Grant)
            assert [(node.name, len(node.gpus)) for node in answer.answer.nodes] == [("n4", 2)]
            assert len(answer.answer.tasks) == 1
            waits = explain(lab, "--gpus=8 --nodes=2", sources).answer
            assert isinstance(waits, SlurmRefusal)
            assert waits.stage == "waits"
        away = explain(lab, "--gpus=2 --nodes=1", sources)
        assert isinstance(away.answer, CountedJob)
        assert "does not answer" in away.warnings[0]
