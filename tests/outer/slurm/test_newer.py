"""The same on Debian's next Slurm: what differs there are licences of heterogeneous jobs."""

from __future__ import annotations

import pytest

from tests.outer.lab import Release
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


def test_jobs_find_their_partitions_and_leave_nothing(middle: Release) -> None:
    with NativeLab(nodes=2, release=middle) as lab:
        job = lab.batch("srun -l sh -c 'echo $IPUOF_VIPU_API_PARTITION_ID'", "--ipus=8", "-n2")
        part = ["-N1", "-n1", "--ipus=32"]
        both = [lab.batch("sleep 1", *part, ":", *part) for _ in range(2)]
        wanted = [job, *both, *(leader + 1 for leader in both)]
        jobs = lab.wait_over(*wanted)
        assert {jobs[one].state for one in wanted} == {"COMPLETED"}
        assert sorted(lab.output(job).split()) == sorted(["0:", "1:", *[f"slurm_{job}"] * 2])
        lab.wait_free()
        assert lab.state()["figures"]["waited"] == 0
        done = lab.run("sbatch", "--ipus=3", "--wrap=true")
        assert "use 2 or 4" in done.stderr
