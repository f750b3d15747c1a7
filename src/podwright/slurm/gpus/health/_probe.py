"""Questions that may never be answered, such as to a hung file server: asked by children that are
left behind when their time is over, so that nobody waits for them.

A child that waits for a dead server in the kernel cannot be ended by anything; its parent can go.
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
    """code: None where there was none in time; below 0: ended by a signal; 127: did not start."""

    code: int | None
    out: str = ""


def ask(
    commands: Mapping[str, tuple[Sequence[str], float]], environ: Mapping[str, str]
) -> dict[str, Answer]:
    """The answers by name, of all commands at once. Each has its own limit, in seconds.

    At most 4 KiB of what one writes are read. Nobody waits for one that is late: it is killed.
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
                process.returncode = -9  # not waited for: it may never end
            os.close(out)
            del running[name]
        if running:
            time.sleep(0.002)
    return answers


def apart(look: Callable[[], T], limit: float) -> T | None:
    """What a copy of this process answers; None where it does not within `limit` seconds.

    Raises what it raises.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(look, writing)
    os.close(writing)
    data, until = b"", time.monotonic() + limit
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(until - time.monotonic(), 0))[0]:
            if not (part := pipe.read(1 << 16)):
                os.waitpid(child, 0)
                return cast(T, _answered(data))
            data += part
    os.kill(child, 9)  # not waited for: it may never end
    return None


def _answer(look: Callable[[], object], writing: int) -> NoReturn:
    """In the child: it holds nothing of ours open, so that nobody waits for it."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        answer: tuple[object, Exception | None]
        try:
            answer = look(), None
        except Exception as error:
            answer = None, error
        whole = pickle.dumps(answer)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(whole)
    finally:
        os._exit(0)


def _answered(data: bytes) -> object:
    answer: object
    try:
        answer, error = pickle.loads(data)  # by our own copy, through our own pipe
    except (EOFError, pickle.UnpicklingError):  # it was ended before it had said all
        raise ChildProcessError("the vendor's library ended its process") from None
    if error:
        raise error
    return answer
