"""What each mechanism is put through, and what is counted. One scenario, one row."""

import random
import time
from collections import Counter
from collections.abc import Callable

from tests.outer.experiments.mechanisms import Cluster, Mechanism, cluster
from tests.outer.lab import ALICE, Job, LabError, SlurmLab, poll

Scenario = Callable[[Mechanism], str]


def ipus(mechanism: Mechanism, count: int) -> list[str]:
    return [f"--ipus={count}"] if mechanism.counts else []


def _batch(lab: SlurmLab, script: str, *options: str) -> int:
    return lab.submit(script, "-o", "/dev/null", *options, user=ALICE)


def _restarts(jobs: dict[int, Job]) -> int:
    return sum(int(job.fields["Restarts"]) for job in jobs.values())


def start_latency(mechanism: Mechanism) -> str:
    """Median of 7: srun true with devices, on an idle cluster."""
    with cluster(mechanism) as c:
        times = []
        for _ in range(7):
            start = time.monotonic()
            done = c.lab.run("srun", "-n1", *ipus(mechanism, 4), "true", user=ALICE)
            if done.returncode:
                raise LabError(done.stderr)
            times.append(time.monotonic() - start)
        return f"{sorted(times)[3]:.2f} s"


def waiting_for_nodes(mechanism: Mechanism) -> str:
    """Three of four nodes busy for 10 hours; 256 devices on four nodes wait; 4 devices come."""
    with cluster(mechanism) as c:
        lab = c.lab
        busy = _batch(lab, "sleep 36000", "-N3", "--exclusive", "-t600")
        lab.wait_state(busy, "RUNNING")
        big = _batch(lab, "sleep 5", "-N4", "--exclusive", "-t60", *ipus(mechanism, 256))
        time.sleep(4)
        held = c.held()
        start = time.monotonic()
        small = _batch(lab, "true", "-N1", "-t1", *ipus(mechanism, 4))
        try:
            lab.wait_over(small, seconds=20)
            ran = f"small job over after {time.monotonic() - start:.1f} s"
        except LabError:
            ran = f"small job not over after 20 s ({lab.job(small).reason})"
        lab.ok("scancel", str(busy))
        try:
            lab.wait_over(big, seconds=40)
        except LabError:
            ran += f"; big job not over 40 s after the nodes came free ({lab.job(big).reason})"
        return f"holds {held} devices; {ran}"


def heterogeneous(mechanism: Mechanism) -> str:
    """Two jobs of 128+128 on 256 devices."""
    with cluster(mechanism) as c:
        part = ["-N1", "-n1", *ipus(mechanism, 128)]
        start = time.monotonic()
        both = [_batch(c.lab, "sleep 1", *part, ":", *part) for _ in range(2)]
        wanted = {job + at for job in both for at in range(2)}
        try:
            jobs = c.lab.wait_over(*wanted, seconds=60)
        except LabError:
            states = sorted((job.state, job.reason) for job in c.lab.jobs().values())
            return f"not over after 60 s: {states}; holds {c.held()} devices"
        good = all(jobs[job].state == "COMPLETED" for job in wanted)
        took = time.monotonic() - start
        return (
            f"{'both finish' if good else 'FAILED'} in {took:.1f} s; components started without "
            f"devices {len(c.journal('no shape'))}, refused {len(c.journal('refused'))}"
        )


def shape(mechanism: Mechanism) -> str:
    """64 jobs of 4 devices fill the pod, every other ends: 128 free, no 8 of them together."""
    with cluster(mechanism, cpus=64) as c:
        lab = c.lab
        script = "sleep 600"
        for _ in range(64):
            _batch(lab, script, "-n1", *ipus(mechanism, 4))
        lab.wait("64 running", lambda now: sum(j.state == "RUNNING" for j in now.values()) == 64)
        order = [line["job"] for line in c.journal("begins")]
        lab.ok("scancel", *map(str, order[::2]))
        poll("half the pod", lambda: c.held() == 128)
        eight = _batch(lab, "true", "-n1", *ipus(mechanism, 8))
        time.sleep(12)
        before = lab.job(eight)
        tries = len(c.journal("refused"))
        lab.ok("scancel", str(order[1]))
        start = time.monotonic()
        try:
            lab.wait_over(eight, seconds=20)
            after = f"over {time.monotonic() - start:.1f} s after its neighbour ended"
        except LabError:
            after = f"not over 20 s after its neighbour ended ({lab.job(eight).reason})"
        stuck = len(c.journal("no shape"))
        restarts = lab.job(eight).fields["Restarts"]
        return (
            f"{before.state} ({before.reason}); started without shape {stuck} times, refused "
            f"{tries}, restarts {restarts}; {after}"
        )


def flood(mechanism: Mechanism) -> str:
    """300 jobs wait for 256 devices that are taken but for 16; one for 4 comes last."""
    with cluster(mechanism, cpus=128) as c:
        lab = c.lab
        for size in (128, 64, 32, 16):
            _batch(lab, "sleep 600", "-n1", *ipus(mechanism, size))
        lab.wait("four running", lambda now: sum(j.state == "RUNNING" for j in now.values()) == 4)
        _loose(lab, 300, *ipus(mechanism, 32))
        time.sleep(3)
        start = time.monotonic()
        last = _batch(lab, "true", "-n1", *ipus(mechanism, 4))
        try:
            lab.wait_over(last, seconds=60)
        except LabError:
            return f"not over after 60 s ({lab.job(last).reason})"
        return f"over after {time.monotonic() - start:.1f} s"


def loose(mechanism: Mechanism, count: int = 300) -> str:
    """Trivial jobs of 4 devices (64 fit at once), first submission to last end."""
    with cluster(mechanism) as c:
        start = time.monotonic()
        _loose(c.lab, count, *ipus(mechanism, 4), script="true")
        return _finish(c, count, start)


def array(mechanism: Mechanism) -> str:
    """One array of 200 trivial tasks of 4 devices."""
    with cluster(mechanism) as c:
        start = time.monotonic()
        _batch(c.lab, "true", "-n1", "--array=1-200", *ipus(mechanism, 4))
        return _finish(c, 200, start)


def random_load(mechanism: Mechanism, seed: int = 7, count: int = 150) -> str:
    """Sizes 1..128, lengths 0.5..4 s, all submitted at once: what is lost to shape."""
    rng = random.Random(seed)
    with cluster(mechanism, cpus=128) as c:
        start = time.time()
        for _ in range(count):
            size = 1 << min(7, int(rng.expovariate(0.6)))
            _batch(c.lab, f"sleep {rng.uniform(0.5, 4):.2f}", "-n1", *ipus(mechanism, size))
        jobs = c.lab.wait(
            "all over",
            lambda now: now and not any(j.state in _LIVING for j in now.values()),
            seconds=300,
        )
        took = time.time() - start
        stuck = sum(line["seconds"] for line in c.journal("begins") + c.journal("refused"))
        area = devices = 0.0
        last = start
        for line in c.journal():
            area += devices * (line["at"] - last)
            devices, last = line["held"], line["at"]
        failed = sum(job.state != "COMPLETED" for job in jobs.values())
        return (
            f"{took:.0f} s, {area / took / 256:.0%} of the pod in use; started without shape "
            f"{len(c.journal('no shape'))}, {stuck:.2f} node-s lost to that, refused "
            f"{len(c.journal('refused'))}, requeues {_restarts(jobs)}, failed {failed}"
        )


SCENARIOS: dict[str, Scenario] = {
    "srun true": start_latency,
    "all nodes busy": waiting_for_nodes,
    "heterogeneous 128+128 twice": heterogeneous,
    "shape": shape,
    "300 wait, one fits": flood,
    "300 loose jobs": loose,
    "array of 200": array,
    "random load": random_load,
}

_LIVING = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED"}


def _loose(lab: SlurmLab, count: int, *options: str, script: str = "sleep 600") -> None:
    """Submits one by one from a single shell, as a user's loop does."""
    lab.write("out/one.sh", f"#!/bin/sh\n{script}\n")
    words = " ".join(options)
    line = f"i=0; while [ $i -lt {count} ]; do sbatch -Q -n1 -o /dev/null {words} one.sh >&2"
    done = lab.run("sh", "-c", f"{line} || exit 1; i=$((i+1)); done", user=ALICE, timeout=300)
    if done.returncode:
        raise LabError(done.stderr[-1000:])


def _finish(c: Cluster, count: int, start: float) -> str:
    def all_gone() -> bool:
        return not c.lab.ok("squeue", "-h", "-r", "-t", "all", "-o", "%T").split().count("PENDING")

    try:
        poll("none pending", all_gone, seconds=120, every=0.1)
    except LabError:
        left = Counter((j.state, j.reason) for j in c.lab.jobs().values() if not j.over)
        return f"not over after 120 s: {dict(left)}"
    poll(
        "none left",
        lambda: not set(c.lab.ok("squeue", "-h", "-r", "-o", "%T").split()) & _LIVING,
        seconds=300,
        every=0.05,
    )
    took = time.monotonic() - start
    jobs = c.lab.jobs()
    bad = sum(job.state != "COMPLETED" for job in jobs.values())
    stuck = len(c.journal("no shape"))
    restarts = _restarts(jobs)
    tail = f", not completed {bad}" if bad else ""
    tail += f", started without shape {stuck}" if stuck else ""
    return f"{took:.1f} s{tail}" + (f", requeues {restarts}" if restarts else "")
