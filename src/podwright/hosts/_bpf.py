"""Programs by which the kernel says which device files a cgroup v2 may open, through bpf(2).

They are a handful of instructions, so they are written here as such, and need no compiler. A
program that is attached stays with the cgroup whoever made it ends, and goes with the cgroup.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

#: Numbers of the call, by machine (asm/unistd.h).
_CALLS = {"x86_64": 321, "aarch64": 280, "ppc64le": 361}
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH, _PROG_GET_FD_BY_ID, _PROG_QUERY = 5, 8, 9, 13, 16
_TYPE_CGROUP_DEVICE, _ATTACH_CGROUP_DEVICE, _ALLOW_MULTI = 15, 6, 2
_CHARACTER = 2
_MOST = 64
#: Instructions: load a word, and, go on `offset` further if unequal, set, end.
_LOAD, _AND, _UNEQUAL, _SET, _EXIT = 0x61, 0x57, 0x55, 0xB7, 0x95


def refusing(denied: Iterable[tuple[int, int]]) -> bytes:
    """A program that lets everything be opened but these character devices (major, minor).

    It finds in r1: what is wanted, of which the lower half is the kind; the major; the minor.
    """
    code = [
        _instruction(_LOAD, 2, source=1, offset=0),
        _instruction(_AND, 2, value=0xFFFF),
        _instruction(_LOAD, 3, source=1, offset=4),
        _instruction(_LOAD, 4, source=1, offset=8),
    ]
    for major, minor in sorted(set(denied)):
        code += [
            _instruction(_UNEQUAL, 2, offset=4, value=_CHARACTER),
            _instruction(_UNEQUAL, 3, offset=3, value=major),
            _instruction(_UNEQUAL, 4, offset=2, value=minor),
            _instruction(_SET, 0, value=0),
            _instruction(_EXIT),
        ]
    return b"".join([*code, _instruction(_SET, 0, value=1), _instruction(_EXIT)])


def confine(cgroup: str, denied: Iterable[tuple[int, int]]) -> None:
    """From here on nothing in this cgroup opens these devices; others that it could not, it can.

    Raises OSError. A kill in between leaves both programs there: what either refuses is refused,
    and the next call puts it right.
    """
    group = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        before = _attached(group)
        fresh = _load(refusing(denied))
        try:
            words = struct.pack("IIII", group, fresh, _ATTACH_CGROUP_DEVICE, _ALLOW_MULTI)
            _bpf(_PROG_ATTACH, words)
        finally:
            os.close(fresh)
        for number in before:
            old = _bpf(_PROG_GET_FD_BY_ID, struct.pack("I", number))
            try:
                _bpf(_PROG_DETACH, struct.pack("IIII", group, old, _ATTACH_CGROUP_DEVICE, 0))
            finally:
                os.close(old)
    finally:
        os.close(group)


def _attached(group: int) -> list[int]:
    """The ids of the programs on the cgroup itself."""
    ids = (ctypes.c_uint32 * _MOST)()
    words = ctypes.create_string_buffer(
        struct.pack("IIIIQI", group, _ATTACH_CGROUP_DEVICE, 0, 0, ctypes.addressof(ids), _MOST), 64
    )
    _call(_PROG_QUERY, words)
    (count,) = struct.unpack_from("I", words, 24)
    return list(ids[:count])


def _load(code: bytes) -> int:
    program = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"MIT")
    return _bpf(
        _PROG_LOAD,
        struct.pack(
            "IIQQ",
            _TYPE_CGROUP_DEVICE,
            len(code) // 8,
            ctypes.addressof(program),
            ctypes.addressof(licence),
        ),
    )


def _instruction(code: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | to, offset, value)


def _bpf(command: int, words: bytes) -> int:
    return _call(command, ctypes.create_string_buffer(words, 128))


def _call(command: int, words: ctypes.Array[ctypes.c_char]) -> int:
    number = _CALLS.get(platform.machine())
    if number is None:
        raise OSError(38, f"bpf(2) is not known on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    done = int(libc.syscall(number, command, words, len(words)))
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done
