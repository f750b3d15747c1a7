"""Setting up and undoing as docs/slurm/admin.md prints it, typed on a site whose slurmctld is
user `slurm`'s, at the paths that the page names; then its ordinary users come.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outer.lab import ALICE, BOB, Release, poll
from tests.outer.slurm.standard import StandardLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

PAGE = (Path(__file__).parents[3] / "docs/slurm/admin.md").read_text()
SHOW = "echo $IPUOF_VIPU_API_PARTITION_ID"


@pytest.fixture(scope="module")
def lab(release: Release) -> Iterator[StandardLab]:
    with StandardLab(release=release, nodes=2, cpus=8, user="slurm") as made:
        yield made


def lines(heading: str) -> list[str]:
    """The commands of a section's first block."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(r"```bash\n(.*?)```", section, re.DOTALL)
    assert found, heading
    return found[1].splitlines()


def printed(command: str) -> str:
    """A command that the page names in a sentence, exactly so."""
    assert f"`{command}`" in PAGE, command
    return command


def restart_slurmctld(lab: StandardLab) -> None:
    lab.kill_daemon("slurmctld", signal.SIGTERM)
    lab.start_daemon("slurmctld")
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)


@pytest.mark.parametrize(
    ("release", "serves"), [("oldest", "root"), ("newest", "slurm")], indirect=["release"]
)
def test_what_the_administrators_page_types_sets_a_site_up(lab: StandardLab, serves: str) -> None:
    files = [lab.folder / name for name in ("slurm.conf", "plugstack.conf")]
    before = [path.read_bytes() for path in files]
    if serves == "slurm":
        scheduler = printed("vipu-admin create user slurm --role scheduler --uid slurm")
        done = lab.type(scheduler)
        assert done.returncode == 0, done.stderr
    *setting_up, serve = lines("Setting up")
    for line in setting_up:
        done = lab.type(line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        if not line.endswith("--write") and "configure" in line:
            assert "Nothing was changed" in done.stdout
            assert [path.read_bytes() for path in files] == before
    lab.leave(serve, user=serves)
    restart_slurmctld(lab)
    lab.ok("scontrol", "reconfigure")
    lab.wait_for_nodes()
    state = re.findall(r"`(curl --unix-socket [^`]*State)`", PAGE)[0]
    poll("the service", lambda: '"problem":""' in lab.type(state).stdout)

    done = lab.type(printed("podwright slurm check") + " --wait 500")
    assert done.returncode == 0, done.stdout
    assert {line[:3] for line in done.stdout.splitlines()} == {"yes"}
    for user in (ALICE, BOB):
        job = lab.submit(f"srun -Q sh -c '{SHOW}'", "--ipus=4", "-n1", user=user)
        assert lab.wait_over(job)[job].state == "COMPLETED", lab.log()[-2000:]
        assert lab.output(job) == f"slurm_{job}\n"
        done = lab.run("srun", "--ipus=2", "-n1", "sh", "-c", SHOW, user=user)
        assert done.stdout.startswith("slurm_"), done.stderr
    lab.wait_free()

    (undo,) = lines("Undoing")
    done = lab.type(undo)
    assert done.returncode == 0, done.stderr
    assert [path.read_bytes() for path in files] == before
    lab.end("service", signal.SIGTERM)
    done = lab.type(printed("scontrol delete reservationname=podwright"))
    assert done.returncode == 0, done.stderr
    restart_slurmctld(lab)
    lab.wait_for_nodes()
    assert lab.run("srun", "-n1", "echo", "as ever", user=ALICE).stdout == "as ever\n"
    assert lab.run("srun", "--ipus=2", "-n1", "true", user=ALICE).returncode != 0
