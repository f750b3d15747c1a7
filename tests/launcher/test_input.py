"""Instance 0 reads poprun's standard input to its end, with mpirun and without."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from podwright.launcher.instances._instance_input import has_no_input, take_input
from podwright.launcher.instances._run_folder import make_folder
from podwright.launcher.watchers._guardian import INPUT_COMMAND_KIND, _Guardian
from podwright.launcher.watchers._guardian_channel import Channel
from tests.launcher.conftest import Launcher

LINE = ("--num-replicas=2", "--num-instances=2")


def run_with(launcher: Launcher, given: int, *words: str) -> str:
    """Run poprun with this standard input. Returns what it wrote, sorted by lines."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.launcher.alone", *LINE, *words],
        env=launcher.environ,
        cwd=launcher.cwd,
        stdin=given,
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
        check=True,
    )
    return "\n".join(sorted(process.stdout.splitlines()))


BOTH_ENDED = "[1,0]<stdout>: end 0\n[1,1]<stdout>: end 1"


@pytest.mark.parametrize("by", ["mpirun", "local"])
def test_instance_0_reads_a_file_from_where_it_is_to_its_end(launcher: Launcher, by: str) -> None:
    """A shell has read the first line of it."""
    if by == "mpirun" and not shutil.which("mpirun", path=os.path.dirname(sys.executable)):
        pytest.skip("there is no mpirun")
    text = launcher.folder / "text"
    text.write_text("first\n" + "x" * 200_000 + "\n")
    given = os.open(text, os.O_RDONLY)
    os.read(given, len("first\n"))
    script = "wc -c; echo end $RANK"
    out = run_with(launcher, given, f"--launcher={by}", "sh", "-c", script)
    os.close(given)
    counts = "[1,0]<stdout>: 200001\n[1,0]<stdout>: end 0\n[1,1]<stdout>: 0\n[1,1]<stdout>: end 1"
    assert out == counts
    launcher.leaves_nothing()


@pytest.mark.parametrize("by", ["mpirun", "local"])
def test_an_empty_input_has_ended(launcher: Launcher, by: str) -> None:
    out = run_with(
        launcher, subprocess.DEVNULL, f"--launcher={by}", "sh", "-c", "cat; echo end $RANK"
    )
    assert out == BOTH_ENDED


@pytest.mark.parametrize("by", ["mpirun", "local"])
def test_an_input_that_never_ends_holds_nothing_up(launcher: Launcher, by: str) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"some\n")
    script = "read x || :; echo end $RANK; [ $RANK = 1 ] || echo $x; exit 0"
    out = run_with(launcher, reading, f"--launcher={by}", "sh", "-c", script)
    assert out == "[1,0]<stdout>: end 0\n[1,0]<stdout>: some\n[1,1]<stdout>: end 1"
    launcher.leaves_nothing()
    for descriptor in (reading, writing):
        os.close(descriptor)


def test_a_terminal_is_left_to_its_shell(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    before = os.dup(0)
    folder = make_folder({"TMPDIR": str(tmp_path)})
    try:
        os.dup2(theirs, 0)
        assert has_no_input()
        assert take_input(folder) == []
        assert os.readlink(folder.local_path(folder.stream("in.0"))) == os.devnull
    finally:
        os.dup2(before, 0)
        folder.remove()
        for descriptor in (ours, theirs, before):
            os.close(descriptor)


def test_an_instance_that_waits_for_its_input_at_the_end_goes_on(tmp_path: Path) -> None:
    """The copying process is killed before the instance has opened the pipe."""
    folder = make_folder({"TMPDIR": str(tmp_path)})
    before, (reading_end, writing_end) = os.dup(0), os.pipe()
    os.dup2(reading_end, 0)
    command = take_input(folder)
    os.dup2(before, 0)
    for descriptor in (before, reading_end, writing_end):
        os.close(descriptor)
    copying = subprocess.Popen(command, stdin=subprocess.PIPE)
    line, other = Channel.pair()
    guardian = _Guardian(line, folder, -1, lambda *_: copying.pid, -1)
    try:
        guardian._start_commands([(INPUT_COMMAND_KIND, command, {})], {})
        guardian._end(0.0, 0.0, False)
        assert copying.wait(60) == -signal.SIGKILL
        reading = os.open(folder.local_path(command[-1]), os.O_RDONLY | os.O_NONBLOCK)
        with pytest.raises(BlockingIOError):  # it has a writer, so opening it blocks nobody
            os.read(reading, 1)
        os.close(reading)
    finally:
        folder.remove()
        for channel in (line, other):
            channel.close()
        assert copying.stdin
        copying.stdin.close()
