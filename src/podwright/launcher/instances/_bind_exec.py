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
_SET_MEMPOLICY_NUMBERS = {
    "x86_64": 238,
    "aarch64": 237,
    "riscv64": 237,
    "ppc64le": 261,
    "s390x": 269,
}
#: linux/mempolicy.h; the second is known since Linux 5.15.
MPOL_PREFERRED, MPOL_PREFERRED_MANY = 1, 5
_MASK_WORD_BITS = 64


def prefer_memory(numa_nodes: Sequence[int]) -> bool:
    """Take memory from these NUMA nodes, and from others once they are full. Returns whether it
    worked.

    The memory is preferred, as in PopRun (guide, section 2.5), and not bound. A program that needs
    more memory than its nodes have gets slower; bound to them, it would be killed.
    """
    import ctypes

    syscall_number = _SET_MEMPOLICY_NUMBERS.get(os.uname().machine)
    if syscall_number is None:
        return False
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    mask_words = max(numa_nodes) // _MASK_WORD_BITS + 1
    node_mask = (ctypes.c_uint64 * mask_words)()
    for node in numa_nodes:
        node_mask[node // _MASK_WORD_BITS] |= 1 << node % _MASK_WORD_BITS
    # The kernel reads one bit less than the given count.
    mask_bits = ctypes.c_ulong(mask_words * _MASK_WORD_BITS + 1)
    for policy_mode in (MPOL_PREFERRED_MANY, MPOL_PREFERRED)[: 2 if len(numa_nodes) == 1 else 1]:
        if not syscall(
            ctypes.c_long(syscall_number), ctypes.c_int(policy_mode), node_mask, mask_bits
        ):
            return True
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
            return False
    return False


def numbers(list_text: str) -> list[int]:
    """Return the numbers of a list such as `0-3,8`."""
    listed_numbers: list[int] = []
    for range_text in filter(None, list_text.split(",")):
        range_start, _, range_end = range_text.partition("-")
        listed_numbers += range(int(range_start), int(range_end or range_start) + 1)
    return listed_numbers


def main(arguments: Sequence[str]) -> int:
    """Become the program. Returns only on failure, with the exit code that a shell has for it."""
    cpu_list, node_list, *program = arguments
    if cpu_list:
        os.sched_setaffinity(0, numbers(cpu_list))
    if node_list:
        # Without the call the kernel takes the nearest memory anyway.
        prefer_memory(numbers(node_list))
    try:
        os.execvp(program[0], program)
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr)
        return 126 if isinstance(error, PermissionError) else 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
