"""A twin with a copy of a cluster's state answers what that cluster grants next."""

from __future__ import annotations

import random
import re
import time

import pytest

from podwright.slurm.twin import (
    Granted,
    SiteFiles,
    Submission,
    Twin,
    Waits,
    present_copied,
)
from podwright.slurm.twin._read_twin_answer import granted_nodes
from tests.outer.gpu.truth import gpu_lab
from tests.outer.lab import ALICE, SlurmLab, poll, release, written_at
from tests.outer.twin.test_ask import installed

pytestmark = [pytest.mark.twin, pytest.mark.outer, pytest.mark.slurm]

REQUESTS = (
    "--gpus=1",
    "--gpus=2 --cpus-per-gpu=2",
    "--nodes=1 --gres=gpu:3",
    "--nodes=2 --gpus-per-node=1",
    "--nodes=4 --gpus-per-node=1",
    "--gpus=4 --ntasks=2",
    "--nodes=1 --exclusive",
)
SECRET = "a token in a job's script"


def site_files(lab: SlurmLab) -> SiteFiles:
    """What the lab's scontrol prints, and its gres.conf."""
    return SiteFiles(
        config=lab.ok("scontrol", "show", "config"),
        nodes=lab.ok("scontrol", "--oneliner", "show", "node"),
        partitions=lab.ok("scontrol", "--oneliner", "show", "partition"),
        gres_conf=(lab.folder / "gres.conf").read_text(),
    )


def record_of(lab: SlurmLab, job: str) -> str:
    return lab.ok("scontrol", "--oneliner", "--details", "show", "job", job)


def submit(lab: SlurmLab, options: str) -> str:
    """A job that stays, decided about by slurmctld; its number."""
    script = lab.write("job.sh", f"#!/bin/sh\n# {SECRET}\nsleep 1000\n")
    words = (*options.split(), "--output=/dev/null", str(script))
    job = lab.ok("sbatch", "--parsable", *words, user=ALICE).strip()

    def decided() -> bool:
        record = record_of(lab, job)
        return "JobState=RUNNING" in record or bool(
            re.search(r"JobState=PENDING Reason=(?!None|Priority)", record)
        )

    poll(f"a decision about {options}", decided)
    return job


def placed(record: str) -> str:
    return str([(n.name, n.gpus, n.cpus, n.memory) for n in granted_nodes(record)])


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_the_twin_answers_what_the_cluster_grants_next(name: str) -> None:
    draw = random.Random(27)
    lab = gpu_lab(release(name))
    with lab:
        jobs = [submit(lab, draw.choice(REQUESTS[:4])) for _ in range(5)]
        lab.ok("scancel", jobs[1])
        lab.ok("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=test")
        poll("its end", lambda: "JobState=CANCELLED" in record_of(lab, jobs[1]))
        poll("n4", lambda: "DRAIN" in lab.ok("scontrol", "show", "node", "n4"))
        # slurmctld writes a file only after a change, and may have written all of these already.
        changed = time.time()
        lab.ok("scontrol", "update", f"JobId={jobs[2]}", "Comment=later")
        lab.ok("scontrol", "update", "NodeName=n4", "Reason=later")
        state = lab.folder / "state"
        for file in ("job_state", "node_state"):
            poll(file, lambda file=file: written_at(state / file) > changed)  # type: ignore[misc]
        present = present_copied(state)
        assert not any(SECRET.encode() in content for content in present.state.values())
        site = site_files(lab)
        with Twin(site, installed(release(name)), present) as twin:
            answers = [twin.ask(Submission("sbatch", tuple(o.split()))) for o in REQUESTS]
        wrong = {}
        for options, answer in zip(REQUESTS, answers, strict=True):
            job = submit(lab, options)
            record = record_of(lab, job)
            ours = placed(answer.record) if isinstance(answer, Granted | Waits) else str(answer)
            if ours != placed(record):
                wrong[options] = (ours, placed(record))
            lab.ok("scancel", job)
            poll("its end", lambda job=job: "JobState=CANCELLED" in record_of(lab, job))  # type: ignore[misc]
            poll("free nodes", lambda: "COMPLETING" not in lab.ok("scontrol", "show", "node"))
        assert wrong == {}
        assert any(isinstance(answer, Waits) for answer in answers)
        assert any(isinstance(answer, Granted) for answer in answers)
