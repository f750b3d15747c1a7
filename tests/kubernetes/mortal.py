"""The operator's command, which kills a process at one of the operator's steps.

`python -m tests.kubernetes.mortal VICTIM STEP WHEN WORDS…`: VICTIM is a process, or 0 for the
operator itself. STEP counts, from 1, the changes that the operator requests of the API server or of
a controller. WHEN is `before`, `during` (requested, and not answered) or `after`. WORDS are the
command's own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from podwright.cli.podwright import main
from podwright.guests.kubernetes import VipuController
from podwright.guests.kubernetes.cluster._kube_api import KubeApi
from podwright.guests.shared import ThreadedServer

Call = Callable[..., Coroutine[Any, Any, Any]]

VICTIM, STEP, WHEN = int(sys.argv[1] or 0), int(sys.argv[2]), sys.argv[3]
#: Between asking and killing, so that what was asked for is on its way.
_SOON = 0.003

steps = 0


def kill() -> None:
    os.kill(VICTIM or os.getpid(), signal.SIGKILL)


def counted(call: Call, is_step: Callable[..., bool]) -> Call:
    async def stepped(*words: Any, **more: Any) -> Any:
        global steps
        if not is_step(*words, **more):
            return await call(*words, **more)
        steps += 1
        if steps != STEP:
            return await call(*words, **more)
        if WHEN == "before":
            kill()
        elif WHEN == "during":
            asyncio.get_running_loop().call_later(_SOON, kill)
        answer = await call(*words, **more)
        if WHEN == "after":
            kill()
        return answer

    return stepped


def is_write(_: KubeApi, method: str, path: str, *more: Any, **named: Any) -> bool:
    return method != "GET" and "/leases" not in path


def is_change(_: ThreadedServer, method: str, *more: Any) -> bool:
    return method in ("CreatePartition", "ResetPartition")


if __name__ == "__main__":
    KubeApi._call = counted(KubeApi._call, is_write)  # type: ignore[method-assign]
    VipuController.call = counted(VipuController.call, is_change)  # type: ignore[method-assign]
    VipuController.remove = counted(  # type: ignore[method-assign]
        VipuController.remove, lambda *_: True
    )
    sys.exit(main(sys.argv[4:]))
