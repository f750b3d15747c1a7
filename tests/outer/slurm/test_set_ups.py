"""Sites as they are, on the newest Slurm: nodes without files of their own (configless) that reach
only some of the pods, several job_submit plugins, a cli_filter of the site's own, scrontab.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.outer.lab import ALICE, poll, release
from tests.outer.slurm.native import NativeLab
from tests.outer.slurm.site import CLUSTER

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
#: The site's own filter: it says what it saw, and refuses one name.
FILTER = """\
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset)
   if options["job-name"] == "filtered" then
      slurm.log_error("the site's filter")
      return slurm.ERROR
   end
   return slurm.SUCCESS
end
function slurm_cli_post_submit(offset, job, step) return slurm.SUCCESS end
"""
REACHES = {"n1": "near", "n2": "near", "n3": "far", "n4": "near,far"}


class SetUpLab(NativeLab):
    """pod64 is reached by nodes with the feature `near`, pod16 by those with `far`. slurmd knows
    where slurmctld is, and nothing else."""

    def __init__(self, **options: Any) -> None:
        conf = {
            "JobSubmitPlugins": "all_partitions,require_timelimit",
            "CliFilterPlugins": "lua",
            "ScronParameters": "enable",
            "SlurmctldParameters": "enable_configless",
            "PlugStackConfig": "",  # what slurmctld sends lies beside slurm.conf
        }
        pods = ["--pod", "pod64=podA@near", "--pod", "pod16=podB@far"]
        super().__init__(conf=conf, files={"cli_filter.lua": FILTER}, configure=pods, **options)

    def start_server(self) -> None:
        files = []
        for name, count in (("podA", 16), ("podB", 4)):
            machines = ", ".join(f'"{name}-{k}"' for k in range(count))
            path = self.write(f"{name}.toml", CLUSTER.format(name=name, machines=machines))
            files += ["--cluster-file", str(path)]
        self.serve(*files)

    def start_daemon(self, name: str, *, clean: bool = False) -> None:
        if name.startswith("slurmctld"):
            super().start_daemon(name, clean=clean)
            return
        (self.folder / "spool" / name).mkdir(exist_ok=True)
        # Before slurmd knows any slurm.conf, MUNGE is at its usual place; /run is this lab's own.
        usual = (
            f"mkdir -p /run/munge && ln -sf {self.folder}/munge.socket /run/munge/munge.socket.2"
        )
        server = f"--conf-server 127.0.0.1:{self.settings['SlurmctldPort']}"
        line = f"{usual} && unset SLURM_CONF && exec slurmd -D -N {name} {server}"
        self._spawn(name, self._here, ["sh", "-c", line])

    def start(self) -> None:
        super().start()
        self.reach()

    def reach(self) -> None:
        """What slurm.conf says of each node at a site."""
        for node, features in REACHES.items():
            both = (f"availablefeatures={features}", f"activefeatures={features}")
            self.ok("scontrol", "update", f"nodename={node}", *both)


@pytest.fixture(scope="module")
def lab() -> Iterator[SetUpLab]:
    with SetUpLab(nodes=4, cpus=16, release=release("newest")) as made:
        yield made
        made.wait_free()


LIMIT = ("-t", "5", "-n1", "-o", "/dev/null")


def test_newest_nodes_without_files_get_them_from_slurmctld(lab: SetUpLab) -> None:
    cache = lab.folder / "spool" / "n1" / "conf-cache"
    assert "spank_podwright.so" in (cache / "plugstack.conf").read_text()
    lab.ok("scontrol", "reconfigure")
    lab.wait_for_nodes()
    lab.reach()
    job = lab.batch("srun -Q sh -c 'echo $IPUOF_VIPU_API_PARTITION_ID'", "--ipus=4", "-t5", "-n1")
    assert lab.wait_over(job)[job].state == "COMPLETED"
    poll("its output", lambda: lab.output(job) == f"slurm_{job}\n")


def test_newest_jobs_run_on_nodes_that_reach_their_pod(lab: SetUpLab) -> None:
    near = [lab.batch("true", "--ipus=4", *LIMIT) for _ in range(6)]
    far = [lab.batch("true", "--ipus=4", "--gres=vipu:pod16", *LIMIT) for _ in range(6)]
    both = lab.batch("true", "--ipus=4", "--gres=vipu:pod16", "-C", "near", *LIMIT)
    ended = lab.wait_over(*near, *far, both)
    assert {job.state for job in ended.values() if job.id in {*near, *far, both}} == {"COMPLETED"}
    assert {ended[job].fields["NodeList"] for job in near} <= {"n1", "n2", "n4"}
    assert {ended[job].fields["NodeList"] for job in far} <= {"n3", "n4"}
    assert ended[both].fields["NodeList"] == "n4"
    for wish in (("-w", "n1"), ("-C", "big")):
        done = lab.run("srun", "--ipus=4", "--gres=vipu:pod16", *wish, *LIMIT[:3], "true")
        assert done.returncode != 0, "no node is both"


def test_newest_nobody_moves_a_job_to_a_node_that_does_not_reach_its_pod(lab: SetUpLab) -> None:
    waits = lab.batch("true", "--ipus=4", "--begin=now+1hour", *LIMIT)
    moved = lab.run("scontrol", "update", f"jobid={waits}", "features=far", user=ALICE)
    assert moved.returncode != 0
    assert "reach its pod" in moved.stderr
    assert lab.job(waits).fields["Features"] == "near"
    either = lab.run("srun", "--ipus=4", "-C", "near|far", *LIMIT[:3], "true", user=ALICE)
    assert "join features with & alone" in either.stderr
    lab.ok("scancel", str(waits))


def test_newest_a_sites_other_plugins_go_on(lab: SetUpLab) -> None:
    unlimited = lab.run("srun", "--ipus=4", "-n1", "true", user=ALICE)
    assert unlimited.returncode != 0
    assert "time limit" in unlimited.stderr.lower()
    filtered = lab.run("srun", "--ipus=4", "-J", "filtered", *LIMIT[:3], "true", user=ALICE)
    assert filtered.returncode != 0
    assert "the site's filter" in filtered.stderr
    shown = "echo $IPUOF_VIPU_API_PARTITION_ID"
    done = lab.run("srun", "--ipus=4", *LIMIT[:3], "sh", "-c", shown, user=ALICE)
    assert done.stdout.startswith("slurm_"), done.stderr


def test_newest_scrontab_refuses_devices_that_slurm_would_not_hand_over(lab: SetUpLab) -> None:
    entry = "0 0 1 1 * true\n"
    for line in ("#SCRON --ipus=4 -t 5\n", "#SCRON -L ipu:4,podwright_job:1 -t 5\n"):
        done = lab.run("scrontab", "-", stdin=line + entry, user=ALICE)
        assert done.returncode != 0, done.stdout
    # What another test left may still be going.
    assert lab.run("squeue", "-h", "-t", "PENDING,RUNNING").stdout == ""
    done = lab.run("scrontab", "-", stdin="#SCRON --ipus=4 -t 5\n" + entry, user=ALICE)
    assert "sbatch --ipus=4 SCRIPT" in done.stderr + done.stdout
    done = lab.run("scrontab", "-", stdin="#SCRON -t 5\n" + entry, user=ALICE)
    assert done.returncode == 0, done.stderr
    assert lab.run("squeue", "-h", "-t", "PENDING", "-o", "%u").stdout.split() == [ALICE]
    lab.ok("scrontab", "-r", user=ALICE)
