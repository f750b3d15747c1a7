"""Whole runs under the real mpirun: output, exit codes, environment, many instances."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podwright.launcher.instances._instance_wrapper import _WRAPPER_SCRIPT
from tests.launcher.conftest import REPOSITORY, Launcher

TWO = ("--num-replicas=2", "--num-instances=2")
FOUR = ("--num-replicas=4", "--num-instances=4")


def test_a_launch_runs_from_start_to_end(launcher: Launcher) -> None:
    ran = launcher.run(
        *("--num-replicas=8", "--num-instances=2", "--print-topology=yes", "-v"),
        *("sh", "-c", 'echo "$POPDIST_REPLICA_INDEX_OFFSET $IPUOF_VIPU_API_PARTITION_ID"'),
    )
    assert ran.code == 0, ran
    assert "|              poprun topology              |" in ran.out
    assert "[1,0]<stdout>: 0 run-1\n" in ran.out
    assert "[1,1]<stdout>: 4 run-1\n" in ran.out
    assert "SIMULATED" in ran.err
    assert " POPRUN [I] mpirun terminated with exit code 0" in ran.err
    assert " POPRUN [D] " not in ran.err
    assert launcher.calls() == ["Acquire", "Release"]
    launcher.leaves_nothing()


def test_the_whole_environment_and_every_quote_survive(launcher: Launcher) -> None:
    odd = "a 'b' \"c\" $d \\ `e`\nf;|&"
    show = (
        "import os, sys; print(ascii([sys.argv[1:], os.environ.get('PLAIN'),"
        " os.environ.get('BASH_FUNC_f%%'), os.environ.get('with.dot'), os.environ.get('GIVEN'),"
        " os.environ.get('IPUOF_CONFIG_PATH'), os.environ['MASTER_ADDR'],"
        " int(os.environ['MASTER_PORT']) > 0]))"
    )
    launcher.environ |= {"PLAIN": odd, "BASH_FUNC_f%%": "() { :\n}", "with.dot": "1"}
    launcher.environ["IPUOF_CONFIG_PATH"] = "/x"
    ran = launcher.run(
        *("--num-replicas=2", "--mpi-local-args", "-x GIVEN='g  h'"),
        *(sys.executable, "-c", show, odd, ""),
    )
    wanted = [[odd, ""], odd, "() { :\n}", "1", "g  h", None, "127.0.0.1", True]
    assert ran.out == f"[1,0]<stdout>: {wanted!a}\n", ran


def test_each_instance_has_its_rank(launcher: Launcher) -> None:
    script = 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $OMPI_COMM_WORLD_RANK"'
    ran = launcher.run(*FOUR, "sh", "-c", script)
    assert sorted(ran.out.splitlines()) == [
        f"[1,{i}]<stdout>: {i} 4 {i} 4 {i}" for i in range(4)
    ], ran


def test_lines_stay_whole_under_load(launcher: Launcher) -> None:
    program = (
        "import os, sys\n"
        "me = os.environ['RANK']\n"
        "for i in range(3000):\n"
        "    line = f'{me} {i} ' + me * (i % 300) + '\\n'\n"
        "    for part in (line[:3], line[3:]):\n"
        "        (sys.stdout if i % 3 else sys.stderr).write(part)\n"
        "        (sys.stdout if i % 3 else sys.stderr).flush()\n"
    )
    ran = launcher.run(*FOUR, sys.executable, "-c", program)
    assert ran.code == 0
    for stream, text, of in (("stdout", ran.out, lambda i: i % 3), ("stderr", ran.err, None)):
        for me in range(4):
            tag = f"[1,{me}]<{stream}>: "
            got = [line[len(tag) :] for line in text.splitlines() if line.startswith(tag)]
            chosen = [i for i in range(3000) if bool(i % 3) == (of is not None)]
            assert got == [f"{me} {i} " + str(me) * (i % 300) for i in chosen]


def test_both_streams_into_one_pipe_do_not_mix(launcher: Launcher) -> None:
    program = (
        "import os, sys\n"
        "for i in range(2000):\n"
        "    os.write(1, b'o' * 200 + b'\\n'); os.write(2, b'e' * 200 + b'\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.launcher.alone", *TWO, sys.executable, "-c", program],
        env=launcher.environ,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=True,
    )
    lines = [line for line in done.stdout.decode().splitlines() if line.startswith("[1,")]
    assert len(lines) == 8000
    wanted = {f"[1,{i}]<stdout>: {'o' * 200}" for i in range(2)}
    wanted |= {f"[1,{i}]<stderr>: {'e' * 200}" for i in range(2)}
    assert set(lines) == wanted


def test_the_first_failing_instance_is_named_and_its_code_is_poprun_s(launcher: Launcher) -> None:
    program = (
        "import os, sys, time\n"
        "if os.environ['RANK'] != '2': time.sleep(60)\n"
        "print('last words'); sys.exit(7)\n"
    )
    ran = launcher.run(*FOUR, sys.executable, "-c", program)
    assert ran.code == 7, ran
    assert ran.err.endswith(
        "POPRUN ERROR: instance 2 ended with exit code 7. Its last lines:\n"
        "  [1,2]<stdout>: last words\n"
    ), ran.err
    assert launcher.calls() == ["Acquire", "Release"]
    launcher.leaves_nothing()


def test_a_signal_that_ended_an_instance_is_named(launcher: Launcher) -> None:
    ran = launcher.run(*TWO, "sh", "-c", "[ $RANK = 0 ] && exec sleep 60; kill -SEGV $$")
    assert ran.code == 128 + 11
    assert "POPRUN ERROR: instance 1 was ended by signal 11 (SIGSEGV)" in ran.err


def test_the_last_lines_of_a_silenced_instance_that_fails_are_shown(launcher: Launcher) -> None:
    program = "echo out $RANK; [ $RANK = 1 ] && { echo why >&2; exit 3; }; sleep 60"
    ran = launcher.run("--only-output-from-instance=0", *TWO, "sh", "-c", program)
    assert ran.code == 3
    assert "[1,1]" not in ran.out
    assert ran.err.count("[1,1]<stderr>: why") == 1
    ran = launcher.run("--only-output-from-instance=0", *TWO, "sh", "-c", "echo out $RANK")
    assert ran.out == "[1,0]<stdout>: out 0\n"


def test_mpi_abort_ends_the_launch_with_its_code(launcher: Launcher) -> None:
    program = (
        "from mpi4py import MPI\n"
        "world = MPI.COMM_WORLD\n"
        "assert world.size == 2\n"
        "if world.rank == 1: world.Abort(9)\n"
        "world.barrier()\n"
    )
    ran = launcher.run(*TWO, sys.executable, "-c", program)
    assert ran.code == 9, ran
    assert "POPRUN ERROR: instance 1 called MPI_Abort(9)" in ran.err
    launcher.leaves_nothing()


def test_a_program_that_is_missing_is_refused(launcher: Launcher) -> None:
    ran = launcher.run(*TWO, "no-such-program")
    assert ran.code == 127
    assert "there is no program 'no-such-program' on PATH" in ran.err


@pytest.mark.parametrize("how", ["by its path", "on PATH"])
def test_a_program_that_may_not_be_executed_is_refused(launcher: Launcher, how: str) -> None:
    program = launcher.folder / "train"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    word, path = (str(program), "") if how == "by its path" else ("train", f"{launcher.folder}:")
    ran = launcher.run("--num-replicas=1", word, PATH=path + os.environ["PATH"])
    assert ran.code == 126
    assert f"{program} may not be executed" in ran.err
    assert launcher.calls() == []
    assert launcher.calls() == []
    launcher.leaves_nothing()


def test_a_partition_that_cannot_be_had_ends_the_launch(launcher: Launcher) -> None:
    ran = launcher.run(*TWO, "--vipu-partition=full", "true")
    assert ran.code == 75
    assert "POPRUN ERROR: nothing is free." in ran.err
    launcher.leaves_nothing()


def test_an_mpirun_that_does_not_start_is_quoted(launcher: Launcher) -> None:
    ran = launcher.run(*TWO, "--mpi-global-args=--no-such-option", "true")
    assert ran.code != 0
    assert "before any instance started" in ran.err
    assert "no-such-option" in ran.err
    launcher.leaves_nothing()


def test_more_instances_than_cores_may_run(launcher: Launcher) -> None:
    ran = launcher.run("--num-replicas=64", "--num-instances=64", "sh", "-c", "echo $RANK")
    assert ran.code == 0, ran.err
    assert sorted(ran.out.split("\n")) == sorted(
        ["", *(f"[1,{i}]<stdout>: {i}" for i in range(64))]
    )
    launcher.leaves_nothing()


def test_a_launch_ends_where_nobody_reads_its_output(launcher: Launcher) -> None:
    process = launcher.start("--grace=5", *TWO, "sh", "-c", "while :; do echo y; done")
    assert process.stdout
    assert process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert process.wait(300) == 141
    launcher.leaves_nothing()


def test_a_reader_who_is_slow_stops_nothing_but_the_output(launcher: Launcher) -> None:
    process = launcher.start("--num-replicas=2", "sh", "-c", "yes | head -c 8000000")
    assert process.stdout
    first = process.stdout.readline()
    process.send_signal(15)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 143
    assert first == "[1,0]<stdout>: y\n"
    assert out.endswith("[1,0]<stdout>: y\n")
    launcher.leaves_nothing()


@pytest.mark.parametrize("words", [("--dry-run",), ("--dry-run=plan",)])
def test_a_dry_run_contacts_nothing(words: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "podwright.cli.poprun", *words, *FOUR, "no-such-program"],
        env={**os.environ, "PODWRIGHT_SOCKET": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done
    assert "decided by the server" in done.stdout


def test_the_script_in_front_of_instances_is_short_and_posix() -> None:
    subprocess.run(["/bin/sh", "-n", "-c", _WRAPPER_SCRIPT], check=True)
    assert "[[" not in _WRAPPER_SCRIPT
