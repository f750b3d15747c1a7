"""A site without MUNGE (auth/slurm), on the newest Slurm: hooks and steps of other hosts prove
themselves by a key of ours.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.outer.lab import HostsLab, LabError, poll, release
from tests.outer.lab._places import run
from tests.outer.slurm.native import PODWRIGHT, NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


class KeyLab(NativeLab):
    """slurmctld, service and vipu-server on `ctl`; munged runs nowhere."""

    def __init__(self, hosts: HostsLab, **options: Any) -> None:
        conf = {"AuthType": "auth/slurm", "CredType": "cred/slurm", "AuthInfo": "cred_expire=20"}
        super().__init__(hosts=hosts, conf=conf, **options)
        self.hosts = hosts
        key = self.folder / "slurm.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)

    @property
    def key(self) -> Path:
        return self.folder / "podwright" / "hook.key"

    def start(self) -> None:
        self.start_server()
        self.configure("--write")
        self.start_daemon("slurmctld", clean=True)
        self.start_service()
        for name in self.nodes:
            self.start_daemon(name)
        self.wait_for_nodes()
        self.wait_for_service()

    def configure(self, *words: str) -> str:
        argv = ["slurm", "configure", "--slurm-conf", f"{self.folder}/slurm.conf"]
        argv += ["--folder", f"{self.folder}/podwright", "--native", str(self.build())]
        argv += ["--server", str(self.server_socket), *words]
        place = self.hosts.place(self.controller)
        done: subprocess.CompletedProcess[str] = run(
            place, [*PODWRIGHT, *argv], env=self.environment()
        )
        if done.returncode:
            raise LabError(done.stderr + done.stdout)
        return done.stdout

    def where(self, argv: Sequence[str]) -> list[str]:
        self._place("slurmctld")
        return self.hosts.place(self.controller).wrap(argv)

    def wait_for_service(self) -> None:
        poll("the service", lambda: "answers hooks" in self.service_log())


@pytest.fixture(scope="module")
def lab() -> Iterator[KeyLab]:
    with (
        HostsLab(["ctl", "n1"]) as hosts,
        KeyLab(hosts, cpus=16, release=release("newest")) as made,
    ):
        yield made


def test_newest_without_munge_a_job_has_its_devices(lab: KeyLab) -> None:
    secret = lab.key.read_text().strip()
    assert lab.key.stat().st_mode & 0o777 == 0o600
    assert secret not in lab.configure()
    done = lab.run("srun", "--ipus=4", "sh", "-c", "echo $IPUOF_VIPU_API_PARTITION_ID")
    assert done.stdout.startswith("slurm_"), done.stderr + lab.log()[-1000:]
    job = lab.submit("srun true", "--ipus=16", "-o", "/dev/null")
    assert lab.wait_over(job)[job].state == "COMPLETED"
    lab.wait_free()


def test_newest_with_another_key_nothing_starts(lab: KeyLab) -> None:
    right = lab.key.read_text()
    conf = lab.folder / "podwright" / "hook.conf"
    # It asks again until its time is over.
    conf.write_text(conf.read_text().replace("prolog-seconds 60", "prolog-seconds 10"))
    lab.key.write_text("0" * 64 + "\n")  # hooks read it anew, the service has it since its start
    job = lab.submit("touch began", "--ipus=4", "-o", "/dev/null")
    poll("its refusal", lambda: "another key or request" in lab.service_log())
    poll("it went back", lambda: int(lab.job(job).fields["Restarts"]) >= 1)
    assert not (lab.folder / "out" / "began").exists()
    assert lab.held() == 0
    lab.key.write_text(right)
    lab.run("scancel", str(job))
    lab.wait_over(job)
    lab.wait_free()
