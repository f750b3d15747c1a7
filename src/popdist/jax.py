"""JAX among the instances of poprun, in one call: `popdist.jax.initialize()`."""

from __future__ import annotations

from typing import Any

from popdist import _meeting


def initialize(**options: Any) -> tuple[int, int]:
    """Set JAX up among all instances; this one's index, and how many there are.

    options: as jax.distributed.initialize takes them. Before any other use of JAX, once, by every
    instance. A program that was started alone needs nothing, and nothing happens.

    Raises BadEnvironment where the launcher's variables contradict each other.
    """
    import jax

    rank, size, address, port = _meeting.point()
    if address:
        jax.distributed.initialize(
            coordinator_address=f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
            num_processes=size,
            process_id=rank,
            **options,
        )
    return rank, size
