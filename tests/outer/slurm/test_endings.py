"""Any ending returns the devices: the crash matrix, by real jobs, written down as a table.

Each case ends a job, a hook or a daemon at one point, and then nothing may be held, the partition
of no job may overlap another's (the server never gives a device twice: the book of every case
says so), and a job for the whole pod must run.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from podwright.errors import PodwrightError
from tests.outer.lab import ALICE, poll, release, written_at
from tests.outer.slurm.looking import Looking
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

TABLE = Path(__file__).parents[3] / "docs/slurm/crashes.md"
HEAD = """# The crash matrix

Written by `make soak` (`tests/outer/slurm/test_endings.py`), by real jobs on Slurm 22.05.8 and
26.05.5, a pod of 64 devices. Devices leaked: what is held after the last job, the sweep included.
Given twice: devices that the server's list ever showed in two partitions at once. Both are sums of
the two runs. After each row a job for the whole pod ran. A node whose power goes, and the server's
host down when a job ends: `test_hosts.py`; machines that fail: `test_machines.py`.

| what ends | when | what happens to the job | on 26.05.5 | devices leaked | given twice |
|---|---|---|---|---|---|
"""
SOAK = os.environ.get("PODWRIGHT_SOAK") == "1"
RELEASES = ("oldest", "newest") if SOAK else ("oldest",)
PARTITION = "Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=NO"
#: What happened, devices leaked, devices given twice: of each release and case.
rows: dict[tuple[str, str], tuple[str, int, int]] = {}
_marks = itertools.count(1)


@pytest.fixture(scope="module", params=RELEASES)
def cluster(request: pytest.FixtureRequest) -> Iterator[NativeLab]:
    conf = {
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
    }
    lines = [
        f"PartitionName=main {PARTITION} Default=YES PriorityTier=1 PreemptMode=REQUEUE",
        f"PartitionName=cheap {PARTITION} PriorityTier=1 PreemptMode=CANCEL",
        f"PartitionName=urgent {PARTITION} PriorityTier=10 PreemptMode=OFF",
    ]
    slurm = release(request.param)
    with NativeLab(nodes=2, cpus=16, conf=conf, lines=lines, release=slurm) as made:
        yield made
    if len(rows) == len(ALL) * 2:
        found = {name: [rows[each, name] for each in RELEASES] for name in ALL}
        TABLE.write_text(HEAD + "".join(row(name, ends) for name, ends in found.items()))


def row(name: str, ends: Sequence[tuple[str, int, int]]) -> str:
    """A line of the table. ends: of a case, on oldest and newest."""
    what, when, _ = ALL[name]
    outcomes, leaked, twice = zip(*ends, strict=True)
    second = "the same" if outcomes[1] == outcomes[0] else outcomes[1]
    cells = (what, when, outcomes[0], second, str(sum(leaked)), str(sum(twice)))
    return "| " + " | ".join(cells) + " |\n"


def begun(lab: NativeLab, *options: str) -> int:
    """A job whose script runs: slurmctld calls one RUNNING before its node has heard of it."""
    mark = lab.folder / "out" / f"begun-{next(_marks)}"
    job = lab.batch(f"touch {mark}\nsleep 600", *lab.ask, "-o", "/dev/null", *options)
    poll("its first line", mark.exists, seconds=60)
    assert lab.holds(job) is not None
    return job


def slow_hook(lab: NativeLab, kind: str) -> Path:
    """The site's own script waits before our hook for `quick_hooks`, so that a test can come
    between. The file that is there once it waits."""
    conf = lab.folder / "podwright" / "hook.conf"
    reached, gate = lab.folder / f"{kind}-reached", lab.folder / "hooks-go"
    for path in (reached, gate):
        path.unlink(missing_ok=True)
    lines = f"#!/bin/sh\ntouch {reached}\nuntil test -e {gate}; do sleep 0.1; done\n"
    script = lab.write(f"{kind}-slow", lines)
    conf.write_text(conf.read_text() + f"before-{kind}-slurmctld {script}\n")
    return reached


def quick_hooks(lab: NativeLab) -> None:
    """Those that wait go on, and no other waits."""
    conf = lab.folder / "podwright" / "hook.conf"
    lines = [line for line in conf.read_text().splitlines() if not line.startswith("before-")]
    conf.write_text("\n".join(lines) + "\n")
    (lab.folder / "hooks-go").touch()


def ended(lab: NativeLab, job: int) -> str:
    """The job's last state; where it was requeued, it waits for its old credentials to be over."""
    return lab.wait_over(job)[job].state


def finished(lab: NativeLab) -> str:
    job = lab.batch("true", *lab.ask, "-o", "/dev/null")
    return lab.wait_over(job)[job].state


def failed(lab: NativeLab) -> str:
    job = lab.batch("exit 3", *lab.ask, "-o", "/dev/null")
    return lab.wait_over(job)[job].state


def cancelled_pending(lab: NativeLab) -> str:
    job = lab.batch("true", *lab.ask, "--hold")
    lab.ok("scancel", str(job))
    return lab.wait_over(job)[job].state


def cancelled_configuring(lab: NativeLab) -> str:
    reached = slow_hook(lab, "prolog")
    job = lab.batch("sleep 600", *lab.ask, "-o", "/dev/null")
    poll("its prolog", reached.exists)
    lab.ok("scancel", str(job))
    quick_hooks(lab)
    return lab.wait_over(job)[job].state


def cancelled_running(lab: NativeLab) -> str:
    job = begun(lab)
    lab.ok("scancel", str(job))
    return lab.wait_over(job)[job].state


def cancelled_completing(lab: NativeLab) -> str:
    job = begun(lab)
    reached = slow_hook(lab, "epilog")
    lab.ok("scancel", str(job))
    poll("its epilog", reached.exists)
    lab.run("scancel", str(job))
    quick_hooks(lab)
    return lab.wait_over(job)[job].state


def cancelled_srun(lab: NativeLab) -> str:
    step = lab.popen("srun", *lab.ask, "sleep", "600", user=ALICE)
    poll("its devices", lab.taken)
    job = max(lab.jobs())
    lab.ok("scancel", str(job))
    step.communicate()
    return lab.wait_over(job)[job].state


def out_of_time(lab: NativeLab) -> str:
    job = lab.batch("sleep 600", *lab.ask, "-t0:01", "-o", "/dev/null")
    lab.ok("scontrol", "update", f"jobid={job}", "timelimit=0:01")
    return lab.wait_over(job, seconds=100)[job].state


def requeued(lab: NativeLab) -> str:
    job = begun(lab)
    lab.ok("scontrol", "requeue", str(job))
    poll("restart", lambda: lab.job(job).fields["Restarts"] == "1")
    lab.start_again(job)
    lab.wait_state(job, "RUNNING")
    held = lab.holds(job)
    assert held == f"{job}/1"
    lab.ok("scancel", str(job))
    lab.wait_over(job)
    return "ran again, with a partition of its own"


def suspended(lab: NativeLab) -> str:
    job = begun(lab)
    waited = lab.state()["figures"]["waited"]
    lab.ok("scontrol", "suspend", str(job))
    lab.wait_state(job, "SUSPENDED")
    whole = lab.batch("true", *lab.ask_all, "-o", "/dev/null")
    poll("Slurm looked at it", lambda: lab.job(whole).reason == "Licenses")
    assert lab.holds(job) is not None, "a suspended job lost its partition"
    lab.ok("scontrol", "resume", str(job))
    lab.wait_state(job, "RUNNING")
    lab.ok("scancel", str(job))
    lab.wait_over(job, whole)
    assert lab.state()["figures"]["waited"] == waited
    return f"kept its partition, then {lab.job(job).state}"


def preempted(lab: NativeLab) -> str:
    job = begun(lab)
    urgent = lab.batch("sleep 1", "-N2", "--exclusive", "-p", "urgent", "-o", "/dev/null")
    poll("restart", lambda: lab.job(job).fields["Restarts"] == "1")
    lab.wait_over(urgent)
    lab.wait_state(job, "RUNNING")
    assert lab.holds(job) == f"{job}/1"
    lab.ok("scancel", str(job))
    lab.wait_over(job)
    return "ran again, with a partition of its own"


def preempted_and_cancelled(lab: NativeLab) -> str:
    job = begun(lab, "-p", "cheap")
    urgent = lab.batch("sleep 1", "-N2", "--exclusive", "-p", "urgent", "-o", "/dev/null")
    lab.wait_over(urgent)
    return lab.wait_over(job)[job].state


def node_killed(lab: NativeLab) -> str:
    job = begun(lab, "--no-requeue")
    node = lab.job(job).fields["NodeList"]
    lab.kill_daemon(node)
    lab.ok("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    state = lab.wait_over(job)[job].state
    lab.start_daemon(node)
    lab.run("scontrol", "update", f"nodename={node}", "state=resume")  # unless it is back already
    lab.wait_for_nodes()
    return state


def slurmctld_while_running(lab: NativeLab) -> str:
    job = begun(lab)
    lab.wait_state(job, "RUNNING")
    now = time.time()
    lab.ok("scontrol", "update", f"jobid={job}", "comment=to be saved, too")
    saved = lab.folder / "state" / "job_state"
    poll("its state is saved", lambda: written_at(saved) > now)
    lab.kill_daemon("slurmctld")
    lab.start_daemon("slurmctld")
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)
    state = lab.wait_state(job, "RUNNING").state
    assert lab.holds(job) is not None, "a living job lost its partition"
    lab.ok("scancel", str(job))
    lab.wait_over(job)
    return f"{state}, untouched"


def slurmctld_in_prolog(lab: NativeLab) -> str:
    reached = slow_hook(lab, "prolog")
    job = lab.batch("true", *lab.ask, "-o", "/dev/null")
    poll("its prolog", reached.exists)
    lab.kill_daemon("slurmctld")
    quick_hooks(lab)
    lab.start_daemon("slurmctld")
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)
    if job not in lab.jobs():
        return "forgotten by Slurm; the sweep ended it"
    return ended(lab, job)


def slurmctld_in_epilog(lab: NativeLab) -> str:
    job = begun(lab)
    reached = slow_hook(lab, "epilog")
    lab.ok("scancel", str(job))
    poll("its epilog", reached.exists)
    lab.kill_daemon("slurmctld")
    quick_hooks(lab)
    lab.start_daemon("slurmctld")
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)
    if job in lab.jobs():
        lab.run("scancel", str(job))
        lab.wait_over(job)
    return "over"


def server_while_running(lab: NativeLab) -> str:
    job = begun(lab)
    lab.end("server")
    lab.start_server()
    assert lab.holds(job) is not None
    lab.ok("scancel", str(job))
    return lab.wait_over(job)[job].state


def server_when_it_begins(lab: NativeLab) -> str:
    lab.end("server")
    job = lab.batch("true", *lab.ask, "-o", "/dev/null")
    time.sleep(2)
    lab.start_server()
    return ended(lab, job)


def service_while_running(lab: NativeLab) -> str:
    job = begun(lab)
    lab.end("service")
    lab.ok("scancel", str(job))
    time.sleep(1)
    assert lab.holds(job) is not None
    lab.start_service()
    lab.wait_for_service()
    return lab.wait_over(job)[job].state


def service_when_it_begins(lab: NativeLab) -> str:
    lab.end("service")
    job = lab.batch("true", *lab.ask, "-o", "/dev/null")
    time.sleep(1.5)
    lab.start_service()
    return ended(lab, job)


def service_told_to_end(lab: NativeLab) -> str:
    lab.end("service", signal.SIGTERM)
    job = lab.batch("true", *lab.ask, "-o", "/dev/null")
    time.sleep(2)
    state = lab.job(job).state
    assert state == "PENDING", "with the service down on purpose, jobs wait in the queue"
    lab.start_service()
    return f"waited in the queue, then {lab.wait_over(job)[job].state}"


def prolog_fails(lab: NativeLab) -> str:
    conf = lab.folder / "podwright" / "hook.conf"
    script = lab.write("bad", "#!/bin/sh\nexit 1\n")
    conf.write_text(conf.read_text() + f"before-prolog-slurmctld {script}\n")
    job = lab.batch("true", *lab.ask, "-o", "/dev/null")
    poll("a restart", lambda: lab.job(job).fields["Restarts"] != "0")
    quick_hooks(lab)
    lab.start_again(job)
    return f"requeued, then {ended(lab, job)}"


def prolog_never_runs(lab: NativeLab) -> str:
    with instead(lab, "prolog-slurmctld"):
        job = lab.batch("true", *lab.ask, "-o", "/dev/null")
        lab.wait(
            f"job {job} held",
            lambda jobs: (jobs[job].state, jobs[job].fields["Priority"]) == ("PENDING", "0"),
        )
    lab.ok("scancel", str(job))
    return "never began: held, with the reason"


def epilog_fails(lab: NativeLab) -> str:
    conf = lab.folder / "podwright" / "hook.conf"
    script = lab.write("bad", "#!/bin/sh\nexit 1\n")
    conf.write_text(conf.read_text() + f"before-epilog-slurmctld {script}\n")
    job = begun(lab)
    lab.ok("scancel", str(job))
    return lab.wait_over(job)[job].state


@contextlib.contextmanager
def instead(lab: NativeLab, hook: str) -> Iterator[None]:
    """The hook's link shows to something that does nothing."""
    link = lab.folder / "podwright" / hook
    target = os.readlink(link)
    link.unlink()
    link.symlink_to("/bin/true")
    try:
        yield
    finally:
        link.unlink()
        link.symlink_to(target)


def epilog_never_runs(lab: NativeLab) -> str:
    job = begun(lab)
    with instead(lab, "epilog-slurmctld"):
        lab.ok("scancel", str(job))
        state = lab.wait_over(job)[job].state
        lab.wait_free(25)
    return f"{state}; the sweep gave the devices back"


def reservation_deleted(lab: NativeLab) -> str:
    lab.ok("scontrol", "delete", "reservationname=podwright")
    poll("the reservation", lambda: "podwright" in lab.run("scontrol", "show", "res").stdout)
    return "none touched; made again by the sweep"


CASES: dict[str, tuple[str, str, Callable[[NativeLab], str]]] = {
    "finished": ("job", "it finishes", finished),
    "failed": ("job", "it fails", failed),
    "pending": ("job", "cancelled while pending", cancelled_pending),
    "configuring": ("job", "cancelled while configuring", cancelled_configuring),
    "running": ("job", "cancelled while running", cancelled_running),
    "completing": ("job", "cancelled again while completing", cancelled_completing),
    "requeued": ("job", "requeued while running", requeued),
    "srun": ("srun", "cancelled while its program runs", cancelled_srun),
    "node": ("slurmd", "killed with its node", node_killed),
    "ctld-running": ("slurmctld", "killed while a job runs", slurmctld_while_running),
    "ctld-prolog": ("slurmctld", "killed in a prolog", slurmctld_in_prolog),
    "ctld-epilog": ("slurmctld", "killed in an epilog", slurmctld_in_epilog),
    "server-running": ("vipu-server", "killed while a job runs", server_while_running),
    "server-begin": ("vipu-server", "down when a job begins", server_when_it_begins),
    "service-running": ("slurm serve", "killed; the job ends meanwhile", service_while_running),
    "service-begin": ("slurm serve", "down when a job begins", service_when_it_begins),
    "service-term": ("slurm serve", "ended on purpose", service_told_to_end),
    "prolog-fails": ("prolog", "fails", prolog_fails),
    "epilog-lost": ("epilog", "never runs", epilog_never_runs),
    "reservation": ("reservation", "deleted by hand", reservation_deleted),
}
if SOAK:
    CASES["time"] = ("job", "its time is over", out_of_time)
#: Of native mode alone; the documented ways are put through CASES as well.
NATIVE: dict[str, tuple[str, str, Callable[[NativeLab], str]]] = {
    "suspended": ("job", "suspended, resumed, cancelled", suspended),
    "prolog-lost": ("prolog", "never runs", prolog_never_runs),
    "epilog-fails": ("epilog", "the site's own part fails", epilog_fails),
}
if SOAK:
    NATIVE["preempted"] = ("job", "preempted, to be requeued", preempted)
    NATIVE["preempted-cheap"] = ("job", "preempted, to be cancelled", preempted_and_cancelled)
ALL = {**CASES, **NATIVE}


class Watch(Looking):
    """Looks at the server's list all the time: devices in two partitions at once."""

    every = 0.05

    def __init__(self, lab: NativeLab) -> None:
        super().__init__()
        self.twice: set[str] = set()
        self.looks = 0
        self._lab = lab

    def look(self) -> None:
        with contextlib.suppress(PodwrightError):  # the server may be down: it is the case
            seen = Counter(self._lab.taken())
            self.twice |= {device for device, count in seen.items() if count > 1}
            self.looks += 1


def put_through(lab: NativeLab, name: str) -> tuple[str, int, int]:
    """A case, after which nothing may be held and everything can be had: what happened, devices
    leaked, devices given twice."""
    case = ALL[name][2]
    with Watch(lab) as watch:
        try:
            outcome = case(lab)
        finally:
            quick_hooks(lab)
    # A killed slurmctld may remember jobs as they were when it last saved them.
    if left := [str(job.id) for job in lab.jobs().values() if not job.over]:
        lab.run("scancel", *left)
    lab.wait("no job left", lambda jobs: all(job.over for job in jobs.values()))
    lab.wait_free()
    whole = lab.batch("true", *lab.ask_all, "-o", "/dev/null")
    assert lab.wait_over(whole)[whole].state == "COMPLETED"
    lab.wait_free()
    leaked = lab.held()
    assert leaked == 0
    assert not watch.twice
    assert watch.looks
    return outcome, leaked, len(watch.twice)


@pytest.mark.parametrize("name", ALL)
def test_any_ending_returns_the_devices(name: str, cluster: NativeLab) -> None:
    rows[cluster.release.name, name] = put_through(cluster, name)
