"""torch.distributed among the instances of poprun, in one call.

    import popdist.torch
    popdist.torch.init_process_group("gloo")

poprun sets the variables that torchrun sets, so a program that does this runs under either.
"""

from __future__ import annotations

import os
from typing import Any

from popdist import _meeting


def init_process_group(backend: str | None = None, **options: Any) -> tuple[int, int]:
    """Set torch.distributed up among all instances; this one's rank, and how many there are.

    backend, options: as torch.distributed.init_process_group takes them. A program that was
    started alone is a group of one. To be called once, by every instance.

    Raises BadEnvironment where the launcher's variables contradict each other.
    """
    import torch.distributed

    rank, size, address, port = _meeting.point()
    if not address:
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1, **options)
        return 0, 1
    os.environ.setdefault("MASTER_ADDR", address)
    os.environ.setdefault("MASTER_PORT", str(port))
    torch.distributed.init_process_group(backend, rank=rank, world_size=size, **options)
    return rank, size
