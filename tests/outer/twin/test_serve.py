"""`podwright slurm twin serve` beside a real controller: whose question it is, and its end."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from podwright.errors import Denied, InvalidRequest, Unauthenticated
from podwright.hosts import Munge
from podwright.slurm.twin import Granted, Waits
from podwright.slurm.twin_service import TwinAnswer, TwinQuestion, TwinService
from tests.outer.gpu.truth import gpu_lab
from tests.outer.lab import ALICE, SlurmLab, poll, release, written_at
from tests.outer.twin.test_present import SECRET, submit
from tests.outer.twin.test_safety import alive, descendants
from tests.ports import free_port

pytestmark = [pytest.mark.twin, pytest.mark.outer, pytest.mark.slurm]

ROOT = Path(__file__).parents[3]
PYTHON = "/usr/bin/python3"  # the service's own user may run it, wherever the checkout is


class RunningService:
    """A service and what a test asks of it."""

    def __init__(self, lab: SlurmLab, process: subprocess.Popen[str], place: Path, far: str):
        self.lab, self.process, self.place, self.far = lab, process, place, far

    def ask(self, options: str, *, user: str = "root", tasks: bool = False) -> TwinAnswer:
        """The answer to a user of this machine."""
        question = TwinQuestion("sbatch", tuple(options.split()), tasks)
        if user == "root":
            return TwinService(str(self.place)).ask(question)
        done = as_user(
            user,
            "import sys, msgspec; from podwright.slurm.twin_service import *;"
            "print(msgspec.json.encode(TwinService(sys.argv[1]).ask(msgspec.json.decode("
            "sys.argv[2], type=TwinQuestion))).decode())",
            str(self.place),
            encoded(question),
        )
        assert done.returncode == 0, done.stderr
        return decoded(done.stdout)

    def processes(self) -> list[int]:
        return [self.process.pid, *descendants(self.process.pid)]


def encoded(question: TwinQuestion) -> str:
    import msgspec

    return msgspec.json.encode(question).decode()


def decoded(text: str) -> TwinAnswer:
    import msgspec

    return msgspec.json.decode(text, type=TwinAnswer)


def environment() -> dict[str, str]:
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}/src:{packages}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def as_user(user: str, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    uid = str(pwd.getpwnam(user).pw_uid)
    return subprocess.run(
        [
            *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
            *(PYTHON, "-c", code, *words),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
        check=False,
    )


@contextmanager
def running_service(
    lab: SlurmLab, folder: Path, *words: str, ready: bool = True
) -> Iterator[RunningService]:
    place = lab.folder / f"{folder.name}.twin" / "twin.sock"  # where other users come
    far = f"127.0.0.1:{free_port()}"
    command = [
        *(PYTHON, "-m", "podwright.cli.podwright", "slurm", "twin", "serve"),
        *("--socket", str(place), "--listen", far),
        *("--munge-socket", f"{lab.folder}/munge.socket", "--every", "0.5"),
        *("--command-prefix", shlex.join(["env", *prefix_of(lab)])),
        *(("--slurm", str(lab.release.root)) if lab.release.root else ()),
        *words,
    ]
    with (folder / "service.log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(),
            cwd="/",
        )
    try:
        assert process.stdout
        if ready:
            line = process.stdout.readline()
            assert str(place) in line, (folder / "service.log").read_text()
        yield RunningService(lab, process, place, far)
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def prefix_of(lab: SlurmLab) -> list[str]:
    settings = [f"{key}={value}" for key, value in lab.environment().items() if key != "HOME"]
    return [*settings, *lab.prefix()]


@pytest.fixture(scope="module", params=["oldest", "newest"])
def lab(request: pytest.FixtureRequest) -> Iterator[SlurmLab]:
    with gpu_lab(release(request.param)) as started:
        yield started


def settle(lab: SlurmLab, since: float) -> None:
    state = lab.folder / "state"
    poll("the state", lambda: written_at(state / "job_state") > since)


def test_answers_follow_the_cluster_and_name_the_asker(lab: SlurmLab, tmp_path: Path) -> None:
    with running_service(lab, tmp_path) as service:
        first = service.ask("--nodes=4 --gpus-per-node=4", user=ALICE)
        assert isinstance(first.answer, Granted)
        alice = pwd.getpwnam(ALICE).pw_uid
        assert f"UserId={ALICE}({alice})" in first.answer.record
        before = time.time()
        job = submit(lab, "--nodes=3 --gpus-per-node=4 --exclusive")
        settle(lab, before)
        poll(
            "the newer state",
            lambda: isinstance(service.ask("--nodes=4 --gpus-per-node=4").answer, Waits),
        )
        present = service.ask("--gpus=1")
        assert present.age is not None
        assert present.age < 30
        own = service.ask("--gpus=2 --ntasks=2", user=ALICE, tasks=True)
        assert own.tasks_problem or len(own.tasks) == 2
        assert SECRET not in repr(own)
        lab.ok("scancel", job)
        poll("free nodes", lambda: "COMPLETING" not in lab.ok("scontrol", "show", "node"))


def test_nobody_asks_as_somebody_else_and_no_file_is_read(lab: SlurmLab, tmp_path: Path) -> None:
    with running_service(lab, tmp_path) as service:
        code = (
            "import sys; from podwright.slurm.twin_service import *;"
            "TwinService(sys.argv[1]).ask(TwinQuestion('sbatch', ('--gpus=1',), as_uid=0))"
        )
        done = as_user(ALICE, code, str(service.place))
        assert Denied.__name__ in done.stderr
        near = TwinService(str(service.place))
        answer = near.ask(TwinQuestion("sbatch", ("--gpus=1",), as_uid=4242))
        assert isinstance(answer.answer, Granted)
        assert "(4242)" in answer.answer.record
        for option in ("--nodelist=/etc/shadow", "--output=/tmp/x", "--wrap=id", "n1"):
            with pytest.raises(InvalidRequest):
                near.ask(TwinQuestion("sbatch", (option,)))
        # Over TCP a credential says who asks, and without one nobody does.
        munge = Munge(f"{lab.folder}/munge.socket")
        far = TwinService(service.far, lambda: munge)
        record = far.ask(TwinQuestion("sbatch", ("--gpus=1",))).answer
        assert isinstance(record, Granted)

        class NoProof:
            def encode(self, payload: bytes) -> str:
                return munge.encode(b"another question")

            def decode(self, credential: str) -> object:
                raise AssertionError

        with pytest.raises(Unauthenticated):
            TwinService(service.far, NoProof).ask(TwinQuestion("sbatch", ("--gpus=1",)))  # type: ignore[arg-type]


def test_the_service_is_no_user_of_the_machine(lab: SlurmLab, tmp_path: Path) -> None:
    with running_service(lab, tmp_path) as service:
        uid = re.search(r"Uid:\s+(\d+)", Path(f"/proc/{service.process.pid}/status").read_text())
        assert uid
        with pytest.raises(KeyError):
            pwd.getpwuid(int(uid[1]))
        # Only the keeper, which hears nobody, stays root.
        uids = [os.stat(f"/proc/{pid}").st_uid for pid in service.processes()]
        assert uids.count(0) <= 1 + sum("env" in name_of(pid) for pid in service.processes())


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGKILL", "keeper", "worker"])
def test_nothing_is_left_however_it_ends(lab: SlurmLab, tmp_path: Path, how: str) -> None:
    with running_service(lab, tmp_path) as service:
        pids = service.processes()
        keeper = descendants(service.process.pid)[0]
        if how == "keeper":
            os.kill(keeper, signal.SIGKILL)
        elif how == "worker":
            slurmctld = [pid for pid in pids if "slurmctld" in name_of(pid)]
            os.kill(slurmctld[0], signal.SIGKILL)
            answer = service.ask("--gpus=1")
            assert isinstance(answer.answer, Granted)
            return
        else:
            service.process.send_signal(getattr(signal, how))
        poll("the end", lambda: not any(alive(pid) for pid in pids), seconds=15)
        assert service.process.wait() in (0, -signal.SIGKILL)
        if how != "keeper":
            poll("the folder", lambda: not service.place.parent.exists(), seconds=15)
