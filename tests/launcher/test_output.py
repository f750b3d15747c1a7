"""The output of instances: files, times and colours. Also the limit of a run's time."""

from __future__ import annotations

import json
import os
import pty
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.launcher.conftest import REPOSITORY, Launcher

TWO = ("--num-replicas=2", "--num-instances=2")


def test_each_instance_has_files_of_its_output(launcher: Launcher, tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "today"
    words = (*TWO, f"--log-dir={logs}", "--only-output-from-instance=0", "sh", "-c")
    for _ in range(2):
        ran = launcher.run(*words, "echo out $RANK; echo err $RANK >&2")
        assert ran.code == 0, ran
    names = [f"instance-{index}.{kind}" for index in range(2) for kind in ("err", "out")]
    assert sorted(path.name for path in logs.iterdir()) == names
    for name in names:
        path = logs / name
        assert path.read_text() == f"{name[-3:]} {name[9]}\n" * 2
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "[1,1]" not in ran.out + ran.err


def test_files_of_output_have_every_byte(launcher: Launcher, tmp_path: Path) -> None:
    """Carriage returns, invalid text, lines of any length, and a line that never ends."""
    program = (
        "import os, sys\n"
        "said = b''.join(b'%d%%\\r' % n for n in range(101)) + bytes(range(256)) + b'\\n'\n"
        "said += b'x' * 3_000_000 + b'\\r\\nlast'\n"
        "for handle in (1, 2):\n"
        "    left = said\n"
        "    while left: left = left[os.write(handle, left):]\n"
    )
    ran = launcher.run("--num-replicas=1", f"--log-dir={tmp_path}", sys.executable, "-c", program)
    assert ran.code == 0, ran.err
    said = b"".join(b"%d%%\r" % n for n in range(101)) + bytes(range(256)) + b"\n"
    said += b"x" * 3_000_000 + b"\r\nlast"
    assert (tmp_path / "instance-0.out").read_bytes() == said
    assert (tmp_path / "instance-0.err").read_bytes() == said


def test_a_full_disk_ends_the_log_and_not_the_run(launcher: Launcher, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "instance-0.out").mkdir()
    ran = launcher.run("--num-replicas=2", f"--log-dir={logs}", "sh", "-c", "echo a; echo b")
    assert ran.code == 0
    assert ran.out == "[1,0]<stdout>: a\n[1,0]<stdout>: b\n"
    assert ran.err.count("nothing more is written there") == 1


def test_lines_have_the_time_where_it_is_wanted(launcher: Launcher) -> None:
    ran = launcher.run("--num-replicas=2", "--timestamps=yes", "echo", "hello")
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} \[1,0\]<stdout>: hello\n", ran.out), ran


@pytest.mark.parametrize(("name", "value"), [("TERM", "xterm"), ("NO_COLOR", "1")])
def test_tags_have_colours_on_a_terminal(launcher: Launcher, name: str, value: str) -> None:
    ours, theirs = pty.openpty()
    environ = {**launcher.environ, "TERM": "xterm", name: value}
    done = subprocess.Popen(
        [sys.executable, "-m", "tests.launcher.alone", "--num-replicas=2", "echo", "hello"],
        env=environ, cwd=REPOSITORY, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    text = b""
    try:
        while piece := os.read(ours, 4096):
            text += piece
    except OSError:
        pass  # that is how a terminal ends
    assert done.wait(300) == 0
    os.close(ours)
    tag = b"[1,0]<stdout>: "
    wanted = tag if name == "NO_COLOR" else b"\x1b[36m" + tag + b"\x1b[0m"
    assert wanted + b"hello\r\n" in text


def test_a_launch_that_takes_too_long_is_ended(launcher: Launcher) -> None:
    ran = launcher.run(*TWO, "--timeout=1.5", "sleep", "60")
    assert ran.code == 124
    assert "POPRUN ERROR: --timeout: the limit of 1.5 s is over" in ran.err
    assert launcher.calls() == ["Acquire", "Release"]
    launcher.leaves_nothing()


def test_instances_that_do_not_listen_are_killed_after_the_grace(launcher: Launcher) -> None:
    """Instances that ignore the request are killed when the grace is over, and not before."""
    program = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    before = time.monotonic()
    ran = launcher.run("--num-replicas=2", "--timeout=1", "--grace=1", "sh", "-c", program)
    assert ran.code == 124
    assert time.monotonic() - before >= 2
    launcher.leaves_nothing()


def test_instances_get_the_signal_and_time_to_write_a_checkpoint(launcher: Launcher) -> None:
    program = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('checkpoint', flush=True))\n"
        "def end(*_):\n"
        "    time.sleep(0.5); print('last one', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    process = launcher.start(*TWO, sys.executable, "-c", program)
    assert process.stdout
    for _ in range(2):
        assert process.stdout.readline().endswith("up\n")
    process.send_signal(10)
    for _ in range(2):
        assert process.stdout.readline().endswith("checkpoint\n")
    process.send_signal(15)
    out, _ = process.communicate(timeout=300)
    assert out.count("last one") == 2
    assert process.returncode == 143


def test_all_instances_start_again_when_one_fails(launcher: Launcher, tmp_path: Path) -> None:
    program = (
        "echo start $RANK $PODWRIGHT_RESTART $IPUOF_VIPU_API_PARTITION_ID\n"
        "[ $RANK$PODWRIGHT_RESTART = 10 ] && exit 3\n"
        "[ $RANK$PODWRIGHT_RESTART = 11 ] && kill -9 $$\n"
        "[ $PODWRIGHT_RESTART = 2 ] || sleep 60\n"
    )
    ran = launcher.run(*TWO, "--max-restarts=3", "sh", "-c", program)
    assert ran.code == 0, ran
    for attempt in range(3):
        assert f"[1,1]<stdout>: start 1 {attempt} run-1\n" in ran.out
    assert "instance 1 ended with exit code 3; starting all instances again (1 of 3)" in ran.err
    assert "was ended by signal 9 (SIGKILL); starting all instances again (2 of 3)" in ran.err
    assert launcher.calls() == ["Acquire", "Release"]
    launcher.leaves_nothing()


def test_a_launch_is_not_restarted_more_often_than_allowed(launcher: Launcher) -> None:
    ran = launcher.run(*TWO, "--max-restarts=1", "sh", "-c", "echo x; exit 4")
    assert ran.code == 4
    assert ran.err.count("starting all instances again") == 1
    assert "POPRUN ERROR: instance" in ran.err
    ran = launcher.run(*TWO, "--max-restarts=5", "sh", "-c", "exec /no/such/program")
    assert ran.code == 127
    assert "again" not in ran.err
    launcher.leaves_nothing()


def test_each_failure_leaves_a_record(launcher: Launcher, tmp_path: Path) -> None:
    program = (
        "import os, popdist, sys\n"
        "@popdist.record\n"
        "def main():\n"
        "    print('working', flush=True)\n"
        "    print(os.getpid(), flush=True)\n"
        "    raise ValueError('no such layer')\n"
        "if os.environ['RANK'] == '1': main()\n"
        "import time; time.sleep(100)\n"
    )
    options = ("--grace=1", "--launcher=local", f"--log-dir={tmp_path}")
    ran = launcher.run(*options, *TWO, sys.executable, "-c", program)
    assert ran.code == 1, ran.err
    records = [json.loads(line) for line in (tmp_path / "failures.jsonl").read_text().splitlines()]
    first = next(record for record in records if record["first"])
    assert first["rank"] == 1
    assert first["host"] == os.uname().nodename
    assert (first["code"], first["signal"]) == (1, None)
    assert first["message"] == "ValueError: no such layer"
    assert "in main" in first["traceback"]
    assert "[1,1]<stdout>: working" in first["last_lines"]
    assert (tmp_path / "instance-1.out").read_text().split()[1].isdigit()
    assert abs(first["time"] - time.time()) < 3600
    for other in records:
        if not other["first"]:
            assert (other["rank"], other["code"], other["signal"]) == (0, 143, "SIGTERM")


def test_uncaught_exceptions_and_killed_instances_are_recorded(
    launcher: Launcher, tmp_path: Path
) -> None:
    program = "import popdist; popdist.init(); 1 / 0"
    ran = launcher.run("--num-replicas=1", f"--log-dir={tmp_path}", sys.executable, "-c", program)
    assert ran.code == 1, ran.err
    ran = launcher.run("--num-replicas=1", f"--log-dir={tmp_path}", "sh", "-c", "kill -9 $$")
    assert ran.code == 137, ran.err
    caught, killed = [
        json.loads(line) for line in (tmp_path / "failures.jsonl").read_text().splitlines()
    ]
    assert caught["message"] == "ZeroDivisionError: division by zero"
    assert caught["traceback"].startswith("Traceback (most recent call last):")
    assert (killed["code"], killed["signal"], killed["message"]) == (137, "SIGKILL", None)
