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
    running: dict[str, tuple[subprocess.Popen[bytes], float, int]] = {}
    answers: dict[str, Answer] = {}
    start = time.monotonic()
    for name, (words, limit) in commands.items():
        out = os.memfd_create("answer")
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(environ),
                start_new_session=True,
            )
        except OSError as error:
            answers[name] = Answer(127, error.strerror or str(error))
            os.close(out)
        else:
            running[name] = (process, start + limit, out)
    while running:
        for name, (process, until, out) in list(running.items()):
            code = process.poll()
            late = time.monotonic() > until
            if code is None and not late:
                continue
            text = os.pread(out, 4096, 0).decode(errors="replace").strip()
            answers[name] = Answer(code, text)
            if code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
                process.returncode = -9  # not waited for, because it may never end
            os.close(out)
            del running[name]
        if running:
            time.sleep(0.002)
    return answers


def apart(probe: Callable[[], T], limit: float) -> T | None:
    """Run the probe in a copy of this process and return its result; None where it takes longer
    than `limit` seconds. Raises what the probe raises."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(probe, writing)
    os.close(writing)
    data, until = b"", time.monotonic() + limit
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(until - time.monotonic(), 0))[0]:
            if not (part := pipe.read(1 << 16)):
                os.waitpid(child, 0)
                return cast(T, _answered(data))
            data += part
    os.kill(child, 9)  # not waited for, because it may never end
    return None


def _answer(probe: Callable[[], object], writing: int) -> NoReturn:
    """In the child: close all inherited descriptors, so that nobody waits for it."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        answer: tuple[object, Exception | None]
        try:
            answer = probe(), None
        except Exception as error:
            answer = None, error
        pickled = pickle.dumps(answer)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickled)
    finally:
        os._exit(0)


def _answered(data: bytes) -> object:
    answer: object
    try:
        answer, error = pickle.loads(data)  # by our own copy, through our own pipe
    except (EOFError, pickle.UnpicklingError):  # it was killed before it had written everything
        raise ChildProcessError("the vendor's library ended its process") from None
    if error:
        raise error
    return answer
