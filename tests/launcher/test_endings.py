"""Every ending leaves nothing behind: no process, no temporary file, no shared memory."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from podwright.hosts import descendants, kill_all
from podwright.launcher.instances._run_folder import RUN_VARIABLE
from podwright.launcher.watchers._guardian import Ending
from tests.launcher.conftest import Launcher, Tree, wait_until

THREE = ("--num-replicas=3", "--num-instances=3")

#: An MPI program: shared memory is in use. It starts a daemon of its own that left its session.
PROGRAM = """
import os, signal, subprocess, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
world.allreduce(1)
if world.rank == 0:
    subprocess.Popen(["/bin/sh", "-c", "sleep 300 & sleep 301 &"], start_new_session=True).wait()
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
world.barrier()
print("up", flush=True)
time.sleep(120)
"""


def started(
    launcher: Launcher, *words: str, options: Sequence[str] = (), **environ: str
) -> subprocess.Popen[str]:
    """A run whose three instances all have reported that they are up."""
    process = launcher.start(
        "-v", *options, *THREE, sys.executable, "-c", PROGRAM, *words, **environ
    )
    assert process.stdout
    for _ in range(3):
        assert process.stdout.readline().endswith("up\n"), process.communicate()
    assert launcher.left()
    return process


@pytest.mark.parametrize("who", Tree._fields)
def test_kill_9_of_one_of_four_instances_ends_the_launch(launcher: Launcher, who: str) -> None:
    process = started(launcher)
    os.kill(getattr(launcher.tree(process), who), signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    launcher.leaves_nothing()
    assert launcher.calls() == ["Acquire", "Release"]
    if who == "poprun":
        assert process.returncode == -signal.SIGKILL
        return
    assert process.returncode == 75
    word = "mpirun was ended by signal 9" if who == "mpirun" else f"{who} process was ended"
    assert f"{word}" in err


@pytest.mark.parametrize("who", ["keeper", "guardian"])
def test_a_poprun_that_looks_late_says_which_watcher_was_killed(
    launcher: Launcher, who: str
) -> None:
    """It does not report how the other watcher has ended the instances meanwhile."""
    process = started(launcher, options=["--pid-namespace=no"])
    tree = launcher.tree(process)
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(getattr(tree, who), signal.SIGKILL)
    wait_until(lambda: {p.pid for p in launcher.ours()} <= {tree.poprun, tree.keeper})
    os.kill(process.pid, signal.SIGCONT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 75, err
    assert f"{who} process was ended" in err
    launcher.leaves_nothing()


@pytest.mark.parametrize("who", [*Tree._fields, "nobody"])
def test_kill_9_while_the_partition_is_requested_leaves_nothing(
    launcher: Launcher, who: str
) -> None:
    """mpirun is started meanwhile, but no instance begins before there is a partition."""
    ran, go = launcher.folder / "ran", launcher.folder / "go"
    script = 'echo "$MASTER_PORT" >>"$RAN"; exec sleep $SECONDS_MORE'
    more = {"RAN": str(ran), "GO": str(go), "SECONDS_MORE": "0" if who == "nobody" else "300"}
    process = launcher.start(*THREE, "--vipu-partition=slow", "sh", "-c", script, **more)
    tree = launcher.tree(process)
    # Scripts stand in front of all instances.
    wait_until(lambda: len(descendants(tree.guardian)) == 4)
    assert not ran.exists()
    if who != "nobody":
        os.kill(getattr(tree, who), signal.SIGKILL)
    go.touch()
    _, err = process.communicate(timeout=300)
    launcher.leaves_nothing()
    if who == "nobody":
        assert process.returncode == 0, err
        assert len(ran.read_text().split()) == 3
    elif who == "poprun":
        assert not ran.exists()
    else:
        assert process.returncode == 75, err
        assert launcher.calls() == ["Acquire", "Release"]


def test_nothing_is_started_before_the_partition_where_an_agent_confines(
    launcher: Launcher,
) -> None:
    """The guardian has to be in the partition's cgroup first, and everything below it begins
    there.
    """
    agent, go = launcher.folder / "agent", launcher.folder / "go"
    agent.touch()
    environ = {"PODWRIGHT_AGENT_SOCKET": str(agent), "GO": str(go)}
    process = launcher.start(*THREE, "--vipu-partition=slow", "true", **environ)
    wait_until(lambda: launcher.calls() == ["Acquire"])
    wait_until(lambda: len(descendants(process.pid)) >= 2)
    assert len(descendants(process.pid)) == 2
    go.touch()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    launcher.leaves_nothing()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_run_politely(launcher: Launcher, number: signal.Signals) -> None:
    process = started(launcher)
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + number, err
    assert f"POPRUN ERROR: {number.name} received" in err
    assert launcher.calls() == ["Acquire", "Release"]
    launcher.leaves_nothing()


def in_a_terminal(launcher: Launcher, *words: str) -> tuple[subprocess.Popen[bytes], int]:
    """A command as the first process of a terminal of its own. Closing the number closes the
    terminal.
    """
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *words],
        env=launcher.environ,
        cwd=launcher.cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    return process, ours


POPRUN = (sys.executable, "-m", "tests.launcher.alone", *THREE)


def test_a_terminal_that_is_closed_ends_a_run_politely(launcher: Launcher) -> None:
    up = launcher.cwd / "up"
    process, terminal = in_a_terminal(launcher, *POPRUN, "sh", "-c", "echo >>up; exec sleep 300")
    wait_until(lambda: up.exists() and up.read_text() == "\n" * 3)
    os.close(terminal)
    assert process.wait(300) == 128 + signal.SIGHUP
    launcher.leaves_nothing()
    assert launcher.calls() == ["Acquire", "Release"]


def test_nohup_goes_on_without_its_terminal(launcher: Launcher) -> None:
    up, done, go = (launcher.cwd / name for name in ("up", "done", "go"))
    program = "echo >>up; while [ ! -e go ]; do sleep 0.05; done; echo over; echo >>done"
    line = shlex.join(["nohup", *POPRUN, "sh", "-c", program])
    shell, terminal = in_a_terminal(launcher, "sh", "-c", f"{line} & wait")
    wait_until(lambda: up.exists() and up.read_text() == "\n" * 3)
    os.close(terminal)
    assert shell.wait(300) == -signal.SIGHUP
    go.touch()
    launcher.leaves_nothing()
    assert done.read_text() == "\n" * 3
    assert launcher.calls() == ["Acquire", "Release"]
    assert (launcher.cwd / "nohup.out").read_text().count("<stdout>: over\n") == 3


def test_a_second_ctrl_c_ends_those_that_do_not_listen(launcher: Launcher) -> None:
    process = started(launcher, "deaf", options=["--grace=3600"])
    process.send_signal(signal.SIGINT)
    assert process.stderr
    while "once more ends them now" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    launcher.leaves_nothing()


def test_instances_that_ignore_signals_end_when_poprun_is_killed(launcher: Launcher) -> None:
    process = started(launcher, "deaf")
    process.kill()
    launcher.leaves_nothing()


def test_all_watchers_die_and_the_next_poprun_sweeps(launcher: Launcher) -> None:
    """This is without the kernel's help."""
    process = started(launcher, options=["--pid-namespace=no"])
    tree = launcher.tree(process)
    watchers = (tree.poprun, tree.keeper, tree.guardian)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in watchers:
            os.kill(pid, number)
    process.communicate(timeout=300)
    assert launcher.left()
    wait_until(lambda: not any(p.pid in watchers for p in launcher.ours()))
    for base in (launcher.temporary, launcher.memory):
        for path in base.glob(f"podwright-run-{os.getuid()}-*"):
            if path.name in {p.name for p in launcher.temporary.iterdir()}:
                os.utime(path, (0, 0))
    ran = launcher.run("-v", "--num-replicas=2", "true")
    assert "removed what the abandoned run podwright-run-" in ran.err
    launcher.leaves_nothing()


def test_an_mpirun_that_hangs_after_all_instances_is_ended(launcher: Launcher) -> None:
    binaries = launcher.folder / "bin"
    binaries.mkdir()
    fake = binaries / "mpirun"
    fake.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != /bin/sh ]; do shift; done\n'
        '"$1" "$2" 0 sh -c "echo one; exit 0"; "$1" "$2" 1 sh -c "echo two; exit 0"\n'
        "trap '' TERM; exec sleep 300\n"
    )
    fake.chmod(0o755)
    path = f"{binaries}:{os.environ['PATH']}"
    ran = launcher.run("--num-replicas=2", "--num-instances=2", "true", PATH=path)
    assert ran.code == 0, ran
    assert ran.out == "[1,0]<stdout>: one\n[1,1]<stdout>: two\n"
    launcher.leaves_nothing()


def test_ctrl_c_ends_an_mpirun_that_hangs_before_any_instance(launcher: Launcher) -> None:
    """Open MPI 5's mpirun hangs seldom (open-mpi/ompi issue 10586). test_slow_start.py tests the
    warning.
    """
    binaries = launcher.folder / "bin"
    binaries.mkdir()
    hangs = launcher.folder / "hangs"
    fake = binaries / "mpirun"
    fake.write_text(f"#!/bin/sh\n: >{hangs}\nexec sleep 300\n")
    fake.chmod(0o755)
    path = f"{binaries}:{os.environ['PATH']}"
    process = launcher.start("--num-replicas=2", "--num-instances=2", "true", PATH=path)
    wait_until(hangs.exists)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    launcher.leaves_nothing()


def test_an_instance_that_mpirun_loses_is_noticed(launcher: Launcher) -> None:
    binaries = launcher.folder / "bin"
    binaries.mkdir()
    fake = binaries / "mpirun"
    fake.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != /bin/sh ]; do shift; done\n'
        '"$1" "$2" 0 sh -c "exit 0"; echo no slot for the other >&2\n'
    )
    fake.chmod(0o755)
    path = f"{binaries}:{os.environ['PATH']}"
    ran = launcher.run("--num-replicas=2", "--num-instances=2", "true", PATH=path)
    assert ran.code == 1, ran
    assert "while these instances ran: 1\nno slot for the other" in ran.err
    launcher.leaves_nothing()


def test_a_lost_lease_ends_the_run(launcher: Launcher) -> None:
    process = started(launcher)
    (launcher.folder / "lost").touch()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 75
    assert "the lease on the partition is over: somebody else has it now" in err
    assert launcher.calls() == ["Acquire"]
    launcher.leaves_nothing()


def test_after_a_lost_lease_all_start_again_on_another_partition(launcher: Launcher) -> None:
    program = "[ $PODWRIGHT_RESTART = 1 ] || sleep 100"
    line = ("--num-replicas=2", "--num-instances=2", "--launcher=local", "--max-restarts=1")
    ran = launcher.run(*line, "sh", "-c", program, LOSE="1")
    assert ran.code == 0, ran.err
    assert "the lease on the partition is over; starting all instances again" in ran.err
    assert launcher.calls() == ["Acquire", "Acquire", "Release"]
    launcher.leaves_nothing()


def _socket_room() -> int:
    """Return how many short messages fit into a socket of this machine that nobody reads."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        count = 0
        with contextlib.suppress(BlockingIOError):
            while ours.send(bytes(24)):
                count += 1
    return count


def test_many_instances_may_end_at_once(launcher: Launcher) -> None:
    """There are more messages than fit into a socket: poprun and its guardian must not block each
    other.
    """
    many = min(_socket_room() + 50, 1000)
    counts = (f"--num-replicas={many}", f"--num-instances={many}", "--launcher=local")
    process = launcher.start(*counts, "sh", "-c", "echo up; exec sleep 100")
    assert process.stdout
    for _ in range(many):
        assert process.stdout.readline().endswith("up\n")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    launcher.leaves_nothing()


def test_usr1_reaches_the_instances_and_ends_nothing(launcher: Launcher) -> None:
    program = (
        "import signal, time\n"
        "heard = []\n"
        "signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))\n"
        "print('up', flush=True)\n"
        "while not heard: time.sleep(0.02)\n"
        "print('heard', flush=True)\n"
    )
    process = launcher.start(*THREE, sys.executable, "-c", program)
    assert process.stdout
    for _ in range(3):
        assert process.stdout.readline().endswith("up\n")
    process.send_signal(signal.SIGUSR1)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert out.count("heard") == 3


def test_the_mark_that_sweeping_needs_is_on_every_process(launcher: Launcher) -> None:
    process = started(launcher, options=["--pid-namespace=no"])
    (folder,) = launcher.temporary.iterdir()
    entry = f"{RUN_VARIABLE}={folder.name}".encode()
    tree = launcher.tree(process)
    for ours in launcher.ours():
        if ours.pid not in (tree.poprun, tree.keeper, tree.guardian):
            assert entry in Path(f"/proc/{ours.pid}/environ").read_bytes().split(b"\0")
    process.terminate()
    process.communicate(timeout=300)
    launcher.leaves_nothing()


def test_instances_are_asked_first_and_killed_after_the_grace() -> None:
    now = [100.0]
    deaf = (
        "import signal, time; signal.signal(15, signal.SIG_IGN);"
        "print(1, flush=True); time.sleep(600)"
    )
    # Below a process of its own: other tests may have left theirs below this one.
    words = ["sh", "-c", '"$0" -c "$1"; echo over', sys.executable, deaf]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as root:
        assert root.stdout
        assert root.stdout.readline() == "1\n"
        ending = Ending(root.pid, 1.0, 5.0, clock=lambda: now[0])
        assert not ending.step()
        now[0] += 1.0
        assert not ending.step()
        now[0] += 4.9
        assert not ending.step()
        assert len(descendants(root.pid)) == 1
        now[0] += 0.2
        assert not ending.step()
        assert root.stdout.readline() == "over\n"
        now[0] += 1.0
        assert ending.step()


def line(pid: int) -> str:
    """The first word of a process's command line."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]


def test_a_shell_is_asked_before_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the shell sees its command end, and ends itself before its own trap runs."""
    words = ["sleep", "600"]
    for _ in range(12):
        words = ["sh", "-c", '"$@"; :', "sh", *words]
    asked: list[int] = []
    with subprocess.Popen(words) as root:
        try:
            wait_until(lambda: [line(p.pid) for p in descendants(root.pid)][11:] == ["sleep"])
            below = [process.pid for process in descendants(root.pid)]
            with monkeypatch.context() as patched:
                patched.setattr(os, "kill", lambda pid, _: asked.append(pid))
                assert not Ending(root.pid, 0.0, 300.0).step()
        finally:
            kill_all(descendants(root.pid), signal.SIGKILL)
    assert asked == below


def test_a_shell_that_is_about_to_become_a_daemon_is_no_instance() -> None:
    """If it were asked to end, mpirun's daemon would end with it, and so would the run."""
    program = (
        "import subprocess, sys\n"
        "waits = ['sh', '-c', 'read line']\n"
        "shell, other = (subprocess.Popen(waits, stdin=subprocess.PIPE) for _ in range(2))\n"
        "print(shell.pid, flush=True)\n"
        "print(other.wait(), shell.poll(), flush=True)\n"
        "sys.stdin.read(); shell.kill()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as root:
        assert root.stdout
        shell = int(root.stdout.readline())
        ending = Ending(root.pid, 0.0, 300.0, daemons={shell}, hold=True)
        assert not ending.step()
        assert root.stdout.readline() == f"{-signal.SIGTERM:d} None\n"
