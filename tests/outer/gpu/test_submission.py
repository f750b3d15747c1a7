"""Lint at submission on real Slurm: users are told, jobs refused; and whatever befalls the service,
jobs pass, with a line in slurmctld's log.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from podwright.gpu.submission import build
from tests.outer.lab import ALICE, SlurmLab, poll, release
from tests.outer.lua import VERSIONS

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

WRONG = "#!/bin/bash\n#SBATCH --output=/dev/null\nhostname\n#SBATCH --nodes=2\ndate\n"
RIGHT = "#!/bin/bash\n#SBATCH --output=/dev/null\nhostname\n"
TOLD = "podwright lint: line 4: "
MS = "20"


def command(lab: SlurmLab, *words: str) -> None:
    argv = [sys.executable, "-m", "podwright.cli.podwright", "slurm", *words]
    done = subprocess.run(argv, env=lab.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def service(lab: SlurmLab) -> Iterator[subprocess.Popen[bytes]]:
    """The real one, in a process group of its own."""
    path = lab.folder / "lint.sock"
    argv = [sys.executable, "-m", "podwright.cli.podwright", "slurm", "serve-lint"]
    argv += [f"--socket={path}", f"--slurm-user={lab.user}"]
    env = {**lab.environment(), "XDG_CACHE_HOME": str(lab.folder / "cache")}
    with subprocess.Popen(argv, env=env, start_new_session=True) as one:
        try:
            poll("the service", path.exists)
            yield one
        finally:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGCONT)
                one.terminate()


def submit(lab: SlurmLab, script: str, *options: str) -> tuple[int, str]:
    """(exit code of sbatch, what it told the user)."""
    done = lab.run("sbatch", *options, stdin=script, user=ALICE)
    return done.returncode, done.stderr


def told(lab: SlurmLab, *options: str) -> tuple[int, str]:
    """The answer to a wrong script, once it comes in time: busy machines take longer than 20 ms."""
    found: list[tuple[int, str]] = []

    def answered() -> bool:
        found.append(submit(lab, WRONG, *options))
        return "podwright lint" in found[-1][1]

    poll("an answer in time", answered, seconds=120)
    return found[-1]


def configured(lab: SlurmLab, level: str) -> None:
    conf = f"--slurm-conf={lab.folder}/slurm.conf"
    more = [f"--native={lab.folder}", f"--lint-socket={lab.folder}/lint.sock"]
    command(lab, "configure", "--gpus", f"--lint={level}", conf, *more, "--write")


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_users_are_told_and_a_service_that_fails_stops_no_job(name: str) -> None:
    lab = SlurmLab(nodes=1, cpus=4, release=release(name))
    before = (lab.folder / "slurm.conf").read_bytes()
    build(lab.folder)
    configured(lab, "warn")
    with lab:
        assert submit(lab, WRONG)[0] == 0  # the service is away
        assert "podwright lint: No such file or directory; the job passes" in lab.log()
        with service(lab) as one:
            code, said = told(lab)
            assert code == 0
            assert TOLD in said
            assert "# podwright: ignore late-directive" in said
            assert submit(lab, WRONG + "# podwright: ignore late-directive\n") == (0, "")
            assert submit(lab, RIGHT) == (0, "")
            assert "podwright" not in lab.run("srun", "true", user=ALICE).stderr  # has no script
            # Stopped: the door is there, and nobody answers.
            os.killpg(one.pid, signal.SIGSTOP)
            assert submit(lab, WRONG) == (0, "")
            assert "podwright lint: no answer in time; the job passes" in lab.log()
            os.killpg(one.pid, signal.SIGCONT)
            # Refusing, from now on.
            configured(lab, "refuse")
            lab.ok("scontrol", "reconfigure")
            code, said = told(lab)
            assert code != 0
            assert TOLD in said
            assert submit(lab, RIGHT)[0] == 0
            os.killpg(one.pid, signal.SIGKILL)
        code, said = submit(lab, WRONG)
        assert code == 0
        assert "Connection refused" in lab.log(), lab.log()[-2000:]
        jobs = lab.ok("squeue", "-h", "-o", "%T").split()
        assert "FAILED" not in jobs
        conf = f"--slurm-conf={lab.folder}/slurm.conf"
        command(lab, "configure", "--gpus", "--lint=off", conf, "--write")
        assert (lab.folder / "slurm.conf").read_bytes() == before
        assert not (lab.folder / "job_submit.lua").exists()


DRIVER = """
local ask = assert(package.loadlib(arg[1], "podwright_ask"))
for line in io.lines() do
   local answer, reason = ask(line, "question", arg[2])
   print(answer or "nil", reason or "")
end
local deep = string.rep("/", 200)
print(ask(deep, "q", "20"))
print(ask(nil, "q", "20"))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_every_lua_asks_and_waits_no_longer_than_it_should(version: str, tmp_path: Path) -> None:
    library = build(tmp_path)
    (tmp_path / "driver.lua").write_text(DRIVER)
    doors = [silent := listening(tmp_path / "silent"), listening(tmp_path / "busy")]
    full = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for one in full:
        one.setblocking(False)
        one.connect_ex(str(tmp_path / "busy"))
    try:
        done = subprocess.run(
            [version, str(tmp_path / "driver.lua"), str(library), MS],
            input="".join(f"{tmp_path}/{name}\n" for name in ("none", "silent", "busy")),
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
    finally:
        for door in [*doors, *full]:
            door.close()
    assert silent
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert lines == [
        ["nil", "No such file or directory"],
        ["nil", "no answer in time"],
        ["nil", "it is busy"],
        ["nil", "File name too long"],
        ["nil", "it was asked wrongly"],
    ]


def listening(path: Path) -> Any:
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(path))
    door.listen(0)
    return door
