"""torch.distributed among the instances of poprun, in one call.

    import popdist.torch
    popdist.torch.init_process_group("gloo")

poprun sets the same variables as torchrun, so a program that uses this call runs under either.
"""

from __future__ import annotations

import os
from typing import Any

from popdist import _meeting_point


def init_process_group(backend: str | None = None, **options: Any) -> tuple[int, int]:
    """Initialise torch.distributed among all instances.

    Return this rank, and the number of instances.

    backend, options: as for torch.distributed.init_process_group. A program that was started alone
    is a group of one. Every instance calls it once.

    Raises BadEnvironment where the launcher's variables contradict each other.
    """
    import torch.distributed

    rank, size, address, port = _meeting_point.point()
    if not address:
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1, **options)
        return 0, 1
    os.environ.setdefault("MASTER_ADDR", address)
    os.environ.setdefault("MASTER_PORT", str(port))
    torch.distributed.init_process_group(backend, rank=rank, world_size=size, **options)
    return rank, size
