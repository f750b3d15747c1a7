"""A pod as the stand-in server sees it: aligned power-of-two blocks, the smallest that fits first.

That rule matters: whoever takes the smallest sufficient free block, in whatever order requests
come, places every set of requests that can be placed at all (see docs/slurm/mechanisms.md).
"""

from collections.abc import Collection


class Pod:
    def __init__(self, size: int = 256) -> None:
        self.size = size
        self.orders = size.bit_length()
        self._free: list[set[int]] = [set() for _ in range(self.orders)]
        self._free[-1].add(0)
        self.held: dict[int, tuple[int, int]] = {}

    def take(self, job: int, devices: int) -> bool:
        """Gives the job an aligned block; the same one if it has one. False where none is free."""
        if job in self.held:
            return True
        order = devices.bit_length() - 1
        found = next((k for k in range(order, self.orders) if self._free[k]), None)
        if found is None:
            return False
        at = min(self._free[found])
        self._free[found].remove(at)
        for k in range(found - 1, order - 1, -1):
            self._free[k].add(at + (1 << k))
        self.held[job] = (at, order)
        return True

    def release(self, job: int) -> bool:
        if job not in self.held:
            return False
        at, order = self.held.pop(job)
        while order < self.orders - 1 and (at ^ (1 << order)) in self._free[order]:
            self._free[order].remove(at ^ (1 << order))
            at &= ~(1 << order)
            order += 1
        self._free[order].add(at)
        return True

    def used(self, order: int = 0, *, but: Collection[int] = ()) -> int:
        """Devices held by jobs of at least 2**order devices, some jobs left out."""
        return sum(1 << k for job, (_, k) in self.held.items() if k >= order and job not in but)

    def whole(self, order: int) -> int:
        """Devices that lie in free aligned blocks of 2**order."""
        return sum(len(self._free[k]) << k for k in range(order, self.orders))
