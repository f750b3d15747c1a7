"""Asks questions that may never be answered, for example to a hung file server. Child processes
ask, and are abandoned when their time is over, so that the caller never waits for them.

Nothing can end a child that waits for a dead server inside the kernel. The parent can still go on.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn, TypeVar, cast

T = TypeVar("T")


class Answer(NamedTuple):
    """code: the exit code; None where there was no answer in time, below 0 where a signal ended it,
    127 where it did not start."""

    code: int | None
    out: str = ""


def ask(
    commands: Mapping[str, tuple[Sequence[str], float]], environ: Mapping[str, str]
) -> dict[str, Answer]:
    """Run all commands at once and return their answers by name. Each has its own limit, in
    seconds.

    At most 4 KiB of a command's output are read. A command that is late is killed and not waited
    for.
    """
    running_processes: dict[str, tuple[subprocess.Popen[bytes], float, int]] = {}
    answers_by_name: dict[str, Answer] = {}
    started_at = time.monotonic()
    for command_name, (command_words, timeout_s) in commands.items():
        output_descriptor = os.memfd_create("answer")
        try:
            process = subprocess.Popen(
                command_words,
                stdin=subprocess.DEVNULL,
                stdout=output_descriptor,
                stderr=output_descriptor,
                env=dict(environ),
                start_new_session=True,
            )
        except OSError as error:
            answers_by_name[command_name] = Answer(127, error.strerror or str(error))
            os.close(output_descriptor)
        else:
            running_processes[command_name] = (process, started_at + timeout_s, output_descriptor)
    while running_processes:
        for command_name, (process, deadline, output_descriptor) in list(running_processes.items()):
            exit_code = process.poll()
            timed_out = time.monotonic() > deadline
            if exit_code is None and not timed_out:
                continue
            output_text = os.pread(output_descriptor, 4096, 0).decode(errors="replace").strip()
            answers_by_name[command_name] = Answer(exit_code, output_text)
            if exit_code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
                process.returncode = -9  # not waited for, because it may never end
            os.close(output_descriptor)
            del running_processes[command_name]
        if running_processes:
            time.sleep(0.002)
    return answers_by_name


def apart(probe: Callable[[], T], timeout_s: float) -> T | None:
    """Run the probe in a copy of this process and return its result; None where it takes longer
    than `timeout_s` seconds. Raises what the probe raises."""
    read_descriptor, write_descriptor = os.pipe()
    child_pid = os.fork()
    if child_pid == 0:
        _run_probe_in_child(probe, write_descriptor)
    os.close(write_descriptor)
    received, deadline = b"", time.monotonic() + timeout_s
    with os.fdopen(read_descriptor, "rb", buffering=0) as result_pipe:
        while select.select([result_pipe], [], [], max(deadline - time.monotonic(), 0))[0]:
            if not (received_chunk := result_pipe.read(1 << 16)):
                os.waitpid(child_pid, 0)
                return cast(T, _read_probe_result(received))
            received += received_chunk
    os.kill(child_pid, 9)  # not waited for, because it may never end
    return None


def _run_probe_in_child(probe: Callable[[], object], write_descriptor: int) -> NoReturn:
    """In the child: close all inherited descriptors, so that nobody waits for it."""
    try:
        null_descriptor = os.open(os.devnull, os.O_RDWR)
        for standard_descriptor in (0, 1, 2):
            os.dup2(null_descriptor, standard_descriptor)
        result_or_error: tuple[object, Exception | None]
        try:
            result_or_error = probe(), None
        except Exception as error:
            result_or_error = None, error
        pickled_result = pickle.dumps(result_or_error)
        with os.fdopen(write_descriptor, "wb") as result_pipe:
            result_pipe.write(pickled_result)
    finally:
        os._exit(0)


def _read_probe_result(pickled_result: bytes) -> object:
    probe_result: object
    try:
        # Loading is safe: our own child wrote this into our own pipe.
        probe_result, probe_error = pickle.loads(pickled_result)
    except (EOFError, pickle.UnpicklingError):  # it was killed before it had written everything
        raise ChildProcessError("the vendor's library ended its process") from None
    if probe_error:
        raise probe_error
    return probe_result
