"""Whichever process is killed at whatever step, nothing is leaked, and no device has two users."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import Unavailable
from tests.kubernetes.lab import PATIENT, KubeLab, Object, Refused, StandIns, Unanswered
from tests.kubernetes.test_ipujobs import World
from tests.outer.lab import poll

pytestmark = pytest.mark.kubernetes

ROOT = Path(__file__).parents[2]
MORTAL = "tests.kubernetes.mortal"
NOBODY = ("0", "0", "after")
JOBS = "/apis/graphcore.ai/v1alpha1/namespaces/default/ipujobs"
PODS = "/api/v1/namespaces/default/pods"
NOTE = "podwright.graphcore.ai/partition"
COUNT = 200 if os.environ.get("PODWRIGHT_SOAK") == "1" else 12
#: Who is killed after which of a dozen jobs.
KILLS = {1: "operator", 3: "server", 5: "operator", 7: "apiserver", 10: "operator"}


class Mortals(World):
    """A world whose operator, server and API server are killed, and come back."""

    def __init__(self, lab: KubeLab, folder: Path, nodes: StandIns) -> None:
        self.nodes = nodes
        self.dies = NOBODY
        self.died = 0
        super().__init__(lab, folder)

    def start_operator(self) -> None:
        """Start an operator, and return at once. Only this one kills; the later ones kill
        nobody.
        """
        words = [sys.executable, "-m", MORTAL, *self.dies]
        self.dies = NOBODY
        with (self.folder / "operator.log").open("ab") as log:
            self.processes["operator"] = subprocess.Popen(
                [*words, *self.operator_words],
                cwd=ROOT,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        """Kill the "operator", the "server" or the "apiserver", at once."""
        if name == "apiserver":
            self.lab.kill("kube-apiserver")
        else:
            self.processes[name].kill()
            self.processes[name].wait()

    def die(self, victim: str, step: int, when: str) -> None:
        """Start a new operator, at whose step a process dies. All live until then."""
        self.revive()
        self.kill("operator")
        pid = 0
        if victim == "server":
            pid = self.processes["server"].pid
        elif victim == "apiserver":
            pid = self.lab.daemons.pid("kube-apiserver")
        self.dies, self.died = (str(pid), str(step), when), 0
        self.start_operator()

    def revive(self) -> None:
        """Start again what is dead."""
        for name, start in (("server", self.start_server), ("operator", self.start_operator)):
            if self.processes[name].poll() is not None:
                self.died += 1
                start()
        if not self.lab.daemons.alive("kube-apiserver"):
            self.died += 1
            self.lab.restart("kube-apiserver")

    def until(self, what: str, true: Callable[[], Any]) -> Any:
        """Wait until something holds, and restart what dies meanwhile."""

        def checked() -> Any:
            self.revive()
            try:
                return true()
            except (Unanswered, Unavailable):
                return None

        return poll(what, checked, seconds=300, every=0.1)

    def ask(self, method: str, path: str, body: Object | None = None) -> Object:
        """Ask the API server until it answers. {} if there is no such object."""

        def asked() -> list[Object]:
            try:
                return [self.lab.http.ask(method, path, body)]
            except Refused as error:
                if error.status not in (404, 409):
                    raise
                return [{}]

        found: list[Object] = self.until(f"{method} {path}", asked)
        return found[0]

    def put(self, name: str, ipus: int, instances: int) -> None:
        """Create an IPUJob that restarts when it fails."""
        main = {"name": "main", "image": "busybox"}
        spec = {
            "ipusPerJobInstance": str(ipus),
            "jobInstances": instances,
            "restartPolicy": {"type": "OnFailure"},
            "workers": {"template": {"spec": {"containers": [main]}}},
        }
        item = {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob"}
        self.ask("POST", JOBS, {**item, "metadata": {"name": name}, "spec": spec})

    def state(self, name: str) -> str:
        """Return a job's state."""
        found = self.ask("GET", f"{JOBS}/{name}")
        return str((found.get("status") or {}).get("launcherStatus"))

    def running(self) -> dict[str, tuple[str, str]]:
        """Return the pods whose program may run: name and partition of each, by uid."""
        return {
            pod["metadata"]["uid"]: (
                pod["metadata"]["name"],
                pod["metadata"]["annotations"][NOTE],
            )
            for pod in self.ask("GET", PODS)["items"]
            if pod["status"].get("phase") == "Running"
        }

    def nothing_twice(self) -> None:
        """Check that each pod that runs all the while has a partition that exists meanwhile."""
        before = self.running()
        (there,) = self.until("the partitions", lambda: [self.partitions()])
        after = self.running()
        for uid in before.keys() & after.keys():
            assert before[uid][1] in there, (before, sorted(there))

    def end(self, pod: str, code: int = 0) -> None:
        """Report that a program has ended, until the API server accepts the report."""
        path = f"{PODS}/{pod}"
        before = self.ask("GET", path)

        def said() -> bool:
            with contextlib.suppress(Refused):  # it goes
                now = self.lab.http.ask("GET", path)
                if before and now["metadata"]["uid"] == before["metadata"]["uid"]:
                    self.nodes.end(pod, code)
            return True

        self.until(f"the end of {pod}", said)

    def gone(self, *names: str) -> None:
        """Delete jobs, and wait until everything that they had is gone."""
        for name in names:
            self.ask("DELETE", f"{JOBS}/{name}")
        self.until("no jobs", lambda: not self.lab.http.ask("GET", JOBS)["items"])
        self.until("no pods", lambda: not self.lab.http.ask("GET", PODS)["items"])
        self.until("no partitions", lambda: not self.partitions())


@pytest.fixture(scope="module")
def jobs(_clean_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortals]:
    with KubeLab(options=PATIENT) as lab, StandIns(lab.http, 2) as nodes:
        made = Mortals(lab, tmp_path_factory.mktemp("kills"), nodes)
        try:
            yield made
        finally:
            made.stop()


def test_jobs_come_and_go_while_everybody_dies(jobs: Mortals) -> None:
    chance = random.Random(17)
    names: set[str] = set()
    for number in range(COUNT):
        name = f"j{number}"
        jobs.put(name, chance.choice((1, 2, 4, 8)), chance.choice((1, 1, 2)))
        names.add(name)
        if victim := KILLS.get(number % 12):
            jobs.kill(victim)
        if number % 12 == 9:
            jobs.until("a job runs", jobs.running)
        for pod, _ in sorted(jobs.running().values())[:1]:
            jobs.end(pod, chance.choice((0, 0, 1)))
        if chance.random() < 0.5:
            gone = chance.choice(sorted(names))
            names.discard(gone)
            jobs.ask("DELETE", f"{JOBS}/{gone}")
        jobs.nothing_twice()
    jobs.gone(*sorted(names))
    assert jobs.died


@pytest.mark.soak
@pytest.mark.parametrize("victim", ["operator", "server", "apiserver"])
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_nothing_is_leaked_whichever_step_a_process_dies_at(
    jobs: Mortals, victim: str, when: str
) -> None:
    """A job's life is run once for each of its steps, at which a process is killed."""
    for step in range(1, 100):
        jobs.die(victim, step, when)
        jobs.put("whole", 4, 2)
        jobs.until("it runs", lambda: jobs.state("whole") == "Running")
        jobs.nothing_twice()
        jobs.end("whole-worker-0", 1)
        jobs.until("again", lambda: jobs.ask("GET", f"{JOBS}/whole")["status"]["restartCount"])
        jobs.until("it runs", lambda: jobs.state("whole") == "Running")
        for worker in ("whole-worker-0", "whole-worker-1"):
            jobs.end(worker)
        jobs.until("its end", lambda: jobs.state("whole") == "Completed")
        jobs.gone("whole")
        if not jobs.died:
            break
    assert step > 10
