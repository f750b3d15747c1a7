"""JAX among the instances of poprun, in one call: `popdist.jax.initialize()`."""

from __future__ import annotations

from typing import Any

from popdist import _meeting_point


def initialize(**options: Any) -> tuple[int, int]:
    """Initialise JAX among all instances.

    Return this instance's index, and the number of instances.

    options: as for jax.distributed.initialize. Every instance calls it once, before any other use
    of JAX. In a program that was started alone, it does nothing.

    Raises BadEnvironment where the launcher's variables contradict each other.
    """
    import jax

    rank, size, address, port = _meeting_point.point()
    if address:
        jax.distributed.initialize(
            coordinator_address=f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
            num_processes=size,
            process_id=rank,
            **options,
        )
    return rank, size
