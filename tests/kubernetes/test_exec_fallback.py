"""Launchers that cannot connect to their workers, on real nodes, use pods/exec if it is
permitted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podwright.guests.kubernetes import Setting
from podwright.hosts import WORKER_VARIABLE
from tests.kubernetes.lab import DIGITS_IMAGE, KubeLab, worker_images
from tests.kubernetes.test_launcher_jobs import BUSYBOX, EXAMPLE, POPRUN, LauncherWorld
from tests.outer.lab import poll

#: Minutes on a busy machine.
pytestmark = [pytest.mark.kubernetes, pytest.mark.soak]

WAITS = 'until [ -e /tmp/go ]; do sleep 0.1; done; exec "$@"'


class BlockedWorld(LauncherWorld):
    """A world in which no connection to a worker's service succeeds between the pods of its
    jobs.
    """

    setting = Setting(simulated="pod16", exec_fallback=True)
    allowed = True

    @property
    def operator_words(self) -> list[str]:
        """Return the operator's options: whether launchers may use pods/exec."""
        return [*super().operator_words, "--exec-fallback", "true" if self.allowed else "false"]

    def launch(self, name: str, *command: str, image: str = BUSYBOX, **more: Any) -> None:
        """Start a job whose launcher runs a program in two workers, after their services were
        blocked.
        """
        self.start_in_two(name, "sh", "-c", WAITS, "-", *POPRUN, *command, image=image, **more)
        self.is_said(name, "Running", "All instances running")
        for worker in (f"{name}-worker-0", f"{name}-worker-1"):
            # What a door answers goes nowhere: to its caller it is as where packets are dropped.
            rule = ["ip", "rule", "add", "ipproto", "tcp", "sport", "20000-29999", "blackhole"]
            subprocess.run(["nsenter", "--net", f"--target={first_in(worker)}", *rule], check=True)
        self.lab.ok("exec", f"{name}-launcher", "--", "touch", "/tmp/go")

    def end_operator(self) -> None:
        """Kill the operator at once."""
        self.processes["operator"].kill()
        self.processes["operator"].wait()


def marked(variable: str, value: str) -> list[int]:
    """Return the processes of this machine with that text in their environment."""
    wanted, found = f"{variable}={value}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return sorted(found)


def running(*words: str) -> list[int]:
    """Return the processes of this machine with these words in their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            if all(word in command for word in words):
                found.append(int(folder.name))
    return sorted(found)


def first_in(worker: str) -> int:
    """Return a process in a worker's pod."""
    return marked(WORKER_VARIABLE, worker)[0]


@pytest.fixture(scope="module")
def jobs(cluster: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockedWorld]:
    for archive in worker_images(cluster.binaries, tmp_path_factory.mktemp("images")):
        cluster.load(archive)
    made = BlockedWorld(cluster, tmp_path_factory.mktemp("jobs"))
    yield made
    made.stop()


def test_digits_are_trained_through_the_api_server(jobs: BlockedWorld) -> None:
    words = ["--epochs", "5"]
    program = ["python3", "/opt/python/train_digits.py", *words]
    jobs.launch("digits", *program, image=DIGITS_IMAGE)
    said = jobs.ended("digits", "Completed", "All instances done")
    alone = subprocess.run(
        [sys.executable, EXAMPLE, *words], capture_output=True, text=True, check=True
    ).stdout
    for line in alone.splitlines()[1:]:  # epochs with their losses, and the accuracy
        assert line in said, said
    for number in range(2):
        (way,) = [line for line in said.splitlines() if f"worker digits-worker-{number}:" in line]
        assert way.startswith("POPRUN WARNING: ")
        assert way.endswith("it is called through the API server (pods/exec)")
    rights = "serviceaccounts,roles,rolebindings"
    listed = jobs.lab.ok("get", rights, "--output=name")
    assert listed.count("/podwright-") == 3
    jobs.nothing_is_left()
    jobs.until("no rights", lambda: "/podwright-" not in jobs.lab.ok("get", rights, "-o=name"))


def test_the_exit_code_is_that_of_the_program(jobs: BlockedWorld) -> None:
    script = 'echo "$RANK of $WORLD_SIZE"; [ "$RANK" = 0 ] || exit 9'
    jobs.launch("code", "sh", "-c", script)
    said = jobs.ended("code", "Failed", "code-launcher ended with exit code 9")
    assert "1 of 2" in said
    jobs.nothing_is_left()


def test_a_launcher_may_call_its_own_workers_alone(jobs: BlockedWorld) -> None:
    jobs.launch("mine", "sh", "-c", "sleep 100000")
    jobs.launch("other", "sh", "-c", "sleep 100000")
    account = jobs.lab.get("pod", "mine-launcher")["spec"]["serviceAccountName"]
    uid = jobs.lab.get("ipujob", "mine")["metadata"]["uid"]
    assert account == f"podwright-{uid}-0-1"

    def may(verb: str, what: str, *more: str) -> bool:
        user = f"--as=system:serviceaccount:default:{account}"
        said = jobs.lab.kubectl("auth", "can-i", verb, what, *more, user).stdout
        return said.strip() == "yes"

    for verb in ("get", "create"):
        for name, answer in (
            ("mine-worker-0", True),
            ("mine-worker-1", True),
            ("mine-launcher", False),
            ("other-worker-0", False),
            ("other-launcher", False),
        ):
            assert may(verb, f"pod/{name}", "--subresource=exec") == answer, name
        assert not may(verb, "pods", "--subresource=exec")
        assert not may(verb, "pod/mine-worker-0", "--subresource=exec", "--namespace=kube-system")
    for verb, what in (("get", "pods"), ("list", "pods"), ("create", "pods"), ("get", "secrets")):
        assert not may(verb, what)
    jobs.nothing_is_left()


def test_what_runs_ends_with_a_launcher_that_is_killed(jobs: BlockedWorld) -> None:
    jobs.launch("killed", "sh", "-c", "export PROGRAM_OF=killed; exec sleep 100000")
    jobs.until("both programs", lambda: len(marked("PROGRAM_OF", "killed")) == 2)
    # Nobody ends the workers: what ends in them, the launcher's end has ended.
    jobs.end_operator()
    poprun = running("podwright.cli.poprun", "PROGRAM_OF=killed")[0]
    os.kill(poprun, signal.SIGKILL)  # the first process of its pod
    jobs.lab.wait_phase("killed-launcher", "Failed")
    poll("no programs", lambda: not marked("PROGRAM_OF", "killed"), seconds=jobs.patience)
    for worker in ("killed-worker-0", "killed-worker-1"):
        assert jobs.lab.get("pod", worker)["status"]["phase"] == "Running"
    jobs.start_operator()
    jobs.nothing_is_left()


def test_without_the_right_to_it_the_launcher_says_what_it_cannot_reach(
    jobs: BlockedWorld,
) -> None:
    jobs.end_operator()
    jobs.allowed = False
    try:
        jobs.start_operator()
        jobs.launch("plain", "true")
        said = jobs.ended("plain", "Failed", "plain-launcher ended with exit code 69")
        jobs.end_operator()
    finally:
        jobs.allowed = True
    jobs.start_operator()
    assert "worker plain-worker-" in said
    assert "TCP port 20000 to 29999" in said
    assert "API server" not in said
    rights = "serviceaccounts,roles,rolebindings"
    assert "/podwright-" not in jobs.lab.ok("get", rights, "--output=name")
    jobs.nothing_is_left()
