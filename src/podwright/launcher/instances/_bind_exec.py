"""Binds a program to hardware threads and prefers the memory near them, then becomes the program.

It is run by its path, as `python -I -S _bind_exec.py CPUS NODES program …`, on any host that has
Podwright: `taskset` does not set memory, and `numactl` is seldom installed. It imports no module of
ours, so that it costs an instance no more than a bare interpreter does.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

#: The number of set_mempolicy(2), by machine, since the C library has no function for it (Linux,
#: asm/unistd.h).
_NUMBERS = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261, "s390x": 269}
#: linux/mempolicy.h; the second is known since Linux 5.15.
PREFERRED, PREFERRED_MANY = 1, 5
_WORD = 64


def prefer(numa_nodes: Sequence[int]) -> bool:
    """Take memory from these NUMA nodes, and from others once they are full. Returns whether it
    worked.

    The memory is preferred, as in PopRun (guide, section 2.5), and not bound. A program that needs
    more memory than its nodes have gets slower; bound to them, it would be killed.
    """
    import ctypes

    number = _NUMBERS.get(os.uname().machine)
    if number is None:
        return False
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    words = max(numa_nodes) // _WORD + 1
    mask = (ctypes.c_uint64 * words)()
    for node in numa_nodes:
        mask[node // _WORD] |= 1 << node % _WORD
    size = ctypes.c_ulong(words * _WORD + 1)  # the kernel reads one bit less than the given count
    for mode in (PREFERRED_MANY, PREFERRED)[: 2 if len(numa_nodes) == 1 else 1]:
        if not syscall(ctypes.c_long(number), ctypes.c_int(mode), mask, size):
            return True
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
            return False
    return False


def numbers(text: str) -> list[int]:
    """Return the numbers of a list such as `0-3,8`."""
    values: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        values += range(int(first), int(last or first) + 1)
    return values


def main(words: Sequence[str]) -> int:
    """Become the program. Returns only on failure, with the exit code that a shell has for it."""
    cpus, nodes, *program = words
    if cpus:
        os.sched_setaffinity(0, numbers(cpus))
    if nodes:
        prefer(numbers(nodes))  # without the call the kernel takes the nearest memory anyway
    try:
        os.execvp(program[0], program)
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr)
        return 126 if isinstance(error, PermissionError) else 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
