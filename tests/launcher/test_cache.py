"""The folder for executables: its place, conflicting settings, and its removal at the end."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from podwright.errors import InvalidRequest
from podwright.launcher import make_plan, parse
from tests.launcher.conftest import Launcher

TWO = ("--num-replicas=2", "--num-instances=2")
ONE = ("--num-replicas=2",)
PATH = "POPDIST_EXECUTABLE_CACHE_PATH"


@pytest.mark.parametrize(
    ("line", "environ", "wanted"),
    [
        ("--num-instances=1", {}, ""),
        ("--num-instances=2", {}, "temporary"),
        ("--num-instances=2 --executable-cache-path=''", {}, ""),
        ("--num-instances=1 --executable-cache-path=/c", {}, "/c"),
        ("--num-instances=2 --executable-cache-path=c", {}, f"{os.getcwd()}/c"),
        ("--num-instances=2", {"POPTORCH_CACHE_DIR": "/x"}, ""),
        ("--num-instances=2", {"POPTORCH_CACHE_DIR": ""}, "temporary"),
        ("--num-instances=2", {"TF_POPLAR_FLAGS": "--log_cycle_count=0"}, "temporary"),
        ("--num-instances=2 --mpi-local-args='-x POPTORCH_CACHE_DIR=/x'", {}, ""),
        ("--num-instances=2 --mpi-local-args='-x POPTORCH_CACHE_DIR'", {}, "temporary"),
    ],
)
def test_option_and_variables_decide_where_the_cache_is(
    line: str, environ: dict[str, str], wanted: str
) -> None:
    plan = make_plan(parse([*shlex.split(line), "--num-replicas=4", "t"]), environ)
    assert plan.cache == wanted
    assert dict(plan.environment).get(PATH, "") == (wanted if wanted.startswith("/") else "")


@pytest.mark.parametrize(
    ("line", "environ", "named"),
    [
        ("", {"POPTORCH_CACHE_DIR": "/x"}, "POPTORCH_CACHE_DIR"),
        ("", {"TF_POPLAR_FLAGS": "--executable_cache_path=/x"}, "--executable_cache_path in TF_"),
        ("--mpi-local-args='-x POPXL_CACHE_DIR=/x'", {}, "POPXL_CACHE_DIR"),
        ("--instance-mpi-local-args='1:-x POPTORCH_CACHE_DIR=/x'", {}, "POPTORCH_CACHE_DIR"),
    ],
)
def test_two_caches_are_refused(line: str, environ: dict[str, str], named: str) -> None:
    words = [*TWO, "--executable-cache-path=/c", *shlex.split(line), "t"]
    with pytest.raises(InvalidRequest, match="cannot be given at the same time") as caught:
        make_plan(parse(words), environ)
    assert named in caught.value.message
    make_plan(parse([*words[:-1], "--executable-cache-path=", "t"]), environ)


def test_a_temporary_cache_is_shared_private_and_removed(launcher: Launcher) -> None:
    program = f"import os; p = os.environ['{PATH}']; print(p, oct(os.stat(p).st_mode & 0o777))"
    ran = launcher.run(*TWO, sys.executable, "-c", program)
    lines = {line.partition(": ")[2] for line in ran.out.splitlines()}
    assert len(lines) == 1, ran
    path, mode = lines.pop().split()
    assert "podwright-run-" in path
    assert not os.path.exists(path)
    assert mode == "0o700"
    launcher.leaves_nothing()


@pytest.mark.parametrize("who", ["poprun", "instance"])
def test_a_temporary_cache_is_removed_after_kill_9(launcher: Launcher, who: str) -> None:
    program = (
        f"import os, signal, time; open(os.environ['{PATH}'] + '/' + os.environ['RANK'], "
        "'w')\n"
        "print('up', flush=True); time.sleep(60 if os.environ['RANK'] == '0' else 0.1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    if who == "instance":
        assert launcher.run(*TWO, sys.executable, "-c", program).code == 137
    else:
        process = launcher.start(*TWO, sys.executable, "-c", program.replace("0.1", "60"))
        assert process.stdout
        for _ in range(2):
            assert process.stdout.readline().endswith("up\n")
        os.kill(process.pid, signal.SIGKILL)
    launcher.leaves_nothing()


def test_a_named_cache_stays(launcher: Launcher, tmp_path: Path) -> None:
    path = tmp_path / "a" / "cache"
    ran = launcher.run(
        *ONE, f"--executable-cache-path={path}", "sh", "-c", f'echo x >"${PATH}/executable"'
    )
    assert ran.code == 0, ran
    assert (path / "executable").read_text() == "x\n"
    launcher.leaves_nothing()
    (tmp_path / "file").touch()
    ran = launcher.run(*ONE, f"--executable-cache-path={tmp_path}/file/c", "true")
    assert ran.code == 2
    assert "--executable-cache-path" in ran.err
    assert launcher.calls() == ["Acquire", "Release"]
