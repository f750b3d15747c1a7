"""Questions that may never be answered, such as to a hung file server: asked by children that are
left behind when their time is over, so that nobody waits for them.

A child that waits for a dead server in the kernel cannot be ended by anything; its parent can go.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple


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
