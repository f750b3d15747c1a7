"""Asks a driver that may never answer, by a child process, which is abandoned when it is late.

Nothing can end a child that waits inside the kernel. The parent can still go on.
"""

from __future__ import annotations

import os
import pickle
import select
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar, cast

T = TypeVar("T")


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
        with os.fdopen(write_descriptor, "wb") as pipe:
            pipe.write(pickled_result)
    finally:
        os._exit(0)


def _read_probe_result(pickled_result: bytes) -> object:
    probe_result: object
    try:
        # Loading is safe: our own child wrote this into our own pipe.
        probe_result, error = pickle.loads(pickled_result)
    except (EOFError, pickle.UnpicklingError):  # it was killed before it had written everything
        raise ChildProcessError("the vendor's library ended its process") from None
    if error:
        raise error
    return probe_result
