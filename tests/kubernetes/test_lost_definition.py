"""The definition of IPUJob is deleted and applied again, or the API server freezes for a while: the
operator hears new jobs all the same, and is not ready meanwhile.

The operator looks at all jobs once an hour here, so that only its watches can tell it of a job.
"""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from podwright.guests.kubernetes import as_yaml, manifests
from tests.kubernetes.lab import KubeLab, StandIns
from tests.kubernetes.test_ipujobs import World, apply
from tests.outer.lab import poll
from tests.ports import free_port

pytestmark = pytest.mark.kubernetes
DEFINITION = "ipujobs.graphcore.ai"


class ProbedWorld(World):
    """Its operator sweeps once an hour, and answers probes."""

    port = 0

    @property
    def operator_words(self) -> list[str]:
        self.port = self.port or free_port()
        listen = f"127.0.0.1:{self.port}"
        return [*super().operator_words, "--sweep-seconds", "3600", "--listen", listen]

    def probe(self, path: str) -> tuple[int, str]:
        """Return the status and the text of a path; 0 while nothing listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


@pytest.fixture(scope="module")
def jobs(plane: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbedWorld]:
    made = ProbedWorld(plane, tmp_path_factory.mktemp("definition"))
    yield made
    made.stop()


def test_the_operator_hears_jobs_again_once_their_definition_is_back(jobs: ProbedWorld) -> None:
    with StandIns(jobs.lab.http, 2):
        jobs.create("before")
        jobs.is_said("before", "Running", "All instances running")
        jobs.until("ready", lambda: jobs.probe("/readyz") == (200, "ok\n"))
        jobs.nothing_is_left()
        jobs.lab.ok("delete", "customresourcedefinition", DEFINITION, "--wait=true")
        jobs.until("deaf", lambda: jobs.probe("/readyz")[0] == 503)
        assert "watch of IPUJob" in jobs.probe("/readyz")[1]
        assert jobs.probe("/livez")[0] == 200
        objects = manifests(jobs.setting, jobs.lab.binaries.version[1])
        kind = "CustomResourceDefinition"
        apply(jobs.lab, as_yaml([item for item in objects if item["kind"] == kind]))
        jobs.lab.wait_established(DEFINITION)
        jobs.create("after")
        jobs.is_said("after", "Running", "All instances running")
        jobs.until("ready again", lambda: jobs.probe("/readyz") == (200, "ok\n"))
        shown = jobs.probe("/metrics")[1]
        assert 'podwright_operator_jobs{state="Running"} 1.0' in shown
        assert "podwright_operator_acts 1.0" in shown
        conditions = jobs.jobs()["after"]["status"]["conditions"]
        true = {row["type"] for row in conditions if row["status"] == "True"}
        assert true == {"PartitionReady", "Running"}
        assert jobs.jobs()["after"]["status"]["observedGeneration"] == 1
        jobs.nothing_is_left()


def test_the_operator_is_not_ready_while_the_api_server_is_frozen(jobs: ProbedWorld) -> None:
    """It ends when it cannot renew its lease. The kubelet, here the test, starts it again."""
    with StandIns(jobs.lab.http, 2):
        jobs.create("before")
        jobs.is_said("before", "Running", "All instances running")
        jobs.until("ready", lambda: jobs.probe("/readyz") == (200, "ok\n"))
        frozen = jobs.lab.daemons.pid("kube-apiserver")
        os.kill(frozen, signal.SIGSTOP)
        try:
            poll("not ready", lambda: jobs.probe("/readyz")[0] == 503, seconds=jobs.patience)
            jobs.processes["operator"].wait(jobs.patience)
            jobs.start_operator()
            poll("probes again", lambda: jobs.probe("/readyz")[0], seconds=jobs.patience)
            poll("not ready", lambda: jobs.probe("/readyz")[0] == 503, seconds=jobs.patience)
        finally:
            os.kill(frozen, signal.SIGCONT)
        jobs.create("after")
        jobs.is_said("after", "Running", "All instances running")
        jobs.until("ready again", lambda: jobs.probe("/readyz") == (200, "ok\n"))
        jobs.is_said("before", "Running", "All instances running")
        assert {job["status"]["restartCount"] for job in jobs.jobs().values()} == {0}
        jobs.nothing_is_left()
