"""IPUJobs on a real API server, with exactly the rights that our manifests give.

There are no nodes: pods stay Pending until a test acts as a kubelet.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podwright.client import Client, UnixTransport
from podwright.guests.kubernetes import Setting, as_yaml, manifests
from podwright.wire import PartitionInfo
from tests.kubernetes.lab import KubeLab, Refused, Unanswered
from tests.kubernetes.sixty import REFUSED_BY_CEL, ROWS, manifest
from tests.outer.lab import LabError, poll

pytestmark = pytest.mark.kubernetes

BIN = Path(sys.executable).parent
ACCOUNT = "system:serviceaccount:podwright:podwright-operator"
CEL_FROM = 25
INVALID = 422
JOBS = "/apis/graphcore.ai/v1alpha1/namespaces/default/ipujobs"
PODS = "/api/v1/namespaces/default/pods"
#: Jobs that break a rule beyond the schema, and what is said of each.
BEYOND_SCHEMA: dict[str, tuple[dict[str, Any], str]] = {
    "no-ipus": ({"ipusPerJobInstance": "0"}, "ipusPerJobInstance is"),
    "no-workers": ({"workersPerJobInstance": "0"}, "workersPerJobInstance is"),
    "some-replicas": ({"modelReplicasPerWorker": "some"}, "modelReplicasPerWorker is"),
    "owing": ({"restartPolicy": {"type": "Never", "backOffLimit": -1}}, "cannot be negative"),
    "brief": ({"interactive": {"ttl": 0}}, "a number of seconds above 0"),
    "idle": ({"launcher": {"command": []}}, "launcher.command names no program"),
}


class World:
    """An operator beside a cluster, and a controller of 16 simulated IPUs, as processes.

    server_words: further options of the server. patience: the limit in seconds for any wait.
    setting: the rights of the operator. every: seconds between two checks.
    """

    setting = Setting(simulated="pod16")
    server_words: tuple[str, ...] = ("--api-port", "0")
    patience = 180.0
    every = 0.1

    def __init__(self, lab: KubeLab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.socket = folder / "vipu.sock"
        self.environ = {**os.environ, "PODWRIGHT_SOCKET": str(self.socket)}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        minor = lab.binaries.version[1]
        objects = manifests(self.setting, minor)
        apply(lab, as_yaml([one for one in objects if one["kind"] != "Deployment"]))
        lab.wait_established("ipujobs.graphcore.ai")
        self.kubeconfig = folder / "operator.conf"
        self.kubeconfig.write_text(lab.user(ACCOUNT).read_text())
        try:
            self.start_server()
            self.start_operator()
        except BaseException:
            self.stop()
            raise

    def start_server(self) -> None:
        """Start the server. Returns when it answers."""
        self._start(
            "server",
            *("vipu-server", "--preset", "pod16", *self.server_words),
            *("--socket", str(self.socket), "--storage", str(self.folder / "store.db")),
        )
        self._await_server()

    def _await_server(self) -> None:
        poll(
            "vipu-server",
            lambda: not self._command("vipu", "--server-version").returncode,
            seconds=120,
        )

    def start_operator(self) -> None:
        """Start the operator. Returns at once."""
        self._start("operator", "podwright", *self.operator_words)

    @property
    def operator_words(self) -> list[str]:
        """Return the operator's options."""
        return [
            *("kubernetes", "operator", "--kubeconfig", str(self.kubeconfig)),
            *("--controllers", f"unix:{self.socket}", "--identity", "test"),
            *("--host-network", "false"),
        ]

    def stop(self) -> None:
        """End both."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def log(self) -> str:
        """Return the operator's log."""
        return (self.folder / "operator.log").read_text()[-4000:]

    def partitions(self) -> dict[str, PartitionInfo]:
        """Return the existing partitions, by name."""
        with Client(UnixTransport(self.environ["PODWRIGHT_SOCKET"]), timeout=60.0) as client:
            return {info.name: info for info in client.list_partitions()}

    def good(self, *words: str) -> str:
        """Run a command of an administrator, and return its output."""
        done = self._command(*words)
        assert not done.returncode, done.stderr
        return done.stdout

    def create(self, name: str, ipus: int = 4, instances: int = 1, **more: Any) -> None:
        """Create an IPUJob."""
        template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
        spec = {
            "ipusPerJobInstance": str(ipus),
            "jobInstances": instances,
            "workers": {"template": template},
        }
        item = {
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUJob",
            "metadata": {"name": name},
            "spec": spec | more,
        }
        self.lab.ok("create", "--validate=false", "-f", "-", stdin=json.dumps(item))

    def delete(self, *names: str) -> None:
        """Delete IPUJobs. Returns at once."""
        self.lab.ok("delete", "ipujob", "--wait=false", "--ignore-not-found", *names)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return all IPUJobs, by name."""
        return {one["metadata"]["name"]: one for one in self.lab.http.ask("GET", JOBS)["items"]}

    def pods(self) -> list[str]:
        """Return the names of all pods."""
        return sorted(one["metadata"]["name"] for one in self.lab.http.ask("GET", PODS)["items"])

    def until(self, what: str, true: Callable[[], Any]) -> Any:
        """Wait until something holds."""

        def checked() -> Any:
            assert self.processes["operator"].poll() is None, self.log()
            try:
                return true()
            except Unanswered:
                return None

        return poll(what, checked, seconds=self.patience, every=self.every)

    def is_said(self, name: str, state: str, words: str = "") -> None:
        """Wait for a job's status."""

        def said() -> bool:
            status = self.lab.http.ask("GET", f"{JOBS}/{name}").get("status") or {}
            return status.get("launcherStatus") == state and words in status["lastMessage"]

        self.until(f"{name} {state} {words}", said)

    def end(self, pod: str, code: int = 0) -> None:
        """Report, as a kubelet does, that a pod's program has ended."""
        main = {"name": "main", "image": "i", "imageID": "", "restartCount": 0, "ready": False}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{**main, "state": {"terminated": {"exitCode": code}}}],
        }
        self.lab.http.ask("PATCH", f"{PODS}/{pod}/status", {"status": status})

    def nothing_is_left(self) -> None:
        """Delete all jobs, and wait until everything that they had is gone."""
        self.lab.http.ask("DELETE", JOBS)
        self.until("no jobs", lambda: not self.jobs())
        self.until("no partitions", lambda: not self.partitions())
        self.until("no pods", lambda: not self.pods())

    def _start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self.wrap([str(BIN / words[0]), *words[1:]]),
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wrap(self, words: list[str]) -> list[str]:
        """Return the words that start one of both."""
        return words

    def _command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / words[0], *words[1:]],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def apply(lab: KubeLab, text: str) -> None:
    """Apply objects of several namespaces."""
    lab.ok("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)


@pytest.fixture(scope="module")
def jobs(plane: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(plane, tmp_path_factory.mktemp("jobs"))
    yield made
    made.stop()


def test_sixty_manifests_are_taken_or_refused_as_by_chart_1_2_0(jobs: World) -> None:
    refusals: dict[str, Refused] = {}
    for row in ROWS:
        try:
            jobs.lab.http.ask("POST", f"{JOBS}?dryRun=All", manifest(row))
        except Refused as error:
            refusals[row.name] = error
    cel = REFUSED_BY_CEL if jobs.lab.binaries.version >= (1, CEL_FROM) else ()
    assert len(ROWS) == 60
    assert set(refusals) == {row.name for row in ROWS if not row.good} | set(cel)
    assert {error.status for error in refusals.values()} == {INVALID}


def test_mistakes_beyond_the_schema_are_refused_or_stand_in_the_status(jobs: World) -> None:
    """Servers with CEL refuse it. Older ones accept it, and the job's status says why it does not
    start.
    """
    for name, (spec, words) in BEYOND_SCHEMA.items():
        if jobs.lab.binaries.version >= (1, CEL_FROM):
            with pytest.raises(LabError, match=words):
                jobs.create(name, **spec)
        else:
            jobs.create(name, **spec)
            jobs.is_said(name, "Invalid", words)
    jobs.nothing_is_left()


def test_each_instance_has_a_partition_and_scaling_down_gives_one_back(jobs: World) -> None:
    jobs.create("pair", ipus=4, instances=2)
    jobs.until("two workers", lambda: jobs.pods() == ["pair-worker-0", "pair-worker-1"])
    listed = json.loads(jobs.good("vipu", "list", "partitions", "--json"))
    found = {one["partition"]["id"]: one["partition"]["spec"]["ipus"] for one in listed}
    assert sorted((name.rpartition("-")[0], len(ipus)) for name, ipus in found.items()) == [
        ("p-pair-default-0", 4),
        ("p-pair-default-1", 4),
    ]
    shown = jobs.lab.ok("get", "ipujobs")
    assert shown.split()[:5] == ["NAME", "STATUS", "CURRENT", "DESIRED", "LASTMESSAGE"]
    pod = jobs.lab.get("pod", "pair-worker-1")
    env = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
    assert env["IPUOF_VIPU_API_PARTITION_ID"] in found
    jobs.lab.ok("scale", "ipujob/pair", "--replicas=1")
    jobs.until("one worker", lambda: jobs.pods() == ["pair-worker-0"])
    jobs.until("one partition", lambda: len(jobs.partitions()) == 1)
    jobs.nothing_is_left()


def test_kubectl_describe_tells_the_story_of_a_job(jobs: World) -> None:
    jobs.create("large", ipus=16)
    jobs.until("a worker", lambda: jobs.pods() == ["large-worker-0"])
    jobs.create("told", ipus=4)
    jobs.is_said("told", "Pending", "IPU")
    jobs.end("large-worker-0")
    jobs.until("its turn", lambda: "told-worker-0" in jobs.pods())
    jobs.end("told-worker-0", 3)
    jobs.is_said("told", "Failed", "exit code 3")

    def lines() -> list[tuple[str, str]]:
        shown = jobs.lab.ok("describe", "ipujob", "told").partition("Events:")[2]
        rows = [line.split() for line in shown.splitlines()]
        return [(row[0], row[1]) for row in rows if row and row[0] in ("Normal", "Warning")]

    story = {("Normal", "Queued"), ("Normal", "PartitionReady"), ("Warning", "Failed")}
    jobs.until("its story", lambda: set(lines()) == story)
    jobs.nothing_is_left()


def test_a_full_pod_is_waited_for_with_its_reason(jobs: World) -> None:
    jobs.create("large", ipus=16)
    jobs.until("a worker", lambda: jobs.pods() == ["large-worker-0"])
    jobs.create("small", ipus=4)
    jobs.is_said("small", "Pending", "IPU")
    assert jobs.pods() == ["large-worker-0"]
    jobs.end("large-worker-0")
    jobs.is_said("large", "Completed", "All instances done")
    jobs.until("its turn", lambda: jobs.pods() == ["large-worker-0", "small-worker-0"])
    jobs.nothing_is_left()


def test_the_job_of_the_higher_priority_class_comes_first(jobs: World) -> None:
    item = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    apply(jobs.lab, json.dumps(item | {"metadata": {"name": "urgent"}}))
    jobs.create("full", 16)
    jobs.until("the first job", lambda: jobs.pods() == ["full-worker-0"])
    jobs.create("usual", 16)
    jobs.is_said("usual", "Pending")
    containers = [{"name": "main", "image": "busybox"}]
    template = {"spec": {"containers": containers, "priorityClassName": "urgent"}}
    jobs.create("urgent", 16, workers={"template": template})
    jobs.is_said("urgent", "Pending")
    jobs.end("full-worker-0")
    jobs.until("the urgent job", lambda: "urgent-worker-0" in jobs.pods())
    assert "usual-worker-0" not in jobs.pods()
    jobs.nothing_is_left()


@pytest.mark.parametrize(
    ("verb", "what", "answer"),
    [
        ("get", "secrets", "no"),
        ("list", "secrets", "no"),
        ("create", "secrets", "yes"),
        ("watch", "secrets", "no"),
        ("update", "secrets", "no"),
        ("delete", "secrets", "no"),
        ("get", "configmaps", "no"),
        ("create", "pods/exec", "no"),
        ("get", "pods/log", "no"),
        ("patch", "pods", "no"),
        ("update", "nodes", "no"),
        ("create", "ipujobs", "no"),
        ("delete", "ipujobs", "no"),
        ("list", "namespaces", "no"),
        ("get", "customresourcedefinitions", "no"),
        ("list", "ipujobs", "yes"),
        ("patch", "ipujobs", "yes"),
        ("patch", "ipujobs/status", "yes"),
        ("create", "pods", "yes"),
        ("delete", "pods", "yes"),
        ("watch", "nodes", "yes"),
    ],
)
def test_the_operator_has_these_rights_and_lacks_those(
    jobs: World, verb: str, what: str, answer: str
) -> None:
    kind, _, below = what.partition("/")  # kubectl takes what follows a "/" for a name
    words = (verb, kind, *([f"--subresource={below}"] if below else []))
    done = jobs.lab.kubectl("auth", "can-i", *words, kubeconfig=jobs.kubeconfig)
    assert done.stdout.strip() == answer


def test_the_operator_may_do_what_the_page_says_and_nothing_else(jobs: World) -> None:
    """The operator's rights are those in docs/kubernetes.md, beyond what everybody may do."""
    words = ("auth", "can-i", "--list", "--no-headers", "--namespace=podwright")
    done = jobs.lab.kubectl(*words, kubeconfig=jobs.kubeconfig)
    rows = [re.findall(r"\[[^]]*\]|\S+", line) for line in done.stdout.splitlines()]
    may = {
        row[0] + (f" {row[2]}" if row[2] != "[]" else ""): " ".join(sorted(row[3][1:-1].split()))
        for row in rows
        if not row[0].startswith(("[", "selfsubject"))
    }
    assert may == {
        "ipujobs.graphcore.ai": "get list patch watch",
        "ipujobs.graphcore.ai/status": "patch",
        "ipujobs.graphcore.ai/finalizers": "update",
        "leases.coordination.k8s.io": "create",
        "leases.coordination.k8s.io [podwright-operator]": "get update",
        "namespaces [kube-system]": "get",
        "events": "create",
        "nodes": "get list watch",
        "pods": "create delete get list watch",
        "priorityclasses.scheduling.k8s.io": "list",
        "secrets": "create",
    }
