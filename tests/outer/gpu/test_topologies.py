"""Several topologies, one for each partition: what is told against a real Slurm."""

from __future__ import annotations

import pytest

from podwright.slurm.gpus.requests import SlurmRefusal, explain, live, parse_request, read_site
from podwright.slurm.site.releases import read_version
from tests.outer.lab import ALICE, SlurmLab, poll, release
from tests.slurm.gpus.requests.test_site_files import TOPOLOGIES

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


def test_switches_are_those_of_the_partition() -> None:
    partitions = (
        "PartitionName=main Nodes=ALL Default=YES",
        "PartitionName=any Nodes=ALL Topology=plain",
    )
    files = {"topology.yaml": TOPOLOGIES.replace("n[1-2]   # a rack", "n[1-2]")}
    lab = SlurmLab(nodes=4, cpus=4, files=files, lines=partitions, release=release("newest"))
    with lab:
        texts = live(lambda words: lab.run(*words).stdout)
        assert texts is not None
        assert texts.topology_yaml
        version = read_version(texts.config)
        assert version is not None
        known = read_site(texts)
        told, seen = {}, {}
        for options in (
            "--nodes=2 --switches=1",
            "--nodes=3 --switches=1",
            "--nodes=3 --switches=2",
            "--nodes=3 --switches=1 --partition=any",
            "--nodes=2 --switches=1 --partition=any",
        ):
            answer = explain(parse_request(options.split(), "sbatch"), known, version)
            told[options] = answer.stage if isinstance(answer, SlurmRefusal) else "starts"
            job = lab.ok(
                "sbatch", "--parsable", *options.split(), "--wrap=true", user=ALICE
            ).strip()

            def end(job: str = job) -> str:
                shown = lab.ok("scontrol", "--oneliner", "show", "job", job)
                if "JobState=COMPLETED" in shown:
                    return "starts"
                return "waits" if "Reason=Resources" in shown else ""

            seen[options] = poll("the job", end)
            lab.run("scancel", job)
        assert told == seen
